"""From the agents' bases of the leading subspace to the leading singular vectors, by two exact sums.

Agents that have only mixed have a basis each: near to one another, and not near enough where they were cut short.
So the first sum makes one of them, and the second asks what all samples capture of that one.
"""

import math
from dataclasses import dataclass

import numpy as np

from thanos_peer.algorithm.faults import orthonormal_fault, parts_fault
from thanos_peer.algorithm.fixed_point import EXACT
from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.algorithm.pooling import Layout
from thanos_peer.algorithm.ritz import TIE, leading_vectors
from thanos_peer.algorithm.stiefel import polar
from thanos_peer.block import Matrix


@dataclass(frozen=True)
class RotationState:
    """What the root knows: the common basis, (n, p); without columns before the first sum."""

    basis: Matrix


class Rotation:
    """Finds the leading vectors of AA' in the common subspace, and the eigenvalues.

    Args:
        f: This agent's f_i.
        X: Its basis, (n, p).
        compass: What the vectors' signs are like, (n, p).
        total: ||A||_F^2 of all samples.
    """

    format, bound = EXACT, math.inf

    def __init__(self, f: SparsePCA, X: Matrix, compass: Matrix, total: float) -> None:
        self._f, self._X, self._compass, self._shape, self._total = f, X, compass, X.shape, total

    @staticmethod
    def layout(n: int, p: int) -> Layout:
        """A basis up, then what a peer has of the common one; down the same as the words of `Leading`."""
        return Layout(EXACT.kind, n * p, 1 + p + n * p)

    def numbers(self, word: Matrix | None) -> Matrix:
        """X; then P'A_iA_i'P for the common basis P, and zeros."""
        n, p = self._shape
        if word is None:
            return self._X.ravel()
        return np.pad(self._f.captured(self.vectors(word)).ravel(), (0, n * p - p * p))

    def begin(self) -> RotationState:
        """Nothing is known."""
        return RotationState(np.empty((self._shape[0], 0)))

    def decide(self, state: RotationState, sums: Matrix) -> tuple[RotationState, Matrix]:
        """The common basis, which is the polar factor of the mean and so of the sum; then the vectors in it."""
        p = self._shape[1]
        if state.basis.shape[1] == 0:
            basis = polar(sums.reshape(self._shape))
            return RotationState(basis), np.concatenate([np.zeros(1 + p), basis.ravel()])
        M = sums[: p * p].reshape(p, p)
        vectors, values = leading_vectors(state.basis, M, self._compass, tie=TIE)
        return state, np.concatenate([[1.0], values, vectors.ravel()])

    def is_last(self, word: Matrix) -> bool:
        """The second is."""
        return bool(word[0])

    def has_converged(self, word: Matrix) -> bool:
        """Sums are exact."""
        return self.is_last(word)

    def sum_fault(self, sums: Matrix) -> str | None:  # noqa: ARG002
        """Of the first sum nothing is known, and the word that follows from the second is looked at."""
        return None

    def word_fault(self, word: Matrix) -> str | None:
        """Vectors are orthonormal, and no eigenvalue is more than the sum of all."""
        if word[0] not in (0.0, 1.0):
            return f"whether it is the last is {word[0]:g}, not 0 or 1"
        values = self.values(word)
        if self.is_last(word) and not values[0] > 0:
            return "no eigenvalue is positive"
        fault = parts_fault("the eigenvalues", values, self._total)
        return fault or orthonormal_fault("the start", self.vectors(word))

    def values(self, word: Matrix) -> Matrix:
        """The eigenvalues, largest first: (p,)."""
        return word[1 : 1 + self._shape[1]]

    def vectors(self, word: Matrix) -> Matrix:
        """The vectors, or the common basis, (n, p)."""
        return word[1 + self._shape[1] :].reshape(self._shape)
