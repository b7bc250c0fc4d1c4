"""Rounds per second and CPU per message, beside THANOS over mpi4py, measured in turns in one sitting.

python benchmarks/rounds.py [--peers 8 --peers 32] [--repeats 3]

Needs Open MPI (`mpirun`) and the extra `bench`; without them only our own figures are printed. All contestants run
the same topology (Erdos-Renyi 0.5, n = 10, p = 3) with the same step, a process per agent; which of them end with
the same bits is said. Ratios of one sitting are what counts; the figures are this machine's, at this hour.
"""

import hashlib
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from thanos_peer.results import PeerFiles, load_outcome
from thanos_peer.topology import Topology, families, load
from thanos_peer.topology.render import Draft, render

YIELD = ["--mca", "mpi_yield_when_idle", "1"]
TCP = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
SHARED = ["--mca", "btl", "vader,self"]


@dataclass(frozen=True)
class Figure:
    """What one run of one contestant showed."""

    rounds_per_second: float
    cpu_us_per_message: float
    bits: str


def bits_of(X: np.ndarray) -> str:
    """A digest of all X."""
    return hashlib.sha256(X.tobytes()).hexdigest()


def run_ours(topology: Topology, out: Path) -> Figure:
    """All peers with `thanos-peer run`; start-up left out."""
    command = [sys.executable, "-m", "thanos_peer", "run", str(topology.file), "--free-ports", "--quiet"]
    subprocess.run([*command, "--out", str(out), "--every", "1000000"], check=True, stdout=subprocess.DEVNULL)
    facts = [json.loads(PeerFiles(out, topology, i).facts.read_text()) for i in range(topology.d)]
    stepping = [fact["stepping"] for fact in facts]
    rounds = stepping[0]["rounds"]
    cpu = sum(each["cpu_seconds"] for each in stepping)
    seconds = statistics.median(each["seconds"] for each in stepping)
    messages = rounds * topology.messages_per_round
    return Figure(rounds / seconds, cpu / messages * 1e6, bits_of(load_outcome(out, topology).X))


def run_mpi(topology: Topology, options: list[str]) -> Figure:
    """All ranks with mpirun."""
    rounds = topology.algorithm.max_rounds
    command = [
        "mpirun",
        "--allow-run-as-root",
        "--oversubscribe",
        "--bind-to",
        "none",
        "-np",
        str(topology.d),
        *options,
    ]
    program = Path(__file__).with_name("mpi_thanos.py")
    done = subprocess.run(
        [*command, sys.executable, str(program), str(topology.file), str(rounds)],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    said = json.loads(done.stdout.splitlines()[-1])
    messages = rounds * topology.messages_per_round
    return Figure(rounds / said["seconds"], said["cpu_seconds"] / messages * 1e6, said["bits"])


def contestants(directory: Path) -> dict[str, tuple[Callable[[Topology, int], Figure], int]]:
    """Who runs, and by how many times fewer rounds, so that the slow ones do not take all day."""
    ours = {"thanos-peer, ZeroMQ, TCP": (lambda t, number: run_ours(t, directory / f"ours-{t.d}-{number}"), 1)}
    if shutil.which("mpirun") is None or importlib.util.find_spec("mpi4py") is None:
        click.echo("no mpirun or no mpi4py here: install openmpi-bin and the extra `bench` to compare")
        return ours
    return ours | {
        "mpi4py, told to yield, TCP": (lambda t, _: run_mpi(t, YIELD + TCP), 1),
        "mpi4py, told to yield, shared memory": (lambda t, _: run_mpi(t, YIELD + SHARED), 1),
        "mpi4py, as installed": (lambda t, _: run_mpi(t, []), 10),
    }


def topology_with(directory: Path, d: int, rounds: int) -> Topology:
    """The contest's network."""
    edges = families.erdos_renyi(d, 0.5, seed=1)
    file = directory / f"er-{d}-{rounds}.toml"
    title = "A benchmark."
    draft = Draft(name=f"er-{d}", d=d, edges=edges, title=title, samples=10 * d, max_rounds=rounds, tolerance=0.0)
    file.write_text(render(draft))
    return load(file)


@click.command()
@click.option("--peers", "sizes", type=int, multiple=True, default=(8, 32), show_default=True)
@click.option("--repeats", type=int, default=3, show_default=True)
@click.option("--rounds", type=int, help="Rounds per run.  [default: 2000 with 8 peers, fewer with more]")
def main(sizes: tuple[int, ...], repeats: int, rounds: int | None) -> None:
    """Print medians of interleaved runs."""
    with tempfile.TemporaryDirectory() as directory:
        runners = contestants(Path(directory))
        for d in sizes:
            count = rounds or max(100, 128_000 // d**2)
            figures: dict[str, list[Figure]] = {name: [] for name in runners}
            for number in range(repeats):
                for name, (runner, divisor) in runners.items():
                    topology = topology_with(Path(directory), d, max(20, count // divisor))
                    figures[name].append(runner(topology, number))
            report(d, count, figures)


def report(d: int, count: int, figures: dict[str, list[Figure]]) -> None:
    """One table: medians, and each contestant's speed beside the first's."""
    speed = {name: statistics.median(f.rounds_per_second for f in runs) for name, runs in figures.items()}
    ours = next(iter(speed.values()))
    click.echo(f"\nd = {d}, {count} rounds, medians of {len(next(iter(figures.values())))} interleaved runs")
    click.echo(f"{'':38}{'rounds/s':>10}{'CPU us/message':>16}{'ours is':>10}")
    for name, runs in figures.items():
        cpu = statistics.median(f.cpu_us_per_message for f in runs)
        click.echo(f"{name:38}{speed[name]:10.0f}{cpu:16.0f}{ours / speed[name]:9.2f}x")
    same = [name for name, runs in figures.items() if runs[0].bits == next(iter(figures.values()))[0].bits]
    click.echo(f"same bits after the same rounds: {', '.join(same)}")


if __name__ == "__main__":
    main()
