"""`thanos-peer run`: all peers with one command, and none left when it is gone."""

import csv
import json
import os
import signal
import subprocess

import pytest
from runtime.processes import (
    assert_same_bits,
    command,
    ended_afterwards,
    is_alive,
    start_peer,
    wait_until,
    write_topology,
)

from thanos_peer.results import PeerFiles


def launch(topology, out, *options):
    return subprocess.Popen(
        command("run", topology.file, "--out", out, *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def peers_of(launcher, count):
    """The processes that a launcher has started, once they are all there."""

    def children():
        listed = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(launcher.pid)],
            capture_output=True,
            text=True,
            check=False,
        )
        pids = [int(pid) for pid in listed.stdout.split()]
        return pids if len(pids) == count else None

    return wait_until(children, f"{count} peers run")


def are_stepping(out, topology):
    """Whether every peer has passed its first rounds."""
    files = [PeerFiles(out, topology, agent).trajectory for agent in range(topology.d)]
    return all(file.exists() and file.stat().st_size > 10 * topology.payload_per_message for file in files)


@pytest.fixture
def endless(tmp_path):
    return write_topology(tmp_path / "net.toml", "ring", 4, max_rounds=10**7)


def test_it_writes_what_simulate_writes_and_the_same_numbers(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "grid", 4, max_rounds=200, tolerance=1e-3)
    done = {}
    for name, options in (("run", ["--free-ports", "--every", 10]), ("simulate", ["--every", 10])):
        done[name] = subprocess.run(
            command(name, topology.file, "--out", tmp_path / name, "--reference", *options),
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
    assert_same_bits(tmp_path / "run", topology)
    histories = [list(csv.DictReader((tmp_path / name / "history.csv").read_text().splitlines())) for name in done]
    assert histories[0] == histories[1]
    summaries = [json.loads((tmp_path / name / "summary.json").read_text()) for name in done]
    for summary in summaries:
        summary.pop("seconds")
    assert summaries[0] == summaries[1]
    assert done["run"].stdout.splitlines()[1:-1] == done["simulate"].stdout.splitlines()[1:-1]


def test_ctrl_c_stops_all_peers_and_keeps_the_results(endless, tmp_path):
    launcher = launch(endless, tmp_path / "run", "--free-ports")
    with ended_afterwards(launcher):
        pids = peers_of(launcher, 4)
        wait_until(lambda: are_stepping(tmp_path / "run", endless), "rounds pass")
        launcher.send_signal(signal.SIGINT)
        stdout, stderr = launcher.communicate(timeout=60)
    assert launcher.returncode == 130, stderr
    assert "it was interrupted" in stdout
    assert "Traceback" not in stderr
    assert not any(map(is_alive, pids))
    assert (tmp_path / "run" / "summary.txt").exists()


def test_ctrl_c_before_the_peers_have_begun_is_exit_code_130_too(endless, tmp_path):
    launcher = launch(endless, tmp_path / "run", "--free-ports")
    with ended_afterwards(launcher):
        wait_until((tmp_path / "run" / "peers").exists, "the first peer is being started")
        launcher.send_signal(signal.SIGINT)
        _, stderr = launcher.communicate(timeout=60)
    assert launcher.returncode == 130, stderr
    assert "stopped before every peer had begun" in stderr


def test_no_peer_survives_a_killed_launcher(endless, tmp_path):
    launcher = launch(endless, tmp_path / "run", "--free-ports")
    with ended_afterwards(launcher):
        pids = peers_of(launcher, 4)
        wait_until(lambda: are_stepping(tmp_path / "run", endless), "rounds pass")
        launcher.kill()
        launcher.wait()
        wait_until(lambda: not any(map(is_alive, pids)), "all peers are gone", 30)


def test_a_peer_that_fails_stops_the_run_and_is_named_with_its_last_words(endless, tmp_path):
    other = start_peer(endless, 2, tmp_path / "other")
    with ended_afterwards(other):
        wait_until(lambda: "listening" in (tmp_path / "other" / "said-2.log").read_text(), "the port is taken")
        launcher = launch(endless, tmp_path / "run")
        with ended_afterwards(launcher):
            pids = peers_of(launcher, 4)
            _, stderr = launcher.communicate(timeout=60)
    assert launcher.returncode == 3
    assert "peer 2 ended with exit code 3" in stderr
    assert "in use" in stderr
    assert "Traceback" not in stderr
    assert not any(map(is_alive, pids))


def test_a_killed_peer_stops_the_run_with_its_signal(endless, tmp_path):
    launcher = launch(endless, tmp_path / "run", "--free-ports")
    with ended_afterwards(launcher):
        pids = peers_of(launcher, 4)
        wait_until(lambda: are_stepping(tmp_path / "run", endless), "rounds pass")
        os.kill(pids[1], signal.SIGKILL)
        _, stderr = launcher.communicate(timeout=60)
    assert launcher.returncode == 128 + signal.SIGKILL
    assert "peer 1 was ended by SIGKILL" in stderr


def test_a_directory_with_results_is_refused(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 2, max_rounds=5)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "precious").touch()
    done = subprocess.run(
        command("run", topology.file, "--out", tmp_path / "run"),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 3
    assert "exists already" in done.stderr
    assert list((tmp_path / "run").iterdir()) == [tmp_path / "run" / "precious"]
