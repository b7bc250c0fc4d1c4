"""VRSGT: DESTINY's round with a gradient from a few samples, whose variance vanishes.

    X+ = W (X - eta D)
    H  = beta X (X'X - I) + G (3I - X'X)/2 - X sym(X'G)
    D+ = W D + H+ - H,    D = H at first

where G is the whole gradient of f_i in every `period`-th round, and between

    G+ = G + (gradient from a few samples at X+) - (gradient from the same samples at X).

The difference is small where X moves little, so the noise goes with the steps, and the limit is exact. After Wang
and Liu, "A variance-reduced stochastic gradient tracking algorithm for decentralized optimization with
orthogonality constraints" (2022). Of its text only the abstract was at hand. That gradient and disagreement shrink
at least as fast as 1/K, as it says, is tested on small problems. The recursion for G is the usual one (SARAH,
SPIDER); whether the paper has another is not checked.

The method is stated for g = 0. A regularizer is smoothed (`smoothed.py`), which is our addition.

Invariants:
1. Which samples are drawn follows from the seed, the agent and the round: a restarted agent repeats its bits.
2. sum_i D_i = sum_i H_i in every round.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thanos_peer.algorithm.largest import Largest
from thanos_peer.algorithm.method import Method, Received, Sent, Setup
from thanos_peer.algorithm.smoothed import Smoothed
from thanos_peer.algorithm.stiefel import infeasibility
from thanos_peer.algorithm.thanos import descent_direction
from thanos_peer.block import AgentId, Matrix

PERIOD = 10


class Minibatches:
    """Gradients of sparse PCA from a few samples of each agent.

    Args:
        samples: The A_i of the agents, (n, m_i) each; of m_i samples the square root is drawn, rounded up.
        agents: Which agents they are, so that each draws otherwise.
        seed: Of all draws.
    """

    def __init__(self, samples: Sequence[Matrix], agents: Sequence[AgentId], seed: int) -> None:
        self._samples, self._agents, self._seed = samples, agents, seed

    def gradient(self, X: Matrix, draw: int) -> Matrix:
        """-(m/b) A_B A_B' X_i for b of m samples of each agent, (..., n, p): right on average."""
        stack = X.reshape(-1, *X.shape[-2:])
        found = []
        for A, agent, X_i in zip(self._samples, self._agents, stack, strict=True):
            few = A[:, self.drawn(agent, draw, A.shape[1])]
            found.append(-(A.shape[1] / few.shape[1]) * (few @ (few.T @ X_i)))
        return np.array(found).reshape(X.shape)

    def drawn(self, agent: AgentId, draw: int, count: int) -> NDArray[np.intp]:
        """The numbers of an agent's samples in a draw, one of them maybe twice.

        The bits of a bit generator stay what they are in every release of numpy; what `Generator` makes of them
        may not.
        """
        batch = math.isqrt(count - 1) + 1
        bits = np.random.PCG64(np.random.SeedSequence((self._seed, agent, draw))).random_raw(batch)
        drawn: NDArray[np.intp] = (bits % np.uint64(count)).astype(np.intp)
        return drawn


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
        few: Its gradients from a few samples.
        beta: The penalty; by default size/d.
        period: Every how many rounds all samples are used.
    """

    state_type = VRSGTState
    preparation = Largest
    is_for_pca = True
    needs_samples = True
    smooths = True
    default_tolerance = 1e-6

    def __init__(
        self, problem: Smoothed, few: Minibatches, *, beta: float | None = None, period: int = PERIOD
    ) -> None:
        self._problem, self._few, self._period = problem, few, period
        self._beta = problem.size / problem.d if beta is None else beta

    @classmethod
    def make(cls, setup: Setup) -> "VRSGT":
        """For agents that have found this."""
        return cls(Smoothed.of(setup), Minibatches(setup.samples, setup.agents, setup.seed))

    def start(self, X: Matrix) -> VRSGTState:
        """D = H, from all samples."""
        G = self._problem.f.gradient(X)
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
        """The largest of 2.5 d ||D||_F / size, the mismatch between neighbors, and ||X'X - I||_F."""
        gradient = self._problem.relative(state.D)
        return np.maximum(np.maximum(gradient, received.mismatch(state.X)), infeasibility(state.X))

    def answer(self, k: int, state: VRSGTState) -> tuple[Matrix, Matrix]:  # noqa: ARG002
        """X, which is orthonormal in the limit only, and prox_{sigma,g}(X)."""
        return self._problem.answer(state.X)

    def _estimate(self, k: int, X: Matrix, state: VRSGTState) -> Matrix:
        if k % self._period == 0:
            return self._problem.f.gradient(X)
        return state.G + (self._few.gradient(X, k) - self._few.gradient(state.X, k))

    def _direction(self, X: Matrix, G: Matrix) -> Matrix:
        return descent_direction(X, G + self._problem.envelope_gradient(X), self._beta)
