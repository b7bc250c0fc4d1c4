"""Samples with missing values: what is gathered of them in one pass, until the mean of all samples is known.

A missing value becomes the mean of its feature, which is known only when all peers have told their sums. Then the
Gram matrix of the filled samples follows from sums over the rows where both of two features are there, with y = x
less a fixed shift, taken from the first values, so that no large numbers cancel:

    products  P_jk = sum of y_j y_k
    sums      Q_jk = sum of y_j
    counts    N_jk = how many such rows there are
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from thanos_peer.block import Matrix
from thanos_peer.samples.moments import Gathered, Moments, check_size, digest_of
from thanos_peer.samples.table import rows_per_chunk


@dataclass(frozen=True, eq=False)
class Pairs:
    """The sums over all pairs of features that are both there.

    Attributes:
        count: How many rows there are.
        shift: What was taken away from each feature, (n,).
        products: P, (n, n).
        sums: Q, (n, n); on its diagonal the sum of all that is there.
        counts: N, (n, n); on its diagonal how many values are there.
    """

    count: int
    shift: Matrix
    products: Matrix
    sums: Matrix
    counts: Matrix

    def filled(self, fill: Matrix) -> tuple[Matrix, Matrix]:
        """The mean of the rows with what is missing filled in, (n,), and their Gram matrix about it, (n, n)."""
        m, there, sums = self.count, np.diagonal(self.counts), np.diagonal(self.sums)
        to_fill = fill - self.shift
        # In the frame of the shift: the mean, and what a filled value is away from it.
        mean = (sums + (m - there) * to_fill) / m
        gap = to_fill - mean
        # Both there, one of them filled, both filled.
        crossed = self.sums * mean
        gram = self.products - crossed - crossed.T + np.outer(mean, mean) * self.counts
        alone = there[:, None] - self.counts
        one = gap * (sums[:, None] - self.sums - mean[:, None] * alone)
        gram += one + one.T
        gram += np.outer(gap, gap) * (m - there[:, None] - there + self.counts)
        return self.shift + mean, gram


class _GatheredPairs:
    """Those sums in the making."""

    def __init__(self, columns: int) -> None:
        self._count, self._shift = 0, np.full(columns, np.nan)
        # Products, sums and counts; there may be no room for them where no row ever comes.
        self._totals: tuple[Matrix, Matrix, Matrix] | None = None

    def add(self, chunk: Matrix) -> None:
        """Take in some rows, (rows, n), NaN where a value is missing."""
        is_there = ~np.isnan(chunk)
        counts = is_there.sum(axis=0)
        # Nothing was added for a feature that is new, so that any shift is right for what came before.
        is_new = np.isnan(self._shift) & (counts > 0)
        with np.errstate(over="ignore", invalid="ignore"):  # found at the end
            if is_new.any():
                self._shift[is_new] = np.where(is_there, chunk, 0.0).sum(axis=0)[is_new] / counts[is_new]
            moved = np.where(is_there, chunk - self._shift, 0.0)
            there = is_there.astype(np.float64)
            new = moved.T @ moved, moved.T @ there, there.T @ there
            if self._totals is None:
                self._totals = new
            else:
                for total, more in zip(self._totals, new, strict=True):
                    np.add(total, more, out=total)
        self._count += len(chunk)

    def pairs(self) -> Pairs | None:
        """All of them; None where there was no row."""
        if self._totals is None:
            return None
        shift = np.where(np.isnan(self._shift), 0.0, self._shift)
        return Pairs(self._count, shift, *self._totals)


class _GatheredFeatures:
    """What is known of the features one by one, in the making.

    Attributes:
        present: How many values of each are there, (n,).
        sums: Their sums, (n,).
        squares: The sums of their squares, (n,).
    """

    def __init__(self, columns: int) -> None:
        self.present, self.sums, self.squares = (np.zeros(columns) for _ in range(3))
        self._least, self._most = np.full(columns, np.inf), np.full(columns, -np.inf)

    def add(self, chunk: Matrix) -> None:
        """Take in some rows, (rows, n), NaN where a value is missing."""
        is_there = ~np.isnan(chunk)
        there = np.where(is_there, chunk, 0.0)
        self.present += is_there.sum(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):  # found at the end
            self.sums += there.sum(axis=0)
            self.squares += np.square(there).sum(axis=0)
        np.minimum(self._least, np.fmin.reduce(chunk, axis=0, initial=np.inf), out=self._least)
        np.maximum(self._most, np.fmax.reduce(chunk, axis=0, initial=-np.inf), out=self._most)

    @property
    def constants(self) -> Matrix:
        """Of each the value that it has wherever it is there, (n,); NaN where it has several, or none."""
        return np.where(self._least == self._most, self._least, np.nan)


@dataclass(frozen=True, eq=False)
class Incomplete:
    """What samples amount to of which values are missing; once these are filled in, they are `Moments`.

    Attributes:
        count: How many samples there are, m.
        present: How many values of each feature there are, (n,).
        sums: Their sums, (n,).
        features: What the columns are called, where the file says so.
        digest: SHA-256 of the samples, as `Moments` has it.
        rows: The samples, (m, n), NaN where a value is missing, where they are kept.
        keeps_rows: Whether they are kept, however many.
        complete: What the chunks amount to of which nothing is missing, where no rows are kept.
        pairs: The same of the other chunks.
        constants: Of each feature the value that it has wherever it is there, (n,); NaN where it has several.
    """

    count: int
    present: Matrix
    sums: Matrix
    features: tuple[str, ...] | None
    digest: str
    rows: Matrix | None
    keeps_rows: bool
    complete: Moments | None
    pairs: Pairs | None
    constants: Matrix

    @property
    def columns(self) -> int:
        """How many features there are, n."""
        return len(self.present)

    def filled(self, mean: Matrix) -> Moments:
        """The same with a value of `mean` wherever one is missing."""
        if self.rows is not None:
            rows = np.where(np.isnan(self.rows), mean, self.rows)
            gathered, step = Gathered(rows.shape[1], keeps_rows=self.keeps_rows), rows_per_chunk(rows.shape[1])
            _add_all(gathered, (rows[start : start + step] for start in range(0, len(rows), step)))
            return replace(gathered.moments(self.features), digest=self.digest)
        assert self.pairs is not None, "something is missing"  # noqa: S101
        own_mean, gram = self.pairs.filled(mean)
        if self.complete is not None:
            own_mean, gram = _together(self.complete, self.pairs.count, own_mean, gram)
        values = np.where(self.present > 0, self.constants, mean)
        is_constant = ~np.isnan(values) & ((self.present == self.count) | (values == mean))
        # Not off by a rounding error.
        own_mean[is_constant] = values[is_constant]
        gram[is_constant, :] = 0.0
        gram[:, is_constant] = 0.0
        check_size(np.diagonal(gram) + self.count * np.square(own_mean), self.features)
        return Moments(self.count, own_mean, gram, None, self.features, is_constant, self.digest)


def _together(complete: Moments, count: int, mean: Matrix, gram: Matrix) -> tuple[Matrix, Matrix]:
    """Two sets of centered moments as one."""
    total = complete.count + count
    apart = mean - complete.mean
    product = complete.gram_about(complete.mean) + gram
    product += complete.count * count / total * np.outer(apart, apart)
    return complete.mean + count / total * apart, product


class GatheredWithGaps:
    """Moments in the making, of chunks in which values may be missing.

    Args:
        columns: How many features there are, n.
        keeps_rows: Whether chunks are kept, however many.
    """

    def __init__(self, columns: int, *, keeps_rows: bool = False) -> None:
        self._keeps_rows = keeps_rows
        self._most_kept = math.inf if keeps_rows else columns - 1
        self._kept: list[Matrix] = []
        self._count, self._has_gaps, self._has_merged = 0, False, False
        self._complete, self._pairs = Gathered(columns, keeps_rows=keeps_rows), _GatheredPairs(columns)
        self._each = _GatheredFeatures(columns)
        self._digest = digest_of(columns)

    def add(self, chunk: Matrix) -> None:
        """Take in some samples, (rows, n)."""
        self._digest.update(np.ascontiguousarray(chunk, dtype="<f8").data)
        self._has_gaps |= bool(np.isnan(chunk).any())
        self._kept.append(chunk)
        self._count += len(chunk)
        if self._count > self._most_kept:
            self._merge()

    def _merge(self) -> None:
        for chunk in self._kept:
            gatherer = self._pairs if np.isnan(chunk).any() else self._complete
            gatherer.add(chunk)
            self._each.add(chunk)
        self._kept, self._has_merged = [], True

    def moments(self, features: tuple[str, ...] | None) -> Moments | Incomplete:
        """What all chunks amount to: if nothing is missing, as where nothing may be.

        Raises:
            DataFileError: There were none, or their squares are too large for double precision.
        """
        if not self._has_gaps:
            if not self._has_merged:
                _add_all(self._complete, self._kept)
            return self._complete.moments(features)
        rows, pairs, complete = None, self._pairs.pairs(), None
        if not self._has_merged:
            rows = np.concatenate(self._kept)
            self._each.add(rows)
        elif self._complete.count:
            complete = self._complete.moments(features)
        check_size(self._each.squares, features)
        return Incomplete(
            count=self._count,
            present=self._each.present,
            sums=self._each.sums,
            features=features,
            digest=self._digest.hexdigest(),
            rows=rows,
            keeps_rows=self._keeps_rows,
            complete=complete,
            pairs=pairs,
            constants=self._each.constants,
        )


def _add_all(gathered: Gathered, chunks: Iterable[Matrix]) -> None:
    for chunk in chunks:
        gathered.add(chunk)
