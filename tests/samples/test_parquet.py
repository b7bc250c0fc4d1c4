import sys

import numpy as np
import pytest
from samples.tables import write_table

from thanos_peer.errors import DataFileError
from thanos_peer.samples import open_table, read_rows
from thanos_peer.samples.table import MEND


def error_of(path):
    with pytest.raises(DataFileError) as caught:
        read_rows(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def write(tmp_path):
    """Writes columns to a Parquet file."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    def write_columns(**columns):
        parquet.write_table(pa.table(columns), tmp_path / "x.parquet", row_group_size=2)
        return tmp_path / "x.parquet"

    return write_columns


def test_columns_of_several_types_are_read_by_row_groups(write):
    path = write(a=np.arange(5), b=np.linspace(0, 1, 5).astype("f4"), c=np.arange(5).astype("u1"))
    with open_table(path) as table:
        assert (table.features, table.count) == (("a", "b", "c"), 5)
        (rows,) = table.chunks
    assert rows.tolist() == [[i, i / 4, i] for i in range(5)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0, None]}, f"has a missing value in row 2, column 'b'; {MEND}"),
        (
            {"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0, float("nan")]},
            "has nan in row 2, column 1 'b'; all entries must be finite",
        ),
        ({"a": ["x", "y"]}, "has the column 'a' of type string; all must be numbers"),
        ({"a": [True, False]}, "has the column 'a' of type bool; all must be numbers"),
        ({"a": np.zeros(0)}, "has shape (0, 1); must be (samples, features): a row per sample"),
    ],
)
def test_a_mistake_is_named_with_its_place(write, columns, message):
    assert error_of(write(**columns)) == message


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1 and no more", b"1,2\n"])
def test_what_is_no_parquet_file_is_refused(tmp_path, content):
    pytest.importorskip("pyarrow")
    (tmp_path / "x.parquet").write_bytes(content)
    assert error_of(tmp_path / "x.parquet").startswith("is not a plain Parquet file: ")


def test_what_a_file_says_cannot_command_a_terminal(write):
    said = error_of(write(a=[{"\x1b[2J": 1, "\x9b" + "x" * 1000: 2}]))
    assert said.isprintable()
    assert len(said) < 400


def test_damaged_pages_are_a_data_file_error(tmp_path):
    pytest.importorskip("pyarrow")
    path = write_table(tmp_path / "x.parquet", np.random.default_rng(1).standard_normal((40, 3)))
    content = path.read_bytes()
    refused = 0
    for place in range(4, len(content), 97):
        path.write_bytes(content[:place] + b"\xff" * 9 + content[place + 9 :])
        try:
            assert read_rows(path).shape[1] == 3
        except DataFileError:
            refused += 1
    assert refused


def test_without_the_extra_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    assert (
        error_of(tmp_path / "x.parquet")
        == "needs the extra `parquet`: pip install '.[parquet]' in a checkout of thanos-peer"
    )
