"""DPRGD: decentralized projected Riemannian gradient descent.

    X+ = polar(W X - a_k grad f_i(X)),    a_k = b / sqrt(k + 1)

where grad is the Riemannian gradient (Deng and Hu, "Decentralized projected Riemannian gradient method for smooth
optimization on compact submanifolds", 2023). It is DPRGT without a tracker: each agent is pulled towards its own
samples' answer, so agents agree only as fast as a_k shrinks. That they do is tested on small problems; the paper's
bounds on the step are not checked.

The method is stated for g = 0. A regularizer is smoothed (`smoothed.py`), which is our addition.
"""

import math
from dataclasses import dataclass

import numpy as np

from thanos_peer.algorithm.largest import Largest
from thanos_peer.algorithm.method import Method, Received, Sent, Setup
from thanos_peer.algorithm.smoothed import Smoothed
from thanos_peer.algorithm.stiefel import polar
from thanos_peer.block import Matrix


@dataclass(frozen=True)
class DPRGDState:
    """What an agent carries.

    Attributes:
        X: The variable, with orthonormal columns.
        S: (X of the round before - X) / a_k: close to the mean of all grad f_i(X) once agents agree. At the start
            grad f_i(X).
    """

    X: Matrix
    S: Matrix


class DPRGD(Method[DPRGDState]):
    """The rounds of DPRGD: `problem` is what is minimised, with the first step b."""

    state_type = DPRGDState
    preparation = Largest
    is_for_pca = True
    smooths = True

    def __init__(self, problem: Smoothed) -> None:
        self._problem = problem

    @classmethod
    def make(cls, setup: Setup) -> "DPRGD":
        """For agents that have found this."""
        return cls(Smoothed.of(setup))

    def start(self, X: Matrix) -> DPRGDState:
        """S is the agent's own gradient."""
        return DPRGDState(X=X, S=self._problem.riemannian_gradient(X))

    def send(self, state: DPRGDState) -> Sent:
        """X; there is no tracker."""
        return Sent(state.X, np.zeros_like(state.X), np.zeros(state.X.shape[:-2]))

    def step(self, k: int, state: DPRGDState, received: Received) -> DPRGDState:
        """One round."""
        a = self._problem.step / math.sqrt(k + 1)
        X = polar(received.mix(lambda X, *_: X) - a * self._problem.riemannian_gradient(state.X))
        return DPRGDState(X=X, S=(state.X - X) / a)

    def residual(self, k: int, state: DPRGDState, received: Received) -> Matrix:  # noqa: ARG002
        """The larger of 2.5 d ||S||_F / size and the mismatch between neighbors: both shrink as slowly as a_k."""
        return np.maximum(self._problem.relative(state.S), received.mismatch(state.X))

    def answer(self, k: int, state: DPRGDState) -> tuple[Matrix, Matrix]:  # noqa: ARG002
        """X, and prox_{sigma,g}(X)."""
        return self._problem.answer(state.X)
