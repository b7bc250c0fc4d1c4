"""Sums over a spanning tree: what goes up, who decides, what comes down.

In one sum every agent brings some numbers. They become whole numbers and are added on the way up the tree without
rounding (`fixed_point`). The root has the sums, and says in a word, some float64 numbers, what follows from them;
the word goes down to all. So all agents have the same bits of the word, whatever processor each of them has. With
a tree of height h that takes 2 h rounds: an agent at depth q speaks to its parent in round h - q, and to its
children in round h + q.

No agent has to believe what no honest one can say: the root looks at the sums, and every agent at the words.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from thanos_peer.algorithm.faults import range_fault
from thanos_peer.algorithm.fixed_point import EXACT, FixedPoint, OutOfRangeError
from thanos_peer.block import NOTHING, WORD, AgentId, Block, Matrix, bytes_each


class Layout(NamedTuple):
    """In which kind of format numbers are summed, how many of them go up, and how many the word has, down.

    After the first sum fewer may go up.
    """

    kind: str
    up: int
    down: int
    up_later: int | None = None

    def of_sum(self, number: int) -> "Layout":
        """The layout of a sum, counted from 0."""
        return self if number == 0 or self.up_later is None else Layout(self.kind, self.up_later, self.down)

    def payload(self, sums: int = 1) -> int:
        """Bytes of so many sums over one edge of the tree, up and down."""
        each, later = bytes_each(self.kind), self.up if self.up_later is None else self.up_later
        up = 0 if sums == 0 else self.up + (sums - 1) * later
        return each * up + sums * bytes_each(WORD) * self.down


class WrongSumError(ValueError):
    """A sum that no honest agents can have: one of them has sent wrong numbers."""


class Pooled(Protocol):
    """A method by sums: one word after the other, until one is the last. Made anew after a restart.

    Attributes:
        format: Of the numbers that are summed.
        bound: What no sum of honest agents exceeds in size; infinite where that is not known.
    """

    format: FixedPoint
    bound: float

    def numbers(self, word: Matrix | None) -> Matrix:
        """This agent's own, at what the latest word says; None before the first."""

    def begin(self) -> Any:
        """The root's state: a frozen dataclass of named arrays, or None."""

    def decide(self, state: Any, sums: Matrix) -> tuple[Any, Matrix]:
        """At the root: from the sums to its next state, and to the word."""

    def is_last(self, word: Matrix) -> bool:
        """Whether this word is the result."""

    def has_converged(self, word: Matrix) -> bool:
        """Whether it is as good as was asked for."""

    def sum_fault(self, sums: Matrix) -> str | None:
        """At the root: why honest agents cannot have these sums, some of them infinite; None if they can."""

    def word_fault(self, word: Matrix) -> str | None:
        """At every agent: why no honest root says this word; None if one may."""


Fault: TypeAlias = Callable[[Matrix], str | None]


class Sum:
    """One sum: the word is the sums themselves, or what the root makes of them.

    Args:
        numbers: This agent's.
        decide: From the sums to the word.
        format: How they are summed.
        sum_fault: What is wrong with sums; None for nothing.
        word_fault: What is wrong with a word; None for nothing.
    """

    bound = math.inf

    def __init__(
        self,
        numbers: Callable[[], Matrix],
        decide: Callable[[Matrix], Matrix] = lambda sums: sums,
        format_: FixedPoint = EXACT,
        *,
        sum_fault: Fault = lambda sums: None,  # noqa: ARG005
        word_fault: Fault = lambda word: None,  # noqa: ARG005
    ) -> None:
        self._numbers, self._decide, self.format = numbers, decide, format_
        self.sum_fault, self.word_fault = sum_fault, word_fault

    def numbers(self, word: Matrix | None) -> Matrix:  # noqa: ARG002
        """Those."""
        return self._numbers()

    def begin(self) -> None:
        """Nothing to remember."""

    def decide(self, state: None, sums: Matrix) -> tuple[None, Matrix]:
        """What the root makes of the sums."""
        return state, self._decide(sums)

    def is_last(self, word: Matrix) -> bool:  # noqa: ARG002
        """The first is."""
        return True

    def has_converged(self, word: Matrix) -> bool:  # noqa: ARG002
        """There is no tolerance."""
        return True


@dataclass(frozen=True)
class Place:
    """Where an agent is in the tree; `heard` are those whose blocks it hears, itself among them, sorted."""

    agent: AgentId
    depth: int
    height: int
    parent: AgentId
    children: tuple[AgentId, ...]
    heard: tuple[AgentId, ...]

    @property
    def rounds(self) -> int:
        """Of one sum."""
        return max(1, 2 * self.height)

    def speaks_up(self, r: int) -> bool:
        """Whether it tells its parent in round r of a sum."""
        return self.depth > 0 and r == self.height - self.depth

    def speaks_down(self, r: int) -> bool:
        """Whether it tells its children."""
        return bool(self.children) and r == self.height + self.depth

    def expected(self, r: int, sender: AgentId, layout: Layout) -> tuple[str, tuple[int, int]]:
        """The kind and the shape of what a neighbor says in round r of a sum."""
        if sender in self.children and r == self.height - self.depth - 1:
            return layout.kind, (1, layout.up)
        if self.depth > 0 and sender == self.parent and r == self.height + self.depth - 1:
            return WORD, (1, layout.down)
        return NOTHING, (0, 0)


@dataclass(frozen=True, slots=True)
class PoolState:
    """What an agent has of a sum.

    Attributes:
        partial: The numbers added so far.
        word: The latest that it has heard, or said; the root has it before the others.
        root: At the root, the method's state.
        told: The word of the last sum that is over, which all have.
        words: What stands for all words told so far, where sums are masked; else empty.
    """

    partial: bytes
    word: Matrix | None
    root: Any = None
    told: Matrix | None = None
    words: bytes = b""


def decide(method: Pooled, state: Any, partial: bytes) -> tuple[Any, Matrix]:
    """What the root does once all is added: its next state, and the word.

    Raises:
        OutOfRangeError: A sum, or what follows from it, is not finite: no word can hold it.
        WrongSumError: No honest agents can have this sum.
    """
    sums = method.format.decode(partial)
    _refuse(
        range_fault("the largest sum", float(np.abs(sums).max(initial=0.0)), 0.0, method.bound)
        or method.sum_fault(sums)
    )
    if np.isfinite(sums).all():
        state, word = method.decide(state, sums)
        if np.isfinite(word).all():
            _refuse(method.word_fault(word))
            return state, word
    raise OutOfRangeError("the sum over all agents is not finite")


def _refuse(fault: str | None) -> None:
    if fault is not None:
        raise WrongSumError(fault)


def pool_step(method: Pooled, place: Place, r: int, state: PoolState, blocks: Sequence[Block]) -> PoolState:
    """Take round r of a sum: add what the children say, decide, or take over the parent's word."""
    said = dict(zip(place.heard, blocks, strict=True))
    partial, word, root = state.partial, state.word, state.root
    if r == place.height - place.depth - 1:
        partial = method.format.total(partial, [said[child].numbers for child in place.children])
    if place.depth == 0 and r == max(place.height - 1, 0):
        root, word = decide(method, root, partial)
    if place.depth > 0 and r == place.height + place.depth - 1:
        word = np.frombuffer(said[place.parent].numbers, dtype="<f8")
    return replace(state, partial=partial, word=word, root=root)
