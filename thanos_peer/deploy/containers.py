"""A topology whose peers are containers: their addresses, their files, and what they may use."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

import tomlkit

from thanos_peer import __version__
from thanos_peer.algorithm.methods import METHODS
from thanos_peer.block import AgentId
from thanos_peer.deploy.enclosures import DIRECTORY
from thanos_peer.errors import ConfigError
from thanos_peer.samples import named, open_table
from thanos_peer.samples.table import CHUNK_ENTRIES, Table
from thanos_peer.topology import Topology
from thanos_peer.topology.editing import rewritten, tables_of
from thanos_peer.transport.keys import KeyPair, credentials_of, make_keys

IMAGE = f"thanos-peer:{__version__}"
IMAGE_USER = 10001  # the image's own
PORT = 17000
TOPOLOGY = "/network/topology.toml"
HEALTH = ("python", "-m", "thanos_peer.peer.health")
# Copies of the Gram matrix, or of the samples, while it is made, moved and scaled, and its norm is found.
COPIES = 8
# The same of the sums over pairs of features, where values may be missing.
COPIES_WITH_GAPS = 14
# MiB: Python, numpy and ZeroMQ take 40; and 32 MiB of blocks are kept, written, and repeated.
LEAST_MEMORY = 192


@dataclass(frozen=True)
class Limits:
    """What a container may use at most."""

    memory: int  # MiB
    cpus: float


def relocated(topology: Topology, file: Path, host_of: Callable[[AgentId], str]) -> Topology:
    """The topology in a new file, with every peer in a container: other addresses and paths, the same run.

    A start in a file must lie in DIRECTORY beside it already.
    """

    def move(document: tomlkit.TOMLDocument) -> None:
        for peer in tables_of(document):
            agent = int(peer["id"])
            peer["address"] = f"tcp://{host_of(agent)}:{PORT}"
            peer["bind"] = f"tcp://0.0.0.0:{PORT}"
            if peer.get("data") is not None:
                peer["data"] = data_path(agent, str(peer["data"]))
        start = topology.algorithm.start
        if start.kind == "file":
            document["algorithm"]["start"]["path"] = f"{DIRECTORY}/start{PurePath(start.path).suffix}"

    return rewritten(topology, file, move)


def secrets_of(topology: Topology) -> dict[AgentId, KeyPair]:
    """A pair for every peer: new ones, or those beside the topology file if it has public keys.

    Raises:
        ConfigError: It has, but a secret is not there, or is another peer's.
    """
    if not topology.has_keys:
        return make_keys(topology)
    found = [credentials_of(topology, i, None) for i in range(topology.d)]
    return {one.agent: one.pair for one in found if one is not None}


def data_path(agent: AgentId, name: str) -> str:
    """Where a container finds the data of its peer; the ending says the format."""
    return f"/data/{agent}{PurePath(name).suffix}"


def memory_of(topology: Topology) -> int:
    """MiB that are plenty for any peer of a topology.

    Raises:
        ConfigError: Unknown: a method, or an objective of the user's own, holds all samples, and a file is
            not here.
    """
    problem, data = topology.problem, topology.problem.data
    numbers, overhead = 64 * problem.n * problem.p * (2 + max(map(len, topology.graph.neighbors))), 0
    # Every peer makes all samples, and their SVD.
    if data.kind == "synthetic":
        numbers += 4 * problem.n * data.samples + 2 * min(problem.n, data.samples) ** 2
    else:
        copies = COPIES_WITH_GAPS if data.fills else COPIES
        numbers += 4 * CHUNK_ENTRIES + copies * max(_held(topology, i) for i in range(topology.d))
        overhead = max(_overhead(topology, i) for i in range(topology.d))
    return LEAST_MEMORY + (8 * numbers + overhead) // 2**20


def parquet_peers(topology: Topology) -> list[AgentId]:
    """The peers whose image needs the extra `parquet`."""
    return [peer.id for peer in topology.peers if PurePath(str(peer.data)).suffix.lower() == ".parquet"]


def needs_parquet(topology: Topology) -> str | None:
    """What to say of an image without the extra `parquet`, if it would not do."""
    if not (peers := parquet_peers(topology)):
        return None
    return (
        f"the data of peer {', '.join(map(str, peers))} is in Parquet files, which the image reads only if it was "
        "built with the extra `parquet`: make image EXTRAS=parquet"
    )


def _held(topology: Topology, agent: AgentId) -> int:
    """How many numbers a peer keeps of its samples at most: samples, or the Gram matrix if that is smaller."""
    problem, file = topology.problem, _file_here(topology, agent)
    count = None if file is None else _samples_in(topology, file)
    if problem.objective is None and not METHODS[topology.method].needs_samples:
        return problem.n * (problem.n if count is None else min(problem.n, count))
    if count is None:
        raise ConfigError(
            f"the data of peer {agent} is not here, and {problem.objective or topology.method} holds all of it: "
            "say how much memory a peer may use with --memory"
        )
    return problem.n * count


def _file_here(topology: Topology, agent: AgentId) -> Path | None:
    """The data of a peer, if it is on this host."""
    data = topology.peers[agent].data
    file = None if data is None else topology.directory / data
    return file if file is not None and file.exists() else None


def _samples_in(topology: Topology, file: Path) -> int:
    """How many samples a file has; of text, how many it can have at most, for a number takes two characters.

    A missing one takes one.
    """
    each = 1 if topology.problem.data.fills else 2
    with _opened(topology, file) as table:
        return file.stat().st_size // (each * topology.problem.n) + 1 if table.count is None else table.count


@contextlib.contextmanager
def _opened(topology: Topology, file: Path) -> Iterator[Table]:
    n, fills = topology.problem.n, topology.problem.data.fills
    with named(str(file)), open_table(file, n=n, columns=topology.columns, allows_missing=fills) as table:
        yield table


def _overhead(topology: Topology, agent: AgentId) -> int:
    """Bytes that reading the samples of a peer takes besides what it keeps of them; 0 if they are not here."""
    file = _file_here(topology, agent)
    if file is None:
        return 0
    with _opened(topology, file) as table:
        return table.overhead
