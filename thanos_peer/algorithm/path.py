"""A path: the problem for several weights of its regularizer, all solved at once by one method that sums.

The searches go side by side: what agents bring to a sum, and what the root says, is that of all of them one after
the other. So there are as many rounds as the hardest weight takes, not as many as all together. A search that is
over brings zeros until the others are.

Then all but the one with the smallest weight search once more, side by side again, each from the answer of the
next smaller weight, and the better answer is kept. None begins at the answer of a larger weight: that has few
entries, and is often close to a bad stationary point of the problem with a smaller one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from thanos_peer.algorithm.method import Setup
from thanos_peer.algorithm.pooling import Layout, Pooled
from thanos_peer.algorithm.regularizers import Regularizer
from thanos_peer.algorithm.solving import GOES_ON, Solving
from thanos_peer.block import Matrix

# The second pass takes at most half as many sums again as the first: what it has not improved by then stays.
LONGEST = 2.5
# How many numbers of a word come before those of the searches: how it stands, and which pass it is.
HEAD = 2


@dataclass(frozen=True)
class PathState:
    """What the root knows of k searches.

    Attributes:
        sums: How many sums are over.
        first: How many of them the first pass took; 0 while it lasts.
        told: The latest word of each, without the numbers that all have in common, (k, 3 + n p).
        searches: The state of each, as one row of numbers, without those.
        common: The numbers that all have in common; nothing before the first sum.
        answers: The last words of the first pass, once it is over, as in `told`.
        lowest: The objectives of these answers, (k,).
    """

    sums: Matrix
    first: Matrix
    told: Matrix
    searches: Matrix
    common: Matrix
    answers: Matrix
    lowest: Matrix


class Path(Pooled):
    """Several searches by one method.

    Args:
        kind: The method.
        setup: What it is made of, but for the regularizer.
        weighted: The regularizer with each of its weights, from the largest to the smallest, at least two.
    """

    def __init__(self, kind: type[Solving], setup: Setup, weighted: Sequence[Regularizer]) -> None:
        self._kind, self._setup, self._count = kind, setup, len(weighted)
        self._searches = [kind.make(replace(setup, whole=g)) for g in weighted]
        self._size = setup.start.size + Solving.before_point
        first = self._searches[0]
        self.format, self.bound = first.format, first.bound

    @staticmethod
    def layout(kind: type[Solving], count: int, n: int, p: int) -> Layout:
        """What is sent."""
        each, size = kind.layout(n, p, is_pca=True), Solving.before_point + n * p
        ups = count * each.up if kind.sums_once is None else each.up
        return Layout(each.kind, ups, HEAD + count * size + each.down - size, up_later=each.up_later)

    @staticmethod
    def words(word: Matrix, count: int, n: int, p: int) -> list[Matrix]:
        """The word of each search, as it would be alone."""
        size = Solving.before_point + n * p
        told, common = word[HEAD : HEAD + count * size].reshape(count, size), word[HEAD + count * size :]
        return [np.concatenate([each, common]) for each in told]

    def numbers(self, word: Matrix | None) -> Matrix:
        """Those of all searches that go on, and zeros for others; or the same once, where all need the same."""
        first = self._searches[0]
        if self._kind.sums_once is not None:
            return first.numbers(word)
        if word is None:
            return np.tile(first.numbers(None), self._count)
        words = self._words(word)
        nothing = np.zeros(self._setup.start.size + 1)
        return np.concatenate(
            [
                nothing if search.is_last(each) else search.numbers(each)
                for search, each in zip(self._searches, words, strict=True)
            ]
        )

    def begin(self) -> PathState:
        """At the first start, for all weights."""
        zero, told = np.zeros(()), np.zeros((self._count, self._size))
        states = np.array([self._packed(search.begin()) for search in self._searches])
        return PathState(zero, zero, told, states, np.empty(0), told, np.full(self._count, np.inf))

    def decide(self, state: PathState, sums: Matrix) -> tuple[PathState, Matrix]:
        """A step of all that go on; after the first pass the second, and after that the best answers."""
        state = self._stepped(replace(state, sums=state.sums + 1), sums)
        is_over = bool((state.told[:, 0] != GOES_ON).all())
        is_late = state.sums >= self._setup.most
        if state.first == 0 and is_over and not is_late:
            state = self._again(state)
            return state, self._word(GOES_ON, state)
        is_enough = state.first > 0 and state.sums >= np.floor(LONGEST * state.first)
        if not (is_over or is_enough or is_late):
            return state, self._word(GOES_ON, state)
        if state.first > 0:
            state = self._with_better(state)
        return state, self._word(_mark(state.told), state)

    def _stepped(self, state: PathState, sums: Matrix) -> PathState:
        told, searches, common = state.told.copy(), state.searches.copy(), state.common
        for j, part in enumerate(self._parts(sums)):
            if told[j, 0] != GOES_ON:
                continue
            following, word = self._searches[j].decide(self._unpacked(j, state), part)
            told[j], common, searches[j] = word[: self._size], word[self._size :], self._packed(following)
        return replace(state, told=told, searches=searches, common=common)

    def _again(self, state: PathState) -> PathState:
        """All but the last search begin once more, each where the next one has ended."""
        told, searches = state.told.copy(), state.searches.copy()
        for j, search in enumerate(self._searches[:-1]):
            X = self._kind.answer(state.told[j + 1], *self._setup.start.shape)[0]
            begun, word = search.again(self._unpacked(j, state), X, int(state.sums))
            told[j], searches[j] = word[: self._size], self._packed(begun)
        return replace(
            state, first=state.sums, told=told, searches=searches, answers=state.told, lowest=self._lowest(state)
        )

    def _with_better(self, state: PathState) -> PathState:
        """With the better one of both answers for each weight: one that has converged, or the lower one."""
        again = zip(self._is_worse(state.told), self._lowest(state), strict=True)
        before = zip(self._is_worse(state.answers), state.lowest, strict=True)
        is_better = np.array([one < other for one, other in zip(again, before, strict=True)])
        return replace(state, told=np.where(is_better[:, None], state.told, state.answers))

    @staticmethod
    def _is_worse(told: Matrix) -> list[bool]:
        """Whether each has not converged, or is not over at all."""
        return [not mark > GOES_ON for mark in told[:, 0]]

    def _lowest(self, state: PathState) -> Matrix:
        return np.array([float(self._unpacked(j, state).lowest) for j in range(self._count)])

    def _word(self, mark: float, state: PathState) -> Matrix:
        number = 1.0 if state.first == 0 else 2.0
        return np.concatenate([[mark, number], state.told.ravel(), state.common])

    def is_last(self, word: Matrix) -> bool:
        """Whether it holds the answers."""
        return bool(word[0] != GOES_ON)

    def has_converged(self, word: Matrix) -> bool:
        """Whether one of them has, which is to be chosen then."""
        return bool(word[0] > GOES_ON)

    def sum_fault(self, sums: Matrix) -> str | None:
        """What is wrong with the part of one search."""
        parts = zip(self._searches, self._parts(sums), strict=True)
        return next((fault for search, part in parts if (fault := search.sum_fault(part))), None)

    def word_fault(self, word: Matrix) -> str | None:
        """What is wrong with the word of one search; it is the last word if it is that of all of them."""
        mark, number = word[:HEAD].tolist()
        if number not in (1.0, 2.0):
            return f"the pass is number {number:g}, not 1 or 2"
        words = self._words(word)
        for j, (search, each) in enumerate(zip(self._searches, words, strict=True)):
            if (fault := search.word_fault(each)) is not None:
                return f"of value {j + 1} of {self._count} of mu, from the largest on: {fault}"
        marks = [float(each[0]) for each in words]
        expected = GOES_ON if GOES_ON in marks else _mark(np.array(words)[:, :1])
        return None if mark == expected else f"how it stands is {mark:g}, and must be {expected:g}"

    def _words(self, word: Matrix) -> list[Matrix]:
        n, p = self._setup.start.shape
        return self.words(word, self._count, n, p)

    def _parts(self, sums: Matrix) -> Iterator[Matrix]:
        """What each search gets of the sums."""
        is_once = self._kind.sums_once is not None
        return iter([sums] * self._count if is_once else np.split(sums, self._count))

    def _packed(self, state: Any) -> Matrix:
        return np.concatenate([np.ravel(getattr(state, name)) for name in self._names(state)])

    def _unpacked(self, j: int, state: PathState) -> Any:
        """The state of search number j."""
        like = self._searches[j].begin()
        names = self._names(like)
        shapes = [np.shape(getattr(like, name)) for name in names]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
        parts = np.split(state.searches[j], ends)
        arrays = {name: part.reshape(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        common = {} if self._kind.sums_once is None else {self._kind.sums_once: state.common}
        return replace(like, **arrays, **common)

    def _names(self, state: Any) -> list[str]:
        return [field.name for field in fields(state) if field.name != self._kind.sums_once]


def _mark(told: Matrix) -> float:
    """How it stands once all are over: the least number of starts searched, negative where no answer converged."""
    marks = told[:, 0]
    return float((1 if (marks > GOES_ON).any() else -1) * np.abs(marks).min())
