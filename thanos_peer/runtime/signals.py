"""SIGINT and SIGTERM: the first lets a peer finish its round, the second ends it at once, and none is lost.

The handlers are the process's, not the event loop's: those of a loop end with it, and what they have not passed on
by then nobody hears of.
"""

import os
import signal
from collections.abc import Callable
from types import FrameType

NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """What this process has been told since it began to listen.

    Attributes:
        heard: The signals so far, in order.
    """

    def __init__(self) -> None:
        self.heard: list[int] = []
        self._on_first: Callable[[int], None] | None = None

    def listen(self, on_first: Callable[[int], None]) -> None:
        """Call this at the first signal, from within whatever is being done, and end the process at the second."""
        self._on_first = on_first
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
        signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)  # first: one that comes now stays for sigwait
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
