"""The words that mathematics and protocol share: an agent, a matrix, and what one agent says in a round."""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

AgentId: TypeAlias = int
Matrix: TypeAlias = NDArray[np.float64]


class StopWord(NamedTuple):
    """What an agent says about stopping: for how long all is calm around it, and when to stop.

    Attributes:
        streak: 0 while the agent is not calm, else one more than the least streak around it a round ago.
        after: The last round of the run, once anybody has announced it.
    """

    streak: int = 0
    after: int | None = None


class Block(NamedTuple):
    """All that an agent tells its neighbors in round k.

    Attributes:
        k: The round.
        X: Its variable, (n, p).
        D: Its gradient tracker, (n, p).
        eta: Its step size in this round.
        stop: Its word on stopping.
        fallback: The earliest round from which it may have to start again; what it says of that is no part of
            the round, and may differ when the block is said again.
    """

    k: int
    X: Matrix
    D: Matrix
    eta: float
    stop: StopWord
    fallback: int = 0

    def has_same_bits(self, other: "Block") -> bool:
        """Whether both say the same, to the last bit."""
        return (
            (self.k, self.eta, self.stop) == (other.k, other.eta, other.stop)
            and self.X.tobytes() == other.X.tobytes()
            and self.D.tobytes() == other.D.tobytes()
        )
