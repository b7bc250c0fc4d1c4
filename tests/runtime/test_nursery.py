"""Where the peers of `run` come from: forked from one process, or new programs where that cannot be."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from runtime.processes import (
    assert_same_bits,
    command,
    ended_afterwards,
    environment_with,
    wait_until,
    write_topology,
)
from runtime.test_run import are_stepping, launch, nursery_of, peers_of

from thanos_peer.results import PeerFiles
from thanos_peer.runtime.nursery import NewPrograms

NO_THIRD_PEER = """
import errno, os, sys
fork, first, forked = os.fork, os.getpid(), []
def fork_some():
    is_first = os.getpid() == first
    forked.append(is_first)
    if sum(forked) > 2 and is_first == {in_first}:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return fork()
if "nursery" in sys.orig_argv:
    os.fork = fork_some
"""
NO_NURSERY = "import os, sys\nif 'nursery' in sys.orig_argv: os.kill(os.getpid(), 9)\n"


@pytest.fixture
def ring(tmp_path):
    return write_topology(tmp_path / "net.toml", "ring", 4, max_rounds=300, tolerance=0.0)


def finish(topology, out, env):
    return subprocess.run(
        command("run", topology.file, "--out", out, "--free-ports", "--quiet"),
        capture_output=True,
        text=True,
        check=False,
        env=env,
        timeout=120,
    )


def test_peers_go_on_without_it(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "ring", 4, max_rounds=3000, tolerance=0.0)
    launcher = launch(topology, tmp_path / "run", "--free-ports", "--quiet")
    with ended_afterwards(launcher):
        peers_of(launcher, 4)
        os.kill(nursery_of(launcher), signal.SIGKILL)
        _, stderr = launcher.communicate(timeout=120)
    assert launcher.returncode == 0, stderr
    assert_same_bits(tmp_path / "run", topology)


def test_with_threads_that_a_fork_would_leave_behind_peers_are_new_programs(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "ring", 4, max_rounds=10**7)
    launcher = launch(topology, tmp_path / "run", "--free-ports", env=os.environ | {"OPENBLAS_NUM_THREADS": "2"})
    with ended_afterwards(launcher):
        pids = peers_of(launcher, 4)
        wait_until(lambda: are_stepping(tmp_path / "run", topology), "rounds pass")
        for pid in pids:
            assert b"\0-m\0thanos_peer\0start\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
        launcher.send_signal(signal.SIGINT)
        launcher.communicate(timeout=60)
    assert launcher.returncode == 130


@pytest.mark.parametrize("in_first", [True, False])
def test_a_peer_that_no_process_can_be_made_for_is_named(ring, tmp_path, in_first):
    few = environment_with(NO_THIRD_PEER.format(in_first=in_first), tmp_path / "few")
    done = finish(ring, tmp_path / "run", few)
    assert done.returncode == 3
    assert "peer 2 ended with exit code 3" in done.stderr
    assert "no process can be made for this peer: Resource temporarily unavailable" in done.stderr
    assert "Traceback" not in done.stderr


def test_if_it_is_killed_before_there_are_peers_the_run_says_so(ring, tmp_path):
    done = finish(ring, tmp_path / "run", environment_with(NO_NURSERY, tmp_path / "none"))
    assert done.returncode == 128 + signal.SIGKILL
    assert "the process that peers are forked from has ended" in done.stderr
    assert "Traceback" not in done.stderr


def test_where_peers_cannot_be_forked_they_are_new_programs_with_the_same_bits(ring, tmp_path):
    programs, out = NewPrograms(os.environ), tmp_path / "run"
    arguments = ["--topology", str(ring.file), "--out", str(out), "--end-with-stdin"]
    peers = []
    for i in range(ring.d):
        files = PeerFiles(out, ring, i)
        files.prepare(is_resumed=False)
        with files.log.open("ab") as log:
            peers.append(programs.start(["--id", str(i), *arguments], log))
    with ended_afterwards(*peers):
        assert [peer.wait(timeout=60) for peer in peers] == [0] * ring.d
    assert_same_bits(out, ring)


@pytest.mark.parametrize("channel", ["0", "99", "9" * 30])
def test_started_by_hand_it_says_who_starts_it(channel):
    done = subprocess.run(
        command("nursery", channel, "x"), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "it is for `thanos-peer run` to start this" in done.stderr
    assert "Traceback" not in done.stderr
