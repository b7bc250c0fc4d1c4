"""All agents stepped at once, for networks of hundreds: phase after phase, with the bits of the agents."""

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from thanos_peer.block import Matrix
from thanos_peer.convergence import Convergence, of_findings, starts_of
from thanos_peer.phases import Found, Phase
from thanos_peer.preparation import Account, account_of
from thanos_peer.problem import Instance
from thanos_peer.simulate.stacked_phases import Kinds, StackedPhase

# The round, X and sparse X, and the arrays by name.
_Answers: TypeAlias = tuple[int, tuple[Matrix, Matrix], Mapping[str, Matrix]]


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

    def _enter(self, index: int) -> StackedPhase:
        phases = self._phases[index]
        first: Phase = phases[0]
        return first.together(phases, Kinds(self._topology, self._found, self._began))

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
        """The verdict on the answer."""
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
