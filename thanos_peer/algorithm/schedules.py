"""How sigma shrinks with the round, and how far an agent steps."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from thanos_peer.algorithm.stiefel import inner
from thanos_peer.block import Matrix

# Smallest sigma: below it X - prox(X) has hardly a digit left.
SMALLEST_SIGMA = 1e-8


class Smoothing(Protocol):
    """A rule for sigma^(k)."""

    def sigma(self, k: int) -> float:
        """The smoothing parameter of round k, positive."""


class StepRule(Protocol):
    """A rule for eta_i^(k)."""

    @property
    def first(self) -> float:
        """The step size of round 0."""

    def eta(self, S: Matrix, J: Matrix) -> Matrix:
        """The next step size, from S = X^(k) - X^(k-1) and J = D^(k) - D^(k-1); (d,) for stacks."""


@dataclass(frozen=True)
class ConstantSmoothing:
    """The same sigma in every round."""

    value: float

    def sigma(self, k: int) -> float:  # noqa: ARG002
        """The constant."""
        return self.value


@dataclass(frozen=True)
class DecreasingSmoothing:
    """sigma0 * k^(-exponent); the paper's is k^(-1/3)."""

    sigma0: float
    exponent: float

    def sigma(self, k: int) -> float:
        """Round 0 uses the value of round 1: H^(0) needs one, and 0^(-1/3) is infinite. Never tiny."""
        return max(float(self.sigma0 * max(k, 1) ** -self.exponent), SMALLEST_SIGMA)


@dataclass(frozen=True)
class ConstantStep:
    """The same eta in every round."""

    first: float

    def eta(self, S: Matrix, J: Matrix) -> Matrix:  # noqa: ARG002
        """The constant."""
        return np.full(S.shape[:-2], self.first)


@dataclass(frozen=True)
class BarzilaiBorwein:
    """The short Barzilai-Borwein step |<S, J>| / <J, J>, each agent its own.

    The long one, <S, S> / |<S, J>|, and the alternation of the two diverge on these problems. Where J = 0
    there is nothing to learn from, and the first step size is used. Where agents hold very unequal samples, long
    steps wander without end or diverge, even from the solution: `most` is the longest that is taken.
    """

    first: float
    most: float = math.inf

    def eta(self, S: Matrix, J: Matrix) -> Matrix:
        """The short step."""
        eta: Matrix = np.minimum(self._short(S, J), self.most)
        return eta

    def _short(self, S: Matrix, J: Matrix) -> Matrix:
        curvature = inner(J, J)
        if curvature.ndim == 0:  # the same number, in fewer steps
            short = np.abs(inner(S, J)) / curvature if curvature > 0 else np.asarray(self.first)
        else:
            fallback = np.full(curvature.shape, self.first)
            short = np.divide(np.abs(inner(S, J)), curvature, out=fallback, where=curvature > 0)
        return np.minimum(short, self.most)


@dataclass(frozen=True)
class Parameters:
    """What all agents of THANOS have in common: the penalty beta, the step rule, the smoothing rule."""

    beta: float
    step: StepRule
    smoothing: Smoothing
