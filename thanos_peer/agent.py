"""One agent: where the mathematics and the exchange meet. Simulated agents and network peers are both this."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from thanos_peer.block import PAIR, AgentId, Block, Matrix, StopWord
from thanos_peer.convergence import Convergence, of_findings
from thanos_peer.errors import PhaseMismatchError, RemoteProtocolError
from thanos_peer.phases import Arrays, Found, PhaseRunner, Plan
from thanos_peer.protocol.exchange import Exchange
from thanos_peer.protocol.honest import BLOCK_RULES, BlockView, check
from thanos_peer.protocol.stop import next_word
from thanos_peer.topology import Topology

# Blocks that are kept beyond `blocks_kept`: for neighbors a round apart, and for a checkpoint under way.
SPARE = 8


def as_sent(X: Matrix, exchange: str) -> Matrix:
    """X with the precision that it keeps on its way: float64 is exact, float32 rounds."""
    if exchange == "float64":
        return X
    # The codec refuses numbers that are not finite.
    with np.errstate(over="ignore"):
        return X.astype(np.float32).astype(np.float64)


def calm_size(diameter: int) -> int:
    """Bytes of a bit for each of 2 diameter + 1 rounds: so long ago all were calm if one announces an end."""
    return diameter // 4 + 1


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
        calm: In which of the latest rounds it said that it is calm, a bit each, the latest last; empty if that is
            not known.
        birth: Names its beginning of this epoch.
        births: Of each neighbor, which of its beginnings of this epoch the blocks are of that it has used.
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
    calm: bytes = b""
    birth: str = ""
    births: Mapping[AgentId, str] = field(default_factory=dict)


class Agent:
    """An agent in its round: give it its neighbors' blocks, let it advance, pass its own block on.

    Args:
        topology: Whose edges, weights and stopping rule it follows.
        agent: Its id.
        plan: The phases that it goes through.
        memory: What it remembers of an earlier life; None for a first one.
        birth: Names the beginning of a first life, as no other one; empty where it need not be known again.

    Attributes:
        runner: Takes it through its phases.
        fallback: The round that it would start again from; None if it could not.
        done: The neighbors that have said that they are done.
        birth: Names its beginning of this epoch: other lives that begin the same epoch have other names.
        births: Of each neighbor, which of its beginnings of this epoch may be heard.
    """

    def __init__(
        self, topology: Topology, agent: AgentId, plan: Plan, memory: Memory | None = None, birth: str = ""
    ) -> None:
        self.id, self._topology, self.runner = agent, topology, PhaseRunner(plan)
        self.neighbors = topology.graph.neighbors[self.id]
        self.blocks_kept, self.forms = plan.blocks_kept, plan.forms
        # A sound neighbor pauses before it needs more blocks than this.
        self._most_said = self.blocks_kept + SPARE
        self.epoch = 0
        self.fallback: int | None = None
        self.done: set[AgentId] = set()
        self._calm = 0
        self.birth, self.births = birth, dict[AgentId, str]()
        if memory is None:
            self.runner.begin()
            self._exchange = Exchange(self.id, self.neighbors, self.k, most_said=self._most_said)
        else:
            self._remember(memory)
        self._publish()

    def _remember(self, memory: Memory) -> None:
        """Where an earlier life was."""
        self.runner.resume(
            memory.k, memory.arrays, memory.stop, index=memory.phase, began=memory.began, found=memory.found
        )
        self.fallback, self.epoch, self.done = memory.fallback, memory.epoch, set(memory.done)
        self._calm = int.from_bytes(
            memory.calm or self._calm_rounds.to_bytes(calm_size(self._topology.graph.diameter))
        )
        self.birth, self.births = memory.birth, dict(memory.births)
        self._exchange = Exchange(
            self.id,
            self.neighbors,
            self.k,
            said=(block._replace(birth=self.birth) for block in memory.said),
            fallbacks=memory.fallbacks,
            is_again=True,
            most_said=self._most_said,
        )

    @property
    def _calm_rounds(self) -> int:
        """A bit for each round back to the one that an announcement may follow from."""
        return (2 << 2 * self._topology.graph.diameter) - 1

    @property
    def k(self) -> int:
        """The round that it is in."""
        return self.runner.k

    @property
    def found(self) -> Found:
        """What the phases so far have found."""
        return self.runner.found

    def restart_tracking(self, epoch: int, X: Matrix | None = None, birth: str = "") -> None:
        """Begin again at round 0 of a new epoch, with D = H at its current X, or at another one.

        Sound whatever X each agent begins with: the sum of all D is the sum of all H once more. A run that begins
        with other phases begins from them: what they had found is lost together with a state.

        Args:
            epoch: Its number.
            X: The latest that a neighbor has said, for an agent that has lost its own; in a run that goes on after
                minimising that need not be an X, and is not used.
            birth: Names this beginning, as no other one.
        """
        answer, is_alone = self.runner.answer(), len(self.runner.phases) == 1
        X = X if X is not None and is_alone else None if answer is None else answer.X
        self.runner.begin()
        if self.minimises_first and X is not None:
            self.runner.state = self.runner.phase.restart(X)
        self.epoch, self.birth, self._calm = epoch, birth, 0
        self.done.clear()
        self.births.clear()
        self.fallback = None if self.fallback is None else 0
        self._exchange = Exchange(self.id, self.neighbors, most_said=self._most_said)
        self._publish()

    def memory(self) -> Memory:
        """What to keep, so as to go on from here."""
        runner = self.runner
        return Memory(
            runner.k,
            runner.phase.arrays(runner.state),
            runner.stop,
            self._exchange.said_before(self.k),
            dict(self._exchange.fallbacks),
            self.fallback,
            self.epoch,
            frozenset(self.done),
            runner.index,
            runner.began,
            runner.found,
            self._calm.to_bytes(calm_size(self._topology.graph.diameter)),
            self.birth,
            dict(self.births),
        )

    @property
    def block(self) -> Block:
        """What its neighbors are to hear in this round."""
        return self._exchange.own

    def _publish(self) -> None:
        """Put down what its neighbors are to hear in this round, and itself too: all mix the same numbers."""
        runner, exchange = self.runner, self._topology.algorithm.exchange
        said = runner.phase.say(runner.round, runner.state)
        kind, shape = said.form
        fallback = runner.k if self.fallback is None else self.fallback
        numbers = said.numbers
        if kind == PAIR and exchange != "float64":
            numbers = as_sent(np.frombuffer(numbers, dtype="<f8"), exchange).tobytes()
        self._exchange.publish(
            Block(runner.k, numbers, shape, said.eta, runner.stop, fallback, kind, said.to, self.birth)
        )

    def receive(self, sender: AgentId, block: Block) -> bool:
        """Hear a neighbor; returns whether it was one that this round lacked.

        Raises:
            RemoteProtocolError: It is no block that this neighbor could send.
        """
        if block.k == self.k:
            self._check(sender, block)
        return self._exchange.receive(sender, block)

    def _check(self, sender: AgentId, block: Block) -> None:
        """Refuse what no honest neighbor can have sent in this round."""
        runner, before = self.runner, self._exchange.said(self.k - 1)
        kind, shape = runner.phase.expects(runner.round, sender)
        if (block.kind, block.shape) != (kind, shape):
            what = f"has {block.kind} of shape {block.shape}; phase {self.phase} expects {kind} of {shape}"
            raise PhaseMismatchError(neighbor=sender, k=block.k, what=what)
        if block.k - block.fallback > self._most_said:
            what = (
                f"may have to start again from round {block.fallback}, but no peer gets so far ahead of its disk"
            )
            raise RemoteProtocolError(neighbor=sender, k=block.k, what=what)
        if block.stop == StopWord():
            return
        view = BlockView(
            k=self.k,
            r=runner.round,
            ends_by_agreement=not runner.phase.has_known_rounds,
            diameter=self._topology.graph.diameter,
            before=StopWord() if before is None else before.stop,
        )
        check(BLOCK_RULES, view, sender, block)

    def _is_wrong(self, sender: AgentId, block: Block) -> bool:
        try:
            self._check(sender, block)
        except RemoteProtocolError:
            return sender != self.id
        return False

    def _believed(self, sender: AgentId, block: Block) -> StopWord:
        """What a neighbor says about stopping, without an end that comes too late for those behind this agent."""
        word, known = block.stop, self.runner.stop.after
        if word.after is None or sender == self.id or (known is not None and known <= word.after):
            return word
        behind = self._topology.graph.farthest_behind(self.id, sender)
        can_reach_all = not behind or word.after - block.k >= behind + 2
        return word if can_reach_all else StopWord(word.streak)

    def _was_calm(self, k: int) -> bool:
        """Whether it said in round k of this phase that it is calm; k is one of the latest rounds."""
        return self.runner.began < k <= self.k and bool(self._calm >> self.k - k & 1)

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

    @property
    def may_be_behind(self) -> bool:
        """Whether its neighbors may be more than a round ahead: it has started again, or not begun."""
        return self.k == 0 or self._exchange.is_again

    def has_used(self, neighbor: AgentId) -> bool:
        """Whether it has heard a neighbor in this epoch at all, and may have gone on with what it said."""
        return self.k > 0 or self._exchange.has_heard(neighbor)

    def missing(self) -> tuple[AgentId, ...]:
        """The neighbors it has not heard in this round."""
        return self._exchange.missing()

    @property
    def phase(self) -> str:
        """Which phase it is in."""
        return self.runner.phase.name

    @property
    def phase_round(self) -> int:
        """How many rounds of this phase are behind it."""
        return self.runner.round

    @property
    def phases(self) -> tuple[str, ...]:
        """All phases, in order."""
        return tuple(phase.name for phase in self.runner.phases)

    @property
    def minimises_first(self) -> bool:
        """Whether nothing is prepared before the phase that minimises."""
        return self.runner.minimises_first

    @property
    def is_preparing(self) -> bool:
        """Whether the main phase has yet to begin."""
        return self.runner.is_preparing

    @property
    def is_in_main_phase(self) -> bool:
        """Whether it minimises."""
        return self.runner.is_in_main_phase

    @property
    def is_done(self) -> bool:
        """Whether its state is the result; so it is at all agents after the same round."""
        return self.runner.is_done

    @property
    def convergence(self) -> Convergence:
        """What may be said of its answer."""
        runner = self.runner
        return of_findings(
            self._topology, runner.found, is_below_tolerance=runner.is_below_tolerance, rounds=runner.main_round
        )

    def advance(self) -> None:
        """Take the round that is complete, and step into the next."""
        blocks = self._exchange.take()
        runner = self.runner
        state, is_calm = runner.phase.advance(runner.round, runner.state, blocks)
        k, diameter = self.k + 1, self._topology.graph.diameter
        words = [block.stop for block in blocks]
        if any(word.after is not None for word in words):
            senders = sorted((self.id, *self.neighbors))
            words = [self._believed(*heard) for heard in zip(senders, blocks, strict=True)]
        stop = next_word(words, is_calm=is_calm, k=k, diameter=diameter, was_calm=self._was_calm)
        runner.settle(k, state, stop)
        self._calm = (self._calm << 1 | is_calm) & self._calm_rounds
        self._publish()
        self._exchange.refuse(self._is_wrong)
