"""Parquet files, by row groups; needs the extra `parquet`."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from thanos_peer.block import Matrix
from thanos_peer.errors import DataFileError, printable
from thanos_peer.samples.names import check_names
from thanos_peer.samples.table import Table, check_shape, even_chunks, finite_samples, rows_per_chunk

LIBRARY = 64 * 2**20  # bytes that pyarrow takes itself
LONGEST_CAUSE = 300  # characters of what Arrow says


@contextlib.contextmanager
def open_parquet(path: Path, n: int | None) -> Iterator[Table]:
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
        features = check_names(schema.names)
        for field in schema:
            if not (pa.types.is_integer(field.type) or pa.types.is_floating(field.type)):
                # The type of a nested column has names in it.
                kind = printable(str(field.type)[:LONGEST_CAUSE])
                raise DataFileError(f"has the column {field.name!a} of type {kind}; all must be numbers")
        check_shape((source.metadata.num_rows, len(features)), n)
        parts = even_chunks(_parts(source, features, pa), len(features))
        yield Table(len(features), features, parts, source.metadata.num_rows, overhead=_overhead(source.metadata))


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


def _parts(source: Any, features: tuple[str, ...], pa: Any) -> Iterator[Matrix]:
    first = 0
    with _plain(pa):
        for batch in source.iter_batches(batch_size=rows_per_chunk(len(features)), use_threads=False):
            for name, column in zip(features, batch.columns, strict=True):
                if column.null_count:
                    row = first + column.is_null().index(True).as_py()
                    raise DataFileError(f"has a missing value in row {row}, column {name!a}")
            part = np.column_stack([column.to_numpy(zero_copy_only=False) for column in batch.columns])
            yield finite_samples(part, first=first, features=features)
            first += len(part)
