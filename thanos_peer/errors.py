"""Every error that a user or a neighbor can cause, in one tree.

    ThanosPeerError                 exit code
    +-- ConfigError                 3   an option, an environment, a missing extra
    |   +-- TopologyError           3   the topology file, with all its mistakes
    |   +-- DataFileError           3   a data file that it names
    +-- DivergenceError             4   a step left the numbers
    +-- ProtocolError               5
        +-- LocalProtocolError          our own code broke a rule of the round
        +-- RemoteProtocolError         a neighbor did

Exit code 0 is success, 1 an error of ours that nobody foresaw, 2 a command line that click refuses,
and 130 a run interrupted from the keyboard.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


class ThanosPeerError(Exception):
    """The root: whatever is raised on purpose."""

    exit_code: ClassVar[int] = 1


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
        text = ascii(self.value)
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

    def __init__(self, *, neighbor: int, k: int, what: str) -> None:
        self.neighbor, self.k = neighbor, k
        super().__init__(f"neighbor {neighbor}, round {k}: {what}")
