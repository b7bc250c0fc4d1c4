"""What is kept for others is bounded in bytes: large blocks, and a disk that takes its time."""

import contextlib
import os
import subprocess
from itertools import pairwise

import tomlkit
from networks import make_instance, raw_topology
from processes import PATIENCE, bytes_per_block, command, ended_afterwards, said, start_peer, wait_until

from thanos_peer.agent import SPARE
from thanos_peer.launch.cluster import free_ports
from thanos_peer.preparation import outline
from thanos_peer.protocol.saving import RATE, Saving
from thanos_peer.simulate import AgentNetwork
from thanos_peer.topology import load

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


def test_large_checkpoints_are_written_seldom():
    """A neighbor may name round 0 as its fallback for ever: all blocks since then are in every checkpoint."""
    network = AgentNetwork(make_instance(raw_topology("path", 2, n=100, p=2, max_rounds=3000, tolerance=0.0)))
    agent, liar = network.agents
    agent.fallback = liar.fallback = 0
    saving, written, largest = Saving(agent, 0.0), 0, 0
    for k in range(2500):
        now = k / 100  # seconds
        network.advance()
        if saving.is_due(now):
            memory = saving.begin(now)
            size = sum(len(block.numbers) for block in memory.said)
            written, largest = written + size, max(largest, size)
            saving.end(memory)
    assert largest > 2 * RATE
    assert written <= RATE * now + largest
    assert agent.k - saving.latest <= largest / RATE * 100 + 1


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
