"""The phases of all agents at once: the same sums in the same order as agent by agent, in fewer calls.

Agents are kept in order of decreasing degree. The s-th terms of all sums over neighbors form one slot, and the
agents that have an s-th neighbor are then a prefix of the stack: adding slot after slot visits every edge
once, and adds for each agent in increasing order of neighbor, as `algorithm.mixing.Heard` does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from thanos_peer.agent import as_sent
from thanos_peer.algorithm.method import Method, Sent, Smooth, Term
from thanos_peer.algorithm.mixing import divergence, has_sound_numbers
from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.algorithm.stiefel import norm
from thanos_peer.block import Matrix, StopWord
from thanos_peer.phases import Found, Masking, Mixing, PhaseEnd, Pooling, named_arrays
from thanos_peer.protocol.stop import next_word
from thanos_peer.topology import Topology
from thanos_peer.topology.graph import Graph

SILENT = StopWord()


@dataclass(frozen=True)
class _Slot:
    """The s-th neighbor, itself included, of the first `neighbor.size` agents of the stack."""

    neighbor: NDArray[np.intp]
    weight: Matrix


class _AllHeard:
    """What all agents hear in a round: `algorithm.method.Received` for a stack."""

    def __init__(self, slots: Sequence[_Slot], sent: Sent) -> None:
        self._slots, self._sent = slots, sent

    def mix(self, term: Term) -> Matrix:
        """The weighted sums, added slot after slot."""
        terms = term(self._sent.X, self._sent.D, self._sent.eta[:, None, None])
        total = np.zeros_like(terms)
        for slot in self._slots:
            total[: slot.neighbor.size] += slot.weight[:, None, None] * terms[slot.neighbor]
        return total

    def mismatch(self, X: Matrix) -> Matrix:
        """The largest distances to neighbors."""
        largest = np.zeros(len(X))
        for slot in self._slots:
            distance = norm(self._sent.X[slot.neighbor] - X[: slot.neighbor.size])
            np.maximum(largest[: distance.size], distance, out=largest[: distance.size])
        return largest

    def largest_eta(self) -> Matrix:
        """Of all neighbors, each agent's own included."""
        largest = np.zeros(len(self._sent.eta))
        for slot in self._slots:
            count = slot.neighbor.size
            np.maximum(largest[:count], self._sent.eta[slot.neighbor], out=largest[:count])
        return largest


class _AllSmooth:
    """The f_i of all agents: their gradients at once where all hold a Gram matrix, else one by one."""

    def __init__(self, terms: Sequence[Smooth]) -> None:
        self._terms = terms
        grams = [f.gram for f in terms if isinstance(f, SparsePCA) and f.gram is not None]
        self._gram = np.array(grams) if len(grams) == len(terms) else None

    def gradient(self, X: Matrix) -> Matrix:
        """Of f_i at X_i, (d, n, p)."""
        if self._gram is not None:
            return -(self._gram @ X)
        return np.array([f.gradient(X_i) for f, X_i in zip(self._terms, X, strict=True)])

    def value(self, X: Matrix) -> Matrix:
        """f_i(X_i), (d,)."""
        return np.array([f.value(X_i) for f, X_i in zip(self._terms, X, strict=True)])


