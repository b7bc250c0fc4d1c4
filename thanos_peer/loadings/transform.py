"""Loadings applied to a file of new samples, chunk by chunk."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from numpy.lib import format as npy_format

from thanos_peer.block import Matrix
from thanos_peer.durable import whole_file
from thanos_peer.errors import ConfigError, DataFileError
from thanos_peer.loadings.files import as_text
from thanos_peer.loadings.result import Kind, Result
from thanos_peer.samples import check_same_features, named, open_table

OUTPUTS = (".csv", ".npy")


def transform_file(result: Result, samples: Path, output: Path, *, kind: Kind = "dense", whose: str = "") -> int:
    """Write the components of all samples in a file, a row per sample; returns how many there were.

    Args:
        result: The loadings.
        samples: A data file of any format, with the features that the loadings are for.
        output: A .csv or .npy file, replaced when all is done.
        kind: Which loadings to apply.
        whose: Where the loadings are from, for errors.

    Raises:
        ConfigError: The output has another ending, or cannot be written.
        DataFileError: The samples cannot be read, or have other features.
    """
    if output.suffix.lower() not in OUTPUTS:
        raise ConfigError(f"{output}: must end in {' or '.join(OUTPUTS)}")
    scores = _scores(result, samples, kind, whose)
    p = len(result.components_)
    write = _write_csv if output.suffix.lower() == ".csv" else _write_npy
    try:
        with whole_file(output) as file:
            return write(file, scores, p)
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error.strerror or error}") from error


def _scores(result: Result, path: Path, kind: Kind, whose: str) -> Iterator[Matrix]:
    features = result.feature_names_in_
    fills = result.fill_ is not None
    with named(str(path)), open_table(path, columns=result.columns, allows_missing=fills) as table:
        check_same_features(table.features, None if features is None else features.tolist(), as_in=whose)
        if table.columns != result.n_features_in_:
            raise DataFileError(f"has {table.columns} columns; must have {result.n_features_in_}, as in {whose}")
        for chunk in table.chunks:
            yield result.transform(chunk, kind)


def _write_csv(file: IO[bytes], scores: Iterator[Matrix], p: int) -> int:
    count = 0
    with as_text(file) as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([f"component_{j}" for j in range(1, p + 1)])
        for chunk in scores:
            writer.writerows(chunk.tolist())
            count += len(chunk)
    return count


def _write_npy(file: IO[bytes], scores: Iterator[Matrix], p: int) -> int:
    """numpy leaves room in a header for the first side to grow: it is written again when that is known."""
    count = 0
    _write_header(file, 0, p)
    start = file.tell()
    for chunk in scores:
        file.write(chunk.tobytes())
        count += len(chunk)
    file.seek(0)
    _write_header(file, count, p)
    assert file.tell() == start, "numpy leaves room for 21 digits"  # noqa: S101
    return count


def _write_header(file: IO[bytes], count: int, p: int) -> None:
    header = {"descr": "<f8", "fortran_order": False, "shape": (count, p)}
    npy_format.write_array_header_1_0(file, header)
