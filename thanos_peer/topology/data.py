"""The samples of each peer: made from a seed, or read from its file. Rows are samples, columns features."""

import tokenize
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thanos_peer.block import AgentId, Matrix
from thanos_peer.errors import DataFileError, Mistake
from thanos_peer.topology.model import Topology
from thanos_peer.topology.sections import SyntheticData

NPY_MAGIC = b"\x93NUMPY"


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
    table = _map_file(path)
    if table.dtype.kind not in "fiu":
        raise DataFileError("must hold one table of real numbers")
    if table.ndim != 2 or table.shape[1] != n or table.shape[0] < 1:
        raise DataFileError(f"has shape {table.shape}; must be (samples, {n}): a row per sample, n = {n} features")
    with np.errstate(over="ignore"):
        samples = np.array(table, dtype=np.float64)
    if not np.isfinite(samples).all():
        row, column = np.argwhere(~np.isfinite(samples))[0]
        raise DataFileError(f"has {table[row, column]} in row {row}, column {column}; all entries must be finite")
    return samples


def _map_file(path: Path) -> NDArray[Any]:
    """The table in a .npy file, not yet read into memory: a header may claim any size."""
    try:
        with path.open("rb") as file:
            if file.read(len(NPY_MAGIC)) != NPY_MAGIC:
                raise DataFileError("is not a plain numeric .npy file: it does not begin like one")
        table: NDArray[Any] = np.load(path, allow_pickle=False, mmap_mode="r")
    except OSError as error:
        raise DataFileError(f"cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError, SyntaxError, tokenize.TokenError, OverflowError, TypeError) as error:
        raise DataFileError(f"is not a plain numeric .npy file: {error}") from error
    return table


def file_mistakes(
    directory: Path, n: int, peers: Sequence[Mapping[str, Any]], agents: Collection[AgentId] | None
) -> Iterator[Mistake]:
    """What is wrong with the data files of some agents, or of all; `peers` as `checks` takes them."""
    for index, peer in enumerate(peers):
        agent, named = peer.get("id"), peer.get("data")
        if named is None or (agents is not None and agent not in agents):
            continue
        path = directory / named
        try:
            read_samples(path, n=n)
        except DataFileError as error:
            yield Mistake(f"peers[{index}].data", f"{path} of peer {agent} {error}", named)


def samples_of(topology: Topology, agents: Iterable[AgentId]) -> list[Matrix]:
    """The samples of some peers, (m_i, n) each."""
    data, n = topology.problem.data, topology.problem.n
    if data.kind == "synthetic":
        everybody = synthetic_samples(data, n=n, d=topology.d)
        return [everybody[i] for i in agents]
    return [read_samples(topology.directory / str(topology.peers[i].data), n=n) for i in agents]
