"""DRGTA: decentralized Riemannian gradient tracking, with several mixings for each step.

    X+ = polar(X + a P_X(W^t X - X) - b P_X(S))
    S+ = W^t S + grad f_i(X+) - grad f_i(X),    S = grad f_i(X) at first

where grad is the Riemannian gradient and P_X the projection onto the tangent space at X (Chen, Garcia, Hong and
Shahrampour, "Decentralized Riemannian gradient descent on the Stiefel manifold", 2021). The formulas are those of
the authors' public program. That gradient and disagreement shrink at least as fast as 1/K with a constant step, as
the paper proves, is tested on small problems; how many mixings its theorem asks for is not checked.

A round mixes once, so an iteration takes t rounds. What is sent is what is being mixed: X and S in the first round
of an iteration, W X and W S in the second, and so on. The last round takes the step.

The method is stated for g = 0. A regularizer is smoothed (`smoothed.py`), which is our addition.

Invariant: sum_i S_i = sum_i grad f_i(X_i) at the start of every iteration.
"""

from dataclasses import dataclass, replace

import numpy as np

from thanos_peer.algorithm.largest import Largest
from thanos_peer.algorithm.method import Method, Received, Sent, Setup
from thanos_peer.algorithm.smoothed import Smoothed
from thanos_peer.algorithm.stiefel import polar, proj
from thanos_peer.block import Matrix


@dataclass(frozen=True)
class DRGTAState:
    """What an agent carries.

    Attributes:
        X: The variable, with orthonormal columns.
        S: The tracker of the Riemannian gradient.
        G: The Riemannian gradient of f_i at X.
        Y: X after the mixings of this iteration so far.
        T: S after them.
        mismatch: How far the neighbors' X were in the last round that carried them.
    """

    X: Matrix
    S: Matrix
    G: Matrix
    Y: Matrix
    T: Matrix
    mismatch: Matrix


class DRGTA(Method[DRGTAState]):
    """The rounds of DRGTA.

    Args:
        problem: What is minimised, with the step b.
        pull: a, the step towards the neighbors; 1 in the authors' program.
        mixings: t, the rounds of an iteration.
    """

    state_type = DRGTAState
    preparation = Largest
    settings = frozenset({"mixings"})
    is_for_pca = True
    smooths = True
    default_tolerance = 1e-6

    def __init__(self, problem: Smoothed, *, pull: float = 1.0, mixings: int = 1) -> None:
        self._problem, self._pull, self._mixings = problem, pull, mixings

    @classmethod
    def make(cls, setup: Setup) -> "DRGTA":
        """For agents that have found this."""
        return cls(Smoothed.of(setup), mixings=setup.mixings)

    def start(self, X: Matrix) -> DRGTAState:
        """S is the gradient."""
        G = self._problem.riemannian_gradient(X)
        return DRGTAState(X=X, S=G, G=G, Y=X, T=G, mismatch=np.zeros(X.shape[:-2]))

    def send(self, state: DRGTAState) -> Sent:
        """What is being mixed."""
        return Sent(state.Y, state.T, np.full(state.X.shape[:-2], self._problem.step))

    def step(self, k: int, state: DRGTAState, received: Received) -> DRGTAState:
        """One mixing; in every t-th round also the step."""
        Y = received.mix(lambda X, *_: X)
        T = received.mix(lambda _X, D, _eta: D)
        mismatch = self._mismatch(k, state, received)
        if (k + 1) % self._mixings:
            return replace(state, Y=Y, T=T, mismatch=mismatch)
        pull = proj(state.X, Y - state.X)
        X = polar(state.X + self._pull * pull - self._problem.step * proj(state.X, state.S))
        G = self._problem.riemannian_gradient(X)
        S = T + (G - state.G)
        return DRGTAState(X=X, S=S, G=G, Y=X, T=S, mismatch=mismatch)

    def residual(self, k: int, state: DRGTAState, received: Received) -> Matrix:
        """The larger of 2.5 d ||P_X(S)||_F / size and the mismatch between neighbors when the iteration began."""
        gradient = self._problem.relative(proj(state.X, state.S))
        return np.maximum(gradient, self._mismatch(k, state, received))

    def answer(self, k: int, state: DRGTAState) -> tuple[Matrix, Matrix]:  # noqa: ARG002
        """X, and prox_{sigma,g}(X)."""
        return self._problem.answer(state.X)

    def _mismatch(self, k: int, state: DRGTAState, received: Received) -> Matrix:
        """Only the first round of an iteration carries X itself."""
        return state.mismatch if k % self._mixings else received.mismatch(state.X)
