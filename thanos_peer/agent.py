"""One agent: where the mathematics and the exchange meet. Simulated agents and network peers are both this."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from thanos_peer.block import PAIR, AgentId, Block, Matrix, StopWord
from thanos_peer.convergence import Convergence, of_findings
from thanos_peer.errors import RemoteProtocolError
from thanos_peer.phases import Arrays, Found, Phase, Plan
from thanos_peer.protocol.exchange import Exchange
from thanos_peer.protocol.stop import next_word
from thanos_peer.topology import Topology

SPARE = 8  # blocks, for neighbors that are a round apart and a checkpoint under way


def as_sent(X: Matrix, exchange: str) -> Matrix:
    """X with the precision that it keeps on its way: float64 is exact, float32 rounds."""
    if exchange == "float64":
        return X
    with np.errstate(over="ignore"):  # the codec refuses what is not finite
        return X.astype(np.float32).astype(np.float64)


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


@dataclass(frozen=True, slots=True)
class Memory:
    """All that an agent needs to go on with the same bits; what it has heard it can ask for again.

    Attributes:
        k: The round that it is in.
        arrays: Its state in that round, by name.
        stop: Its word on stopping in that round.
        said: Its own blocks of earlier rounds that a neighbor may still ask for.
        fallbacks: The earliest round that each neighbor may have to start again from.
        fallback: The same of itself; None if it could not start again.
        epoch: How often the network has started its tracking again.
        done: The neighbors that have said that they are done.
        phase: Which phase it is in, counted from 0.
        began: The round that this phase began with.
        found: What the phases before have found.
    """

    k: int
    arrays: Arrays
    stop: StopWord
    said: tuple[Block, ...]
    fallbacks: Mapping[AgentId, int]
    fallback: int | None
    epoch: int = 0
    done: frozenset[AgentId] = frozenset()
    phase: int = 0
    began: int = 0
    found: Found = field(default_factory=Found)


class Agent:
    """An agent in its round: give it its neighbors' blocks, let it advance, pass its own block on.

    Args:
        topology: Whose edges, weights and stopping rule it follows.
        agent: Its id.
        plan: The phases that it goes through.
        memory: What it remembers of an earlier life; None for a first one.

    Attributes:
        k: The round that it is in.
        state: What it carries from round to round, as its phase has it.
        fallback: The round that it would start again from; None if it could not.
        done: The neighbors that have said that they are done.
        found: What the phases so far have found.
    """

    def __init__(self, topology: Topology, agent: AgentId, plan: Plan, memory: Memory | None = None) -> None:
        self.id, self._topology, self._plan, self._main = agent, topology, plan.phases, plan.main
        self.neighbors = topology.graph.neighbors[self.id]
        self.blocks_kept, self.forms = plan.blocks_kept, plan.forms
        self._most_said = self.blocks_kept + SPARE  # a sound neighbor pauses before it needs more
        self.k, self.state = 0, None
        self.epoch = 0
        self.fallback: int | None = None
        self.done: set[AgentId] = set()
        if memory is None:
            self._begin()
            self._exchange = Exchange(self.id, self.neighbors, self.k, most_said=self._most_said)
        else:
            self._remember(memory)
        self._exchange.publish(self.block())

    def _begin(self) -> None:
        """The first round of the first phase."""
        self._index, self._began = 0, 0
        self.found = Found()
        self._phase.enter(self.found, 0)
        self._settle(0, self._phase.start(), StopWord())

    def _remember(self, memory: Memory) -> None:
        """Where an earlier life was."""
        self.k, self._stop, self.fallback, self.epoch = memory.k, memory.stop, memory.fallback, memory.epoch
        self._index, self._began, self.found = memory.phase, memory.began, memory.found
        self._phase.enter(self.found, self._began)
        self.state = self._phase.restored(memory.arrays)
        self.done = set(memory.done)
        self._exchange = Exchange(
            self.id,
            self.neighbors,
            self.k,
            said=memory.said,
            fallbacks=memory.fallbacks,
            is_again=True,
            most_said=self._most_said,
        )

    @property
    def _phase(self) -> Phase:
        return self._plan[self._index]

    def _settle(self, k: int, state: Any, stop: StopWord) -> None:
        """Be in this state; if it is the last of its phase, in the first of the next, which has the same round.

        All of it or, where a phase cannot conclude or the next cannot begin, nothing: what is saved then is sound.
        """
        index, began, found = self._index, self._began, self.found
        while k >= _last_round(phase := self._plan[index], began, k, state, stop):
            found = phase.conclude(k - began, state, is_agreed=_is_agreed(stop, phase, began))
            if index == len(self._plan) - 1:
                break
            index, began, stop = index + 1, k, StopWord()
            self._plan[index].enter(found, began)
            state = self._plan[index].start()
        self.k, self.state, self._stop = k, state, stop
        self._index, self._began, self.found = index, began, found

    def restart_tracking(self, epoch: int, X: Matrix | None = None) -> None:
        """Begin again at round 0 of a new epoch, with D = H at its current X, or at another one.

        Sound whatever X each agent begins with: the sum of all D is the sum of all H once more. A run that begins
        with other phases begins from them: what they had found is lost together with a state.

        Args:
            epoch: Its number.
            X: The latest that a neighbor has said, for an agent that has lost its own; in a run that goes on after
                minimising that need not be an X, and is not used.
        """
        answer, is_alone = self.answer(), len(self._plan) == 1
        X = X if X is not None and is_alone else None if answer is None else answer.X
        self._begin()
        if self.minimises_first and X is not None:
            self.state = self._phase.restart(X)
        self.epoch = epoch
        self.done.clear()
        self.fallback = None if self.fallback is None else 0
        self._exchange = Exchange(self.id, self.neighbors, most_said=self._most_said)
        self._exchange.publish(self.block())

    def memory(self) -> Memory:
        """What to keep, so as to go on from here."""
        return Memory(
            self.k,
            self._phase.arrays(self.state),
            self._stop,
            tuple(block for block in self._exchange.all_said() if block.k < self.k),
            dict(self._exchange.fallbacks),
            self.fallback,
            self.epoch,
            frozenset(self.done),
            self._index,
            self._began,
            self.found,
        )

    def block(self) -> Block:
        """What its neighbors are to hear in this round, and itself too: all mix the same numbers."""
        said, exchange = self._phase.say(self.phase_round, self.state), self._topology.algorithm.exchange
        kind, shape = said.form
        fallback = self.k if self.fallback is None else self.fallback
        numbers = said.numbers
        if kind == PAIR and exchange != "float64":
            numbers = as_sent(np.frombuffer(numbers, dtype="<f8"), exchange).tobytes()
        return Block(self.k, numbers, shape, said.eta, self._stop, fallback, kind, said.to)

    def receive(self, sender: AgentId, block: Block) -> bool:
        """Hear a neighbor; returns whether it was one that this round lacked.

        Raises:
            RemoteProtocolError: It is no block that this neighbor could send.
        """
        if block.k == self.k and (what := self._objection(sender, block)) is not None:
            raise RemoteProtocolError(neighbor=sender, k=block.k, what=what)
        return self._exchange.receive(sender, block)

    def _objection(self, sender: AgentId, block: Block) -> str | None:
        """Why no honest neighbor can have sent this block in this round; None if one can."""
        kind, shape = self._phase.expects(self.phase_round, sender)
        if (block.kind, block.shape) != (kind, shape):
            return f"has {block.kind} of shape {block.shape}; phase {self.phase} expects {kind} of {shape}"
        if self._phase.has_known_rounds and block.stop != StopWord():
            return f"says when to stop, in phase {self.phase}, where that is not for the peers to agree on"
        return None

    def said(self, k: int) -> Block | None:
        """Its own block of round k, if a neighbor may still need it."""
        return self._exchange.said(k)

    @property
    def oldest_said(self) -> int:
        """The earliest round whose block it could say again."""
        return self._exchange.oldest

    @property
    def is_ready(self) -> bool:
        """Whether it has heard all neighbors in this round, and can advance."""
        return self._exchange.is_complete()

    @property
    def lacks(self) -> int:
        """How many blocks it still lacks in this round."""
        return self._exchange.lacks()

    def is_missing(self, neighbor: AgentId) -> bool:
        """Whether it has not heard a neighbor in this round."""
        return self._exchange.is_missing(neighbor)

    def has_used(self, neighbor: AgentId) -> bool:
        """Whether it has heard a neighbor in this epoch at all, and may have gone on with what it said."""
        return self.k > 0 or not self.is_missing(neighbor)

    def missing(self) -> tuple[AgentId, ...]:
        """The neighbors it has not heard in this round."""
        return self._exchange.missing()

    @property
    def phase(self) -> str:
        """Which phase it is in."""
        return self._phase.name

    @property
    def phase_round(self) -> int:
        """How many rounds of this phase are behind it."""
        return self.k - self._began

    @property
    def phases(self) -> tuple[str, ...]:
        """All phases, in order."""
        return tuple(phase.name for phase in self._plan)

    @property
    def minimises_first(self) -> bool:
        """Whether nothing is prepared before the phase that minimises."""
        return self._main == 0 and self._plan[0].can_restart

    @property
    def rounds_by_phase(self) -> dict[str, int]:
        """How many rounds of each phase are behind it, of those that have begun, in order."""
        return {end.name: end.rounds for end in self.found.over} | {self.phase: self.phase_round}

    @property
    def payload_sent(self) -> int:
        """The bytes that all agents have sent so far, without the frames around them."""
        rounds = self.rounds_by_phase
        return sum(phase.payload(rounds.get(phase.name, 0)) for phase in self._plan)

    @property
    def phases_cut_short(self) -> tuple[str, ...]:
        """The phases before the main one that ended at their maximum of rounds, not by their tolerance."""
        return tuple(end.name for end in self.found.over[: self._main] if end.has_converged is False)

    @property
    def is_preparing(self) -> bool:
        """Whether the main phase has yet to begin."""
        return self._index < self._main

    @property
    def is_in_main_phase(self) -> bool:
        """Whether it minimises."""
        return self._index == self._main

    @property
    def main_round(self) -> int:
        """How many rounds of the main phase are behind it."""
        end = self.found.end_of(self._plan[self._main].name)
        return 0 if self.is_preparing else self.phase_round if end is None else end.rounds

    def answer(self) -> Answer | None:
        """What it has of the main phase; None before that."""
        if self.is_preparing:
            return None
        found = self.found
        if found.X is not None and found.sparse is not None and found.final is not None:
            return Answer(self.main_round, found.X, found.sparse, found.final)
        X, sparse = self._phase.answer(self.phase_round, self.state)
        arrays = self._phase.arrays(self.state)
        return Answer(
            self.phase_round,
            X,
            sparse,
            {name: array for name, array in arrays.items() if not isinstance(array, bytes)},
        )

    @property
    def eta(self) -> float:
        """The step size that it sends in this round."""
        return self._phase.say(self.phase_round, self.state).eta

    @property
    def overall(self) -> float | None:
        """What it divides all samples by, as far as the network has found it; None for nothing."""
        return None if self.found.overall is None else float(self.found.overall)

    @property
    def last_round(self) -> int:
        """The round after which this phase ends, as far as it knows by now."""
        return _last_round(self._phase, self._began, self.k, self.state, self._stop)

    @property
    def is_done(self) -> bool:
        """Whether its state is the result; so it is at all agents after the same round."""
        return self._index == len(self._plan) - 1 and self.k >= self.last_round

    @property
    def convergence(self) -> Convergence:
        """What may be said of its answer."""
        return of_findings(
            self._topology, self.found, is_below_tolerance=self.is_below_tolerance, rounds=self.main_round
        )

    @property
    def has_converged(self) -> bool | None:
        """Whether it is certified that the answer is as good as was asked for; None where nothing is certified."""
        return self.convergence.has_converged

    @property
    def is_below_tolerance(self) -> bool:
        """Whether the main phase is over, and has reached its tolerance, as the method measures it."""
        end = self.found.end_of(self._plan[self._main].name)
        return end is not None and bool(end.has_converged)

    def advance(self) -> None:
        """Take the round that is complete, and step into the next."""
        blocks = self._exchange.take()
        state, is_calm = self._phase.advance(self.phase_round, self.state, blocks)
        k, diameter = self.k + 1, self._topology.graph.diameter
        words = (block.stop for block in blocks)
        self._settle(k, state, next_word(words, is_calm=is_calm, k=k, diameter=diameter))
        self._exchange.publish(self.block())
        self._exchange.refuse(
            lambda sender, block: sender != self.id and self._objection(sender, block) is not None
        )


def _last_round(phase: Phase, began: int, k: int, state: Any, stop: StopWord) -> int:
    """The round after which a phase ends, as far as is known by now."""
    last = began + phase.last(k - began, state)
    return last if stop.after is None or phase.has_known_rounds else min(last, stop.after)


def _is_agreed(stop: StopWord, phase: Phase, began: int) -> bool:
    """Whether a phase ends because the network has agreed to."""
    return stop.after is not None and not phase.has_known_rounds and stop.after <= began + phase.most
