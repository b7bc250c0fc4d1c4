"""One peer: a session, its links, its disk and a clock.

The session decides; the peer passes on what arrives, and `Performer` does what the session returns. Frames are put
aside until there are as many as the round lacks, then they are decoded together: there is no future per message.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from thanos_peer import __version__
from thanos_peer.agent import Agent
from thanos_peer.block import AgentId
from thanos_peer.peer.checkpoints import CheckpointWriter
from thanos_peer.peer.facts import StatusFacts
from thanos_peer.peer.held_frames import HeldFrames
from thanos_peer.peer.performer import Performer
from thanos_peer.peer.scheduling import lengthen_turns
from thanos_peer.protocol.codecs import Codecs
from thanos_peer.protocol.conversation import Options
from thanos_peer.protocol.handshake import Terms
from thanos_peer.protocol.neighbor import LinkEvent
from thanos_peer.protocol.session import Session
from thanos_peer.protocol.stages import Stage
from thanos_peer.storage.checkpoint import CheckpointStore
from thanos_peer.topology import Topology
from thanos_peer.transport.keys import Credentials
from thanos_peer.transport.links import Links

log = logging.getLogger("thanos_peer")


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
        writer = None if store is None else CheckpointWriter(store, topology.graph.diameter)
        self._performer = Performer(self.session, self._codecs, self._facts, writer, on_round)
        self._loop: asyncio.AbstractEventLoop
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

    async def run(self, on_done: Callable[[], None], on_anew: Callable[[], None]) -> None:
        """Run to the end: the last round, a request to stop, or an error.

        Args:
            on_done: Called when the last round is reached, before the neighbors are notified.
            on_anew: Called if after that the network begins a new epoch, and this peer with it.

        Raises:
            ThanosPeerError: The address cannot be used, neighbors do not agree, one is lost, or a step diverges.
        """
        self._loop = asyncio.get_running_loop()
        self._links = self._open_links()
        self._performer.begin(self._links, on_done, on_anew)
        # Only now that ZeroMQ's thread has started, which is to keep short turns.
        lengthen_turns()
        self._loop.set_exception_handler(self._on_unforeseen)
        try:
            log.info("listening on %s, round %d", self._bind, self.agent.k)
            self._performer.perform(self.session.start(time.monotonic()))
            self._tick()
            await self._performer.wait()
        except asyncio.CancelledError as error:
            self._performer.perform(self.session.fail(error, time.monotonic()))
            raise
        finally:
            await self._performer.close()

    def stop(self, reason: str) -> None:
        """Ask it to end after the round it is in."""
        self._performer.perform(self.session.stop(reason, time.monotonic()))

    def _on_frames(self, frames: list[bytes], keys: list[AgentId | None]) -> None:
        """Put aside what has arrived until it may complete the round: many at once are cheaper than one by one."""
        self._held.add(frames, keys, time.monotonic())
        if len(self._held) >= self.session.frames_needed:
            self._receive()

    def _receive(self) -> None:
        """Pass on what has been put aside."""
        epoch = self.session.talk.listening_epoch
        arrived = self._held.take(self._codecs.of(epoch))
        self._performer.perform(self.session.receive(arrived, epoch, time.monotonic()))

    def _on_link(self, neighbor: AgentId, event: LinkEvent) -> None:
        self.session.link_changed(neighbor, event, time.monotonic())

    def _tick(self) -> None:
        if self.session.talk.stage is Stage.ENDED:
            return
        self._loop.call_later(self.session.seconds_to_tick, self._tick)
        self._links.drain()
        if self._held:
            self._receive()
        self._performer.perform(self.session.tick(time.monotonic()))

    def _on_unforeseen(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error in a callback ends the peer: nothing may hang because of a case that was forgotten."""
        error = context.get("exception")
        if error is None:
            loop.default_exception_handler(context)
        else:
            self._performer.fail(error)

    def status(self) -> dict[str, Any]:
        """What it is doing, for `thanos-peer status`."""
        return self._facts.collect(strangers=self._links.strangers)


def terms_of(topology: Topology) -> Terms:
    """What the peers of a topology have to agree on."""
    return Terms(
        digest=topology.digest_with(masks=topology.masks_sums),
        digest_otherwise=topology.digest_with(masks=not topology.masks_sums),
        are_masked=topology.masks_sums,
        n=topology.problem.n,
        p=topology.problem.p,
        dtype=topology.algorithm.exchange,
        diameter=topology.graph.diameter,
        software=__version__,
        life=int(time.time() * 1000),
    )
