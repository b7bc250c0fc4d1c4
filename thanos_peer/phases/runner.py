"""One agent's way through the phases of its plan: which one it is in, its state there, and what was found."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from thanos_peer.block import Matrix, StopWord
from thanos_peer.phases.masking import first_findings
from thanos_peer.phases.phase import Arrays, Found, Phase, Plan


@dataclass(frozen=True)
class Answer:
    """What an agent has of the main phase.

    Attributes:
        k: The round, counted from the beginning of that phase.
        X: Its X, (n, p).
        sparse: X with exact zeros, (n, p).
        arrays: The method's state by name.
    """

    k: int
    X: Matrix
    sparse: Matrix
    arrays: Mapping[str, Matrix]

    @property
    def eta(self) -> float:
        """Its step size; 0 for methods that send none."""
        return float(self.arrays.get("eta", 0.0))


class PhaseRunner:
    """Takes one agent through the phases of its plan; `begin` or `resume` comes first.

    Args:
        plan: The phases.

    Attributes:
        k: The round, counted through all phases.
        state: What the phase carries from round to round.
        stop: The word on stopping in this round.
        index: Which phase it is in, counted from 0.
        began: The round that this phase began with.
        found: What the phases so far have found.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.phases = plan, plan.phases
        self.k = self.index = self.began = 0
        self.state: Any = None
        self.stop = StopWord()
        self.found = Found()

    def begin(self) -> None:
        """The first round of the first phase."""
        self.index, self.began, self.found = 0, 0, first_findings(self.plan)
        self.phase.enter(self.found, 0)
        self.settle(0, self.phase.start(), StopWord())

    def resume(self, k: int, arrays: Arrays, stop: StopWord, index: int, began: int, found: Found) -> None:
        """Where an earlier life was: in round k, in the phase `index` that began with round `began`."""
        self.k, self.stop, self.index, self.began, self.found = k, stop, index, began, found
        self.phase.enter(found, began)
        self.state = self.phase.restored(arrays)

    @property
    def phase(self) -> Phase:
        """The phase that it is in."""
        return self.phases[self.index]

    @property
    def round(self) -> int:
        """How many rounds of this phase are behind it."""
        return self.k - self.began

    def settle(self, k: int, state: Any, stop: StopWord) -> None:
        """Be in this state; if it is the last of its phase, in the first of the next, which has the same round.

        All of it or, where a phase cannot conclude or the next cannot begin, nothing: what is saved then is sound.
        """
        index, began, found = self.index, self.began, self.found
        while k >= _last_round(phase := self.phases[index], began, k, state, stop):
            found = phase.conclude(k - began, state, is_agreed=_is_agreed(stop, phase, began))
            if index == len(self.phases) - 1:
                break
            index, began, stop = index + 1, k, StopWord()
            self.phases[index].enter(found, began)
            state = self.phases[index].start()
        self.k, self.state, self.stop = k, state, stop
        self.index, self.began, self.found = index, began, found

    @property
    def minimises_first(self) -> bool:
        """Whether nothing is prepared before the phase that minimises."""
        return self.plan.main == 0 and self.phases[0].can_restart

    @property
    def is_preparing(self) -> bool:
        """Whether the main phase has yet to begin."""
        return self.index < self.plan.main

    @property
    def is_in_main_phase(self) -> bool:
        """Whether it minimises."""
        return self.index == self.plan.main

    @property
    def is_in_last_phase(self) -> bool:
        """Whether its run can end with the phase that it is in."""
        return self.index == len(self.phases) - 1

    @property
    def main_round(self) -> int:
        """How many rounds of the main phase are behind it."""
        end = self.found.end_of(self.phases[self.plan.main].name)
        return 0 if self.is_preparing else self.round if end is None else end.rounds

    @property
    def rounds_by_phase(self) -> dict[str, int]:
        """How many rounds of each phase are behind it, of those that have begun, in order."""
        return {end.name: end.rounds for end in self.found.over} | {self.phase.name: self.round}

    @property
    def rounds_before_main(self) -> int:
        """How many rounds the phases before the main one have taken so far."""
        return sum(end.rounds for end in self.found.over[: self.plan.main])

    @property
    def payload_sent(self) -> int:
        """The bytes that all agents have sent so far, without the frames around them."""
        rounds = self.rounds_by_phase
        return sum(phase.payload(rounds.get(phase.name, 0)) for phase in self.phases)

    @property
    def phases_cut_short(self) -> tuple[str, ...]:
        """The phases before the main one that ended at their maximum of rounds, not by their tolerance."""
        return tuple(end.name for end in self.found.over[: self.plan.main] if end.has_converged is False)

    def answer(self) -> Answer | None:
        """What it has of the main phase; None before that."""
        if self.is_preparing:
            return None
        found = self.found
        if found.X is not None and found.sparse is not None and found.final is not None:
            return Answer(self.main_round, found.X, found.sparse, found.final)
        X, sparse = self.phase.answer(self.round, self.state)
        arrays = self.phase.arrays(self.state)
        matrices = {name: array for name, array in arrays.items() if not isinstance(array, bytes)}
        return Answer(self.round, X, sparse, matrices)

    @property
    def eta(self) -> float:
        """The step size that it sends in this round."""
        return self.phase.say(self.round, self.state).eta

    @property
    def overall(self) -> float | None:
        """What it divides all samples by, as far as the network has found it; None for nothing."""
        return None if self.found.overall is None else float(self.found.overall)

    @property
    def last_round(self) -> int:
        """The round after which this phase ends, as far as it knows by now."""
        return _last_round(self.phase, self.began, self.k, self.state, self.stop)

    @property
    def is_done(self) -> bool:
        """Whether the last phase is over; so it is at all agents after the same round."""
        return self.is_in_last_phase and self.k >= self.last_round

    @property
    def is_below_tolerance(self) -> bool:
        """Whether the main phase is over, and has reached its tolerance, as the method measures it."""
        end = self.found.end_of(self.phases[self.plan.main].name)
        return end is not None and bool(end.has_converged)


def _last_round(phase: Phase, began: int, k: int, state: Any, stop: StopWord) -> int:
    """The round after which a phase ends, as far as is known by now."""
    last = began + phase.last(k - began, state)
    return last if stop.after is None or phase.has_known_rounds else min(last, stop.after)


def _is_agreed(stop: StopWord, phase: Phase, began: int) -> bool:
    """Whether a phase ends because the network has agreed to."""
    return stop.after is not None and not phase.has_known_rounds and stop.after <= began + phase.most
