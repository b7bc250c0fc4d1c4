"""The smooth f_i of problem (1), and sparse PCA (8)."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from thanos_peer.algorithm.stiefel import inner, leading_left_singular_vectors
from thanos_peer.block import Matrix


class Objective(Protocol):
    """A smooth f_i. Bring your own by writing these two methods."""

    def value(self, X: Matrix) -> float:
        """f(X) for X of (n, p)."""

    def gradient(self, X: Matrix) -> Matrix:
        """The Euclidean gradient of f at X, (n, p)."""


class SparsePCA:
    """f_i(X) = -tr(X' A_i A_i' X)/2 of (8), for A_i of (n, m_i): columns are samples.

    A gradient costs 4 n m p operations as A(A'X) and 2 n^2 p with the Gram matrix AA'; the cheaper is used. Where
    there were too many samples to keep, there is the Gram matrix alone.
    """

    def __init__(self, A: Matrix | None, gram: Matrix | None = None) -> None:
        self.A, self.gram = A, gram
        if A is not None and A.shape[0] <= 2 * A.shape[1]:
            # An overflow is found when the first H is not finite.
            with np.errstate(over="ignore", invalid="ignore"):
                self.gram = A @ A.T

    @classmethod
    def pooled(cls, parts: Sequence["SparsePCA"]) -> "SparsePCA":
        """The sum of several, as if one agent held all the samples."""
        samples = [part.A for part in parts if part.A is not None]
        if len(samples) == len(parts):
            return cls(np.hstack(samples))
        total: Matrix = np.add.reduce([part.whole_gram() for part in parts], axis=0)
        return cls(None, total)

    def whole_gram(self) -> Matrix:
        """AA', (n, n), also where it is not kept."""
        if self.gram is not None:
            return self.gram
        assert self.A is not None  # noqa: S101 - there is always one of the two
        product: Matrix = self.A @ self.A.T
        return product

    def value(self, X: Matrix) -> float:
        """Minus half the variance that X captures."""
        return float(inner(X, self.gradient(X))) / 2

    def gradient(self, X: Matrix) -> Matrix:
        """-AA'X."""
        if self.gram is not None:
            return -(self.gram @ X)
        assert self.A is not None  # noqa: S101 - there is always one of the two
        return -(self.A @ (self.A.T @ X))

    def lipschitz(self) -> float:
        """The Lipschitz constant of the gradient, ||A||_2^2."""
        if self.A is not None:
            return float(np.square(np.linalg.norm(self.A, 2)))
        return float(np.linalg.norm(self.whole_gram(), 2))

    def variance(self) -> float:
        """||A||_F^2, which f cannot capture more of than all."""
        return float(np.trace(self.whole_gram()) if self.A is None else inner(self.A, self.A))

    def captured(self, X: Matrix) -> Matrix:
        """X'AA'X, (p, p)."""
        return -(X.T @ self.gradient(X))

    def leading(self, p: int) -> Matrix:
        """The p leading left singular vectors of A, (n, p); of fewer samples some of them capture nothing."""
        if self.A is not None:
            missing = max(0, p - self.A.shape[1])
            return leading_left_singular_vectors(np.pad(self.A, ((0, 0), (0, missing))), p)
        return leading_left_singular_vectors(self.whole_gram(), p)
