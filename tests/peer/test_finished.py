"""A finished result stays, whatever becomes of the state that led to it, and no peer waits for ever for it."""

import json
import signal

import pytest
from processes import (
    assert_same_bits,
    ended_afterwards,
    said,
    start_peer,
    wait_until,
    write_topology,
)

from thanos_peer.problem import build
from thanos_peer.simulate import AgentNetwork
from thanos_peer.storage.checkpoint import CheckpointStore
from thanos_peer.storage.peer_files import PeerFiles
from thanos_peer.topology import load

LAST = 60


@pytest.fixture
def finished(tmp_path):
    """Two peers that are done and gone; none of them needs its state any more."""
    topology, out = write_topology(tmp_path / "net.toml", "path", 2, max_rounds=LAST), tmp_path / "run"
    processes = [start_peer(topology, agent, out) for agent in range(2)]
    with ended_afterwards(*processes):
        assert [process.wait(60) for process in processes] == [0, 0]
    return topology, out


def memories(topology, *rounds):
    """What each agent remembers of some rounds, and of all that it said before."""
    network, found = AgentNetwork(build(load(topology.file))), {}
    for agent in network.agents:
        agent.fallback = 0
    while network.k < max(rounds):
        network.advance()
        if network.k in rounds:
            found[network.k] = [agent.memory() for agent in network.agents]
    return found


def save(topology, out, agent, *several):
    """Checkpoints of a peer, as if it had been killed before it removed them."""
    with CheckpointStore(out.with_name("run.state"), topology, agent, is_flushed=False) as store:
        for memory in several:
            store.save(memory)
        return store.files()


def facts_of(topology, out, agent):
    return json.loads(PeerFiles(out, topology, agent).facts.read_text(encoding="utf-8"))


def leave_behind(topology, out, agent):
    """Let a peer that was done have only its earlier checkpoint intact."""
    known = memories(topology, 30, LAST)
    *_, newest = save(topology, out, agent, known[30][agent], known[LAST][agent])
    newest.write_bytes(b"")


@pytest.mark.parametrize("how", ["stopped", "given up"])
def test_a_finished_result_is_not_replaced_by_less_though_its_state_is_damaged(finished, how):
    topology, out = finished
    leave_behind(topology, out, 1)
    before, files = facts_of(topology, out, 1), PeerFiles(out, topology, 1)
    result = files.result.read_bytes()
    options = () if how == "stopped" else ("--give-up-after", 3)
    again = start_peer(topology, 1, out, *options)
    with ended_afterwards(again):
        wait_until(lambda: "in round 30 for peer 0" in said(out, 1), "it waits for its neighbor")
        if how == "stopped":
            again.send_signal(signal.SIGTERM)
        assert again.wait(60) == (143 if how == "stopped" else 0)
    assert (facts_of(topology, out, 1), files.result.read_bytes()) == (before, result)
    says = "is finished, and stays" if how == "stopped" else "finished already, in round 60"
    assert says in said(out, 1)


def test_one_that_was_done_and_whose_latest_state_is_damaged_still_helps_its_neighbor_to_the_end(finished):
    topology, out = finished
    leave_behind(topology, out, 1)
    save(topology, out, 0, memories(topology, LAST - 1)[LAST - 1][0])
    files = PeerFiles(out, topology, 0)
    files.result.unlink()
    files.facts.unlink()
    processes = [start_peer(topology, agent, out) for agent in range(2)]
    with ended_afterwards(*processes):
        assert [process.wait(60) for process in processes] == [0, 0]
    assert "going on from round 30" in said(out, 1)
    assert_same_bits(out, topology)


def test_a_result_of_an_earlier_epoch_does_not_count_in_a_later_one(finished):
    topology, out = finished
    leave_behind(topology, out, 1)
    known = memories(topology, LAST)[LAST][0]
    network = AgentNetwork(build(load(topology.file)))
    network.agents[0].restart_tracking(1, known.arrays["X"])
    save(topology, out, 0, network.agents[0].memory())
    processes = [start_peer(topology, agent, out) for agent in range(2)]
    with ended_afterwards(*processes):
        wait_until(lambda: "epoch 1" in said(out, 1), "it begins the epoch of its neighbor")
        assert [process.wait(60) for process in processes] == [0, 0]
    assert [facts_of(topology, out, agent)["epoch"] for agent in range(2)] == [1, 1]


def test_a_result_of_an_earlier_epoch_is_not_in_the_way_of_a_peer_that_has_lost_its_state_since(finished):
    topology, out = finished
    network = AgentNetwork(build(load(topology.file)))
    network.agents[0].restart_tracking(1)
    save(topology, out, 0, network.agents[0].memory())
    for agent in range(2):
        PeerFiles(out, topology, agent).withdraw()
        assert PeerFiles(out, topology, agent).result.exists()
    processes = [start_peer(topology, agent, out) for agent in range(2)]
    with ended_afterwards(*processes):
        assert [process.wait(60) for process in processes] == [0, 0], said(out, 1)
    assert [facts_of(topology, out, agent)["epoch"] for agent in range(2)] == [1, 1]


def test_a_peer_that_waits_for_one_that_is_finished_and_has_nothing_left_to_say_ends_when_it_says_so(finished):
    topology, out = finished
    save(topology, out, 1, memories(topology, 30)[30][1])
    files = PeerFiles(out, topology, 1)
    files.result.unlink()
    files.facts.unlink()
    waiting = start_peer(topology, 1, out)
    with ended_afterwards(waiting):
        advice = "start it again: it answers, or says that the run is over"
        wait_until(lambda: advice in said(out, 1), "it says what to do")
        again = start_peer(topology, 0, out)
        with ended_afterwards(again):
            assert again.wait(60) == 0
        assert waiting.wait(60) == 8
    assert "without a state to say any block again, are peers 0" in said(out, 1)
    assert len(list((out.with_name("run.state")).glob("1-*.ckpt"))) == 1
