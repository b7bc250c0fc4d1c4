"""What all parts of a session share: what is known, the stage, and what is to be done."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from thanos_peer.block import AgentId, Block
from thanos_peer.errors import LocalProtocolError, StateLostError
from thanos_peer.protocol.handshake import Handshake, OwnAddress, Terms
from thanos_peer.protocol.honest import TalkView
from thanos_peer.protocol.leaving import Leaving
from thanos_peer.protocol.messages import Bye, Message
from thanos_peer.protocol.neighbor import Link, Neighbor
from thanos_peer.protocol.outputs import Level, Log, Output, Pause, Save, Send
from thanos_peer.protocol.saving import Saving
from thanos_peer.protocol.stages import TRANSITIONS, Stage
from thanos_peer.protocol.traffic import Traffic
from thanos_peer.protocol.waiting import Patience, Waiting

if TYPE_CHECKING:
    from thanos_peer.agent import Agent

# Seconds between two epochs, at the least: each costs a checkpoint and a line at every peer.
EPOCHS_APART = 2.0
# Seconds between two log lines about the same thing.
NOTICES_APART = 10.0


@dataclass
class Loss:
    """A neighbor has said that no neighbor can help this peer to where the network is.

    It is kept apart from the agent, whose state and epoch stay what they were: nothing of this is saved or passed
    on, for it is one neighbor's word. Only a new epoch puts it into effect.

    Attributes:
        error: What to end with, if no new epoch is wanted.
        epoch: The one that the network is in, by what neighbors say.
        known_to: The neighbors that have named it.
        heard: When one of them last did.
    """

    error: StateLostError
    epoch: int
    known_to: set[AgentId]
    heard: float

    def describe(self) -> str:
        """What is said, and by which neighbors."""
        return (
            f"neighbor {', '.join(map(str, sorted(self.known_to)))} has said that the state of this peer is lost"
        )


@dataclass(frozen=True)
class Options:
    """How a session behaves.

    Attributes:
        patience: How long to wait.
        saves: Whether the agent's memory is saved.
        restarts_tracking: Whether to have the network start its tracking again if this peer's state is lost.
        features: The digest of the names of its features; empty if they have none.
        has_result: Whether an earlier life has written the result: then it does not wait for those long gone.
        epochs_apart: Seconds between two epochs, at the least.
    """

    patience: Patience = field(default_factory=Patience)
    saves: bool = True
    restarts_tracking: bool = False
    features: str = ""
    has_result: bool = False
    epochs_apart: float = EPOCHS_APART


class Conversation:
    """What one peer knows and says.

    Args:
        agent: The agent, in whatever round it is.
        terms: What all have to agree on.
        addresses: Where this peer and each of its neighbors listen.
        options: How the session behaves.
        now: The time.

    Attributes:
        now: The time of the latest input.
        stage: What the peer does.
        stage_began: Since when.
        neighbors: What is known of each.
        loss: What is known of the network while this peer has no state to take part in it with.
        first_step: The round and the time of the first step since the start or the latest epoch; None before.
        has_result: Whether there is a written result, of this life or an earlier one.
        has_sent_block: Whether this life has sent a neighbor a block.
        stop_reason: Why it was told to stop; empty if it was not.
    """

    def __init__(
        self, agent: "Agent", terms: Terms, addresses: Mapping[AgentId, str], options: Options, now: float
    ) -> None:
        self.agent, self.options, self.now = agent, options, now
        self.stage, self.stage_began = Stage.RUNNING, now
        self.traffic = Traffic(agent.neighbors)
        self.neighbors = {j: Neighbor(j, Link(addresses[j]), self.traffic.edge(j)) for j in agent.neighbors}
        self.handshake = Handshake(terms, agent, self.neighbors, options.features)
        self.own_address = OwnAddress(addresses[agent.id])
        self.waiting = Waiting(agent, self.neighbors, addresses[agent.id], now=now)
        self.leaving = Leaving(agent, self.neighbors, terms.diameter, limit=options.patience.leave_after, now=now)
        self.saving = Saving(agent, now, agent.runner.plan.blocks_kept) if options.saves else None
        self.loss: Loss | None = None
        self.first_step: tuple[int, float] | None = None
        self.has_result, self.has_sent_block, self.stop_reason = options.has_result, False, ""
        self.outputs: list[Output] = []
        self._logged: dict[str, float] = {}

    @property
    def listening_epoch(self) -> int:
        """The epoch that frames are to be decoded in: the network's, if this peer has lost its state of that."""
        return self.agent.epoch if self.loss is None else self.loss.epoch

    def view(self, sender: AgentId) -> TalkView:
        """What a neighbor's Hello or Bye is compared with."""
        agent, first = self.agent, self.neighbors[sender].epoch.first_round
        is_behind = first is not None and first >= agent.k
        return TalkView(
            k=agent.k,
            epoch=self.listening_epoch,
            own_epoch=agent.epoch,
            words_ahead=self.neighbors[sender].epoch.words_ahead[0],
            diameter=self.handshake.terms.diameter,
            is_done=agent.is_done,
            may_be_behind=agent.may_be_behind or is_behind,
            has_gone_on=self.first_step is not None and not self.options.has_result,
            has_heard=agent.has_used(sender),
            is_in_last_phase=agent.runner.is_in_last_phase,
            radius=self.leaving.radius,
            epochs=tuple(each.named_epoch for j, each in self.neighbors.items() if j != sender),
        )

    def enter(self, stage: Stage) -> None:
        """Go to another stage."""
        if stage not in TRANSITIONS[self.stage]:
            raise LocalProtocolError(f"peer {self.agent.id} goes from {self.stage.value} to {stage.value}")
        self.stage, self.stage_began = stage, self.now

    def taken(self) -> list[Output]:
        """What is to be done, in order; it is forgotten here."""
        outputs, self.outputs = self.outputs, []
        return outputs

    def send(self, neighbors: Sequence[AgentId], message: Message) -> None:
        """Send a message to some neighbors."""
        self.outputs.append(Send(neighbors, message, self.agent.epoch))

    def send_block(self, neighbors: Sequence[AgentId], block: Block) -> None:
        """Its numbers to those they are for, nothing to the others."""
        self.has_sent_block = True
        if block.to is None:
            self.send(neighbors, block)
            return
        for is_meant in (True, False):
            if group := [j for j in neighbors if (j in block.to) is is_meant]:
                self.send(group, block.as_told_to(group[0]))

    def say_hello(self, neighbors: Sequence[AgentId], *, is_asking: bool = False, answered: int = 0) -> None:
        """Say Hello to some neighbors."""
        trouble = self.waiting.trouble(self.now)
        self.send(neighbors, self.handshake.hello(is_asking=is_asking, answered=answered, trouble=trouble))

    def send_done(self, neighbors: Sequence[AgentId]) -> None:
        """Say how far around all are done, if this peer is and has its result safe."""
        for bye in self.leaving.byes():
            self.send(neighbors, bye)

    def say_bye(self, reason: str) -> None:
        """Tell all neighbors, unless another process may be the one that they know by this id."""
        if self.own_address.is_unclear:
            return
        told: set[AgentId] = set()
        if self.loss is not None and self.loss.epoch != self.agent.epoch:
            told = self.loss.known_to
            self.outputs.append(Send(tuple(told), Bye(0, reason), self.loss.epoch))
        self.send([j for j in self.agent.neighbors if j not in told], Bye(self.agent.k, reason))

    def save(self) -> None:
        """Begin a checkpoint; log for whom old blocks are kept."""
        if self.saving is None:
            return
        memory = self.saving.begin(self.now)
        self.outputs.append(Save(memory))
        for j, fallback in self.saving.old_fallbacks(memory, self.now).items():
            text = (
                f"peer {j} may have to start again from round {fallback}, {memory.k - fallback} rounds ago, and "
                "this peer keeps its blocks for that: is its disk slow?"
            )
            self.log_seldom(f"fallback {j}", "warning", text)

    def pause(self, neighbor: Neighbor, seconds: float) -> None:
        """Close the connections of a neighbor that has more refused than its budget allows, and say so."""
        self.outputs.append(Pause(neighbor.id, seconds))
        self.log(
            "warning", f"peer {neighbor.id} at {neighbor.link.address}: {neighbor.conduct.describe(self.now)}"
        )

    def log(self, level: Level, text: str) -> None:
        """Write a line to the log."""
        self.outputs.append(Log(level, text))

    def log_seldom(self, what: str, level: Level, text: str) -> None:
        """Write a line to the log, unless one about the same thing was written just now."""
        if self.is_time_for(what):
            self.log(level, text)

    def is_time_for(self, what: str) -> bool:
        """Whether something was not said just now."""
        if self.now - self._logged.get(what, -NOTICES_APART) < NOTICES_APART:
            return False
        self._logged[what] = self.now
        return True
