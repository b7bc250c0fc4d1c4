"""`thanos-peer run`: all peers with one command, and none left when it is gone."""

import contextlib
import csv
import json
import os
import re
import shlex
import signal
import socket
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tomlkit
from cli.commands import call
from processes import (
    PATIENCE,
    assert_same_bits,
    bytes_per_block,
    command,
    ended_afterwards,
    environment_with,
    is_alive,
    wait_until,
    write_topology,
)
from uneven import PLAIN, raw_with_parts, some_parts, write_csv

from thanos_peer.loadings.result import load_result
from thanos_peer.storage.peer_files import PeerFiles

# Peers that take far too long to start; the launcher does not.
LATE_PEERS = f"import sys, time\ntime.sleep({PATIENCE} if 'fork-server' in sys.orig_argv else 0)\n"
# The parent of all peers has taken a port, when the launcher has found it free.
TAKEN = """import socket, sys
if 'fork-server' in sys.orig_argv:
    taken = socket.create_server(("127.0.0.1", {}))
"""
PEER = re.compile(r"^ *(\d+) .*thanos.peer start --id (\d+) ", re.MULTILINE)


def launch(topology, out, *options, env=None):
    return subprocess.Popen(
        command("run", topology.file, "--out", out, *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )


def peers_of(launcher, count):
    """The peers that a launcher has started, in order, once they are all there."""

    def children():
        listed = subprocess.run(
            ["ps", "-o", "pid=,args=", "--ppid", str(launcher.pid)],
            capture_output=True,
            text=True,
            check=False,
        )
        peers = {int(found[2]): int(found[1]) for found in PEER.finditer(listed.stdout)}
        return [peers[i] for i in range(count)] if len(peers) == count else None

    return wait_until(children, f"{count} peers run")


def fork_server_of(launcher):
    """The process that a launcher has its peers forked from."""
    listed = subprocess.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(launcher)], capture_output=True, text=True, check=True
    )
    (pid,) = re.findall(r"^ *(\d+) thanos-peer fork-server", listed.stdout, re.MULTILINE)
    return int(pid)


