"""Peers as real processes, and topology files on disk for them."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import tomlkit
from networks import raw_topology

from thanos_peer.launch.ports import free_ports
from thanos_peer.loadings.findings import facts_of_loadings, findings_of
from thanos_peer.problem import build
from thanos_peer.simulate import AgentNetwork
from thanos_peer.storage.outcome import load_outcome
from thanos_peer.storage.peer_files import PeerFiles
from thanos_peer.topology import Topology, load
from thanos_peer.topology.editing import with_public_keys
from thanos_peer.topology.sections import is_local
from thanos_peer.transport.keys import make_keys, public_keys, secret_directory, write_secrets

PATIENCE = 120.0


def write_topology(path: Path, family="ring", d=4, *, change=None, has_keys=False, **draft) -> Topology:
    """A new topology file with free ports, changed as wanted; with keys, too, where others reach the peers."""
    raw = raw_topology(family, d, **({"max_rounds": 60, "tolerance": 0.0} | draft))
    for peer, port in zip(raw["peers"], free_ports(d), strict=True):
        peer["address"] = f"tcp://127.0.0.1:{port}"
    if change is not None:
        change(raw)
    path.write_text(tomlkit.dumps(raw), encoding="utf-8")
    topology = load(path)
    addresses = [
        address for peer in topology.peers for address in (peer.address, peer.bind) if address is not None
    ]
    if has_keys or (topology.content.unencrypted is None and not all(map(is_local, addresses))):
        return give_keys(topology)
    return topology


def exact(method: str, **algorithm):
    """A change of a topology: solve its problem by a method of sums, to the default tolerance."""

    def change(raw):
        raw["algorithm"] = {"method": method} | algorithm

    return change


def bytes_per_block(topology: Topology) -> int:
    """Of X and D as they are sent, without the frame around them."""
    return 2 * topology.problem.n * topology.problem.p * topology.itemsize


def own_name(name: str) -> str:
    """A name for a topology that no test beside has: a peer is asked for its status by its run and id."""
    return f"{name}-{os.getpid()}"


def give_keys(topology: Topology) -> Topology:
    """The same file with keys for all peers, their secrets beside it."""
    keys = make_keys(topology)
    write_secrets(secret_directory(topology.file), keys)
    return with_public_keys(topology, topology.file, public_keys(keys))


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


def environment_with(code: str, directory: Path) -> dict[str, str]:
    """An environment in which every Python runs some code first, which is put into a new directory."""
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(code, encoding="utf-8")
    paths = [str(directory), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


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
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):  # gone just now
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def simulated(topology: Topology) -> AgentNetwork:
    """The same network in one process."""
    network = AgentNetwork(build(load(topology.file)))
    while not network.is_done:
        network.advance()
    return network


def assert_same_bits(out: Path, topology: Topology):
    """The peers' results are those of the simulated network, to the last bit, and so is what they know of them."""
    outcome, network = load_outcome(out, topology), simulated(topology)
    assert set(outcome.rounds) == {network.k}
    assert outcome.X.tobytes() == network.X.tobytes()
    assert outcome.sparse.tobytes() == network.sparse.tobytes()
    paths = [agent.found.path for agent in network.agents]
    for known, there in zip(paths, outcome.paths, strict=True):
        assert known is there is None or known.tobytes() == there.tobytes()
    tracked = network.array("D")
    assert (outcome.D is None) == (tracked is None)
    assert tracked is None or outcome.D.tobytes() == tracked.tobytes()
    assert np.isfinite(outcome.X).all()
    for agent in network.agents:
        facts = json.loads(PeerFiles(out, topology, agent.id).facts.read_text(encoding="utf-8"))
        answer = agent.runner.answer()
        known = facts_of_loadings(answer.X, answer.sparse, findings_of(topology, agent, None))
        assert {name: facts[name] for name in known} == known
