"""What is kept for others is bounded in bytes: large blocks, and a disk that takes its time."""

import contextlib
import os
import subprocess
import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st
from networks import make_instance, make_topology, raw_topology
from processes import PATIENCE, bytes_per_block, command, ended_afterwards, said, start_peer, wait_until

from thanos_peer.agent import SPARE, Agent
from thanos_peer.launch.ports import free_ports
from thanos_peer.peer.peer import terms_of
from thanos_peer.phases import Plan
from thanos_peer.preparation import outline
from thanos_peer.protocol.conversation import Options
from thanos_peer.protocol.hearing import Arrived
from thanos_peer.protocol.messages import Hello
from thanos_peer.protocol.outputs import Log, Save
from thanos_peer.protocol.saving import INTERVAL, PARTS
from thanos_peer.protocol.session import Session
from thanos_peer.simulate import AgentNetwork
from thanos_peer.storage import block_files
from thanos_peer.storage.block_files import MOST_BYTES
from thanos_peer.storage.checkpoint import CheckpointStore
from thanos_peer.topology import load

# The benchmarks are scripts that import each other, and no package.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
checkpoints = import_module("checkpoints")
# Blocks that are kept, where a test says how many.
MOST = 100
ROUNDS = 48
MODULE = """
class Sparse:
    def __init__(self, samples):
        self.samples = samples

    def value(self, X):
        return -((self.samples @ X) ** 2).sum() / 2

    def gradient(self, X):
        return -self.samples.T @ (self.samples @ X)
"""  # without the Gram matrix, which would be far too large here
SLOW_DISK = """
import os, time

flush = os.fsync


def flush_slowly(number):
    if os.readlink(f"/proc/self/fd/{number}").endswith(".ckpt.new"):
        time.sleep(1.5)
    flush(number)


os.fsync = flush_slowly
"""


def large_blocks(directory):
    """Two peers with blocks of two megabytes, of which each keeps sixteen."""
    raw = raw_topology("path", 2, n=2**17, p=1, samples=4, max_rounds=ROUNDS, tolerance=0.0)
    raw["algorithm"]["start"] = {"kind": "random", "seed": 1}
    raw["problem"] |= {"objective": "large:Sparse", "regularizer": "none", "mu": 0.0}
    for peer, port in zip(raw["peers"], free_ports(2), strict=True):
        peer["address"] = f"tcp://127.0.0.1:{port}"
    (directory / "large.py").write_text(MODULE, encoding="utf-8")
    (directory / "net.toml").write_text(tomlkit.dumps(raw), encoding="utf-8")
    return load(directory / "net.toml", allowed_code=(str(directory / "large.py"),))


