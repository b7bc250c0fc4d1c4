"""Tables as numpy saves them: .npy, and one table in a .npz with the names of its features beside it.

Never with pickle. What a header claims is checked before memory is taken for it.
"""

import contextlib
import io
import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from thanos_peer.block import Matrix
from thanos_peer.durable import open_regular
from thanos_peer.errors import DataFileError
from thanos_peer.samples.columns import Picked, Wanted
from thanos_peer.samples.names import LONGEST_NAME
from thanos_peer.samples.table import Table, check_shape, checked_samples, even_chunks, rows_per_chunk

LONGEST_HEADER = 10_000
# Chunks that are read together where the columns lie one after another in a file.
SLAB_CHUNKS = 8
# Bytes of a table in a .npz, at most.
LARGEST_UNPACKED = 2**36
# Bytes of a table that is stored column by column, or of names, at most: these have to be read whole.
LARGEST_BY_COLUMNS = 2**28
# Bytes that one byte of a .npz may stand for, at most; deflate comes to 1032.
MOST_PACKED = 1100
MOST_ARRAYS = 32  # of a result
SAMPLES_NAMES, FEATURES_NAMES = ("X", "data"), ("features", "feature_names")


class Header(NamedTuple):
    """What a .npy file says of its table."""

    shape: tuple[int, ...]
    is_by_columns: bool
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Bytes of the table, a Python number: it may be any."""
        size = self.dtype.itemsize
        for side in self.shape:
            size *= side
        return size


@contextlib.contextmanager
def open_npy(path: Path, wanted: Wanted) -> Iterator[Table]:
    """The table in a .npy file. It is read, not mapped: mapped pages would count as this process's memory."""
    with path.open("rb", buffering=0) as file:
        with _plain(".npy"):
            header = read_header(file)
            _check_header(header, wanted)
        offset = file.tell()
        if path.stat().st_size < offset + header.size:
            raise DataFileError("is not a plain numeric .npy file: it ends early")
        parts = _parts_by_columns(file, header, offset) if header.is_by_columns else _parts_by_rows(file, header)
        picked = wanted.picked(None, header.shape[1])
        samples = _samples(parts, picked, allows_missing=wanted.allows_missing)
        yield Table(picked.count, None, samples, header.shape[0])


@contextlib.contextmanager
def open_npz(path: Path, wanted: Wanted) -> Iterator[Table]:
    """The one table in a .npz file, or the one named X or data; names from `features` or `feature_names`."""
    with contextlib.ExitStack() as stack:
        with _plain(".npz"):
            archive = stack.enter_context(zipfile.ZipFile(path))
            file, header = _open_member(stack, archive, _samples_member(archive))
            _check_header(header, wanted)
        if header.size > LARGEST_UNPACKED:
            raise DataFileError(
                f"claims a table of {header.size:,} bytes; at most {LARGEST_UNPACKED:,} are unpacked"
            )
        with _plain(".npz"):
            picked = wanted.picked(_features_of(archive, header.shape[1]), header.shape[1])
        parts = _unpacked_whole(file, header) if header.is_by_columns else _parts_by_rows(file, header)
        samples = _samples(parts, picked, kind=".npz", allows_missing=wanted.allows_missing)
        if picked.places is not None:
            samples = even_chunks(samples, picked.count)
        yield Table(picked.count, picked.features, samples, header.shape[0])


def read_header(file: IO[bytes]) -> Header:
    """The header of a table, which comes first in its file.

    Raises:
        ValueError: It is none, or too long. (Damaged ones may raise what `_plain` lists.)
    """
    version = npy_format.read_magic(file)  # type: ignore[no-untyped-call, unused-ignore]
    readers = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"version {version} of the format is not for numbers")
    length = file.read(2 if version == (1, 0) else 4)
    if int.from_bytes(length, "little") > LONGEST_HEADER:
        raise ValueError("its header is too long")
    header = file.read(int.from_bytes(length, "little"))
    try:
        return Header(*readers[version](io.BytesIO(length + header)))
    except (LookupError, MemoryError) as error:
        # The type has no parts; or it is too deep for Python, which raises MemoryError then.
        raise ValueError("its header makes no sense") from error


def _check_header(header: Header, wanted: Wanted) -> None:
    if header.dtype.hasobject:
        raise ValueError("it holds Python objects")
    if header.dtype.kind not in "fiu":
        raise DataFileError("must hold one table of real numbers")
    check_shape(header.shape, wanted.n if wanted.columns.are_all else None)


@contextlib.contextmanager
def _plain(kind: str) -> Iterator[None]:
    """Errors of numpy and zipfile about a damaged file, in our words."""
    try:
        yield
    except (
        *(ValueError, EOFError, SyntaxError, tokenize.TokenError, OverflowError, TypeError),
        *(zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError),
    ) as error:
        raise DataFileError(f"is not a plain numeric {kind} file: {' '.join(str(error).split())}") from error


def _samples(
    parts: Iterator[NDArray[Any]], picked: Picked, kind: str = ".npy", *, allows_missing: bool
) -> Iterator[Matrix]:
    first = 0
    with _plain(kind):
        for part in parts:
            yield checked_samples(
                part if picked.places is None else part[:, picked.places],
                first=first,
                features=picked.features,
                places=picked.places,
                allows_missing=allows_missing,
            )
            first += len(part)
            # A view may keep all that it was taken from, while as much again is read.
            del part


