"""How good an answer is, for somebody who can see every agent. No agent needs any of this to minimise."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from thanos_peer.algorithm.objectives import Objective, SparsePCA
from thanos_peer.algorithm.regularizers import Regularizer, envelope_gradient
from thanos_peer.algorithm.stiefel import infeasibility, norm, proj
from thanos_peer.block import Matrix


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
