"""The X of one peer over the rounds, appended to a file that somebody else may read as it grows.

A record is the round (int64), the step size (float64) and X (n x p float64), all little-endian.
"""

from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from thanos_peer.algorithm.thanos import AgentState


def record_type(n: int, p: int) -> np.dtype[Any]:
    """The layout of a record."""
    return np.dtype([("k", "<i8"), ("eta", "<f8"), ("X", "<f8", (n, p))])


class TrajectoryWriter:
    """Appends every `every`-th round."""

    def __init__(self, path: Path, *, every: int) -> None:
        self._every = every
        self._file = path.open("wb", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def append(self, state: AgentState) -> None:
        """Note a round, if it is one of those to be kept."""
        if state.k % self._every == 0:
            record = np.array((state.k, state.eta, state.X), dtype=record_type(*state.X.shape))
            self._file.write(record.tobytes())


class TrajectoryReader:
    """Reads what has been appended since it last looked."""

    def __init__(self, path: Path, *, n: int, p: int) -> None:
        self._path, self._type, self._offset = path, record_type(n, p), 0

    def read(self) -> NDArray[Any]:
        """The new whole records; none while there is no file."""
        if not self._path.exists():
            return np.empty(0, dtype=self._type)
        with self._path.open("rb") as file:
            file.seek(self._offset)
            raw = file.read()
        whole = len(raw) - len(raw) % self._type.itemsize
        self._offset += whole
        return np.frombuffer(raw[:whole], dtype=self._type)
