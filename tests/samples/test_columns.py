"""Columns picked by name: the same bits as of a file that has only these, in that order."""

import numpy as np
import pytest
from samples.conftest import NEEDS_PARQUET
from samples.tables import names_for, write_table

from thanos_peer.errors import DataFileError
from thanos_peer.samples import Columns, open_table, read_moments, read_rows, table

ROWS = np.random.default_rng(3).standard_normal((53, 6))
NAMES = ("id", "a", "b", "more", "c", "d")
IN_ANOTHER_ORDER = Columns(features=("d", "a", "c", "b"))
WITHOUT_SOME = Columns(exclude=("more", "id"))


@pytest.fixture(params=["npz", "csv", "tsv", "txt", pytest.param("parquet", marks=NEEDS_PARQUET)])
def named_kind(request):
    """A format that has names."""
    return request.param


@pytest.fixture(params=[IN_ANOTHER_ORDER, WITHOUT_SOME])
def columns(request):
    return request.param


def places_of(columns):
    return [NAMES.index(name) for name in columns.features or ("a", "b", "c", "d")]


def same(one, other):
    """Whether moments have the same bits."""
    arrays = [[getattr(each, name) for name in ("mean", "gram", "rows", "is_constant")] for each in (one, other)]
    bits = [[None if array is None else array.tobytes() for array in each] for each in arrays]
    return bits[0] == bits[1] and one.digest == other.digest and one.features == other.features


@pytest.mark.parametrize("chunk_rows", [1, 7, 10, 53, 2**14])
@pytest.mark.parametrize("m", [53, 3])
def test_picked_columns_have_the_bits_of_a_file_with_them_alone(
    tmp_path, named_kind, columns, monkeypatch, chunk_rows, m
):
    monkeypatch.setattr(table, "CHUNK_ROWS", chunk_rows)
    places = places_of(columns)
    path = write_table(tmp_path / f"all.{named_kind}", ROWS[:m], features=NAMES)
    names = tuple(NAMES[place] for place in places)
    alone = write_table(tmp_path / f"alone.{named_kind}", ROWS[:m, places], features=names)
    expected = read_moments(alone, n=4)
    assert expected.features == names
    assert same(read_moments(path, n=4, columns=columns), expected)
    assert np.array_equal(read_rows(path, n=4, columns=columns), ROWS[:m, places])


def test_chunks_are_as_large_as_those_of_a_file_with_the_picked_columns_alone(tmp_path, named_kind, monkeypatch):
    monkeypatch.setattr(table, "CHUNK_ENTRIES", 40)
    path = write_table(tmp_path / f"all.{named_kind}", ROWS, features=NAMES)
    with open_table(path, columns=IN_ANOTHER_ORDER) as opened:
        assert [len(chunk) for chunk in opened.chunks] == [10] * 5 + [3]


def test_a_packed_table_that_lies_column_by_column_is_picked_from_as_well(tmp_path, monkeypatch, columns):
    monkeypatch.setattr(table, "CHUNK_ROWS", 7)
    path = write_table(tmp_path / "x.npz", ROWS, features=NAMES, by_columns=True)
    assert np.array_equal(read_rows(path, columns=columns), ROWS[:, places_of(columns)])


TEXT = '''id,a,site name,b
P1,1.5,"Smith, J.",2
P2,3,"said ""no""",-4e1
3,5,,6
NA, 7 ,x y,8
'''


@pytest.mark.parametrize(
    "columns", [Columns(features=("b", "a")), Columns(exclude=("site name", "id"))], ids=["features", "exclude"]
)
def test_text_in_columns_that_are_not_picked_does_not_matter(tmp_path, columns):
    path = tmp_path / "x.csv"
    path.write_text(TEXT)
    expected = np.array([[1.5, 2], [3, -40], [5, 6], [7, 8]])
    expected = expected if columns.features is None else expected[:, ::-1]
    assert read_rows(path, n=2, columns=columns).tolist() == expected.tolist()
    # The same without quotes is read by numpy itself.
    path.write_text("id,a,note,b\nP1,1.5,x,2\n,3,\u00fc,-4e1\n")
    assert read_rows(path, columns=Columns(features=("b", "a"))).tolist() == [[2, 1.5], [-40, 3]]


@NEEDS_PARQUET
def test_text_in_parquet_columns_that_are_not_picked_does_not_matter(tmp_path):
    import pyarrow as pa  # noqa: PLC0415 - an extra
    from pyarrow import parquet  # noqa: PLC0415

    columns = {"id": ["P1", None], "b": [1, 2], "list": [[1], []], "a": [0.5, 1.5]}
    parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
    for columns, expected in (
        (Columns(features=("a", "b")), [[0.5, 1], [1.5, 2]]),
        (Columns(exclude=("list", "id")), [[1, 0.5], [2, 1.5]]),
    ):
        assert read_rows(tmp_path / "x.parquet", columns=columns).tolist() == expected
    with pytest.raises(DataFileError, match=r"^has the column 'id' of type string; all must be numbers$"):
        read_rows(tmp_path / "x.parquet", columns=Columns(exclude=("list",)))


