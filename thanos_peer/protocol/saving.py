"""When a peer saves its memory: now and then, beside the rounds, and never more than a bounded amount late.

Nothing waits for the disk. A block may be sent before its round is saved, because the neighbors keep what they
have sent since the fallback that this peer's blocks name: it can start again from there, and will send the same
once more. What they keep is bounded in bytes: a peer that gets so far ahead of its disk pauses until it has caught
up.

What a neighbor says does not make it write more: `storage/block_files.py` writes each block once, however long a
neighbor has it kept.
"""

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thanos_peer.agent import Agent, Memory
    from thanos_peer.block import AgentId

INTERVAL = 1.0  # seconds between two checkpoints
# Parts into which the rounds that may be unsaved are divided: after one of them a checkpoint is begun.
PARTS = 4
# Seconds after which a disk is called slow.
SLOW = 3.0
# Checkpoints of this peer that are all later than the fallback of a neighbor if that is old.
MANY = 16
# Seconds after which a neighbor whose fallback has been old all the time is named.
OLD = 10.0


class Saving:
    """When to save one agent's memory; never two checkpoints at once. The session and its peer act.

    Args:
        agent: Whose memory it is.
        now: The time.
        blocks_kept: How many rounds the agent may be ahead of its disk.

    Attributes:
        latest: The round of the latest checkpoint.
        count: How many have been written.
        is_under_way: Whether one is being written.
    """

    def __init__(self, agent: "Agent", now: float, blocks_kept: int) -> None:
        self._agent, self._most = agent, blocks_kept
        # There is a checkpoint of this round before the rounds begin.
        self.latest = agent.k
        self.count = 0
        self.is_under_way = False
        self._began, self._next_notice = now, SLOW
        # The rounds of the latest checkpoints, and since when the fallbacks of neighbors are old.
        self._rounds = deque[int](maxlen=MANY)
        self._old_since = dict["AgentId", float]()

    def is_due(self, now: float) -> bool:
        """Whether much has happened since the last time, or it was long ago."""
        unsaved = self._agent.k - self.latest
        is_much = unsaved >= self._most // PARTS or self.must_wait
        is_long_ago = now - self._began >= INTERVAL
        return not self.is_under_way and (is_much or (is_long_ago and unsaved > 0))

    def begin(self, now: float) -> "Memory":
        """What is to be saved now."""
        self.is_under_way, self._began, self._next_notice = True, now, SLOW
        return self._agent.memory()

    def end(self, memory: "Memory") -> None:
        """Note that this is saved."""
        self.is_under_way = False
        self.count += 1
        if memory.epoch == self._agent.epoch and memory.k > self.latest:
            self._agent.fallback, self.latest = self.latest, memory.k

    def begin_epoch(self) -> "Memory":
        """The start of a new epoch, to be saved before neighbors hear of it: it cannot be begun a second time."""
        self.latest = self._agent.k
        self._rounds.clear()
        self._old_since.clear()
        return self._agent.memory()

    def old_fallbacks(self, memory: "Memory", now: float) -> dict["AgentId", int]:
        """The neighbors whose fallbacks have been old for some time, and these, when a checkpoint is begun.

        A neighbor whose disk is not slow saves as often as this peer, and never gets so far ahead of its fallback.
        """
        if memory.k not in self._rounds:
            self._rounds.append(memory.k)
        limit = memory.k - self._most * 3 // 4
        if len(self._rounds) == MANY:
            limit = max(limit, self._rounds[0])
        old = {j: fallback for j, fallback in memory.fallbacks.items() if fallback < limit}
        self._old_since = {j: self._old_since.get(j, now) for j in old}
        return {j: fallback for j, fallback in old.items() if now - self._old_since[j] >= OLD}

    def notice(self, now: float) -> str:
        """What to log of a slow disk; empty if nothing, or not yet again."""
        waited = now - self._began
        if not self.is_under_way or waited < self._next_notice:
            return ""
        self._next_notice = 2 * waited
        return f"saving the state takes {waited:.0f} s already"

    @property
    def must_wait(self) -> bool:
        """Whether so much is unsaved that the next round has to wait."""
        k, fallback = self._agent.k, self._agent.fallback
        return fallback is not None and k - fallback >= self._most and k > self.latest
