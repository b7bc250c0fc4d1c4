"""The checkpoints that a session wants: at once, or beside the rounds."""

import asyncio

from thanos_peer.agent import Memory
from thanos_peer.storage.checkpoint import CheckpointStore


class CheckpointWriter:
    """Writes checkpoints, and removes those of epochs that no peer goes back to.

    Args:
        store: Where they go.
        diameter: Of the graph.
    """

    def __init__(self, store: CheckpointStore, diameter: int) -> None:
        self._store, self._diameter = store, diameter

    def write_now(self, memory: Memory) -> None:
        """The start of an epoch, at once."""
        self._store.save(memory)
        self._store.forget_epochs_before(memory.epoch - 1)

    async def write(self, memory: Memory) -> None:
        """In a thread."""
        await asyncio.get_running_loop().run_in_executor(None, self._store.save, memory)
        # A checkpoint of so late a round means that all peers have begun this epoch.
        if memory.epoch and memory.k > self._diameter:
            self._store.forget_epochs_before(memory.epoch)
