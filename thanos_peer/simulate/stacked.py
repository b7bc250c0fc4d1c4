"""All agents stepped at once, for networks of hundreds: the same sums in the same order, in fewer calls.

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
from thanos_peer.convergence import Convergence, of_findings, starts_of
from thanos_peer.phases import Found, Masking, Mixing, Phase, PhaseEnd, Pooling, named_arrays
from thanos_peer.preparation import Account, account_of
from thanos_peer.problem import Instance
from thanos_peer.protocol.stop import next_word
from thanos_peer.topology import Topology
from thanos_peer.topology.graph import Graph

SILENT = StopWord()
# The round, X and sparse X, and the arrays by name.
_Answers: TypeAlias = tuple[int, tuple[Matrix, Matrix], Mapping[str, Matrix]]


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


class _MixingRun:
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


class _PoolingRun:
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
        """What follows from the last word is the same for all, whatever else each of them knows."""
        assert self._word is not None, "the root has spoken"  # noqa: S101
        first = self._root.concluded(found[0], self.r, self._word)
        changed = {
            field.name: getattr(first, field.name)
            for field in fields(Found)
            if getattr(first, field.name) is not getattr(found[0], field.name)
        }
        return [replace(each, **changed) for each in found]


class _MaskingRun:
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


_Run: TypeAlias = _MixingRun | _PoolingRun | _MaskingRun


class _Runs(NamedTuple):
    """A phase of all agents at once, by its kind."""

    topology: Topology
    found: Sequence[Found]
    began: int

    def mixing(self, phases: Sequence[Mixing]) -> _Run:
        """Round after round."""
        return _MixingRun(self.topology, phases, self.found, self.began)

    def summing(self, phases: Sequence[Pooling]) -> _Run:
        """Sum after sum."""
        return _PoolingRun(phases, self.found)

    def masking(self, phases: Sequence[Masking]) -> _Run:  # noqa: ARG002
        """One round."""
        return _MaskingRun()


class StackedNetwork:
    """All agents of a topology, phase by phase."""

    def __init__(self, instance: Instance) -> None:
        plans = [instance.plan(i) for i in range(instance.topology.d)]
        self._topology, self._main = instance.topology, plans[0].main
        self._phases = list(zip(*(plan.phases for plan in plans), strict=True))
        self._index, self._began = 0, 0
        self._found = [Found() for _ in plans]
        self._final: _Answers | None = None
        # A round and its answers, once they were asked for.
        self._known: tuple[tuple[int, int], _Answers] | None = None
        self._run = self._enter(0)
        self._settle()

    def _enter(self, index: int) -> _Run:
        phases = self._phases[index]
        first: Phase = phases[0]
        return first.together(phases, _Runs(self._topology, self._found, self._began))

    def _settle(self) -> None:
        """Go on to the next phase where one is over."""
        while self._run.is_over and not self.is_done:
            self._conclude()
            self._began += self._run.r
            self._index += 1
            self._run = self._enter(self._index)
        if self.is_done and len(self._found[0].over) < len(self._phases):
            self._conclude()

    def _conclude(self) -> None:
        if self._index == self._main:
            self._final = self._run.r, self._run.answers, self._run.arrays
        self._found = self._run.conclude(self._phases[self._index], self._found)

    def advance(self) -> None:
        """One round of all agents."""
        self._run.advance()
        self._settle()

    @property
    def is_done(self) -> bool:
        """Whether this round is the last."""
        return self._index == len(self._phases) - 1 and self._run.is_over

    @property
    def is_preparing(self) -> bool:
        """Whether the main phase has yet to begin."""
        return self._index < self._main

    @property
    def is_in_main_phase(self) -> bool:
        """Whether they minimise."""
        return self._index == self._main

    @property
    def phase(self) -> tuple[str, int]:
        """Which phase all agents are in, and how many rounds of it are behind them."""
        return self._phases[self._index][0].name, self._run.r

    @property
    def rounds_by_phase(self) -> Mapping[str, int]:
        """How many rounds there were in each phase that has begun."""
        return {end.name: end.rounds for end in self._found[0].over} | dict([self.phase])

    @property
    def payload_sent(self) -> int:
        """What all agents have sent."""
        rounds = self.rounds_by_phase
        return sum(phases[0].payload(rounds.get(phases[0].name, 0)) for phases in self._phases)

    @property
    def phases_cut_short(self) -> tuple[str, ...]:
        """The phases before the main one that ended at their maximum of rounds."""
        return tuple(end.name for end in self._found[0].over[: self._main] if end.has_converged is False)

    @property
    def k(self) -> int:
        """The round, counted from the beginning of the main phase."""
        return self._answers()[0]

    @property
    def X(self) -> Matrix:
        """All X_i."""
        found = [each.X for each in self._found if each.X is not None]
        return np.array(found) if found else self._answers()[1][0]

    @property
    def sparse(self) -> Matrix:
        """All of them with exact zeros."""
        found = [each.sparse for each in self._found if each.sparse is not None]
        return np.array(found) if found else self._answers()[1][1]

    @property
    def eta(self) -> Matrix:
        """All step sizes."""
        eta = self.array("eta")
        return np.zeros(self._topology.d) if eta is None else eta

    def array(self, name: str) -> Matrix | None:
        """An array of all agents' states."""
        return self._answers()[2].get(name)

    def _answers(self) -> _Answers:
        if self._final is not None:
            return self._final
        now = self._index, self._run.r
        if self._known is None or self._known[0] != now:
            self._known = now, (self._run.r, self._run.answers, self._run.arrays)
        return self._known[1]

    @property
    def overall(self) -> float | None:
        """What the agents divide all samples by."""
        overall = self._found[0].overall
        return None if overall is None else float(overall)

    @property
    def found(self) -> Found:
        """What the first has found."""
        return self._found[0]

    @property
    def account(self) -> Account:
        """What helps to choose mu and p."""
        return account_of(self._topology, self._found[0])

    @property
    def convergence(self) -> Convergence:
        """What may be said of the answer."""
        is_below = self.is_below_tolerance
        return of_findings(self._topology, self._found[0], is_below_tolerance=is_below, rounds=self.k)

    @property
    def starts(self) -> int | None:
        """From how many starts it was searched."""
        return starts_of(self._found[0])

    @property
    def has_converged(self) -> bool | None:
        """Whether the answer is certified to be as good as was asked for; None where nothing is certified."""
        return self.convergence.has_converged

    @property
    def is_below_tolerance(self) -> bool:
        """Whether the main phase has reached its tolerance."""
        end = self._found[0].end_of(self._phases[self._main][0].name)
        return end is not None and bool(end.has_converged)


def _slots_of(graph: Graph, order: NDArray[np.intp], place: NDArray[np.intp]) -> list[_Slot]:
    rows = [graph.mixing[i] for i in order]
    slots = []
    for s in range(len(rows[0])):
        terms = [row[s] for row in rows if s < len(row)]
        neighbors, weights = zip(*terms, strict=True)
        slots.append(_Slot(place[list(neighbors)], np.array(weights)))
    return slots
