"""The exact method by exact sums: agents sum their gradients at one point, the root of the tree takes the step.

The steps are those of `accelerated`. All agents evaluate where the root's word says, so all hold the same point,
to the last bit, whatever processor each of them has; the first point is in the word of a phase before. The
exception, which differs by rounding where processors do, is the X of an answer that is not on the manifold because
the root gave up: each agent projects it for itself.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from thanos_peer.algorithm import accelerated
from thanos_peer.algorithm.accelerated import AcceleratedState
from thanos_peer.algorithm.fixed_point import EXACT, FixedPoint
from thanos_peer.algorithm.kept import Kept, nothing_kept, with_best
from thanos_peer.algorithm.method import Setup
from thanos_peer.algorithm.pooling import Layout
from thanos_peer.algorithm.search import arrays_of
from thanos_peer.algorithm.solving import GOES_ON, Solving
from thanos_peer.algorithm.traits import Content, Iterations
from thanos_peer.block import Matrix

TYPICAL = Iterations(
    ((0.15, 13), (0.085, 35), (0.06, 60), (0.035, 80), (0.012, 160), (0.003, 200), (1e-9, 370), (0.0, 2)),
    in_general=100,
)


@dataclass(frozen=True)
class ProximalState(AcceleratedState, Kept):
    """The search from one start, and what came of those before."""


class Proximal(Solving):
    """One iteration is one sum."""

    shares_start = True

    def __init__(self, setup: Setup) -> None:
        self._setup, self._shape = setup, (setup.start.shape[0], setup.start.shape[1])
        # The bound is a rounded number itself, so twice as much is allowed.
        self.bound = math.inf if setup.bound is None else 2 * setup.bound
        self.format = EXACT if setup.bound is None else FixedPoint.within(self.bound, setup.d)

    @classmethod
    def content(cls, *, is_pca: bool) -> Content:
        """Peers bring their own gradients."""
        if not is_pca:
            own = "the value and the gradient of its objective at one point after the other"
            return Content(own, "their sums over all peers")
        return Content(
            "its second moments times one point after the other, which may determine them",
            "that of all samples together",
        )

    @classmethod
    def make(cls, setup: Setup) -> "Proximal":
        """For agents that have found this."""
        return cls(setup)

    @staticmethod
    def layout(n: int, p: int, *, is_pca: bool) -> Layout:
        """f_i and its gradient up; down how it stands, and the next point."""
        return Layout("int128" if is_pca else EXACT.kind, 1 + n * p, 3 + n * p)

    @staticmethod
    def typical_sums(p: int, mu: float | None, digits: int, restarts: int) -> int:
        """One for each iteration."""
        return restarts * TYPICAL.expected(p, mu, digits)

    def numbers(self, word: Matrix | None) -> Matrix:
        """f_i and its gradient at the point that the root asks for."""
        f, X = self._setup.f, self._setup.start if word is None else self.point(word, *self._shape)
        return np.concatenate([[f.value(X)], f.gradient(X).ravel()])

    def begin(self) -> ProximalState:
        """At the first start."""
        start = self._setup.start
        return ProximalState(**arrays_of(accelerated.start(start, self._setup.size)), **nothing_kept(start))

    def decide(self, state: ProximalState, sums: Matrix) -> tuple[ProximalState, Matrix]:
        """One step; or the next start; or the best answer, when all starts are over or there is no time left."""
        setup = self._setup
        G, value = sums[1:].reshape(self._shape), float(sums[0])
        told = accelerated.tell(state, G, value, setup.whole, setup.lipschitz)
        state = replace(state, **arrays_of(told), sums=state.sums + 1)
        is_late = state.sums >= setup.most
        if not (accelerated.is_over(state, setup.tolerance) or is_late):
            return state, self._word(state)
        state = self._with_best(state)
        if state.number + 1 < setup.restarts and not is_late:
            anew = accelerated.start(setup.restart(int(state.number) + 1), setup.size)
            # The residuals of all starts are in the unit of the first one.
            anew = replace(anew, gradient=state.gradient)
            state = replace(state, **arrays_of(anew), number=state.number + 1)
            return state, self._word(state)
        starts = self._searched(state.number, float(state.kept_residual), state.kept)
        return state, np.concatenate([[starts, state.kept_residual, state.L], state.kept.ravel()])

    def again(self, state: ProximalState, X: Matrix, sums: int) -> tuple[ProximalState, Matrix]:
        """From X, with residuals in the same unit."""
        setup = self._setup
        kept = nothing_kept(X) | {"sums": np.array(float(sums)), "number": np.array(setup.restarts - 1.0)}
        anew = replace(accelerated.start(X, setup.size), gradient=state.gradient)
        state = ProximalState(**arrays_of(anew), **kept)
        return state, self._word(state)

    @staticmethod
    def _word(state: ProximalState) -> Matrix:
        known = state.residual if np.isfinite(state.residual) else 0.0  # a word holds finite numbers
        return np.concatenate([[GOES_ON, known, state.L], state.Y.ravel()])

    def _with_best(self, state: ProximalState) -> ProximalState:
        """Keep the answer of this start if it is the best so far. The objective is that of Y, where f is known."""
        g = self._setup.whole
        objective = float(state.value_before) + g.value(state.Y_before)
        residual = max(float(state.residual), 1.0 if accelerated.has_risen(state, g) else 0.0)
        return with_best(state, accelerated.answer(state)[1], objective, residual, self._setup.tolerance)
