"""`thanos-peer start` end to end: what a person can do wrong, waiting aloud, and being stopped."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import msgpack
import numpy as np
import pytest
import zmq
from namespaces import need
from processes import (
    assert_same_bits,
    bytes_per_block,
    command,
    ended_afterwards,
    environment_with,
    give_keys,
    own_name,
    said,
    start_peer,
    wait_until,
    write_topology,
)
from puppets import puppets_around

from thanos_peer.protocol.messages import Bye
from thanos_peer.protocol.wire import VERSION
from thanos_peer.storage.peer_files import PeerFiles
from thanos_peer.topology import load
from thanos_peer.transport.keys import secret_directory


def start_and_wait(*arguments, timeout=60, **environment):
    return subprocess.run(
        command("start", *arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env=os.environ | environment,
    )


def one_line_error(done, code):
    """The message of a command that ended with a code and no traceback."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1, done.stderr
    return errors[0]


@pytest.fixture
def pair(tmp_path):
    return write_topology(tmp_path / "net.toml", "path", 2)


def test_too_few_files_to_open_are_refused_with_how_many_are_needed(pair, tmp_path):
    limited = ["sh", "-c", 'ulimit -n 20; exec "$@"', "sh"]
    peer = command("start", "--id", 0, "--topology", pair.file, "--out", tmp_path / "run")
    done = subprocess.run([*limited, *peer], capture_output=True, text=True, check=False, timeout=60)
    error = one_line_error(done, 3)
    assert "this process may open 20 files only, and this peer needs 37 for its 1 neighbor(s)" in error
    assert not (tmp_path / "run.state").exists()


def test_an_id_that_is_not_in_the_file_is_refused(pair, tmp_path):
    error = one_line_error(start_and_wait("--id", 2, "--topology", pair.file, "--out", tmp_path / "run"), 3)
    assert "--id 2" in error
    assert "0 to 1" in error


def test_no_id_at_all_is_refused(pair):
    assert "--id" in one_line_error(start_and_wait("--topology", pair.file), 3)


def test_an_id_that_is_no_number_is_a_usage_error(pair):
    done = start_and_wait("--id", "x", "--topology", pair.file)
    assert done.returncode == 2
    assert "'x' is not a valid integer" in done.stderr


@pytest.mark.parametrize(
    "variable", ["THANOS_PEER_ID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"]
)
def test_the_id_comes_from_the_launchers_variable(pair, variable, tmp_path):
    done = start_and_wait("--topology", pair.file, "--out", tmp_path / "run", **{variable: "7"})
    assert "--id 7" in one_line_error(done, 3)


