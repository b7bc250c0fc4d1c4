"""For whom a peer waits: since when, what is known of them, and when to ask again or to write it to the log."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thanos_peer.block import AgentId
from thanos_peer.protocol.messages import LONGEST_TEXT
from thanos_peer.protocol.neighbor import Neighbor

if TYPE_CHECKING:
    from thanos_peer.agent import Agent

# Seconds after which a missing neighbor is asked, at first and at most.
ASK_FIRST, ASK_MOST = 0.2, 2.0
# Seconds after which the waiting is logged, at first and at most.
NOTICE_FIRST, NOTICE_MOST = 3.0, 60.0
# Seconds that count between two ticks, at most: if there are more, this peer was frozen or very busy.
LONGEST_TICK = 1.0
# Seconds without a connection after which a peer that was done before waits no longer for a neighbor.
FORGOTTEN = 60.0


@dataclass(frozen=True)
class Patience:
    """How long to wait.

    Attributes:
        give_up: Seconds without a missing neighbor's block after which to end; None waits without end.
        leave_after: Seconds to stay, when done, for peers that are not; None stays until they are.
    """

    give_up: float | None = None
    leave_after: float | None = None


class Waiting:
    """What a peer knows of its neighbors' silence. It decides and describes; the session acts.

    Args:
        agent: The agent that waits.
        neighbors: What is known of them.
        address: Where its neighbors reach it.
        now: The time.

    Attributes:
        since: When this round began.
        seconds_awake: How long it has lasted, without the time in which this peer was frozen.
    """

    def __init__(self, agent: "Agent", neighbors: Mapping[AgentId, Neighbor], address: str, *, now: float) -> None:
        self._agent, self._neighbors, self._address = agent, neighbors, address
        self._began = now
        self.begin_round(now)

    def begin_round(self, now: float) -> None:
        """Note that a new round begins, and that none has been waited for in it."""
        self.since = self._ticked = now
        self.seconds_awake = 0.0
        self._interval, self._next_ask, self._next_notice = ASK_FIRST, ASK_FIRST, NOTICE_FIRST

    @property
    def has_spoken(self) -> bool:
        """Whether waiting has been logged in this round."""
        return self._next_notice > NOTICE_FIRST

    def note_tick(self, now: float) -> None:
        """Count the time in which this peer could have heard its neighbors."""
        self.seconds_awake += min(now - self._ticked, LONGEST_TICK)
        self._ticked = now

    def is_time_to_ask(self, now: float) -> bool:
        """Whether those missing should be asked again; at growing intervals."""
        waited = now - self.since
        if waited < self._next_ask:
            return False
        self._next_ask = waited + self._interval
        self._interval = min(2 * self._interval, ASK_MOST)
        return True

    def is_time_to_speak(self, now: float) -> bool:
        """Whether the waiting should be logged; at growing intervals."""
        waited = now - self.since
        if waited < self._next_notice:
            return False
        self._next_notice = waited + min(waited, NOTICE_MOST)
        return True

    def why_it_is_over(self, now: float, *, has_result: bool) -> str:
        """Why there is nothing to wait for any more; empty if there is.

        Args:
            now: The time.
            has_result: Whether this peer was done in an earlier life: then it does not wait for neighbors that
                have been gone for long.
        """
        missing = self._missing()
        if spent := [each.id for each in missing if each.is_spent]:
            return (
                f"this peer is in round {self._agent.k}, but the run is over: done already, and without a state "
                f"to say any block again, are peers {_list(spent)}; bring back a later state of this peer, take "
                "the result of a neighbor, or begin anew with --fresh at all peers"
            )
        over = [each.id for each in missing if each.has_left_for_good]
        if over and self._agent.epoch > 0 and now - self.since >= FORGOTTEN:
            # Others did not begin this epoch with them: they had left, having their results.
            return (
                f"this peer is in round {self._agent.k}, but the run is over: the state is lost of peers "
                f"{_list(over)}, which have left; bring that back, take the result of a neighbor that is done, or "
                "begin anew with --fresh at all peers"
            )
        if has_result and (gone := [each.id for each in missing if self._is_gone(each, now)]):
            return f"not connected for {FORGOTTEN:.0f} s, and done most probably: peers {_list(gone)}"
        return ""

    def _missing(self) -> list[Neighbor]:
        return [self._neighbors[j] for j in self._agent.exchange.missing()]

    def _is_gone(self, neighbor: Neighbor, now: float) -> bool:
        link = neighbor.link
        return not link.is_up and now - max(link.since, self._began) >= FORGOTTEN

    def unconnected(self) -> list[AgentId]:
        """Missing neighbors that were never connected: perhaps because of their hosts' names."""
        return [each.id for each in self._missing() if not each.link.was_up]

    def trouble(self, now: float) -> str:
        """What keeps it waiting, for those that wait for it: what it has been told, or else what it sees."""
        missing, k = self._missing(), self._agent.k
        if now - self.since < NOTICE_FIRST or self._agent.is_done or not missing:
            return ""
        bad = [
            f"peer {each.id} sends what peer {self._agent.id} refuses: {each.conduct.refused} messages so far"
            for each in missing
            if each.conduct.is_bad(now)
        ]
        left = [
            f"peer {each.id} left in round {each.left.k} ({each.left.reason})" for each in missing if each.left
        ]
        told = [each.trouble_in(k) for each in missing if each.trouble_in(k)]
        silent = [
            f"peer {each.id} at {each.link.address} is not connected" for each in missing if not each.link.is_up
        ]
        others = [f"peer {each.id} is behind" for each in missing]
        return ascii((bad + left + told + silent + others)[0])[1:-1][:LONGEST_TEXT]

    def lines(self, now: float) -> list[str]:
        """For whom it waits now, a line each."""
        return [] if self._agent.is_done else [self._describe(each, now) for each in self._missing()]

    def _describe(self, neighbor: Neighbor, now: float) -> str:
        link, k = neighbor.link, self._agent.k
        silence = "never heard"
        if not link.was_up and k > 0:
            silence += " (if it is done and gone, start it again: it answers, or says that the run is over)"
        if link.is_up and now - link.since >= NOTICE_FIRST:
            silence += f", so does it reach peer {self._agent.id} at {self._address}, and no other there?"
        if neighbor.heard is not None:
            when, where = neighbor.heard
            silence = f"last heard {now - when:.0f} s ago, in round {where}"
            if not link.was_up and not link.is_up:
                silence += ": it reaches this peer, and not the other way round"
        told = f"; it says that {trouble}" if (trouble := neighbor.trouble_in(k)) else ""
        left = f", it left in round {neighbor.left.k} ({neighbor.left.reason})" if neighbor.left else ""
        refused = f"; {conduct}" if (conduct := neighbor.conduct.describe(now)) else ""
        return (
            f"waiting {now - self.since:.0f} s in round {k} for peer {neighbor.id} at {link.address}: "
            f"{link.describe(now)}, {silence}{left}{refused}{told}"
        )


def _list(peers: Iterable[AgentId]) -> str:
    return ", ".join(map(str, peers))
