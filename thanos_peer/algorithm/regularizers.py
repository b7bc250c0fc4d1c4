"""The non-smooth g_i of problem (1): value, prox (3), Lipschitz constant; the Moreau envelope (2)."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from thanos_peer.algorithm.stiefel import inner
from thanos_peer.block import Matrix


class Regularizer(Protocol):
    """A convex Lipschitz g_i. Bring your own by writing these three methods."""

    def value(self, X: Matrix) -> float:
        """g(X) for X of (n, p)."""

    def prox(self, X: Matrix, sigma: float) -> Matrix:
        """argmin_Y g(Y) + ||Y - X||_F^2 / (2 sigma), (n, p)."""

    def lipschitz(self, n: int, p: int) -> float:
        """A constant L with |g(X) - g(Y)| <= L ||X - Y||_F for all (n, p) matrices."""


@runtime_checkable
class SmoothlyProxed(Protocol):
    """What a regularizer may offer besides: Newton's method for the tangent step is quicker with it."""

    def prox_derivative(self, X: Matrix, sigma: float, V: Matrix) -> Matrix:
        """J V, (n, p): J is an element of the Clarke generalized Jacobian of prox(., sigma) at X."""


@runtime_checkable
class Subdifferentiable(Protocol):
    """What a regularizer may offer besides: a strict certificate of stationarity needs it."""

    def nearest_subgradient(self, X: Matrix, S: Matrix) -> Matrix:
        """The subgradient of g at X that is nearest to S, (n, p)."""


@dataclass(frozen=True)
class L1:
    """weight * sum |X_ij| (9). Closed form: every entry moves towards zero by sigma * weight."""

    weight: float

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

    def lipschitz(self, n: int, p: int) -> float:
        """By Cauchy-Schwarz over np entries."""
        return self.weight * float(np.sqrt(n * p))


@dataclass(frozen=True)
class L21:
    """weight * sum of row norms (10). Closed form: every row shrinks in length by sigma * weight."""

    weight: float

    def value(self, X: Matrix) -> float:
        """The sum of the norms of the rows, weighted."""
        return self.weight * float(_row_norms(X).sum())

    def prox(self, X: Matrix, sigma: float) -> Matrix:
        """Soft thresholding of the row norms."""
        threshold = sigma * self.weight
        return X * (1 - threshold / np.maximum(_row_norms(X), max(threshold, np.finfo(np.float64).tiny)))

    def prox_derivative(self, X: Matrix, sigma: float, V: Matrix) -> Matrix:
        """Across a row of X, V shrinks as prox does; along the row it stays; zeros where prox gives zeros."""
        threshold, norms = sigma * self.weight, _row_norms(X)
        length = np.maximum(norms, max(threshold, np.finfo(np.float64).tiny))
        rows = X / length
        along = rows * (rows * V).sum(axis=-1, keepdims=True)
        moved: Matrix = (V - threshold / length * (V - along)) * (norms >= threshold)
        return moved

    def nearest_subgradient(self, X: Matrix, S: Matrix) -> Matrix:
        """weight * X / its row norms, and S shortened to the weight in rows where X is zero."""
        tiny = np.finfo(np.float64).tiny
        norms, lengths = _row_norms(X), _row_norms(S)
        shortened = S * np.minimum(1.0, self.weight / np.maximum(lengths, tiny))
        return np.where(norms > 0, self.weight * X / np.maximum(norms, tiny), shortened)

    def lipschitz(self, n: int, p: int) -> float:  # noqa: ARG002 - the constant does not grow with p
        """By Cauchy-Schwarz over n rows."""
        return self.weight * float(np.sqrt(n))


@dataclass(frozen=True)
class Zero:
    """No regularizer: g = 0. THANOS with it is DESTINY."""

    def value(self, X: Matrix) -> float:  # noqa: ARG002
        """Zero everywhere."""
        return 0.0

    def prox(self, X: Matrix, sigma: float) -> Matrix:  # noqa: ARG002
        """X itself."""
        return X

    def prox_derivative(self, X: Matrix, sigma: float, V: Matrix) -> Matrix:  # noqa: ARG002
        """V itself."""
        return V

    def nearest_subgradient(self, X: Matrix, S: Matrix) -> Matrix:  # noqa: ARG002
        """Zero, the only one."""
        return np.zeros_like(X)

    def lipschitz(self, n: int, p: int) -> float:  # noqa: ARG002
        """Zero."""
        return 0.0


def slope(g: Regularizer, n: int, p: int) -> float:
    """How large the entries of subgradients of g are, those of (n, p) matrices: the weight, for l1."""
    return g.lipschitz(n, p) / float(np.sqrt(n * p))


def envelope(g: Regularizer, X: Matrix, sigma: float) -> float:
    """The Moreau envelope of g at X."""
    Y = g.prox(X, sigma)
    return g.value(Y) + float(inner(Y - X, Y - X)) / (2 * sigma)  # (2)


def envelope_gradient(g: Regularizer, X: Matrix, sigma: float) -> Matrix:
    """Its gradient, a subgradient of g at prox(X)."""
    return (X - g.prox(X, sigma)) / sigma  # Prop. 2


def _row_norms(X: Matrix) -> Matrix:
    norms: Matrix = np.sqrt((X * X).sum(axis=-1, keepdims=True))
    return norms