class _StackedMixing:
    """A phase in which all agents mix; arrays are in order of decreasing degree."""

    def __init__(self, topology: Topology, phases: Sequence[Mixing], found: Sequence[Found], began: int) -> None:
        graph = topology.graph
        self._order = np.argsort([-degree for degree in graph.degrees], kind="stable")
        self._place = np.argsort(self._order)
        self._slots = _slots_of(graph, self._order, self._place)
        self._phase, self._exchange, self._graph = phases[0], topology.algorithm.exchange, graph
        self._began, self.r = began, 0
        setups = [phases[i].prepare(found[i]) for i in self._order]
        stacked = replace(
            setups[0],
            f=_AllSmooth([each.f for each in setups]),
            start=np.array([each.start for each in setups]),
            agents=tuple(agent for each in setups for agent in each.agents),
            samples=tuple(own for each in setups for own in each.samples),
        )
        self._method: Method[Any] = phases[0].make(stacked)
        with np.errstate(over="ignore", invalid="ignore"):  # caught next
            self._state = self._method.start(stacked.start)
        self._check(self._state, self._method.send(self._state).eta)
        self._words = [SILENT] * len(setups)  # in order of id

    @property
    def is_over(self) -> bool:
        """Whether this round is the last."""
        return self.r >= self._phase.most or self._ends_by(self._began + self.r)

    @property
    def is_agreed(self) -> bool:
        """Whether the agents agreed to stop."""
        return self._ends_by(self._began + self._phase.most)

    def _ends_by(self, k: int) -> bool:
        """Whether all know that round k, or one before it, is the last."""
        return all(word.after is not None and word.after <= k for word in self._words)

    @property
    def arrays(self) -> dict[str, Matrix]:
        """All states by name, in order of id."""
        return {name: array[self._place] for name, array in named_arrays(self._state).items()}

    @property
    def answers(self) -> tuple[Matrix, Matrix]:
        """All X, and all sparse X, in order of id."""
        X, sparse = self._method.answer(self.r, self._state)
        return X[self._place], sparse[self._place]

    def advance(self) -> None:
        """One round of all agents."""
        sent, tolerance = self._method.send(self._state), self._phase.tolerance
        with np.errstate(over="ignore", invalid="ignore"):  # caught below
            X, D = (as_sent(each, self._exchange) for each in (sent.X, sent.D))
            heard = _AllHeard(self._slots, Sent(X, D, sent.eta))
            is_calm = np.zeros(len(X), dtype=bool)
            if tolerance > 0:
                is_calm = np.asarray(self._method.residual(self.r, self._state, heard) <= tolerance)
            self._state = self._method.step(self.r, self._state, heard)
        self.r += 1
        self._check(self._state, sent.eta)
        self._speak_of_stopping(is_calm)

    def _check(self, state: Any, eta: Matrix) -> None:
        sent = self._method.send(state)
        with np.errstate(over="ignore", invalid="ignore"):
            is_sound = has_sound_numbers(sent, self._method.growth)
        if not is_sound.all():
            at = min(np.flatnonzero(~is_sound), key=lambda place: self._order[place])
            there = Sent(sent.X[at], sent.D[at], sent.eta[at])
            raise divergence(int(self._order[at]), self._began + self.r, there, float(eta[at]), self._phase.advice)

    def _speak_of_stopping(self, is_calm: NDArray[np.bool_]) -> None:
        """Agent by agent, as each does itself; one that is not calm says nothing while no end is announced."""
        words, calm = self._words, is_calm[self._place].tolist()
        now, diameter = self._began + self.r, self._graph.diameter
        is_announced = any(word.after is not None for word in words)
        self._words = [
            next_word((words[j] for j, _ in row), is_calm=calm[i], k=now, diameter=diameter)
            if calm[i] or is_announced
            else SILENT
            for i, row in enumerate(self._graph.mixing)
        ]

    def conclude(self, phases: Sequence[Mixing], found: Sequence[Found]) -> list[Found]:
        """What each agent knows after it."""
        X, sparse = self.answers
        arrays, end = self.arrays, PhaseEnd(self._phase.name, self.r, self.is_agreed)
        known = (
            phase.conclude_from(each, {name: array[i] for name, array in arrays.items()}, (X[i], sparse[i]))
            for i, (phase, each) in enumerate(zip(phases, found, strict=True))
        )
        return [replace(each, over=(*each.over, end)) for each in known]


