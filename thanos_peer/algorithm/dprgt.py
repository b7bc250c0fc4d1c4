"""DPRGT: decentralized projected Riemannian gradient tracking.

    X+ = polar(W X - a P_X(S))
    S+ = W S + grad f_i(X+) - grad f_i(X),    S = grad f_i(X) at first

where grad is the Riemannian gradient and P_X the projection onto the tangent space at X (Deng and Hu,
"Decentralized projected Riemannian gradient method for smooth optimization on compact submanifolds", 2023). Unlike
DRGTA it projects the average of the neighbors, not a step in the tangent space. There is one mixing for each step.

The method is stated for g = 0. With a regularizer it minimises f + the Moreau envelope of g with a constant
sigma, which is our addition: it stops at the smoothing error.

Invariant: sum_i S_i = sum_i grad f_i(X_i) in every round.
"""

from dataclasses import dataclass

import numpy as np

from thanos_peer.algorithm.largest import Largest
from thanos_peer.algorithm.method import Method, Received, Sent, Setup, Smooth
from thanos_peer.algorithm.regularizers import Regularizer, Zero, envelope_gradient
from thanos_peer.algorithm.stiefel import norm, polar, proj
from thanos_peer.block import Matrix

STEP = 0.25  # in units of 1 / (the largest Lipschitz constant of an agent's gradient)


@dataclass(frozen=True)
class DPRGTState:
    """What an agent carries: its variable, its tracker, and its Riemannian gradient, (..., n, p) each."""

    X: Matrix
    S: Matrix
    G: Matrix


class DPRGT(Method[DPRGTState]):
    """The rounds of DPRGT.

    Args:
        f: The smooth part of the problem.
        g: An agent's share of the regularizer, smoothed with sigma.
        d: How many agents there are.
        size: What gradients are measured by: sum_i ||A_i||_2^2, or ||A||_2^2 of all samples.
        largest: max_i ||A_i||_2^2, where the agents know it. It is at most `size`, which stands in for it: agents
            whose samples are alike then step up to d times less far than they could.
        sigma: The smoothing of g; by default 1/size, and of no effect where g = 0.
        step: a. Too long a step runs in a circle or diverges; by default 0.25 / (largest + 1/sigma), and
            0.25 / largest where g = 0.
    """

    state_type = DPRGTState
    preparation = Largest
    is_for_pca = True
    default_tolerance = 1e-6

    def __init__(
        self,
        f: Smooth,
        g: Regularizer,
        *,
        d: int,
        size: float,
        largest: float | None = None,
        sigma: float | None = None,
        step: float | None = None,
    ) -> None:
        size = size or 1.0
        self._f, self._g, self._unit = f, g, d / size
        self._sigma = 1 / size if sigma is None else sigma
        curvature = (largest or size) + (0.0 if isinstance(g, Zero) else 1 / self._sigma)
        self._step = STEP / curvature if step is None else step

    @classmethod
    def make(cls, setup: Setup) -> "DPRGT":
        """For agents that have found this."""
        largest = None if setup.agreed is None else float(setup.agreed[0])
        return cls(setup.f, setup.g, d=setup.d, size=setup.size or setup.measure, largest=largest)

    def start(self, X: Matrix) -> DPRGTState:
        """S is the gradient."""
        G = self._gradient(X)
        return DPRGTState(X=X, S=G, G=G)

    def send(self, state: DPRGTState) -> Sent:
        """X and S."""
        return Sent(state.X, state.S, np.full(state.X.shape[:-2], self._step))

    def step(self, k: int, state: DPRGTState, received: Received) -> DPRGTState:  # noqa: ARG002
        """One round."""
        X = polar(received.mix(lambda X, *_: X) - self._step * proj(state.X, state.S))
        G = self._gradient(X)
        S = received.mix(lambda _X, D, _eta: D) + (G - state.G)
        return DPRGTState(X=X, S=S, G=G)

    def residual(self, k: int, state: DPRGTState, received: Received) -> Matrix:  # noqa: ARG002
        """The larger of d ||P_X(S)||_F / size and the mismatch between neighbors."""
        return np.maximum(self._unit * norm(proj(state.X, state.S)), received.mismatch(state.X))

    def answer(self, k: int, state: DPRGTState) -> tuple[Matrix, Matrix]:  # noqa: ARG002
        """X, and prox_{sigma,g}(X)."""
        return state.X, self._g.prox(state.X, self._sigma)

    def _gradient(self, X: Matrix) -> Matrix:
        return proj(X, self._f.gradient(X) + envelope_gradient(self._g, X, self._sigma))
