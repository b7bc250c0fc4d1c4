"""What a peer's loadings look like on the disk.

03.npz  X, the sparse X, and D of methods that track gradients, as they are; polar, the nearest X with orthonormal
        columns; support, where the sparse loadings are not zero; and as far as they are known features, mean,
        scale, fill (what a missing value became), explained_variance_ratio, and common, the mean of all X
03.csv  a row per feature: its name, its loadings x_1 to x_p, its sparse loadings s_1 to s_p
03.json the same run in numbers
"""

import contextlib
import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
from pydantic import Field, FiniteFloat

from thanos_peer.algorithm.stiefel import polar
from thanos_peer.block import Matrix
from thanos_peer.durable import whole_file
from thanos_peer.errors import DataFileError
from thanos_peer.json_files import Count, DamagedJSONError, read_json
from thanos_peer.loadings.findings import Findings
from thanos_peer.samples import named
from thanos_peer.samples.npy import load_arrays

# Largest entry: no result of a sound run comes near, and squares of larger ones may not be finite.
LARGEST_NUMBER = 1e100


def write_loadings(path: Path, X: Matrix, D: Matrix | None, sparse: Matrix, findings: Findings) -> None:
    """Write a peer's .npz and, beside it, its .csv; each is whole or not there."""
    arrays: dict[str, Any] = {"X": X, "sparse": sparse, "polar": polar(X), "support": sparse != 0}
    if D is not None:
        arrays["D"] = D
    if findings.features is not None:
        arrays["features"] = np.array(findings.features)
    for name in ("mean", "scale", "fill", "common", "explained_variance_ratio"):
        if (known := getattr(findings, name)) is not None:
            arrays[name] = known
    with whole_file(path.with_suffix(".csv"), is_private=True) as file, as_text(file) as text:
        _write_csv(text, X, sparse, findings.features)
    with whole_file(path, is_private=True) as file:
        np.savez(file, **arrays)


def write_facts(path: Path, facts: dict[str, Any]) -> None:
    """Write a peer's .json."""
    with whole_file(path, is_private=True) as file:
        file.write((json.dumps(facts, indent=2) + "\n").encode())


@dataclass(frozen=True)
class RunFacts:
    """What a summary of the network takes from a peer's .json."""

    round: Count
    eta: FiniteFloat
    seconds: FiniteFloat
    is_done: bool
    has_converged: bool | None
    ending: str = ""
    overall: Annotated[FiniteFloat, Field(gt=0)] | None = None
    rounds_by_phase: dict[str, Count] | None = None
    phases_cut_short: list[str] = field(default_factory=list)
    starts: Count | None = None


def read_facts(path: Path) -> RunFacts:
    """Read a peer's .json, which may come from another host.

    Raises:
        DataFileError: It is damaged, or none.
    """
    try:
        return read_json(path, RunFacts)
    except DamagedJSONError as error:
        raise DataFileError(f"{path} is not what a peer says of its run: {error}") from error


def read_matrices(path: Path, shape: tuple[int, int]) -> tuple[Matrix, Matrix, Matrix | None]:
    """Read X, the sparse X and, if it is there, D from a peer's .npz, which may come from another host.

    Raises:
        DataFileError: It is damaged, or none of this shape.
    """
    with named(str(path)):
        arrays = load_arrays(path)
        X, sparse, D = arrays.get("X"), arrays.get("sparse"), arrays.get("D")
        matrices = [X, sparse] if D is None else [X, sparse, D]
        if any(each is None or each.dtype != np.float64 or each.shape != shape for each in matrices):
            raise DataFileError(f"is no result of this topology: X, sparse and D must be float64 of shape {shape}")
        if not all(_are_sound(each) for each in matrices if each is not None):
            raise DataFileError("is no result of this topology: X, sparse and D must be finite, and below 1e100")
    assert X is not None, "checked"  # noqa: S101
    assert sparse is not None, "checked"  # noqa: S101
    return X, sparse, D


def _are_sound(numbers: Matrix) -> bool:
    """Whether they, and the sum of their squares, are finite."""
    return bool(np.isfinite(numbers).all() and np.abs(numbers).max(initial=0.0) < LARGEST_NUMBER)


@contextlib.contextmanager
def as_text(file: IO[bytes]) -> Iterator[io.TextIOWrapper]:
    """The same file for text; the caller closes it."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    yield text
    text.detach()


def _write_csv(file: io.TextIOWrapper, X: Matrix, sparse: Matrix, features: tuple[str, ...] | None) -> None:
    components = range(1, X.shape[1] + 1)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["feature", *(f"x_{j}" for j in components), *(f"s_{j}" for j in components)])
    for i, (row, sparse_row) in enumerate(zip(X, sparse, strict=True)):
        writer.writerow([i if features is None else features[i], *row.tolist(), *sparse_row.tolist()])
