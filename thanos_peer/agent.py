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
from thanos_peer.protocol.stop import StopAgreement
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
        exchange: The blocks of this round, and its own earlier ones; others only read it.
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
        self.epoch = 0
        self.fallback: int | None = None
        self.done: set[AgentId] = set()
        self.birth, self.births = birth, dict[AgentId, str]()
        if memory is None:
            self.runner.begin()
            self._stopping = StopAgreement(self.id, topology.graph)
            self.exchange = Exchange(self.id, self.neighbors, self.k, most_said=self._most_said)
        else:
            self._remember(memory)
        self._publish()

    def _remember(self, memory: Memory) -> None:
        """Where an earlier life was."""
        self.runner.resume(
            memory.k, memory.arrays, memory.stop, index=memory.phase, began=memory.began, found=memory.found
        )
        self.fallback, self.epoch, self.done = memory.fallback, memory.epoch, set(memory.done)
        self._stopping = StopAgreement(self.id, self._topology.graph, memory.calm)
        self.birth, self.births = memory.birth, dict(memory.births)
        self.exchange = Exchange(
            self.id,
            self.neighbors,
            self.k,
            said=(block._replace(birth=self.birth) for block in memory.said),
            fallbacks=memory.fallbacks,
            is_again=True,
            most_said=self._most_said,
        )

    @property
    def _most_said(self) -> int:
        """A sound neighbor pauses before it needs more blocks than this."""
        return self.runner.plan.blocks_kept + SPARE

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
        if self.runner.minimises_first and X is not None:
            self.runner.state = self.runner.phase.restart(X)
        self.epoch, self.birth, self._stopping = epoch, birth, StopAgreement(self.id, self._topology.graph)
        self.done.clear()
        self.births.clear()
        self.fallback = None if self.fallback is None else 0
        self.exchange = Exchange(self.id, self.neighbors, self.k, most_said=self._most_said)
        self._publish()

    def memory(self) -> Memory:
        """What to keep, so as to go on from here."""
        runner = self.runner
        return Memory(
            runner.k,
            runner.phase.arrays(runner.state),
            runner.stop,
            self.exchange.said_before(self.k),
            dict(self.exchange.fallbacks),
            self.fallback,
            self.epoch,
            frozenset(self.done),
            runner.index,
            runner.began,
            runner.found,
            self._stopping.calm,
            self.birth,
            dict(self.births),
        )

    @property
    def block(self) -> Block:
        """What its neighbors are to hear in this round."""
        return self.exchange.own

    def _publish(self) -> None:
        """Put down what its neighbors are to hear in this round, and itself too: all mix the same numbers."""
        runner, exchange = self.runner, self._topology.algorithm.exchange
        said = runner.phase.say(runner.round, runner.state)
        kind, shape = said.form
        fallback = runner.k if self.fallback is None else self.fallback
        numbers = said.numbers
        if kind == PAIR and exchange != "float64":
            numbers = as_sent(np.frombuffer(numbers, dtype="<f8"), exchange).tobytes()
        self.exchange.publish(
            Block(runner.k, numbers, shape, said.eta, runner.stop, fallback, kind, said.to, self.birth)
        )

    def receive(self, sender: AgentId, block: Block) -> bool:
        """Hear a neighbor; returns whether it was one that this round lacked.

        Raises:
            RemoteProtocolError: It is no block that this neighbor could send.
        """
        if block.k == self.k:
            self._check(sender, block)
        return self.exchange.receive(sender, block)

    def _check(self, sender: AgentId, block: Block) -> None:
        """Refuse what no honest neighbor can have sent in this round."""
        runner = self.runner
        kind, shape = runner.phase.expects(runner.round, sender)
        if (block.kind, block.shape) != (kind, shape):
            what = f"has {block.kind} of shape {block.shape}; phase {runner.phase.name} expects {kind} of {shape}"
            raise PhaseMismatchError(neighbor=sender, k=block.k, what=what)
        if block.k - block.fallback > self.exchange.most_said:
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
        )
        check(BLOCK_RULES, view, sender, block)

    def _is_wrong(self, sender: AgentId, block: Block) -> bool:
        try:
            self._check(sender, block)
        except RemoteProtocolError:
            return sender != self.id
        return False

    @property
    def may_be_behind(self) -> bool:
        """Whether its neighbors may be more than a round ahead: it has started again, or not begun."""
        return self.k == 0 or self.exchange.is_again

    def has_used(self, neighbor: AgentId) -> bool:
        """Whether it has heard a neighbor in this epoch at all, and may have gone on with what it said."""
        return self.k > 0 or self.exchange.has_heard(neighbor)

    @property
    def is_done(self) -> bool:
        """Whether its state is the result; so it is at all agents after the same round."""
        return self.runner.is_done

    @property
    def convergence(self) -> Convergence:
        """The verdict on its answer."""
        runner = self.runner
        return of_findings(
            self._topology, runner.found, is_below_tolerance=runner.is_below_tolerance, rounds=runner.main_round
        )

    def advance(self) -> None:
        """Take the round that is complete, and step into the next; with an error it stays where it is."""
        blocks = self.exchange.blocks()
        runner = self.runner
        state, is_calm = runner.phase.advance(runner.round, runner.state, blocks)
        k, words = self.k + 1, [block.stop for block in blocks]
        stop = self._stopping.next_word(words, is_calm=is_calm, k=k, began=runner.began)
        runner.settle(k, state, stop)
        self._stopping.note(is_calm=is_calm)
        self.exchange.go_on()
        self._publish()
        self.exchange.refuse(self._is_wrong)
