"""The words that mathematics and protocol share: an agent, a matrix, and what one agent says in a round."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

AgentId: TypeAlias = int
Matrix: TypeAlias = NDArray[np.float64]
FLOAT64 = np.dtype("<f8")


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

    X and D stay the bytes that they came as, and go out as: one array is made of those of all neighbors when they
    are mixed, and none of each.

    Attributes:
        k: The round.
        numbers: Its variable X, then its gradient tracker D, row by row: float64, little-endian.
        shape: (n, p) of both.
        eta: Its step size in this round.
        stop: Its word on stopping.
        fallback: The earliest round from which it may have to start again; what it says of that is no part of
            the round, and may differ when the block is said again.
    """

    k: int
    numbers: bytes
    shape: tuple[int, int]
    eta: float
    stop: StopWord
    fallback: int = 0

    @classmethod
    def of(cls, k: int, X: Matrix, D: Matrix, eta: float, stop: StopWord, fallback: int = 0) -> "Block":
        """A block of matrices."""
        n, p = X.shape
        numbers = X.astype(FLOAT64, copy=False).tobytes() + D.astype(FLOAT64, copy=False).tobytes()
        return cls(k, numbers, (n, p), eta, stop, fallback)

    @property
    def X(self) -> Matrix:
        """Its variable."""
        X: Matrix = stacked([self])[0, 0]
        return X

    @property
    def D(self) -> Matrix:
        """Its gradient tracker."""
        D: Matrix = stacked([self])[0, 1]
        return D

    def has_same_bits(self, other: "Block") -> bool:
        """Whether both say the same, to the last bit."""
        return self._replace(fallback=0) == other._replace(fallback=0)


def stacked(blocks: Sequence[Block]) -> Matrix:
    """X and D of all blocks, which have one shape: (blocks, 2, n, p), not to be written to."""
    return np.frombuffer(b"".join([block.numbers for block in blocks]), dtype=FLOAT64).reshape(
        -1, 2, *blocks[0].shape
    )
