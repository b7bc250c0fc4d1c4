"""Where the peers of `run` come from: forked from one process, or new programs where that cannot be."""

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from launch.test_cluster import are_stepping, fork_server_of, launch, peers_of
from processes import (
    assert_same_bits,
    command,
    ended_afterwards,
    environment_with,
    is_alive,
    wait_until,
    write_topology,
)

from thanos_peer.launch.fork_server import LONGEST, ForkServer
from thanos_peer.storage.peer_files import PeerFiles

NO_THIRD_PEER = """
import errno, os, sys
fork, first, forked = os.fork, os.getpid(), []
def fork_some():
    is_first = os.getpid() == first
    forked.append(is_first)
    if sum(forked) > 2 and is_first == {in_first}:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return fork()
if "fork-server" in sys.orig_argv:
    os.fork = fork_some
"""
NO_PROGRAM = """
import subprocess
start = subprocess.Popen
def start_some(command, *rest, **options):
    if set(command) & set("{words}".split()):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return start(command, *rest, **options)
subprocess.Popen = start_some
"""
SLOW_FORKS = """
import os, pathlib, sys, time
def fork():
    pathlib.Path({here!r}).touch()
    time.sleep(100)
if "fork-server" in sys.orig_argv:
    os.fork = fork
"""
KILLED_BY_FORKING = """
import os, sys
def fork():
    os.kill(os.getpid(), 9)
if "fork-server" in sys.orig_argv:
    os.fork = fork
"""
BROKEN_SERVER = "import sys\nif 'fork-server' in sys.orig_argv: sys.exit('the real reason')\n"
DRAWS_AT_THE_END = """
import atexit, sys
def draw():
    import numpy
    print(numpy.random.normal())
if "fork-server" in sys.orig_argv:
    atexit.register(draw)
"""
NO_SERVER = "import os, sys\nif 'fork-server' in sys.orig_argv: os.kill(os.getpid(), 9)\n"


@pytest.fixture
def ring(tmp_path):
    return write_topology(tmp_path / "net.toml", "ring", 4, max_rounds=300, tolerance=0.0)


def ended(peer):
    """The exit code of a peer that is yet to end."""
    code = peer.wait()
    peer.stdin.close()
    return code


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
        os.kill(fork_server_of(launcher.pid), signal.SIGKILL)
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
def test_a_peer_that_it_cannot_fork_is_a_new_program(ring, tmp_path, in_first):
    few = environment_with(NO_THIRD_PEER.format(in_first=in_first), tmp_path / "few")
    done = finish(ring, tmp_path / "run", few)
    assert done.returncode == 0, done.stderr
    assert_same_bits(tmp_path / "run", ring)


@pytest.mark.parametrize(("words", "first"), [("start", 2), ("fork-server start", 0)])
def test_a_peer_that_no_process_can_be_made_for_is_named(ring, tmp_path, words, first):
    fault = NO_THIRD_PEER.format(in_first=True) + NO_PROGRAM.format(words=words)
    done = finish(ring, tmp_path / "run", environment_with(fault, tmp_path / "none"))
    assert done.returncode == 3
    assert f"peer {first} ended with exit code 3" in done.stderr
    assert "no process can be made for this peer: Resource temporarily unavailable" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("fault", [NO_SERVER, BROKEN_SERVER], ids=["killed", "broken"])
def test_if_it_is_gone_before_there_are_peers_they_are_new_programs(ring, tmp_path, fault):
    done = finish(ring, tmp_path / "run", environment_with(fault, tmp_path / "none"))
    assert done.returncode == 0, done.stderr
    assert ("the real reason" in done.stderr) == (fault == BROKEN_SERVER)
    assert_same_bits(tmp_path / "run", ring)


def test_if_it_is_gone_while_it_makes_a_peer_the_run_ends_and_says_so(ring, tmp_path):
    done = finish(ring, tmp_path / "run", environment_with(KILLED_BY_FORKING, tmp_path / "killed"))
    assert done.returncode == 3
    assert "the process that peers are forked from has ended, or does not answer" in done.stderr
    assert "Traceback" not in done.stderr


def test_where_peers_cannot_be_forked_they_are_new_programs_with_the_same_bits(ring, tmp_path):
    server, out = ForkServer(os.environ, forks=False), tmp_path / "run"
    arguments = ["--topology", str(ring.file), "--out", str(out), "--end-with-stdin"]
    peers = []
    for i in range(ring.d):
        files = PeerFiles(out, ring, i)
        files.prepare(is_resumed=False)
        peers.append(server.start(["--id", str(i), *arguments], files.log))
    assert [ended(peer) for peer in peers] == [0] * ring.d
    server.close()
    assert_same_bits(out, ring)