@pytest.mark.parametrize(
    ("name", "variables", "words"),
    [
        ("thanos-ring-4-7", {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, "--id 7"),
        ("thanos-ring", {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, "which peer is this?"),
        ("laptop-7", {}, "which peer is this?"),
    ],
)
def test_the_id_comes_from_the_ordinal_of_a_pod_and_of_no_other_host(pair, tmp_path, name, variables, words):
    need("unshare", "hostname")
    start = command("start", "--topology", pair.file, "--out", tmp_path / "run")
    done = subprocess.run(
        ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name, *start],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | variables,
    )
    assert words in one_line_error(done, 3)


def test_a_rank_that_is_no_number_is_refused(pair):
    done = start_and_wait("--topology", pair.file, SLURM_PROCID="first")
    assert "SLURM_PROCID = 'first'" in one_line_error(done, 3)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    done = start_and_wait("--id", 0, "--topology", tmp_path / "gone.toml")
    assert done.returncode == 3
    assert "gone.toml" in done.stderr
    assert "No such file" in done.stderr


def test_a_port_in_use_is_refused(pair, tmp_path):
    context = zmq.Context()
    other = context.socket(zmq.PULL)
    other.bind(pair.peers[0].address)
    done = start_and_wait("--id", 0, "--topology", pair.file, "--out", tmp_path / "run")
    other.close()
    context.term()
    error = one_line_error(done, 3)
    assert pair.peers[0].address in error
    assert "in use" in error


def test_a_port_in_use_is_refused_when_a_run_goes_on_too(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "path", 2, max_rounds=10**6), tmp_path / "run"
    processes = [start_peer(topology, agent, out) for agent in (0, 1)]
    with ended_afterwards(*processes):
        state = tmp_path / "run.state"
        wait_until(lambda: len(list(state.glob("0-*.ckpt"))) == 2, "rounds pass")
        processes[0].send_signal(signal.SIGTERM)
        assert processes[0].wait(30) == 143
    with socket.create_server(("127.0.0.1", int(topology.peers[0].address.rsplit(":", 1)[1]))):
        done = start_and_wait("--id", 0, "--topology", topology.file, "--out", out)
    assert "in use" in one_line_error(done, 3)


@pytest.mark.parametrize(
    ("bind", "why"),
    [
        ("tcp://no-such-host.invalid:17000", "no-such-host.invalid does not resolve"),
        ("tcp://192.0.2.1:17000", "no such address"),
        ("nonsense", "must be tcp://HOST:PORT"),
    ],
)
def test_an_address_that_cannot_be_listened_on_is_refused(pair, tmp_path, bind, why):
    give_keys(pair)
    done = start_and_wait("--id", 0, "--topology", pair.file, "--out", tmp_path / "run", "--bind", bind)
    error = one_line_error(done, 3)
    assert bind in error
    assert why in error


def test_a_result_that_is_there_is_not_overwritten(pair, tmp_path):
    files = PeerFiles(tmp_path / "run", pair, 0)
    files.write(np.zeros((6, 2)), np.zeros((6, 2)), np.zeros((6, 2)))
    before = files.result.read_bytes()
    done = start_and_wait("--id", 0, "--topology", pair.file, "--out", tmp_path / "run")
    assert "exists already" in one_line_error(done, 3)
    assert files.result.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (lambda raw: raw["problem"].update(mu=0.2), "topology digest"),
        (lambda raw: raw["problem"].update(n=7), r"shape (n, p): (6, 2)"),
        (lambda raw: raw["algorithm"].update(exchange="float32"), "precision: float64"),
    ],
    ids=["mu", "n", "exchange"],
)
def test_different_files_at_two_peers_are_refused_by_both(pair, tmp_path, change, difference):
    addresses = [peer.address for peer in pair.peers]

    def at_the_same_place(raw):
        change(raw)
        for peer, address in zip(raw["peers"], addresses, strict=True):
            peer["address"] = address

    other = write_topology(tmp_path / "other.toml", "path", 2, change=at_the_same_place)
    processes = [start_peer(pair, 0, tmp_path / "run"), start_peer(other, 1, tmp_path / "run")]
    with ended_afterwards(*processes):
        assert [process.wait(60) for process in processes] == [5, 5]
    for agent in (0, 1):
        line = next(line for line in said(tmp_path / "run", agent).splitlines() if line.startswith("Error"))
        assert f"peer {agent} ({addresses[agent]}) and peer {1 - agent} ({addresses[1 - agent]})" in line
        assert difference.split(":")[0] in line
    assert difference in said(tmp_path / "run", 0)


def test_peers_whose_files_differ_in_masks_refuse_each_other_and_say_so(pair, tmp_path):
    topology = give_keys(pair)
    other = tmp_path / "other.toml"
    other.write_text(
        re.sub(r"(?m)^\[algorithm\]$", "[algorithm]\nmasks = false", topology.file.read_text("utf-8"))
    )
    shutil.copytree(secret_directory(topology.file), secret_directory(other))
    assert load(other).digest == topology.digest  # the numbers of the result are the same
    assert not load(other).masks_sums
    processes = [start_peer(topology, 0, tmp_path / "run"), start_peer(load(other), 1, tmp_path / "run")]
    with ended_afterwards(*processes):
        assert [process.wait(60) for process in processes] == [5, 5]
    for agent, (here, there) in enumerate((("on", "off"), ("off", "on"))):
        assert f"they differ in masks: {here} here, {there} there; have both" in said(tmp_path / "run", agent)


