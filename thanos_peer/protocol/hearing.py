"""What neighbors say: each message is noted or refused; questions among them wait for `answers.py`."""

from collections.abc import Mapping
from typing import NamedTuple

from thanos_peer.block import AgentId, Block
from thanos_peer.errors import HandshakeError, PhaseMismatchError, RemoteProtocolError, RunOverError
from thanos_peer.protocol.conversation import Conversation
from thanos_peer.protocol.ending import Ending
from thanos_peer.protocol.epochs import Epochs
from thanos_peer.protocol.honest import BYE_RULES, HELLO_RULES, Rule, check
from thanos_peer.protocol.messages import SPENT, Bye, Hello, Message
from thanos_peer.protocol.neighbor import Neighbor
from thanos_peer.protocol.outputs import Send
from thanos_peer.protocol.wire import VERSION, Decoded, VersionMismatchError


class Arrived(NamedTuple):
    """A frame as it was decoded.

    Attributes:
        decoded: Its sender and message, or what is wrong with it.
        size: Its bytes.
        at: When it came.
        key_of: The peer whose key it was sent with; None without keys.
    """

    decoded: Decoded | RemoteProtocolError
    size: int
    at: float
    key_of: AgentId | None


class Hearing:
    """Hears messages.

    Attributes:
        rejected: How many messages were refused.
    """

    def __init__(self, talk: Conversation, epochs: Epochs, ending: Ending) -> None:
        self._talk, self._epochs, self._ending = talk, epochs, ending
        self.rejected = 0

    def hear(
        self, decoded: Decoded | RemoteProtocolError, size: int, at: float, key_of: AgentId | None, epoch: int
    ) -> None:
        """One message; of a block, as nearly all messages are, soon passed to the agent."""
        if key_of is not None:
            check_sender(decoded, key_of)
        if isinstance(decoded, RemoteProtocolError):
            raise decoded
        sender, message = decoded
        if not isinstance(message, Hello) and epoch != self._talk.listening_epoch:
            # A new epoch has begun since the frame was decoded.
            return
        neighbor = self._talk.neighbors.get(sender)
        if neighbor is None:
            self._hear_stranger(sender, message)
            return
        counters = neighbor.counters
        counters.messages_received += 1
        counters.bytes_received += size
        neighbor.heard = at, message.k
        if isinstance(message, Block):
            if not neighbor.is_greeted:
                # The block was meant for an earlier life of this peer.
                return
            if self._talk.loss is not None:
                self._epochs.make_up_for_loss(self._talk.loss, message)
            elif (
                self._talk.handshake.is_of_birth(sender, message.birth)
                and self._hear_block(sender, message)
                and at > self._talk.waiting.since
            ):
                counters.seconds_waited += at - self._talk.waiting.since
        elif isinstance(message, Hello):
            self._hear_hello(neighbor, message)
        else:
            self._hear_bye(neighbor, message)

    def _hear_block(self, sender: AgentId, block: Block) -> bool:
        """Returns whether it was one that this round lacked."""
        try:
            return self._talk.agent.receive(sender, block)
        except PhaseMismatchError:
            known = self._talk.neighbors[sender].epoch
            if known.mismatch is None or known.mismatch[0] != block.k:
                known.mismatch = block.k, self._talk.now
            self._epochs.make_up_for_false_end(sender)
            raise

    def _hear_stranger(self, sender: AgentId, message: Message) -> None:
        """Refuse it, unless it is a Hello to this peer's own address, most probably from itself."""
        if sender != self._talk.agent.id or not isinstance(message, Hello):
            raise RemoteProtocolError(neighbor=sender, k=message.k, what="is no neighbor of this peer")
        if message.life == self._talk.handshake.terms.life:
            self._talk.own_address.is_ours = True
        else:
            self._warn_of_duplicate()

    def _warn_of_duplicate(self) -> None:
        me = self._talk.agent.id
        text = f"another peer {me} runs somewhere else; it gets no answers there, and ends when it has noticed"
        self._talk.log_seldom("double", "warning", text)

    def _check(self, rules: Mapping[str, Rule], neighbor: Neighbor, message: Hello | Bye) -> None:
        """Refuse what no honest neighbor says."""
        check(rules, self._talk.view(neighbor.id), neighbor.id, message)

    def _hear_bye(self, neighbor: Neighbor, bye: Bye) -> None:
        """A neighbor has its result, or leaves without."""
        self._check(BYE_RULES, neighbor, bye)
        if bye.is_done and bye.reason != SPENT:
            neighbor.epoch.last_round = bye.k
            if self._epochs.ends_otherwise():
                return
        if self._talk.leaving.hear(neighbor, bye, self._talk.now):
            self._talk.send_done(self._talk.agent.neighbors)
        if bye.reason == SPENT:
            neighbor.is_spent = True
        elif not bye.is_done:
            self._talk.log_seldom(
                f"left {neighbor.id}", "warning", f"peer {neighbor.id} left in round {bye.k}: {bye.reason}"
            )
            return
        if self._talk.loss is not None and self._talk.agent.done.issuperset(self._talk.agent.neighbors):
            self._ending.fail(
                RunOverError(
                    "the state of this peer is lost, and the run is over at all of its neighbors, "
                    f"peers {', '.join(map(str, self._talk.agent.neighbors))}"
                )
            )

    def _hear_hello(self, neighbor: Neighbor, hello: Hello) -> None:
        self._talk.handshake.forget_features_of(neighbor, hello)
        difference = self._talk.handshake.difference(neighbor, hello)
        if difference is not None:
            self._refuse(neighbor.id, difference)
            return
        self._note_epoch(neighbor, hello.epoch)
        is_replaced = self._talk.handshake.is_replaced(neighbor.id, hello)
        if is_replaced and not self._calls_new_life_lost(hello):
            self._warn_of_replacement(neighbor.id)
            neighbor.question = hello
            return
        self._check(HELLO_RULES, neighbor, hello)
        if not is_replaced:
            self._talk.handshake.note_birth(neighbor.id, hello)
        self._greet(neighbor, hello)
        if hello.epoch < self._talk.agent.epoch:
            neighbor.question = hello
        elif self._talk.handshake.is_lost(neighbor, hello, has_gone_on=self._talk.first_step is not None):
            self._epochs.lose_state(neighbor.id, hello)
        elif self._is_in_epoch_of(neighbor, hello):
            known = neighbor.epoch
            known.round = hello.k
            known.first_round = hello.k if known.first_round is None else known.first_round
            if hello.is_asking:
                neighbor.question = hello

    def _note_epoch(self, neighbor: Neighbor, epoch: int) -> None:
        """Note which epoch a neighbor names, and how often it was a later one: no faster than epochs may begin."""
        neighbor.named_epoch, now = epoch, self._talk.now
        count, since = neighbor.epoch.words_ahead
        if epoch > self._talk.agent.epoch and now - since >= self._talk.options.epochs_apart:
            neighbor.epoch.words_ahead = count + 1, now

    def _calls_new_life_lost(self, hello: Hello) -> bool:
        """Whether a neighbor says that the state of this peer is lost, which it has not gone on from yet.

        If each of two knows another state of the other one, it is the one that has just started which is wrong.
        """
        talk = self._talk
        is_answer = hello.answered == talk.handshake.terms.life and hello.epoch == talk.agent.epoch
        return is_answer and talk.first_step is None and hello.oldest > talk.agent.k

    def _warn_of_replacement(self, j: AgentId) -> None:
        text = (
            f"peer {j} has begun anew, or with other samples, but its earlier blocks have been used: it is told "
            "that its state is lost; bring that back, start it with --restart-tracking, or all peers with --fresh"
        )
        self._talk.log_seldom(f"replaced {j}", "warning", text)

    def _is_in_epoch_of(self, neighbor: Neighbor, hello: Hello) -> bool:
        """Whether this peer is in the epoch of a Hello, having begun it if it was later than its own."""
        if hello.epoch == self._talk.agent.epoch:
            return True
        if hello.answered != self._talk.handshake.terms.life:
            neighbor.question = hello
        elif self._talk.leaving.are_all_done or any(each.is_spent for each in self._talk.neighbors.values()):
            self._say_that_the_run_is_over(neighbor, hello)
        elif self._epochs.may_begin(hello.epoch):
            # If this peer may begin it later only, the neighbor says so again.
            self._epochs.begin_epoch(hello.epoch, None, f"so says peer {neighbor.id}")
        return hello.epoch == self._talk.agent.epoch

    def _say_that_the_run_is_over(self, neighbor: Neighbor, hello: Hello) -> None:
        """Answer a neighbor that was told of a later epoch when all were done: none of them takes part in it."""
        if self._talk.is_time_for(f"late epoch {neighbor.id}"):
            text = f"peer {neighbor.id} says that epoch {hello.epoch} has begun, but all peers are done: ignored"
            self._talk.log("warning", text)
            self._talk.outputs.append(Send((neighbor.id,), Bye(self._talk.agent.k, SPENT), 0))

    def _greet(self, neighbor: Neighbor, hello: Hello) -> None:
        """Note a Hello that agrees with ours."""
        j, life = neighbor.id, self._talk.handshake.terms.life
        neighbor.trouble, neighbor.is_greeted = (self._talk.agent.k, hello.trouble), True
        # Of an earlier epoch it may be done, without anything to say in this one.
        neighbor.is_spent &= hello.epoch < self._talk.agent.epoch
        is_behind = hello.epoch == self._talk.agent.epoch and hello.k < self._talk.agent.k
        self._talk.leaving.come_back(neighbor, self._talk.now, is_behind=is_behind)
        if self._talk.handshake.is_started_again(neighbor, hello):
            self._talk.log_seldom(f"again {j}", "info", f"peer {j} has started again, in round {hello.k}")
        elif hello.life != neighbor.lives[-1]:
            text = f"two peers say that they are peer {j}; stop the one that is not at its address"
            self._talk.log_seldom(f"double {j}", "warning", text)
        if hello.answered == life:
            neighbor.has_answered = True
        elif hello.answered and neighbor.has_answered:
            # Answers come in order, so this is none to an earlier life of this peer.
            self._warn_of_duplicate()
        if self._talk.handshake.learns_features(neighbor, hello):
            self._talk.say_hello(self._talk.agent.neighbors)

    def reject(self, error: RemoteProtocolError, *, is_proven: bool) -> None:
        """Count what was refused, and log it now and then; a neighbor of another version is the end.

        Args:
            error: Why it was refused.
            is_proven: Whether a key proves which peer has sent it.
        """
        neighbor = None if error.neighbor is None else self._talk.neighbors.get(error.neighbor)
        if isinstance(error, VersionMismatchError) and neighbor is not None and not neighbor.is_greeted:
            differ = f"protocol version: {VERSION} here, {error.theirs} there; give both the same version"
            self._refuse(neighbor.id, differ)
            return
        self.rejected += 1
        text = f"refused {self.rejected} message(s) so far; the latest from {error}"
        self._talk.log_seldom("rejected", "warning", text)
        if neighbor is not None:
            seconds = neighbor.conduct.refuse(str(error), self._talk.now, is_proven=is_proven)
            if seconds:
                self._talk.pause(neighbor, seconds)

    def _refuse(self, sender: AgentId, difference: str) -> None:
        """Send a Hello, so that the neighbor refuses this peer too, and end."""
        self._talk.say_hello([sender])
        me, address = self._talk.agent.id, self._talk.own_address.link.address
        self._ending.fail(
            HandshakeError(
                f"peer {me} ({address}) and peer {sender} ({self._talk.neighbors[sender].link.address}) "
                f"cannot run together; they differ in {difference}"
            )
        )


def check_sender(decoded: Decoded | RemoteProtocolError, key_of: AgentId) -> None:
    """Raise RemoteProtocolError if a message does not come from the peer that it names as its sender."""
    claimed = decoded.neighbor if isinstance(decoded, RemoteProtocolError) else decoded[0]
    if claimed != key_of:
        what = str(decoded) if claimed is None else f"speaks in the name of peer {claimed}"
        raise RemoteProtocolError(neighbor=key_of, k=None, what=what)
