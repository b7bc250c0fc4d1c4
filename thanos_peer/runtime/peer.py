"""One peer: an agent, its links, and a clock. Publish, wait, take, step.

All of a round happens in the reader callback of `Links`: frames are put aside until there are as many as the round
lacks, then they are decoded together, the agent hears them, and when none is missing any more the agent advances
and its new block goes out. There is no future per message. A timer ticks beside it: it says Hello again to whoever
is missing, says aloud for whom it waits, and gives up when told to.

Handshake: a neighbor is sent blocks only once its Hello has arrived and agrees with ours in protocol version,
topology digest, shape, precision and names of features. So nobody finishes round 0 with a stranger. A peer says
Hello to itself too, at its address in the topology file: one that does not hear itself there is a double.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from thanos_peer import __version__
from thanos_peer.agent import Agent
from thanos_peer.block import PAIR, AgentId, Block, Matrix
from thanos_peer.errors import (
    CheckpointError,
    DoubleError,
    HandshakeError,
    NeighborLostError,
    RemoteProtocolError,
    RunOverError,
    StateLostError,
    ThanosPeerError,
)
from thanos_peer.protocol.wire import (
    LARGEST_ROUND,
    SPENT,
    VERSION,
    Bye,
    Codec,
    Hello,
    Message,
    VersionMismatchError,
)
from thanos_peer.runtime.acquaintance import TELL_ITSELF, UNHEARD, Acquaintances, Notices, OwnAddress
from thanos_peer.runtime.checkpoint import CheckpointStore
from thanos_peer.runtime.door import check_speaker
from thanos_peer.runtime.farewell import Farewell
from thanos_peer.runtime.links import Links
from thanos_peer.runtime.loss import Loss
from thanos_peer.runtime.questions import Questions
from thanos_peer.runtime.saving import Saving
from thanos_peer.runtime.security import Credentials
from thanos_peer.runtime.traffic import Traffic
from thanos_peer.runtime.turns import lengthen_turns
from thanos_peer.runtime.waiting import Patience, Waiting
from thanos_peer.topology import Topology

log = logging.getLogger("thanos_peer")

TICK = 0.1
SURE = 1.0  # seconds that it takes to be connected to oneself, at the most
EPOCHS_APART = 2.0  # seconds, at the least: each costs a checkpoint and a line at every peer
LINGER = 3.0  # seconds that the last words get to leave: more than between two tries to connect
LOOK_UP = 1.0  # seconds that a name server may take


class Peer:
    """Runs one agent over the network.

    Args:
        topology: What all agree on.
        agent: The agent, in whatever round it is.
        bind: Where to listen.
        on_round: Called with the agent in every round of the main phase, round 0 included.
        patience: How long to wait.
        credentials: The keys that it and its neighbors know each other by; None speaks in the clear.
        store: Where the agent's memory is saved; None saves nothing.
        restarts_tracking: Whether to have the network start its tracking again if this peer's state is lost.
        features: The digest of the names of its features; empty if they have none.
        has_result: Whether an earlier life has written the result: then it waits for nobody that is long gone.
    """

    def __init__(  # noqa: PLR0913 - what a daemon has to say about its peer
        self,
        topology: Topology,
        agent: Agent,
        *,
        bind: str,
        on_round: Callable[[Agent], None],
        patience: Patience,
        credentials: Credentials | None = None,
        store: CheckpointStore | None = None,
        restarts_tracking: bool = False,
        features: str = "",
        has_result: bool = False,
    ) -> None:
        self._saving = None
        if store is not None:
            self._saving = Saving(agent, store, topology=topology, on_saved=self._on_saved)
        self._topology, self.agent, self._bind, self._on_round = topology, agent, bind, on_round
        self._patience, self._credentials = patience, credentials
        self._restarts_tracking, self._has_result = restarts_tracking, has_result
        self._loss: Loss | None = None  # while this peer has no state to take part in the network's epoch with
        self._codec = self._make_codec(agent.epoch)
        self._notices = Notices()
        self._known = Acquaintances(topology, agent, self._notices, features)
        self._questions = Questions()
        self._own_address = OwnAddress()
        self._frames_here: list[bytes] = []  # arrived, but not heard yet
        self._arrivals: list[float] = []  # when each of them did
        self._speakers: list[AgentId | None] = []  # and whose key it came with, if there are keys
        self._enough = 1  # how many of them make it worth hearing them
        self.traffic = Traffic(agent.neighbors)
        self.rejected = 0
        self._stop_reason: str | None = None
        self._is_revived = False
        self._epoch_began = -EPOCHS_APART
        self._first_step: tuple[int, float, float] | None = None  # which, when, and how much CPU had been used
        self._links: Links
        self._waiting: Waiting
        self._farewell: Farewell
        self._ended: asyncio.Future[None]
        self._on_anew: Callable[[], None]

    async def run(self, on_done: Callable[[], None], on_anew: Callable[[], None]) -> None:
        """Run to the end: the last round, a request to stop, or an error.

        Args:
            on_done: Called when the last round is reached, before it is said to the neighbors.
            on_anew: Called if after that the network begins a new epoch, and this peer with it.

        Raises:
            ThanosPeerError: The address cannot be used, neighbors do not agree, one is lost, or a step diverges.
        """
        self._on_anew = on_anew
        self._open()
        ticking = asyncio.create_task(self._tick())
        last_words = "an unforeseen error"
        try:
            self._begin()
            await self._finish(ticking, on_done)
            while self._has_begun_anew():
                await self._finish(ticking, on_done)
            last_words = ""
        except ThanosPeerError as error:
            last_words = error.in_short
            await self._be_clear_who_speaks(error)
            raise
        finally:
            if last_words:
                self._broadcast_bye(last_words)
            ticking.cancel()
            self._links.close(linger=LINGER)

    def _open(self) -> None:
        """Open the sockets: one to listen on, one to each neighbor, and one to where neighbors find this peer."""
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        addresses = {j: self._topology.peers[j].address for j in (*self.agent.neighbors, self.agent.id)}
        self._links = Links(
            self._bind,
            addresses,
            largest_frame=self._codec.largest_frame,
            on_frames=self._on_frames,
            credentials=self._credentials,
        )
        lengthen_turns()  # now that ZeroMQ's thread is there, which is to have short ones
        states, diameter = self._links.states, self._topology.graph.diameter
        self._waiting = Waiting(self.agent, states, addresses[self.agent.id])
        self._farewell = Farewell(self.agent, diameter, states, self._patience.farewell)
        loop.set_exception_handler(self._on_unforeseen)

    def _begin(self) -> None:
        log.info("listening on %s, round %d", self._bind, self.agent.k)
        self._note_round()
        self._say_hello(self.agent.neighbors, is_asking=True)
        if self.agent.is_done:  # in an earlier life
            self._end()
        self._advance()

    async def _finish(self, ticking: "asyncio.Task[None]", on_done: Callable[[], None]) -> None:
        """Wait for the end, make the result safe, and take leave."""
        ended = self._ended
        await asyncio.wait({ended, ticking}, return_when=asyncio.FIRST_COMPLETED)
        self._raise_what_went_wrong(ticking, ended)
        if self._saving is not None and self._loss is None:  # else there is nothing to go on from
            await self._saving.finish()
        if self.agent.is_done:
            await self._be_sure_of_address()
        if self.agent.is_done:  # still: a new epoch may have begun
            on_done()
            await self._stay(ticking)
        elif not self._has_begun_anew():
            self._broadcast_bye(self._stop_reason or "stopped")

    def _raise_what_went_wrong(self, *watched: "asyncio.Future[None]") -> None:
        for each in (*watched, self._ended):
            if each.done():
                each.result()

    def _has_begun_anew(self) -> bool:
        """Whether the network has begun a new epoch while this peer, done with the last, was taking leave."""
        return self._is_revived and not self.agent.is_done and self._stop_reason is None

    def stop(self, reason: str) -> None:
        """Ask it to end after the round it is in."""
        self._stop_reason = reason
        self._end()

    # ------------------------------------------------------------------ hearing

    def _on_frames(self, frames: list[bytes], speakers: list[AgentId | None]) -> None:
        """Put aside what has arrived until it may complete the round: many at once are cheaper than one by one."""
        self._frames_here += frames
        self._speakers += speakers
        self._arrivals += [time.monotonic()] * len(frames)
        if len(self._frames_here) >= self._enough:
            self._hear_all()

    def _hear_all(self) -> None:
        """Hear what has been put aside, and step if that completes the round."""
        frames, arrivals, speakers = self._frames_here, self._arrivals, self._speakers
        self._frames_here, self._arrivals, self._speakers = [], [], []
        codec = self._ear
        for said, frame, now, speaker in zip(codec.decode_all(frames), frames, arrivals, speakers, strict=True):
            try:
                if speaker is not None:
                    check_speaker(said, speaker)
                if isinstance(said, RemoteProtocolError):
                    raise said
                sender, message = said
                if isinstance(message, Block) and self._loss is None:
                    if (
                        self._codec is codec
                    ):  # else a new epoch has begun meanwhile, and this was said in the old one
                        self._hear_block(sender, message, len(frame), now)
                elif isinstance(message, Hello) or self._ear is codec:
                    self._hear(sender, message, len(frame), now)
            except RemoteProtocolError as error:
                self._reject(error)
        for neighbor, hello in self._questions.take():
            self._reply(neighbor, hello)
        self._advance()
        is_running = len(self._known.greeted) == len(self.traffic) and not self.agent.is_done
        self._enough = max(1, self.agent.lacks) if is_running else 1

    def _is_new(self, sender: AgentId) -> bool:
        """Whether it is a neighbor that has not been met yet."""
        return sender in self.traffic and sender not in self._known.greeted

    def _hear_block(self, sender: AgentId, block: Block, size: int, now: float) -> None:
        """A block, as nearly all messages are; it is for the agent if the neighbor has been met."""
        counters, waiting = self.traffic.heard_from(sender), self._waiting
        if counters is None or sender not in self._known.greeted:
            self._hear(sender, block, size, now)
            return
        counters.messages_received += 1
        counters.bytes_received += size
        waiting.heard[sender] = now, block.k
        if self.agent.receive(sender, block) and now > waiting.since:
            counters.seconds_waited += now - waiting.since

    def _hear(self, sender: AgentId, message: Message, size: int, now: float) -> None:
        counters = self.traffic.heard_from(sender)
        if counters is None:
            if sender == self.agent.id and isinstance(message, Hello):
                self._hear_namesake(message)
                return
            raise RemoteProtocolError(neighbor=sender, k=message.k, what="is no neighbor of this peer")
        counters.messages_received += 1
        counters.bytes_received += size
        self._waiting.heard[sender] = now, message.k
        if isinstance(message, Block):  # if it has not been met, meant for an earlier life of this peer
            if sender in self._known.greeted and self._loss is not None:
                self._make_up_for_loss(self._loss, message)
        elif isinstance(message, Hello):
            self._hear_hello(sender, message)
        else:
            self._hear_bye(sender, message)

    def _hear_bye(self, sender: AgentId, bye: Bye) -> None:
        """A neighbor has its result, or leaves without."""
        if self._farewell.hear(sender, bye):
            self._send_done(self.agent.neighbors)
        if bye.reason == SPENT:
            self._waiting.finish(sender)
        elif not bye.is_done:
            self._waiting.leave(sender, bye)
            if self._notices.is_time_for(f"left {sender}"):
                log.warning("peer %d left in round %d: %s", sender, bye.k, bye.reason)
            return
        if self._loss is not None and self.agent.done.issuperset(self.agent.neighbors):
            self._end(RunOverError("the state of this peer is lost, and the run is over at all of its neighbors"))

    def _hear_namesake(self, hello: Hello) -> None:
        """Somebody with this peer's id has said Hello to its address; most probably itself."""
        if hello.life == self._known.life:
            self._own_address.is_ours = True
        else:
            self._known.name_double()

    def _hear_hello(self, sender: AgentId, hello: Hello) -> None:
        if hello.epoch >= LARGEST_ROUND:
            raise RemoteProtocolError(neighbor=sender, k=hello.k, what="a hello of an epoch that none can follow")
        difference = self._known.difference(sender, hello)
        if difference is not None:
            self._refuse(sender, difference)
            return
        self._waiting.come_back(sender, hello.trouble)
        is_same_epoch = hello.epoch == self.agent.epoch
        self._farewell.come_back(sender, is_behind=is_same_epoch and hello.k < self.agent.k)
        if self._known.meet(sender, hello):
            self._say_hello(self.agent.neighbors)
        if hello.epoch < self.agent.epoch:
            self._questions.note(sender, hello)
            return
        if self._known.is_lost(sender, hello):
            self._lose_state(sender, hello)
            return
        if hello.epoch > self.agent.epoch:
            if hello.answered != self._known.life:
                self._questions.note(sender, hello)
                return
            if not self._may_begin(hello.epoch):  # if it may later, it is told again
                return
            self._restart_tracking(hello.epoch, None, f"so says peer {sender}")
        self._known.note_round(sender, hello.k)
        if hello.is_asking:
            self._questions.note(sender, hello)

    def _reply(self, sender: AgentId, hello: Hello) -> None:
        """Answer a Hello in the epoch that this peer is in by now."""
        if hello.epoch < self.agent.epoch:
            self._send_hello([sender], self._known.hello_to_an_earlier_epoch(sender, hello))
        elif hello.epoch > self.agent.epoch:  # may be a double's, so let the one at the address say it
            self._say_hello([sender], is_asking=True)
        else:  # rare, so everything it may lack: who we are, our blocks, and whether we are done
            self._answer(sender, hello)

    def _answer(self, sender: AgentId, hello: Hello) -> None:
        """Say again what a neighbor lacks: the block of its round, and the next one to save it a question."""
        if hello.k < self.agent.oldest_said and self._notices.is_time_for(f"lost {sender}"):
            log.warning(
                "peer %d is back in round %d without its state; what it needs from before round %d is gone",
                sender,
                hello.k,
                self.agent.oldest_said,
            )
        self._say_hello([sender], answered=hello.life)
        wants = (hello.k, hello.k + 1) if hello.k >= self.agent.oldest_said else (self.agent.k,)
        for wanted in map(self.agent.said, wants):
            if wanted is not None and not (self.agent.is_done and wanted.k == self.agent.k):
                self._send_block([sender], wanted)
        self._send_done([sender])

    def _lose_state(self, sender: AgentId, hello: Hello) -> None:
        """Ask for a neighbor's X, to restart the tracking with, or to hear that the run is over.

        The agent and its epoch stay what they are: what others are told and what is saved has to be true even if
        what that neighbor says is not.
        """
        if self._loss is not None and hello.epoch <= self._loss.epoch:
            if hello.epoch == self._loss.epoch:
                self._loss.known_to.add(sender)
            return
        error = StateLostError(
            f"this peer is in round {self.agent.k}, but peer {sender} is in round {hello.k} and has "
            f"nothing left from before round {hello.oldest}; the state of this peer is lost, and no neighbor "
            "can make it up: bring its state directory back, or start it with --restart-tracking, and all "
            "peers start again (sound, but other bits): from their current X, unless the network prepares its "
            "data or start; if the run was to begin anew, start all peers with --fresh"
        )
        is_here = hello.epoch == self.agent.epoch
        self._loss = Loss(error, hello.epoch, self._codec if is_here else self._make_codec(hello.epoch), {sender})
        self._ask([sender])

    def _ask(self, neighbors: Sequence[AgentId]) -> None:
        """Ask for blocks; whoever has named the epoch that this peer has lost its state of, for any of that."""
        if (loss := self._loss) is not None:
            hello = self._known.hello(is_asking=True)
            if loss.epoch != self.agent.epoch:  # there it is in no round
                hello = replace(hello, k=0, oldest=0, epoch=loss.epoch)
            self._send(tuple(loss.known_to), loss.codec.encode(self.agent.id, hello))
            neighbors = [j for j in neighbors if j not in loss.known_to]
        if neighbors:
            self._say_hello(neighbors, is_asking=True)

    def _make_up_for_loss(self, loss: Loss, block: Block) -> None:
        """Begin a new epoch with a neighbor's X; or end, if that is not wanted."""
        if not self._restarts_tracking:
            self._end(loss.error)
        elif self._may_begin(loss.epoch + 1):  # if not, it is asked for again
            X = block.X if block.kind == PAIR else None
            self._restart_tracking(loss.epoch + 1, X, "this peer has lost its state")

    def _may_begin(self, epoch: int) -> bool:
        """Whether an epoch may begin now: not one that an earlier life has begun, nor soon after the latest.

        All neighbors have to have answered: one may know that an earlier life has begun it, or of a later one.
        """
        if (silent := self._known.yet_to_answer()) and self._notices.is_time_for("epoch"):
            self._say_hello(silent, is_asking=True)
        is_first_time = self._loss is None or epoch > self._loss.epoch
        return is_first_time and not silent and time.monotonic() - self._epoch_began >= EPOCHS_APART

    def _restart_tracking(self, epoch: int, X: Matrix | None, why: str) -> None:
        """Begin a new epoch, and tell all neighbors."""
        where = "from the current X" if self.agent.minimises_first else f"with phase {self.agent.phases[0]}"
        log.warning("the tracking starts again %s, epoch %d: %s", where, epoch, why)
        self._loss, self._epoch_began = None, time.monotonic()
        if self._first_step is not None:
            self._first_step = 0, self._epoch_began, time.process_time()
        if self._ended.done() and self._stop_reason is None:
            self._ended, self._is_revived = asyncio.get_running_loop().create_future(), True
            self._has_result = True
        if self._has_result:
            self._on_anew()
            self._has_result = False
        self.agent.restart_tracking(epoch, X)
        self._save_beginning()
        self._codec = self._make_codec(epoch)
        self._known.begin_epoch()
        self._questions.begin_epoch()
        self._farewell.begin_epoch()
        self._waiting.begin_round()
        self._say_hello(self.agent.neighbors, is_asking=True)

    def _save_beginning(self) -> None:
        """Save the start of a new epoch; if that fails, those still in the epoch before shall hear of it too."""
        try:
            if self._saving is not None:
                self._saving.begin_epoch()
        except CheckpointError as error:
            self._broadcast_bye(error.in_short)
            self._codec = self._make_codec(self.agent.epoch)
            raise

    def _make_codec(self, epoch: int) -> Codec:
        topology, problem = self._topology, self._topology.problem
        precision = topology.algorithm.exchange
        forms = self.agent.forms
        return Codec(topology.digest, n=problem.n, p=problem.p, dtype=precision, epoch=epoch, forms=forms)

    @property
    def _ear(self) -> Codec:
        """What it hears with: of the epoch that the network is said to be in, if it has lost its state of that."""
        return self._codec if self._loss is None else self._loss.codec

    def _refuse(self, sender: AgentId, difference: str) -> None:
        """Tell the other side who we are, so that it refuses us too, and end."""
        self._say_hello([sender])
        self._end(
            HandshakeError(
                f"peer {self.agent.id} ({self._bind}) and peer {sender} ({self._topology.peers[sender].address}) "
                f"cannot run together; they differ in {difference}"
            )
        )

    def _reject(self, error: RemoteProtocolError) -> None:
        """Count what was refused, and say so now and then; a neighbor of another version is the end."""
        sender = error.neighbor
        if isinstance(error, VersionMismatchError) and sender is not None and self._is_new(sender):
            differ = f"protocol version: {VERSION} here, {error.theirs} there; give both the same version"
            self._refuse(sender, differ)
            return
        self.rejected += 1
        if self._notices.is_time_for("rejected"):
            log.warning("refused %d message(s) so far; the latest from %s", self.rejected, error)

    # ------------------------------------------------------------------ stepping and speaking

    def _advance(self) -> None:
        """Step if the round is complete."""
        try:
            if self.agent.is_ready and not self._is_held():
                self._step()
        except ThanosPeerError as error:
            self._end(error)

    def _note_round(self) -> None:
        """Pass on the state of the phase that minimises; say which phase begins."""
        agent = self.agent
        if agent.phase_round == 0 and len(agent.phases) > 1:
            log.info("phase %s begins, round %d", agent.phase, agent.k)
        if not agent.is_preparing and (agent.phase_round == 0 or agent.is_in_main_phase):
            self._on_round(agent)

    def _is_held(self) -> bool:
        """Whether there is no next round, or none without a state, or it has to wait for the disk."""
        if self.agent.is_done or self._ended.done() or self._loss is not None:
            return True
        return self._saving is not None and self._saving.must_wait()

    def _step(self) -> None:
        """Go to the next round, and tell the neighbors."""
        agent = self.agent
        agent.advance()
        self._note_round()
        if self._waiting.has_spoken:
            log.info("all are here, going on with round %d", agent.k)
        self._waiting.begin_round()
        if self._first_step is None:
            self._first_step = agent.k, self._waiting.since, time.process_time()
        if agent.is_done:
            self._end()
            return
        if self._saving is not None:
            self._saving.note_round()
        self._send_block(agent.neighbors, agent.block())
        if ahead := [j for j in self._known.ahead_in(agent.k) if agent.is_missing(j)]:
            self._say_hello(ahead, is_asking=True)  # they have long said it, and will not say it unasked
        if agent.is_ready:  # all neighbors are a round ahead: the clock and the signals get their turn first
            asyncio.get_running_loop().call_soon(self._advance)

    def _say_hello(self, neighbors: Sequence[AgentId], *, is_asking: bool = False, answered: int = 0) -> None:
        trouble = self._waiting.trouble()
        self._send_hello(neighbors, self._known.hello(is_asking=is_asking, answered=answered, trouble=trouble))

    def _send_hello(self, neighbors: Sequence[AgentId], hello: Hello) -> None:
        self._send(neighbors, self._codec.encode(self.agent.id, hello))

    def _on_saved(self, error: BaseException | None) -> None:
        """Go on if a round had to wait for the disk; end if the disk failed."""
        if error is not None:
            self._end(error)
        else:
            self._advance()

    def _send(self, neighbors: Sequence[AgentId], frame: bytes) -> None:
        self.traffic.note_sent(neighbors, len(frame), self._links.send(neighbors, frame))

    def _send_block(self, neighbors: Sequence[AgentId], block: Block) -> None:
        """Its numbers to those they are for, nothing to the others; each of the two is encoded once."""
        meant = neighbors if block.to is None else [j for j in neighbors if j in block.to]
        for group in (meant, [j for j in neighbors if j not in meant] if block.to is not None else []):
            if group:
                self._send(group, self._codec.encode(self.agent.id, block.as_told_to(group[0])))

    def _end(self, error: BaseException | None = None) -> bool:
        """Have it end, unless it does already; returns whether that was news."""
        if self._ended.done():
            return False
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)
        return True

    def _on_unforeseen(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error in a callback ends the peer: nothing may hang because somebody forgot a case."""
        error = context.get("exception")
        if error is None:
            loop.default_exception_handler(context)
        elif not self._end(error) and self._notices.is_time_for("unforeseen"):
            log.error("while it takes leave: %s", error, exc_info=error)

    async def _stay(self, ticking: "asyncio.Task[None]") -> None:
        """Tell all neighbors that this was the last round, and stay until all peers of the network are done."""
        farewell, known = self._farewell, len(self.agent.done)
        farewell.begin(is_resumed=self._first_step is None)
        self._send_done(self.agent.neighbors)
        while self.agent.is_done and self._stop_reason is None and not farewell.is_over():
            self._raise_what_went_wrong(ticking)
            if farewell.has_grown():
                self._send_done(self.agent.neighbors)
            if farewell.is_time_to_speak():
                log.info("%s", farewell.describe())
            if farewell.is_time_to_ask():
                self._say_hello(farewell.unsure(), is_asking=True)
            if known < len(self.agent.done) and self._saving is not None:
                known = len(self.agent.done)
                await self._note_who_is_done(self._saving)
            before = time.monotonic()
            await asyncio.sleep(TICK / 2)
            farewell.note_pause(time.monotonic() - before)
        if self.agent.is_done and self._stop_reason is None and (line := farewell.describe_end()):
            log.warning("%s", line)

    async def _note_who_is_done(self, saving: Saving) -> None:
        """Let another life not wait for those that are done; if that cannot be saved, it waits a while."""
        try:
            await saving.finish()
        except CheckpointError as error:
            log.warning("%s", error)

    @property
    def is_everybody_done(self) -> bool:
        """Whether nobody will need this peer's state again."""
        return self.agent.is_done and self._farewell.is_everybody_done

    def _send_done(self, neighbors: Sequence[AgentId]) -> None:
        """Say how far around all are done, if this peer is and has its result safe."""
        for bye in self._farewell.words():
            self._send(neighbors, self._codec.encode(self.agent.id, bye))

    def _broadcast_bye(self, reason: str) -> None:
        if self._own_address.is_unclear:  # then nobody shall be told in the name of somebody else
            return
        told: set[AgentId] = set()
        if self._loss is not None and self._loss.epoch != self.agent.epoch:
            told = self._loss.known_to
            self._send(tuple(told), self._loss.codec.encode(self.agent.id, Bye(0, reason)))
        others = [j for j in self.agent.neighbors if j not in told]
        self._send(others, self._codec.encode(self.agent.id, Bye(self.agent.k, reason)))

    # ------------------------------------------------------------------ waiting

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            self._links.drain()
            self._hear_all()
            self._check_address()
            if self._saving is not None and self._loss is None:
                self._saving.note_time()
            is_waiting = self._loss is not None or self.agent.missing()
            if is_waiting and not self.agent.is_done and not self._ended.done():
                await self._wait()

    async def _be_sure_of_address(self) -> None:
        """Before it says that it is done, a peer that was so in an earlier life makes sure to be no double."""
        until = time.monotonic() + SURE
        while self._first_step is None and not self._own_address.is_ours:
            if self._own_address.is_taken:
                raise self._double()
            if time.monotonic() >= until and not self._own_address.is_unclear:
                return  # its address does not lead back to its host: nobody can tell
            await asyncio.sleep(TICK / 2)

    async def _be_clear_who_speaks(self, error: ThanosPeerError) -> None:
        """Before its last words; a double has none, and while it might be one nobody would be told."""
        if self._own_address.is_unclear and not isinstance(error, DoubleError):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._be_sure_of_address(), 2 * UNHEARD * TELL_ITSELF)

    def _check_address(self) -> None:
        """End if it is somebody else that the neighbors reach."""
        me, own = self.agent.id, self._own_address
        if me not in self._links.states:
            return
        if own.is_ours:
            self._links.disconnect(me)
        elif own.is_time_to_tell(self._links.states[me]):
            self._links.send([me], self._codec.encode(me, self._known.hello()))
        if own.is_taken:
            self._end(self._double())

    def _double(self) -> DoubleError:
        me, address = self.agent.id, self._topology.peers[self.agent.id].address
        return DoubleError(
            f"this is not the peer {me} that its neighbors reach: somebody else listens at {address}; if peer "
            f"{me} runs there, this one is one too many; if not, mend the address in the topology"
        )

    async def _wait(self) -> None:
        """Ask whoever is missing, say it aloud, or give up: whatever is due."""
        waiting, give_up = self._waiting, self._patience.give_up
        waiting.note_tick()
        if waiting.is_time_to_ask():
            self._ask(self.agent.missing())
        if waiting.is_time_to_speak():
            await self._look_up_names()
            for line in waiting.lines():
                log.warning("%s", line)
        if over := waiting.why_it_is_over(has_result=self._has_result):
            self._end(RunOverError(over))
        if give_up is not None and waiting.seconds_awake >= give_up:
            await self._look_up_names()
            if lines := waiting.lines():
                self._end(NeighborLostError(f"gave up after {give_up:g} s: {'; '.join(lines)}"))

    async def _look_up_names(self) -> None:
        """Look up the names of whoever is missing, but let no slow resolver keep the clock from ticking."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._waiting.look_up_names(), LOOK_UP)

    def _stepping(self) -> dict[str, float]:
        """Rounds since the first, and the time and CPU they took."""
        if self._first_step is None:
            return {"rounds": 0, "seconds": 0.0, "cpu_seconds": 0.0}
        first, began, cpu = self._first_step
        return {
            "rounds": self.agent.k - first,
            "seconds": self._waiting.since - began,
            "cpu_seconds": time.process_time() - cpu,
        }

    def status(self) -> dict[str, Any]:
        """What it is doing, for `thanos-peer status`."""
        agent, convergence = self.agent, self.agent.convergence
        return {
            "id": agent.id,
            "name": self._topology.name,
            "digest": self._topology.digest,
            "version": __version__,
            "round": agent.k,
            "phases": agent.phases,
            "phase": agent.phase,
            "phase_round": agent.phase_round,
            "last_round": agent.last_round,
            "epoch": agent.epoch,
            "is_done": agent.is_done,
            "has_converged": convergence.has_converged,
            "residual": None if agent.found.residual is None else float(agent.found.residual),
            "tolerance": self._topology.tolerance,
            "verdict": convergence.words if agent.is_done else None,
            "eta": agent.eta,
            "waiting": self._waiting.lines(),
            "stepping": self._stepping(),
            "rejected": self.rejected,
            "strangers": self._links.strangers,
            "saved_round": None if self._saving is None else self._saving.latest,
            "checkpoints": 0 if self._saving is None else self._saving.count,
            "edges": self.traffic.facts(),
        }
