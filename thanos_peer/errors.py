"""Every error that a user or a neighbor can cause, in one tree.

    ThanosPeerError                 exit code
    +-- ConfigError                 3   an option, an environment, a missing extra
    |   +-- TopologyError           3   the topology file, with all its mistakes
    |   +-- DataFileError           3   a data file that it names
    +-- DivergenceError             4   a step left the numbers
    +-- ProtocolError               5   peers that cannot work together
    |   +-- LocalProtocolError          our own code broke a rule of the round
    |   +-- RemoteProtocolError         a neighbor did
    |   +-- HandshakeError              neighbors differ in version, topology or shape
    +-- NeighborLostError           6   a neighbor was waited for longer than allowed
    +-- PeerFailedError                 a peer that we launched failed; its exit code is ours

Exit code 0 is success, 1 an error of ours that nobody foresaw, 2 a command line that click refuses,
130 and 143 a run stopped by SIGINT or SIGTERM with its results kept.
"""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class ThanosPeerError(Exception):
    """The root: whatever is raised on purpose."""

    exit_code: int = 1


class ConfigError(ThanosPeerError):
    """Something outside the topology file was set wrongly; the message says what and what to do."""

    exit_code = 3


@dataclass(frozen=True)
class Mistake:
    """One thing wrong in a file: where, what stands there, and what may stand there."""

    key: str
    allowed: str
    value: Any = None
    has_value: bool = True

    def __str__(self) -> str:
        return f"{self.key}{self._shown_value()}: {self.allowed}"

    def _shown_value(self) -> str:
        if not self.has_value:
            return ""
        try:
            text = ascii(self.value)
        except ValueError:  # an integer of thousands of digits
            text = "a very long number"
        return f" = {text if len(text) <= 80 else text[:77] + '...'}"


class TopologyError(ConfigError):
    """A topology file that cannot be used, with all its mistakes together."""

    def __init__(self, file: str, mistakes: Sequence[Mistake]) -> None:
        self.file = file
        self.mistakes = tuple(mistakes)
        count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        lines = "".join(f"\n  {mistake}" for mistake in mistakes)
        super().__init__(f"{file}: {count}{lines}")


class DataFileError(ConfigError):
    """A data file that cannot be used."""


class DivergenceError(ThanosPeerError):
    """A step produced NaN or Inf, or X grew out of all bounds."""

    exit_code = 4

    def __init__(self, *, agent: int, k: int, eta: float, what: str) -> None:
        self.agent, self.k, self.eta = agent, k, eta
        super().__init__(
            f"agent {agent} diverged in round {k} with step size {eta:.3g}: {what}; "
            "try a smaller step (algorithm.step), a larger sigma, or data scaled to norm 1"
        )


class ProtocolError(ThanosPeerError):
    """A rule of the round was broken."""

    exit_code = 5


class LocalProtocolError(ProtocolError):
    """Our own code broke it: a bug here, never the neighbor's doing."""


class RemoteProtocolError(ProtocolError):
    """A neighbor broke it."""

    def __init__(self, *, neighbor: int | None, k: int | None, what: str) -> None:
        self.neighbor, self.k = neighbor, k
        who = "somebody" if neighbor is None else f"neighbor {neighbor}"
        when = "" if k is None else f", round {k}"
        super().__init__(f"{who}{when}: {what}")


class HandshakeError(ProtocolError):
    """Two neighbors that cannot run together; the message names both and what differs."""


class NeighborLostError(ThanosPeerError):
    """A neighbor did not speak for longer than the limit."""

    exit_code = 6


class PeerFailedError(ThanosPeerError):
    """A launched peer ended with an error."""

    def __init__(self, *, agent: int, exit_code: int, last_words: Sequence[str]) -> None:
        self.agent, self.exit_code = agent, exit_code
        said = "".join(f"\n  {line}" for line in last_words)
        how = f"ended with exit code {exit_code}"
        if exit_code > 128 and exit_code - 128 in set(signal.Signals):
            how = f"was ended by {signal.Signals(exit_code - 128).name}"
        super().__init__(f"peer {agent} {how}; its last words:{said}")