def error_of(path, text, columns, **options):
    path.write_text(text)
    with pytest.raises(DataFileError) as caught:
        read_rows(path, columns=columns, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (Columns(features=("a", "c")), "has no column 'c', as in problem.features"),
        (Columns(features=("Note", "c")), "has no columns 'Note', 'c', as in problem.features; it has 'note'"),
        (
            Columns(features=("c", "d", "e", "f", "g", "h", "j")),
            "has no columns 'c', 'd', 'e', 'f', 'g' and 2 more, as in problem.features",
        ),
        (Columns(exclude=("note", "ID")), "has no column 'ID', as in problem.exclude; it has 'id'"),
        (Columns(exclude=("id", "a", "b", "note")), "has no columns but those that problem.exclude leaves out"),
        (Columns(features=("a", "note")), "has 'x' in line 2, column 4 'note'; must be a finite number"),
        (Columns(exclude=("id",)), "has 'x' in line 2, column 4 'note'; must be a finite number"),
    ],
)
def test_a_column_that_is_not_there_or_holds_no_numbers_is_named(tmp_path, columns, message):
    assert error_of(tmp_path / "x.csv", "id,a,b,note\nP1,1,2,x\n", columns) == message


def test_a_column_too_many_is_named(tmp_path):
    text = "id,a,b,c\nP1,1,2,3\n"
    assert error_of(tmp_path / "x.csv", text, Columns(exclude=("id",)), n=2) == (
        "has 3 columns that are not left out; must have n = 2, one per feature: 'a', 'b', 'c'"
    )


def test_names_that_are_there_twice_matter_among_picked_columns_only(tmp_path):
    path, text = tmp_path / "x.csv", "a,a,b,,c\n1,2,3,4,5\n"
    path.write_text(text)
    assert read_rows(path, columns=Columns(features=("c", "b"))).tolist() == [[5, 3]]
    assert read_rows(path, columns=Columns(exclude=("a", ""))).tolist() == [[3, 5]]
    twice = "has the name 'a' in columns 1 and 2; names are unique"
    assert error_of(path, text, Columns(features=("a", "b"))) == twice
    assert error_of(path, text, Columns(exclude=("b", ""))) == twice
    unnamed = "has no name for column 4; name it, or leave it out if it only numbers the rows"
    assert error_of(path, text, Columns(exclude=("a",))) == unnamed


@pytest.mark.parametrize("columns", [Columns(features=("a",)), Columns(exclude=("a",))])
def test_a_file_without_names_is_refused_where_they_pick(tmp_path, columns):
    for path in (write_table(tmp_path / f"x.{kind}", ROWS) for kind in ("npy", "npz", "csv")):
        with pytest.raises(DataFileError, match=r"^has no names of its columns, and problem\.\w+ picks columns"):
            read_rows(path, columns=columns)


def test_text_beside_numbers_in_the_first_line_is_neither_names_nor_a_sample(tmp_path):
    error = error_of(tmp_path / "x.csv", "P1,1,2\nP2,3,4\n", Columns(features=("a",)))
    assert error.startswith("has 'P1' in line 1 beside numbers: neither a header nor a sample")


@pytest.mark.parametrize("line", ["P2,3", "P2,3,x,4,5", "P2,3,x,y,4", 'P2,3,"x,4'])
def test_a_ragged_line_is_refused_although_all_that_is_picked_is_there(tmp_path, line):
    error = error_of(tmp_path / "x.csv", f"id,a,note,b\nP1,1,x,2\n{line}\n", Columns(features=("a",)))
    fields = line.count(",") + 1
    is_split = '"' not in line
    expected = f"has {fields} fields in line 3; must have 4" if is_split else "has a line 3 that cannot be split"
    assert error.startswith(expected)


def test_places_in_messages_are_those_of_the_file(tmp_path):
    path = tmp_path / "x.csv"
    error = error_of(path, "id,a,note,b\nP1,1,x,2\nP2,3,y,\n", Columns(features=("b", "a")))
    assert error == f"has a missing value ('') in line 3, column 4 'b'; {table.MEND}"
    table_with_nan = ROWS.copy()
    table_with_nan[40, 4] = np.nan
    with pytest.raises(DataFileError, match=r"^has nan in row 40, column 4 'c'; all entries must be finite$"):
        read_rows(write_table(tmp_path / "x.npz", table_with_nan, features=NAMES), columns=IN_ANOTHER_ORDER)
    # What is not picked may be anything.
    assert np.array_equal(read_rows(tmp_path / "x.npz", columns=Columns(features=("b",))), ROWS[:, 2:3])


def test_without_columns_to_pick_a_file_is_read_as_ever(tmp_path, kind):
    path = write_table(tmp_path / f"x.{kind}", ROWS, features=names_for(6))
    assert Columns().are_all
    assert np.array_equal(read_rows(path, columns=Columns()), ROWS)
