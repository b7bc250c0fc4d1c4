"""How a peer that has its result takes leave: not before all peers of the network have theirs.

Whoever is done may be needed once more. A neighbor that was killed asks for blocks again, and if a disk is lost
the tracking starts again at all peers, those that are done included. So each peer says how far around it all are
done: its radius is 0 when it is itself, and one more than the least that its neighbors have named. When it has
reached the diameter, all are done; when those of the neighbors have too, nobody needs this peer to know it.

Some are never heard from again. Who has given them up tells besides how far all others are done, its reach. When
that has come to the diameter a peer may leave, not knowing that all are done: it says so, and keeps its state.
"""

import time
from collections.abc import Iterable, Mapping

from thanos_peer.agent import Agent
from thanos_peer.block import AgentId
from thanos_peer.errors import RunOverError
from thanos_peer.protocol.wire import DONE, DONE_BUT, Bye
from thanos_peer.runtime.links import LinkState
from thanos_peer.runtime.waiting import ASK_MOST, FORGOTTEN, NOTICE_FIRST

LAST_WORD = 6.0  # seconds that those connected get to say that they know: more than it takes to notice a cut cable
GONE = 20.0  # seconds without a connection, after which a neighbor that is done has left for good


class Farewell:
    """What a peer knows of who is done. It decides and describes; the peer acts.

    Args:
        agent: Who takes leave.
        diameter: Of the network.
        links: What is known of the connections.
        limit: Seconds to stay for others; None stays until they are done.

    Attributes:
        radius: Up to which distance from this peer all are done; None while it is not done itself.
        reach: The same without those that are given up.
    """

    def __init__(
        self, agent: Agent, diameter: int, links: Mapping[AgentId, LinkState], limit: float | None = None
    ) -> None:
        self._agent, self._diameter, self._links, self._limit = agent, diameter, links, limit
        self._radii: dict[AgentId, int] = dict.fromkeys(agent.done, 0)
        self._reaches = dict(self._radii)
        self._left: dict[AgentId, str] = {}  # who has left without being done, and why
        self.radius: int | None = None
        self.reach = 0
        self._may_be_gone: set[AgentId] = (
            set()
        )  # who may have left without being heard, and is not known to be done
        self._began = self._awake = self._asked = self._spoken = self._knowing = time.monotonic()

    def begin(self, *, is_resumed: bool) -> None:
        """Note that the peer has its result, perhaps from an earlier life, and now stays for the others."""
        self._began = self._awake = self._asked = self._spoken = self._knowing = time.monotonic()
        self._may_be_gone |= self._not_done() if is_resumed else set()
        self.radius, self.reach = self._find_radius(), self._find_reach()

    def note_pause(self, seconds: float) -> None:
        """Note how long a short pause was; if very long, this peer was frozen, and others may have given it up.

        What it knew to be said may have been lost meanwhile, so that they get the time to hear it again.
        """
        if seconds >= LAST_WORD:
            self._awake = self._knowing = time.monotonic()
            self._may_be_gone |= self._not_done()

    def _not_done(self) -> set[AgentId]:
        return set(self._agent.neighbors) - self._agent.done

    def begin_epoch(self) -> None:
        """Nobody is done any more."""
        self._radii.clear()
        self._reaches.clear()
        self._left.clear()
        self._may_be_gone.clear()
        self.radius, self.reach = None, 0

    def hear(self, neighbor: AgentId, bye: Bye) -> bool:
        """Note that a neighbor is done, or leaves without; returns whether more are known to be done now."""
        if bye.is_done:
            self._agent.done.add(neighbor)
            sure = 0 if bye.reason == DONE_BUT else bye.radius
            self._radii[neighbor] = max(sure, self._radii.get(neighbor, 0))
            self._reaches[neighbor] = max(bye.radius, self._reaches.get(neighbor, 0))
        else:
            self._left[neighbor] = bye.reason
        return self.has_grown()

    def has_grown(self) -> bool:
        """Whether more are known to be done than before; also because some have been gone for long."""
        if self.radius is None:
            return False
        known = max(self._find_radius(), self.radius), max(self._find_reach(), self.reach)
        if known == (self.radius, self.reach):
            return False
        (self.radius, self.reach), self._knowing = known, time.monotonic()
        return True

    def words(self) -> list[Bye]:
        """What to tell the neighbors; nothing while this peer is not done."""
        if self.radius is None:
            return []
        sure = Bye(self._agent.k, DONE, self.radius)
        return [sure] if self.reach <= self.radius else [sure, Bye(sure.k, DONE_BUT, self.reach)]

    def come_back(self, neighbor: AgentId, *, is_behind: bool = False) -> None:
        """Note that a neighbor is here again; if it is behind, it has lost what it was done with.

        Or it was not itself that spoke, or long ago: so it is waited for while it is there, not for ever. The same
        holds for what is heard just after being frozen.
        """
        self._left.pop(neighbor, None)
        if not is_behind and time.monotonic() - self._awake >= LAST_WORD:
            self._may_be_gone.discard(neighbor)
        if is_behind:
            self._may_be_gone |= {neighbor} & self._agent.done
            self._agent.done.discard(neighbor)
            self._radii.pop(neighbor, None)
            self._reaches.pop(neighbor, None)

    def _find_radius(self) -> int:
        return self._beyond(self._radii.get(j, -1) for j in self._agent.neighbors)

    def _find_reach(self) -> int:
        here = (j for j in self._agent.neighbors if not self._is_given_up(j))
        return self._beyond(self._reaches.get(j, -1) for j in here)

    def _beyond(self, known: Iterable[int]) -> int:
        return min(1 + min(known, default=self._diameter), self._diameter + 1)

    def _is_given_up(self, j: AgentId) -> bool:
        """Whether there is nothing to be heard from a neighbor any more."""
        link = self._links[j]
        seconds = 0.0 if link.is_up else time.monotonic() - max(link.since, self._awake)
        if j in self._agent.done:
            return seconds >= GONE
        return self._left.get(j) == RunOverError.in_short or (j in self._may_be_gone and seconds >= FORGOTTEN)

    @property
    def is_everybody_done(self) -> bool:
        """Whether all peers of the network are known to have their results."""
        is_sure = self.radius is not None and self.radius >= self._diameter
        return is_sure and self._agent.done.issuperset(self._agent.neighbors)

    def unsure(self) -> list[AgentId]:
        """The neighbors that have not said yet that everybody is done who can be heard from."""
        silent = [j for j in self._agent.neighbors if self._reaches.get(j, -1) < self._diameter]
        return [j for j in silent if not self._is_given_up(j)]

    def is_over(self) -> bool:
        """Whether it may leave: all know that all are done, or have had the time to hear it, or are gone."""
        now, unsure = time.monotonic(), self.unsure()
        had_time = now - self._knowing >= LAST_WORD and all(self._links[j].is_up for j in unsure)
        if not unsure or (had_time and self._find_reach() >= self._diameter):
            return True
        return self._limit is not None and now - self._began >= self._limit

    def is_time_to_ask(self) -> bool:
        """Whether to ask those that are unsure what they know, in case that it got lost."""
        now = time.monotonic()
        if now - self._asked < ASK_MOST / 2:
            return False
        self._asked = now
        return True

    def is_time_to_speak(self) -> bool:
        """Whether to say aloud for whom it stays; at growing intervals."""
        now = time.monotonic()
        if now - self._spoken < max(NOTICE_FIRST, self._spoken - self._began):
            return False
        self._spoken = now
        return True

    def describe(self) -> str:
        """For whom it stays."""
        unsure, behind = self.unsure(), [j for j in self.unsure() if j not in self._agent.done]
        who = f"peers {self._list(behind)}, which have not said that they are"
        if not all(self._links[j].is_up for j in behind):
            who += " (if done and gone, each says so when it is started again)"
        if not behind:
            who = f"peers beyond {self._list(unsure)}, of which not all are known to be"
        return f"done, result written; staying, since {time.monotonic() - self._began:.0f} s, for {who}"

    def describe_end(self) -> str:
        """For whom it stayed in vain; empty if for nobody."""
        if self.is_everybody_done:
            return ""
        silent = [j for j in self._agent.neighbors if self._radii.get(j, -1) < self._diameter]
        left = f"done, and left before hearing from peers {self._list(silent)} that all are"
        return f"{left}; the state is kept: if one lacks something, start this again"

    def _list(self, peers: list[AgentId]) -> str:
        return ", ".join(f"{j}{self._whereabouts(j)}" for j in peers)

    def _whereabouts(self, j: AgentId) -> str:
        if j in self._left:
            return f" (left: {self._left[j]})"
        return "" if self._links[j].is_up else " (not connected)"
