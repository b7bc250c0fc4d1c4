"""What neighbors ask for, until it is answered: of each the latest question, and the same one not all the time.

An answer costs more than a question: two blocks are looked up, encoded and sent. A sound neighbor asks for a later
round each time, as fast as it is answered, or asks again after ASK_FIRST seconds.
"""

import time

from thanos_peer.block import AgentId
from thanos_peer.protocol.wire import Hello

APART = 0.1  # seconds between two answers to the same question, or to one from before it


class Questions:
    """Hellos that are to be answered when all that has arrived together is heard."""

    def __init__(self) -> None:
        self._open: dict[AgentId, Hello] = {}
        self._answered: dict[AgentId, tuple[int, int, float]] = {}  # of which epoch and round each was, and when

    def note(self, neighbor: AgentId, hello: Hello) -> None:
        """Note a question, in place of an earlier one of the same neighbor."""
        self._open[neighbor] = hello

    def begin_epoch(self) -> None:
        """Forget what was answered in an earlier epoch."""
        self._answered.clear()

    def take(self) -> list[tuple[AgentId, Hello]]:
        """The questions to be answered now."""
        if not self._open:
            return []
        asked, self._open = self._open, {}
        return [(neighbor, hello) for neighbor, hello in asked.items() if self._is_due(neighbor, hello)]

    def _is_due(self, neighbor: AgentId, hello: Hello) -> bool:
        now = time.monotonic()
        epoch, k, when = self._answered.get(neighbor, (-1, -1, -APART))
        if now - when < APART and (hello.epoch, hello.k) <= (epoch, k):
            return False
        self._answered[neighbor] = hello.epoch, hello.k, now
        return True
