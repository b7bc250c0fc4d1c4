"""VRSGT: DESTINY's round with a gradient from a few samples, whose variance vanishes.

    X+ = W (X - eta D)
    H  = beta X (X'X - I) + G (3I - X'X)/2 - X sym(X'G)
    D+ = W D + H+ - H,    D = H at first

where G is the whole gradient of f_i in every `period`-th round, and between

    G+ = G + (gradient from a few samples at X+) - (gradient from the same samples at X).

The difference is small where X moves little, so the noise goes with the steps, and the limit is exact. After Wang
and Liu, "A variance-reduced stochastic gradient tracking algorithm for decentralized optimization with
orthogonality constraints" (2023). Of its text only the abstract was at hand. The recursion for G is the usual one
(SARAH, SPIDER); whether the paper has another is not checked, and neither is its rate O(1/k).

The method needs the samples: it cannot run where an agent kept only its Gram matrix.

The method is stated for g = 0. A regularizer is smoothed (`smoothed.py`), which is our addition.

Invariants:
1. Which samples are drawn follows from the seed, the agent and the round: a restarted agent repeats its bits.
2. sum_i D_i = sum_i H_i in every round.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from thanos_peer.algorithm.method import Method, Received, Sent, Setup, Smooth
from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.algorithm.smoothed import Smoothed
from thanos_peer.algorithm.stiefel import infeasibility
from thanos_peer.algorithm.thanos import descent_direction
from thanos_peer.block import AgentId, Matrix
from thanos_peer.errors import ConfigError

PERIOD = 10


@runtime_checkable
class Sampled(Smooth, Protocol):
    """A smooth part that is a sum over samples."""

    def sampled_gradient(self, X: Matrix, draw: int) -> Matrix:
        """The gradient of f_i at X_i as the samples of one draw tell it, (..., n, p): right on average."""


class SampledPCA:
    """Sparse PCA of one agent, with gradients from a few of its samples.

    Args:
        f: Its objective, which must have kept its samples.
        agent: Which agent it is, so that agents draw differently.
        seed: Of all draws.
        batch: How many samples to draw; by default the square root of how many there are.

    Raises:
        ConfigError: The objective has a Gram matrix only.
    """

    def __init__(self, f: SparsePCA, *, agent: AgentId, seed: int, batch: int | None = None) -> None:
        if f.A is None:
            raise ConfigError(
                f"vrsgt draws from the samples, and agent {agent} keeps only their Gram matrix, as they are too"
                " many; choose another method"
            )
        self._f, self._A, self._agent, self._seed = f, f.A, agent, seed
        self._batch = math.isqrt(f.A.shape[1] - 1) + 1 if batch is None else batch

    def value(self, X: Matrix) -> Matrix:
        """f(X)."""
        return np.asarray(self._f.value(X))

    def gradient(self, X: Matrix) -> Matrix:
        """From all samples."""
        return self._f.gradient(X)

    def sampled_gradient(self, X: Matrix, draw: int) -> Matrix:
        """-(m/b) A_B A_B' X for b of m samples."""
        A = self._A[:, self.drawn(draw)]
        estimate: Matrix = -(self._A.shape[1] / self._batch) * (A @ (A.T @ X))
        return estimate

    def drawn(self, draw: int) -> NDArray[np.intp]:
        """The b samples of a draw, one of them maybe twice.

        The bits of a bit generator stay what they are in every release of numpy; what `Generator` makes of them
        may not.
        """
        bits = np.random.PCG64(np.random.SeedSequence((self._seed, self._agent, draw))).random_raw(self._batch)
        drawn: NDArray[np.intp] = (bits % np.uint64(self._A.shape[1])).astype(np.intp)
        return drawn


class SampledStack:
    """Those of several agents, for X of (d, n, p)."""

    def __init__(self, parts: Sequence[Sampled]) -> None:
        self._parts = parts

    def value(self, X: Matrix) -> Matrix:
        """f_i(X_i), (d,)."""
        return np.array([part.value(X_i) for part, X_i in zip(self._parts, X, strict=True)])

    def gradient(self, X: Matrix) -> Matrix:
        """From all samples, one agent after the other."""
        return np.array([part.gradient(X_i) for part, X_i in zip(self._parts, X, strict=True)])

    def sampled_gradient(self, X: Matrix, draw: int) -> Matrix:
        """From each agent's own draw."""
        return np.array([part.sampled_gradient(X_i, draw) for part, X_i in zip(self._parts, X, strict=True)])


@dataclass(frozen=True)
class VRSGTState:
    """What an agent carries: X, the tracker D, H, and the estimate G of its gradient, (..., n, p) each."""

    X: Matrix
    D: Matrix
    H: Matrix
    G: Matrix


class VRSGT(Method[VRSGTState]):
    """The rounds of VRSGT.

    Args:
        problem: What is minimised, with the step eta.
        f: Its smooth part, with samples to draw from.
        beta: The penalty; by default size/d.
        period: Every how many rounds all samples are used.
    """

    state_type = VRSGTState
    default_tolerance = 1e-6

    def __init__(self, problem: Smoothed, f: Sampled, *, beta: float | None = None, period: int = PERIOD) -> None:
        self._problem, self._f, self._period = problem, f, period
        self._beta = problem.size / problem.d if beta is None else beta

    @classmethod
    def make(cls, setup: Setup) -> "VRSGT":
        """For agents that have found this.

        Raises:
            ConfigError: The objective has no samples to draw from.
        """
        if not isinstance(setup.f, Sampled):
            raise ConfigError("vrsgt draws from the samples, and this objective has no sampled_gradient(X, draw)")
        return cls(Smoothed.of(setup), setup.f)

    def start(self, X: Matrix) -> VRSGTState:
        """D = H, from all samples."""
        G = self._f.gradient(X)
        H = self._direction(X, G)
        return VRSGTState(X=X, D=H, H=H, G=G)

    def send(self, state: VRSGTState) -> Sent:
        """X, D and the step."""
        return Sent(state.X, state.D, np.full(state.X.shape[:-2], self._problem.step))

    def step(self, k: int, state: VRSGTState, received: Received) -> VRSGTState:
        """One round."""
        X = received.mix(lambda X, D, eta: X - eta * D)
        G = self._estimate(k + 1, X, state)
        H = self._direction(X, G)
        D = received.mix(lambda _X, D, _eta: D) + (H - state.H)
        return VRSGTState(X=X, D=D, H=H, G=G)

    def residual(self, k: int, state: VRSGTState, received: Received) -> Matrix:  # noqa: ARG002
        """The largest of d ||D||_F / size, the mismatch between neighbors, and ||X'X - I||_F."""
        gradient = self._problem.relative(state.D)
        return np.maximum(np.maximum(gradient, received.mismatch(state.X)), infeasibility(state.X))

    def answer(self, k: int, state: VRSGTState) -> tuple[Matrix, Matrix]:  # noqa: ARG002
        """X, which is orthonormal in the limit only, and prox_{sigma,g}(X)."""
        return self._problem.answer(state.X)

    def _estimate(self, k: int, X: Matrix, state: VRSGTState) -> Matrix:
        if k % self._period == 0:
            return self._f.gradient(X)
        return state.G + (self._f.sampled_gradient(X, k) - self._f.sampled_gradient(state.X, k))

    def _direction(self, X: Matrix, G: Matrix) -> Matrix:
        return descent_direction(X, G + self._problem.envelope_gradient(X), self._beta)
