"""The smooth f_i of problem (1), and sparse PCA (8)."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from thanos_peer.algorithm.stiefel import inner
from thanos_peer.block import Matrix


class Objective(Protocol):
    """A smooth f_i. Bring your own by writing these two methods."""

    def value(self, X: Matrix) -> float:
        """f(X) for X of (n, p)."""

    def gradient(self, X: Matrix) -> Matrix:
        """The Euclidean gradient of f at X, (n, p)."""


class SparsePCA:
    """f_i(X) = -tr(X' A_i A_i' X)/2 of (8), for A_i of (n, m_i): columns are samples.

    A gradient costs 4 n m p operations as A(A'X) and 2 n^2 p with the Gram matrix AA'; the cheaper is used.
    """

    def __init__(self, A: Matrix) -> None:
        n, m = A.shape
        with np.errstate(over="ignore", invalid="ignore"):  # found where the first H is not finite
            self.gram: Matrix | None = A @ A.T if n <= 2 * m else None
        self.A = A

    @classmethod
    def pooled(cls, parts: Sequence["SparsePCA"]) -> "SparsePCA":
        """The sum of several, as if one agent held all the samples."""
        return cls(np.hstack([part.A for part in parts]))

    def value(self, X: Matrix) -> float:
        """Minus half the variance that X captures."""
        return float(inner(X, self.gradient(X))) / 2

    def gradient(self, X: Matrix) -> Matrix:
        """-AA'X."""
        return -(self.A @ (self.A.T @ X)) if self.gram is None else -(self.gram @ X)

    def lipschitz(self) -> float:
        """The Lipschitz constant of the gradient, ||A||_2^2."""
        return float(np.linalg.norm(self.A, 2)) ** 2

    def variance(self) -> float:
        """||A||_F^2, which f cannot capture more of than all."""
        return float(inner(self.A, self.A))
