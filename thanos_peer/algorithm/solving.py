"""What a main method by sums is: it solves the whole problem, in one sum or in several."""

import math
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from thanos_peer.algorithm.faults import FEASIBLE, orthonormal_fault, range_fault
from thanos_peer.algorithm.method import Setup
from thanos_peer.algorithm.pooling import Layout, Pooled
from thanos_peer.algorithm.stiefel import infeasibility, polar
from thanos_peer.algorithm.traits import Expected, Outlook, Traits
from thanos_peer.block import Matrix

# First number of a solving word that is not the last one.
GOES_ON = 0.0
# A point further from the manifold than this has not converged, whatever its residual.
NEAR = 0.1


def rank(residual: float, objective: float, tolerance: float) -> tuple[bool, float]:
    """The least of several answers is the one to keep: those that have converged go before."""
    return not residual <= tolerance, objective


def nearest_point(Z: Matrix) -> Matrix:
    """X on the manifold for an answer with exact zeros: the same once it has converged."""
    return Z if infeasibility(Z) <= FEASIBLE else polar(Z)


class Solving(Traits, Pooled, Protocol):
    """A class of the table: words of the starts searched, the residual, ||A||_2^2, and a point.

    Attributes:
        before_point: How many numbers of a word come before the point.
        sums_once: Of a method that sums once, whatever point and regularizer: the array of the root's state that
            holds the sums, which every word ends with; None for others.
    """

    mixes: ClassVar[bool] = False
    settings: ClassVar[frozenset[str]] = frozenset({"restarts"})
    default_tolerance: ClassVar[float] = 1e-10
    default_rounds: ClassVar[int] = 100_000
    before_point: ClassVar[int] = 3
    sums_once: ClassVar[str | None] = None
    _setup: Setup
    _shape: tuple[int, int]

    @classmethod
    def make(cls, setup: Setup) -> Self:
        """For an agent that has found this."""

    @staticmethod
    def layout(n: int, p: int, *, is_pca: bool) -> Layout:
        """What is sent."""

    @staticmethod
    def most(allowed: int, n: int, p: int, restarts: int) -> int:  # noqa: ARG004
        """How many sums it takes at the most, where so many are allowed."""
        return allowed

    @staticmethod
    def typical_sums(p: int, mu: float | None, digits: int, restarts: int) -> int:
        """How many sums to expect, for a residual of so many digits.

        Args:
            p: Components.
            mu: The weight of l1, where samples have 2-norm 1; None elsewhere.
            digits: Of the residual.
            restarts: From how many starts it searches.
        """

    @classmethod
    def expected(cls, outlook: Outlook) -> Expected:
        """Whole sums."""
        sums = outlook.passes * cls.typical_sums(outlook.p, outlook.mu, outlook.digits, outlook.restarts)
        return Expected(sums * outlook.rounds_of_sum, f"typically {sums} sum{'s' * (sums > 1)}")

    @staticmethod
    def may_be_cut(sums: int, n: int, p: int) -> bool:  # noqa: ARG004
        """Whether the search from one start may have used all its evaluations, in so many sums."""
        return False

    def again(self, state: Any, X: Matrix, sums: int) -> tuple[Any, Matrix]:
        """At the root, a search from X after one that is over, and so many sums: its state and its first word.

        It is the last one of this problem: no other starts follow.
        """

    def is_last(self, word: Matrix) -> bool:
        """Whether it holds the answer."""
        return bool(word[0] != GOES_ON)

    def has_converged(self, word: Matrix) -> bool:
        """Whether the residual is below the tolerance."""
        return bool(word[0] > 0)

    @staticmethod
    def starts(word: Matrix) -> Matrix:
        """How many starts were searched, as the last word says."""
        return np.asarray(abs(word[0]))

    def sum_fault(self, sums: Matrix) -> str | None:  # noqa: ARG002
        """Nothing but the bound is known."""
        return None

    def word_fault(self, word: Matrix) -> str | None:
        """It goes on from the manifold; it has converged near it, with a residual below the tolerance."""
        starts, residual = word[:2].tolist()
        Z = self.point(word, *self._shape)
        if not (starts.is_integer() and abs(starts) <= self._setup.restarts):
            return f"the number of starts is {abs(starts):g}, not a whole one up to {self._setup.restarts}"
        if starts > 0 and not (residual <= self._setup.tolerance and infeasibility(Z) < 2 * NEAR):
            return f"it has not converged: the residual is {residual:.3g}, X'X - I {float(infeasibility(Z)):.3g}"
        return (
            range_fault("the residual", residual, 0.0, math.inf)
            or range_fault("the curvature", float(word[2]), 0.0, math.inf)
            or (orthonormal_fault("the next point", Z) if starts == GOES_ON else None)
        )

    def _searched(self, number: Matrix, residual: float, Z: Matrix) -> float:
        """How many starts were searched, up to this one; negative where the best answer, Z, has not converged."""
        has_converged = residual <= self._setup.tolerance and infeasibility(Z) < NEAR
        return (1 if has_converged else -1) * (float(number) + 1)

    def residual(self, word: Matrix) -> float:
        """Of the answer."""
        return float(word[1])

    @staticmethod
    def size(word: Matrix) -> Matrix:
        """||A||_2^2, or another bound of the curvature."""
        return np.asarray(word[2])

    def spectrum(self, word: Matrix) -> Matrix:  # noqa: ARG002
        """The leading eigenvalues of AA', as many as the last word tells."""
        return np.empty(0)

    @staticmethod
    def point(word: Matrix, n: int, p: int) -> Matrix:
        """Where to evaluate next, or the answer with exact zeros, (n, p)."""
        return word[3 : 3 + n * p].reshape(n, p)

    @classmethod
    def answer(cls, word: Matrix, n: int, p: int) -> tuple[Matrix, Matrix]:
        """X on the manifold, and X with exact zeros: the same once it has converged."""
        Z = cls.point(word, n, p)
        return nearest_point(Z), Z
