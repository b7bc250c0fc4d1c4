"""Work beside the rounds of a peer: checkpoints that are being written, names that are being looked up."""

import asyncio
from collections.abc import Callable, Coroutine


class Background:
    """Runs work beside the rounds, and waits for it at the end.

    Args:
        on_error: Called with an error that ends a piece of work.
    """

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Begin a piece of work."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error)

    async def wait(self) -> None:
        """Wait until all that has begun has ended."""
        if self._tasks:
            await asyncio.wait(self._tasks)