def test_another_protocol_version_is_refused_and_named(pair, tmp_path):
    context = zmq.Context()
    speaker, listener = context.socket(zmq.PUSH), context.socket(zmq.PULL)
    listener.bind(pair.peers[1].address)
    speaker.connect(pair.peers[0].address)
    process = start_peer(pair, 0, tmp_path / "run")
    with ended_afterwards(process):
        speaker.send(msgpack.packb([VERSION + 1, 1, bytes.fromhex(pair.digest)[:16], 1, 0, "whatever it says"]))
        assert process.wait(60) == 5
    answers = []
    while listener.poll(0 if answers else 5000):
        answers.append(msgpack.unpackb(listener.recv()))
    speaker.close(linger=0)
    listener.close()
    context.term()
    assert f"protocol version: {VERSION} here, {VERSION + 1} there" in said(tmp_path / "run", 0)
    assert answers
    assert {answer[0] for answer in answers} == {VERSION}


def test_a_peer_that_waits_says_for_whom_where_and_since_when(pair, tmp_path):
    process = start_peer(pair, 0, tmp_path / "run")
    with ended_afterwards(process):
        wait_until(lambda: "waiting" in said(tmp_path / "run", 0), "it says that it waits")
    line = next(line for line in said(tmp_path / "run", 0).splitlines() if "waiting" in line)
    assert f"s in round 0 for peer 1 at {pair.peers[1].address}: never connected" in line
    assert "never heard" in line


def test_a_peer_that_waits_for_a_name_that_does_not_resolve_says_so_and_gives_up_with_code_6(tmp_path):
    def elsewhere(raw):
        raw["peers"][1]["address"] = "tcp://no-such-host.invalid:17001"

    topology = write_topology(tmp_path / "net.toml", "path", 2, change=elsewhere)
    done = start_and_wait("--id", 0, "--topology", topology.file, "--out", tmp_path / "run", "--give-up-after", 7)
    # By then it has looked up the name three times, for a second each at most.
    error = one_line_error(done, 6)
    assert "gave up after 7 s" in error
    assert "the name no-such-host.invalid does not resolve" in error
    assert not PeerFiles(tmp_path / "run", topology, 0).result.exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_finishes_the_round_and_keeps_the_results(tmp_path, number, code):
    topology, out = write_topology(tmp_path / "net.toml", "path", 2, max_rounds=10**6), tmp_path / "run"
    processes = [start_peer(topology, agent, out, "--keep-every", 1) for agent in (0, 1)]
    with ended_afterwards(*processes):
        trajectory = PeerFiles(out, topology, 0).trajectory
        wait_until(lambda: trajectory.exists() and trajectory.stat().st_size > 10_000, "rounds pass")
        processes[0].send_signal(number)
        assert processes[0].wait(30) == code
        facts = json.loads(PeerFiles(out, topology, 0).facts.read_text(encoding="utf-8"))
        assert facts["ending"] == "stopped"
        assert facts["round"] > 10
        assert np.load(PeerFiles(out, topology, 0).result)["X"].shape == (6, 2)
        wait_until(lambda: "peer 0 left in round" in said(out, 1), "the neighbor hears of it")
        assert signal.Signals(number).name in said(out, 1)


def test_a_second_signal_ends_at_once(pair, tmp_path):
    out = tmp_path / "run"
    process = start_peer(pair, 0, out)
    with ended_afterwards(process):
        wait_until(lambda: "listening" in said(out, 0), "it listens")
        process.send_signal(signal.SIGSTOP)  # so that it hears both
        os.waitpid(process.pid, os.WUNTRACED)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            process.send_signal(number)
        # After the first signal alone it would be 130.
        assert process.wait(30) == 143
    assert not PeerFiles(out, pair, 0).result.exists()


def test_a_divergence_is_exit_code_4_with_agent_round_and_step_size(tmp_path):
    def too_far(raw):
        raw["algorithm"]["step"] = {"rule": "constant", "eta": 500.0}

    topology, out = write_topology(tmp_path / "net.toml", "path", 3, change=too_far), tmp_path / "run"
    processes = [start_peer(topology, agent, out) for agent in range(3)]
    with ended_afterwards(*processes):
        wait_until(lambda: any(process.poll() is not None for process in processes), "one of them ends")
        codes = [process.poll() for process in processes]
    assert set(codes) <= {4, None}  # the others wait for it
    first = codes.index(4)
    line = next(line for line in said(out, first).splitlines() if line.startswith("Error: "))
    assert f"agent {first} diverged in round" in line
    assert "with step size 500: ||X||_F = " in line


