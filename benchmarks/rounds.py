"""Rounds per second and CPU per message, beside THANOS over mpi4py, measured in turns in one sitting.

python benchmarks/rounds.py [--peers 8 --peers 32] [--repeats 3]

"Bare" peers speak in the clear and save nothing, as the ranks do; as they come, they are encrypted and survive
power cuts; both are forked, as `run` does it. "A loop over ZeroMQ" exchanges, steps and does nothing else
(bare_loop.py): what the transport costs, and as far as a peer could get. Needs Open MPI (`mpirun`) and the extra
`bench`; without them only our own figures are printed. All contestants run the same topology (Erdos-Renyi 0.5, n
= 10, p = 3) with the same step, a process per agent; which of them end with the same bits is said. "Not told to
yield" is what a host file with a slot per agent gives: ranks that wait, spin (told that the host has fewer cores
than ranks, Open MPI yields by itself). Ratios of one sitting are what counts; the figures are this machine's, at
this hour.
"""

import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path

import click
import numpy as np
from peers import Figure, bits_of, in_the_clear, run_bare, run_ours, topology_with

from thanos_peer.topology import Topology

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
IPC, PLAIN = "thanos-peer, bare, ipc", "thanos-peer, bare, TCP"
YIELD = ["--mca", "mpi_yield_when_idle", "1"]
TCP = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
SHARED = ["--mca", "btl", "vader,self"]


def run_mpi(topology: Topology, options: list[str]) -> Figure:
    """All ranks with mpirun."""
    rounds = topology.max_rounds
    slots = ["--host", f"localhost:{topology.d}"]
    command = ["mpirun", "--allow-run-as-root", *slots, "--bind-to", "none", "-np", str(topology.d), *options]
    program = Path(__file__).with_name("mpi_thanos.py")
    done = subprocess.run(
        [*command, sys.executable, str(program), str(topology.file), str(rounds)],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | ONE_THREAD,
    )
    said = json.loads(done.stdout.splitlines()[-1])
    messages = rounds * topology.messages_per_round
    return Figure(rounds / said["seconds"], said["cpu_seconds"] / messages * 1e6, said["bits"])


def run_loop(topology: Topology, directory: Path, *, is_local: bool = False) -> Figure:
    """All agents in loops that do nothing else."""
    ready, rounds = in_the_clear(topology, directory, is_local=is_local), topology.max_rounds
    program = Path(__file__).with_name("bare_loop.py")
    done = subprocess.run(
        [sys.executable, str(program), str(ready.file), str(rounds)],
        check=True,
        stdout=subprocess.PIPE,
        env=os.environ | ONE_THREAD,
    )
    said = sorted(map(json.loads, done.stdout.splitlines()), key=itemgetter("id"))
    X = np.array([np.frombuffer(bytes.fromhex(each["X"])) for each in said])
    messages = (rounds - 1) * topology.messages_per_round
    seconds = statistics.median(each["seconds"] for each in said)
    return Figure((rounds - 1) / seconds, sum(each["cpu_seconds"] for each in said) / messages * 1e6, bits_of(X))


def contestants(directory: Path) -> dict[str, tuple[Callable[[Topology, int], Figure], int]]:
    """Who runs, and by how many times fewer rounds, so that the slow ones do not take all day."""
    here = {
        IPC: (lambda t, i: run_bare(t, directory / f"ipc-{t.d}-{i}", is_local=True), 1),
        PLAIN: (lambda t, number: run_bare(t, directory / f"bare-{t.d}-{number}"), 1),
        "thanos-peer, as it comes, TCP": (lambda t, number: run_ours(t, directory / f"ours-{t.d}-{number}"), 1),
    }
    if importlib.util.find_spec("uvloop") is not None:
        here |= {
            "a loop over ZeroMQ, ipc": (lambda t, i: run_loop(t, directory / f"li-{t.d}-{i}", is_local=True), 1),
            "a loop over ZeroMQ, TCP": (lambda t, i: run_loop(t, directory / f"lt-{t.d}-{i}"), 1),
        }
    if shutil.which("mpirun") is None or importlib.util.find_spec("mpi4py") is None:
        click.echo("no mpirun or no mpi4py here: install openmpi-bin and the extra `bench` to compare")
        return here
    return here | {
        "mpi4py, told to yield, TCP": (lambda t, _: run_mpi(t, YIELD + TCP), 1),
        "mpi4py, told to yield, shared memory": (lambda t, _: run_mpi(t, YIELD + SHARED), 1),
        "mpi4py, as installed, not told to yield": (lambda t, _: run_mpi(t, []), 10),
    }


@click.command()
@click.option("--peers", "sizes", type=int, multiple=True, default=(8, 32), show_default=True)
@click.option("--repeats", type=int, default=3, show_default=True)
@click.option("--rounds", type=int, help="Rounds per run.  [default: 2000 with 8 peers, fewer with more]")
def main(sizes: tuple[int, ...], repeats: int, rounds: int | None) -> None:
    """Print medians of interleaved runs."""
    with tempfile.TemporaryDirectory() as directory:
        runners = contestants(Path(directory))
        for d in sizes:
            count = rounds or max(400, 128_000 // d**2)
            figures: dict[str, list[Figure]] = {name: [] for name in runners}
            for number in range(repeats):
                for name, (runner, divisor) in runners.items():
                    topology = topology_with(Path(directory), d, max(20, count // divisor))
                    figures[name].append(runner(topology, number))
            report(d, count, figures)


def report(d: int, count: int, figures: dict[str, list[Figure]]) -> None:
    """One table: medians, and what our bare peers are beside each."""
    speed = {name: statistics.median(f.rounds_per_second for f in runs) for name, runs in figures.items()}
    click.echo(f"\nd = {d}, {count} rounds, medians of {len(next(iter(figures.values())))} interleaved runs")
    click.echo(f"{'':42}{'rounds/s':>10}{'CPU us/message':>16}{'ipc is':>9}{'TCP is':>9}")
    for name, runs in figures.items():
        cpu = statistics.median(f.cpu_us_per_message for f in runs)
        ratios = f"{speed[IPC] / speed[name]:8.2f}x{speed[PLAIN] / speed[name]:8.2f}x"
        click.echo(f"{name:42}{speed[name]:10.0f}{cpu:16.0f}{ratios}")
    same = [name for name, runs in figures.items() if runs[0].bits == next(iter(figures.values()))[0].bits]
    click.echo(f"same bits after the same rounds: {', '.join(same)}")


if __name__ == "__main__":
    main()
