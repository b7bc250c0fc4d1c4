"""What a session wants done, done: it sends, logs, saves, writes the result, looks up names, and ends."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from thanos_peer.agent import Agent, Memory
from thanos_peer.block import AgentId
from thanos_peer.errors import ThanosPeerError
from thanos_peer.peer.background import Background
from thanos_peer.peer.checkpoints import CheckpointWriter
from thanos_peer.peer.facts import StatusFacts
from thanos_peer.protocol.codecs import Codecs
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
from thanos_peer.transport.addresses import unresolved_host
from thanos_peer.transport.links import Links

log = logging.getLogger("thanos_peer")

# Seconds that ZeroMQ gets to send the last messages: more than between two tries to connect.
LINGER = 3.0
LEVELS = {"info": logging.INFO, "warning": logging.WARNING}


class Performer:
    """Performs the outputs of one session, in their order.

    Args:
        session: Whose they are; it hears what becomes of them.
        codecs: Turn messages into frames.
        facts: Note when the first step was.
        writer: Writes checkpoints; None saves nothing.
        on_round: Called with the agent in every round of the main phase, round 0 included.
    """

    def __init__(
        self,
        session: Session,
        codecs: Codecs,
        facts: StatusFacts,
        writer: CheckpointWriter | None,
        on_round: Callable[[Agent], None],
    ) -> None:
        self._session, self._codecs, self._facts, self._writer = session, codecs, facts, writer
        self._background = Background(self.fail)
        self._finished: asyncio.Future[None]
        self._links: Links
        self._by_type: dict[type, Callable[[Any], None]] = {
            Send: self._send,
            Log: lambda line: log.log(LEVELS[line.level], "%s", line.text),
            Save: self._save,
            LookUp: lambda wanted: self._background.start(self._look_up(wanted.neighbors)),
            Disconnect: lambda wanted: self._links.disconnect(wanted.neighbor),
            Pause: lambda wanted: self._links.pause(wanted.neighbor, wanted.seconds),
            EnteredRound: lambda _: on_round(session.talk.agent),
            AdvanceSoon: self._advance_soon,
            Finished: self._finish,
        }

    def begin(self, links: Links, on_done: Callable[[], None], on_anew: Callable[[], None]) -> None:
        """Be ready to perform, inside a running event loop.

        Args:
            links: To the neighbors.
            on_done: Called when the last round is reached, before the neighbors are notified.
            on_anew: Called if after that the network begins a new epoch, and this peer with it.
        """
        self._links, self._finished = links, asyncio.get_running_loop().create_future()
        self._by_type |= {ResultReady: lambda _: on_done(), ResultWithdrawn: lambda _: on_anew()}

    async def wait(self) -> None:
        """Until the session has ended; raises the error that it ended with."""
        await self._finished

    async def close(self) -> None:
        """Wait for what is under way, and close the links."""
        await self._background.wait()  # a checkpoint may be under way
        self._links.close(linger=LINGER)

    def perform(self, outputs: Sequence[Output]) -> None:
        """Do what the session wants, in order; what fails ends it, and what was to follow is not done."""
        self._facts.note_first_step()
        try:
            for output in outputs:
                self._by_type[type(output)](output)
        except ThanosPeerError as error:
            # The output that ends the peer was still to follow, and the session does not give it again.
            if self._session.talk.stage is Stage.ENDED:
                self._finish(Finished(error))
                return
            now = time.monotonic()
            begins_epoch = isinstance(output, Save | ResultWithdrawn)
            failed = self._session.epoch_failed if begins_epoch else self._session.fail
            self.perform(failed(error, now))

    def fail(self, error: BaseException) -> None:
        """End with an unforeseen error: at once if the peer was ending, or if the neighbors cannot be notified."""
        if self._finished.done():
            log.error("while it ends: %s", error, exc_info=error)
            return
        # What ends a peer is performed once; if that has failed, the session does not give it again.
        is_ending = self._session.talk.stage in (Stage.FAILING, Stage.ENDED)
        try:
            if not is_ending:
                self.perform(self._session.fail(error, time.monotonic()))
        finally:
            if is_ending or self._session.talk.stage is Stage.ENDED:
                self._finish(Finished(error))

    def _send(self, send: Send) -> None:
        talk = self._session.talk
        frame = self._codecs.of(send.epoch).encode(talk.agent.id, send.message)
        dropped = self._links.send(send.to, frame)
        if talk.agent.id not in send.to:
            talk.traffic.note_sent(send.to, len(frame), dropped)

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
            self.perform(self._session.save_failed(error, time.monotonic()))
        else:
            self.perform(self._session.saved(memory, time.monotonic()))

    async def _look_up(self, neighbors: Sequence[AgentId]) -> None:
        loop, known = asyncio.get_running_loop(), self._session.talk.neighbors
        hosts = [loop.run_in_executor(None, unresolved_host, known[j].link.address) for j in neighbors]
        unresolved = dict(zip(neighbors, await asyncio.gather(*hosts), strict=True))
        self.perform(self._session.looked_up(unresolved, time.monotonic()))

    def _advance_soon(self, _: AdvanceSoon) -> None:
        asyncio.get_running_loop().call_soon(self._advance)

    def _advance(self) -> None:
        self.perform(self._session.advance(time.monotonic()))

    def _finish(self, finished: Finished) -> None:
        with contextlib.suppress(asyncio.InvalidStateError):  # cancelled from outside
            if finished.error is None:
                self._finished.set_result(None)
            else:
                self._finished.set_exception(finished.error)
