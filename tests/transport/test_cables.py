"""Cables that are cut, packets that get lost, a host that moves, a peer that freezes: the bits of one process."""

import contextlib
import signal
import time

import pytest
from namespaces import connected_hosts, need, run
from processes import (
    PATIENCE,
    assert_same_bits,
    ended_afterwards,
    said,
    start_peer,
    wait_until,
    write_topology,
)

from thanos_peer.storage.peer_files import PeerFiles
from thanos_peer.storage.trajectory import record_type

# Rounds: many more than pass between two faults.
ROUNDS = 2000
# Seconds to say that a connection is lost, and to go on once it can be had again.
SOON = 30.0
FROZEN = 60.0  # seconds
LOSS = ("INPUT", "-i", "eth0", "-m", "statistic", "--mode", "random", "--probability", "0.3", "-j", "DROP")


@pytest.fixture
def lan():
    with connected_hosts(4) as lan:
        yield lan


@contextlib.contextmanager
def running(topology, out, lan=None):
    """All peers, each on its host if there are hosts; in the end all have to be done."""
    processes = [
        start_peer(topology, agent, out, "--keep-every", 1, prefix=lan.on(agent) if lan else ())
        for agent in range(topology.d)
    ]
    with ended_afterwards(*processes):
        wait_until_all_reach(topology, out, 10)
        yield processes
        assert [process.wait(PATIENCE) for process in processes] == [0] * topology.d


def latest_rounds(topology, out):
    size = record_type(topology.problem.n, topology.problem.p).itemsize
    files = [PeerFiles(out, topology, agent).trajectory for agent in range(topology.d)]
    return [file.stat().st_size // size - 1 if file.exists() else -1 for file in files]


def wait_until_all_reach(topology, out, k, seconds=PATIENCE):
    wait_until(lambda: min(latest_rounds(topology, out)) >= k, f"all peers reach round {k}", seconds)


def wait_until_all_go_on(topology, out, rounds=4, seconds=SOON):
    """Wait for rounds that cannot pass without all peers."""
    wait_until_all_reach(topology, out, max(latest_rounds(topology, out)) + rounds, seconds)


class Receiver:
    """Hears what the neighbors of a peer say of it from now on."""

    def __init__(self, topology, out, agent):
        self._begin, self._out = f"for peer {agent} at {topology.peers[agent].address}: ", out
        self._known = {j: len(said(out, j)) for j in topology.graph.neighbors[agent]}

    def wait_for(self, what):
        """Wait until every neighbor has said it."""
        wait_until(lambda: all(self._has_said(j, what) for j in self._known), self._begin + what, SOON)

    def _has_said(self, j, what):
        return self._begin + what in said(self._out, j)[self._known[j] :]


def dropped_packets(lan, host):
    return int(run(*lan.on(host), "iptables", "-nvxL", "INPUT").splitlines()[2].split()[0])


def test_every_cable_is_cut_and_mended_in_turn(lan, tmp_path):
    topology = write_topology(tmp_path / "net.toml", "ring", 4, change=lan.each_on_its_own_host, max_rounds=ROUNDS)
    out = tmp_path / "run"
    with running(topology, out, lan):
        for agent in range(4):
            receiver = Receiver(topology, out, agent)
            lan.cut(agent)
            receiver.wait_for("connection lost")
            lan.mend(agent)
            wait_until_all_go_on(topology, out)
    assert_same_bits(out, topology)


def test_three_in_ten_packets_are_lost_for_a_while(lan, tmp_path):
    need("iptables")
    topology = write_topology(tmp_path / "net.toml", "ring", 4, change=lan.each_on_its_own_host, max_rounds=ROUNDS)
    out = tmp_path / "run"
    with running(topology, out, lan):
        for host in range(4):
            run(*lan.on(host), "iptables", "-A", *LOSS)
        wait_until_all_go_on(topology, out, rounds=10, seconds=PATIENCE)
        wait_until(lambda: all(dropped_packets(lan, host) > 10 for host in range(4)), "losses at every host")
        for host in range(4):
            run(*lan.on(host), "iptables", "-D", *LOSS)
        wait_until_all_go_on(topology, out)
    assert_same_bits(out, topology)


def test_a_host_that_moves_to_another_address_is_found_again_by_its_name(lan, tmp_path):
    addresses = {f"host-{number}.test": lan.address_of(number) for number in range(4)}

    def by_name(raw):
        for peer in raw["peers"]:
            peer["address"] = f"tcp://host-{peer['id']}.test:{lan.port}"
            peer["bind"] = f"tcp://0.0.0.0:{lan.port}"

    topology = write_topology(tmp_path / "net.toml", "ring", 4, change=by_name, max_rounds=ROUNDS)
    out = tmp_path / "run"
    with lan.own_hosts_files(addresses), running(topology, out, lan):
        receiver = Receiver(topology, out, 1)
        lan.move(1, "10.77.0.101")
        receiver.wait_for("connection lost")
        lan.write_hosts_files(addresses | {"host-1.test": "10.77.0.101"})
        wait_until_all_go_on(topology, out)
    assert_same_bits(out, topology)


def test_a_frozen_peer_is_named_by_its_neighbors_and_goes_on_when_it_thaws(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "ring", 5, max_rounds=ROUNDS), tmp_path / "run"
    with running(topology, out) as processes:
        receiver, began = Receiver(topology, out, 2), time.monotonic()
        processes[2].send_signal(signal.SIGSTOP)
        receiver.wait_for("connection lost")
        time.sleep(max(0.0, began + FROZEN - time.monotonic()))
        processes[2].send_signal(signal.SIGCONT)
        wait_until_all_go_on(topology, out)
    assert_same_bits(out, topology)
