"""Notify all neighbors that this peer leaves, without taking part in a round."""

import asyncio
import logging
import time

from thanos_peer.block import AgentId
from thanos_peer.errors import ConfigError
from thanos_peer.protocol.messages import Bye
from thanos_peer.protocol.wire import Codec
from thanos_peer.topology import Topology
from thanos_peer.transport.keys import Credentials
from thanos_peer.transport.links import Links

log = logging.getLogger("thanos_peer")

# Seconds to reach the neighbors: more than a link needs to come up where a neighbor listens.
REACH_TIMEOUT = 5.0
PAUSE = 0.05
# Seconds that ZeroMQ gets to send the message.
LINGER = 2.0


async def notify_neighbors(
    topology: Topology, agent: AgentId, bind: str, credentials: Credentials | None, bye: Bye, epoch: int = 0
) -> None:
    """Send Bye to the neighbors that can be reached; log which cannot."""
    problem, digest = topology.problem, topology.digest_with(masks=topology.masks_sums)
    codec = Codec(digest, n=problem.n, p=problem.p, dtype=topology.algorithm.exchange, epoch=epoch)
    waiting = {j: topology.peers[j].address for j in topology.graph.neighbors[agent]}
    try:
        links = Links(
            bind,
            waiting,
            largest_frame=codec.largest_frame,
            on_frames=lambda frames, keys: None,  # noqa: ARG005 - answers are ignored
            credentials=credentials,
        )
    except ConfigError as error:
        # The log of this host says it at least.
        log.warning("neighbors could not be told: %s", error)
        return
    until = time.monotonic() + REACH_TIMEOUT
    frame = codec.encode(agent, bye)
    try:
        while waiting and time.monotonic() < until:
            for j in [j for j in waiting if links.is_up(j)]:
                links.send([j], frame)
                del waiting[j]
            await asyncio.sleep(PAUSE)
        if waiting and not bye.is_done:
            who = ", ".join(map(str, sorted(waiting)))
            log.warning("not there to be told that this peer leaves (%s): peers %s", bye.reason, who)
    finally:
        links.close(linger=LINGER)
