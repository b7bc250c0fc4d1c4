"""The decentralized Riemannian subgradient method; with g = 0, DRSGD with all samples.

    X+ = polar(X + a P_X(W X - X) - b_k P_X(grad f_i(X) + a subgradient of g_i)),    b_k = b / sqrt(k + 1)

where P_X is the projection onto the tangent space at X. With g = 0 it is DRSGD of Chen, Garcia, Hong and
Shahrampour (2021), as the authors' public program has it, but for the samples: all of them are used in every
round. With a regularizer it is meant to be the decentralized Riemannian subgradient method (DRSM) of Wang, Hu,
Chen, Deng and So ("Decentralized weakly convex optimization over the Stiefel manifold", 2023). Of its text only
the abstract was at hand, so its formula is not checked. Steps that shrink geometrically are not offered.

Agents track nothing, so each is pulled towards its own samples' answer: they agree only as fast as b_k shrinks.

The subgradient comes from prox, which every regularizer has: (X - prox_{s,g}(X))/s is a subgradient of g at a
point within s L_g of X, and s is tiny. For l1 it is weight sign(X), but for entries below s weight.
"""

import math
from dataclasses import dataclass

import numpy as np

from thanos_peer.algorithm.method import Method, Received, Sent, Setup, Smooth
from thanos_peer.algorithm.regularizers import Regularizer, envelope_gradient
from thanos_peer.algorithm.stiefel import norm, polar, proj
from thanos_peer.block import Matrix

# b, in units of sqrt(p) / (a bound on an agent's mean gradient).
STEP = 0.5
# s: a power of two, so that dividing by it is exact.
NEARBY = 2.0**-26


@dataclass(frozen=True)
class SubgradientState:
    """What an agent carries.

    Attributes:
        X: The variable, with orthonormal columns.
        pace: ||X - X of the round before||_F / b_k, (...): close to ||sum_i P_X(G_i)||_F / d once agents agree.
            At the start ||P_X(G_i)||_F.
    """

    X: Matrix
    pace: Matrix


class Subgradient(Method[SubgradientState]):
    """The rounds of the decentralized Riemannian subgradient method.

    Args:
        f: The smooth part of the problem.
        g: An agent's share of the regularizer.
        d: How many agents there are.
        size: What gradients are measured by: sum_i ||A_i||_2^2, or ||A||_2^2 of all samples.
        step: b; by default 0.5 / (size/d + L_g/sqrt(p)), with the Lipschitz constant L_g of g.
        pull: a, the step towards the neighbors; 1 in the program of DRSGD's authors.
    """

    state_type = SubgradientState

    def __init__(
        self, f: Smooth, g: Regularizer, *, d: int, size: float, step: float | None = None, pull: float = 1.0
    ) -> None:
        self._f, self._g, self._d, self._size = f, g, d, size
        self._first, self._pull = step, pull

    @classmethod
    def make(cls, setup: Setup) -> "Subgradient":
        """For agents that have found this."""
        return cls(setup.f, setup.g, d=setup.d, size=setup.size or setup.measure)

    def start(self, X: Matrix) -> SubgradientState:
        """The start, whose pace is the agent's own."""
        return SubgradientState(X=X, pace=norm(self._direction(X)))

    def send(self, state: SubgradientState) -> Sent:
        """X; there is no tracker."""
        return Sent(state.X, np.zeros_like(state.X), np.zeros(state.X.shape[:-2]))

    def step(self, k: int, state: SubgradientState, received: Received) -> SubgradientState:
        """One round."""
        b = self._step(k, state.X)
        pull = proj(state.X, received.mix(lambda X, *_: X) - state.X)
        X = polar(state.X + self._pull * pull - b * self._direction(state.X))
        return SubgradientState(X=X, pace=norm(X - state.X) / b)

    def residual(self, k: int, state: SubgradientState, received: Received) -> Matrix:  # noqa: ARG002
        """The larger of d/size times the pace and the mismatch between neighbors.

        With g = 0 both go to zero. With a regularizer the pace does not, as subgradients do not: such a run ends
        with its last round, not with a tolerance.
        """
        return np.maximum(self._d / (self._size or 1.0) * state.pace, received.mismatch(state.X))

    def answer(self, k: int, state: SubgradientState) -> tuple[Matrix, Matrix]:
        """X, and X after a prox of the sum of all g_i with b_k: subgradients alone make X hover about zero."""
        return state.X, self._g.prox(state.X, self._d * self._step(k, state.X))

    def _step(self, k: int, X: Matrix) -> float:
        first = self._first
        if first is None:
            *_, n, p = X.shape
            first = STEP / (self._size / self._d + self._g.lipschitz(n, p) / math.sqrt(p) or 1.0)
        return first / math.sqrt(k + 1)

    def _direction(self, X: Matrix) -> Matrix:
        return proj(X, self._f.gradient(X) + envelope_gradient(self._g, X, NEARBY))
