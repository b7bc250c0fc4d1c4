"""For whom a peer waits: since when, what is known of them, and when to ask again or to say it aloud."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from thanos_peer.agent import Agent
from thanos_peer.block import AgentId
from thanos_peer.protocol.wire import LONGEST_TEXT, Bye
from thanos_peer.runtime.links import LinkState, unresolved_host

ASK_FIRST, ASK_MOST = 0.2, 2.0  # seconds after which a missing neighbor is asked, at first and at most
NOTICE_FIRST, NOTICE_MOST = 3.0, 60.0  # and after which the waiting is said aloud
LONGEST_TICK = 1.0  # seconds that count between two ticks; if there are more, this peer was frozen or very busy
FORGOTTEN = 60.0  # seconds without a connection, after which a peer that was done before waits for nobody


@dataclass(frozen=True)
class Patience:
    """How long to wait.

    Attributes:
        give_up: Seconds without a missing neighbor's block after which to end; None waits for ever.
        farewell: Seconds to stay, when done, for peers that are not; None stays until they are.
    """

    give_up: float | None = None
    farewell: float | None = None


class Waiting:
    """What a peer knows of its neighbors' silence. It decides and describes; the peer acts.

    Args:
        agent: Who waits.
        links: What is known of the connections.
        address: Where its neighbors reach it.

    Attributes:
        heard: When each has last said something, and in which round.
        since: When this round began.
        seconds_awake: How long it has lasted, without the time in which this peer was frozen.
    """

    def __init__(self, agent: Agent, links: Mapping[AgentId, LinkState], address: str) -> None:
        self._agent, self._links, self._address = agent, links, address
        self.heard: dict[AgentId, tuple[float, int]] = {}  # when, and in which round
        self._left: dict[AgentId, Bye] = {}
        self._spent: set[AgentId] = set()  # those that are done and have nothing left to say again
        self._told: dict[AgentId, str] = {}  # what keeps those waiting in turn that it waits for
        self.since = self._began = time.monotonic()
        self.begin_round()

    def begin_round(self) -> None:
        """Note that a new round begins, and that nobody has been waited for in it."""
        self.since = self._ticked = time.monotonic()
        self.seconds_awake = 0.0
        self._told.clear()
        self._interval, self._next_ask, self._next_notice = ASK_FIRST, ASK_FIRST, NOTICE_FIRST

    @property
    def has_spoken(self) -> bool:
        """Whether waiting has been said aloud in this round."""
        return self._next_notice > NOTICE_FIRST

    @property
    def seconds(self) -> float:
        """How long this round has lasted."""
        return time.monotonic() - self.since

    def note_tick(self) -> None:
        """Count the time in which this peer could have heard somebody."""
        now = time.monotonic()
        self.seconds_awake += min(now - self._ticked, LONGEST_TICK)
        self._ticked = now

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
        self._next_notice = waited + min(waited, NOTICE_MOST)
        return True

    def leave(self, neighbor: AgentId, bye: Bye) -> None:
        """Note that a neighbor leaves before it is done."""
        self._left[neighbor] = bye

    def finish(self, neighbor: AgentId) -> None:
        """Note that a neighbor is done, and has nothing left to say again."""
        self._spent.add(neighbor)

    def why_it_is_over(self, *, has_result: bool) -> str:
        """Why there is nothing to wait for any more; empty if there is.

        Args:
            has_result: Whether this peer was done in an earlier life: then nobody who is long gone is waited for.
        """
        missing, k = self._agent.missing(), self._agent.k
        if spent := [j for j in missing if j in self._spent]:
            return (
                f"this peer is in round {k}, but the run is over: done already, and without a state to say "
                f"any block again, are peers {_list(spent)}; bring back a later state of this peer, take the "
                "result of a neighbor, or begin anew with --fresh at all peers"
            )
        if has_result and (gone := [j for j in missing if self._is_gone(self._links[j])]):
            return f"not connected for {FORGOTTEN:.0f} s, and done most probably: peers {_list(gone)}"
        return ""

    def _is_gone(self, link: LinkState) -> bool:
        return not link.is_up and time.monotonic() - max(link.since, self._began) >= FORGOTTEN

    def come_back(self, neighbor: AgentId, trouble: str = "") -> None:
        """Note that a neighbor is here, and what keeps it waiting."""
        self._spent.discard(neighbor)
        self._told[neighbor] = trouble
        self._left.pop(neighbor, None)

    async def look_up_names(self) -> None:
        """Find out, beside the loop, whether it is a name that keeps a missing neighbor from being connected."""
        for state in (self._links[j] for j in self._agent.missing()):
            if not state.was_up:
                look_up = asyncio.get_running_loop().run_in_executor(None, unresolved_host, state.address)
                state.unresolved = await look_up

    def trouble(self) -> str:
        """What keeps it waiting, for those that wait for it: what it has been told, or else what it sees."""
        missing = self._agent.missing()
        if self.seconds < NOTICE_FIRST or self._agent.is_done or not missing:
            return ""
        left = [
            f"peer {j} left in round {self._left[j].k} ({self._left[j].reason})"
            for j in missing
            if j in self._left
        ]
        told = [self._told[j] for j in missing if self._told.get(j)]
        silent = [
            f"peer {j} at {self._links[j].address} is not connected" for j in missing if not self._links[j].is_up
        ]
        others = [f"peer {j} is behind" for j in missing]
        return ascii((left + told + silent + others)[0])[1:-1][:LONGEST_TEXT]

    def lines(self) -> list[str]:
        """For whom it waits now, a line each."""
        return [] if self._agent.is_done else [self._describe(j) for j in self._agent.missing()]

    def _describe(self, j: AgentId) -> str:
        now, link = time.monotonic(), self._links[j]
        silence = "never heard"
        if not link.was_up and self._agent.k > 0:
            silence += " (if it is done and gone, start it again: it answers, or says that the run is over)"
        if link.is_up and now - link.since >= NOTICE_FIRST:
            silence += f", so does it reach peer {self._agent.id} at {self._address}, and nobody else there?"
        if j in self.heard:
            when, k = self.heard[j]
            silence = f"last heard {now - when:.0f} s ago, in round {k}"
        told = f"; it says that {self._told[j]}" if self._told.get(j) else ""
        left = f", it left in round {self._left[j].k} ({self._left[j].reason})" if j in self._left else ""
        return (
            f"waiting {now - self.since:.0f} s in round {self._agent.k} for peer {j} at {link.address}: "
            f"{link.describe(now)}, {silence}{left}{told}"
        )


def _list(peers: Iterable[AgentId]) -> str:
    return ", ".join(map(str, peers))
