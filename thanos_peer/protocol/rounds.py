"""The rounds of a session: steps, checkpoints beside them, and waiting."""

from collections.abc import Callable
from dataclasses import dataclass

from thanos_peer.errors import MasksMismatchError, NeighborLostError, RunOverError, ThanosPeerError
from thanos_peer.protocol.conversation import Conversation
from thanos_peer.protocol.ending import Ending
from thanos_peer.protocol.epochs import Epochs
from thanos_peer.protocol.neighbor import Neighbor
from thanos_peer.protocol.outputs import AdvanceSoon, EnteredRound, LookUp, Save
from thanos_peer.protocol.stages import Stage

# Seconds that a name server may take to answer.
LOOK_UP = 1.0
# Seconds for which a peer waits for a new epoch where masks do not cancel: a peer that lost its disk says so soon.
MISMATCH = 60.0


@dataclass
class PendingLookUp:
    """Names are being looked up; when they are known, or it takes too long, `then` goes on."""

    until: float
    then: Callable[[], None]


@dataclass(frozen=True)
class Held:
    """A round that cannot be taken, as masks of a sum do not cancel: another peer may begin a new epoch."""

    epoch: int
    k: int
    since: float
    error: MasksMismatchError


class Rounds:
    """Stage RUNNING, and waiting for neighbors."""

    def __init__(self, talk: Conversation, epochs: Epochs, ending: Ending) -> None:
        self._talk, self._epochs, self._ending = talk, epochs, ending
        self._pending: PendingLookUp | None = None
        self._last_held: Held | None = None

    def advance(self) -> None:
        """Step if the round is complete."""
        agent = self._talk.agent
        if self._talk.stage is not Stage.RUNNING or not agent.exchange.is_complete() or agent.is_done:
            return
        if self._held() is not None or (self._talk.saving is not None and self._talk.saving.must_wait):
            return
        try:
            self._step()
        except MasksMismatchError as error:
            self._last_held = Held(agent.epoch, agent.k, self._talk.now, error)
            self._talk.log("warning", f"{error}; this peer waits {MISMATCH:g} s for that")
        except ThanosPeerError as error:
            self._ending.fail(error)

    def _held(self) -> Held | None:
        """Why the round that this peer is in cannot be taken; None if it can."""
        held, agent = self._last_held, self._talk.agent
        return held if held is not None and (held.epoch, held.k) == (agent.epoch, agent.k) else None

    def _wait_for_epoch(self, held: Held) -> None:
        """Begin an epoch, if that is wanted, or end when none has begun for long."""
        if self._talk.options.restarts_tracking:
            self._epochs.make_up_for(held.error)
        elif self._talk.now - held.since >= MISMATCH:
            self._ending.fail(held.error)

    def _step(self) -> None:
        """Go to the next round, and tell the neighbors."""
        agent = self._talk.agent
        agent.advance()
        self.note_round()
        if self._talk.waiting.has_spoken:
            self._talk.log("info", f"all are here, going on with round {agent.k}")
        self._talk.waiting.begin_round(self._talk.now)
        if self._talk.first_step is None:
            self._talk.first_step = agent.k, self._talk.now
        if agent.is_done:
            self._ending.finish()
            return
        if agent.k == 1 and self._talk.saving is not None:
            # Saved at once: with which births of its neighbors this peer has begun must not change once they hear
            # what follows from their first blocks.
            self._talk.outputs.append(Save(agent.memory(), is_urgent=True))
        self.save_if_due()
        if self._epochs.ends_otherwise():
            return
        self._talk.send_block(agent.neighbors, agent.block)
        if ahead := [j for j, each in self._talk.neighbors.items() if self._is_ahead(each)]:
            # These neighbors have sent their blocks long ago, and will not send them unasked.
            self._talk.say_hello(ahead, is_asking=True)
        # If all neighbors are a round ahead, the clock and the signals get their turn first.
        if agent.exchange.is_complete():
            self._talk.outputs.append(AdvanceSoon())

    def _is_ahead(self, neighbor: Neighbor) -> bool:
        """Whether a neighbor had come to this round or further when it said Hello, and its block is missing."""
        known = neighbor.epoch
        if known.round is None:
            return False
        if known.round < self._talk.agent.k:
            known.round = None
            return False
        return self._talk.agent.exchange.is_missing(neighbor.id)

    def note_round(self) -> None:
        """Pass on the state of the phase that minimises; log which phase begins."""
        runner = self._talk.agent.runner
        if runner.round == 0 and len(runner.phases) > 1:
            self._talk.log("info", f"phase {runner.phase.name} begins, round {runner.k}")
        if not runner.is_preparing and (runner.round == 0 or runner.is_in_main_phase):
            self._talk.outputs.append(EnteredRound())

    def save_if_due(self) -> None:
        """Begin a checkpoint beside the rounds."""
        talk = self._talk
        if talk.stage is Stage.RUNNING and talk.saving is not None and talk.saving.is_due(talk.now):
            talk.save()

    def tick(self) -> None:
        """Save, ask, log or give up, as is due."""
        self.save_if_due()
        if self._talk.agent.exchange.missing():
            self._epochs.ends_otherwise()
            # Where it has not ended, and may not begin an epoch yet, it waits, and logs that it does.
            if self._talk.stage is Stage.RUNNING:
                self.wait()
        elif (held := self._held()) is not None:
            self._wait_for_epoch(held)
        self.advance()

    def wait_without_state(self) -> None:
        """The same while a neighbor says that the state of this peer is lost, for as long as it says so."""
        self.wait()
        if self._talk.stage is Stage.LOST:
            self._epochs.doubt_loss()

    def wait(self) -> None:
        """Ask the neighbors that are missing, log it, or give up, as is due."""
        waiting, give_up, now = self._talk.waiting, self._talk.options.patience.give_up, self._talk.now
        waiting.note_tick(now)
        if waiting.is_time_to_ask(now):
            # A peer without its state needs a word from every neighbor, also from those whose block it has.
            agent = self._talk.agent
            self._epochs.ask(agent.exchange.missing() if self._talk.loss is None else agent.neighbors)
        if waiting.is_time_to_speak(now):
            self._begin_look_up(self._log_waiting)
        if over := waiting.why_it_is_over(now, has_result=self._talk.has_result):
            self._ending.fail(RunOverError(over))
        elif give_up is not None and waiting.seconds_awake >= give_up:
            self._begin_look_up(self._give_up)

    def _log_waiting(self) -> None:
        if self._talk.loss is not None:
            self._talk.log("warning", self._talk.loss.describe())
        for line in self._talk.waiting.lines(self._talk.now):
            self._talk.log("warning", line)

    def _give_up(self) -> None:
        waiting, give_up = self._talk.waiting, self._talk.options.patience.give_up
        if give_up is not None and waiting.seconds_awake >= give_up and (lines := waiting.lines(self._talk.now)):
            self._ending.fail(NeighborLostError(f"gave up after {give_up:g} s: {'; '.join(lines)}"))

    def _begin_look_up(self, then: Callable[[], None]) -> None:
        """Look up the hosts of neighbors that were never connected, and go on when that is known, or too slow."""
        if self._pending is not None and self._pending.then == then:
            return
        self._pending = PendingLookUp(self._talk.now + LOOK_UP, then)
        if unconnected := self._talk.waiting.unconnected():
            self._talk.outputs.append(LookUp(unconnected))
        else:
            self.end_look_up()

    def end_late_look_up(self) -> None:
        """Go on without the names if they take too long."""
        if self._pending is not None and self._talk.now >= self._pending.until:
            self.end_look_up()

    def end_look_up(self) -> None:
        """Go on with what the names were wanted for."""
        if (look_up := self._pending) is not None:
            self._pending = None
            if self._talk.stage in (Stage.RUNNING, Stage.LOST):
                look_up.then()
