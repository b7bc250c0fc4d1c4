"""SIGINT and SIGTERM: the first lets a peer finish its round, the second ends it at once, and none is lost.

The handlers are the process's, not the event loop's: those of a loop end with it, and a signal that they have
not passed on by then is lost.
"""

import os
import select
import signal
import threading
from collections.abc import Callable
from types import FrameType

NUMBERS = (signal.SIGINT, signal.SIGTERM)
LOOK_MS = 200


class Signals:
    """What this process has been told since it began to listen.

    Attributes:
        heard: The signals so far, in order.
    """

    def __init__(self) -> None:
        self.heard: list[int] = []
        self._listens = threading.Event()
        self._on_first: Callable[[int], None] | None = None

    def end_with(self, pipe: int) -> None:
        """Until this listens, end the process as SIGTERM would if the other end of a pipe is closed."""
        threading.Thread(target=self._end_with, args=(pipe,), daemon=True).start()

    def _end_with(self, pipe: int) -> None:
        ends = select.poll()
        # No events: the end of the pipe is reported in any case.
        ends.register(pipe, 0)
        while not self._listens.is_set():
            if ends.poll(LOOK_MS):
                os._exit(128 + signal.SIGTERM)

    def listen(self, on_first: Callable[[int], None]) -> None:
        """Call this at the first signal, from within whatever is being done, and end the process at the second."""
        self._on_first = on_first
        self._listens.set()
        self._take_over()

    def only_note(self) -> None:
        """All is decided: a late signal shall not change how this process ends."""
        self._on_first = None
        self._take_over()

    def note(self, number: int) -> None:
        """Take something else for a signal."""
        self.heard.append(number)

    def wait(self) -> None:
        """Until there has been one, or comes one."""
        # Blocked first, so that a signal that comes now stays for sigwait.
        signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)
        if not self.heard:
            self.heard.append(signal.sigwait(NUMBERS))

    def _take_over(self) -> None:
        for number in NUMBERS:
            signal.signal(number, self._hear)

    def _hear(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self._on_first is not None:
            if self.heard:
                os._exit(128 + number)
            self._on_first(number)
        self.heard.append(number)
