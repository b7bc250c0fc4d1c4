import io
import os
import zipfile

import claims
import numpy as np
import pytest
from claims import little_memory, npy_header
from hypothesis import given
from hypothesis import strategies as st
from samples.tables import names_for, write_table

from thanos_peer.errors import DataFileError
from thanos_peer.samples import npy, open_table, read_rows

TABLE = np.arange(12.0).reshape(3, 4)
TOO_DEEP = b"\x93NUMPY\x01\x00" + (9001).to_bytes(2, "little") + b"-" * 9000 + b"\n"


def zipped(compress=np.savez, **arrays):
    buffer = io.BytesIO()
    compress(buffer, **arrays)
    return buffer.getvalue()


def error_of(path, content):
    path.write_bytes(content)
    with pytest.raises(DataFileError) as caught:
        read_rows(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("compress", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("name", ["X", "data", "anything"])
@pytest.mark.parametrize("names", ["features", "feature_names", None])
@pytest.mark.parametrize("order", ["C", "F"])
def test_the_samples_in_an_npz_are_found_with_their_names(tmp_path, compress, name, names, order):
    more = {} if names is None else {names: np.array(names_for(4))}
    (tmp_path / "x.npz").write_bytes(zipped(compress, **{name: np.array(TABLE, order=order)}, **more))
    assert np.array_equal(read_rows(tmp_path / "x.npz"), TABLE)
    with open_table(tmp_path / "x.npz") as table:
        assert table.features == (None if names is None else names_for(4))
        assert table.count == 3


def test_x_is_chosen_among_other_arrays(tmp_path):
    (tmp_path / "x.npz").write_bytes(zipped(X=TABLE, labels=np.arange(3), y=TABLE[:, 0]))
    assert np.array_equal(read_rows(tmp_path / "x.npz"), TABLE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (zipped(a=TABLE, b=TABLE), "holds 2 arrays; must hold one, or one named X or data with the samples"),
        (zipped(X=TABLE, data=TABLE), "holds 2 arrays; must hold one, or one named X or data with the samples"),
        (zipped(), "holds 0 arrays; must hold one, or one named X or data with the samples"),
        (zipped(X=TABLE.astype(object)), "is not a plain numeric .npz file: it holds Python objects"),
        (zipped(X=TABLE[0]), "has shape (4,); must be (samples, features): a row per sample"),
        (zipped(X=np.where(TABLE == 6, np.nan, TABLE)), "has nan in row 1, column 2; all entries must be finite"),
        (
            zipped(X=np.where(TABLE == 6, np.nan, TABLE), features=np.array(["a", "b", "c", "d"])),
            "has nan in row 1, column 2 'c'; all entries must be finite",
        ),
        (
            zipped(X=TABLE, features=np.array(["a", "b"])),
            "holds features of shape (2,) and type <U1; must be 4 strings of at most 200 characters",
        ),
        (
            zipped(X=TABLE, features=np.array(["a", "b", "c", "d"], dtype=object)),
            "holds features of shape (4,) and type object; must be 4 strings of at most 200 characters",
        ),
        (
            zipped(X=TABLE, features=np.array(list("abca"))),
            "has the name 'a' in columns 1 and 4; names are unique",
        ),
        (zipped(X=TABLE)[:-30], "is not a plain numeric .npz file: "),
        (b"", "is not a plain numeric .npz file: "),
        (b"PK\x03\x04 and no more", "is not a plain numeric .npz file: "),
    ],
)
def test_an_unusable_npz_is_refused_with_the_reason(tmp_path, content, message):
    assert error_of(tmp_path / "x.npz", content).startswith(message)


def test_an_npz_that_claims_more_than_it_holds_is_refused_before_memory_is_taken(tmp_path):
    message = "is not a plain numeric .npz file: it ends early"
    with little_memory():
        for rows in (10**9, 10**5):
            assert error_of(tmp_path / "x.npz", claims.zipped(X=npy_header(rows, 10**3))).startswith(message)
        names = {"X": npy_header(3, 4) + TABLE.tobytes(), "features": npy_header(4, descr="<U200")}
        assert error_of(tmp_path / "x.npz", claims.zipped(**names)).startswith(message)


def test_a_table_that_unpacks_to_more_than_any_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(npy, "LARGEST_UNPACKED", 90)
    assert error_of(tmp_path / "x.npz", zipped(X=TABLE)) == "claims a table of 96 bytes; at most 90 are unpacked"


def test_a_header_of_gigabytes_is_refused(tmp_path):
    content = b"\x93NUMPY\x02\x00" + (2**32 - 1).to_bytes(4, "little") + b"{}"
    message = "is not a plain numeric .npy file: its header is too long"
    assert error_of(tmp_path / "x.npy", content) == message


@pytest.mark.parametrize(
    "header", [npy_header(3, 4, descr=()), npy_header(3, 4, descr=("<f8",)), TOO_DEEP], ids=["()", "(f8,)", "deep"]
)
@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_a_header_that_makes_no_sense_is_refused(tmp_path, header, kind):
    content = header if kind == "npy" else claims.zipped(X=header)
    assert error_of(tmp_path / f"x.{kind}", content).startswith(f"is not a plain numeric .{kind} file: ")


def test_a_large_table_by_columns_in_an_npz_is_refused_with_a_way_out(tmp_path, monkeypatch):
    monkeypatch.setattr(npy, "LARGEST_BY_COLUMNS", 90)
    content = zipped(X=np.asfortranarray(TABLE))
    assert "numpy.ascontiguousarray" in error_of(tmp_path / "x.npz", content)


def test_a_compression_that_numpy_does_not_use_is_refused(tmp_path):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_LZMA) as file:
        file.writestr("X.npy", zipped(X=TABLE))
    assert "compressed as numpy does not" in error_of(tmp_path / "x.npz", archive.getvalue())


@given(flips=st.dictionaries(st.integers(0, 700), st.integers(0, 255), min_size=1, max_size=4))
def test_a_damaged_npz_is_a_data_file_error_or_a_table(tmp_path_factory, flips):
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    content = bytearray(zipped(X=TABLE, features=np.array(list("abcd"))))
    for place, byte in flips.items():
        content[place % len(content)] = byte
    path.write_bytes(content)
    try:
        assert read_rows(path).ndim == 2
    except DataFileError as error:
        assert str(error)  # noqa: PT017


def test_a_change_in_the_numbers_of_an_npz_is_noticed_by_its_checksum(tmp_path):
    content = zipped(X=TABLE)
    changed = content.replace(np.float64(7).tobytes(), np.float64(8).tobytes(), 1)
    assert error_of(tmp_path / "x.npz", changed).startswith("is not a plain numeric .npz file: Bad CRC-32")


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.csv")
    with pytest.raises(DataFileError, match="no regular file"):
        read_rows(tmp_path / "x.csv")


def test_an_unknown_ending_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(DataFileError) as caught:
        read_rows(tmp_path / "x.xlsx")
    assert str(caught.value) == "must be a file that ends in .npy, .npz, .csv, .tsv, .txt, .parquet"


def test_endings_may_be_in_capitals(tmp_path):
    write_table(tmp_path / "x.csv", TABLE).rename(tmp_path / "X.CSV")
    assert np.array_equal(read_rows(tmp_path / "X.CSV"), TABLE)
