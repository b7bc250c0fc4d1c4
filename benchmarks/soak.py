"""Whether a network stays as it is for a long time, while things go wrong now and then.

python benchmarks/soak.py [--minutes 60] [--peers 6] [--faults-per-minute 3] [--seed 1]

Runs one network with keys and checkpoints behind the proxies of `thanos-peer chaos`. Prints the memory, the open
files and the threads of every peer for each tenth of the time, how the last tenth compares with the first, what
has struck, and whether bits and claims are what they must be. Only the last peer is killed: the others live all
the time, so that what they do not give back shows. Exit code 1 if bits or claims are wrong or faults are missing.
"""

import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np
import tomlkit
from flatness import peers_of, resident_kib
from peers import run_ours

from thanos_peer.launch.chaos import Chaos
from thanos_peer.launch.claims import check_claims
from thanos_peer.launch.cluster import Cluster, prepare_peers
from thanos_peer.launch.faults import KILLS, Fault, draw_faults, kinds_for, latest_round
from thanos_peer.launch.ports import free_ports
from thanos_peer.launch.proxy import Proxies
from thanos_peer.problem import build
from thanos_peer.simulate import StackedNetwork
from thanos_peer.storage.outcome import load_outcome
from thanos_peer.topology import Topology, families, load
from thanos_peer.topology.render import Draft, render

PAUSE = 1.0  # seconds between two samples
# Rounds of a run that measures the speed of this machine.
PILOT = 3000
# Share of that speed to which the run is held back: proxies and faults take time, too.
SHARE = 0.5
KEPT = 1000  # rounds between two that are kept
COLUMNS = ("MiB", "files", "threads")


@dataclass(frozen=True)
class Sample:
    """What one peer used at some time."""

    seconds: float
    peer: int
    usage: tuple[float, float, float]  # as COLUMNS has it


def usage_of(pid: int) -> tuple[float, float, float]:
    """Memory in MiB, open files and threads of a process."""
    files, threads = (len(list(Path(f"/proc/{pid}/{kind}").iterdir())) for kind in ("fd", "task"))
    return resident_kib(pid) / 1024, float(files), float(threads)


