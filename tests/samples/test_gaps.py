"""Missing values: what is gathered of them in one pass amounts to the samples that are filled in afterwards."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples.conftest import NEEDS_PARQUET
from samples.tables import names_for, write_table

from thanos_peer.errors import DataFileError
from thanos_peer.samples import Columns, Incomplete, delimited, moments_of_rows, read_moments, read_rows, table
from thanos_peer.samples.gaps import GatheredWithGaps
from thanos_peer.samples.moments import Gathered, Moments


def gathered_of(rows, cuts=(), kind=GatheredWithGaps, **options):
    gathered = kind(rows.shape[1], **options)
    for part in np.split(rows, sorted({cut for cut in cuts if 0 < cut < len(rows)})):
        gathered.add(part)
    return gathered.moments(None)


def with_gaps(m, n, share=0.2, seed=5, offset=0.0):
    rng = np.random.default_rng(seed)
    rows = offset + rng.standard_normal((m, n)) @ rng.standard_normal((n, n))
    rows[rng.random((m, n)) < share] = np.nan
    return rows


@given(
    m=st.integers(1, 40),
    n=st.integers(1, 8),
    share=st.sampled_from([0.01, 0.2, 0.9, 1.0]),
    cuts=st.lists(st.integers(1, 40), max_size=6),
    seed=st.integers(0, 10**6),
    offset=st.sampled_from([0.0, 1e3]),
    keeps_rows=st.booleans(),
)
def test_filled_samples_are_those_of_numpy_however_the_rows_are_cut(m, n, share, cuts, seed, offset, keeps_rows):
    rows = with_gaps(m, n, share, seed, offset)
    found = gathered_of(rows, cuts, keeps_rows=keeps_rows)
    fill = np.random.default_rng(seed).standard_normal(n) + offset
    filled = np.where(np.isnan(rows), fill, rows)
    assert found.count == m
    assert found.present.tolist() == (~np.isnan(rows)).sum(axis=0).tolist()
    assert found.sums == pytest.approx(np.nansum(rows, axis=0), rel=1e-12, abs=1e-12)
    if not np.isnan(rows).any():
        assert isinstance(found, Moments)
        return
    moments = found.filled(fill)
    assert (moments.rows is None) == (m >= n and not keeps_rows)
    assert moments.count == m
    assert moments.mean == pytest.approx(filled.mean(axis=0), abs=1e-12 * (1 + offset))
    for center in (None, filled.mean(axis=0), fill):
        moved = filled - (0.0 if center is None else center)
        size = 1 + np.square(moved).sum()
        assert moments.gram_about(center) == pytest.approx(moved.T @ moved, abs=1e-12 * size)
        assert moments.squares_about(center) == pytest.approx(np.square(moved).sum(axis=0), abs=1e-12 * size)
    centered = filled - filled.mean(axis=0)
    tolerance = 1e-10 * (1 + np.square(centered).sum())
    assert moments.gram_about(moments.mean) == pytest.approx(centered.T @ centered, abs=tolerance)
    assert moments.is_constant.tolist() == (filled == filled[0]).all(axis=0).tolist()
    assert moments.digest == found.digest


def test_a_large_offset_does_not_swallow_the_spread():
    rows = with_gaps(5000, 4, 0.05, offset=1e8)
    fill = np.nanmean(rows, axis=0)
    found = gathered_of(rows, range(7, 5000, 7)).filled(fill)
    centered = np.where(np.isnan(rows), fill, rows) - 1e8
    centered -= centered.mean(axis=0)
    assert found.gram == pytest.approx(centered.T @ centered, rel=1e-6, abs=1e-3)


def test_one_file_far_from_the_mean_of_all_keeps_its_digits():
    rows, fill = with_gaps(3000, 4, 0.02), np.full(4, 1e6)
    found = gathered_of(rows, range(100, 3000, 100)).filled(fill)
    filled = np.where(np.isnan(rows), fill, rows)
    centered = filled - filled.mean(axis=0)
    assert found.gram == pytest.approx(centered.T @ centered, rel=1e-12)


@pytest.mark.parametrize("keeps_rows", [False, True])
@pytest.mark.parametrize("m", [3, 53])
def test_where_nothing_is_missing_the_bits_are_those_of_a_file_where_nothing_may_be(tmp_path, kind, m, keeps_rows):
    path = write_table(tmp_path / f"x.{kind}", with_gaps(m, 5, 0.0), features=names_for(5))
    one = read_moments(path, keeps_rows=keeps_rows)
    other = read_moments(path, keeps_rows=keeps_rows, allows_missing=True)
    assert isinstance(other, Moments)
    for name in ("mean", "gram", "rows", "sums", "present"):
        bits = [None if array is None else array.tobytes() for array in (getattr(one, name), getattr(other, name))]
        assert bits[0] == bits[1]
    assert one.digest == other.digest


@pytest.mark.parametrize("m", [4, 53])
def test_kept_rows_have_the_bits_of_a_file_that_was_filled_before(m):
    rows, fill = with_gaps(m, 60, 0.2), np.arange(60.0)
    expected = gathered_of(np.where(np.isnan(rows), fill, rows), kind=Gathered)
    found = gathered_of(rows, range(2, m, 2)).filled(fill)
    assert found.rows.tobytes() == expected.rows.tobytes()
    assert found.mean.tobytes() == expected.mean.tobytes()


def test_every_format_gives_the_same_bits(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(table, "CHUNK_ROWS", 10)
    rows, fill = with_gaps(53, 4), np.arange(4.0)
    rows[20:40] = np.arange(80.0).reshape(20, 4)  # of some chunks nothing is missing
    expected = gathered_of(rows, range(10, 53, 10))
    found = read_moments(write_table(tmp_path / f"x.{kind}", rows, features=names_for(4)), allows_missing=True)
    assert isinstance(found, Incomplete)
    assert found.digest == expected.digest
    assert found.filled(fill).gram.tobytes() == expected.filled(fill).gram.tobytes()
    assert moments_of_rows(rows, allows_missing=True).digest == expected.digest


def test_what_is_not_a_number_is_always_the_same_one_in_the_digest():
    rows = with_gaps(6, 3)
    other = rows.copy()
    other[np.isnan(rows)] = np.frombuffer(b"\x01\x00\x00\x00\x00\x00\xf8\xff", "<f8")[0]
    assert rows.tobytes() != other.tobytes()
    assert moments_of_rows(rows, allows_missing=True).digest == moments_of_rows(other, allows_missing=True).digest


@given(text=st.text(st.sampled_from("0123456789.eE+-_ naifxdNul?/\u0661"), max_size=6))
def test_a_field_is_a_number_or_missing_quickly_just_when_it_is_so_slowly(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "field.csv"
    path.write_text(f"id,a,b\nx,1,2\ny,{text},3\nz,4,\n")
    try:
        quick = read_rows(path, columns=Columns(features=("a",)), allows_missing=True)[1, 0]
    except DataFileError:
        quick = None
    try:
        slow = delimited._number(text.strip(), "", allows_missing=True)  # noqa: SLF001
    except DataFileError:
        slow = None
    assert str(quick) == str(slow)


@given(
    text=st.text(st.sampled_from('12,;|\t\n\r"ea.-+ \x00\x1f\u2028'), max_size=40) | st.binary(max_size=40),
    columns=st.sampled_from([Columns(), Columns(features=("a",)), Columns(exclude=("e",))]),
)
def test_any_text_is_a_table_with_gaps_or_a_data_file_error(tmp_path_factory, text, columns):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(b"a,e\n" + (text if isinstance(text, bytes) else text.encode()))
    try:
        assert not np.isinf(read_rows(path, columns=columns, allows_missing=True)).any()
    except DataFileError as error:
        assert str(error)  # noqa: PT017


def test_text_is_taken_apart_a_part_at_a_time_to_the_same_numbers(tmp_path, monkeypatch):
    rows = with_gaps(53, 4)
    path = write_table(tmp_path / "x.csv", rows, features=names_for(4))
    monkeypatch.setattr(delimited, "FIELDS_AT_ONCE", 13)
    assert read_rows(path, allows_missing=True).tobytes() == np.where(np.isnan(rows), np.nan, rows).tobytes()


WORDS = ["", "NA", "n/a", "nan", "NaN", "null", "None", "?", '""']


@pytest.mark.parametrize("word", WORDS)
def test_all_words_for_a_missing_value_are_read(tmp_path, word):
    path = tmp_path / "x.csv"
    path.write_text(f"a,b\n1,2\n{word},{word}\n3,{word}\n")
    assert str(read_rows(path, allows_missing=True).tolist()) == "[[1.0, 2.0], [nan, nan], [3.0, nan]]"


@pytest.mark.parametrize("word", ["-nan", "+nan", "inf", "NaNs", "missing", "1,5", "0x1", "1_000", "nan(1)"])
def test_other_words_are_no_missing_values(tmp_path, word):
    path = tmp_path / "x.csv"
    path.write_text(f"a;b\n1;2\nNA;{word}\n")
    with pytest.raises(DataFileError, match=r"in line 3, column 2 'b'; must be a finite number"):
        read_rows(path, allows_missing=True)


@NEEDS_PARQUET
def test_what_is_missing_in_whole_numbers_of_parquet_is_read(tmp_path):
    import pyarrow as pa  # noqa: PLC0415 - an extra
    from pyarrow import parquet  # noqa: PLC0415

    parquet.write_table(pa.table({"a": [1, None, 3], "b": [None, 0.5, float("nan")]}), tmp_path / "x.parquet")
    found = read_rows(tmp_path / "x.parquet", allows_missing=True)
    assert str(found.tolist()) == "[[1.0, nan], [nan, 0.5], [3.0, nan]]"


def test_infinity_is_no_missing_value(tmp_path):
    rows = with_gaps(5, 3)
    rows[2, 1] = np.inf
    with pytest.raises(DataFileError, match=r"^has inf in row 2, column 1; all entries must be finite$"):
        read_moments(write_table(tmp_path / "x.npy", rows), allows_missing=True)


@pytest.mark.parametrize("m", [3, 30])
def test_numbers_whose_squares_overflow_are_named_with_their_column(tmp_path, m):
    rows = with_gaps(m, 5)
    rows[2, 3], rows[2, 2] = 1e200, np.nan
    with pytest.raises(
        DataFileError, match=r"^has numbers in feature 3 \(counted from 0\) whose squares overflow"
    ):
        read_moments(write_table(tmp_path / "x.npy", rows), allows_missing=True)


def test_a_feature_that_is_constant_or_missing_altogether_has_no_spread_at_all():
    rows = with_gaps(50, 4)
    rows[:, 2] = 0.1
    rows[3, 2] = np.nan
    rows[:, 1] = np.nan
    found = gathered_of(rows).filled(np.array([0.0, 7.0, 0.1, 0.0]))
    assert found.constant_columns() == (1, 2)
    assert found.mean[1:3].tolist() == [7.0, 0.1]
    assert not found.gram[1:3].any()
    assert not found.gram[:, 1:3].any()
    assert gathered_of(rows).filled(np.array([0.0, 7.0, 0.2, 0.0])).constant_columns() == (1,)


def test_few_samples_of_very_many_features_need_no_sums_over_pairs():
    rows = np.ones((3, 300_000))  # pairs of these would take 720 GB each
    rows[1, ::2] = np.nan
    found = moments_of_rows(rows, allows_missing=True)
    assert found.filled(np.full(300_000, 2.0)).rows[1, :2].tolist() == [2.0, 1.0]
