import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from samples.tables import names_for, write_table

from thanos_peer.errors import DataFileError
from thanos_peer.samples import moments, read_moments, samples_digest, table


def numbers(*shape):
    return np.random.default_rng(7).standard_normal(shape)


def moments_of(rows, cuts=(), **options):
    """What rows amount to when they come in these pieces."""
    gathered = moments.Gathered(rows.shape[1], **options)
    for part in np.split(rows, sorted(set(cuts))):
        if len(part):
            gathered.add(part)
    return gathered.moments(None)


TABLES = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 30), st.integers(1, 12)),
    elements=st.floats(-1e6, 1e6, width=32),
)


@given(rows=TABLES, cuts=st.lists(st.integers(1, 30), max_size=6), keeps_rows=st.booleans(), data=st.data())
def test_moments_are_those_of_numpy_however_the_rows_are_cut(rows, cuts, keeps_rows, data):
    m, n = rows.shape
    found = moments_of(rows, [cut for cut in cuts if cut < m], keeps_rows=keeps_rows)
    assert (found.count, found.columns) == (m, n)
    assert found.digest == samples_digest(rows) == samples_digest(np.asfortranarray(rows))
    assert found.digest not in (samples_digest(np.nextafter(rows, 1e9)), samples_digest(np.vstack([rows, rows])))
    assert (found.rows is None) == (m >= n and not keeps_rows)
    assert found.rows is None or found.rows.tobytes() == rows.tobytes()
    size = max(1.0, np.abs(rows).max())
    assert found.mean == pytest.approx(rows.mean(axis=0), abs=1e-13 * size)
    center = data.draw(st.sampled_from([None, np.zeros(n), rows[0], rows.mean(axis=0) + 1]))
    scale = data.draw(st.sampled_from([None, np.linspace(0.5, 2, n)]))
    moved = (rows - (0 if center is None else center)) / (1 if scale is None else scale)
    spread = found.about(center, scale)
    assert (spread.A is None) == (found.rows is None)
    gram = spread.gram if spread.A is None else spread.A @ spread.A.T
    tolerance = 1e-11 * m * size**2
    assert gram == pytest.approx(moved.T @ moved, abs=tolerance)
    assert found.gram_about(center, scale) == pytest.approx(moved.T @ moved, abs=tolerance)
    squares = ((rows - (0 if center is None else center)) ** 2).sum(axis=0)
    assert found.squares_about(center) == pytest.approx(squares, abs=tolerance)


def test_a_large_offset_does_not_swallow_the_spread():
    rows = numbers(5000, 4)
    found = moments_of(1e8 + rows, range(7, 5000, 7))
    centered = rows - rows.mean(axis=0)
    assert found.gram == pytest.approx(centered.T @ centered, rel=1e-6, abs=1e-3)
    naive = (1e8 + rows).T @ (1e8 + rows) - 5000 * np.outer((1e8 + rows).mean(axis=0), (1e8 + rows).mean(axis=0))
    # A plain sum of squares would have lost more than this.
    assert np.abs(naive - centered.T @ centered).max() > 1


def test_rows_that_are_kept_are_the_samples_to_the_last_bit(tmp_path):
    rows = numbers(5, 9)
    found = read_moments(write_table(tmp_path / "x.npy", rows))
    assert found.gram is None
    assert found.rows.tobytes() == rows.tobytes()
    assert found.about().A.tobytes() == rows.T.tobytes()


def test_every_format_gives_the_same_bits(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(table, "CHUNK_ROWS", 10)
    rows, features = numbers(53, 4), names_for(4)
    expected = moments_of(rows, range(10, 53, 10))
    found = read_moments(write_table(tmp_path / f"x.{kind}", rows, features=features), n=4)
    assert found.features == (None if kind == "npy" else features)
    assert found.gram.tobytes() == expected.gram.tobytes()
    assert found.mean.tobytes() == expected.mean.tobytes()


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_a_table_stored_column_by_column_gives_the_same_bits(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(table, "CHUNK_ROWS", 3)
    rows = numbers(100, 4)
    found = read_moments(write_table(tmp_path / f"x.{kind}", rows, by_columns=True))
    assert found.gram.tobytes() == moments_of(rows, range(3, 100, 3)).gram.tobytes()


def test_a_constant_column_is_known_and_has_no_spread_at_all(tmp_path):
    rows = numbers(50, 4)
    # The mean of these rows is not 0.1 in floating point.
    rows[:, 2] = 0.1
    found = read_moments(write_table(tmp_path / "x.csv", rows))
    assert rows[:, 2].mean() != 0.1
    assert found.constant_columns() == (2,)
    assert found.mean[2] == 0.1
    assert not found.gram[2].any()
    assert not found.gram[:, 2].any()
    assert read_moments(write_table(tmp_path / "few.csv", rows[:3])).constant_columns() == (2,)


@pytest.mark.parametrize("m", [3, 30])
def test_numbers_whose_squares_overflow_are_named_with_their_column(tmp_path, m):
    rows = numbers(m, 5)
    rows[2, 3] = 1e200
    with pytest.raises(
        DataFileError,
        match=r"^has numbers in feature 3 \(counted from 0\) whose squares overflow; scale them down$",
    ):
        read_moments(write_table(tmp_path / "x.npy", rows))


def test_another_number_of_columns_than_expected_is_refused(tmp_path, kind):
    path = write_table(tmp_path / f"x.{kind}", numbers(5, 3))
    with pytest.raises(
        DataFileError, match=r"^has (shape \(5, 3\); must be \(samples, 4\)|3 columns; must have n = 4)"
    ):
        read_moments(path, n=4)
