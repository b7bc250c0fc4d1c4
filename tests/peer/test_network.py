"""Whole networks of processes: the bits of one process, whatever the order, and strangers speak too."""

import contextlib
import json
import re
import socket
import subprocess
import time
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import tomlkit
import zmq
from cli.commands import call
from processes import (
    assert_same_bits,
    bytes_per_block,
    command,
    ended_afterwards,
    environment_with,
    exact,
    own_name,
    said,
    simulated,
    start_peer,
    wait_until,
    write_topology,
)
from strangers import status_of

from thanos_peer.storage.outcome import load_outcome
from thanos_peer.storage.peer_files import PeerFiles
from thanos_peer.topology import load

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
CONSTANT_STEP = {"rule": "constant", "eta": 0.05}


def with_step(step):
    return lambda raw: raw["algorithm"].update(step=step)


def verify(topology, out):
    return subprocess.run(
        command("verify", topology.file, "--out", out, "--give-up-after", 60, "--quiet"),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize(
    ("family", "d", "draft", "change"),
    [
        ("ring", 8, {"sigma": 1.0, "tolerance": 1e-4, "max_rounds": 2000}, None),
        ("star", 6, {"regularizer": "l21", "tolerance": 1e-2, "max_rounds": 2000}, None),
        ("grid", 9, {"regularizer": "l21", "sigma": 0.5, "max_rounds": 150}, with_step(CONSTANT_STEP)),
        ("complete", 5, {"max_rounds": 200}, with_step(CONSTANT_STEP)),
        ("tree", 5, {"max_rounds": 100}, lambda raw: raw["algorithm"].update(exchange="float32")),
        ("path", 1, {"max_rounds": 100}, None),
        ("ring", 5, {}, exact("proximal")),
        ("grid", 6, {"regularizer": "l21"}, exact("gram")),
        ("star", 4, {}, exact("proximal", start={"kind": "random", "seed": 3}, exchange="float32")),
        ("path", 1, {}, exact("auto")),
    ],
    ids=[
        *("ring", "star", "grid", "complete", "tree-float32", "alone"),
        *("ring-proximal", "grid-gram", "star-proximal-float32", "alone-auto"),
    ],
)
def test_a_network_of_processes_has_the_bits_of_one_process(tmp_path, family, d, draft, change):
    topology = write_topology(tmp_path / "net.toml", family, d, change=change, **draft)
    done = verify(topology, tmp_path / "run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"same bits: the results of {d} peers" in done.stdout
    assert load_outcome(tmp_path / "run", topology).is_below_tolerance == (topology.tolerance > 0)


# Every choice once, and every family with every value of each.
CHOICES = [
    (("ring", "star", "grid", "complete")[(a ^ b) + 2 * (c ^ e)], ("l1", "l21")[a], ("bb", "constant")[b],
     ("fixed", "decreasing")[c], (0.01, 0.0)[e])
    for a, b, c, e in product((0, 1), repeat=4)
]  # fmt: skip


@pytest.mark.parametrize(("family", "regularizer", "step", "smoothing", "tolerance"), CHOICES)
def test_every_choice_of_the_algorithm_gives_the_bits_of_one_process(
    tmp_path, family, regularizer, step, smoothing, tolerance
):
    draft = {"regularizer": regularizer, "tolerance": tolerance, "max_rounds": 4000 if tolerance else 80}
    topology = write_topology(
        tmp_path / "net.toml",
        family,
        4,
        change=with_step(CONSTANT_STEP) if step == "constant" else None,
        **draft | ({"sigma": 0.5} if smoothing == "fixed" else {}),
    )
    assert topology.algorithm.step.rule == step
    assert (topology.algorithm.smoothing.rule == "constant") == (smoothing == "fixed")
    done = verify(topology, tmp_path / "run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert load_outcome(tmp_path / "run", topology).is_below_tolerance == (tolerance > 0)


SOON = {"max_rounds": 120}
OTHERWISE = {"max_rounds": 2000, "tolerance": 0.2, "step": {"rule": "constant", "eta": 0.3}}
OTHERWISE |= {"smoothing": {"rule": "constant", "sigma": 0.5}}


@pytest.mark.parametrize(
    ("name", "change"),
    [("paper-l1", SOON), ("paper-l21", OTHERWISE)],
    ids=["as shipped but shorter", "constant, to a tolerance"],
)
def test_the_papers_network_has_the_bits_of_one_process(tmp_path, name, change):
    raw = tomlkit.parse((TOPOLOGIES / f"{name}.toml").read_text(encoding="utf-8"))
    raw["name"] = own_name(name)
    raw["algorithm"].update(change)
    (tmp_path / "net.toml").write_text(tomlkit.dumps(raw), encoding="utf-8")
    topology = load(tmp_path / "net.toml")
    done = verify(topology, tmp_path / "run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "same bits: the results of 32 peers" in done.stdout
    assert load_outcome(tmp_path / "run", topology).is_below_tolerance == (change is OTHERWISE)


@pytest.mark.parametrize("method", ["gram", "proximal", "proximal-tracking"])
@pytest.mark.parametrize("name", sorted(file.stem for file in TOPOLOGIES.glob("*.toml")))
def test_the_shipped_topologies_have_the_bits_of_one_process_with_exact_methods(tmp_path, name, method):
    file = TOPOLOGIES / f"{name}.toml"
    done = call("verify", file, "--method", method, "--out", tmp_path / "run", "--give-up-after", 60, "--quiet")
    assert f"same bits: the results of {load(file).d} peers" in done.stdout
    assert "\n  verdict             converged: residual " in (tmp_path / "run" / "summary.txt").read_text("utf-8")
    assert load(file, method="auto").digest == load(file, method="gram").digest  # few features


def test_peers_started_by_hand_in_any_order_and_seconds_apart_have_the_same_bits(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "ring", 8, max_rounds=100), tmp_path / "run"
    delays = np.random.default_rng(8).uniform(0, 20, size=8)
    first, last = np.argmin(delays), np.argmax(delays)
    processes, began = [], time.monotonic()
    with contextlib.ExitStack() as stack:
        for agent in np.argsort(delays):
            # A busy machine may take as long to start the first peer.
            if agent == last:
                wait_until(lambda: "waiting" in said(out, first), "the first waits, and says so")
            time.sleep(max(0.0, began + delays[agent] - time.monotonic()))
            processes.append(start_peer(topology, agent, out))
            stack.enter_context(ended_afterwards(processes[-1]))
        assert [process.wait(60) for process in processes] == [0] * 8
    assert_same_bits(out, topology)


def test_a_strangers_bytes_are_counted_and_dropped(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "ring", 4, max_rounds=400, name=own_name("bytes"))
    out = tmp_path / "run"
    context = zmq.Context()
    stranger = context.socket(zmq.PUSH)
    processes = [start_peer(topology, agent, out) for agent in range(3)]
    with ended_afterwards(*processes):
        address = topology.peers[1].address
        wait_until(lambda: "listening" in said(out, 1), "the peer listens")
        stranger.connect(address)
        for number in range(500):
            stranger.send(bytes([number % 256]) * (number % 90))
        stranger.send(b"\x00" * 10**6)
        with socket.create_connection(("127.0.0.1", int(address.rsplit(":", 1)[1]))) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\n\r\n" * 50)
        wait_until(lambda: status_of(topology, 1)["rejected"] >= 500, "the peer has refused them")
        assert "refused" in said(out, 1)
        processes.append(start_peer(topology, 3, out))
        stranger.close(linger=0)
        context.term()
        assert [process.wait(60) for process in processes] == [0] * 4
    facts = json.loads(PeerFiles(out, topology, 1).facts.read_text(encoding="utf-8"))
    assert facts["rejected"] >= 500
    assert_same_bits(out, topology)


def test_edges_count_their_messages_bytes_and_waiting(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "path", 2, max_rounds=50), tmp_path / "run"
    assert verify(topology, out).returncode == 0
    first, second = (json.loads(PeerFiles(out, topology, i).facts.read_text(encoding="utf-8")) for i in (0, 1))
    sent, received = first["edges"]["1"], second["edges"]["0"]
    assert sent["messages_sent"] >= 50
    # One more may be received: a Bye is sent after the facts are written.
    assert 0 < received["messages_received"] <= sent["messages_sent"] + 1
    assert sent["bytes_sent"] > 50 * bytes_per_block(topology)
    assert sent["seconds_waited"] > 0
    assert sent["dropped"] == 0


def test_a_result_without_its_tracker_is_not_the_same(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "path", 2, max_rounds=5), tmp_path / "run"
    assert "same bits: the results of 2 peers" in verify(topology, out).stdout
    result = PeerFiles(out, topology, 1).result
    with np.load(result, allow_pickle=False) as arrays:
        kept = {name: arrays[name] for name in arrays if name != "D"}
    np.savez(result, **kept)
    assert "DIFFERENT: peers [0, 1] of 2" in call("verify", topology.file, "--results", out, code=7).stdout


OTHER_TREE = """
from thanos_peer.topology.graph import Tree

of = Tree.of.__func__
Tree.of = classmethod(lambda cls, root, neighbors: of(cls, (root + 1) % len(neighbors), neighbors))
"""
OTHER_WEIGHTS = """
import math
from thanos_peer.topology.graph import Graph

row_of = Graph._mixing_row
Graph._mixing_row = lambda self, i: tuple((j, math.nextafter(weight, 1)) for j, weight in row_of(self, i))
"""


OTHER_ROOTS = """
from thanos_peer.preparation import share

distinct_eigenvalues = share.distinct_eigenvalues
share.distinct_eigenvalues = lambda W: distinct_eigenvalues(W) * (1 + 1e-9)
"""


@pytest.mark.parametrize(
    ("code", "change"),
    [(OTHER_TREE, exact("proximal")), (OTHER_WEIGHTS, None), (OTHER_WEIGHTS, exact("proximal-tracking"))],
    ids=["tree", "weights of thanos", "weights of proximal-tracking"],
)
def test_a_peer_that_derives_other_numbers_from_the_same_file_is_refused_by_name(tmp_path, code, change):
    topology, out = write_topology(tmp_path / "net.toml", "ring", 3, change=change), tmp_path / "run"
    doctored = environment_with(code, tmp_path / "doctored")
    processes = [start_peer(topology, i, out, **({"env": doctored} if i == 2 else {})) for i in range(3)]
    with ended_afterwards(*processes):
        assert [process.wait(60) for process in processes[1:]] == [5, 5]
        assert processes[0].wait(60) == 5
    for i in range(2):
        assert re.search(
            rf"peer {i} \(\S+\) and peer 2 \(\S+\) cannot run together; they differ in topology digest: "
            rf"{topology.digest} here, [0-9a-f]{{64}} there",
            said(out, i),
        )
        assert not PeerFiles(out, topology, i).result.exists()


@pytest.mark.parametrize("is_root", [False, True], ids=["another", "the root"])
def test_all_mix_by_the_roots_of_one_peer_whatever_eigenvalues_others_compute(tmp_path, is_root):
    change = exact("proximal-tracking", max_rounds=40)
    topology, out = write_topology(tmp_path / "net.toml", "path", 4, change=change), tmp_path / "run"
    root = topology.graph.tree.root
    doctored, environment = root if is_root else 3, environment_with(OTHER_ROOTS, tmp_path / "doctored")
    assert root != 3
    processes = [
        start_peer(topology, i, out, **({"env": environment} if i == doctored else {})) for i in range(topology.d)
    ]
    with ended_afterwards(*processes):
        assert [process.wait(60) for process in processes] == [0] * topology.d
    ours, theirs = simulated(topology), load_outcome(out, topology)
    assert set(theirs.rounds) == {ours.k}
    # The eigenvalues that the root finds are the ones that count.
    assert (theirs.X.tobytes() == ours.X.tobytes()) is not is_root
