"""One exact sum of the Gram matrix: then the pooled problem is solved in one place, and checked in all.

Every agent gets AA' of all samples, with the same bits, and beside it the answer of the root. Agents on other
processors would find the same one up to rounding; so that all have the same bits, they take the root's, and each
looks for itself whether it is as stationary as the root says.

The root solves for about a second, and then says how far it is; sums of nothing follow until it is done. So no
agent waits for long without word of it, what it has is in its checkpoints, and `max_rounds` bounds it. Every word
holds AA', because an agent that checks it may have been restarted.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from thanos_peer.algorithm.faults import range_fault, size_fault
from thanos_peer.algorithm.fixed_point import FixedPoint
from thanos_peer.algorithm.kept import Kept, nothing_kept, with_best
from thanos_peer.algorithm.measures import certificate
from thanos_peer.algorithm.method import Setup
from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.algorithm.pooling import Layout
from thanos_peer.algorithm.ritz import leading_of
from thanos_peer.algorithm.search import MOST, Search, answer, arrays_of, begin, go_on, is_over
from thanos_peer.algorithm.solving import GOES_ON, Solving
from thanos_peer.algorithm.traits import Content
from thanos_peer.block import Matrix, bytes_each

# Operations of the root on one sum: about a second.
WORK = 4_000_000_000
# Eigenvalues that are worth telling.
MOST_VALUES = 20
# Bytes of A_iA_i' on its way up, n(n+1)/2 numbers: few enough to be worked on in seconds.
LARGEST_FRAME = 2**26


def evaluations_per_sum(n: int, p: int) -> int:
    """How many the root may use before it says a word: a number that no clock decides."""
    return max(1, WORK // (n * p * (n + 25 * p) + 2_500_000))


@dataclass(frozen=True)
class GramState(Search, Kept):
    """The search from one start, and what came of those before.

    Attributes:
        half: The lower half of AA', row by row; nothing before the first sum.
        size: ||A||_2^2.
    """

    half: Matrix
    size: Matrix


class Gram(Solving):
    """The pooled problem, by its Gram matrix."""

    is_for_pca = True
    finds_start = True
    sums_once = "half"
    largest_n = (math.isqrt(8 * (LARGEST_FRAME // bytes_each("int128")) + 1) - 1) // 2

    def __init__(self, setup: Setup) -> None:
        assert setup.bound is not None, "it is for sparse PCA"  # noqa: S101
        self._setup, self._shape = setup, (setup.start.shape[0], setup.start.shape[1])
        # The bound is a rounded number itself, so twice as much is allowed.
        self._total, self.bound = setup.bound, 2 * setup.bound
        self.format = FixedPoint.within(self.bound, setup.d)

    @classmethod
    def content(cls, *, is_pca: bool) -> Content:  # noqa: ARG003
        """Peers bring their own Gram matrix."""
        return Content("all its second moments A_i A_i'", "the second moments of all samples together")

    @classmethod
    def make(cls, setup: Setup) -> "Gram":
        """For agents that have found this."""
        return cls(setup)

    @staticmethod
    def most(allowed: int, n: int, p: int, restarts: int) -> int:
        """Mostly it takes one; with these the root has used all its evaluations."""
        return min(allowed, -(-restarts * MOST // evaluations_per_sum(n, p)))

    @staticmethod
    def may_be_cut(sums: int, n: int, p: int) -> bool:
        """Not before as many as that takes."""
        return sums * evaluations_per_sum(n, p) >= MOST

    @staticmethod
    def layout(n: int, p: int, *, is_pca: bool) -> Layout:
        """The lower half of A_iA_i' up; down how it stands, the answer, and the same of all samples."""
        assert is_pca, "checked when the file was loaded"  # noqa: S101
        half = n * (n + 1) // 2
        return Layout("int128", half, 3 + n * p + half, up_later=0)

    @staticmethod
    def typical_sums(p: int, mu: float | None, digits: int, restarts: int) -> int:  # noqa: ARG004
        """One; more only where the root takes long to solve."""
        return 1

    def numbers(self, word: Matrix | None) -> Matrix:
        """The lower half of A_iA_i', row by row; and nothing after the first sum."""
        if word is not None:
            return np.empty(0)
        f = self._setup.f
        assert isinstance(f, SparsePCA), "checked when the file was loaded"  # noqa: S101
        half: Matrix = f.whole_gram()[np.tril_indices(self._shape[0])]
        return half

    def begin(self) -> GramState:
        """Nothing is known."""
        start = self._setup.start
        nothing = nothing_kept(start) | {"half": np.empty(0), "size": np.zeros(())}
        return GramState(**arrays_of(begin(start), Search), **nothing)

    def decide(self, state: GramState, sums: Matrix) -> tuple[GramState, Matrix]:
        """The best answer from all starts; or how far it is, when there is no time left in this sum, or at all."""
        setup = self._setup
        state = replace(self._opened(state, sums) if state.sums == 0 else state, sums=state.sums + 1)
        f = self._pooled(state.half, float(state.size))[0]
        left = evaluations_per_sum(*self._shape)
        while True:
            used = int(state.iterations)
            state = go_on(state, f, setup.whole, setup.tolerance, left)
            left -= int(state.iterations) - used
            is_late = state.sums >= setup.most
            if not is_over(state, setup.tolerance) and not is_late:
                return state, self._word(GOES_ON, state.least, answer(state)[0], state)
            state = self._with_best(state, f)
            if state.number + 1 >= setup.restarts or is_late:
                return state, self._last_word(state)
            state = self._at_start(state, setup.restart(int(state.number) + 1), int(state.number) + 1)

    def _opened(self, state: GramState, sums: Matrix) -> GramState:
        """With the sum of all A_iA_i' in hand, at the first start."""
        start, values = leading_of(self._whole(sums), self._setup.start)
        state = replace(state, half=sums, size=np.asarray(values[0]))
        return self._at_start(state, start if self._setup.finds_start else self._setup.start, 0)

    def _at_start(self, state: GramState, start: Matrix, number: int) -> GramState:
        unit = self._unit(float(state.size))
        search = begin(start, float(state.size) / unit)
        return replace(state, **arrays_of(search, Search), number=np.array(float(number)))

    def again(self, state: GramState, X: Matrix, sums: int) -> tuple[GramState, Matrix]:
        """From X, with the same Gram matrix."""
        state = replace(state, **nothing_kept(X) | {"sums": np.array(float(sums))})
        state = self._at_start(state, X, self._setup.restarts - 1)
        return state, self._word(GOES_ON, state.least, X, state)

    def _with_best(self, state: GramState, f: SparsePCA) -> GramState:
        """Keep the answer of this start if it is the best so far."""
        X, sparse = answer(state)
        objective = f.value(X) + self._setup.whole.value(X)
        return with_best(state, sparse, objective, float(state.least), self._setup.tolerance)

    def _last_word(self, state: GramState) -> Matrix:
        """It has converged if an agent finds so, too, who looks for itself."""
        starts = self._searched(state.number, float(state.kept_residual), state.kept)
        word = self._word(starts, state.kept_residual, state.kept, state)
        if not self.residual(word) <= self._setup.tolerance:
            word[0] = -abs(starts)
        return word

    @staticmethod
    def _word(starts: float, residual: Matrix, X: Matrix, state: GramState) -> Matrix:
        known = residual if np.isfinite(residual) else 0.0  # a word holds finite numbers
        return np.concatenate([[starts, known, state.size], X.ravel(), state.half])

    def sum_fault(self, sums: Matrix) -> str | None:
        """The trace of AA' is known, and no square is negative; later sums are of nothing."""
        if not sums.size:
            return None
        diagonal = sums[np.cumsum(np.arange(1, self._shape[0] + 1)) - 1]
        return range_fault("the trace of AA'", float(diagonal.sum()), self._total, self._total) or range_fault(
            "the least square of AA'", float(diagonal.min()), 0.0, self._total
        )

    def word_fault(self, word: Matrix) -> str | None:
        """The same; and an answer that has converged is so by this agent's own account, which rounds otherwise."""
        n, p = self._shape
        fault = (
            super().word_fault(word)
            or self.sum_fault(word[3 + n * p :])
            or size_fault(float(self.size(word)), self._total, n)
        )
        if fault is None and self.has_converged(word):
            fault = range_fault("the residual", self.residual(word), 0.0, 2 * self._setup.tolerance)
        return fault

    def residual(self, word: Matrix) -> float:
        """Of the answer, as this agent finds it with the Gram matrix in hand."""
        n, p = self._shape
        size = float(self.size(word))
        f, unit = self._pooled(word[3 + n * p :], size)
        X = self.answer(word, n, p)[0]
        return certificate(X, f.gradient(X), self._setup.whole, size / unit, is_strict=True).relative

    def spectrum(self, word: Matrix) -> Matrix:
        """A few, however many components there are."""
        gram = self._whole(word[self.before_point + math.prod(self._shape) :])
        return np.asarray(np.linalg.eigvalsh(gram)[::-1][:MOST_VALUES], dtype=np.float64)

    def _pooled(self, half: Matrix, size: float) -> tuple[SparsePCA, float]:
        """The whole f, and what squares of samples are divided by."""
        unit = self._unit(size)
        return SparsePCA(None, self._whole(half) / unit), unit

    def _unit(self, size: float) -> float:
        return size if self._setup.divides else 1.0

    def _whole(self, half: Matrix) -> Matrix:
        n = self._shape[0]
        gram = np.zeros((n, n))
        gram[np.tril_indices(n)] = half
        return gram + np.tril(gram, -1).T
