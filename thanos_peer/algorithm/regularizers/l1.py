"""l1: sparse loadings."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from thanos_peer.algorithm.regularizers.regularizer import NamedRegularizer
from thanos_peer.block import Matrix


@dataclass(frozen=True)
class L1(NamedRegularizer):
    """weight * sum |X_ij| (9). Closed form: every entry moves towards zero by sigma * weight."""

    words: ClassVar[str] = "sum of absolute entries, for sparse loadings"
    sees_rotations: ClassVar[bool] = True
    has_typical_sums: ClassVar[bool] = True

    def value(self, X: Matrix) -> float:
        """The sum of absolute entries, weighted."""
        return self.weight * float(np.abs(X).sum())

    def prox(self, X: Matrix, sigma: float) -> Matrix:
        """Soft thresholding of the entries."""
        threshold = sigma * self.weight
        return X - np.minimum(np.maximum(X, -threshold), threshold)

    def prox_derivative(self, X: Matrix, sigma: float, V: Matrix) -> Matrix:
        """V, with zeros where prox gives zeros."""
        return V * (np.abs(X) >= sigma * self.weight)

    def nearest_subgradient(self, X: Matrix, S: Matrix) -> Matrix:
        """weight * sign(X), and S clipped where X is zero."""
        clipped = np.minimum(np.maximum(S, -self.weight), self.weight)
        return np.where(X != 0, self.weight * np.sign(X), clipped)

    def largest_useful(self, squares: Matrix, size: float, p: int) -> float:  # noqa: ARG002 - the same for all p
        """Where no x of norm 1 gains by more entries: x'AA'x is at most size, and c ||x||_1^2 for the largest c.

        Then x'AA'x/2 - weight ||x||_1 <= c/2 - weight, which a single feature reaches, as ||x||_1 is from 1 on.
        """
        c = float(squares.max())
        return (float(np.sqrt(c * max(size, c))) + c) / 2

    def lipschitz(self, n: int, p: int) -> float:
        """By Cauchy-Schwarz over np entries."""
        return self.weight * float(np.sqrt(n * p))