def test_bind_and_advertised_address_may_differ(tmp_path):
    def bind_everywhere(raw):
        for peer in raw["peers"]:
            peer["bind"] = peer["address"].replace("127.0.0.1", "0.0.0.0")  # noqa: S104 - what is tested
            peer["address"] = peer["address"].replace("127.0.0.1", "localhost")

    topology, out = write_topology(tmp_path / "net.toml", "ring", 3, change=bind_everywhere), tmp_path / "run"
    processes = [start_peer(topology, agent, out) for agent in range(3)]
    with ended_afterwards(*processes):
        assert [process.wait(60) for process in processes] == [0] * 3
    assert_same_bits(out, topology)


def test_peers_may_use_local_sockets(tmp_path):
    def local(raw):
        for peer in raw["peers"]:
            peer["address"] = f"ipc://{tmp_path}/{peer['id']}.sock"

    topology, out = write_topology(tmp_path / "net.toml", "ring", 3, change=local), tmp_path / "run"
    processes = [start_peer(topology, agent, out) for agent in range(3)]
    with ended_afterwards(*processes):
        assert [process.wait(60) for process in processes] == [0] * 3
    assert_same_bits(out, topology)


def test_a_peer_whose_state_is_lost_is_told_so_and_its_neighbor_says_so_too(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "path", 2, max_rounds=10**6), tmp_path / "run"
    processes = [start_peer(topology, agent, out, "--keep-every", 1, "--survive", "nothing") for agent in (0, 1)]
    with ended_afterwards(*processes):
        trajectory = PeerFiles(out, topology, 1).trajectory
        wait_until(lambda: trajectory.exists() and trajectory.stat().st_size > 10_000, "rounds pass")
        processes[1].kill()
        processes[1].wait()
        again = start_peer(topology, 1, tmp_path / "again")
        with ended_afterwards(again):
            assert again.wait(60) == 8
        wait_until(lambda: "waiting" in said(out, 0), "the other says for whom it waits")
        assert "peer 1 has begun anew, or with other samples" in said(out, 0)
    assert "the state of this peer is lost" in said(tmp_path / "again", 1)


@pytest.mark.parametrize("what", ["directory", "trajectory"])
def test_results_that_could_not_be_written_end_a_peer_at_its_start_and_its_neighbor_is_told(pair, tmp_path, what):
    out, obstacle = tmp_path / "run", tmp_path / "run"
    if what == "trajectory":
        obstacle = PeerFiles(out, pair, 0).trajectory
        obstacle.mkdir(parents=True)
    else:
        out.write_bytes(b"")
    options = "--state", tmp_path / "state", "--keep-every", 1
    with puppets_around(pair, 0) as puppets:
        done = start_and_wait("--id", 0, "--topology", pair.file, "--out", out, *options)
        error = one_line_error(done, 8)
        assert puppets[1].wait_for(Bye).reason == "it cannot save or read its state"
    assert f"cannot write {'the results to ' if what == 'directory' else ''}{obstacle}" in error


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0", "soon"])
def test_a_limit_that_is_no_positive_number_is_a_usage_error(pair, value):
    assert start_and_wait("--id", 0, "--topology", pair.file, "--give-up-after", value).returncode == 2


def test_json_logs_are_one_object_per_line(pair, tmp_path):
    process = start_peer(pair, 0, tmp_path / "run", "--log-json", "--give-up-after", 0.5)
    with ended_afterwards(process):
        assert process.wait(60) == 6
    lines = [line for line in said(tmp_path / "run", 0).splitlines() if not line.startswith("Error: ")]
    first = next(line for line in map(json.loads, lines) if "listening" in line["message"])
    assert first["peer"] == 0
    assert first["level"] == "info"
    assert time.strptime(first["time"][:19], "%Y-%m-%dT%H:%M:%S")


