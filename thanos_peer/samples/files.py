"""A data file of any format that can be read, by the end of its name."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from thanos_peer.block import Matrix
from thanos_peer.errors import DataFileError
from thanos_peer.samples.columns import Columns, Wanted
from thanos_peer.samples.delimited import open_delimited
from thanos_peer.samples.npy import open_npy, open_npz
from thanos_peer.samples.parquet import open_parquet
from thanos_peer.samples.table import Table

Opener: TypeAlias = Callable[[Path, Wanted], contextlib.AbstractContextManager[Table]]
FORMATS: dict[str, Opener] = {
    ".npy": open_npy,
    ".npz": open_npz,
    ".csv": open_delimited,
    ".tsv": open_delimited,
    ".txt": open_delimited,
    ".parquet": open_parquet,
}


# Bytes of a small table, at most: of all besides its numbers, and of each number.
LARGEST_HEAD, LONGEST_NUMBER = 2**20, 64
ALL = Columns()


@contextlib.contextmanager
def open_table(
    path: Path,
    *,
    n: int | None = None,
    columns: Columns = ALL,
    allows_missing: bool = False,
    largest: int | None = None,
) -> Iterator[Table]:
    """An open data file.

    Args:
        path: The file.
        n: How many features it must have; None for any number.
        columns: Which of its columns are features; the others may hold anything.
        allows_missing: Whether a value may be missing: it is NaN then.
        largest: How many bytes it may have; None for any number.

    Raises:
        DataFileError: It cannot be read or used; also while its chunks are read.
    """
    opener = FORMATS.get(path.suffix.lower())
    if opener is None:
        raise DataFileError(f"must be a file that ends in {', '.join(FORMATS)}")
    with contextlib.ExitStack() as stack:
        with _readable():
            there = path.stat()
            if not stat.S_ISREG(there.st_mode) and not stat.S_ISDIR(there.st_mode):
                raise DataFileError("cannot be read: it is no regular file")
            if largest is not None and there.st_size > largest:
                raise DataFileError(f"has {there.st_size:,} bytes; what it is to hold needs at most {largest:,}")
            table = stack.enter_context(opener(path, Wanted(n, columns, allows_missing)))
        yield replace(table, chunks=_guarded(table))


def read_rows(
    path: Path,
    *,
    n: int | None = None,
    m: int | None = None,
    columns: Columns = ALL,
    allows_missing: bool = False,
) -> Matrix:
    """All samples of a data file at once, (m, n).

    Args:
        path: The file.
        n: How many features it must have; None for any number.
        m: How many rows it must have; None for any number. No more than that are read.
        columns: Which of its columns are features.
        allows_missing: Whether a value may be missing: it is NaN then.
    """
    largest = None if n is None or m is None else LARGEST_HEAD + LONGEST_NUMBER * m * n
    with open_table(path, n=n, columns=columns, allows_missing=allows_missing, largest=largest) as table:
        if table.count is None:
            return np.concatenate(list(_at_most(table.chunks, m)))
        if m not in (None, table.count):
            raise DataFileError(f"has {table.count} rows; must have {m}")
        rows, filled = np.empty((table.count, table.columns)), 0
        for chunk in table.chunks:
            rows[filled : filled + len(chunk)] = chunk
            filled += len(chunk)
    return rows


def _at_most(chunks: Iterable[Matrix], m: int | None) -> Iterator[Matrix]:
    """The chunks of a table whose number of rows is known at its end only, as long as it may be the right one."""
    count = 0
    for chunk in chunks:
        count += len(chunk)
        if m is not None and count > m:
            raise DataFileError(f"has more than {m} rows; must have {m}")
        yield chunk
    if m not in (None, count):
        raise DataFileError(f"has {count} rows; must have {m}")


@contextlib.contextmanager
def named(whose: str) -> Iterator[None]:
    """Say whose file it is that something is wrong with."""
    try:
        yield
    except DataFileError as error:
        raise DataFileError(f"{whose} {error}") from error


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        # In a container it is not obvious which user a peer runs as.
        raise DataFileError(
            f"cannot be read by user {os.geteuid()}, group {os.getegid()}: {error.strerror}; let this user read "
            "it (chown, chmod)"
        ) from error
    except OSError as error:
        raise DataFileError(f"cannot be read: {error.strerror or error}") from error


def _guarded(table: Table) -> Iterator[Matrix]:
    """The chunks, as many rows as the file has announced; an error of reading is one of the file."""
    count = 0
    # This is around the reading only: what the caller does with a chunk has other errors.
    with _readable():
        for chunk in table.chunks:
            count += len(chunk)
            if table.count is not None and count > table.count:
                break
            yield chunk
    if table.count not in (None, count):
        raise DataFileError(f"does not hold the {table.count} samples that it announces")
