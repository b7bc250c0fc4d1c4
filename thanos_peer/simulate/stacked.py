"""All agents stepped at once, for networks of hundreds: the same sums in the same order, in fewer calls.

Agents are kept in order of decreasing degree. The s-th terms of all sums over neighbors form one slot, and the
agents that have an s-th neighbor are then a prefix of the stack: adding slot after slot visits every edge
once, and adds for each agent in increasing order of neighbor, as `algorithm.thanos.step` does.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thanos_peer.agent import as_sent
from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.algorithm.regularizers import envelope_gradient
from thanos_peer.algorithm.stiefel import infeasibility, norm
from thanos_peer.algorithm.thanos import LocalProblem, descent_direction, divergence, has_sound_numbers
from thanos_peer.block import Matrix
from thanos_peer.problem import Instance
from thanos_peer.topology.graph import Graph

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class _Slot:
    """The s-th neighbor, itself included, of the first `neighbor.size` agents of the stack."""

    neighbor: NDArray[np.intp]
    weight: Matrix


class StackedNetwork:
    """The state of all agents as arrays (d, n, p)."""

    def __init__(self, instance: Instance) -> None:
        topology, d = instance.topology, instance.topology.d
        self._order = np.argsort([-degree for degree in topology.graph.degrees], kind="stable")
        self._place = np.argsort(self._order)
        self._slots = _slots_of(topology.graph, self._order, self._place)
        self._parameters, self._algorithm = instance.parameters, topology.algorithm
        self._diameter = topology.graph.diameter
        locals_ = [instance.local_problems[i] for i in self._order]
        self._gradient = _gradient_of(locals_)
        self._k = 0
        self._X = np.repeat(instance.start[None], d, axis=0)
        with np.errstate(over="ignore", invalid="ignore"):  # caught next
            self._H = self._direction(self._X, 0)
        self._D = self._H
        self._eta = np.full(d, instance.parameters.step.first)
        self._check(0, self._X, self._H, self._eta)
        self._streak = np.zeros(d, dtype=np.int64)
        self._after = np.full(d, _NEVER)

    @property
    def is_preparing(self) -> bool:
        """Never: see `can_run`."""
        return False

    @property
    def phase(self) -> tuple[str, int]:
        """The only one, and the round."""
        return self._algorithm.method, self._k

    @property
    def phases_cut_short(self) -> tuple[str, ...]:
        """None: there is but one phase."""
        return ()

    @property
    def rounds_by_phase(self) -> dict[str, int]:
        """The rounds of the only one."""
        return {self._algorithm.method: self._k}

    @staticmethod
    def can_run(instance: Instance) -> bool:
        """Whether a run only minimises: this engine knows no other phases."""
        return len(instance.plan(0)) == 1

    @property
    def k(self) -> int:
        """The round."""
        return self._k

    @property
    def X(self) -> Matrix:
        """All X_i."""
        return self._X[self._place]

    @property
    def D(self) -> Matrix:
        """All D_i."""
        return self._D[self._place]

    @property
    def H(self) -> Matrix:
        """All H_i."""
        return self._H[self._place]

    @property
    def eta(self) -> Matrix:
        """All step sizes."""
        return self._eta[self._place]

    @property
    def overall(self) -> float | None:
        """None: nothing is found before the only phase."""
        return None

    @property
    def is_done(self) -> bool:
        """Whether this round is the last."""
        return bool((np.minimum(self._after, self._algorithm.max_rounds) <= self._k).all())

    @property
    def has_converged(self) -> bool:
        """Whether the agents agreed to stop."""
        return bool((self._after <= self._algorithm.max_rounds).all())

    def advance(self) -> None:
        """One round of everybody."""
        is_calm = self._is_calm()
        with np.errstate(over="ignore", invalid="ignore"):  # caught below
            X_sent, D_sent = (as_sent(sent, self._algorithm.exchange) for sent in (self._X, self._D))
            X = self._mix(X_sent - self._eta[:, None, None] * D_sent)  # (5)
            H = self._direction(X, self._k + 1)  # (6)
            D = self._mix(D_sent) + (H - self._H)  # (7)
            eta = self._parameters.step.eta(X - self._X, D - self._D)
        self._check(self._k + 1, X, D, eta)
        self._k, self._X, self._D, self._H, self._eta = self._k + 1, X, D, H, eta
        self._speak_of_stopping(is_calm)

    def _check(self, k: int, X: Matrix, D: Matrix, eta: Matrix) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            is_sound = has_sound_numbers(X, D, eta)
        if not is_sound.all():
            at = min(np.flatnonzero(~is_sound), key=lambda place: self._order[place])
            raise divergence(int(self._order[at]), k, X[at], D[at], float(self._eta[at]))

    def _direction(self, X: Matrix, k: int) -> Matrix:
        G = self._gradient(X, self._parameters.smoothing.sigma(k))
        return descent_direction(X, G, self._parameters.beta)

    def _mix(self, terms: Matrix) -> Matrix:
        total = np.zeros_like(terms)
        for slot in self._slots:
            total[: slot.neighbor.size] += slot.weight[:, None, None] * terms[slot.neighbor]
        return total

    def _is_calm(self) -> NDArray[np.bool_]:
        """Which agents are below the tolerance: `algorithm.thanos.local_residual` for all at once."""
        d, tolerance = len(self._order), self._algorithm.tolerance
        if tolerance == 0:
            return np.zeros(d, dtype=bool)
        residual = np.maximum(d * norm(self._D), infeasibility(self._X))
        X_sent = as_sent(self._X, self._algorithm.exchange)
        for slot in self._slots:
            mismatch = norm(X_sent[slot.neighbor] - self._X[: slot.neighbor.size])
            np.maximum(residual[: mismatch.size], mismatch, out=residual[: mismatch.size])
        return np.asarray(residual <= tolerance)

    def _speak_of_stopping(self, is_calm: NDArray[np.bool_]) -> None:
        """`protocol.stop.next_word` for all at once."""
        least, after = np.full_like(self._streak, _NEVER), np.full_like(self._after, _NEVER)
        for slot in self._slots:
            count = slot.neighbor.size
            np.minimum(least[:count], self._streak[slot.neighbor], out=least[:count])
            np.minimum(after[:count], self._after[slot.neighbor], out=after[:count])
        self._streak = np.where(is_calm, np.minimum(1 + least, self._diameter + 1), 0)
        announced = np.where(self._streak > self._diameter, self._k + self._diameter + 1, _NEVER)
        self._after = np.minimum(after, announced)


def _slots_of(graph: Graph, order: NDArray[np.intp], place: NDArray[np.intp]) -> list[_Slot]:
    rows = [graph.mixing[i] for i in order]
    slots = []
    for s in range(len(rows[0])):
        terms = [row[s] for row in rows if s < len(row)]
        neighbors, weights = zip(*terms, strict=True)
        slots.append(_Slot(place[list(neighbors)], np.array(weights)))
    return slots


def _gradient_of(locals_: list[LocalProblem]) -> Callable[[Matrix, float], Matrix]:
    """G_i(X_i) of all agents at once where all hold a Gram matrix and the same g, else one by one."""
    grams = [local.f.gram for local in locals_ if isinstance(local.f, SparsePCA) and local.f.gram is not None]
    g = locals_[0].g
    if len(grams) < len(locals_) or any(local.g is not g for local in locals_):
        return lambda X, sigma: np.array(
            [
                local.f.gradient(X_i) + envelope_gradient(local.g, X_i, sigma)
                for local, X_i in zip(locals_, X, strict=True)
            ]
        )
    gram = np.array(grams)
    return lambda X, sigma: -(gram @ X) + envelope_gradient(g, X, sigma)
