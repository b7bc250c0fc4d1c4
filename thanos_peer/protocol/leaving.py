"""When a peer that has its result may leave: not before all peers of the network have theirs.

A peer that is done may be needed once more. A neighbor that was killed asks for blocks again, and if a disk is
lost the tracking starts again at all peers, those that are done included. So each peer says how far around it all
are done: its radius is 0 when it is itself, and one more than the least that its neighbors have named. When it has
reached the diameter, all are done; when those of the neighbors have too, no neighbor needs this peer to know it.

Some are never heard from again. A peer that has given them up also tells how far all others are done, its reach.
When that has come to the diameter a peer may leave, not knowing that all are done: it says so, and keeps its
state.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from thanos_peer.block import AgentId
from thanos_peer.protocol.messages import DONE, DONE_BUT, Bye
from thanos_peer.protocol.neighbor import Neighbor
from thanos_peer.protocol.waiting import ASK_MOST, FORGOTTEN, NOTICE_FIRST

if TYPE_CHECKING:
    from thanos_peer.agent import Agent

# Seconds that connected neighbors get to say that they know: more than it takes to notice a cut cable.
LAST_WORD = 6.0
# Seconds without a connection after which a neighbor that is done has left for good.
GONE = 20.0


class Leaving:
    """What a peer knows of peers that are done. It decides and describes; the session acts.

    Args:
        agent: Who wants to leave.
        neighbors: What is known of them.
        diameter: Of the network.
        limit: Seconds to stay for others; None stays until they are done.
        now: The time.

    Attributes:
        radius: Up to which distance from this peer all are done; None while it is not done itself.
        reach: The same without those that are given up.
    """

    def __init__(
        self,
        agent: "Agent",
        neighbors: Mapping[AgentId, Neighbor],
        diameter: int,
        *,
        limit: float | None = None,
        now: float,
    ) -> None:
        self._agent, self._neighbors, self._diameter, self._limit = agent, neighbors, diameter, limit
        for j in agent.done:
            neighbors[j].epoch.radius = neighbors[j].epoch.reach = 0
        self.radius: int | None = None
        self.reach = 0
        self._start_clocks(now)

    def _start_clocks(self, now: float) -> None:
        self._began = self._awake = self._asked = self._spoken = self._knowing = self._ticked = now

    def begin(self, now: float, *, is_resumed: bool) -> None:
        """Note that the peer has its result, perhaps from an earlier life, and now stays for the others."""
        self._start_clocks(now)
        if is_resumed:
            self._doubt_those_not_done()
        self.radius, self.reach = self._find_radius(), self._find_reach(now)

    def note_tick(self, now: float) -> None:
        """Note the time; if the last tick was long ago, this peer was frozen, and others may have given it up.

        What it sent meanwhile may have been lost, so that they get the time to hear it again.
        """
        if now - self._ticked >= LAST_WORD:
            self._awake = self._knowing = now
            self._doubt_those_not_done()
        self._ticked = now

    def _doubt_those_not_done(self) -> None:
        for j, neighbor in self._neighbors.items():
            neighbor.epoch.may_be_gone |= j not in self._agent.done

    def begin_epoch(self) -> None:
        """No peer is done any more."""
        self.radius, self.reach = None, 0

    def hear(self, neighbor: Neighbor, bye: Bye, now: float) -> bool:
        """Note that a neighbor is done, or leaves without; returns whether more are known to be done now."""
        if bye.is_done:
            self._agent.done.add(neighbor.id)
            sure, known = 0 if bye.reason == DONE_BUT else bye.radius, neighbor.epoch
            known.radius, known.reach = max(sure, known.radius), max(bye.radius, known.reach)
        else:
            neighbor.left = bye
        return self.has_grown(now)

    def has_grown(self, now: float) -> bool:
        """Whether more are known to be done than before; also because some have been gone for long."""
        if self.radius is None:
            return False
        known = max(self._find_radius(), self.radius), max(self._find_reach(now), self.reach)
        if known == (self.radius, self.reach):
            return False
        (self.radius, self.reach), self._knowing = known, now
        return True

    def byes(self) -> list[Bye]:
        """What to tell the neighbors; nothing while this peer is not done."""
        if self.radius is None:
            return []
        sure = Bye(self._agent.k, DONE, self.radius)
        return [sure] if self.reach <= self.radius else [sure, Bye(sure.k, DONE_BUT, self.reach)]

    def come_back(self, neighbor: Neighbor, now: float, *, is_behind: bool = False) -> None:
        """Note that a neighbor is here again; if it is behind, it has lost what it was done with.

        Or it was a duplicate that spoke, or the message is old: so it is waited for while it is connected, not for
        ever. The same holds for what is heard just after being frozen.
        """
        neighbor.left = neighbor.epoch.last_round = None
        if not is_behind and now - self._awake >= LAST_WORD:
            neighbor.epoch.may_be_gone = False
        if is_behind:
            neighbor.epoch.may_be_gone |= neighbor.id in self._agent.done
            self._agent.done.discard(neighbor.id)
            neighbor.epoch.radius = neighbor.epoch.reach = -1

    def _find_radius(self) -> int:
        return self._beyond(each.epoch.radius for each in self._neighbors.values())

    def _find_reach(self, now: float) -> int:
        here = (each for each in self._neighbors.values() if not self._is_given_up(each, now))
        return self._beyond(each.epoch.reach for each in here)

    def _beyond(self, known: Iterable[int]) -> int:
        return min(1 + min(known, default=self._diameter), self._diameter + 1)

    def _is_given_up(self, neighbor: Neighbor, now: float) -> bool:
        """Whether there is nothing to be heard from a neighbor any more."""
        link = neighbor.link
        seconds = 0.0 if link.is_up else now - max(link.since, self._awake)
        if neighbor.id in self._agent.done:
            return seconds >= GONE
        return neighbor.has_left_for_good or (neighbor.epoch.may_be_gone and seconds >= FORGOTTEN)

    @property
    def are_all_done(self) -> bool:
        """Whether all peers of the network are known to have their results."""
        is_sure = self.radius is not None and self.radius >= self._diameter
        return is_sure and self._agent.done.issuperset(self._agent.neighbors)

    def unsure(self, now: float) -> list[AgentId]:
        """The neighbors that can be heard from and have not said yet that all are done."""
        silent = (each for each in self._neighbors.values() if each.epoch.reach < self._diameter)
        return [each.id for each in silent if not self._is_given_up(each, now)]

    def is_over(self, now: float) -> bool:
        """Whether it may leave: all know that all are done, or have had the time to hear it, or are gone."""
        unsure = self.unsure(now)
        links = [self._neighbors[j].link for j in unsure]
        had_time = all(link.is_up and now - max(link.since, self._knowing) >= LAST_WORD for link in links)
        if not unsure or (had_time and self._find_reach(now) >= self._diameter):
            return True
        return self._limit is not None and now - self._began >= self._limit

    def is_time_to_ask(self, now: float) -> bool:
        """Whether to ask those that are unsure what they know, in case that it got lost."""
        if now - self._asked < ASK_MOST / 2:
            return False
        self._asked = now
        return True

    def is_time_to_speak(self, now: float) -> bool:
        """Whether to log for whom it stays; at growing intervals."""
        if now - self._spoken < max(NOTICE_FIRST, self._spoken - self._began):
            return False
        self._spoken = now
        return True

    def describe(self, now: float) -> str:
        """For whom it stays."""
        unsure = self.unsure(now)
        behind = [j for j in unsure if j not in self._agent.done]
        who = f"peers {self._list(behind)}, which have not said that they are"
        if not all(self._neighbors[j].link.is_up for j in behind):
            who += " (if done and gone, each says so when it is started again)"
        if not behind:
            who = f"peers beyond {self._list(unsure)}, of which not all are known to be"
        return f"done, result written; staying, since {now - self._began:.0f} s, for {who}"

    def describe_end(self) -> str:
        """For whom it stayed in vain; empty if for none."""
        if self.are_all_done:
            return ""
        silent = [j for j, each in self._neighbors.items() if each.epoch.radius < self._diameter]
        left = f"done, and left before hearing from peers {self._list(silent)} that all are"
        return f"{left}; the state is kept: if one lacks something, start this again"

    def _list(self, peers: list[AgentId]) -> str:
        return ", ".join(f"{j}{self._whereabouts(self._neighbors[j])}" for j in peers)

    @staticmethod
    def _whereabouts(neighbor: Neighbor) -> str:
        if neighbor.left is not None:
            return f" (left: {neighbor.left.reason})"
        return "" if neighbor.link.is_up else " (not connected)"
