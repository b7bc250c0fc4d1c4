"""Parquet files, by row groups; needs the extra `parquet`."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from thanos_peer.block import Matrix
from thanos_peer.errors import DataFileError, printable
from thanos_peer.samples.columns import Picked, Wanted
from thanos_peer.samples.table import MEND, Table, check_shape, checked_samples, even_chunks, rows_per_chunk

LIBRARY = 64 * 2**20  # bytes that pyarrow takes itself
LONGEST_CAUSE = 300  # characters of what Arrow says


@contextlib.contextmanager
def open_parquet(path: Path, wanted: Wanted) -> Iterator[Table]:
    """The table in a Parquet file, with the names of its columns."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise DataFileError(
            "needs the extra `parquet`: pip install '.[parquet]' in a checkout of thanos-peer"
        ) from error
    with path.open("rb") as file:
        with _plain(pa):
            source = parquet.ParquetFile(file)
            schema = source.schema_arrow
        picked = wanted.picked(schema.names, len(schema.names))
        for field in map(schema.field, range(picked.count) if picked.places is None else picked.places):
            if not (pa.types.is_integer(field.type) or pa.types.is_floating(field.type)):
                # The type of a nested column has names in it.
                kind = printable(str(field.type)[:LONGEST_CAUSE])
                raise DataFileError(f"has the column {field.name!a} of type {kind}; all must be numbers")
        check_shape((source.metadata.num_rows, picked.count), wanted.n)
        parts = even_chunks(_parts(source, picked, pa, allows_missing=wanted.allows_missing), picked.count)
        count = source.metadata.num_rows
        yield Table(picked.count, picked.features, parts, count, overhead=_overhead(source.metadata))


@contextlib.contextmanager
def _plain(pa: Any) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, ValueError, OSError) as error:  # Arrow's error for damaged pages
        cause = printable(" ".join(str(error).split())[:LONGEST_CAUSE])
        raise DataFileError(f"is not a plain Parquet file: {cause}") from error


def _overhead(metadata: Any) -> int:
    """What pyarrow takes at most: a row group at a time, decompressed, and what it makes of it meanwhile."""
    groups = (metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    return LIBRARY + 3 * max(groups, default=0)


def _parts(source: Any, picked: Picked, pa: Any, *, allows_missing: bool) -> Iterator[Matrix]:
    features, first = picked.features or (), 0
    with _plain(pa):
        for batch in source.iter_batches(
            batch_size=rows_per_chunk(len(features)),
            columns=None if picked.places is None else list(features),
            use_threads=False,
        ):
            # Arrow keeps the order of the file.
            columns = [batch.column(batch.schema.get_field_index(name)) for name in features]
            for name, column in zip(features, columns, strict=True):
                if column.null_count and not allows_missing:
                    row = first + column.is_null().index(True).as_py()
                    raise DataFileError(f"has a missing value in row {row}, column {name!a}; {MEND}")
            part = np.column_stack([column.to_numpy(zero_copy_only=False) for column in columns])
            yield checked_samples(
                part, first=first, features=features, places=picked.places, allows_missing=allows_missing
            )
            first += len(part)
