"""What a peer's samples amount to: all that PCA needs of them, gathered in bounded memory."""

import hashlib
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thanos_peer.block import Matrix
from thanos_peer.errors import DataFileError
from thanos_peer.samples.names import name_of


class Spread(NamedTuple):
    """Samples moved and scaled, in whichever form is smaller; the other is None.

    Attributes:
        A: A column per sample, (n, m).
        gram: AA', (n, n).
    """

    A: Matrix | None
    gram: Matrix | None


@dataclass(frozen=True, eq=False)
class Moments:
    """What a peer's samples amount to: all that PCA needs of them.

    Attributes:
        count: How many there are, m.
        mean: Of each feature, (n,).
        gram: The sum of (x - mean)(x - mean)', (n, n); None where the rows are kept.
        rows: The samples, (m, n), kept where m < n: they are smaller than the Gram matrix. Or wherever asked for.
        features: What the columns are called, where the file says so.
        is_constant: Which columns hold the same number in every row, (n,).
        digest: SHA-256 of the samples, in hex: the same for the same numbers in any format, on any machine.
    """

    count: int
    mean: Matrix
    gram: Matrix | None
    rows: Matrix | None
    features: tuple[str, ...] | None
    is_constant: NDArray[np.bool_]
    digest: str

    @property
    def columns(self) -> int:
        """How many features there are, n."""
        return len(self.mean)

    @property
    def present(self) -> Matrix:
        """How many values of each feature there are, (n,): none is missing."""
        return np.full(self.columns, float(self.count))

    @property
    def sums(self) -> Matrix:
        """The sum of each feature, (n,)."""
        total: Matrix = self.count * self.mean
        return total

    def about(self, center: Matrix | None = None, scale: Matrix | None = None) -> Spread:
        """The samples moved by a center, (n,), and divided by a scale, (n,).

        Args:
            center: What becomes 0; None leaves the samples where they are.
            scale: What becomes 1; None leaves their size as it is.
        """
        if self.rows is None:
            return Spread(None, self.gram_about(center, scale))
        moved = self.rows if center is None else self.rows - center
        return Spread((moved if scale is None else moved / scale).T, None)

    def gram_about(self, center: Matrix | None = None, scale: Matrix | None = None) -> Matrix:
        """The sum of zz' over z = (x - center) / scale, (n, n): gram + m (mean - center)(mean - center)'."""
        if self.gram is None:
            A = self.about(center, scale).A
            assert A is not None, "rows or a Gram matrix are there"  # noqa: S101
            product: Matrix = A @ A.T
            return product
        offset = self.mean if center is None else self.mean - center
        moved = self.gram + self.count * np.outer(offset, offset)
        return moved if scale is None else moved / np.outer(scale, scale)

    def squares_about(self, center: Matrix | None = None) -> Matrix:
        """The sum of (x - center)^2 of each feature, (n,): the diagonal of `gram_about`, without the rest."""
        if self.rows is not None:
            moved = self.rows if center is None else self.rows - center
            kept: Matrix = np.square(moved).sum(axis=0)
            return kept
        assert self.gram is not None, "rows or a Gram matrix are there"  # noqa: S101
        offset = self.mean if center is None else self.mean - center
        squares: Matrix = np.diagonal(self.gram) + self.count * offset**2
        return squares

    def constant_columns(self) -> tuple[int, ...]:
        """The columns that hold the same number in every row, from 0."""
        return tuple(np.flatnonzero(self.is_constant).tolist())


class Gathered:
    """Moments in the making: chunks are kept as long as they are smaller than the Gram matrix, then merged.

    Args:
        columns: How many features there are, n.
        keeps_rows: Whether chunks are kept, however many.
    """

    def __init__(self, columns: int, *, keeps_rows: bool = False) -> None:
        self._most_kept = math.inf if keeps_rows else columns - 1  # rows
        self._kept: list[Matrix] = []
        self._gram: Matrix | None = None
        self._count, self._kept_count = 0, 0
        self._mean = np.zeros(columns)
        self._first: Matrix | None = None
        self._is_constant = np.ones(columns, dtype=np.bool_)
        self._digest = digest_of(columns)

    @property
    def count(self) -> int:
        """How many samples it has taken in."""
        return self._count + self._kept_count

    def add(self, chunk: Matrix) -> None:
        """Take in some samples, (rows, n)."""
        self._digest.update(np.ascontiguousarray(chunk, dtype="<f8").data)
        if self._first is None:
            self._first = chunk[0].copy()
        self._is_constant &= (chunk == self._first).all(axis=0)
        self._kept.append(chunk)
        self._kept_count += len(chunk)
        if self.count > self._most_kept:
            for kept in self._kept:
                self._merge(kept)
            self._kept, self._kept_count = [], 0

    def _merge(self, chunk: Matrix) -> None:
        """Two sets of centered moments as one (Chan, Golub and LeVeque): exact, and no large numbers cancel."""
        before, total = self._count, self._count + len(chunk)
        with np.errstate(over="ignore", invalid="ignore"):  # found at the end
            mean = chunk.mean(axis=0)
            apart = mean - self._mean
            centered = np.vstack([chunk - mean, np.sqrt(before * len(chunk) / total) * apart])
            product = centered.T @ centered
            self._gram = product if self._gram is None else np.add(self._gram, product, out=self._gram)
            self._mean += (len(chunk) / total) * apart
        self._count = total

    def moments(self, features: tuple[str, ...] | None) -> Moments:
        """What all chunks amount to.

        Raises:
            DataFileError: There were none, or their squares are too large for double precision.
        """
        if self._first is None:
            raise DataFileError("has no samples; must hold a row per sample")
        rows, mean = None, self._mean
        with np.errstate(over="ignore", invalid="ignore"):
            if self._gram is None:
                rows = np.concatenate(self._kept)
                mean = rows.mean(axis=0)
                check_size(np.square(rows).sum(axis=0), features)
            else:
                check_size(np.diagonal(self._gram) + self._count * np.square(mean), features)
        mean[self._is_constant] = self._first[self._is_constant]  # not off by a rounding error
        if self._gram is not None:
            self._gram[self._is_constant, :] = 0.0
            self._gram[:, self._is_constant] = 0.0
        return Moments(self.count, mean, self._gram, rows, features, self._is_constant, self._digest.hexdigest())


def samples_digest(rows: Matrix) -> str:
    """The digest that `Moments` has of these samples."""
    digest = digest_of(rows.shape[1])
    digest.update(np.ascontiguousarray(rows, dtype="<f8").data)
    return digest.hexdigest()


def digest_of(columns: int) -> "hashlib._Hash":
    """The digest of no samples yet, with so many columns."""
    return hashlib.sha256(columns.to_bytes(8, "little"))


def check_size(sums: Matrix, features: tuple[str, ...] | None) -> None:
    """Refuse samples whose sums of squares, (n,), are not finite."""
    if not np.isfinite(sums).all():
        name = name_of(int(np.flatnonzero(~np.isfinite(sums))[0]), features)
        raise DataFileError(f"has numbers in {name} whose squares overflow; scale them down")
