"""Every error that a user or a neighbor can cause, in one tree.

    ThanosPeerError                 exit code
    +-- ConfigError                 3   an option, an environment, a missing extra
    |   +-- TopologyError           3   the topology file, with all its mistakes
    |   +-- DataFileError           3   a data file that it names
    |   +-- OwnCodeError            3   an objective or regularizer of the user's own
    |   +-- PolicyError             3   a run that breaks a rule of this site
    +-- DivergenceError             4   a step left the numbers
    +-- ProtocolError               5   peers that cannot work together
    |   +-- LocalProtocolError          our own code broke a rule of the round
    |   +-- RemoteProtocolError         a neighbor did
    |   +-- HandshakeError              neighbors differ in version, topology, shape or names
    |       +-- DoubleError             another peer is at this peer's address
    +-- NeighborLostError           6   a neighbor was waited for longer than allowed
    +-- CheckpointError             8   a state that cannot be saved, read, or gone on from
    |   +-- StateInUseError             another process of the same peer uses it
    |   +-- StateLostError              it is gone, and the neighbors cannot make it up
    |       +-- RunOverError                nor begin anew with this peer: they are done
    +-- PeerFailedError                 a peer that we launched failed; its exit code is ours

Exit code 7 says that `verify` or `chaos` found different bits, 9 that not all faults of `chaos` struck, 10 that it
found a false claim. 0 is success, 1 an error of ours,
2 a command line that click refuses, 130 and 143 a run stopped by SIGINT or SIGTERM with its results kept.
"""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MOST_SHOWN = 20  # mistakes of one file
# Characters of a key that are shown; keys that mean anything are shorter.
LONGEST_KEY = 120


def printable(text: str) -> str:
    """A text whose control characters are spelled out: what a terminal is shown must not command it."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


class ThanosPeerError(Exception):
    """The root: whatever is raised on purpose.

    Attributes:
        exit_code: Of a command that ends with it.
        in_short: What the neighbors of a peer that ends with it are told.
    """

    exit_code: int = 1
    in_short: str = "an error"


class ConfigError(ThanosPeerError):
    """Something outside the topology file was set wrongly; the message says what and what to do."""

    exit_code = 3


@dataclass(frozen=True)
class Mistake:
    """One thing wrong in a file: where, or nowhere if it is the whole file; what stands there, and what may."""

    key: str
    allowed: str
    value: Any = None
    has_value: bool = True

    def __str__(self) -> str:
        key = self.key if len(self.key) <= LONGEST_KEY else f"{self.key[: LONGEST_KEY - 3]}..."
        what = f"{key}{self._shown_value()}"
        return printable(f"{what}: {self.allowed}" if what else self.allowed)

    def _shown_value(self) -> str:
        if not self.has_value:
            return ""
        try:
            text = ascii(self.value)
        except ValueError:  # an integer of thousands of digits
            text = "a very long number"
        return f" = {text if len(text) <= 80 else text[:77] + '...'}"


class TopologyError(ConfigError):
    """A topology file that cannot be used, with all its mistakes together: one in one line, several in one each.

    Args:
        file: Its name.
        mistakes: The first of them are shown, so that no file fills a screen or a log.
        more: How many there are besides that were not looked at more closely.
    """

    def __init__(self, file: str, mistakes: Sequence[Mistake], *, more: int = 0) -> None:
        self.file = file
        self.mistakes = tuple(mistakes)
        total = len(mistakes) + more
        lines = [str(mistake) for mistake in mistakes[:MOST_SHOWN]]
        lines += [f"and {total - len(lines)} more"] if total > len(lines) else []
        super().__init__(
            f"{file}: {lines[0]}" if total == 1 else "\n  ".join([f"{file}: {total} mistakes", *lines])
        )


class DataFileError(ConfigError):
    """A data file that cannot be used."""

    in_short = "its data cannot be used"


class OwnCodeError(ConfigError):
    """Code that a topology names: it is not allowed, or it cannot be used, or it has failed."""

    in_short = "its own objective or regularizer failed"


class PolicyError(ConfigError):
    """A run that breaks rules which a site has set for itself; nothing was sent."""

    def __init__(self, policies: Sequence[str], topology: str, agent: int, faults: Sequence[str]) -> None:
        broken = faults[0] if len(faults) == 1 else "\n  ".join([f"{len(faults)} rules are broken", *faults])
        verb = "does" if len(policies) == 1 else "do"
        super().__init__(f"{' and '.join(policies)} {verb} not let peer {agent} take part in {topology}: {broken}")


class DivergenceError(ThanosPeerError):
    """A step produced NaN or Inf, or X grew out of all bounds."""

    exit_code = 4
    in_short = "its steps diverge"

    def __init__(self, *, agent: int, k: int, eta: float, what: str, advice: str) -> None:
        self.agent, self.k, self.eta = agent, k, eta
        # Some methods do not tell their step size.
        step = f" with step size {eta:.3g}" if eta else ""
        super().__init__(f"agent {agent} diverged in round {k}{step}: {what}; {advice}")


class ProtocolError(ThanosPeerError):
    """A rule of the round was broken."""

    exit_code = 5


class LocalProtocolError(ProtocolError):
    """Our own code broke it: a bug here, never the neighbor's doing."""