def test_a_signal_to_a_peer_that_is_done_lets_it_go_with_its_result(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "path", 2, max_rounds=40), tmp_path / "run"
    processes = [start_peer(topology, agent, out, "--leave-after", 1000) for agent in (0, 1)]
    with ended_afterwards(*processes):
        wait_until(lambda: "listening" in said(out, 1), "it listens")
        facts = PeerFiles(out, topology, 0).facts
        wait_until(lambda: facts.exists() or "in round" in said(out, 0), "the run is under way")
        wait_until(facts.exists, "the result is written as soon as it is there")
        processes[1].kill()
        processes[0].send_signal(signal.SIGTERM)
        assert processes[0].wait(30) == 0
    assert json.loads(facts.read_text(encoding="utf-8"))["ending"] == "max_rounds"


def test_data_too_large_to_be_squared_are_named_and_no_hang(tmp_path):
    for agent in (0, 1):
        np.save(tmp_path / f"{agent}.npy", np.full((20, 6), 1e200))

    def huge(raw):
        raw["problem"]["data"] = {"kind": "files"}
        raw["algorithm"]["start"] = {"kind": "random", "seed": 1}
        for peer in raw["peers"]:
            peer["data"] = f"{peer['id']}.npy"

    topology = write_topology(tmp_path / "net.toml", "path", 2, change=huge)
    done = start_and_wait("--id", 0, "--topology", topology.file, "--out", tmp_path / "run")
    assert "0.npy of peer 0 has numbers in feature 0 (counted from 0) whose squares overflow" in one_line_error(
        done, 3
    )


def test_status_is_asked_of_the_peer_itself(tmp_path):
    pair = write_topology(tmp_path / "net.toml", "path", 2, name=own_name("status"))
    process = start_peer(pair, 0, tmp_path / "run")
    with ended_afterwards(process):
        wait_until(lambda: "listening" in said(tmp_path / "run", 0), "it listens")
        asked = subprocess.run(
            command("status", pair.file, "--timeout", 5), capture_output=True, text=True, check=False, timeout=60
        )
    assert asked.returncode == 6
    assert f"peer 0 of {pair.name}: round 0 of at most 60" in asked.stdout
    assert "for peer 1 at" in asked.stdout
    assert "peer 1: no answer" in asked.stdout


def test_a_neighbor_that_is_lost_under_way_is_given_up_and_the_results_are_kept(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "path", 2, max_rounds=10**7), tmp_path / "run"
    peers = [start_peer(topology, i, out, "--give-up-after", 2, "--keep-every", 10) for i in range(2)]
    with ended_afterwards(*peers):
        file = PeerFiles(out, topology, 0).trajectory
        wait_until(lambda: file.exists() and file.stat().st_size > 20 * bytes_per_block(topology), "rounds pass")
        peers[1].kill()
        assert peers[0].wait(60) == 6
    assert "gave up after 2 s" in said(out, 0)
    assert "for peer 1 at" in said(out, 0)
    facts = json.loads(PeerFiles(out, topology, 0).facts.read_text(encoding="utf-8"))
    assert facts["round"] > 10
    with np.load(PeerFiles(out, topology, 0).result, allow_pickle=False) as kept:
        assert np.isfinite(kept["X"]).all()


SLOW_TO_LOAD = """
import pathlib, sys, time
if "start" in sys.orig_argv:
    import thanos_peer.peer.daemon as daemon
    def load(*arguments):
        pathlib.Path({here!r}).touch()
        time.sleep(100)
    daemon.share_of = load
"""


def test_a_peer_that_still_loads_ends_with_its_launcher(pair, tmp_path):
    slow = environment_with(SLOW_TO_LOAD.format(here=str(tmp_path / "loads")), tmp_path / "slow")
    peer = start_peer(pair, 0, tmp_path / "run", "--end-with-stdin", stdin=subprocess.PIPE, env=slow)
    with ended_afterwards(peer):
        wait_until((tmp_path / "loads").exists, "it loads")
        time.sleep(0.5)
        assert peer.poll() is None
        peer.stdin.close()
        assert peer.wait(20) == 143
