"""The shell around a session: what cannot be done ends the peer, whatever the session wanted next."""

import asyncio

import pytest
from processes import PATIENCE, write_topology

from thanos_peer.errors import CheckpointError
from thanos_peer.peer.peer import Peer
from thanos_peer.problem import build
from thanos_peer.protocol.conversation import Options
from thanos_peer.simulate import AgentNetwork


def test_a_result_that_cannot_be_written_ends_a_peer_that_was_about_to_end(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 2, max_rounds=3)
    network = AgentNetwork(build(topology))
    while not network.is_done:
        network.advance()
    done, address = network.agents[0], topology.peers[0].address
    peer = Peer(topology, done, bind=address, on_round=lambda _: None, options=Options(saves=False))

    def fail():
        raise CheckpointError("cannot write the results")

    async def run():
        running = asyncio.create_task(peer.run(fail, fail))
        asyncio.get_running_loop().call_soon(peer.stop, "SIGTERM")  # after it has started
        await asyncio.wait_for(running, PATIENCE)

    with pytest.raises(CheckpointError, match="cannot write the results"):
        asyncio.run(run())
