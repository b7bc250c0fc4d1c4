"""l2,1: sparse features."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from thanos_peer.algorithm.regularizers.regularizer import NamedRegularizer
from thanos_peer.block import Matrix

_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class L21(NamedRegularizer):
    """weight * sum of row norms (10). Closed form: every row shrinks in length by sigma * weight."""

    words: ClassVar[str] = "sum of the norms of rows, for sparse features"
    aliases: ClassVar[tuple[str, ...]] = ("l2,1",)

    def value(self, X: Matrix) -> float:
        """The sum of the norms of the rows, weighted."""
        return self.weight * float(self._norms(X).sum())

    def prox(self, X: Matrix, sigma: float) -> Matrix:
        """Soft thresholding of the row norms."""
        threshold = sigma * self.weight
        return X * (1 - threshold / np.maximum(self._norms(X), max(threshold, _TINY)))

    def prox_derivative(self, X: Matrix, sigma: float, V: Matrix) -> Matrix:
        """Across a row of X, V shrinks as prox does; along the row it stays; zeros where prox gives zeros."""
        threshold, norms = sigma * self.weight, self._norms(X)
        length = np.maximum(norms, max(threshold, _TINY))
        rows = X / length
        along = rows * self._sums(rows * V)
        moved: Matrix = (V - threshold / length * (V - along)) * (norms >= threshold)
        return moved

    def nearest_subgradient(self, X: Matrix, S: Matrix) -> Matrix:
        """weight * X / its row norms, and S shortened to the weight in rows where X is zero."""
        norms, lengths = self._norms(X), self._norms(S)
        shortened = S * np.minimum(1.0, self.weight / np.maximum(lengths, _TINY))
        return np.where(norms > 0, self.weight * X / np.maximum(norms, _TINY), shortened)

    def largest_useful(self, squares: Matrix, size: float, p: int) -> float:
        """At least sqrt(p) c, for the largest sum of squares c of a group: a row of a group left out is no longer.

        With X in p groups, the rows of AA'X in another one have norms of at most sqrt(c) times the square root of
        what X captures, p c at the most. So from there on all points in p groups that are stationary among those
        are stationary.
        """
        c = float(self._sums(squares[:, None]).max())
        return float(np.sqrt(p)) * (float(np.sqrt(c * max(size, c))) + c) / 2

    def lipschitz(self, n: int, p: int) -> float:  # noqa: ARG002 - does not grow with p
        """By Cauchy-Schwarz over n rows."""
        return self.weight * float(np.sqrt(n))

    def _norms(self, X: Matrix) -> Matrix:
        """The norm of each row, (..., n, 1)."""
        norms: Matrix = np.sqrt(self._sums(X * X))
        return norms

    def _sums(self, E: Matrix) -> Matrix:
        """The sum of each row, (..., n, 1)."""
        sums: Matrix = E.sum(axis=-1, keepdims=True)
        return sums
