"""The X of one peer over the rounds, appended to a file that another process may read as it grows.

A record is the round (int64), the step size (float64), what all samples are divided by (float64; NaN for nothing)
and X (n x p float64), all little-endian.
"""

import errno
import os
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from thanos_peer.agent import Agent
from thanos_peer.durable import open_private
from thanos_peer.errors import CheckpointError


def record_type(n: int, p: int) -> np.dtype[Any]:
    """The layout of a record."""
    return np.dtype([("k", "<i8"), ("eta", "<f8"), ("overall", "<f8"), ("X", "<f8", (n, p))])


class TrajectoryWriter:
    """Appends every `every`-th round, each once: rounds come again after a start, or by a later phase."""

    def __init__(self, path: Path, *, every: int, n: int, p: int) -> None:
        self._path, self._every = path, every
        self._last = self._latest = -1
        try:
            descriptor = open_private(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        except OSError as error:
            raise self._cannot_write(str(error.strerror)) from error
        self._file = os.fdopen(descriptor, "a+b", buffering=0)
        size = record_type(n, p).itemsize
        if whole := os.fstat(descriptor).st_size // size:
            last = os.pread(descriptor, size, (whole - 1) * size)
            self._last = int(np.frombuffer(last, dtype=record_type(n, p))["k"][0])
        self._file.truncate(whole * size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def append(self, agent: Agent) -> None:
        """Note a round of the main phase, if it is one of those to be kept."""
        k = agent.runner.main_round
        is_new, self._latest = k > self._last and k != self._latest, k
        if is_new and k % self._every == 0 and (answer := agent.runner.answer()) is not None:
            divisor = np.nan if agent.runner.overall is None else agent.runner.overall
            numbers = (k, answer.eta, divisor, answer.X)
            record = np.array(numbers, dtype=record_type(*answer.X.shape)).tobytes()
            try:
                written = self._file.write(record)
            except OSError as error:
                raise self._cannot_write(str(error.strerror)) from error
            # A disk that fills up takes a part of the record; the next life cuts that off.
            if written < len(record):
                raise self._cannot_write(os.strerror(errno.ENOSPC))

    def _cannot_write(self, why: str) -> CheckpointError:
        return CheckpointError(
            f"cannot write {self._path}: {why}; nothing is lost: mend it and start this peer again with the same "
            "command, the others wait"
        )


class TrajectoryReader:
    """Reads what has been appended since it last looked."""

    def __init__(self, path: Path, *, n: int, p: int) -> None:
        self._path, self._type, self._offset = path, record_type(n, p), 0

    def read(self) -> NDArray[Any]:
        """The new whole records; none while there is no file."""
        if not self._path.exists():
            return np.empty(0, dtype=self._type)
        with os.fdopen(open_private(self._path), "rb") as file:
            file.seek(self._offset)
            raw = file.read()
        whole = len(raw) - len(raw) % self._type.itemsize
        self._offset += whole
        return np.frombuffer(raw[:whole], dtype=self._type)
