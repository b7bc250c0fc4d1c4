"""The samples of each peer: made from a seed, or read from its file. Rows are samples, columns features."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from thanos_peer.algorithm.methods import METHODS
from thanos_peer.block import AgentId, Matrix
from thanos_peer.errors import DataFileError, Mistake
from thanos_peer.samples import (
    Incomplete,
    Moments,
    check_same_features,
    named,
    open_table,
    read_moments,
    read_rows,
)
from thanos_peer.samples.columns import Wanted
from thanos_peer.topology.model import Topology
from thanos_peer.topology.sections import SyntheticData

# Largest entry of X'X - I, for columns that count as orthonormal.
ORTHONORMAL = 1e-8


def synthetic_samples(data: SyntheticData, *, n: int, d: int) -> list[Matrix]:
    """For every peer its (m_i, n) samples; the m_i differ by at most one. Every host makes the same ones."""
    A = np.random.default_rng(data.seed).standard_normal((n, data.samples))
    if data.scale == "unit":
        A = A / np.linalg.norm(A, 2)
    return [np.ascontiguousarray(part.T) for part in np.array_split(A, d, axis=1)]


def file_mistakes(
    directory: Path,
    wanted: Wanted,
    peers: Sequence[Mapping[str, Any]],
    agents: Collection[AgentId | None],
    own_data: Mapping[AgentId, Path],
) -> Iterator[Mistake]:
    """What is wrong with the data files of some agents; `peers` as `checks` takes them."""
    first = _Named(None, "")
    for index, peer in enumerate(peers):
        agent, value = peer.get("id"), peer.get("data")
        own = None if agent is None else own_data.get(agent)
        if agent not in agents or (own is None and value is None):
            continue
        path = own or directory / str(value)
        try:
            features = _features_of_sound(path, wanted, peer.get("samples"), first)
        except DataFileError as error:
            key = f"peers[{index}].data" if own is None else "--data"
            yield Mistake(key, f"{path} of peer {agent} {error}", value if own is None else str(own))
            continue
        if first.features is None:
            first = _Named(features, f"{path} of peer {agent}")


class _Named(NamedTuple):
    """What features are called in some file."""

    features: tuple[str, ...] | None
    whose: str


def _features_of_sound(path: Path, wanted: Wanted, samples: int | None, first: _Named) -> tuple[str, ...] | None:
    """The names in a file that can be used; it is read to its end, and nothing else is kept of it."""
    how: dict[str, Any] = {"columns": wanted.columns, "allows_missing": wanted.allows_missing}
    # With other names at hand, a column too many or too few can be named.
    if first.features is not None:
        with open_table(path, **how) as table:
            check_same_features(table.features, first.features, as_in=first.whose)
    with open_table(path, n=wanted.n, **how) as table:
        count = sum(len(chunk) for chunk in table.chunks)
    if samples not in (None, count):
        raise DataFileError(f"has {count} samples; samples = {samples} of this peer says another number")
    return table.features


def samples_of(topology: Topology, agents: Iterable[AgentId]) -> list[Matrix]:
    """The samples of some peers, (m_i, n) each; NaN where a value is missing."""
    data, n = topology.problem.data, topology.problem.n
    if data.kind == "synthetic":
        parts = synthetic_samples(data, n=n, d=topology.d)
        return [parts[i] for i in agents]
    return [_samples_in_file(topology, i) for i in agents]


def moments_of(topology: Topology, agent: AgentId) -> Moments | Incomplete:
    """What the file of a peer amounts to."""
    path = topology.data_file(agent)
    with named(f"{path} of peer {agent}"):
        return read_moments(
            path,
            n=topology.problem.n,
            keeps_rows=METHODS[topology.method].needs_samples,
            columns=topology.columns,
            allows_missing=topology.problem.data.fills,
        )


def read_start(path: Path, *, n: int, p: int) -> Matrix:
    """A point of the manifold, (n, p), in a file.

    Raises:
        DataFileError: It is not readable, has another shape, or its columns are not orthonormal.
    """
    with named(f"{path}, the start,"):
        X = read_rows(path, n=p, m=n)
        if float(np.abs(X.T @ X - np.eye(p)).max()) > ORTHONORMAL:
            raise DataFileError("has columns that are not orthonormal")
        return X


def features_of(topology: Topology, agent: AgentId) -> tuple[str, ...] | None:
    """What the features are called in a peer's data file; None where it does not say."""
    if topology.problem.data.kind == "synthetic":
        return None
    path = topology.data_file(agent)
    with (
        named(f"{path} of peer {agent}"),
        open_table(path, n=topology.problem.n, columns=topology.columns) as table,
    ):
        return table.features


def _samples_in_file(topology: Topology, agent: AgentId) -> Matrix:
    path = topology.data_file(agent)
    with named(f"{path} of peer {agent}"):
        return read_rows(
            path, n=topology.problem.n, columns=topology.columns, allows_missing=topology.problem.data.fills
        )