def processes_with(word):
    """The processes that have a word in their command, which is not that of one that has ended."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if str(word).encode() in (directory / "cmdline").read_bytes().split(b"\0"):
                found.append(int(directory.name))
    return found


def are_stepping(out, topology):
    """Whether every peer has passed its first rounds."""
    files = [PeerFiles(out, topology, agent).trajectory for agent in range(topology.d)]
    return all(file.exists() and file.stat().st_size > 10 * bytes_per_block(topology) for file in files)


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


def test_ctrl_c_stops_all_peers_keeps_the_results_and_says_how_to_go_on(endless, tmp_path):
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
    words = re.search("start each peer I: thanos-peer (.*)", stderr)[1].replace("--id I", "--id 0")
    peer = subprocess.Popen(command(*shlex.split(words)), stderr=subprocess.PIPE, text=True)
    with ended_afterwards(peer):
        assert any("going on from round" in line for line in peer.stderr)


def test_ctrl_c_before_the_peers_have_begun_is_exit_code_130_too(endless, tmp_path):
    late = environment_with(LATE_PEERS, tmp_path / "late")
    launcher = launch(endless, tmp_path / "run", "--free-ports", env=late)
    with ended_afterwards(launcher):
        wait_until((tmp_path / "run" / "peers").exists, "the first peer is being started")
        launcher.send_signal(signal.SIGINT)
        _, stderr = launcher.communicate(timeout=60)
    assert launcher.returncode == 130, stderr
    assert "stopped before every peer had a result" in stderr


@pytest.mark.parametrize("is_patient", [True, False], ids=["patient", "Ctrl-C again"])
def test_a_peer_that_takes_its_time_after_ctrl_c_is_waited_for_by_name(endless, tmp_path, is_patient):
    launcher = launch(endless, tmp_path / "run", "--free-ports", "--quiet")
    with ended_afterwards(launcher):
        pids = peers_of(launcher, 4)
        wait_until(lambda: are_stepping(tmp_path / "run", endless), "rounds pass")
        os.kill(pids[1], signal.SIGSTOP)
        launcher.send_signal(signal.SIGINT)
        assert launcher.stderr.readline().startswith("interrupted: finishing the round and writing the results; ")
        assert any(line.startswith("waiting for peer 1 to finish the round") for line in launcher.stderr)
        assert launcher.poll() is None
        if is_patient:
            os.kill(pids[1], signal.SIGCONT)
        else:
            launcher.send_signal(signal.SIGINT)
        _, stderr = launcher.communicate(timeout=30)
    assert launcher.returncode == 130
    assert ("interrupted again, ending at once; what there is lies in" in stderr) == (not is_patient)
    assert "to go on from what the peers have saved, start each peer I: thanos-peer start --id I" in stderr
    assert not any(map(is_alive, pids))
    assert (tmp_path / "run" / "summary.txt").exists() == is_patient


def test_the_peers_share_the_launchers_session_but_not_the_group_that_ctrl_c_is_for(endless, tmp_path):
    launcher = launch(endless, tmp_path / "run", "--free-ports")
    with ended_afterwards(launcher):
        pids = peers_of(launcher, 4)
        wait_until(lambda: [os.getpgid(pid) for pid in pids] == pids, "each has a group of its own")
        assert {os.getsid(pid) for pid in pids} == {os.getsid(launcher.pid)}


def test_no_peer_survives_a_killed_launcher(endless, tmp_path):
    launcher = launch(endless, tmp_path / "run", "--free-ports")
    with ended_afterwards(launcher):
        pids = [*peers_of(launcher, 4), fork_server_of(launcher.pid)]
        wait_until(lambda: are_stepping(tmp_path / "run", endless), "rounds pass")
        launcher.kill()
        launcher.wait()
        wait_until(lambda: not any(map(is_alive, pids)), "all of them are gone", 30)


def test_a_run_whose_peer_could_not_listen_is_refused_and_leaves_nothing(endless, tmp_path):
    with socket.create_server(("127.0.0.1", int(endless.peers[2].address.rpartition(":")[2]))):
        refused = call("run", endless.file, "--out", tmp_path / "run", code=3).stderr
    assert f"peer 2 cannot listen on {endless.peers[2].address}: the address is in use" in refused
    assert not (tmp_path / "run").exists()
    elsewhere = write_topology(tmp_path / "far.toml", "path", 2, change=at_another_host, has_keys=True)
    refused = call("run", elsewhere.file, "--out", tmp_path / "run", code=3).stderr
    assert "peer 1 cannot listen on tcp://192.0.2.1:7: this host has no such address" in refused
    assert "; --free-ports gives every peer a port of this machine" in refused
    assert not (tmp_path / "run").exists()


def at_another_host(raw):
    raw["peers"][1]["address"] = "tcp://192.0.2.1:7"


def test_a_peer_that_fails_stops_the_run_and_is_named_with_the_end_of_its_log(endless, tmp_path):
    port = int(endless.peers[2].address.rpartition(":")[2])
    launcher = launch(endless, tmp_path / "run", env=environment_with(TAKEN.format(port), tmp_path / "taken"))
    with ended_afterwards(launcher):
        wait_until(lambda: processes_with(tmp_path / "run"), "it runs")
        _, stderr = launcher.communicate(timeout=60)
    assert launcher.returncode == 3
    assert "peer 2 ended with exit code 3" in stderr
    assert "in use" in stderr
    assert "`thanos-peer run --free-ports` takes free ports instead" in stderr
    assert "Traceback" not in stderr
    assert not processes_with(tmp_path / "run")


@pytest.mark.parametrize(("has_keys", "options"), [(True, ["--free-ports"]), (True, [])])
def test_a_killed_peer_stops_the_run_which_goes_on_by_the_command_that_is_named(tmp_path, has_keys, options):
    topology = write_topology(tmp_path / "net.toml", "ring", 4, max_rounds=6000, has_keys=has_keys)
    launcher = launch(topology, tmp_path / "a run", "--quiet", *options)
    with ended_afterwards(launcher):
        pids = peers_of(launcher, 4)
        wait_until(lambda: are_stepping(tmp_path / "a run", topology), "rounds pass")
        os.kill(pids[1], signal.SIGKILL)
        _, stderr = launcher.communicate(timeout=60)
    assert launcher.returncode == 128 + signal.SIGKILL
    assert "peer 1 was ended by SIGKILL" in stderr
    go_on(stderr.splitlines()[-1].partition("start each peer: ")[2], 4)
    assert_same_bits(tmp_path / "a run", topology)


def go_on(words, count):
    """Start so many peers with the command of these words, up to their end."""
    program, *words = shlex.split(words)
    assert program == "thanos-peer"
    with contextlib.ExitStack() as stack:
        peers = []
        for i in range(count):
            own = [re.sub(r"\bI\b", str(i), word) for word in words]
            peers.append(subprocess.Popen(command(*own), stderr=subprocess.DEVNULL))
            stack.enter_context(ended_afterwards(peers[-1]))
        assert [peer.wait(timeout=120) for peer in peers] == [0] * count


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "killed"])
def test_what_was_said_of_a_run_that_was_gone_on_with_is_set_aside(tmp_path, number):
    topology = write_topology(tmp_path / "net.toml", "path", 2, max_rounds=3000)
    out, said = tmp_path / "run", {"history.csv"}
    launcher = launch(topology, out, "--quiet", "--every", 1)
    with ended_afterwards(launcher):
        pids = peers_of(launcher, 2)
        wait_until(lambda: (out / "history.csv").stat().st_size > 1000, "rounds are measured")
        launcher.send_signal(number)
        _, stderr = launcher.communicate(timeout=60)
        wait_until(lambda: not any(map(is_alive, pids)), "all of them are gone", 30)
    if number == signal.SIGINT:
        words = stderr.partition("start each peer I: ")[2]
        said |= {"summary.json", "summary.txt", "report"}
        call("report", out)
        assert "it was interrupted" in (out / "report" / "report.html").read_text()
    else:
        words = f"thanos-peer start --id I --topology {out}/topology.toml --out {out} --state {out}/state"
    go_on(words, 2)
    left = {path.name for path in out.iterdir()}
    assert left == {"earlier", "peers", "run.json", "state", "topology.keys", "topology.toml"}
    assert {path.name for path in (out / "earlier").iterdir()} == said
    if number == signal.SIGINT:
        assert (out / "earlier" / "report" / "report.html").exists()
        call("report", out)
        assert "2 peers, 3,000 rounds; all of them are done" in (out / "report" / "report.html").read_text()


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


def test_a_run_says_how_far_its_answer_is_from_that_of_an_earlier_one(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "ring", 3, max_rounds=30)
    other = write_topology(tmp_path / "other.toml", "ring", 3, n=9, max_rounds=30)
    call("run", topology.file, "--out", tmp_path / "one", "--quiet", "--free-ports")
    beside = "--quiet", "--free-ports", "--beside", tmp_path / "one"
    same = call("run", topology.file, "--out", tmp_path / "two", *beside).stdout
    assert f"distance to {tmp_path / 'one'}/  0.000e+00, after the best alignment" in same
    exact = call("run", topology.file, "--out", tmp_path / "three", "--method", "proximal", *beside).stdout
    (line,) = [line for line in exact.splitlines() if "distance to" in line]
    means = [
        np.mean([load_result(tmp_path / name, peer=i).components_.T for i in range(3)], axis=0)
        for name in ("one", "three")
    ]
    U, _, Vt = np.linalg.svd(means[0], full_matrices=False)
    V, _, Wt = np.linalg.svd(means[1], full_matrices=False)
    assert f"/  {np.linalg.norm(U @ Vt - V @ Wt):.3e}, " in line
    refused = call("run", other.file, "--out", tmp_path / "four", *beside, code=3).output
    assert "is a run of another problem" in refused
    other = write_topology(tmp_path / "other.toml", "ring", 3, seed=2, max_rounds=30)
    refused = call("run", other.file, "--out", tmp_path / "four", *beside, code=3).output
    said = "is a run on other samples, as its run.json says: problem.data.seed is 1 there; name one on the same"
    assert said in refused
    assert not (tmp_path / "four").exists()


def test_a_run_beside_one_on_other_files_is_refused(tmp_path):
    parts = some_parts((6, 7, 8))
    (tmp_path / "net.toml").write_text(tomlkit.dumps(raw_with_parts(tmp_path, parts, start=PLAIN)))
    call("simulate", tmp_path / "net.toml", "--out", tmp_path / "one", "--quiet")
    beside = "--quiet", "--free-ports", "--beside", tmp_path / "one"
    parts[1][0, 0] += 1.0
    write_csv(tmp_path / "1.csv", parts[1])
    refused = call("run", tmp_path / "net.toml", "--out", tmp_path / "two", *beside, code=3).output
    assert f"{tmp_path / 'one'} is a run on other samples" in refused
    assert "its files held others, or other peers had them" in refused
    (tmp_path / "one" / "run.json").write_text("[1]")
    refused = call("run", tmp_path / "net.toml", "--out", tmp_path / "two", *beside, code=3).output
    assert "run.json is not what a run says of itself: " in refused