@pytest.mark.parametrize(
    ("n", "p", "rate", "seconds"), [(20, 2, 700, 60), (100, 2, 700, 25), (300, 4, 500, 8), (1000, 5, 300, 4)]
)
def test_a_neighbor_that_has_all_blocks_kept_has_no_more_written(n, p, rate, seconds, tmp_path):
    """What is written are the blocks that are sent, once, and checkpoints about once a second."""
    pair, sent = checkpoints.pair(tmp_path, n, p), 16 * n * p * rate * seconds
    _, usual = checkpoints.run(pair, tmp_path / "usual", rate, seconds, has_all_kept=False)
    count, written = checkpoints.run(pair, tmp_path / "all kept", rate, seconds, has_all_kept=True)
    # Latest blocks, state, and the heads of blocks and files.
    each = MOST_BYTES + 16 * 16 * n * p + 4096
    assert count <= seconds / INTERVAL + rate * seconds / (outline(pair).blocks_kept // PARTS)
    assert written <= sent + count * each
    assert written <= 1.1 * usual + MOST_BYTES * seconds / 4


@given(
    st.integers(1, 400),
    st.integers(1, 2000),
    st.lists(st.integers(0, 9), min_size=1, max_size=40),
)
def test_blocks_are_written_once_however_many_are_kept(size, most_bytes, steps):
    """Of all blocks, but for the latest, whatever the sizes and however many rounds pass between checkpoints."""
    pair = make_topology(family="path", d=2, n=size, p=1)
    start = AgentNetwork(make_instance(raw_topology("path", 2, n=size, p=1))).agents[0]
    peer = checkpoints.Peer(start.memory(), start.block, start.runner.plan.blocks_kept, has_all_kept=True)
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as directory:
        patch.setattr(block_files, "MOST_BYTES", most_bytes)
        with CheckpointStore(Path(directory), pair, 0, is_flushed=False) as store:
            store.save(peer.memory())
            state, before = store.files()[-1].stat().st_size, checkpoints.written_so_far()
            for step in steps:
                peer.k += step
                store.save(peer.memory())
            written = checkpoints.written_so_far() - before
    each = 16 * size + 100  # a block
    # Parts are at least as large as what checkpoints hold, and each is named by every later one.
    parts = min(len(steps), peer.k * each // most_bytes + 1)
    assert written <= peer.k * each + len(steps) * (state + most_bytes + each + 100 * (parts + 1))


class SmallPlan(Plan):
    """One that lets a peer be ahead of its disk by fewer rounds."""

    blocks_kept = MOST


def lines_of(seconds, rate, *, lag):
    """What a session logs whose neighbor names as its fallback the round so long ago; None for round 0."""
    instance = make_instance(raw_topology("path", 2, n=100, p=2, max_rounds=10**6, tolerance=0.0))
    topology = instance.topology
    agent, other = (Agent(topology, i, instance.plan(i)) for i in range(2))
    agent.runner.plan, agent.fallback, terms = SmallPlan(*agent.runner.plan), 0, terms_of(topology)
    session = Session(agent, terms, {j: topology.peers[j].address for j in range(2)}, Options(), 0.0)
    session.start(0.0)
    hello = Hello(0, terms.digest, 100, 2, terms.dtype, "1", is_asking=False, life=5, answered=terms.life)
    lines, said = [], hello
    for k in range(1, rate * seconds):
        now = k / rate
        outputs = session.receive([Arrived((1, said), 100, now, 1)], 0, now)
        for output in outputs:
            lines += [output.text] if isinstance(output, Log) else []
            # A disk that takes no time.
            if isinstance(output, Save) and not output.is_urgent:
                session.saved(output.memory, now)
        said = other.block._replace(fallback=0 if lag is None else max(0, other.k - lag))
        other.receive(0, agent.block)
        other.advance()
    return [line for line in lines if "may have to start again" in line]


@pytest.mark.parametrize(("lag", "is_named"), [(2 * MOST // PARTS, False), (MOST + SPARE, True), (None, True)])
def test_a_neighbor_whose_fallback_stays_old_is_named(lag, is_named):
    lines = lines_of(25, 40, lag=lag)
    assert bool(lines) is is_named
    assert all("peer 1 may have to start again from round" in line for line in lines)
    assert len(lines) <= 2


def test_a_peer_with_large_blocks_saves_early_and_pauses_for_its_disk(tmp_path):
    topology, out, state = large_blocks(tmp_path), tmp_path / "run", tmp_path / "run.state"
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "sitecustomize.py").write_text(SLOW_DISK, encoding="utf-8")
    slow = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path / "disk"), os.environ.get("PYTHONPATH", "")])}
    options = "--allow-code", tmp_path / "large.py"
    processes = [start_peer(topology, agent, out, *options, env=slow) for agent in range(2)]
    # Sizes of the checkpoints of peer 0, by round.
    sizes = {}

    def have_ended():
        for path in state.glob("0-*.ckpt"):
            with contextlib.suppress(FileNotFoundError):  # later ones have taken its place
                sizes.setdefault(int(path.stem.split("-")[-1]), path.stat().st_size)
        return all(process.poll() is not None for process in processes)

    with ended_afterwards(*processes):
        wait_until(have_ended, "all are done", PATIENCE)
        assert [process.wait() for process in processes] == [0, 0], said(out, 0) + said(out, 1)
    kept, rounds = outline(topology).blocks_kept, sorted(sizes)
    assert kept == 16
    assert all(later - earlier <= kept for earlier, later in pairwise(rounds[::2]))  # the fallback is one before
    assert all(later - earlier <= kept for earlier, later in pairwise(rounds[1::2]))
    assert len(rounds) > ROUNDS // kept
    assert max(sizes.values()) < (kept + SPARE + 2) * bytes_per_block(topology)
    # The bits are compared in another process, where sums of this size are as those of the peers.
    compared = subprocess.run(
        command("verify", topology.file, "--results", out, *options),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert "same bits: the results of 2 peers" in compared.stdout, compared.stderr
