"""What a peer's loadings look like on the disk.

03.npz  X, the sparse X, and D of methods that track gradients, as they are; polar, the nearest X with orthonormal
        columns; support, where the sparse loadings are not zero; and as far as they are known features, mean,
        scale, fill (what a missing value became), explained_variance_ratio, and common, the mean of all X;
        and of a path over mu: path_mu, from the largest on, and path, the sparse loadings for each, (k, n, p)
03.csv  a row per feature: its name, its loadings x_1 to x_p, its sparse loadings s_1 to s_p
03.path.csv  of a path a row per mu: non-zeros, variance explained, objective, residual, whether it has converged,
        and whether it is the one that the loadings belong to
03.json the same run in numbers
"""

import contextlib
import csv
import io
import json
from collections.abc import Iterator, Sequence
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
from thanos_peer.preparation import Account, PathRow
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
    if findings.path is not None:
        arrays |= {"path": findings.path, "path_mu": np.array([row.mu for row in findings.account.path])}
        with whole_file(path.with_suffix(".path.csv"), is_private=True) as file, as_text(file) as text:
            _write_path(text, findings.account.path)
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
    choice: str = ""
    path: list[PathRow] = field(default_factory=list)
    plain_pca_explained_variance_ratio: list[FiniteFloat] | None = None

    @property
    def account(self) -> Account:
        """What helps to choose mu and p."""
        mu = next((row.mu for row in self.path if row.is_chosen), None)
        return Account(mu, tuple(self.path), self.choice, tuple(self.plain_pca_explained_variance_ratio or ()))


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


def read_path(path: Path, shape: tuple[int, int]) -> Matrix | None:
    """Read the answers of a path, (k, n, p), from a peer's .npz; None where there are none.

    Raises:
        DataFileError: They are damaged, or of another shape.
    """
    with named(str(path)):
        answers = load_arrays(path).get("path")
        if answers is None:
            return None
        if answers.dtype != np.float64 or answers.ndim != 3 or answers.shape[1:] != shape:
            raise DataFileError(f"is no result of this topology: path must be float64 of shape (k, *{shape})")
        if not _are_sound(answers):
            raise DataFileError("is no result of this topology: path must be finite, and below 1e100")
    return answers


def _are_sound(numbers: Matrix) -> bool:
    """Whether they, and the sum of their squares, are finite."""
    return bool(np.isfinite(numbers).all() and np.abs(numbers).max(initial=0.0) < LARGEST_NUMBER)


@contextlib.contextmanager
def as_text(file: IO[bytes]) -> Iterator[io.TextIOWrapper]:
    """The same file for text; the caller closes it."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    yield text
    text.detach()


def _write_path(file: io.TextIOWrapper, path: Sequence[PathRow]) -> None:
    components = range(1, len(path[0].nonzeros) + 1)
    writer = csv.writer(file, lineterminator="\n")
    names = ("mu", "nonzeros", *(f"nonzeros_{j}" for j in components))
    shares = ("explained", *(f"adjusted_{j}" for j in components))
    writer.writerow([*names, *shares, "objective", "residual", "has_converged", "is_chosen"])
    for row in path:
        counts, worth = (sum(row.nonzeros), *row.nonzeros), (row.explained, *row.adjusted)
        writer.writerow([row.mu, *counts, *worth, row.objective, row.residual, row.has_converged, row.is_chosen])


def _write_csv(file: io.TextIOWrapper, X: Matrix, sparse: Matrix, features: tuple[str, ...] | None) -> None:
    components = range(1, X.shape[1] + 1)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["feature", *(f"x_{j}" for j in components), *(f"s_{j}" for j in components)])
    for i, (row, sparse_row) in enumerate(zip(X, sparse, strict=True)):
        writer.writerow([i if features is None else features[i], *row.tolist(), *sparse_row.tolist()])
