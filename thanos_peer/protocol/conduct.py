"""How a neighbor behaves: what it has said that was refused, and when its connection is closed for that.

An honest neighbor has little refused: what it sent before it heard of a new epoch, or while it runs twice. So each
has a budget of BUDGET refusals, and REFILL more for each second. One more, and its connection is closed for a
pause, after which it has the whole budget again. Pauses double from FIRST_PAUSE to LONGEST_PAUSE seconds; after
FORGIVEN seconds within its budget the next one is short again.

Only a key proves who speaks. Without keys any process may use the name of a neighbor: what is refused is counted
and named, and no connection is closed.
"""

import math
from dataclasses import dataclass

BUDGET = 200.0  # messages
REFILL = 2.0  # messages a second
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds
FORGIVEN = 300.0  # seconds
LONGEST_REASON = 128  # characters


@dataclass(slots=True)
class Conduct:
    """What was refused of one neighbor.

    Attributes:
        refused: How many messages.
        latest: What was wrong with the latest.
        credit: How many more may be refused now, as of `noted`.
        noted: When the latest was refused.
        pause: Seconds that its connection was closed for, the last time.
        until: When that ends; without keys, when it was last beyond its budget.
    """

    refused: int = 0
    latest: str = ""
    credit: float = BUDGET
    noted: float = -math.inf
    pause: float = 0.0
    until: float = -math.inf

    def refuse(self, reason: str, now: float, *, is_proven: bool) -> float:
        """Note a refused message; returns for how many seconds its connection is to be closed, mostly 0.

        Args:
            reason: What is wrong with it.
            now: The time.
            is_proven: Whether a key says that it is this neighbor's.
        """
        self.refused += 1
        self.latest = reason[:LONGEST_REASON]
        self.credit = min(BUDGET, self.credit + REFILL * (now - self.noted))
        self.noted = now
        # The message was on its way when the connection was closed.
        if now < self.until:
            return 0.0
        if self.credit >= 1.0:
            self.credit -= 1.0
            return 0.0
        is_first = not self.is_bad(now)
        self.until = now
        if not is_proven:
            return 0.0
        self.pause = FIRST_PAUSE if is_first else min(2 * self.pause, LONGEST_PAUSE)
        self.until, self.credit = now + self.pause, BUDGET
        return self.pause

    def is_bad(self, now: float) -> bool:
        """Whether it was beyond its budget lately."""
        return now < self.until + FORGIVEN

    def seconds_closed(self, now: float) -> float:
        """For how long its connection is still closed."""
        return max(0.0, self.until - now)

    def describe(self, now: float) -> str:
        """In words; empty if nothing was refused."""
        if not self.refused:
            return ""
        closed = (
            f"; its connection is closed for {math.ceil(left)} s" if (left := self.seconds_closed(now)) else ""
        )
        return f"refused {self.refused} message(s), the latest from {self.latest}{closed}"

    def facts(self, now: float) -> dict[str, float | str]:
        """For `thanos-peer status`."""
        return {
            "refused": self.refused,
            "latest": self.latest,
            "pause": self.pause,
            "seconds_closed": self.seconds_closed(now),
        }
