"""One agent: where the mathematics and the exchange meet. Simulated agents and network peers are both this."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from thanos_peer.algorithm.thanos import AgentState
from thanos_peer.block import AgentId, Block, Matrix, StopWord
from thanos_peer.errors import DataFileError
from thanos_peer.phases import Findings, Minimising, Phase
from thanos_peer.protocol.exchange import Exchange
from thanos_peer.protocol.stop import next_word
from thanos_peer.topology import Topology

CONVERGED_IN = "converged in "  # and the name of a phase that minimises: among the findings, once it is over
ROUNDS_IN = "rounds in "  # and the name of a phase: among the findings, once it is over
SPARE = 8  # blocks, for neighbors that are a round apart and a checkpoint under way


def as_sent(X: Matrix, exchange: str) -> Matrix:
    """X with the precision that it keeps on its way: float64 is exact, float32 rounds."""
    if exchange == "float64":
        return X
    with np.errstate(over="ignore"):  # `Agent` looks for it
        return X.astype(np.float32).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Memory:
    """All that an agent needs to go on with the same bits; what it has heard it can ask for again.

    Attributes:
        state: Its state.
        stop: Its word on stopping in that round.
        said: Its own blocks of earlier rounds that a neighbor may still ask for.
        fallbacks: The earliest round that each neighbor may have to start again from.
        fallback: The same of itself; None if it could not start again.
        epoch: How often the network has started its tracking again.
        done: The neighbors that have said that they are done.
        phase: Which phase it is in, counted from 0.
        began: The round that this phase began with.
        findings: What the phases before have found.
    """

    state: AgentState
    stop: StopWord
    said: tuple[Block, ...]
    fallbacks: Mapping[AgentId, int]
    fallback: int | None
    epoch: int = 0
    done: frozenset[AgentId] = frozenset()
    phase: int = 0
    began: int = 0
    findings: Findings = field(default_factory=dict)


class Agent:
    """An agent in its round: give it its neighbors' blocks, let it advance, pass its own block on.

    Args:
        topology: Whose edges, weights and stopping rule it follows.
        agent: Its id.
        plan: The phases that it goes through.
        memory: What it remembers of an earlier life; None for a first one.

    Attributes:
        fallback: The round that it would start again from; None if it could not.
        done: The neighbors that have said that they are done.
        findings: What the phases so far have found.
    """

    def __init__(
        self, topology: Topology, agent: AgentId, plan: Sequence[Phase], memory: Memory | None = None
    ) -> None:
        self.id, self._topology, self._plan = agent, topology, tuple(plan)
        self.neighbors = topology.graph.neighbors[self.id]
        self._weights = np.array([weight for _, weight in topology.graph.mixing[self.id]])
        self._main = next(i for i, phase in enumerate(plan) if phase.name == topology.algorithm.method)
        self._most_said = topology.blocks_kept + SPARE  # a sound neighbor pauses before it needs more
        self.epoch = 0
        self.fallback: int | None = None
        self.done: set[AgentId] = set()
        if memory is None:
            self._begin()
            self._exchange = Exchange(self.id, self.neighbors, self.state.k, most_said=self._most_said)
        else:
            self._remember(memory)
        self._exchange.publish(self.block())

    def _begin(self) -> None:
        """The first round of the first phase."""
        self._index, self._began = 0, 0
        self.findings: Findings = {}
        self._phase.enter(self.findings, 0)
        self._settle(self._phase.start(), StopWord())

    def _remember(self, memory: Memory) -> None:
        """Where an earlier life was."""
        self.state, self._stop, self.fallback, self.epoch = (
            memory.state,
            memory.stop,
            memory.fallback,
            memory.epoch,
        )
        self._index, self._began, self.findings = memory.phase, memory.began, memory.findings
        self._phase.enter(self.findings, self._began)
        self.done = set(memory.done)
        self._exchange = Exchange(
            self.id,
            self.neighbors,
            self.state.k,
            said=memory.said,
            fallbacks=memory.fallbacks,
            is_again=True,
            most_said=self._most_said,
        )

    @property
    def _phase(self) -> Phase:
        return self._plan[self._index]

    def _settle(self, state: AgentState, stop: StopWord) -> None:
        """Be in this state; if it is the last of its phase, in the first of the next, which has the same round.

        All of it or, where a phase cannot conclude or the next cannot begin, nothing: what is saved then is sound.
        """
        index, began, findings = self._index, self._began, self.findings
        while state.k >= _last_round(phase := self._plan[index], began, stop):
            found = {**phase.conclude(state), ROUNDS_IN + phase.name: np.array(float(state.k - began))}
            if isinstance(phase, Minimising):
                found[CONVERGED_IN + phase.name] = np.array(float(_is_agreed(stop, phase, began)))
            findings = {**findings, **found}
            if index == len(self._plan) - 1:
                break
            index, began, stop = index + 1, state.k, StopWord()
            self._plan[index].enter(findings, began)
            state = self._plan[index].start()
        self._check_can_be_said(phase, state)
        self.state, self._stop = state, stop
        self._index, self._began, self.findings = index, began, findings

    def _check_can_be_said(self, phase: Phase, state: AgentState) -> None:
        """Refuse to average what neighbors would refuse to hear: they would wait for ever.

        Raises:
            DataFileError: There is a number that no block can carry.
        """
        if isinstance(phase, Minimising):  # which has bounds of its own
            return
        exchange = self._topology.algorithm.exchange
        if not all(np.isfinite(as_sent(each, exchange)).all() for each in (state.X, state.D)):
            instead = ', or leave out exchange = "float32"' if exchange == "float32" else ""
            raise DataFileError(
                f"the samples of peer {self.id} are too large: in phase {phase.name} it has a number for its "
                f"neighbors that {exchange} cannot hold; scale the samples of all peers down{instead}"
            )

    def restart_tracking(self, epoch: int, X: Matrix | None = None) -> None:
        """Begin again at round 0 of a new epoch, with D = H at its current X, or at another one.

        Sound whatever X each agent begins with: the sum of all D is the sum of all H once more. A run that begins
        with other phases begins from them: what they had found is lost together with a state.

        Args:
            epoch: Its number.
            X: The latest that a neighbor has said, for an agent that has lost its own; in a run that goes on after
                minimising that need not be an X, and is not used.
        """
        state, is_alone = self.main_state, len(self._plan) == 1
        X = X if X is not None and is_alone else None if state is None else state.X
        self._begin()
        if self.minimises_first and X is not None and isinstance(self._phase, Minimising):
            self.state = self._phase.restart(X)
        self.epoch = epoch
        self.done.clear()
        self.fallback = None if self.fallback is None else 0
        self._exchange = Exchange(self.id, self.neighbors, most_said=self._most_said)
        self._exchange.publish(self.block())

    def memory(self) -> Memory:
        """What to keep, so as to go on from here."""
        said = tuple(block for block in self._exchange.all_said() if block.k < self.state.k)
        return Memory(
            self.state,
            self._stop,
            said,
            dict(self._exchange.fallbacks),
            self.fallback,
            self.epoch,
            frozenset(self.done),
            self._index,
            self._began,
            self.findings,
        )

    def block(self) -> Block:
        """What its neighbors are to hear in this round, and itself too: all mix the same numbers."""
        state, exchange = self.state, self._topology.algorithm.exchange
        fallback = state.k if self.fallback is None else self.fallback
        X, D = as_sent(state.X, exchange), as_sent(state.D, exchange)
        return Block.of(state.k, X, D, state.eta, self._stop, fallback)

    def receive(self, sender: AgentId, block: Block) -> bool:
        """Hear a neighbor; returns whether it was one that this round lacked."""
        return self._exchange.receive(sender, block)

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
        return self.state.k > 0 or not self.is_missing(neighbor)

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
        return self.state.k - self._began

    @property
    def phases(self) -> tuple[str, ...]:
        """All phases, in order."""
        return tuple(phase.name for phase in self._plan)

    @property
    def minimises_first(self) -> bool:
        """Whether nothing is prepared before the phase that minimises."""
        return self._main == 0

    @property
    def rounds_by_phase(self) -> dict[str, int]:
        """How many rounds of each phase are behind it, of those that have begun, in order."""
        over = {name: self.findings.get(ROUNDS_IN + name) for name in self.phases}
        return {name: int(rounds) for name, rounds in over.items() if rounds is not None} | {
            self.phase: self.phase_round
        }

    @property
    def phases_cut_short(self) -> tuple[str, ...]:
        """The phases before the main one that ended at their maximum of rounds, not by their tolerance."""
        return tuple(
            name for name in self.phases[: self._main] if not self.findings.get(CONVERGED_IN + name, True)
        )

    @property
    def main_state(self) -> AgentState | None:
        """Its state in the phase that minimises, with the rounds counted from there; None before that phase."""
        if self._index < self._main:
            return None
        if self._index == self._main:
            return replace(self.state, k=self.phase_round) if self._began else self.state
        found = self.findings
        return AgentState(int(found["rounds"]), found["X"], found["D"], found["H"], float(found["eta"]))

    @property
    def overall(self) -> float | None:
        """What it divides all samples by, as far as the network has found it; None for nothing."""
        return float(self.findings["overall"]) if "overall" in self.findings else None

    def sparse(self) -> Matrix:
        """X of the phase that minimises, with exact zeros."""
        phase = self._plan[self._main]
        if self._index == self._main and isinstance(phase, Minimising):
            return phase.sparse(self.state)
        return self.findings["sparse"]

    @property
    def last_round(self) -> int:
        """The round after which this phase ends, as far as it knows by now."""
        return _last_round(self._phase, self._began, self._stop)

    @property
    def is_done(self) -> bool:
        """Whether its state is the result; so it is at all agents after the same round."""
        return self._index == len(self._plan) - 1 and self.state.k >= self.last_round

    @property
    def has_converged(self) -> bool:
        """Whether the network agreed to stop before the maximum number of rounds."""
        if self._index == self._main:
            return _is_agreed(self._stop, self._phase, self._began)
        return bool(self.findings.get(CONVERGED_IN + self.phases[self._main], False))

    def advance(self) -> None:
        """Take the round that is complete, and step into the next."""
        blocks = self._exchange.take()
        is_calm = self._phase.is_calm(self.state, blocks)
        state = self._phase.step(self._weights, self.state, blocks)
        diameter = self._topology.graph.diameter
        self._settle(
            state, next_word((block.stop for block in blocks), is_calm=is_calm, k=state.k, diameter=diameter)
        )
        self._exchange.publish(self.block())


def _last_round(phase: Phase, began: int, stop: StopWord) -> int:
    """The round after which a phase ends, as far as is known by now."""
    most = began + phase.most
    return most if stop.after is None else min(most, stop.after)


def _is_agreed(stop: StopWord, phase: Phase, began: int) -> bool:
    """Whether a phase ends because the network has agreed to."""
    return stop.after is not None and stop.after <= began + phase.most
