"""How far a step may go: what centralised methods know of f."""

from typing import Protocol, runtime_checkable

import numpy as np

from thanos_peer.algorithm.objectives import Objective
from thanos_peer.algorithm.regularizers import Regularizer
from thanos_peer.algorithm.stiefel import sym
from thanos_peer.block import Matrix
from thanos_peer.errors import ConfigError


@runtime_checkable
class Bounded(Protocol):
    """An objective that knows how steeply its gradient changes."""

    def lipschitz(self) -> float:
        """A Lipschitz constant of the gradient."""


def lipschitz_of(f: Objective) -> float:
    """The Lipschitz constant L of the gradient of f.

    Raises:
        ConfigError: f has none to tell.
    """
    if not isinstance(f, Bounded):
        raise ConfigError(
            f"the objective {type(f).__name__} has no method lipschitz(), the Lipschitz constant of its gradient: "
            "centralised methods take their step sizes from it"
        )
    return f.lipschitz()


def curvature(L: float, X: Matrix, G: Matrix) -> float:
    """How much a smooth f bends along the manifold at X, where its gradient is G.

    On the manifold f(Y) <= f(X) + <proj_X(G), D> + (L + l)/2 ||D||_F^2 for D = Y - X, where l is the largest
    eigenvalue of -sym(X'G), or 0. For sparse PCA, which is concave, l alone would do, and l <= L. So the larger
    of the two is taken: the whole bound for sparse PCA, and at least half of it for any f. A step of 1 divided by
    this does not go beyond where f is as large as at X.
    """
    return max(L, float(np.linalg.eigvalsh(sym(-X.T @ G))[-1])) or 1.0


def gradient_size(f: Objective, X0: Matrix) -> float:
    """max(L, ||grad f(X0)||_2): L for sparse PCA, and larger where the manifold bends f more than L says."""
    return max(lipschitz_of(f), float(np.linalg.norm(f.gradient(X0), 2)))


def steepness(f: Objective, g: Regularizer, X0: Matrix) -> float:
    """How much f + g may change per unit of X: `gradient_size` of f, plus L_g / sqrt(p).

    L_g is the Lipschitz constant of g, and sqrt(p) is the norm of a point of the manifold. Steps and smoothing
    parameters are in units of 1 divided by this, so that units of the data do not matter.
    """
    return gradient_size(f, X0) + g.lipschitz(*X0.shape) / float(np.sqrt(X0.shape[1])) or 1.0