def peer_of(pid: int) -> int:
    """The id that a process was started with."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return int(words[words.index(b"--id") + 1])


@contextlib.contextmanager
def sampled(samples: list[Sample]) -> Iterator[None]:
    """Look at the peers of this process again and again."""
    is_over, began = threading.Event(), time.monotonic()

    def look() -> None:
        while not is_over.wait(PAUSE):
            for pid in peers_of(os.getpid()):
                # The process has just ended, or just begun.
                with contextlib.suppress(OSError, ValueError):
                    samples.append(Sample(time.monotonic() - began, peer_of(pid), usage_of(pid)))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def network_in(directory: Path, d: int, rounds: int) -> Topology:
    """A ring of peers with a file each, whose mean, scale and verdict they find together."""
    draft = Draft(name="soak", d=d, edges=families.ring(d), title="A benchmark.", max_rounds=rounds, tolerance=0.0)
    raw = tomlkit.parse(render(draft)).unwrap()
    raw["problem"]["data"] = {"kind": "files", "center": True, "scale": True, "overall": "auto"}
    raw["algorithm"]["start"] = {"kind": "random", "seed": 1}
    rng = np.random.default_rng(1)
    for peer in raw["peers"]:
        peer["data"] = f"{peer['id']}.npy"
        np.save(directory / peer["data"], rng.standard_normal((40, draft.n)) * np.arange(1, draft.n + 1))
    file = directory / "soak.toml"
    file.write_text(tomlkit.dumps(raw))
    return load(file)


def gentle(faults: list[Fault], d: int) -> list[Fault]:
    """The same, but only the last peer is killed."""
    return [replace(fault, victims=(d - 1,)) if fault.kind in KILLS else fault for fault in faults]


def run_network(
    topology: Topology, out: Path, count: int, *, rate: float, seed: int
) -> tuple[Chaos, StackedNetwork, list[Sample]]:
    """The whole run: what struck, the same in one process, and what the peers used."""
    network = StackedNetwork(build(topology))
    while not network.is_done:
        network.advance()
    before = sum(network.rounds_by_phase.values()) - network.k
    latest = latest_round(network.k, topology.graph.diameter)
    faults = draw_faults(count, kinds_for((), in_the_clear=False), d=topology.d, latest=latest, seed=seed)
    ports, samples = free_ports(2 * topology.d), list[Sample]()
    out.mkdir()
    with Proxies(ports[: topology.d], ports[topology.d :], seed=seed, in_the_clear=False) as proxies:
        ready, secrets = prepare_peers(topology, out / "topology.toml", proxies.ports, proxies.targets)
        with Cluster(ready, out, secrets, keep_every=KEPT, lasts=False) as cluster, sampled(samples):
            chaos = Chaos(
                cluster,
                proxies,
                gentle(faults, topology.d),
                before=before,
                latest=latest,
                tell=click.echo,
                rate=rate,
            )
            chaos.run()
    return chaos, network, samples


def report(samples: list[Sample], d: int) -> None:
    """A line per peer and tenth, and how the last compares with the first."""
    end = max(sample.seconds for sample in samples)
    means = np.full((10, d, len(COLUMNS)), np.nan)
    for tenth in range(10):
        for peer in range(d):
            inside = [s.usage for s in samples if s.peer == peer and min(int(10 * s.seconds / end), 9) == tenth]
            if inside:
                means[tenth, peer] = np.mean(inside, axis=0)
    for number, name in enumerate(COLUMNS):
        click.echo(f"{name + ' by tenth':>18}" + "".join(f"{f'peer {peer}':>9}" for peer in range(d)))
        for tenth in range(10):
            click.echo(f"{tenth + 1:18}" + "".join(f"{each:9.1f}" for each in means[tenth, :, number]))
        ratios = means[-1, :, number] / means[0, :, number]
        click.echo(f"{'last by first':>18}" + "".join(f"{ratio:9.3f}" for ratio in ratios))


@click.command()
@click.option("--minutes", type=click.FloatRange(min=0.5), default=60.0, show_default=True)
@click.option("--peers", "d", type=click.IntRange(min=3), default=6, show_default=True)
@click.option("--faults-per-minute", "rate", type=click.FloatRange(min=0), default=3.0, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
def main(minutes: float, d: int, rate: float, seed: int) -> None:
    """Run, look, and print."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        speed = run_ours(network_in(directory, d, PILOT), directory / "pilot").rounds_per_second
        per_second, count = SHARE * speed, round(rate * minutes)
        rounds = int(per_second * 60 * minutes)
        topology = network_in(directory, d, rounds)
        click.echo(
            f"{d} peers, {rounds} rounds, {per_second:.0f} a second of {speed:.0f} that they could; {count} faults"
        )
        began = time.monotonic()
        chaos, network, samples = run_network(topology, directory / "run", count, rate=per_second, seed=seed)
        took = (time.monotonic() - began) / 60
        report(samples, d)
        outcome, checked = load_outcome(directory / "run", topology), check_claims(topology, directory / "run")
    struck = ", ".join(f"{number} x {kind}" for kind, number in sorted(chaos.struck.items()))
    is_same = outcome.X.tobytes() == network.X.tobytes() and outcome.sparse.tobytes() == network.sparse.tobytes()
    click.echo(
        f"{took:.1f} minutes; struck {chaos.struck.total()} of {count}: {struck}; {chaos.victims.kills} kills"
    )
    click.echo(
        f"same bits: {'yes' if is_same else 'NO'}; claims: {checked.count}, {len(checked.false)} of them false"
    )
    for claim in checked.false:
        click.echo(f"FALSE CLAIM: {claim}")
    sys.exit(not is_same or bool(checked.false) or chaos.struck.total() < count)


if __name__ == "__main__":
    main()
