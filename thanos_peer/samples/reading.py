"""From a file, or from samples in memory, to what they amount to."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thanos_peer.errors import DataFileError
from thanos_peer.samples.columns import Columns
from thanos_peer.samples.files import ALL, open_table
from thanos_peer.samples.gaps import GatheredWithGaps, Incomplete
from thanos_peer.samples.moments import Gathered, Moments
from thanos_peer.samples.table import check_shape, checked_samples, rows_per_chunk


def read_moments(
    path: Path,
    *,
    n: int | None = None,
    keeps_rows: bool = False,
    columns: Columns = ALL,
    allows_missing: bool = False,
) -> Moments | Incomplete:
    """Read a data file of any format, chunk by chunk.

    The same samples give the same bits, whatever the format and whatever other columns a file has.

    Args:
        path: The file.
        n: How many features it must have; None for any number.
        keeps_rows: Whether to keep all samples, however many.
        columns: Which of its columns are features.
        allows_missing: Whether a value may be missing.

    Raises:
        DataFileError: It cannot be read or used; the message says what is wrong, not whose file it is.
    """
    with open_table(path, n=n, columns=columns, allows_missing=allows_missing) as table:
        gathered = _gatherer(table.columns, keeps_rows=keeps_rows, allows_missing=allows_missing)
        for chunk in table.chunks:
            gathered.add(chunk)
    return gathered.moments(table.features)


def moments_of_rows(
    rows: NDArray[Any],
    features: tuple[str, ...] | None = None,
    *,
    n: int | None = None,
    keeps_rows: bool = False,
    allows_missing: bool = False,
) -> Moments | Incomplete:
    """What samples in memory amount to, with the bits of the same samples in a file; they are copied.

    Args:
        rows: The samples, (m, n).
        features: What the columns are called.
        n: How many there must be; None for any number.
        keeps_rows: Whether to keep all samples, however many.
        allows_missing: Whether a value may be missing: NaN.

    Raises:
        DataFileError: They are no table of finite numbers, or have another number of columns than n.
    """
    check_shape(rows.shape, n)
    if rows.dtype.kind not in "biuf":
        raise DataFileError(f"has entries of type {rows.dtype}; must be real numbers")
    count, columns = rows.shape
    gathered = _gatherer(columns, keeps_rows=keeps_rows, allows_missing=allows_missing)
    for start in range(0, count, rows_per_chunk(columns)):
        part = rows[start : start + rows_per_chunk(columns)]
        gathered.add(checked_samples(part, first=start, features=features, allows_missing=allows_missing))
    return gathered.moments(features)


def unmasked(samples: Any, *, allows_missing: bool) -> Any:
    """Samples as they are, but of a masked array the plain one, with NaN where it is masked.

    Raises:
        DataFileError: An entry is masked, and no value may be missing.
    """
    # A list of masked rows would lose its masks.
    if isinstance(samples, list | tuple) and any(isinstance(row, np.ma.MaskedArray) for row in samples):
        samples = np.ma.stack(samples)
    if not isinstance(samples, np.ma.MaskedArray):
        return samples
    masked = np.argwhere(np.ma.getmaskarray(samples))
    if not len(masked):
        return samples.data
    if not allows_missing:
        raise DataFileError(
            f"has {len(masked)} masked entries, the first at {masked[0].tolist()}; fill them in, leave their rows "
            'out, or set missing = "mean"'
        )
    return np.ma.filled(samples.astype(np.float64), np.nan)


def _gatherer(columns: int, *, keeps_rows: bool, allows_missing: bool) -> Gathered | GatheredWithGaps:
    return (GatheredWithGaps if allows_missing else Gathered)(columns, keeps_rows=keeps_rows)
