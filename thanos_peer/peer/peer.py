"""One peer: a session, its links, its disk and a clock.

The session decides; the peer passes on what arrives, and performs what the session returns: it sends, logs, saves,
writes the result, and ends. Frames are put aside until there are as many as the round lacks, then they are decoded
together: there is no future per message.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from thanos_peer import __version__
from thanos_peer.agent import Agent, Memory
from thanos_peer.block import AgentId
from thanos_peer.errors import ThanosPeerError
from thanos_peer.peer.background import Background
from thanos_peer.peer.checkpoints import CheckpointWriter
from thanos_peer.peer.facts import StatusFacts
from thanos_peer.peer.held_frames import HeldFrames
from thanos_peer.peer.scheduling import lengthen_turns
from thanos_peer.protocol.codecs import Codecs
from thanos_peer.protocol.conversation import Options
from thanos_peer.protocol.handshake import Terms
from thanos_peer.protocol.neighbor import LinkEvent
from thanos_peer.protocol.outputs import (
    AdvanceSoon,
    Disconnect,
    EnteredRound,
    Finished,
    Log,
    LookUp,
    Output,
    Pause,
    ResultReady,
    ResultWithdrawn,
    Save,
    Send,
)
from thanos_peer.protocol.session import Session
from thanos_peer.protocol.stages import Stage
from thanos_peer.storage.checkpoint import CheckpointStore
from thanos_peer.topology import Topology
from thanos_peer.transport.keys import Credentials
from thanos_peer.transport.links import Links, unresolved_host

log = logging.getLogger("thanos_peer")

# Seconds that ZeroMQ gets to send the last messages: more than between two tries to connect.
LINGER = 3.0
LEVELS = {"info": logging.INFO, "warning": logging.WARNING}


class Peer:
    """Runs one agent over the network.

    Args:
        topology: What all agree on.
        agent: The agent, in whatever round it is.
        bind: Where to listen.
        on_round: Called with the agent in every round of the main phase, round 0 included.
        options: How its session behaves.
        credentials: The keys that it and its neighbors know each other by; None speaks in the clear.
        store: Where the agent's memory is saved; None saves nothing.
    """

    def __init__(
        self,
        topology: Topology,
        agent: Agent,
        *,
        bind: str,
        on_round: Callable[[Agent], None],
        options: Options,
        credentials: Credentials | None = None,
        store: CheckpointStore | None = None,
    ) -> None:
        self.agent, self._bind = agent, bind
        addresses = {j: topology.peers[j].address for j in (*agent.neighbors, agent.id)}
        terms = terms_of(topology)
        self.session = Session(agent, terms, addresses, options, time.monotonic())
        self._codecs, self._held = Codecs(terms, agent.runner.plan.forms), HeldFrames()
        self._facts = StatusFacts(topology, self.session)
        self._writer = None if store is None else CheckpointWriter(store, topology.graph.diameter)
        self._background = Background(self._fail)
        self._loop: asyncio.AbstractEventLoop
        self._finished: asyncio.Future[None]
        self._links: Links
        self._open_links = partial(
            Links,
            bind,
            addresses,
            largest_frame=self._codecs.of(agent.epoch).largest_frame,
            on_frames=self._on_frames,
            on_link=self._on_link,
            credentials=credentials,
        )
        self._perform_by_type: dict[type, Callable[[Any], None]] = {
            Send: self._send,
            Log: lambda line: log.log(LEVELS[line.level], "%s", line.text),
            Save: self._save,
            LookUp: lambda wanted: self._background.start(self._look_up(wanted.neighbors)),
            Disconnect: lambda wanted: self._links.disconnect(wanted.neighbor),
            Pause: lambda wanted: self._links.pause(wanted.neighbor, wanted.seconds),
            EnteredRound: lambda _: on_round(agent),
            AdvanceSoon: lambda _: self._advance_soon(),
            Finished: self._finish,
        }

    async def run(self, on_done: Callable[[], None], on_anew: Callable[[], None]) -> None:
        """Run to the end: the last round, a request to stop, or an error.

        Args:
            on_done: Called when the last round is reached, before it is said to the neighbors.
            on_anew: Called if after that the network begins a new epoch, and this peer with it.

        Raises:
            ThanosPeerError: The address cannot be used, neighbors do not agree, one is lost, or a step diverges.
        """
        self._perform_by_type |= {ResultReady: lambda _: on_done(), ResultWithdrawn: lambda _: on_anew()}
        self._loop = asyncio.get_running_loop()
        self._finished = self._loop.create_future()
        self._links = self._open_links()
        # Only now that ZeroMQ's thread has started, which is to keep short turns.
        lengthen_turns()
        self._loop.set_exception_handler(self._on_unforeseen)
        try:
            log.info("listening on %s, round %d", self._bind, self.agent.k)
            self._perform(self.session.start(time.monotonic()))
            self._tick()
            await self._finished
        except asyncio.CancelledError as error:
            self._perform(self.session.fail(error, time.monotonic()))
            raise
        finally:
            await self._background.wait()  # a checkpoint may be under way
            self._links.close(linger=LINGER)

    def stop(self, reason: str) -> None:
        """Ask it to end after the round it is in."""
        self._perform(self.session.stop(reason, time.monotonic()))

    # ------------------------------------------------------------------ inputs

    def _on_frames(self, frames: list[bytes], keys: list[AgentId | None]) -> None:
        """Put aside what has arrived until it may complete the round: many at once are cheaper than one by one."""
        self._held.add(frames, keys, time.monotonic())
        if len(self._held) >= self.session.frames_needed:
            self._receive()

    def _receive(self) -> None:
        """Pass on what has been put aside."""
        epoch = self.session.talk.listening_epoch
        arrived = self._held.take(self._codecs.of(epoch))
        self._perform(self.session.receive(arrived, epoch, time.monotonic()))

    def _on_link(self, neighbor: AgentId, event: LinkEvent) -> None:
        self.session.link_changed(neighbor, event, time.monotonic())

    def _tick(self) -> None:
        if self.session.talk.stage is Stage.ENDED:
            return
        self._loop.call_later(self.session.seconds_to_tick, self._tick)
        self._links.drain()
        if self._held:
            self._receive()
        self._perform(self.session.tick(time.monotonic()))

    def _advance_soon(self) -> None:
        self._loop.call_soon(self._advance)

    def _advance(self) -> None:
        self._perform(self.session.advance(time.monotonic()))

    def _on_unforeseen(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error in a callback ends the peer: nothing may hang because of a case that was forgotten."""
        error = context.get("exception")
        if error is None:
            loop.default_exception_handler(context)
        else:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """End with an unforeseen error: at once if the peer was ending, or if the neighbors cannot be told."""
        if self._finished.done():
            log.error("while it ends: %s", error, exc_info=error)
            return
        # What ends a peer is performed once; if that has failed, the session does not give it again.
        is_ending = self.session.talk.stage in (Stage.FAILING, Stage.ENDED)
        try:
            if not is_ending:
                self._perform(self.session.fail(error, time.monotonic()))
        finally:
            if is_ending or self.session.talk.stage is Stage.ENDED:
                self._finish(Finished(error))

    # ------------------------------------------------------------------ outputs

    def _perform(self, outputs: Sequence[Output]) -> None:
        """Do what the session wants, in order; what fails ends it, and what was to follow is not done."""
        self._facts.note_first_step()
        try:
            for output in outputs:
                self._perform_by_type[type(output)](output)
        except ThanosPeerError as error:
            # The output that ends the peer was still to follow, and the session does not give it again.
            if self.session.talk.stage is Stage.ENDED:
                self._finish(Finished(error))
                return
            now = time.monotonic()
            begins_epoch = isinstance(output, Save | ResultWithdrawn)
            failed = self.session.epoch_failed if begins_epoch else self.session.fail
            self._perform(failed(error, now))

    def _send(self, send: Send) -> None:
        frame = self._codecs.of(send.epoch).encode(self.agent.id, send.message)
        dropped = self._links.send(send.to, frame)
        if self.agent.id not in send.to:
            self.session.talk.traffic.note_sent(send.to, len(frame), dropped)

    def _save(self, save: Save) -> None:
        """Beside the rounds; the start of an epoch at once, before anything else is sent."""
        if self._writer is None:
            return
        if save.is_urgent:
            self._writer.write_now(save.memory)
        else:
            self._background.start(self._save_beside(self._writer, save.memory))

    async def _save_beside(self, writer: CheckpointWriter, memory: Memory) -> None:
        try:
            await writer.write(memory)
        except ThanosPeerError as error:
            self._perform(self.session.save_failed(error, time.monotonic()))
        else:
            self._perform(self.session.saved(memory, time.monotonic()))

    async def _look_up(self, neighbors: Sequence[AgentId]) -> None:
        known = self.session.talk.neighbors
        hosts = [self._loop.run_in_executor(None, unresolved_host, known[j].link.address) for j in neighbors]
        unresolved = dict(zip(neighbors, await asyncio.gather(*hosts), strict=True))
        self._perform(self.session.looked_up(unresolved, time.monotonic()))

    def _finish(self, finished: Finished) -> None:
        with contextlib.suppress(asyncio.InvalidStateError):  # cancelled from outside
            if finished.error is None:
                self._finished.set_result(None)
            else:
                self._finished.set_exception(finished.error)

    # ------------------------------------------------------------------ what it says of itself

    @property
    def are_all_done(self) -> bool:
        """Whether no peer will need this peer's state again."""
        return self.session.is_everybody_done

    def status(self) -> dict[str, Any]:
        """What it is doing, for `thanos-peer status`."""
        return self._facts.collect(strangers=self._links.strangers)


def terms_of(topology: Topology) -> Terms:
    """What the peers of a topology have to agree on."""
    return Terms(
        digest=topology.digest,
        n=topology.problem.n,
        p=topology.problem.p,
        dtype=topology.algorithm.exchange,
        diameter=topology.graph.diameter,
        software=__version__,
        life=int(time.time() * 1000),
    )