class RemoteProtocolError(ProtocolError):
    """A neighbor broke it."""

    in_short = "another peer has sent wrong numbers"

    def __init__(self, *, neighbor: int | None, k: int | None, what: str) -> None:
        self.neighbor, self.k = neighbor, k
        who = "a peer" if neighbor is None else f"neighbor {neighbor}"
        when = "" if k is None else f", round {k}"
        super().__init__(f"{who}{when}: {what}")


class PhaseMismatchError(RemoteProtocolError):
    """A neighbor's block is not of the phase that this peer is in."""


class MasksMismatchError(RemoteProtocolError):
    """A masked sum that no honest peers can have, if their masks cancel: in a new epoch they have new ones."""


class EndMismatchError(ProtocolError):
    """A neighbor is done with a round that this peer has to go on from, or in another phase."""

    in_short = "a neighbor has ended in another round"

    def __init__(self, *, neighbor: int, k: int) -> None:
        super().__init__(
            f"neighbor {neighbor} is done with round {k}, or in another phase there, and sends no block that "
            "fits: a peer has announced an end falsely, and not to all; nothing is lost: put an honest peer in "
            "its place, and start this one with --restart-tracking: all begin a new epoch"
        )


class HandshakeError(ProtocolError):
    """Two peers that cannot run together; the message names both and what differs."""

    in_short = "it cannot run together with another peer"


class DoubleError(HandshakeError):
    """A second peer with the same id, which no neighbor reaches; it leaves without a message to them."""

    in_short = ""


class NeighborLostError(ThanosPeerError):
    """A neighbor did not speak for longer than the limit."""

    exit_code = 6
    in_short = "it gave up waiting"


class CheckpointError(ThanosPeerError):
    """A state that cannot be saved, read, or gone on from; the message names the file and what to do."""

    exit_code = 8
    in_short = "it cannot save or read its state"


class StateInUseError(CheckpointError):
    """The state of a peer that runs already; the second one leaves without a word in the first one's name."""

    in_short = ""


class StateLostError(CheckpointError):
    """A state that is gone, and that no neighbor can make up."""

    in_short = "its state is lost"


class RunOverError(StateLostError):
    """A state that is gone, when all neighbors have their results."""

    in_short = "its state is lost, and the run is over"


class PeerFailedError(ThanosPeerError):
    """A launched peer ended with an error.

    Args:
        agent: Which.
        exit_code: Its own, or 128 plus the number of the signal that ended it.
        log_tail: The end of its log.
        go_on: The command by which each peer goes on if this one was killed; empty if none does.
    """

    def __init__(self, *, agent: int, exit_code: int, log_tail: Sequence[str], go_on: str = "") -> None:
        self.agent, self.exit_code = agent, exit_code
        said = "".join(f"\n  {line}" for line in log_tail)
        how = f"ended with exit code {exit_code}"
        if exit_code > 128 and exit_code - 128 in set(signal.Signals):
            how = f"was ended by {signal.Signals(exit_code - 128).name}"
            said += f"\nto go on from what they have saved, start each peer: {go_on}" if go_on else ""
        super().__init__(f"peer {agent} {how}; the end of its log:{said}")
