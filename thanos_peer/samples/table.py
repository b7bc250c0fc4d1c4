"""An open data file: how many features it has, what they are called, and its samples chunk by chunk.

All formats give chunks of the same numbers of rows. So what is summed over them has the same bits, whatever the
format.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thanos_peer.block import Matrix
from thanos_peer.errors import DataFileError

LARGEST_SIDE = 10**7  # of a matrix
MOST_EXTRA = 8  # names in one message
CHUNK_ROWS = 2**14
# What to do about a missing value.
MEND = 'fill it in or leave the row out; for samples of a run, missing = "mean" fills it in'
CHUNK_ENTRIES = 2**20  # 8 MiB


@dataclass(frozen=True)
class Table:
    """Samples that are read as they are asked for, once.

    Attributes:
        columns: How many features there are.
        features: What they are called, where the file says so.
        chunks: The samples, (rows, columns) each, all finite, or NaN where a value is missing and that is allowed;
            reading may raise DataFileError.
        count: How many samples there are, where the file says so.
        overhead: Bytes that reading takes besides the chunks.
    """

    columns: int
    features: tuple[str, ...] | None
    chunks: Iterator[Matrix]
    count: int | None = None
    overhead: int = 0


def rows_per_chunk(columns: int) -> int:
    """How many samples make a chunk."""
    return max(1, min(CHUNK_ROWS, CHUNK_ENTRIES // columns))


def check_shape(shape: Sequence[int], n: int | None) -> None:
    """Refuse what is no table with a row per sample and, if that is known, n columns."""
    is_table = len(shape) == 2 and shape[0] >= 1 and 1 <= shape[1] <= LARGEST_SIDE
    if not is_table or n not in (None, shape[1]):
        asked = "features): a row per sample" if n is None else f"{n}): a row per sample, n = {n} features"
        raise DataFileError(f"has shape {tuple(shape)}; must be (samples, {asked}")


def check_columns(columns: int, n: int | None, extra: Sequence[str] = ()) -> None:
    """Refuse another number of columns than n, if that is known; `extra` are those picked of more."""
    if columns > LARGEST_SIDE or n not in (None, columns):
        asked = f"at most {LARGEST_SIDE:,}" if n is None else f"n = {n}"
        found, hint = f"{columns} columns", ""
        if extra:
            found, hint = (
                f"{columns} columns that are not left out",
                f": {', '.join(map(ascii, extra[:MOST_EXTRA]))}",
            )
            hint += ", ..." if len(extra) > MOST_EXTRA else ""
        elif columns == 1:
            found, hint = "1 column", "; separate fields by tabs, semicolons, bars or commas"
        raise DataFileError(f"has {found}; must have {asked}, one per feature{hint}")


def checked_samples(
    part: NDArray[Any],
    *,
    first: int,
    features: Sequence[str] | None = None,
    places: Sequence[int] | None = None,
    allows_missing: bool = False,
) -> Matrix:
    """Some rows of a table as float64, finite or, where a value may be missing, NaN with always the same bits.

    Args:
        part: The rows.
        first: The number of the first of them in the file, from 0.
        features: What their columns are called.
        places: Where these columns stand in the file; None for one after the other.
        allows_missing: Whether NaN is allowed.

    Raises:
        DataFileError: An entry is another.
    """
    with np.errstate(over="ignore"):
        samples = np.array(part, dtype=np.float64, order="C")
    is_sound = np.isfinite(samples)
    if is_sound.all():
        return samples
    if allows_missing:
        is_missing = np.isnan(samples)
        samples[is_missing] = np.nan
        is_sound |= is_missing
    if not is_sound.all():
        row, column = np.argwhere(~is_sound)[0]
        name = "" if features is None else f" {features[column]!a}"
        place = column if places is None else places[column]
        raise DataFileError(
            f"has {part[row, column]} in row {first + row}, column {place}{name}; all entries must be finite"
        )
    return samples


def even_chunks(parts: Iterable[Matrix], columns: int) -> Iterator[Matrix]:
    """The same rows in chunks of the usual size."""
    step = rows_per_chunk(columns)
    waiting: list[Matrix] = []
    count = 0
    for part in parts:
        waiting.append(part)
        count += len(part)
        if count >= step:
            rows = np.concatenate(waiting)
            whole = count - count % step
            yield from (rows[start : start + step] for start in range(0, whole, step))
            waiting, count = [rows[whole:]], count - whole
    if count:
        yield np.concatenate(waiting)
