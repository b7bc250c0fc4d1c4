"""Epochs: none is begun twice, a peer without its state makes nothing up, and what goes wrong is said."""

import signal
from dataclasses import replace

import pytest
from processes import (
    assert_same_bits,
    ended_afterwards,
    exact,
    own_name,
    said,
    simulated,
    start_peer,
    wait_until,
    write_topology,
)
from puppets import puppets_around

from thanos_peer.block import Block
from thanos_peer.problem import build
from thanos_peer.protocol.messages import DONE, Bye, Hello
from thanos_peer.simulate import AgentNetwork
from thanos_peer.storage.checkpoint import CheckpointStore
from thanos_peer.storage.peer_files import PeerFiles


def start_lost(topology, out, puppet, *options):
    """Start peer 0, and have its neighbor say that it has lost its state in epoch 1."""
    peer = start_peer(topology, 0, out, *options)
    puppet.say_hello(epoch=1, oldest=1, answered=puppet.wait_for(Hello).life)
    puppet.wait_for(Hello, epoch=1)
    return peer


def test_a_peer_without_its_state_says_hello_but_no_block(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "path", 2), tmp_path / "run"
    with puppets_around(topology, 0) as puppets:
        puppet = puppets[1]
        peer = start_lost(topology, out, puppet)
        with ended_afterwards(peer):
            said_before = len(puppet.told(Hello, epoch=1))
            for count in range(1, 4):
                puppet.say_hello(epoch=1, is_asking=True)
                puppet.wait_for(Hello, said_before + count, epoch=1)
            puppet.say_block(3, epoch=1)
            assert peer.wait(60) == 8
        assert puppet.told(Block, epoch=1) == []
    assert "the state of this peer is lost" in said(out, 0)


def test_a_peer_stopped_without_its_state_saves_nothing_in_an_epoch_that_it_has_not_begun(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "path", 2), tmp_path / "run"
    with puppets_around(topology, 0) as puppets:
        peer = start_lost(topology, out, puppets[1])
        with ended_afterwards(peer):
            peer.send_signal(signal.SIGTERM)
            assert peer.wait(60) == 143
    assert list((tmp_path / "run.state").glob("0-e*.ckpt")) == []


def test_an_epoch_is_not_begun_before_all_neighbors_have_answered_for_one_may_have_heard_it_begun(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "path", 3), tmp_path / "run"
    with puppets_around(topology, 1) as puppets:
        peer = start_peer(topology, 1, out)
        with ended_afterwards(peer):
            life = puppets[0].wait_for(Hello).life
            for count in range(4):
                puppets[2].say_hello(epoch=1, answered=life)
                puppets[0].wait_for(Hello, 2 + count)
            assert "epoch 1" not in said(out, 1)
            puppets[0].say_hello(epoch=1, oldest=1, answered=life)
            puppets[0].wait_for(Hello, epoch=1)
            puppets[0].say_block(1, epoch=1)
            assert peer.wait(60) == 8
        assert puppets[2].told(Block, epoch=1) == []
    assert "the state of this peer is lost" in said(out, 1)


def test_an_epoch_that_all_neighbors_know_of_is_begun(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "path", 3), tmp_path / "run"
    with puppets_around(topology, 1) as puppets:
        peer = start_peer(topology, 1, out)
        with ended_afterwards(peer):
            for puppet in puppets.values():
                puppet.say_hello(epoch=1, answered=puppet.wait_for(Hello).life)
            wait_until(lambda: "epoch 1: so says peer" in said(out, 1), "it begins")
            for puppet in puppets.values():
                puppet.wait_for(Hello, epoch=1)


@pytest.mark.parametrize(
    ("lost", "k"),
    [(0, 27), (0, 28), (1, 27), (1, 28)],
    ids=["leaf, word", "leaf, none", "root, none", "root, sum"],
)
def test_a_disk_lost_in_the_middle_of_a_sum_takes_all_to_the_beginning_and_to_the_same_bits(tmp_path, lost, k):
    topology = write_topology(tmp_path / "net.toml", "path", 3, change=exact("proximal"), name=own_name("lost"))
    out, network = tmp_path / "run", AgentNetwork(build(topology))
    while network.agents[0].k < k:
        network.advance()
    assert network.phase[0] == "proximal"
    for agent in (agent for agent in network.agents if agent.id != lost):
        memory = agent.memory()
        with CheckpointStore(tmp_path / "run.state", topology, agent.id, is_flushed=False) as store:
            store.save(replace(memory, fallbacks=dict.fromkeys(memory.fallbacks, k), said=memory.said[-1:]))
    peers = [start_peer(topology, i, out, "--restart-tracking") for i in range(3)]
    with ended_afterwards(*peers):
        assert [peer.wait(120) for peer in peers] == [0] * 3, "".join(said(out, i) for i in range(3))
    for i in range(3):
        assert "the tracking starts again with phase size, epoch 1" in said(out, i)
        assert "Traceback" not in said(out, i)
    assert_same_bits(out, topology)


def in_the_way(path):
    """Something that is no file, where a file is to be written or removed."""
    path.unlink(missing_ok=True)
    (path / "full").mkdir(parents=True)


@pytest.mark.parametrize("what", ["result", "state"])
def test_one_that_is_done_and_cannot_begin_an_epoch_ends_and_says_why(tmp_path, what):
    topology, out = write_topology(tmp_path / "net.toml", "path", 2), tmp_path / "run"
    with CheckpointStore(tmp_path / "run.state", topology, 0, is_flushed=False) as store:
        store.save(simulated(topology).agents[0].memory())
    with puppets_around(topology, 0) as puppets:
        puppet = puppets[1]
        peer = start_peer(topology, 0, out)
        with ended_afterwards(peer):
            life = puppet.wait_for(Hello).life
            assert puppet.wait_for(Bye).reason == DONE
            place = tmp_path / "run.state/0-e1-000000000000.ckpt.new"
            in_the_way(PeerFiles(out, topology, 0).facts if what == "result" else place)
            puppet.say_hello(epoch=1, answered=life)
            assert peer.wait(60) == 8
        reasons = [bye.reason for bye in puppet.told(Bye) if bye.reason != DONE]
        # The peer says why it leaves in the epoch that its neighbors may be in.
        assert set(reasons) == {"it cannot save or read its state"}
        # The peer says it in the epoch that it could not begin, too.
        assert puppet.told(Bye, epoch=1)
    assert ("cannot withdraw " if what == "result" else "cannot save the state to ") in said(out, 0)
    assert "Traceback" not in said(out, 0)
