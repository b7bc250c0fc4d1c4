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
        after: The last round of the run, once an agent has announced it.
    """

    streak: int = 0
    after: int | None = None


# Kinds of numbers that a block may carry, besides whole numbers to be summed.
PAIR, WORD, KEY, NOTHING = "pair", "word", "key", "none"


def bytes_each(kind: str) -> int:
    """Bytes of one number of this kind, or of the same entry of both matrices, as long as it is here."""
    known = {PAIR: 16, WORD: 8, KEY: 1, NOTHING: 0}
    return known[kind] if kind in known else int(kind.removeprefix("int")) // 8


class Block(NamedTuple):
    """All that an agent tells its neighbors in round k.

    Numbers stay the bytes that they came as, and go out as: one array is made of those of all neighbors when they
    are mixed, and none of each.

    Attributes:
        k: The round.
        numbers: Two matrices, X and D of most methods, row by row: float64, little-endian. Or what `kind` says.
        shape: (n, p) of both; of other kinds (1, how many).
        eta: Its step size in this round.
        stop: Its word on stopping.
        fallback: The earliest round from which it may have to start again; what it says of that is no part of
            the round, and may differ when the block is sent again.
        kind: PAIR; or a format of whole numbers on their way up the tree; or WORD, float64 numbers on their way
            down; or KEY, the bytes of a public key; or NOTHING.
        to: The neighbors that the numbers are for, the others get none; None for all.
        birth: Names the beginning of this epoch, by a life of the agent, that the block follows from.
    """

    k: int
    numbers: bytes
    shape: tuple[int, int]
    eta: float
    stop: StopWord
    fallback: int = 0
    kind: str = PAIR
    to: tuple[AgentId, ...] | None = None
    birth: str = ""

    @classmethod
    def of(cls, k: int, X: Matrix, D: Matrix, eta: float, stop: StopWord, fallback: int = 0) -> "Block":
        """A block of matrices."""
        n, p = X.shape
        numbers = X.astype(FLOAT64, copy=False).tobytes() + D.astype(FLOAT64, copy=False).tobytes()
        return cls(k, numbers, (n, p), eta, stop, fallback)

    @property
    def X(self) -> Matrix:
        """The first matrix."""
        X: Matrix = stacked([self])[0, 0]
        return X

    @property
    def D(self) -> Matrix:
        """The second."""
        D: Matrix = stacked([self])[0, 1]
        return D

    def as_told_to(self, neighbor: AgentId) -> "Block":
        """What this neighbor hears of it."""
        if self.to is None or neighbor in self.to:
            return self
        return self._replace(numbers=b"", shape=(0, 0), kind=NOTHING)

    def has_same_bits(self, other: "Block") -> bool:
        """Whether both say the same, to the last bit."""
        return self._replace(fallback=0, to=None) == other._replace(fallback=0, to=None)


def stacked(blocks: Sequence[Block]) -> Matrix:
    """X and D of all blocks, which have one shape: (blocks, 2, n, p), not to be written to."""
    return np.frombuffer(b"".join([block.numbers for block in blocks]), dtype=FLOAT64).reshape(
        -1, 2, *blocks[0].shape
    )
