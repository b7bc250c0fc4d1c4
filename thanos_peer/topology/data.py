"""The samples of each peer: made from a seed, or read from its file. Rows are samples, columns features."""

from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

from thanos_peer.block import AgentId, Matrix
from thanos_peer.errors import DataFileError, Mistake
from thanos_peer.topology.model import Topology
from thanos_peer.topology.sections import SyntheticData


def synthetic_samples(data: SyntheticData, *, n: int, d: int) -> list[Matrix]:
    """For every peer its (m_i, n) samples; the m_i differ by at most one. Every host makes the same ones."""
    A = np.random.default_rng(data.seed).standard_normal((n, data.samples))
    if data.scale == "unit":
        A = A / np.linalg.norm(A, 2)
    return [np.ascontiguousarray(part.T) for part in np.array_split(A, d, axis=1)]


def read_samples(path: Path, *, n: int) -> Matrix:
    """The (m, n) samples in a .npy file, as float64.

    Raises:
        DataFileError: It is not readable, or not a finite numeric table with n columns.
    """
    if path.suffix != ".npy":
        raise DataFileError("must be a .npy file, as written by numpy.save")
    try:
        table = np.load(path, allow_pickle=False)
    except OSError as error:
        raise DataFileError(f"cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        raise DataFileError(f"is not a plain numeric .npy file: {error}") from error
    if not isinstance(table, np.ndarray) or table.dtype.kind not in "fiu":
        raise DataFileError("must hold one table of real numbers")
    if table.ndim != 2 or table.shape[1] != n or table.shape[0] < 1:
        raise DataFileError(f"has shape {table.shape}; must be (samples, {n}): a row per sample, n = {n} features")
    if not np.isfinite(table).all():
        row, column = np.argwhere(~np.isfinite(table))[0]
        raise DataFileError(f"has {table[row, column]} in row {row}, column {column}; all entries must be finite")
    return np.asarray(table, dtype=np.float64)


def file_mistakes(topology: Topology, agents: Collection[AgentId] | None) -> Iterator[Mistake]:
    """What is wrong with the data files of some agents, or of all."""
    for index, peer in enumerate(topology.content.peers):
        if peer.data is None or (agents is not None and peer.id not in agents):
            continue
        path = topology.directory / peer.data
        try:
            read_samples(path, n=topology.problem.n)
        except DataFileError as error:
            yield Mistake(f"peers[{index}].data", f"{path} of peer {peer.id} {error}", peer.data)


def samples_of(topology: Topology) -> list[Matrix]:
    """The samples of every peer, in order of id: (m_i, n) each."""
    data, n = topology.problem.data, topology.problem.n
    if data.kind == "synthetic":
        return synthetic_samples(data, n=n, d=topology.d)
    return [read_samples(topology.directory / str(peer.data), n=n) for peer in topology.peers]