class _StackedPooling:
    """A phase in which all agents sum: one sum at a time, in the last of its rounds."""

    def __init__(self, phases: Sequence[Pooling], found: Sequence[Found]) -> None:
        for phase, each in zip(phases, found, strict=True):
            phase.enter(each, 0)
        self._phases, self._found, self.r = phases, found, 0
        self._root = next(phase for phase in phases if phase.place.depth == 0)
        self._state = self._root.method.begin()
        self._word: Matrix | None = None
        self._own = [phase.own(None) for phase in phases]

    @property
    def is_over(self) -> bool:
        """Whether the last word has been said."""
        is_between = self.r % self._root.place.rounds == 0
        is_last = self._word is not None and self._root.method.is_last(self._word)
        return is_between and (is_last or self.r >= self._root.most)

    @property
    def arrays(self) -> dict[str, Matrix]:
        """None of every agent."""
        return {}

    @property
    def answers(self) -> tuple[Matrix, Matrix]:
        """What the latest word says, the same for all."""
        X, sparse = self._root.answer_of(self._found[0], self._word)
        d = len(self._phases)
        return np.repeat(X[None], d, axis=0), np.repeat(sparse[None], d, axis=0)

    def advance(self) -> None:
        """One round of all agents."""
        self.r += 1
        if self.r % self._root.place.rounds:
            return
        first, *others = self._own
        partial = self._root.method.format.total(first, others)
        self._state, self._word = self._root.decide(self.r - 1, self._state, partial)
        if not self.is_over:
            self._own = [phase.own(self._word) for phase in self._phases]

    def conclude(self, phases: Sequence[Pooling], found: Sequence[Found]) -> list[Found]:  # noqa: ARG002
        """What follows from the last word is the same for all, so it is worked out once."""
        assert self._word is not None, "the root has spoken"  # noqa: S101
        first = self._root.concluded(found[0], self.r, self._word)
        changed = {
            field.name: getattr(first, field.name)
            for field in fields(Found)
            if getattr(first, field.name) is not getattr(found[0], field.name)
        }
        return [replace(each, **changed) for each in found]


class _StackedMasking:
    """A phase in which all agents agree on masks: there is none to hide numbers from, so a round passes."""

    arrays: Mapping[str, Matrix] = MappingProxyType({})

    def __init__(self) -> None:
        self.r = 0

    @property
    def is_over(self) -> bool:
        """Whether the round has passed."""
        return self.r > 0

    @property
    def answers(self) -> tuple[Matrix, Matrix]:
        """It is no main phase."""
        raise NotImplementedError

    def advance(self) -> None:
        """One round of all agents."""
        self.r += 1

    def conclude(self, phases: Sequence[Masking], found: Sequence[Found]) -> list[Found]:
        """It is over."""
        return [phase.concluded(each) for phase, each in zip(phases, found, strict=True)]


StackedPhase: TypeAlias = _StackedMixing | _StackedPooling | _StackedMasking


class Kinds(NamedTuple):
    """Makes a phase of all agents at once, by its kind; `Phase.together` chooses."""

    topology: Topology
    found: Sequence[Found]
    began: int

    def mixing(self, phases: Sequence[Mixing]) -> StackedPhase:
        """Round after round."""
        return _StackedMixing(self.topology, phases, self.found, self.began)

    def summing(self, phases: Sequence[Pooling]) -> StackedPhase:
        """Sum after sum."""
        return _StackedPooling(phases, self.found)

    def masking(self, phases: Sequence[Masking]) -> StackedPhase:  # noqa: ARG002
        """One round."""
        return _StackedMasking()


def _slots_of(graph: Graph, order: NDArray[np.intp], place: NDArray[np.intp]) -> list[_Slot]:
    rows = [graph.mixing[i] for i in order]
    slots = []
    for s in range(len(rows[0])):
        terms = [row[s] for row in rows if s < len(row)]
        neighbors, weights = zip(*terms, strict=True)
        slots.append(_Slot(place[list(neighbors)], np.array(weights)))
    return slots
