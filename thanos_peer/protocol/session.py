"""The conversation of one peer with its neighbors, without sockets, disk or clock.

Inputs are method calls with the time as an argument; outputs are returned, in order, and performed by
`peer.performer` or by a simulation. One input takes at most one step of the agent. `stages` has the table of
stages and of what each input does in them.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from thanos_peer.block import AgentId
from thanos_peer.errors import LocalProtocolError, RemoteProtocolError, ThanosPeerError
from thanos_peer.protocol.answers import Answers
from thanos_peer.protocol.conversation import Conversation, Options
from thanos_peer.protocol.ending import Ending
from thanos_peer.protocol.epochs import Epochs
from thanos_peer.protocol.handshake import Terms
from thanos_peer.protocol.hearing import Arrived, Hearing
from thanos_peer.protocol.messages import Bye
from thanos_peer.protocol.neighbor import LinkEvent
from thanos_peer.protocol.outputs import Output, Send
from thanos_peer.protocol.rounds import Rounds
from thanos_peer.protocol.stages import Stage

if TYPE_CHECKING:
    from thanos_peer.agent import Agent, Memory

# Seconds between two ticks: during the rounds, and after the last one.
TICK, SHORT_TICK = 0.1, 0.05


class Session:
    """One peer's side of the conversation.

    Args:
        agent: The agent, in whatever round it is; only the session lets it advance.
        terms: What all have to agree on.
        addresses: Where this peer and each of its neighbors listen.
        options: How it behaves.
        now: The time.

    Attributes:
        talk: What is known and sent, to be read.
    """

    def __init__(
        self, agent: "Agent", terms: Terms, addresses: Mapping[AgentId, str], options: Options, now: float
    ) -> None:
        self.talk = Conversation(agent, terms, addresses, options, now)
        self._ending = Ending(self.talk)
        self._epochs = Epochs(self.talk, self._ending)
        self._rounds = Rounds(self.talk, self._epochs, self._ending)
        self._hearing = Hearing(self.talk, self._epochs, self._ending)
        self._answers = Answers(self.talk)
        self._due = {
            Stage.RUNNING: self._rounds.tick,
            Stage.LOST: self._rounds.wait_without_state,
            Stage.PROVING: self._ending.tick_proving,
            Stage.STAYING: self._ending.tick_staying,
            Stage.FAILING: self._ending.tick_failing,
        }

    def start(self, now: float) -> list[Output]:
        """Begin: say Hello to all neighbors."""
        if self.talk.stage is not Stage.RUNNING:
            raise LocalProtocolError(f"peer {self.talk.agent.id} starts while {self.talk.stage.value}")
        self.talk.now = now
        self._rounds.note_round()
        self.talk.say_hello(self.talk.agent.neighbors, is_asking=True)
        if self.talk.agent.is_done:  # in an earlier life
            self._ending.finish()
        else:
            self._rounds.advance()
        return self.talk.taken()

    def receive(self, arrived: Iterable[Arrived], epoch: int, now: float) -> list[Output]:
        """Hear frames, decoded by the codec of some epoch; step if they complete the round."""
        self.talk.now = now
        for decoded, size, at, key_of in arrived:
            if self.talk.stage is Stage.ENDED:
                return self.talk.taken()
            try:
                self._hearing.hear(decoded, size, at, key_of, epoch)
            except RemoteProtocolError as error:
                self._hearing.reject(error, is_proven=key_of is not None)
        if self.talk.stage is not Stage.ENDED:
            self._answers.give()
            self._rounds.advance()
        return self.talk.taken()

    def advance(self, now: float) -> list[Output]:
        """Step if the round is complete."""
        self.talk.now = now
        self._rounds.advance()
        return self.talk.taken()

    def tick(self, now: float) -> list[Output]:
        """Do what is due by the clock."""
        self.talk.now = now
        if self.talk.stage is Stage.ENDED:
            return []
        # The notice comes first, as what follows may end the session, which logs nothing after that.
        if self.talk.saving is not None and (notice := self.talk.saving.notice(now)):
            self.talk.log("warning", notice)
        self._ending.check_address()
        self._rounds.end_late_look_up()
        if (due := self._due.get(self.talk.stage)) is not None:
            due()
        return self.talk.taken()

    def link_changed(self, neighbor: AgentId, event: LinkEvent, now: float) -> None:
        """Note what happened to a connection."""
        known = self.talk.neighbors.get(neighbor)
        (self.talk.own_address.link if known is None else known.link).note(event, now)

    def looked_up(self, unresolved: Mapping[AgentId, str | None], now: float) -> list[Output]:
        """Note which hosts' names do not resolve."""
        self.talk.now = now
        for j, host in unresolved.items():
            self.talk.neighbors[j].link.unresolved = host
        self._rounds.end_look_up()
        return self.talk.taken()

    def saved(self, memory: "Memory", now: float) -> list[Output]:
        """A checkpoint has been written."""
        self.talk.now = now
        if self.talk.saving is not None:
            self.talk.saving.end(memory)
            if self.talk.stage is Stage.SAVING:
                is_latest = (memory.epoch, memory.k) == (self.talk.agent.epoch, self.talk.agent.k)
                (self._ending.after_last_save if is_latest else self.talk.save)()
            else:
                self._rounds.save_if_due()
        self._rounds.advance()
        return self.talk.taken()

    def epoch_failed(self, error: ThanosPeerError, now: float) -> list[Output]:
        """An epoch could not be begun: its start was not saved, or an earlier result not withdrawn."""
        self.talk.now = now
        if self.talk.stage in (Stage.FAILING, Stage.ENDED):
            return []
        if self.talk.agent.k == 0:
            # Neighbors have not heard of the new epoch, so they are told in the one before.
            bye = Bye(0, error.in_short)
            self.talk.outputs.append(Send(self.talk.agent.neighbors, bye, self._epochs.previous))
        self._ending.fail(error)
        return self.talk.taken()

    def save_failed(self, error: ThanosPeerError, now: float) -> list[Output]:
        """A checkpoint could not be written."""
        self.talk.now = now
        if self.talk.saving is not None:
            self.talk.saving.is_under_way = False
        if self.talk.stage is Stage.STAYING:
            # Without this checkpoint, another life of this peer waits a while for those that are done.
            self.talk.log("warning", str(error))
        else:
            self._ending.fail(error)
        return self.talk.taken()

    def stop(self, reason: str, now: float) -> list[Output]:
        """End after the round that it is in."""
        self.talk.now = now
        if self.talk.stage is Stage.ENDED:
            return []
        self.talk.stop_reason = reason
        # A peer without its state has nothing to go on from.
        if self.talk.stage is Stage.LOST:
            self._ending.leave(reason)
        elif self.talk.stage is Stage.RUNNING:
            self._ending.finish()
        elif self.talk.stage is Stage.STAYING:
            self._ending.end()
        return self.talk.taken()

    def fail(self, error: BaseException, now: float) -> list[Output]:
        """End with an error, and tell the neighbors in short."""
        self.talk.now = now
        self._ending.fail(error)
        return self.talk.taken()

    @property
    def frames_needed(self) -> int:
        """How many frames make it worth hearing them: as many as the round lacks."""
        is_running = self.talk.stage is Stage.RUNNING and all(
            each.is_greeted for each in self.talk.neighbors.values()
        )
        return max(1, self.talk.agent.exchange.lacks()) if is_running else 1

    @property
    def seconds_to_tick(self) -> float:
        """When the next tick is due."""
        return TICK if self.talk.stage in (Stage.RUNNING, Stage.LOST) else SHORT_TICK

    @property
    def rejected(self) -> int:
        """How many messages were refused."""
        return self._hearing.rejected

    def misbehaving(self, now: float) -> list[dict[str, float | str]]:
        """The neighbors of which something was refused, what, and for how long their connections are closed."""
        return [
            {"id": j, **each.conduct.facts(now)} for j, each in self.talk.neighbors.items() if each.conduct.refused
        ]

    @property
    def are_all_done(self) -> bool:
        """Whether no peer will need this peer's state again.

        A peer that is told to stop may know that all are done before its neighbors do. Then it keeps its state: it
        may have to tell them once more.
        """
        talk = self.talk
        is_known = talk.agent.is_done and talk.leaving.are_all_done
        return is_known and not (talk.stop_reason and talk.leaving.unsure(talk.now))
