"""Peers as real processes, and topology files on disk for them."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import tomlkit
from networks import raw_topology

from thanos_peer.problem import build
from thanos_peer.results import load_outcome
from thanos_peer.simulate import AgentNetwork
from thanos_peer.topology import Topology, load

PATIENCE = 120.0


def free_ports(count):
    """Ports that nobody listens on right now."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def write_topology(path: Path, family="ring", d=4, *, change=None, **draft) -> Topology:
    """A new topology file with free ports, changed as wanted."""
    raw = raw_topology(family, d, **({"max_rounds": 60, "tolerance": 0.0} | draft))
    for peer, port in zip(raw["peers"], free_ports(d), strict=True):
        peer["address"] = f"tcp://127.0.0.1:{port}"
    if change is not None:
        change(raw)
    path.write_text(tomlkit.dumps(raw), encoding="utf-8")
    return load(path)


def command(*arguments):
    return [sys.executable, "-m", "thanos_peer", *map(str, arguments)]


def start_peer(topology: Topology, agent: int, out: Path, *options, prefix=(), **popen):
    """Start one peer; what it says goes to a file beside its results."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / f"said-{agent}.log").open("ab") as said:
        return subprocess.Popen(
            [*prefix, *command("start", "--id", agent, "--topology", topology.file, "--out", out, *options)],
            stdout=said,
            stderr=said,
            **popen,
        )


def said(out: Path, agent: int) -> str:
    file = out / f"said-{agent}.log"
    return file.read_text(encoding="utf-8") if file.exists() else ""


@contextlib.contextmanager
def ended_afterwards(*processes):
    """Whatever happens, no process is left behind."""
    try:
        yield
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


def wait_until(condition, what, seconds=PATIENCE):
    """Wait for a condition; say what did not come true if it does not."""
    until = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < until, f"not within {seconds} s: {what}"
        time.sleep(0.02)
    return value


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] != "Z"


def simulated(topology: Topology) -> AgentNetwork:
    """The same network in one process."""
    network = AgentNetwork(build(load(topology.file)))
    while not network.is_done:
        network.advance()
    return network


def assert_same_bits(out: Path, topology: Topology):
    """The peers' results are those of the simulated network, to the last bit."""
    outcome, network = load_outcome(out, topology), simulated(topology)
    assert set(outcome.rounds) == {network.k}
    assert outcome.X.tobytes() == network.X.tobytes()
    assert outcome.D.tobytes() == network.D.tobytes()
    assert np.isfinite(outcome.X).all()
