"""Lost state, and epochs: how the network starts its tracking again."""

from collections.abc import Sequence
from dataclasses import replace

from thanos_peer.block import PAIR, AgentId, Block, Matrix
from thanos_peer.errors import EndMismatchError, MasksMismatchError, StateLostError
from thanos_peer.protocol.conversation import Conversation, Loss
from thanos_peer.protocol.ending import Ending
from thanos_peer.protocol.messages import Hello
from thanos_peer.protocol.neighbor import EpochRecord
from thanos_peer.protocol.outputs import ResultWithdrawn, Save, Send
from thanos_peer.protocol.stages import Stage

# Seconds after which the word that the state of this peer is lost is forgotten, if it is not said again.
LOSS_FORGOTTEN = 10.0
# Seconds for which a neighbor sends blocks of another phase until it is taken to have ended one elsewhere.
DIFFERS = 10.0


class Epochs:
    """Stage LOST, and the beginning of a new epoch.

    Attributes:
        previous: The epoch before this one, which neighbors may still be in.
    """

    def __init__(self, talk: Conversation, ending: Ending) -> None:
        self._talk, self._ending = talk, ending
        self._began = talk.now - talk.options.epochs_apart
        self.previous = talk.agent.epoch

    def lose_state(self, sender: AgentId, hello: Hello) -> None:
        """Ask for a neighbor's X, to restart the tracking with, or to hear that the run is over.

        The agent and its epoch stay what they are: what others are told and what is saved has to be true even if
        what that neighbor says is not.
        """
        if self._talk.loss is not None and hello.epoch <= self._talk.loss.epoch:
            if hello.epoch == self._talk.loss.epoch:
                self._talk.loss.known_to.add(sender)
                self._talk.loss.heard = self._talk.now
            return
        if self._talk.stage not in (Stage.RUNNING, Stage.LOST):
            return
        what = f"has nothing left from before round {hello.oldest}"
        if self._talk.agent.k == 0 or hello.oldest > max(hello.k, 1):
            what = "has gone on with blocks of another state of this peer, or of other samples"
        error = StateLostError(
            f"this peer is in round {self._talk.agent.k}, but peer {sender} is in round {hello.k} and {what}; "
            "the state of this peer is lost, and no neighbor can make it up: bring its state directory back, or "
            "start it with --restart-tracking, and all peers start again (sound, but other bits): from their "
            "current X, unless the network prepares its data or start; if the run was to begin anew, start all "
            "peers with --fresh"
        )
        self._talk.loss = Loss(error, hello.epoch, {sender}, self._talk.now)
        if self._talk.stage is Stage.RUNNING:
            self._talk.enter(Stage.LOST)
        self.ask([sender])

    def doubt_loss(self) -> None:
        """Go on with the state that is there, if those that called it lost say so no more, and send no block."""
        loss, now = self._talk.loss, self._talk.now
        if loss is None or now - loss.heard < LOSS_FORGOTTEN:
            return
        text = f"{loss.describe()}, but no more, and without a block: this peer goes on with the state that it has"
        self._talk.log("warning", text)
        self._talk.loss = None
        self._talk.enter(Stage.RUNNING)
        self._talk.say_hello(self._talk.agent.neighbors, is_asking=True)

    def ask(self, neighbors: Sequence[AgentId]) -> None:
        """Ask for blocks; those that have named the epoch that this peer has lost, for any block of that."""
        if (loss := self._talk.loss) is not None:
            hello = self._talk.handshake.hello(is_asking=True)
            # In the lost epoch this peer is in no round.
            if loss.epoch != self._talk.agent.epoch:
                hello = replace(hello, k=0, oldest=0, epoch=loss.epoch)
            self._talk.outputs.append(Send(tuple(loss.known_to), hello, loss.epoch))
            neighbors = [j for j in neighbors if j not in loss.known_to]
        if neighbors:
            self._talk.say_hello(neighbors, is_asking=True)

    def make_up_for_loss(self, loss: Loss, block: Block) -> None:
        """Begin a new epoch with a neighbor's X; or end, if that is not wanted."""
        if not self._talk.options.restarts_tracking:
            self._ending.fail(loss.error)
        elif self.may_begin(loss.epoch + 1):
            # If it may not begin one yet, it asks for the block again later.
            X = block.X if block.kind == PAIR else None
            self.begin_epoch(loss.epoch + 1, X, "this peer has lost its state")

    def ends_otherwise(self) -> bool:
        """Whether a neighbor is in another phase than this peer, or done with the round that this peer is in.

        Such a neighbor sends no block that fits. Honest peers all end a phase with the same round: one was told of
        an end that others have not heard of in time. So this peer ends too, or begins a new epoch with all.
        """
        talk, agent = self._talk, self._talk.agent
        ended = [j for j, each in talk.neighbors.items() if each.epoch.ends_otherwise(agent.k, talk.now - DIFFERS)]
        if talk.stage is not Stage.RUNNING or agent.is_done or not ended:
            return False
        # If this peer may not begin an epoch yet, it is told of the end again.
        if talk.options.restarts_tracking:
            self.make_up_for_false_end(ended[0])
        else:
            self._ending.fail(EndMismatchError(neighbor=ended[0], k=agent.k))
        return True

    def make_up_for_false_end(self, neighbor: AgentId) -> None:
        """Begin a new epoch, if that is wanted, because a neighbor ends in another round than this peer."""
        if self._talk.options.restarts_tracking:
            self._make_up(f"peer {neighbor} ends in another round than this one")

    def make_up_for(self, error: MasksMismatchError) -> None:
        """Begin a new epoch, in which all have new masks."""
        self._make_up(str(error))

    def _make_up(self, why: str) -> None:
        if self.may_begin(epoch := self._talk.agent.epoch + 1):
            self.begin_epoch(epoch, None, why)

    def may_begin(self, epoch: int) -> bool:
        """Whether an epoch may begin now: not one that an earlier life has begun, nor soon after the latest.

        All neighbors have to have answered: one may know that an earlier life has begun it, or of a later one.
        """
        if self._talk.stop_reason or self._talk.stage in (Stage.FAILING, Stage.ENDED):
            return False
        if (silent := self._talk.handshake.yet_to_answer()) and self._talk.is_time_for("epoch"):
            self._talk.say_hello(silent, is_asking=True)
        is_first_time = self._talk.loss is None or epoch > self._talk.loss.epoch
        return is_first_time and not silent and self._talk.now - self._began >= self._talk.options.epochs_apart

    def begin_epoch(self, epoch: int, X: Matrix | None, why: str) -> None:
        """Start the tracking again in a new epoch, and tell all neighbors."""
        agent, runner = self._talk.agent, self._talk.agent.runner
        where = "from the current X" if runner.minimises_first else f"with phase {runner.phases[0].name}"
        self._talk.log("warning", f"the tracking starts again {where}, epoch {epoch}: {why}")
        self._talk.loss, self._began, self.previous = None, self._talk.now, agent.epoch
        if self._talk.first_step is not None:
            self._talk.first_step = 0, self._talk.now
        if self._talk.has_result or self._talk.stage in (Stage.SAVING, Stage.PROVING, Stage.STAYING):
            self._talk.outputs.append(ResultWithdrawn())
            self._talk.has_result = False
        self._talk.enter(Stage.RUNNING)
        agent.restart_tracking(epoch, X, self._talk.handshake.birth_in(epoch))
        self._talk.handshake.began = epoch
        for neighbor in self._talk.neighbors.values():
            neighbor.epoch = EpochRecord(words_ahead=(0, self._talk.now))
        self._talk.leaving.begin_epoch()
        self._talk.waiting.begin_round(self._talk.now)
        if self._talk.saving is not None:
            self._talk.outputs.append(Save(self._talk.saving.begin_epoch(), is_urgent=True))
        self._talk.say_hello(agent.neighbors, is_asking=True)
