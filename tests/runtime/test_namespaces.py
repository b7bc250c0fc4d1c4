"""Peers on separate hosts: each in a network namespace of its own, on a switch that leads nowhere else."""

import contextlib
import os
import shutil
import subprocess

import pytest
from runtime.processes import assert_same_bits, ended_afterwards, start_peer, write_topology

TAG = f"tp{os.getpid() % 10000}"


def ip(*arguments):
    subprocess.run(["ip", *map(str, arguments)], check=True, capture_output=True, text=True)  # noqa: S607


@pytest.fixture
def hosts():
    """Four hosts 10.77.0.1 to 10.77.0.4 on one switch; gives the prefix that runs a command on each."""
    why = "needs root and the command ip" if os.geteuid() != 0 or shutil.which("ip") is None else None
    if why and os.environ.get("CI"):
        pytest.fail(f"CI has no network namespaces: {why}")
    if why:
        pytest.skip(why)
    names = [f"{TAG}h{number}" for number in range(4)]
    switch = f"{TAG}s"
    with contextlib.ExitStack() as stack:
        for name in (switch, *names):
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name)
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        for number, name in enumerate(names):
            ip("-n", switch, "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("-n", switch, "link", "set", f"v{number}", "master", "br0", "up")
            ip("-n", name, "addr", "add", f"10.77.0.{number + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield [["ip", "netns", "exec", name] for name in names]


def test_peers_on_separate_hosts_have_the_bits_of_one_process(hosts, tmp_path):
    def everybody_on_its_own_host(raw):
        for peer in raw["peers"]:
            peer["address"] = f"tcp://10.77.0.{peer['id'] + 1}:17000"

    topology = write_topology(
        tmp_path / "net.toml", "ring", 4, change=everybody_on_its_own_host, max_rounds=2000, tolerance=1e-3
    )
    out = tmp_path / "run"
    processes = [start_peer(topology, agent, out, prefix=hosts[agent]) for agent in (2, 0, 3, 1)]
    with ended_afterwards(*processes):
        assert [process.wait(120) for process in processes] == [0] * 4
    assert_same_bits(out, topology)
