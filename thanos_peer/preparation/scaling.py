"""The mean, the spread and the size of all samples, by sums."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from thanos_peer.algorithm.accelerated import on_manifold
from thanos_peer.algorithm.faults import orthonormal_fault, range_fault
from thanos_peer.algorithm.fixed_point import EXACT
from thanos_peer.algorithm.method import Preparation, Setup
from thanos_peer.algorithm.methods import METHODS
from thanos_peer.algorithm.pooling import Layout, Pooled, Sum
from thanos_peer.block import Matrix
from thanos_peer.errors import DataFileError
from thanos_peer.phases import Found, Phase
from thanos_peer.preparation.gaps import check_present, present_fault
from thanos_peer.preparation.own import NOTHING_LEFT, Own, known
from thanos_peer.rules import needs_size
from thanos_peer.samples import name_of
from thanos_peer.topology.sections import DestinyStart, FileData, LeadingStart

# A spread up to this share of the mean counts as none: no agent knows a constant any better.
NO_SPREAD = 16 * float(np.finfo(np.float64).eps)

# Largest number of samples: every whole number below is a double.
LARGEST_COUNT = 2.0**53
# Largest ||A||_F^2: squares of gradients must be finite.
LARGEST = 1e150


class Besides(NamedTuple):
    """What a method sums before it starts, and what that is made of."""

    preparation: type[Preparation]
    setup: Callable[[Found], Setup]


class Scaling:
    """Phases `mean` and `spread`, where samples are to be centered or scaled, and `size`, where that is needed.

    The word of `size` also has the root's start, where the method asks for that and no later phase finds another.

    Args:
        own: The agent's data.
        besides: What else is found in phase `size`; None for nothing.
    """

    def __init__(self, own: Own, besides: Besides | None = None) -> None:
        self._own, self._besides = own, besides
        self._layout = (
            Layout(EXACT.kind, 0, 0) if besides is None else besides.preparation.layout(*own.shape, own.d)
        )
        self._starts = own.shape[0] * own.shape[1] if self._tells_start else 0

    def phases(self) -> list[Phase]:
        """Those that the topology needs."""
        n, start, also, phases = self._own.shape[0], self._starts, self._layout, list[Phase]()
        if self._own.fills:
            phases.append(self._own.sum("mean", 2 * n + 1, 2 * n + 1, self._present_sum, self._find_present))
        elif self._own.tells_squares:
            phases.append(self._own.sum("mean", n + 1, n + 1, self._mean_sum, _find_mean))
        if self._own.tells_squares:
            phases.append(self._own.sum("spread", n, n, self._spread_sum, self._find_spread))
        if needs_size(self._own.topology):
            phases.append(
                self._own.sum("size", 2 + also.up, 2 + start + also.down, self._size_sum, self._find_size)
            )
        elif start:
            phases.append(self._own.sum("size", 1, 1 + start, self._bound_sum, self._find_bound))
        return phases

    @property
    def _tells_start(self) -> bool:
        is_found = isinstance(self._own.topology.algorithm.start, LeadingStart | DestinyStart)
        return METHODS[self._own.topology.method].shares_start and not is_found

    def _with_start(self, sums: Matrix) -> Matrix:
        """At the root: a word of these numbers, and the start that all shall have."""
        return np.concatenate([sums, on_manifold(self._own.start(Found())).ravel()]) if self._tells_start else sums

    def _start_fault(self, numbers: Matrix) -> str | None:
        return orthonormal_fault("the start", numbers.reshape(self._own.shape)) if numbers.size else None

    def _take_start(self, found: Found, numbers: Matrix) -> Found:
        return replace(found, start=numbers.reshape(self._own.shape)) if numbers.size else found

    def _mean_sum(self, found: Found) -> Pooled:  # noqa: ARG002
        """The count, and the sum of each feature; the root divides."""
        samples = self._own.samples()

        def fault(word: Matrix) -> str | None:
            return _count_fault(word[0], samples.count)

        return Sum(
            lambda: np.concatenate([[samples.count], samples.sums]),
            lambda sums: np.concatenate([sums[:1], sums[1:] / sums[0]]),
            sum_fault=fault,
            word_fault=fault,
        )

    def _present_sum(self, found: Found) -> Pooled:  # noqa: ARG002
        """The same where values may be missing: also how many are there, and the root divides by these."""
        samples, n = self._own.samples(), self._own.shape[0]

        def fault(word: Matrix) -> str | None:
            return _count_fault(word[0], samples.count) or present_fault(
                word[1 : n + 1], float(word[0]), samples.present, samples.count
            )

        def decide(sums: Matrix) -> Matrix:
            return np.concatenate([sums[: n + 1], sums[n + 1 :] / np.maximum(sums[1 : n + 1], 1.0)])

        return Sum(
            lambda: np.concatenate([[samples.count], samples.present, samples.sums]),
            decide,
            sum_fault=fault,
            word_fault=fault,
        )

    def _find_present(self, found: Found, word: Matrix) -> Found:
        data, n = self._own.topology.problem.data, self._own.shape[0]
        assert isinstance(data, FileData), "only files have missing values"  # noqa: S101
        check_present(word[1 : n + 1], float(word[0]), data.most_missing, self._own.samples().features)
        return replace(found, count=word[0], present=word[1 : n + 1], mean=word[n + 1 :])

    def _spread_sum(self, found: Found) -> Pooled:
        """The squares about the mean, each at least this agent's own."""
        moments = self._own.moments(found)

        def fault(word: Matrix) -> str | None:
            own = moments.squares_about(found.mean)
            worst = int(np.argmin(word - own))
            what = f"the sum of squares of feature {worst} (counted from 0)"
            return range_fault(what, float(word[worst]), float(own[worst]), np.inf)

        return Sum(lambda: moments.squares_about(found.mean), word_fault=fault)

    def _find_spread(self, found: Found, squares: Matrix) -> Found:
        variance = np.maximum(squares / known(found.count), 0.0)
        data = self._own.topology.problem.data
        is_constant = np.sqrt(variance) <= NO_SPREAD * np.abs(known(found.mean))
        if isinstance(data, FileData) and data.scale and is_constant.any():
            name = name_of(int(np.argmax(is_constant)), self._own.samples().features)
            raise DataFileError(
                f"{name} is the same in all samples of all peers, up to {NO_SPREAD:.0e} of its mean, and cannot "
                "be scaled: leave it out of every file, subtract the same number from it in every file if it does "
                "vary, or set problem.data.scale = false"
            )
        if isinstance(data, FileData) and data.center and is_constant.all():
            raise DataFileError(NOTHING_LEFT)
        return replace(found, variance=variance)

    def _size_sum(self, found: Found) -> Pooled:
        f, n, after = self._own.pca(found), self._own.shape[0], 2 + self._starts
        own, besides = self._own_besides(found)

        def fault(word: Matrix) -> str | None:
            size, total = word[:2].tolist()
            least = range_fault("||A||_F^2", total, f.variance(), np.inf)
            return least or range_fault("the sum of all ||A_i||_2^2", size, total / n, total)

        def decide(sums: Matrix) -> Matrix:
            _, more = besides(sums).decide(None, sums[2:])
            return np.concatenate([self._with_start(sums[:2]), more])

        return Sum(
            lambda: np.concatenate([[f.lipschitz(), f.variance()], own()]),
            decide,
            sum_fault=lambda sums: fault(sums) or besides(sums).sum_fault(sums[2:]),
            word_fault=lambda word: (
                fault(word) or self._start_fault(word[2:after]) or besides(word).word_fault(word[after:])
            ),
        )

    def _own_besides(self, found: Found) -> tuple[Callable[[], Matrix], Callable[[Matrix], Pooled]]:
        """This agent's numbers of what is found besides; from a sum or a word to how the rest of it is read."""
        nothing = Sum(lambda: np.empty(0), lambda _: np.zeros(self._layout.down))
        if self._besides is None:
            return lambda: np.empty(0), lambda _: nothing
        preparation, setup = self._besides.preparation, self._besides.setup(found)

        def besides(numbers: Matrix) -> Pooled:
            # Without a sound size nothing follows, and the run ends with the reason.
            is_sound = _size_fault(numbers) is None
            return preparation(replace(setup, bound=float(numbers[1]))) if is_sound else nothing

        return lambda: preparation(setup).numbers(None), besides

    def _bound_sum(self, found: Found) -> Pooled:
        """What an objective that is not PCA knows of its curvature, at least this agent's own."""
        own = float(getattr(self._own.objective(found), "lipschitz", lambda: 0.0)())

        def fault(word: Matrix) -> str | None:
            return range_fault("the sum of all Lipschitz constants", float(word[0]), own, np.inf)

        return Sum(
            lambda: np.array([own]),
            self._with_start,
            sum_fault=fault,
            word_fault=lambda word: fault(word) or self._start_fault(word[1:]),
        )

    def _find_bound(self, found: Found, word: Matrix) -> Found:
        return replace(self._take_start(found, word[1:]), size=word[0])

    def _find_size(self, found: Found, word: Matrix) -> Found:
        """The sum of all ||A_i||_2^2, a bound of ||A||_2^2, which the leading vectors replace by the thing itself.

        ||A||_F^2 does not depend on who has which samples, so that is what they are divided by where the leading
        vectors are not looked for. Before a search by DESTINY they are divided by the bound.
        """
        (size, total), after = word[:2], 2 + self._starts
        if (fault := _size_fault(word)) is not None:
            raise DataFileError(fault)
        found = replace(self._take_start(found, word[2:after]), size=size, total=total)
        if self._besides is not None:
            found = replace(found, agreed=word[after:])
        start = self._own.topology.algorithm.start
        if isinstance(start, LeadingStart):
            return found
        return self._own.divided(found, size if isinstance(start, DestinyStart) else total)


def _size_fault(word: Matrix) -> str | None:
    """Why samples of this size cannot be gone on with."""
    size, total = word[:2]
    if not size > 0:
        return NOTHING_LEFT
    if not total < LARGEST:
        return (
            f"all samples together are too large for double precision, ||A||_F^2 = {total:.1e}: scale the "
            f"files of all peers down, so that it is below {LARGEST:.0e}"
        )
    return None


def _count_fault(count: float, own: int) -> str | None:
    """Why there cannot be so many samples at all agents, where one has so many of its own; None if there can."""
    least = range_fault("the number of samples", float(count), own, LARGEST_COUNT)
    return least or (None if float(count).is_integer() else f"the number of samples is {count:g}, not a whole one")


def _find_mean(found: Found, word: Matrix) -> Found:
    return replace(found, count=word[0], mean=word[1:])
