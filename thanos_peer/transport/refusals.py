"""Connections that did not get in: counted, and named in the log now and then."""

import logging
import time

log = logging.getLogger("thanos_peer")

# Seconds between two log lines about strangers that are wrong in the same way.
NOTICES = 10.0
NO_HANDSHAKE = "it ended before a handshake"


class Refusals:
    """Counts connections that were refused or closed.

    Attributes:
        count: How many there were.
        latest: What was wrong with the stranger that leaves next, and where it came from.
    """

    def __init__(self) -> None:
        self.count = 0
        self.latest = NO_HANDSHAKE, ""
        # When each kind of wrong was last logged.
        self._noticed: dict[str, float] = {}

    def take_latest(self) -> tuple[str, str]:
        """What was wrong with the stranger that has left; of the next nothing is known."""
        latest, self.latest = self.latest, (NO_HANDSHAKE, "")
        return latest

    def note(self, why: str, whence: str) -> None:
        """Count one, and log it now and then; of `why` there are a few."""
        self.count += 1
        now = time.monotonic()
        if now - self._noticed.get(why, -NOTICES) >= NOTICES:
            self._noticed[why] = now
            what = f"{why}, {whence}" if whence else why
            log.warning("%d connection(s) so far did not get in; the latest: %s", self.count, what)
