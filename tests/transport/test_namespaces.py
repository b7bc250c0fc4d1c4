"""Peers on separate hosts: each in a network namespace of its own."""

from namespaces import connected_hosts
from processes import assert_same_bits, ended_afterwards, start_peer, write_topology


def test_peers_on_separate_hosts_have_the_bits_of_one_process(tmp_path):
    with connected_hosts(4) as lan:
        topology = write_topology(
            tmp_path / "net.toml", "ring", 4, change=lan.each_on_its_own_host, max_rounds=2000, tolerance=1e-3
        )
        out = tmp_path / "run"
        processes = [start_peer(topology, agent, out, prefix=lan.on(agent)) for agent in (2, 0, 3, 1)]
        with ended_afterwards(*processes):
            assert [process.wait(120) for process in processes] == [0] * 4
    assert_same_bits(out, topology)
