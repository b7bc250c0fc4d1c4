"""Launchers that people have: a rank becomes an id, a peer stays, and says whether it is well."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from namespaces import need
from processes import (
    assert_same_bits,
    command,
    ended_afterwards,
    said,
    start_peer,
    wait_until,
    write_topology,
)
from programs import run

from thanos_peer.storage.outcome import load_outcome

THANOS_PEER = Path(sys.executable).with_name("thanos-peer")


def mpirun(ranks, topology, directory):
    """Start a peer per rank, as anybody would who is not root and has as many cores."""
    need("mpirun", is_root=False)
    return subprocess.run(
        [
            *("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(ranks)),
            *(THANOS_PEER, "start", "--topology", topology.file),
        ],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_mpirun_gives_the_bits_of_run(tmp_path):
    topology = write_topology(tmp_path / "ring.toml", "ring", 8, max_rounds=2000, tolerance=1e-3)
    done = mpirun(8, topology, tmp_path)
    assert done.returncode == 0, done.stderr
    by_mpirun, by_run = tmp_path / "runs/ring-8", tmp_path / "by-run"
    run(*command("run", topology.file, "--out", by_run, "--quiet"))
    ours, theirs = load_outcome(by_run, topology), load_outcome(by_mpirun, topology)
    assert theirs.X.tobytes() == ours.X.tobytes()
    assert theirs.D.tobytes() == ours.D.tobytes()
    assert_same_bits(by_mpirun, topology)


def test_more_ranks_than_peers_end_with_an_error_that_says_so(tmp_path):
    done = mpirun(3, write_topology(tmp_path / "path.toml", "path", 2, max_rounds=20), tmp_path)
    assert done.returncode == 3
    assert "--id 2" in done.stderr
    assert "0 to 1" in done.stderr


def test_a_peer_that_is_told_to_stay_waits_for_a_signal_when_it_is_done(tmp_path):
    topology = write_topology(tmp_path / "path.toml", "path", 2, max_rounds=20)
    processes = [start_peer(topology, agent, tmp_path / "run", "--stay") for agent in range(2)]
    with ended_afterwards(*processes):
        for agent in range(2):
            wait_until(
                lambda i=agent: "staying until SIGTERM" in said(tmp_path / "run", i), f"peer {agent} is done"
            )
        assert [process.poll() for process in processes] == [None, None]
        for process in processes:
            process.terminate()
        assert [process.wait(30) for process in processes] == [0, 0]
    assert_same_bits(tmp_path / "run", topology)


def test_a_peer_that_is_told_to_go_while_it_takes_leave_does_not_stay(tmp_path):
    topology = write_topology(tmp_path / "path.toml", "path", 2, max_rounds=20)
    second = start_peer(topology, 1, tmp_path / "second")
    with ended_afterwards(second):
        wait_until(lambda: "listening" in said(tmp_path / "second", 1), "a peer that waits")
        (tmp_path / "second/peers").rmdir()
        # Its result cannot be written, so it is never done.
        (tmp_path / "second/peers").touch()
        first = start_peer(topology, 0, tmp_path / "first", "--stay")
        with ended_afterwards(first):
            assert second.wait(60) == 8
            wait_until(lambda: "staying, since" in said(tmp_path / "first", 0), "one that stays for the other")
            first.terminate()
            assert first.wait(30) == 0
    assert "staying until SIGTERM" not in said(tmp_path / "first", 0)


def test_a_peer_that_finds_itself_done_stays_until_it_is_told_to_go(tmp_path):
    topology = write_topology(tmp_path / "path.toml", "path", 2, max_rounds=20)
    run(*command("run", topology.file, "--out", tmp_path / "run", "--quiet"))
    peer = start_peer(topology, 0, tmp_path / "run", "--stay", "--state", tmp_path / "run/state")
    with ended_afterwards(peer):
        wait_until(lambda: "staying until SIGTERM" in said(tmp_path / "run", 0), "it stays")
        assert "finished already" in said(tmp_path / "run", 0)
        peer.terminate()
        assert peer.wait(30) == 0


SLOW = """
import pathlib, time


class Slow:
    def __init__(self, samples):
        pathlib.Path(__file__).with_name("reading").touch()
        time.sleep(600)
"""


def test_the_first_process_of_a_container_ends_when_asked_while_it_reads_its_data(tmp_path):
    need("unshare")

    def change(raw):
        raw["problem"]["objective"] = "slow:Slow"
        raw["algorithm"]["start"] = {"kind": "random", "seed": 1}

    topology = write_topology(tmp_path / "path.toml", "path", 2, change=change)
    (tmp_path / "slow.py").write_text(SLOW, encoding="ascii")
    alone = ("unshare", "--pid", "--fork", "--kill-child")
    peer = start_peer(topology, 0, tmp_path / "run", "--allow-code", tmp_path / "slow.py", prefix=alone)
    with ended_afterwards(peer):
        wait_until((tmp_path / "reading").exists, "a peer that reads")
        (first,) = Path(f"/proc/{peer.pid}/task/{peer.pid}/children").read_text(encoding="ascii").split()
        os.kill(int(first), signal.SIGTERM)
        assert peer.wait(30) == 143


def test_the_health_of_a_peer_is_whether_it_answers(tmp_path):
    topology = write_topology(tmp_path / "path.toml", "path", 2)
    address = f"ipc://{tmp_path}/status"
    ask = [sys.executable, "-m", "thanos_peer.peer.health"]
    environment = os.environ | {"THANOS_PEER_STATUS": address}
    assert subprocess.run(ask, env=environment, check=False, timeout=60).returncode == 1
    peer = start_peer(topology, 0, tmp_path / "run", env=environment)
    with ended_afterwards(peer):
        wait_until(lambda: "listening" in said(tmp_path / "run", 0), "a peer that listens")
        is_well = lambda: subprocess.run(ask, env=environment, check=False, timeout=60).returncode == 0  # noqa: E731
        wait_until(is_well, "a peer that is well")
        assert "peer 0 of path-2: round 0" in run(*command("status", "--timeout", 60), env=environment)
