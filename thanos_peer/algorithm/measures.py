"""How good an answer is, computed from all agents. No agent needs any of this to minimise."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from thanos_peer.algorithm.faults import FEASIBLE
from thanos_peer.algorithm.objectives import Objective, SparsePCA
from thanos_peer.algorithm.regularizers import Regularizer, Subdifferentiable, envelope_gradient
from thanos_peer.algorithm.stiefel import infeasibility, norm, proj, sym
from thanos_peer.algorithm.tangent import tangent_step
from thanos_peer.algorithm.units import scale
from thanos_peer.block import Matrix

# Components that are worth no larger share than this are worth nothing: what is left of them is rounding.
WORTHLESS = 1e-14


def distance(X: Matrix, X_star: Matrix) -> float:
    """dist^(k): the mean over agents of ||X_i - X*||_F, for X of (d, n, p)."""
    return float(norm(X - X_star).mean())


def feasibility(X: Matrix) -> float:
    """feas^(k): the mean over agents of ||X_i'X_i - I||_F, for X of (d, n, p)."""
    return float(infeasibility(X).mean())


def consensus_error(X: Matrix) -> float:
    """The largest ||X_i - mean||_F over agents, for X of (d, n, p)."""
    return float(norm(X - X.mean(axis=0)).max())


@dataclass(frozen=True)
class Stationarity:
    """The three quantities of Def. 3 at a point X, with Y_i = prox_{sigma,g_i}(X)."""

    gradient: float
    prox_gap: float
    infeasibility: float

    @classmethod
    def at(cls, X: Matrix, G: Matrix, proxes: Iterable[Matrix]) -> "Stationarity":
        """Those of X, with the gradient G of the whole smoothed problem there, and the Y_i."""
        gap = max(float(norm(X - Y)) for Y in proxes)
        return cls(float(norm(proj(X, G))), gap, float(infeasibility(X)))

    @property
    def epsilon(self) -> float:
        """The smallest epsilon for which X is certified to be a first-order epsilon-stationary point."""
        return max(self.gradient, self.prox_gap, self.infeasibility)


@dataclass(frozen=True)
class Certificate:
    """How far a point is from a stationary point of the non-smooth problem (1).

    Attributes:
        distance: At least the least ||proj_X(G + S)||_F + L ||Y - X||_F over all Y and subgradients S of g at Y:
            X is stationary in the sense of Def. 3, with Y_i = Y, up to this.
        relative: The same divided by the Lipschitz constant of the gradient of f, or the slope of a steeper g.
        infeasibility: ||X'X - I||_F.
    """

    distance: float
    relative: float
    infeasibility: float


def certificate(X: Matrix, G: Matrix, g: Regularizer, lipschitz: float, *, is_strict: bool = False) -> Certificate:
    """How far X, (n, p), is from stationary: the smaller of two numbers that both are upper bounds (Def. 3).

    With Y_i = X: any subgradient S of g at X gives ||proj_X(G + S)||_F. A good S follows from the multiplier of a
    tangent step from X: the one nearest to -(G + X L). Then S and L improve each other. This is tight where X has
    exact zeros. An X with tiny entries in place of zeros has no good S.

    With Y_i = Z, the end of the tangent step: S is the subgradient there that the step itself names, and the bound
    is ||proj_X(G + S)||_F + lipschitz ||Z - X||_F.

    Both are subgradients by construction, whatever the tangent step was worth. So neither bound is too small by
    more than the rounding of G + S, some 1e-16 (||G||_F + ||S||_F).

    Args:
        X: The point, with nearly orthonormal columns.
        G: The gradient of the whole f at X, (n, p).
        g: The whole regularizer.
        lipschitz: The Lipschitz constant of the gradient of f, or another curvature to compare with.
        is_strict: Whether X has exact zeros, so that Y_i = X it must be, where g has subgradients to choose from.
    """
    unit = scale(lipschitz, g, *X.shape)
    step = tangent_step(g, X, G, 1 / unit, accuracy=1e-8)
    S = -(G + X @ step.multiplier) - unit * (step.Z - X)
    distance = float(norm(proj(X, G + S))) + unit * float(norm(step.Z - X))
    if isinstance(g, Subdifferentiable):
        distance = min(np.inf if is_strict else distance, _least_projection(G, g, X, step.multiplier))
    return Certificate(distance, distance / unit, float(infeasibility(X)))


