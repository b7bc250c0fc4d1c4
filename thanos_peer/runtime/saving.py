"""When a peer saves its memory: now and then, beside the rounds, and never more than a bounded amount late.

Nothing waits for the disk. A block may be said before its round is saved, because the neighbors keep what they
have said since the fallback that this peer's blocks name: it can start again from there, and will say the same
once more. What they keep is bounded in bytes: whoever gets so far ahead of the disk pauses until it has caught up.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from thanos_peer.agent import Agent, Memory
from thanos_peer.runtime.checkpoint import CheckpointStore
from thanos_peer.topology import Topology

log = logging.getLogger("thanos_peer")

INTERVAL = 1.0  # seconds between two checkpoints
PARTS = 4  # of what may be unsaved: after one of them a checkpoint is begun
SLOW = 3.0  # seconds after which a disk is called slow


class Saving:
    """Saves one agent's memory; use it inside a running event loop.

    Args:
        agent: Whose memory it is.
        store: Where it goes.
        topology: Whose blocks they are.
        on_saved: Called after each checkpoint, with the error if it could not be written.
    """

    def __init__(
        self,
        agent: Agent,
        store: CheckpointStore,
        *,
        topology: Topology,
        on_saved: Callable[[BaseException | None], None],
    ) -> None:
        self._agent, self._store, self._on_saved = agent, store, on_saved
        self._most = agent.blocks_kept
        self._diameter = topology.graph.diameter
        self.latest = agent.k  # of which there is a checkpoint before the first round
        self._task: asyncio.Task[None] | None = None
        self._began = time.monotonic()
        self._next_notice = SLOW
        self.count = 0

    def note_round(self) -> None:
        """Begin to save if much has happened since the last time."""
        if self._agent.k - self.latest >= self._most // PARTS:
            self._begin()

    def note_time(self) -> None:
        """Begin to save if the last time was long ago; say so if the disk takes long."""
        waited = time.monotonic() - self._began
        if self._task is None and waited >= INTERVAL and self._agent.k > self.latest:
            self._begin()
        elif self._task is not None and waited >= self._next_notice:
            log.warning("saving to %s takes %.0f s already", self._store.directory, waited)
            self._next_notice = 2 * waited

    def must_wait(self) -> bool:
        """Whether so much is unsaved that the next round has to wait."""
        k, fallback = self._agent.k, self._agent.fallback
        return fallback is not None and k - fallback >= self._most and k > self.latest

    async def finish(self) -> None:
        """Save where it stands now, and who is done."""
        if self._task is not None:
            await asyncio.wait({self._task})
        await self._begin()

    def begin_epoch(self) -> None:
        """Save the start of a new epoch, before anybody hears of it: it cannot be begun a second time."""
        self._store.save(self._agent.memory())
        self._store.forget_epochs_before(self._agent.epoch - 1)
        self.latest = self._agent.k

    def _begin(self) -> "asyncio.Task[None]":
        """Save, unless that is under way already: never two at once."""
        if self._task is None:
            self._began, self._next_notice = time.monotonic(), SLOW
            self._task = asyncio.create_task(self._save(self._agent.memory()))
            self._task.add_done_callback(self._end)
        return self._task

    async def _save(self, memory: Memory) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._store.save, memory)
        self.count += 1
        if memory.epoch == self._agent.epoch and memory.k > self.latest:
            self._agent.fallback, self.latest = self.latest, memory.k
        if memory.epoch and memory.k > self._diameter:  # so everybody has begun this epoch
            self._store.forget_epochs_before(memory.epoch)

    def _end(self, task: "asyncio.Task[None]") -> None:
        self._task = None
        if task.cancelled():
            return
        if task.exception() is None:
            self.note_round()  # large blocks: there may be as much to save again
        self._on_saved(task.exception())
