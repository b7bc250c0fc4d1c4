"""One exact sum of the Gram matrix: then the pooled problem is solved in one place, and checked in all.

Every agent gets AA' of all samples, with the same bits, and beside it the answer of the root. Agents on other
processors would find the same one up to rounding; so that all have the same bits, they take the root's, and each
looks for itself whether it is as stationary as the root says.
"""

import numpy as np

from thanos_peer.algorithm import accelerated
from thanos_peer.algorithm.faults import range_fault, size_fault
from thanos_peer.algorithm.fixed_point import FixedPoint
from thanos_peer.algorithm.measures import certificate
from thanos_peer.algorithm.method import Setup
from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.algorithm.pooling import Layout
from thanos_peer.algorithm.ritz import leading_of
from thanos_peer.algorithm.solving import CONVERGED, GAVE_UP, Solving
from thanos_peer.block import Matrix

SLACK = 10.0  # an agent's own residual may be this many times the tolerance: it rounds otherwise than the root


class Gram(Solving):
    """The pooled problem, by its Gram matrix."""

    is_for_pca = True
    finds_start = True

    def __init__(self, setup: Setup) -> None:
        assert setup.bound is not None, "it is for sparse PCA"  # noqa: S101
        self._setup, self._shape = setup, (setup.start.shape[0], setup.start.shape[1])
        self._total, self.bound = setup.bound, 2 * setup.bound  # which is itself a rounded number
        self.format = FixedPoint.within(self.bound, setup.d)

    @classmethod
    def make(cls, setup: Setup) -> "Gram":
        """For agents that have found this."""
        return cls(setup)

    @staticmethod
    def most(allowed: int) -> int:  # noqa: ARG004
        """One sum."""
        return 1

    @staticmethod
    def layout(n: int, p: int, *, is_pca: bool) -> Layout:
        """The lower half of A_iA_i' up; down how it stands, the answer, and the same of all samples."""
        assert is_pca, "checked when the file was loaded"  # noqa: S101
        half = n * (n + 1) // 2
        return Layout("int128", half, 3 + n * p + half)

    def numbers(self, word: Matrix | None) -> Matrix:  # noqa: ARG002
        """The lower half of A_iA_i', row by row."""
        f = self._setup.f
        assert isinstance(f, SparsePCA), "checked when the file was loaded"  # noqa: S101
        half: Matrix = f.whole_gram()[np.tril_indices(self._shape[0])]
        return half

    def begin(self) -> None:
        """Nothing to remember."""

    def decide(self, state: None, sums: Matrix) -> tuple[None, Matrix]:
        """The best answer from all starts."""
        setup = self._setup
        start, values = leading_of(self._whole(sums), setup.start)
        size = float(values[0])
        f, unit = self._pooled(sums, size)
        starts = [start if setup.finds_start else setup.start, *map(setup.restart, range(1, setup.restarts))]
        found = [
            accelerated.solve(f, setup.whole, each, lipschitz=size / unit, tolerance=setup.tolerance / SLACK)
            for each in starts
        ]
        answers = [accelerated.answer(each)[1] for each in found]
        worth = [
            (
                bool(each.residual > setup.tolerance),
                f.value(X) + setup.whole.value(X),
            )  # one that has converged first
            for each, X in zip(found, answers, strict=True)
        ]
        best = min(range(len(found)), key=worth.__getitem__)
        how = self._how(float(found[best].residual), answers[best])
        word = np.concatenate([[how, found[best].residual, size], answers[best].ravel(), sums])
        if not self.residual(word) <= SLACK * setup.tolerance:
            word[0] = GAVE_UP
        return state, word

    def sum_fault(self, sums: Matrix) -> str | None:
        """The trace of AA' is known, and no square is negative."""
        diagonal = sums[np.cumsum(np.arange(1, self._shape[0] + 1)) - 1]
        return range_fault("the trace of AA'", float(diagonal.sum()), self._total, self._total) or range_fault(
            "the least square of AA'", float(diagonal.min()), 0.0, self._total
        )

    def word_fault(self, word: Matrix) -> str | None:
        """The same; and an answer that has converged is as stationary as that, by this agent's own account."""
        n, p = self._shape
        fault = (
            super().word_fault(word)
            or self.sum_fault(word[3 + n * p :])
            or size_fault(float(self.size(word)), self._total, n)
        )
        if fault is None and word[0] == CONVERGED:
            fault = range_fault("the residual", self.residual(word), 0.0, 2 * SLACK * self._setup.tolerance)
        return fault

    def residual(self, word: Matrix) -> float:
        """Of the answer, as this agent finds it with the Gram matrix in hand."""
        n, p = self._shape
        size = float(self.size(word))
        f, unit = self._pooled(word[3 + n * p :], size)
        X = self.answer(word, n, p)[0]
        return certificate(X, f.gradient(X), self._setup.whole, size / unit, is_strict=True).relative

    def _pooled(self, half: Matrix, size: float) -> tuple[SparsePCA, float]:
        """The whole f, and what squares of samples are divided by."""
        unit = size if self._setup.divides else 1.0
        return SparsePCA(None, self._whole(half) / unit), unit

    def _whole(self, half: Matrix) -> Matrix:
        n = self._shape[0]
        gram = np.zeros((n, n))
        gram[np.tril_indices(n)] = half
        return gram + np.tril(gram, -1).T