def weakest_component(X: Matrix, G: Matrix, mu: float, unit: float) -> float:
    """What the weakest of the components X, (n, p), is worth, relative to what residuals are.

    That is the least eigenvalue of X'AA'X, from the gradient G = -AA'X, and mu. Trailing eigenvalues may be tiny
    beside the first: a residual that is small beside that one says nothing of their vectors.

    Components beyond the rank of A are worth nothing, and any will do: they are left out. 0 if there are no
    others.
    """
    worth = (np.linalg.eigvalsh(sym(-X.T @ G)) + mu) / unit
    return float(min(worth[worth > WORTHLESS], default=0.0))


def adjusted(M: Matrix) -> Matrix:
    """What each component adds to what those before it capture, (p,), where M = X'AA'X.

    That is the variance of its scores less what the scores before it explain of them: the squares of the diagonal
    of the Cholesky factor of M. The sum of all is never more than the trace of M.
    """
    M, added = sym(M), np.zeros(len(M))
    for j in range(len(M)):
        added[j] = max(float(M[j, j]), 0.0)
        if added[j] > WORTHLESS * max(float(np.trace(M)), 0.0):
            M = M - np.outer(M[:, j], M[j]) / M[j, j]
    return added


def judged(sparse: Matrix, common: Matrix) -> Matrix:
    """The answer that is certified: X with exact zeros where that is on the manifold, else the common X there."""
    return sparse if infeasibility(sparse) <= FEASIBLE else common


def _least_projection(G: Matrix, g: Subdifferentiable, X: Matrix, multiplier: Matrix) -> float:
    """||proj_X(G + S)||_F for the best S of a few: S and the multiplier minimise ||G + S + X L||_F in turn."""
    least = np.inf
    for _ in range(100):
        S = g.nearest_subgradient(X, -(G + X @ multiplier))
        distance = float(norm(proj(X, G + S)))
        if not distance < 0.999 * least:
            return min(least, distance)
        least, multiplier = distance, -sym(X.T @ (G + S))
    return least


@dataclass(frozen=True)
class WholeProblem:
    """Problem (1) with nothing hidden.

    Attributes:
        f: The sum of all f_i.
        shares: The g_i, as pairs (how many agents have it, g): agents mostly have the same one.
    """

    f: Objective
    shares: tuple[tuple[int, Regularizer], ...]

    @classmethod
    def of(cls, objectives: Sequence[Objective], regularizers: Iterable[Regularizer]) -> "WholeProblem":
        """The sum of the agents' problems."""
        counted: dict[int, tuple[int, Regularizer]] = {}
        for g in regularizers:
            counted[id(g)] = (counted.get(id(g), (0, g))[0] + 1, g)
        return cls(_sum_of(objectives), tuple(counted.values()))

    def value(self, X: Matrix) -> float:
        """The objective of (1) at X of (n, p)."""
        return self.f.value(X) + sum(count * g.value(X) for count, g in self.shares)

    def stationarity(self, X: Matrix, sigma: float) -> Stationarity:
        """What X, (n, p), certifies: (X - Y_i)/sigma is a subgradient of g_i at Y_i (Lemma 3)."""
        G = self.f.gradient(X)
        for count, g in self.shares:
            G = G + count * envelope_gradient(g, X, sigma)
        return Stationarity.at(X, G, (g.prox(X, sigma) for _, g in self.shares))


class _Sum:
    """The sum of objectives, for those that cannot be added in closed form."""

    def __init__(self, terms: Sequence[Objective]) -> None:
        self._terms = terms

    def value(self, X: Matrix) -> float:
        return sum(term.value(X) for term in self._terms)

    def gradient(self, X: Matrix) -> Matrix:
        total: Matrix = np.add.reduce([term.gradient(X) for term in self._terms], axis=0)
        return total


def _sum_of(objectives: Sequence[Objective]) -> Objective:
    pcas = [f for f in objectives if isinstance(f, SparsePCA)]
    return SparsePCA.pooled(pcas) if len(pcas) == len(objectives) else _Sum(objectives)