def test_more_arguments_than_a_request_may_have_are_those_of_a_new_program(tmp_path):
    server, log = ForkServer(os.environ), tmp_path / "log"
    assert ended(server.start(["--id", "0", "--topology", "/" + "x" * LONGEST], log)) == 3
    server.close()
    assert "cannot be read" in log.read_text()


def test_an_interrupted_request_is_not_answered_to_another(tmp_path):
    server, log = ForkServer(os.environ), tmp_path / "log"
    assert ended(server.start(["--help"], log)) == 0  # so it is ready
    os.kill(fork_server_of(os.getpid()), signal.SIGSTOP)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            server.start(["--help"], log)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert ended(server.start(["--nonsense"], log)) == 2
    server.close()
    assert "Usage: thanos-peer start" in log.read_text()


def test_a_peer_whose_making_was_interrupted_has_ended(tmp_path):
    is_forking = tmp_path / "forks"
    server = ForkServer(environment_with(SLOW_FORKS.format(here=str(is_forking)), tmp_path / "slow"))
    peer, before = server.start(["--help"], tmp_path / "log"), signal.getsignal(signal.SIGALRM)
    signal.signal(signal.SIGALRM, signal.default_int_handler)

    def interrupt_it():
        wait_until(is_forking.exists, "it forks")
        os.kill(os.getpid(), signal.SIGALRM)

    interrupting = threading.Thread(target=interrupt_it)
    interrupting.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            peer.wait()
    finally:
        interrupting.join()
        signal.signal(signal.SIGALRM, before)
    assert peer.poll() == 3
    peer.send_signal(signal.SIGTERM)
    server.close()


def test_a_peer_whose_log_cannot_be_written_has_ended(tmp_path):
    server = ForkServer(os.environ)
    peer = server.start(["--help"], tmp_path / "nowhere" / "log")
    with pytest.raises(FileNotFoundError):
        peer.wait()
    assert peer.poll() == 3
    peer.send_signal(signal.SIGTERM)
    server.close()


def test_once_it_is_dead_peers_are_new_programs(tmp_path):
    server, log = ForkServer(os.environ), tmp_path / "log"
    assert ended(server.start(["--help"], log)) == 0
    pid = fork_server_of(os.getpid())
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), "it is dead")
    assert ended(server.start(["--nonsense"], log)) == 2
    server.close()
    assert "No such option '--nonsense'" in log.read_text()


def test_the_numbers_that_numpy_draws_by_itself_differ_from_peer_to_peer(tmp_path):
    """All peers of a run have the memory of one process; a peer that adds noise to its own must not share it."""
    server, drawn = ForkServer(environment_with(DRAWS_AT_THE_END, tmp_path / "draws")), set()
    for i in range(3):
        log = tmp_path / f"{i}.log"
        assert ended(server.start(["--help"], log)) == 0
        drawn.add(float(log.read_text().splitlines()[-1]))
    server.close()
    assert len(drawn) == 3


@pytest.mark.parametrize("closed", ["0", "2", "0,1,2"])
def test_standard_files_that_are_closed_are_not_mistaken_for_others(ring, tmp_path, closed):
    numbers = [int(number) for number in closed.split(",")]
    done = subprocess.run(
        command("run", ring.file, "--out", tmp_path / "run", "--free-ports"),
        check=False,
        preexec_fn=lambda: [os.close(number) for number in numbers],
        timeout=120,
    )
    assert done.returncode == 0
    assert_same_bits(tmp_path / "run", ring)
    assert all("listening on" in PeerFiles(tmp_path / "run", ring, i).log.read_text() for i in range(ring.d))


def test_it_does_without_hearing_of_ended_children(ring, tmp_path):
    done = subprocess.run(
        command("run", ring.file, "--out", tmp_path / "run", "--free-ports", "--quiet"),
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
        timeout=120,
    )
    assert done.returncode == 0
    assert_same_bits(tmp_path / "run", ring)


@pytest.mark.parametrize("channel", ["0", "99", "9" * 30])
def test_started_by_hand_it_says_who_starts_it(channel):
    done = subprocess.run(
        command("fork-server", channel, "x"), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "it is for `thanos-peer run` to start this" in done.stderr
    assert "Traceback" not in done.stderr
