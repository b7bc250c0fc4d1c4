"""For whom a peer waits: since when, what is known of them, and when to ask again or to say it aloud."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from thanos_peer.agent import Agent
from thanos_peer.block import AgentId
from thanos_peer.protocol.wire import Bye
from thanos_peer.runtime.links import LinkState, unresolved_host

ASK_FIRST, ASK_MOST = 0.2, 2.0  # seconds after which a missing neighbor is asked, at first and at most
NOTICE_FIRST, NOTICE_MOST = 3.0, 60.0  # and after which the waiting is said aloud


@dataclass(frozen=True)
class Patience:
    """How long to wait.

    Attributes:
        give_up: Seconds without a missing neighbor's block after which to end; None waits for ever.
        farewell: Seconds to stay, when done, for neighbors that are not.
    """

    give_up: float | None = None
    farewell: float = 30.0


class Waiting:
    """What a peer knows of its neighbors' silence. It decides and describes; the peer acts.

    Args:
        agent: Who waits.
        links: What is known of the connections.
    """

    def __init__(self, agent: Agent, links: Mapping[AgentId, LinkState]) -> None:
        self._agent, self._links = agent, links
        self._heard_at: dict[AgentId, float] = {}
        self._left: dict[AgentId, Bye] = {}
        self._round_of: dict[AgentId, int] = {}
        self.since = time.monotonic()
        self.begin_round()

    def begin_round(self) -> None:
        """Note that a new round begins, and that nobody has been waited for in it."""
        self.since = time.monotonic()
        self._interval, self._next_ask, self._next_notice = ASK_FIRST, ASK_FIRST, NOTICE_FIRST

    @property
    def seconds(self) -> float:
        """How long this round has lasted."""
        return time.monotonic() - self.since

    def is_time_to_ask(self) -> bool:
        """Whether those missing should be asked again; at growing intervals."""
        waited = self.seconds
        if waited < self._next_ask:
            return False
        self._next_ask = waited + self._interval
        self._interval = min(2 * self._interval, ASK_MOST)
        return True

    def is_time_to_speak(self) -> bool:
        """Whether the waiting should be said aloud; at growing intervals."""
        waited = self.seconds
        if waited < self._next_notice:
            return False
        self._next_notice = waited + min(2 * waited, NOTICE_MOST)
        return True

    def hear(self, neighbor: AgentId, k: int, now: float) -> None:
        """Note that a neighbor spoke, and in which round it was."""
        self._heard_at[neighbor], self._round_of[neighbor] = now, k

    def leave(self, neighbor: AgentId, bye: Bye) -> None:
        """Note that a neighbor leaves."""
        self._left[neighbor] = bye

    def come_back(self, neighbor: AgentId) -> None:
        """Note that a neighbor is here; a Bye of the last round is final all the same."""
        if neighbor in self._left and self._left[neighbor].k < self._agent.last_round:
            del self._left[neighbor]

    def behind(self) -> list[AgentId]:
        """The neighbors that have not said that they are done."""
        last = self._agent.state.k
        return [j for j in self._agent.neighbors if j not in self._left or self._left[j].k < last]

    async def look_up_names(self) -> None:
        """Find out, beside the loop, whether it is a name that keeps a missing neighbor from being connected."""
        for state in (self._links[j] for j in self._agent.missing()):
            if not state.was_up:
                look_up = asyncio.get_running_loop().run_in_executor(None, unresolved_host, state.address)
                state.unresolved = await look_up

    def lines(self) -> list[str]:
        """For whom it waits now, a line each."""
        return [] if self._agent.is_done else [self._describe(j) for j in self._agent.missing()]

    def _describe(self, j: AgentId) -> str:
        now, link = time.monotonic(), self._links[j]
        heard = self._heard_at.get(j)
        silence = (
            "never heard" if heard is None else f"last heard {now - heard:.0f} s ago, in round {self._round_of[j]}"
        )
        left = f", it left in round {self._left[j].k} ({self._left[j].reason})" if j in self._left else ""
        return (
            f"waiting {now - self.since:.0f} s in round {self._agent.state.k} for peer {j} at {link.address}: "
            f"{link.describe(now)}, {silence}{left}"
        )
