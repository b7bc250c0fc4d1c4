import contextlib
import os
import re
import socket

import pytest
from cli.commands import call
from processes import environment_with, exact, wait_until, write_topology

from thanos_peer.cli import chaos as cli_chaos
from thanos_peer.launch import chaos
from thanos_peer.launch.chaos import StallDetector
from thanos_peer.launch.faults import KINDS, draw_faults, kinds_for
from thanos_peer.launch.ports import free_ports
from thanos_peer.launch.proxy import Proxies
from thanos_peer.topology import load

GREETING = b"g" * 64


def run_chaos(topology, out, *options):
    return call("chaos", topology.file, "--out", out, *options)


def test_whatever_happens_to_a_network_with_keys_its_bits_stay_the_same(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "grid", 6, max_rounds=1500)
    kinds = kinds_for((), in_the_clear=False)
    said = run_chaos(topology, tmp_path / "run", "--faults", len(kinds), "--seed", 686).output
    assert "same bits: the results of 6 peers, all after round 1500" in said
    assert all(f"1 x {kind}" in said for kind in kinds)
    assert int(re.search(r"(\d+) kills", said)[1]) >= 5
    assert int(re.search(r"(\d+) connections broken", said)[1]) > 0
    assert load(tmp_path / "run" / "topology.toml").has_keys
    assert "true claims: all" in said


def test_single_messages_are_dropped_and_doubled_in_the_clear(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "ring", 4, max_rounds=600)
    options = ["--in-the-clear", "--only", "drop", "--only", "duplicate", "--faults", 2, "-q"]
    said = run_chaos(topology, tmp_path / "run", *options).output
    assert "same bits: the results of 4 peers, all after round 600" in said
    assert int(re.search(r"(\d+) messages dropped", said)[1]) > 0
    assert int(re.search(r"(\d+) messages duplicated", said)[1]) > 0
    assert not load(tmp_path / "run" / "topology.toml").has_keys


def test_all_faults_strike_a_run_that_is_over_in_a_moment(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 3, change=exact("gram"))
    kinds = [option for kind in ("kill", "reset", "delay") for option in ("--only", kind)]
    said = run_chaos(topology, tmp_path / "run", "--faults", 9, *kinds).output
    assert int(re.search(r"in one process: (\d+) rounds", said)[1]) < 30
    assert "struck: 3 x delay, 3 x kill, 3 x reset" in said
    assert "same bits: the results of 3 peers" in said


def test_fewer_faults_than_asked_for_are_a_failure(tmp_path, monkeypatch):
    # The faults are drawn as if the run took so many rounds.
    monkeypatch.setattr(cli_chaos, "latest_round", lambda *_: 100_000)
    topology = write_topology(tmp_path / "net.toml", "path", 3, change=exact("gram"))
    said = call("chaos", topology.file, "--out", tmp_path / "run", "--faults", 3, code=9).output
    assert "same bits" in said
    assert "NOT STRUCK: only 0 of 3 faults: the run was over before the others" in said


def test_a_claim_that_the_data_deny_is_a_failure(tmp_path, monkeypatch):
    """All peers say that they are nearer to orthonormal columns than any can be."""
    code = """
from thanos_peer.loadings import findings
from thanos_peer.storage import peer_files
honest = findings.facts_of_loadings
peer_files.facts_of_loadings = lambda X, *rest: honest(X, *rest) | {"feasibility": -1.0}
"""
    environment = environment_with(code, tmp_path / "lies")
    monkeypatch.setenv("PYTHONPATH", environment["PYTHONPATH"])
    topology = write_topology(tmp_path / "net.toml", "path", 2, max_rounds=20)
    said = call("chaos", topology.file, "--out", tmp_path / "run", "--faults", 0, code=10).output
    assert "same bits" in said
    assert re.search(r"FALSE CLAIM: peer 1: feasibility: claimed -1.0, the data say \d", said)


@pytest.mark.parametrize(
    ("options", "has_keys", "words"),
    [
        (["--only", "drop"], False, "--only drop: this kind of fault tells messages apart, which keys hide; add"),
        (["--only", "lose-bytes", "--in-the-clear"], False, "--only lose-bytes: this kind of fault needs keys"),
        (["--in-the-clear"], True, "has keys, and nothing falls back to none; leave the option out"),
    ],
)
def test_faults_that_keys_and_no_keys_forbid_are_refused(options, has_keys, words, tmp_path):
    topology = write_topology(tmp_path / "net.toml", has_keys=has_keys)
    assert words in call("chaos", topology.file, *options, "--out", tmp_path / "run", code=3).output
    assert not (tmp_path / "run").exists()


@pytest.fixture
def slow_disk(tmp_path, monkeypatch):
    """Have every process that is started take its time to flush a file, as real disks do."""
    code = "import os, time\nflush = os.fsync\nos.fsync = lambda number: (time.sleep(0.05), flush(number))[1]\n"
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "sitecustomize.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "disk"), prepend=os.pathsep)


# On a quick disk it would be luck to catch a peer in the middle of saving.
@pytest.mark.usefixtures("slow_disk")
def test_sixteen_peers_and_many_kills_give_the_same_bits(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "ring", 16, max_rounds=1500)
    kinds = [option for kind in ("kill", "storm", "kill-saving") for option in ("--only", kind)]
    said = run_chaos(topology, tmp_path / "run", "--faults", 9, *kinds, "--seed", 9, "-q").output
    assert "same bits: the results of 16 peers" in said
    kills, kills_saving = map(int, re.search(r"(\d+) kills \((\d+) of them", said).groups())
    assert kills == 21  # all that are drawn
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
    # A peer that is too busy to answer is nothing new.
    places[0] = None
    clock.now += chaos.STUCK
    assert not progress.has_ended()
    places[0] = "size", 0, 3
    clock.now += chaos.ASK
    assert progress.has_ended()
    progress.note()
    assert not progress.has_ended()


