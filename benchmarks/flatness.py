"""Whether the cost of a round stays flat: speed and memory of peers over many rounds.

python benchmarks/flatness.py [--peers 8] [--rounds 20000]

Samples the round of a peer (as `thanos-peer status` does) and the resident memory of all (from /proc), and prints
both for each tenth of the run. Shared machines are faster at one moment than at another; so beside every sample a
fixed piece of work is timed on the same machine, and the cost of a round is given in units of that, too.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import msgpack
import numpy as np

from thanos_peer.peer.status import ask, local_address
from thanos_peer.storage.peer_files import PeerFiles
from thanos_peer.topology import families, load
from thanos_peer.topology.render import Draft, render

PAUSE = 0.25


def resident_kib(pid: int) -> int:
    """Resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)


def peers_of(pid: int) -> list[int]:
    """The peers that a launcher has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if b"\0start\0" in Path(f"/proc/{child}/cmdline").read_bytes()]


def seconds_of_work() -> float:
    """CPU seconds of a fixed piece of work, of the kind that peers do: what this machine is worth right now."""
    began, X = time.process_time(), np.full((10, 3), 0.1)
    for _ in range(300):
        X = X + 1e-3 * (X @ (X.T @ X))
        msgpack.unpackb(msgpack.packb([1, 2, X.tobytes()]))
    return time.process_time() - began


@click.command()
@click.option("--peers", "d", type=int, default=8, show_default=True)
@click.option("--rounds", type=int, default=20_000, show_default=True)
def main(d: int, rounds: int) -> None:
    """Run, sample, and print a line per tenth."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "flat.toml"
        edges = families.ring(d)
        draft = Draft(name="flat", d=d, edges=edges, title="A benchmark.", max_rounds=rounds, tolerance=0.0)
        file.write_text(render(draft))
        topology = load(file)
        command = [
            sys.executable,
            "-m",
            "thanos_peer",
            "run",
            str(file),
            "--free-ports",
            "--quiet",
            "--every",
            "1000000",
        ]
        process = subprocess.Popen([*command, "--out", str(Path(directory) / "run")], stdout=subprocess.DEVNULL)
        samples = []
        while process.poll() is None:
            time.sleep(PAUSE)
            answer = ask([local_address(topology, 0)], timeout=1.0)[0]
            if isinstance(answer, str) or not (stepping := answer.model_dump()["stepping"])["rounds"]:
                continue
            try:
                memory = sum(resident_kib(pid) for pid in peers_of(process.pid))
            except (FileNotFoundError, ProcessLookupError):
                break
            numbers = stepping["rounds"], stepping["seconds"], stepping["cpu_seconds"], memory
            samples.append((*numbers, seconds_of_work()))
        last = json.loads(PeerFiles(Path(directory) / "run", topology, 0).facts.read_text())["stepping"]
    if not samples:
        raise click.ClickException("the run was over before it could be looked at: give it more --rounds")
    first, final = (
        (0, 0.0, 0.0, *samples[0][3:]),
        (last["rounds"], last["seconds"], last["cpu_seconds"], *samples[-1][3:]),
    )
    report(np.array([first, *samples, final]), last["rounds"])


def report(samples: np.ndarray, rounds: int) -> None:
    """Ten lines, and how the last compares with the first."""
    edges = np.linspace(0, rounds, 11)
    seconds, cpu, memory = (np.interp(edges, samples[:, 0], samples[:, column]) for column in (1, 2, 3))
    speed, work = np.diff(edges) / np.diff(seconds), np.diff(cpu) / np.diff(edges) * 1e6
    tenth = np.minimum(samples[:, 0] * 10 // rounds, 9)
    unit = np.array([np.median(samples[tenth == i, 4]) for i in range(10)]) * 1e6  # of work, us
    click.echo(f"{'rounds':>16}{'rounds/s':>10}{'CPU us/round':>14}{'in units of work':>18}{'resident MiB':>14}")
    for i in range(10):
        click.echo(
            f"{edges[i]:8.0f}-{edges[i + 1]:<7.0f}{speed[i]:10.0f}{work[i]:14.0f}{work[i] / unit[i]:18.4f}"
            f"{memory[i + 1] / 1024:14.1f}"
        )
    cost = work / unit
    click.echo(
        f"last tenth beside the first: speed {speed[-1] / speed[0]:.3f}, CPU per round {work[-1] / work[0]:.3f}, "
        f"in units of work {cost[-1] / cost[0]:.3f}, memory {memory[-1] / memory[1]:.3f}"
    )


if __name__ == "__main__":
    main()
