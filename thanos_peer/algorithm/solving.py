"""What a main method by sums is: it solves the whole problem, in one sum or in several."""

from typing import ClassVar, Protocol, Self

import numpy as np

from thanos_peer.algorithm.method import Setup
from thanos_peer.algorithm.pooling import Layout, Pooled
from thanos_peer.algorithm.stiefel import infeasibility, polar
from thanos_peer.algorithm.traits import Traits
from thanos_peer.block import Matrix

GOES_ON, CONVERGED, GAVE_UP = 0.0, 1.0, 2.0  # what the first number of a solving word says
FEASIBLE = 1e-9  # what is nearer to the manifold than this is left as it is, with its zeros


class Solving(Traits, Pooled, Protocol):
    """A class of the table: words of how it stands, the residual, ||A||_2^2, and a point.

    Attributes:
        finds_start: Whether the leading singular vectors follow from what it sums anyway.
    """

    settings: ClassVar[frozenset[str]] = frozenset({"restarts"})
    default_tolerance: ClassVar[float] = 1e-10
    default_rounds: ClassVar[int] = 100_000
    finds_start: ClassVar[bool] = False

    @classmethod
    def make(cls, setup: Setup) -> Self:
        """For an agent that has found this."""

    @staticmethod
    def layout(n: int, p: int, *, is_pca: bool) -> Layout:
        """What is sent."""

    def is_last(self, word: Matrix) -> bool:
        """Whether it holds the answer."""
        return bool(word[0] != GOES_ON)

    def has_converged(self, word: Matrix) -> bool:
        """Whether the residual is below the tolerance."""
        return bool(word[0] == CONVERGED)

    def residual(self, word: Matrix) -> float:
        """Of the answer."""
        return float(word[1])

    @staticmethod
    def size(word: Matrix) -> Matrix:
        """||A||_2^2, or another bound of the curvature."""
        return np.asarray(word[2])

    @staticmethod
    def point(word: Matrix, n: int, p: int) -> Matrix:
        """Where to evaluate next, or the answer with exact zeros, (n, p)."""
        return word[3 : 3 + n * p].reshape(n, p)

    @classmethod
    def answer(cls, word: Matrix, n: int, p: int) -> tuple[Matrix, Matrix]:
        """X on the manifold, and X with exact zeros: the same once it has converged."""
        Z = cls.point(word, n, p)
        return (Z if infeasibility(Z) <= FEASIBLE else polar(Z)), Z
