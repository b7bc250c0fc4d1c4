"""The shell around a session: what cannot be done ends the peer, whatever the session wanted next."""

import asyncio
import contextlib

import pytest
from processes import write_topology

from thanos_peer.errors import CheckpointError
from thanos_peer.peer.peer import Peer
from thanos_peer.problem import build
from thanos_peer.protocol.conversation import Options
from thanos_peer.simulate import AgentNetwork
from thanos_peer.storage.checkpoint import CheckpointStore

# Seconds in which a peer ends for certain: more than it takes to find out whether it is a duplicate.
ENDS = 60.0
# No frame can hold such an id, so nothing can be sent.
TOO_LARGE = 2**64


def run_first_of_two(tmp_path, once_started, *, is_done=False, saves=False, on_done=lambda: None):
    """Run peer 0 of two, alone, and do something to it once it has started.

    Args:
        tmp_path: Where its topology file goes.
        once_started: Called with the peer.
        is_done: Whether it has taken its last round in an earlier life.
        saves: Whether it saves its state.
        on_done: Called to write its result.
    """
    topology = write_topology(tmp_path / "net.toml", "path", 2, max_rounds=3)
    network = AgentNetwork(build(topology))
    while is_done and not network.is_done:
        network.advance()
    agent, address = network.agents[0], topology.peers[0].address
    store = CheckpointStore(tmp_path / "state", topology, agent.id, is_flushed=False) if saves else None
    options = Options(saves=saves)
    peer = Peer(topology, agent, bind=address, on_round=lambda _: None, options=options, store=store)

    async def run():
        running = asyncio.create_task(peer.run(on_done, on_done))
        asyncio.get_running_loop().call_soon(once_started, peer)
        await asyncio.wait_for(running, ENDS)

    with store or contextlib.nullcontext():
        asyncio.run(run())


@pytest.mark.parametrize("error", [CheckpointError("cannot write the results"), ValueError("unforeseen")])
def test_a_result_that_cannot_be_written_ends_a_peer_that_was_about_to_end(tmp_path, error):
    def fail():
        raise error

    with pytest.raises(type(error), match=str(error)):
        run_first_of_two(tmp_path, lambda peer: peer.stop("SIGTERM"), is_done=True, on_done=fail)


def test_a_peer_that_can_send_nothing_ends(tmp_path):
    def break_all_that_is_sent(peer):
        peer.agent.id = TOO_LARGE

    with pytest.raises(OverflowError):
        run_first_of_two(tmp_path, break_all_that_is_sent)


@pytest.mark.parametrize("saves", [False, True])
def test_a_peer_whose_last_message_cannot_be_sent_ends(tmp_path, saves):
    # If it saves, that message follows from the end of work beside the rounds.
    def stop(peer):
        peer.agent.id = TOO_LARGE
        peer.stop("SIGTERM")

    with pytest.raises(OverflowError):
        run_first_of_two(tmp_path, stop, saves=saves)
