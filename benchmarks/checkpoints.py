"""How much one peer writes: a neighbor that saves as this one does, beside one that has all kept that may be.

python benchmarks/checkpoints.py [--seconds 60]

Rounds pass by a simulated clock. The `Saving` that ships decides when to save, and its `CheckpointStore` saves;
what it writes is counted by the kernel (/proc, Linux). The neighbor's fallback is as late as this peer's own, or
as old as a block may name.
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import click

from thanos_peer.agent import SPARE, Agent, Memory
from thanos_peer.block import Block
from thanos_peer.problem import build
from thanos_peer.protocol.saving import Saving
from thanos_peer.simulate import AgentNetwork
from thanos_peer.storage.checkpoint import CheckpointStore
from thanos_peer.topology import Topology, families, load
from thanos_peer.topology.render import Draft, render

# n, p, rounds per second.
RUNS = ((20, 2, 700), (100, 2, 700), (1000, 5, 300), (5000, 10, 60))


@dataclass
class Peer:
    """What `Saving` and `CheckpointStore` ask of an agent, whose rounds are only counted.

    Attributes:
        memory_of_start: Its state, which keeps its size.
        block: What it says in each round.
        blocks_kept: How far it may be ahead of its disk.
        has_all_kept: Whether its neighbor names as old a fallback as it may.
    """

    memory_of_start: Memory
    block: Block
    blocks_kept: int
    has_all_kept: bool
    k: int = 0
    epoch: int = 0
    fallback: int = 0

    def memory(self) -> Memory:
        """What a checkpoint of this round is to hold."""
        first = self.k - self.blocks_kept - SPARE if self.has_all_kept else self.fallback
        said = tuple(self.block._replace(k=at) for at in range(max(0, first), self.k))
        return replace(self.memory_of_start, k=self.k, said=said)


def written_so_far() -> int:
    """Bytes that this process has written."""
    facts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(facts["wchar"])


def run(topology: Topology, directory: Path, rate: int, seconds: int, *, has_all_kept: bool) -> tuple[int, int]:
    """The checkpoints, and the bytes that were written."""
    agent = AgentNetwork(build(topology)).agents[0]
    peer = Peer(agent.memory(), agent.block, agent.runner.plan.blocks_kept, has_all_kept)
    saving, before = Saving(cast("Agent", peer), 0.0, peer.blocks_kept), written_so_far()
    with CheckpointStore(directory, topology, 0, is_flushed=False) as store:
        for k in range(1, rate * seconds):
            peer.k = k
            if saving.is_due(k / rate):
                memory = saving.begin(k / rate)
                store.save(memory)
                saving.end(memory)
    return saving.count, written_so_far() - before


@click.command()
@click.option("--seconds", type=int, default=60, show_default=True, help="Of the simulated clock.")
def main(seconds: int) -> None:
    """Print megabytes a minute."""
    click.echo(f"{'n':>6}{'p':>4}{'rounds/s':>10}{'sent':>8}{'usual':>8}{'all kept':>10}  MB/min, checkpoints/min")
    for n, p, rate in RUNS:
        figures = [_figure(n, p, rate, seconds, has_all_kept=each) for each in (False, True)]
        sent = 16 * n * p * rate * 60 / 1e6
        minutes = seconds / 60
        shown = "".join(f"{written / 1e6 / minutes:10.0f}" for _, written in figures)
        saved = " and ".join(f"{count / minutes:.0f}" for count, _ in figures)
        click.echo(f"{n:6}{p:4}{rate:10}{sent:8.0f}{shown}, {saved}")


def _figure(n: int, p: int, rate: int, seconds: int, *, has_all_kept: bool) -> tuple[int, int]:
    with tempfile.TemporaryDirectory() as directory:
        topology = pair(Path(directory), n, p)
        return run(topology, Path(directory) / "state", rate, seconds, has_all_kept=has_all_kept)


def pair(directory: Path, n: int, p: int) -> Topology:
    """Two peers with blocks of this size."""
    file, edges = directory / "pair.toml", families.path(2)
    title = "A benchmark."
    draft = Draft(
        name="pair", d=2, edges=edges, title=title, n=n, p=p, samples=16, max_rounds=10**6, tolerance=0.0
    )
    file.write_text(render(draft))
    return load(file)


if __name__ == "__main__":
    main()
