"""The non-smooth g_i of problem (1): value, prox (3), Lipschitz constant; the Moreau envelope (2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

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
class NamedRegularizer(Regularizer, SmoothlyProxed, Subdifferentiable):
    """A regularizer that a topology file calls by its name. A class states where it differs from these defaults.

    All methods also take stacks of matrices, (..., n, p), but for `value`.

    Attributes:
        weight: What the sum of norms is multiplied with.
        words: What is summed, in a few words.
        aliases: Other spellings of the name.
        is_zero: Whether it is g = 0: then the problem is smooth, and there is no weight.
        sees_rotations: Whether g(XQ) may differ from g(X) for an orthogonal Q that is no signed permutation.
        has_typical_sums: Whether the typical number of sums of the exact methods is known for its weights.
        options: The keys that `problem.regularizer_options` must have, and what each must be.
    """

    weight: float
    words: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    is_zero: ClassVar[bool] = False
    sees_rotations: ClassVar[bool] = False
    has_typical_sums: ClassVar[bool] = False
    options: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def make(cls, weight: float, options: Mapping[str, Any], *, n: int) -> Self:  # noqa: ARG003 - most have none
        """The regularizer of a topology file.

        Args:
            weight: Its weight.
            options: A plain value for each key of `cls.options`.
            n: How many features there are.

        Raises:
            ValueError: A value cannot be used; says which and why.
        """
        return cls(weight)

    def largest_useful(self, squares: Matrix, size: float, p: int) -> float:  # noqa: ARG002 - others need them
        """The weight from which on p components of a single feature each, or group, are as good as any others.

        Args:
            squares: The diagonal of AA', (n,).
            size: ||A||_2^2.
            p: Components.
        """
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
