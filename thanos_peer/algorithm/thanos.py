"""THANOS, and DESTINY, which is THANOS without a regularizer.

Invariants:
1. Sums over neighbors run in increasing order of id, never in order of arrival: the bits depend on what was sent
   alone.
2. H is kept in the state and never computed again: so sum_i D_i = sum_i H_i in every round, whatever sigma
   does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from thanos_peer.algorithm.method import Method, Received, Sent, Setup, Smooth
from thanos_peer.algorithm.regularizers import Regularizer, envelope_gradient
from thanos_peer.algorithm.schedules import Parameters
from thanos_peer.algorithm.stiefel import identity, infeasibility, norm, sym, transpose
from thanos_peer.algorithm.traits import NO_SETTINGS
from thanos_peer.block import Matrix

AUTOMATIC: Mapping[str, Any] = {
    "beta": "auto",
    "step": {"rule": "bb", "first": "auto"},
    "smoothing": {"rule": "decreasing"},
    "max_rounds": 3000,
    "tolerance": 1e-4,
}
OF_THE_PAPER: Mapping[str, Any] = {
    "beta": 1.0,
    "step": {"rule": "bb", "first": 0.1},
    "smoothing": {"rule": "decreasing", "sigma0": 1.0, "exponent": 1 / 3},
}


@dataclass(frozen=True, slots=True)
class ThanosState:
    """X, the tracker D and the cached H, (..., n, p); the step size, (...)."""

    X: Matrix
    D: Matrix
    H: Matrix
    eta: Matrix


class Thanos(Method[ThanosState]):
    """The rounds of THANOS.

    Every round is tested against the formulas written again, and the paper's three observations on sigma on its
    own network. That X is epsilon-stationary after as many rounds as its theorem says is not tested: the steps
    that Condition 1 asks for (conditions.py) hardly move X.

    Args:
        f: The agents' f_i.
        g: The g_i, which all have in common.
        d: How many agents there are.
        parameters: Penalty, step and smoothing.
        size: What gradients are measured by: D grows with the objective, the other parts of the residual do not.
    """

    state_type = ThanosState
    smooths = True
    has_parameters = True
    settings = frozenset({"beta", "step", "smoothing"})
    first_settings: ClassVar[Mapping[str, Any]] = AUTOMATIC
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paper": OF_THE_PAPER}

    def __init__(self, f: Smooth, g: Regularizer, d: int, parameters: Parameters, size: float = 1.0) -> None:
        self._f, self._g, self._d, self._parameters, self._size = f, g, d, parameters, size

    @classmethod
    def make(cls, setup: Setup) -> "Thanos":
        """For agents that have found this."""
        return cls(setup.f, setup.g, setup.d, setup.parameters(), setup.measure)

    def start(self, X: Matrix) -> ThanosState:
        """The common start, and D = H."""
        H = self._direction(0, X)
        return ThanosState(X, H, H, np.full(X.shape[:-2], self._parameters.step.first))

    def send(self, state: ThanosState) -> Sent:
        """X, D and the step size."""
        return Sent(state.X, state.D, state.eta)

    def step(self, k: int, state: ThanosState, received: Received) -> ThanosState:
        """One round."""
        X = received.mix(lambda X, D, eta: X - eta * D)  # (5)
        H = self._direction(k + 1, X)  # (6)
        D = received.mix(lambda _X, D, _eta: D) + (H - state.H)  # (7)
        return ThanosState(X, D, H, self._parameters.step.eta(X - state.X, D - state.D))

    def residual(self, k: int, state: ThanosState, received: Received) -> Matrix:  # noqa: ARG002
        """The largest of three numbers.

        d ||D_i||_F, which is ||sum_j H_j||_F once trackers agree; the largest ||X_i - X_j||_F over neighbors; and
        ||X_i'X_i - I||_F.
        """
        slope = self._d * norm(state.D) / self._size
        return np.maximum(np.maximum(slope, received.mismatch(state.X)), infeasibility(state.X))

    def answer(self, k: int, state: ThanosState) -> tuple[Matrix, Matrix]:
        """X, and what the prox makes of it."""
        return state.X, self._g.prox(state.X, self._parameters.smoothing.sigma(k))

    def _direction(self, k: int, X: Matrix) -> Matrix:
        sigma = self._parameters.smoothing.sigma(k)
        G = self._f.gradient(X) + envelope_gradient(self._g, X, sigma)
        return descent_direction(X, G, self._parameters.beta)


class Destiny(Thanos):
    """THANOS for problems without a regularizer: nothing is smoothed.

    The formulas are those that the paper of THANOS builds on. That it reaches the exact leading subspace with one
    exchange per iteration, without staying on the manifold, is tested; the rate that its own paper proves is not.
    """

    is_for_smooth = True
    settings = frozenset({"beta", "step"})
    first_settings: ClassVar[Mapping[str, Any]] = {
        key: value for key, value in AUTOMATIC.items() if key != "smoothing"
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = NO_SETTINGS


def descent_direction(X: Matrix, G: Matrix, beta: float) -> Matrix:
    """H = beta X (X'X - I) + G (3I - X'X)/2 - X sym(X'G), with the two products from the left taken at once."""
    gram, eye = transpose(X) @ X, identity(X.shape[-1])
    return X @ (beta * (gram - eye) - sym(transpose(X) @ G)) + G @ ((3 * eye - gram) / 2)  # (6)
