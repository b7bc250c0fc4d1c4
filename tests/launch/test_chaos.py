import contextlib
import os
import re
import socket

import pytest
from cli.commands import call
from processes import write_topology

from thanos_peer.launch import chaos
from thanos_peer.launch.chaos import KINDS, StallDetector, draw_faults
from thanos_peer.launch.proxy import Proxies

GREETING = b"g" * 64


def run_chaos(topology, out, *options):
    return call("chaos", topology.file, "--out", out, *options)


def test_whatever_happens_to_a_network_its_bits_stay_the_same(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "grid", 6, max_rounds=3000)
    said = run_chaos(topology, tmp_path / "run", "--faults", 16, "--seed", 1413252).output
    assert "same bits: the results of 6 peers, all after round 3000" in said
    assert all(f"2 x {kind}" in said for kind in KINDS)
    assert int(re.search(r"(\d+) kills", said)[1]) >= 10  # of 12 that are drawn, the last in round 788
    assert int(re.search(r"(\d+) messages dropped", said)[1]) > 0
    assert "too short" not in said


@pytest.fixture
def slow_disk(tmp_path, monkeypatch):
    """Have every process that is started take its time to flush a file, as real disks do."""
    code = "import os, time\nflush = os.fsync\nos.fsync = lambda number: (time.sleep(0.05), flush(number))[1]\n"
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "sitecustomize.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "disk"), prepend=os.pathsep)


@pytest.mark.usefixtures("slow_disk")  # otherwise it is luck to catch a peer in the middle of saving
def test_sixteen_peers_and_many_kills_give_the_same_bits(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "ring", 16, max_rounds=1500)
    kinds = [option for kind in ("kill", "storm", "kill-saving") for option in ("--only", kind)]
    said = run_chaos(topology, tmp_path / "run", "--faults", 15, *kinds, "--seed", 1746810, "-q").output
    assert "same bits: the results of 16 peers" in said
    kills, kills_saving = map(int, re.search(r"(\d+) kills \((\d+) of them", said).groups())
    assert kills >= 20  # of 32 that are drawn, the last in round 540
    assert kills_saving > 0


class Clock:
    """Stands still until it is set."""

    now = 1000.0

    def monotonic(self):
        return self.now


def test_a_run_that_prepares_its_data_moves_though_no_round_of_it_is_kept(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(chaos, "time", clock)
    places = {0: ("size", 0, 3), 1: None}
    progress = StallDetector(lambda: dict(places))
    clock.now += 2 * chaos.STUCK
    assert not progress.has_ended()
    clock.now += 2 * chaos.STUCK
    assert not progress.has_ended()  # one is still reading its data
    for k in range(10):
        places[1] = "size", 0, k
        clock.now += chaos.STUCK - 1
        assert not progress.has_ended()
    places[0] = None  # too busy to answer: that is nothing new
    clock.now += chaos.STUCK
    assert not progress.has_ended()
    places[0] = "size", 0, 3
    clock.now += chaos.ASK
    assert progress.has_ended()
    progress.note()
    assert not progress.has_ended()


def test_the_same_seed_draws_the_same_faults_and_another_seed_others():
    first, again, other = (draw_faults(20, KINDS, d=5, rounds=100, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert [fault.k for fault in first] == sorted(fault.k for fault in first)
    assert {fault.kind for fault in first} == set(KINDS)


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert str(tmp_path / "no.toml") in call("chaos", tmp_path / "no.toml", code=3).output


def frame(body, flags=0):
    return bytes([flags, len(body)]) + body


@contextlib.contextmanager
def through_a_proxy(**weather):
    """A connection through a proxy, and what came out at its other end so far."""
    with socket.create_server(("127.0.0.1", 0)) as server, Proxies([server.getsockname()[1]], seed=1) as proxies:
        if weather:
            proxies.worsen(0, 60.0, **weather)
        with socket.create_connection(("127.0.0.1", proxies.ports[0])) as here:
            there = server.accept()[0]
            with there:
                yield proxies, here, there


def read_all(there):
    there.settimeout(10)
    arrived = b""
    while chunk := there.recv(65536):
        arrived += chunk
    return arrived


@pytest.mark.parametrize(
    ("weather", "copies"), [({}, 1), ({"drop": 1.0}, 0), ({"duplicate": 1.0}, 2), ({"delay": 0.01}, 1)]
)
def test_a_proxy_lets_commands_through_and_treats_messages_as_told(weather, copies):
    long = bytes([2]) + (300).to_bytes(8, "big") + b"m" * 300
    with through_a_proxy(**weather) as (_, here, there):
        here.sendall(GREETING + frame(b"command", flags=4) + frame(b"message") + long)
        here.shutdown(socket.SHUT_WR)
        assert (
            read_all(there) == GREETING + frame(b"command", flags=4) + (frame(b"message")) * copies + long * copies
        )


def test_a_cut_closes_what_is_open_and_lets_nobody_through_until_it_is_over():
    with through_a_proxy() as (proxies, here, there):
        here.sendall(GREETING)
        assert there.recv(64) == GREETING
        proxies.cut(0, 30.0)  # longer than this takes however busy the machine is
        here.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            assert here.recv(1) == b""
        with socket.create_connection(("127.0.0.1", proxies.ports[0])) as refused:
            refused.settimeout(10)
            with contextlib.suppress(ConnectionResetError):
                assert refused.recv(1) == b""
