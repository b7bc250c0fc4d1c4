"""DPRGT: decentralized projected Riemannian gradient tracking.

    X+ = polar(W X - a P_X(S))
    S+ = W S + grad f_i(X+) - grad f_i(X),    S = grad f_i(X) at first

where grad is the Riemannian gradient and P_X the projection onto the tangent space at X (Deng and Hu,
"Decentralized projected Riemannian gradient method for smooth optimization on compact submanifolds", 2023). Unlike
DRGTA it projects the average of the neighbors, not a step in the tangent space. There is one mixing for each step.
That gradient and disagreement shrink at least as fast as 1/K with a constant step, as the paper proves, is tested
on small problems; its bounds on the step are not checked.

The method is stated for g = 0. A regularizer is smoothed (`smoothed.py`), which is our addition.

Invariant: sum_i S_i = sum_i grad f_i(X_i) in every round.
"""

from dataclasses import dataclass

import numpy as np

from thanos_peer.algorithm.largest import Largest
from thanos_peer.algorithm.method import Method, Received, Sent, Setup
from thanos_peer.algorithm.smoothed import Smoothed
from thanos_peer.algorithm.stiefel import polar, proj
from thanos_peer.block import Matrix


@dataclass(frozen=True)
class DPRGTState:
    """What an agent carries: its variable, its tracker, and its Riemannian gradient, (..., n, p) each."""

    X: Matrix
    S: Matrix
    G: Matrix


class DPRGT(Method[DPRGTState]):
    """The rounds of DPRGT: `problem` is what is minimised, with the step a."""

    state_type = DPRGTState
    preparation = Largest
    is_for_pca = True
    smooths = True
    default_tolerance = 1e-6

    def __init__(self, problem: Smoothed) -> None:
        self._problem = problem

    @classmethod
    def make(cls, setup: Setup) -> "DPRGT":
        """For agents that have found this."""
        return cls(Smoothed.of(setup))

    def start(self, X: Matrix) -> DPRGTState:
        """S is the gradient."""
        G = self._problem.riemannian_gradient(X)
        return DPRGTState(X=X, S=G, G=G)

    def send(self, state: DPRGTState) -> Sent:
        """X and S."""
        return Sent(state.X, state.S, np.full(state.X.shape[:-2], self._problem.step))

    def step(self, k: int, state: DPRGTState, received: Received) -> DPRGTState:  # noqa: ARG002
        """One round."""
        X = polar(received.mix(lambda X, *_: X) - self._problem.step * proj(state.X, state.S))
        G = self._problem.riemannian_gradient(X)
        S = received.mix(lambda _X, D, _eta: D) + (G - state.G)
        return DPRGTState(X=X, S=S, G=G)

    def residual(self, k: int, state: DPRGTState, received: Received) -> Matrix:  # noqa: ARG002
        """The larger of 2.5 d ||P_X(S)||_F / size and the mismatch between neighbors."""
        return np.maximum(self._problem.relative(proj(state.X, state.S)), received.mismatch(state.X))

    def answer(self, k: int, state: DPRGTState) -> tuple[Matrix, Matrix]:  # noqa: ARG002
        """X, and prox_{sigma,g}(X)."""
        return self._problem.answer(state.X)
