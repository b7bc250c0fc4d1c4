"""The end of a session: after the last round, on request, or by an error."""

from thanos_peer.errors import DoubleError, ThanosPeerError
from thanos_peer.protocol.conversation import Conversation
from thanos_peer.protocol.handshake import TELL_ITSELF, UNHEARD
from thanos_peer.protocol.outputs import Disconnect, Finished, ResultReady
from thanos_peer.protocol.stages import Stage

# Seconds until a peer is connected to its own address, at the most.
SURE = 1.0


class Ending:
    """Stages SAVING, PROVING, STAYING and FAILING."""

    def __init__(self, talk: Conversation) -> None:
        self._talk = talk
        self._failure: BaseException | None = None
        self._done_saved = 0

    def finish(self) -> None:
        """Save the last round, or where it was told to stop."""
        self._talk.enter(Stage.SAVING)
        if self._talk.saving is None:
            self.after_last_save()
        elif not self._talk.saving.is_under_way:
            # Otherwise it is saved when the checkpoint under way has ended.
            self._talk.save()

    def after_last_save(self) -> None:
        """Go on to the result; or leave, if it was told to stop."""
        if not self._talk.agent.is_done:
            self.leave(self._talk.stop_reason)
            return
        self._talk.enter(Stage.PROVING)
        self.tick_proving()

    def tick_proving(self) -> None:
        """Before it says that it is done, a peer that was so in an earlier life makes sure to be no duplicate."""
        own = self._talk.own_address
        none_can_tell = self._talk.now - self._talk.stage_began >= SURE and not own.is_unclear
        if self._talk.first_step is not None or own.is_ours or none_can_tell:
            self._stay()

    def _stay(self) -> None:
        """Tell all neighbors that this was the last round, and stay until all peers of the network are done."""
        self._talk.enter(Stage.STAYING)
        self._talk.outputs.append(ResultReady())
        self._talk.has_result = True
        self._done_saved = len(self._talk.agent.done)
        self._talk.leaving.begin(self._talk.now, is_resumed=self._talk.first_step is None)
        self._talk.send_done(self._talk.agent.neighbors)
        self.tick_staying()

    def tick_staying(self) -> None:
        """Leave if that is possible; else tell, ask, log and save what is due."""
        leaving, now = self._talk.leaving, self._talk.now
        is_saving = self._talk.saving is not None and self._talk.saving.is_under_way
        if self._talk.stop_reason or (leaving.is_over(now) and not is_saving):
            if not self._talk.stop_reason and (line := leaving.describe_end()):
                self._talk.log("warning", line)
            self.end()
            return
        if leaving.has_grown(now):
            self._talk.send_done(self._talk.agent.neighbors)
        if leaving.is_time_to_speak(now):
            self._talk.log("info", leaving.describe(now))
        if leaving.is_time_to_ask(now):
            self._talk.say_hello(leaving.unsure(now), is_asking=True)
        # Saved, so that another life of this peer need not wait for them.
        if self._done_saved < len(self._talk.agent.done) and not is_saving:
            self._done_saved = len(self._talk.agent.done)
            self._talk.save()
        leaving.note_tick(now)

    def leave(self, reason: str) -> None:
        """End before it is done, and say why."""
        self._talk.say_bye(reason)
        self.end()

    def fail(self, error: BaseException) -> None:
        """End with an error; not before it is clear who speaks."""
        if self._talk.stage in (Stage.FAILING, Stage.ENDED):
            return
        self._talk.enter(Stage.FAILING)
        self._failure = error
        self.tick_failing()

    def tick_failing(self) -> None:
        """End as soon as it is clear that this peer is the one at its address; a duplicate says nothing."""
        error, own = self._failure, self._talk.own_address
        has_waited = self._talk.now - self._talk.stage_began >= 2 * UNHEARD * TELL_ITSELF
        if own.is_taken:
            self._failure = error = self._duplicate()
        elif own.is_unclear and self._talk.first_step is None and not has_waited:
            return
        reason = error.in_short if isinstance(error, ThanosPeerError) else "an unforeseen error"
        if reason:
            self._talk.say_bye(reason)
        self.end()

    def end(self) -> None:
        """This is all."""
        self._talk.enter(Stage.ENDED)
        self._talk.outputs.append(Finished(self._failure))

    def check_address(self) -> None:
        """End if it is another process that the neighbors reach."""
        own, me = self._talk.own_address, self._talk.agent.id
        if own.is_ours and own.link.is_up:
            own.link.is_up = False
            self._talk.outputs.append(Disconnect(me))
        elif not own.is_ours and own.is_time_to_tell(self._talk.now):
            self._talk.send([me], self._talk.handshake.hello())
        if own.is_taken:
            self.fail(self._duplicate())

    def _duplicate(self) -> DoubleError:
        me, address = self._talk.agent.id, self._talk.own_address.link.address
        return DoubleError(
            f"this is not the peer {me} that its neighbors reach: another process listens at {address}; if peer "
            f"{me} runs there, this one is one too many; if not, mend the address in the topology"
        )
