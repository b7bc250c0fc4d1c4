"""Networks of peers to be measured: how they are made, run and looked at."""

import hashlib
import json
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import click
import numpy as np

from thanos_peer.launch.cluster import Cluster, prepare_peers
from thanos_peer.launch.ports import free_ports
from thanos_peer.storage.outcome import load_outcome
from thanos_peer.storage.peer_files import PeerFiles
from thanos_peer.topology import Topology, families, load
from thanos_peer.topology.editing import with_ports
from thanos_peer.topology.render import Draft, render

MOST_SECONDS = 600
Processes: TypeAlias = "list[subprocess.Popen[bytes]]"


@dataclass(frozen=True)
class Figure:
    """What one run of one contestant showed."""

    rounds_per_second: float
    cpu_us_per_message: float
    bits: str
    checkpoints: float = 0.0


def bits_of(X: np.ndarray) -> str:
    """A digest of all X."""
    return hashlib.sha256(X.tobytes()).hexdigest()


def topology_with(directory: Path, d: int, rounds: int, *, n: int = 10, p: int = 3) -> Topology:
    """The contest's network."""
    edges = families.erdos_renyi(d, 0.5, seed=1)
    file = directory / f"er-{d}-{rounds}.toml"
    title = "A benchmark."
    draft = Draft(
        name=f"er-{d}",
        d=d,
        edges=edges,
        title=title,
        n=n,
        p=p,
        samples=10 * d,
        max_rounds=rounds,
        tolerance=0.0,
    )
    file.write_text(render(draft))
    return load(file)


def start_all(topology: Topology, out: Path, *options: str) -> Processes:
    """All peers, one process each."""
    command = [sys.executable, "-m", "thanos_peer", "start", "--topology", str(topology.file), "--out", str(out)]
    command += options
    return [
        subprocess.Popen([*command, "--id", str(i)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        for i in range(topology.d)
    ]


def wait_for_all(processes: Processes) -> None:
    """Wait until all have ended; none may be left, and none may have failed."""
    until = time.monotonic() + MOST_SECONDS
    while None in (codes := [process.poll() for process in processes]) and time.monotonic() < until:
        if any(codes):
            break
        time.sleep(0.05)
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()
    if codes != [0] * len(processes):
        raise click.ClickException(f"peers ended with {codes}")


def prepared(topology: Topology, directory: Path, *, has_keys: bool) -> Topology:
    """The topology on free ports, with keys or without."""
    directory.mkdir()
    file, ports = directory / "topology.toml", free_ports(topology.d)
    return prepare_peers(topology, file, ports)[0] if has_keys else with_ports(topology, file, ports)


def figure_of(topology: Topology, out: Path) -> Figure:
    """What the peers of a run have left: speed, start-up left out, and bits."""
    facts = [json.loads(PeerFiles(out, topology, i).facts.read_text()) for i in range(topology.d)]
    stepping = [fact["stepping"] for fact in facts]
    rounds = stepping[0]["rounds"]
    cpu = sum(each["cpu_seconds"] for each in stepping)
    seconds = statistics.median(each["seconds"] for each in stepping)
    messages = rounds * topology.messages_per_round
    saved = statistics.median(fact["checkpoints"] for fact in facts)
    return Figure(rounds / seconds, cpu / messages * 1e6, bits_of(load_outcome(out, topology).X), saved)


def run_ours(topology: Topology, out: Path, survive: str = "power") -> Figure:
    """All peers with `thanos-peer run`."""
    command = [sys.executable, "-m", "thanos_peer", "run", str(topology.file), "--free-ports", "--quiet"]
    command += ["--survive", survive]
    subprocess.run([*command, "--out", str(out), "--every", "1000000"], check=True, stdout=subprocess.DEVNULL)
    return figure_of(topology, out)


def in_the_clear(topology: Topology, directory: Path, *, is_local: bool = False) -> Topology:
    """The topology without keys, by TCP or by ipc."""
    ready = prepared(topology, directory, has_keys=False)
    if is_local:
        at = re.compile(r"tcp://127\.0\.0\.1:(\d+)")
        ready.file.write_text(at.sub(lambda found: f"ipc://{directory}/{found[1]}", ready.file.read_text()))
        ready = load(ready.file)
    return ready


def run_bare(topology: Topology, out: Path, *, is_local: bool = False) -> Figure:
    """All peers in the clear, with nothing saved, started as `run` does: for those to compare with."""
    ready, until = in_the_clear(topology, out, is_local=is_local), time.monotonic() + MOST_SECONDS
    with Cluster(ready, out, out, keep_every=0, survive="nothing") as peers:
        while running := peers.running:
            if time.monotonic() > until:
                raise click.ClickException(f"{len(running)} peers have not ended after {MOST_SECONDS} s")
            peers.check()
            time.sleep(0.05)
        peers.check()
    return figure_of(ready, out)