def test_the_same_seed_draws_the_same_faults_and_another_seed_others():
    first, again, other = (draw_faults(20, KINDS, d=5, latest=100, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert [fault.k for fault in first] == sorted(fault.k for fault in first)
    assert max(fault.k for fault in first) <= 100
    assert {fault.kind for fault in first} == set(KINDS)


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert str(tmp_path / "no.toml") in call("chaos", tmp_path / "no.toml", code=3).output


def frame(body, flags=0):
    return bytes([flags, len(body)]) + body


@contextlib.contextmanager
def through_a_proxy(*, in_the_clear=False, **weather):
    """A connection through a proxy, and its other end."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Proxies([server.getsockname()[1]], free_ports(1), seed=1, in_the_clear=in_the_clear) as proxies,
    ):
        if weather:
            proxies.worsen(0, 60.0, **weather)
        with socket.create_connection(("127.0.0.1", proxies.ports[0])) as here:
            there = server.accept()[0]
            with there:
                here.settimeout(10)
                there.settimeout(10)
                there.sendall(b"!")
                assert here.recv(1) == b"!"  # the proxy knows both ends
                yield proxies, here, there


def read_all(there):
    arrived = b""
    while chunk := there.recv(65536):
        arrived += chunk
    return arrived


@pytest.mark.parametrize(
    ("weather", "copies"), [({}, 1), ({"drop": 1.0}, 0), ({"duplicate": 1.0}, 2), ({"delay": 0.01}, 1)]
)
def test_a_proxy_lets_commands_through_and_treats_messages_as_told(weather, copies):
    long = bytes([2]) + (300).to_bytes(8, "big") + b"m" * 300
    with through_a_proxy(in_the_clear=True, **weather) as (_, here, there):
        here.sendall(GREETING + frame(b"command", flags=4) + frame(b"message") + long)
        here.shutdown(socket.SHUT_WR)
        assert (
            read_all(there) == GREETING + frame(b"command", flags=4) + (frame(b"message")) * copies + long * copies
        )


def test_a_cut_closes_what_is_open_and_lets_nothing_through_until_it_is_over():
    with through_a_proxy() as (proxies, here, there):
        here.sendall(GREETING)
        assert there.recv(64) == GREETING
        # This is longer than the test takes, however busy the machine is.
        proxies.cut(0, 30.0)
        with contextlib.suppress(ConnectionResetError):
            assert here.recv(1) == b""
        with socket.create_connection(("127.0.0.1", proxies.ports[0])) as refused:
            refused.settimeout(10)
            with contextlib.suppress(ConnectionResetError):
                assert refused.recv(1) == b""


def test_a_reset_is_told_as_one_and_the_next_connection_gets_through():
    with through_a_proxy() as (proxies, here, there):
        here.sendall(b"a")
        assert there.recv(1) == b"a"
        proxies.reset(0)
        for end in (here, there):
            with pytest.raises(ConnectionResetError):
                end.recv(1)
        assert proxies.counts()["connections broken"] == 1
        socket.create_connection(("127.0.0.1", proxies.ports[0])).close()


def test_while_it_is_refused_nothing_listens_there():
    with through_a_proxy() as (proxies, here, _):
        proxies.refuse(0, 30.0)  # longer than this takes
        with contextlib.suppress(ConnectionResetError):
            assert here.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", proxies.ports[0]))


def test_after_it_was_refused_it_listens_again():
    with through_a_proxy() as (proxies, here, _):
        proxies.refuse(0, 0.01)
        with contextlib.suppress(ConnectionResetError):
            assert here.recv(1) == b""
        assert wait_until(lambda: is_reached(proxies.ports[0]), "it listens again")


def is_reached(port):
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@pytest.mark.parametrize(("way_in", "way_back"), [(True, False), (False, True), (True, True)])
def test_what_is_held_stays_on_its_way_while_the_connection_is_open(way_in, way_back):
    with through_a_proxy() as (proxies, here, there):
        proxies.hold(0, 30.0, way_in=way_in, way_back=way_back)  # longer than this takes
        for is_held, sender, receiver in ((way_in, here, there), (way_back, there, here)):
            sender.sendall(b"?")
            if is_held:
                receiver.settimeout(0.05)
                with pytest.raises(TimeoutError):
                    receiver.recv(1)
            else:
                assert receiver.recv(1) == b"?"
        proxies.reset(0)
        for end in (here, there):
            end.settimeout(10)
            with pytest.raises(ConnectionResetError):
                end.recv(1)


def test_half_of_a_connection_stays_open():
    with through_a_proxy() as (proxies, here, there):
        proxies.half_open(0, 30.0)  # longer than this takes
        with contextlib.suppress(ConnectionResetError):
            assert here.recv(1) == b""
        there.settimeout(0.05)
        with pytest.raises(TimeoutError):
            there.recv(1)


def test_a_piece_may_lose_a_byte():
    with through_a_proxy(loss=1.0) as (proxies, here, there):
        here.sendall(b"abcde")
        assert there.recv(5) == b"abde"
        assert proxies.counts()["bytes lost"] == 1


def test_no_more_gets_through_than_was_allowed():
    with through_a_proxy() as (proxies, here, there):
        proxies.allowance.give(1)
        here.sendall(b"a")
        assert there.recv(1) == b"a"
        here.sendall(b"b")
        there.settimeout(0.05)
        with pytest.raises(TimeoutError):
            there.recv(1)
        proxies.allowance.give(1)
        there.settimeout(10)
        assert there.recv(1) == b"b"