def _read(file: IO[bytes], size: int) -> bytes:
    """So many bytes, or ValueError."""
    pieces = []
    while size:
        piece = file.read(size)
        if not piece:
            raise ValueError("it ends early")
        pieces.append(piece)
        size -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _parts_by_rows(file: IO[bytes], header: Header) -> Iterator[NDArray[Any]]:
    m, n = header.shape
    step = rows_per_chunk(n)
    for first in range(0, m, step):
        count = min(step, m - first)
        yield np.frombuffer(_read(file, count * n * header.dtype.itemsize), header.dtype).reshape(count, n)
    # At the end, a .npz is compared with its checksum.
    file.read(1)


def _parts_by_columns(file: IO[bytes], header: Header, offset: int) -> Iterator[NDArray[Any]]:
    """Rows of a table that lies column by column: of each column a piece, then those of the next rows."""
    m, n = header.shape
    step, itemsize = rows_per_chunk(n), header.dtype.itemsize
    for first in range(0, m, SLAB_CHUNKS * step):
        count = min(SLAB_CHUNKS * step, m - first)
        slab = np.empty((n, count), header.dtype)
        for j in range(n):
            file.seek(offset + (j * m + first) * itemsize)
            slab[j] = np.frombuffer(_read(file, count * itemsize), header.dtype)
        yield from (slab[:, start : start + step].T for start in range(0, count, step))
        del slab  # before the next is made


def _unpacked_whole(file: IO[bytes], header: Header) -> Iterator[NDArray[Any]]:
    if header.size > LARGEST_BY_COLUMNS:
        raise DataFileError(
            f"holds a table column by column, of more than {LARGEST_BY_COLUMNS // 2**20} MiB; save it row by row "
            "(numpy.ascontiguousarray) or as .npy"
        )
    m, n = header.shape
    table = np.frombuffer(_read(file, header.size), header.dtype).reshape(n, m).T
    yield from (table[start : start + rows_per_chunk(n)] for start in range(0, m, rows_per_chunk(n)))


def _samples_member(archive: zipfile.ZipFile) -> str:
    names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    tables = [name for name in names if name not in FEATURES_NAMES]
    chosen = [name for name in SAMPLES_NAMES if name in tables] or tables
    if len(chosen) != 1:
        raise DataFileError(f"holds {len(tables)} arrays; must hold one, or one named X or data with the samples")
    return chosen[0]


def _open_member(stack: contextlib.ExitStack, archive: zipfile.ZipFile, name: str) -> tuple[IO[bytes], Header]:
    """An array in a .npz that may well hold what its header claims."""
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise ValueError("it is compressed as numpy does not")
    file = stack.enter_context(archive.open(info))
    header = read_header(file)
    if header.size > MOST_PACKED * Path(str(archive.filename)).stat().st_size:
        raise ValueError(f"it ends early: it claims {header.size:,} bytes, and cannot hold them")
    return file, header


def _features_of(archive: zipfile.ZipFile, columns: int) -> tuple[str, ...] | None:
    there = [name for name in FEATURES_NAMES if f"{name}.npy" in archive.namelist()]
    if not there:
        return None
    with contextlib.ExitStack() as stack:
        file, header = _open_member(stack, archive, there[0])
        is_short = header.dtype.kind == "U" and header.dtype.itemsize <= 4 * LONGEST_NAME
        if header.shape != (columns,) or not is_short or header.dtype.itemsize == 0:
            raise DataFileError(
                f"holds {there[0]} of shape {header.shape} and type {header.dtype}; must be {columns} strings of "
                f"at most {LONGEST_NAME} characters"
            )
        if header.size > LARGEST_BY_COLUMNS:
            raise DataFileError(f"holds {there[0]} of more than {LARGEST_BY_COLUMNS // 2**20} MiB")
        return tuple(np.frombuffer(_read(file, header.size), header.dtype).tolist())


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of a .npz file that a peer has written: a result, not samples.

    It is not compressed, so no array can be larger than the file, whatever a header claims.

    Raises:
        DataFileError: It is none.
    """
    try:
        with _plain(".npz"), open_regular(path) as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if len(members) > MOST_ARRAYS or any(info.compress_type != zipfile.ZIP_STORED for info in members):
                raise ValueError(f"a result has at most {MOST_ARRAYS} arrays, and is not compressed")
            largest = os.fstat(file.fileno()).st_size
            return {info.filename.removesuffix(".npy"): _read_array(archive, info, largest) for info in members}
    except OSError as error:
        raise DataFileError(f"cannot be read: {error.strerror or error}") from error


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, largest: int) -> NDArray[Any]:
    with archive.open(info) as file:
        header = read_header(file)
        if header.dtype.hasobject:
            raise ValueError("it holds Python objects")
        if not 0 < header.size <= largest:
            raise ValueError(f"it claims an array of {header.size:,} bytes, and cannot hold it")
        content = _read(file, header.size)
        # At the end, it is compared with its checksum.
        file.read(1)
    array = np.array(np.frombuffer(content, header.dtype))
    return array.reshape(header.shape, order="F" if header.is_by_columns else "C")
