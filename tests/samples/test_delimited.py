import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thanos_peer.errors import DataFileError
from thanos_peer.samples import delimited, open_table, read_rows, table

FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def rows_of(path, text, **options):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_rows(path, **options)


def error_of(path, text, **options):
    with pytest.raises(DataFileError) as caught:
        rows_of(path, text, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("header", ["", '"a, with; all| of them"{0}b{0}c\n'])
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_delimiter_header_line_ends_and_byte_order_mark_are_found_out(tmp_path, delimiter, header, ending, mark):
    text = (header + '1{0}"2"{0}-3e-2\n 4 {0}.5{0} 6.\n\n').format(delimiter)
    path = tmp_path / "x.csv"
    assert rows_of(path, mark + text.replace("\n", ending)).tolist() == [[1, 2, -0.03], [4, 0.5, 6]]
    with open_table(path) as opened:
        assert opened.features == (("a, with; all| of them", "b", "c") if header else None)


@given(rows=st.lists(st.lists(FLOATS, min_size=3, max_size=3), min_size=1, max_size=20))
def test_numbers_come_back_to_the_last_bit(tmp_path_factory, rows):
    text = "".join(",".join(map(repr, row)) + "\n" for row in rows)
    found = rows_of(tmp_path_factory.getbasetemp() / "bits.csv", text)
    assert found.tobytes() == np.array(rows).tobytes()


@given(text=st.text(st.sampled_from('12,;|\t\n\r"ea.-+ \x00\u2028\ufeff'), max_size=40) | st.binary(max_size=40))
def test_any_text_is_a_table_or_a_data_file_error(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    try:
        assert np.isfinite(rows_of(path, text)).all()
    except DataFileError as error:
        assert str(error)  # noqa: PT017


@given(text=st.text(st.sampled_from("0123456789.eE+-_ naifxd\u0661"), min_size=1, max_size=6))
def test_a_field_is_a_number_quickly_just_when_it_is_one_slowly(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "field.csv"
    try:
        quick = rows_of(path, f"1\n{text}\n2\n").tolist()
    except DataFileError:
        quick = None
    try:
        slow = [[1.0], [delimited._number(text.strip(), "", allows_missing=False)], [2.0]]  # noqa: SLF001
    except DataFileError:
        slow = None
    assert quick == slow


def test_one_column_needs_no_delimiter(tmp_path):
    assert rows_of(tmp_path / "x.txt", "length\n1\n2\n").tolist() == [[1], [2]]


@pytest.mark.parametrize("word", ["", "NA", "n/a", "nan", "NaN", "null", "None", "?", '""'])
def test_a_missing_value_is_refused_with_line_and_column(tmp_path, word):
    shown = word.strip('"')
    message = f"has a missing value ('{shown}') in line 3, column 2{{}}; {table.MEND}"
    assert error_of(tmp_path / "x.csv", f"a,b\n1,2\n3,{word}\n") == message.format(" 'b'")
    assert error_of(tmp_path / "x.csv", f"0,5\n1,2\n3,{word}\n") == message.format("")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3,high\n", "has 'high' in line 3, column 2 'b'; must be a finite number"),
        ("a,b\n1,inf\n", "has 'inf' in line 2, column 2 'b'; must be a finite number"),
        ("a,b\n1,-1e999\n", "has '-1e999' in line 2, column 2 'b'; must be a finite number of double precision"),
        (
            "a;b\n1;2,5\n",
            "has '2,5' in line 2, column 2 'b'; must be a finite number; write decimals with a point",
        ),
        ("1_0\n", "has a header and no samples; must hold a row per sample"),
        ("a\n1_0\n", "has '1_0' in line 2, column 1 'a'; must be a finite number"),
        ("a,b\n1,2\n3\n", "has 1 fields in line 3; must have 2, as in line 1"),
        ("a,b\n1,2\n3,4,5\n", "has 3 fields in line 3; must have 2, as in line 1"),
        ("a,b\n1,2\n\n3,4\n", "has a blank line 3; a row per sample, and none left empty"),
        ("\n1,2\n", "has a blank line 1; a row per sample, and none left empty"),
        ("", "is empty; must hold a row per sample"),
        ("\n\n", "is empty; must hold a row per sample"),
        ("a,b\n", "has a header and no samples; must hold a row per sample"),
        ("a,b\n\n\n", "has a header and no samples; must hold a row per sample"),
        (",a,b\n0,1,2\n", "has no name for column 1; name it, or leave it out if it only numbers the rows"),
        ("a,b,a\n0,1,2\n", "has the name 'a' in columns 1 and 3; names are unique"),
        ('a,b\n1,"2\n3,4\n', "has a line 2 that cannot be split into fields: unexpected end of data"),
        (b"a,b\n1,\xff\n", "is not UTF-8 text: invalid start byte"),
        (f"a,b\n1,{'x' * 90}\n", f"has '{'x' * 37}'... in line 2, column 2 'b'; must be a finite number"),
        (f"a,b\n1,{' ' * 9000}2\n", "has more than 4,224 characters in line 2, too many for the columns it has"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path, text, message):
    assert error_of(tmp_path / "x.csv", text) == message


def test_a_number_of_columns_other_than_n_is_refused(tmp_path):
    assert error_of(tmp_path / "x.csv", "1,5,3\n", n=4) == "has 3 columns; must have n = 4, one per feature"
    expected = (
        "has 1 column; must have n = 3, one per feature; separate fields by tabs, semicolons, bars or commas"
    )
    assert error_of(tmp_path / "x.txt", "1 2 3\n", n=3) == expected


def test_lines_are_counted_over_all_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "CHUNK_ROWS", 4)
    text = "a,b\n" + "1,2\n" * 10
    assert rows_of(tmp_path / "x.csv", text).shape == (10, 2)
    assert re.search("line 12, column 1", error_of(tmp_path / "x.csv", f"{text}x,2\n"))
    assert error_of(tmp_path / "x.csv", f"{text}\n\n\n\n\n\n1,2\n").startswith("has a blank line 12;")
    assert rows_of(tmp_path / "x.csv", text + "\n" * 20).shape == (10, 2)


def test_a_first_line_without_an_end_is_refused_and_not_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "LONGEST_FIRST_LINE", 1000)
    assert error_of(tmp_path / "x.csv", "1," * 501).startswith("has more than 1,000 characters in line 1")


@pytest.mark.parametrize("first", ["inf,2", "1,2x", "3,oops"])
def test_a_first_line_of_numbers_and_something_else_is_neither_header_nor_sample(tmp_path, first):
    file = tmp_path / "table.csv"
    file.write_text(f"{first}\n3,4\n5,7\n", encoding="utf-8")
    with pytest.raises(DataFileError, match="neither a header nor a sample"):
        read_rows(file)


@pytest.mark.parametrize("first", ["0,1", "1,2", "0,1,2,3", '"1";"2";"3"', "0\t1\t2"])
def test_a_first_line_that_counts_the_columns_is_refused(tmp_path, first):
    file = tmp_path / "x.csv"
    one, last = first.strip('"')[0], first.strip('"')[-1]
    message = error_of(file, f"{first}\n")
    assert message.startswith(f"has the numbers {one} to {last} in line 1: the columns counted, or a row? Remove")
    assert "put a line with names before it" in message
    names = re.sub("[0-9]", lambda digit: f"x{digit[0]}", first)
    assert len(rows_of(file, f"{names}\n{first}\n")) == 1


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ("2001,2002,2003", "2001 to 2003"),
        ('"1990";"2000";"2010"', "1990 to 2010"),
        ("-1\t0\t1\t2", "-1 to 2"),
        ("01,02,03", "01 to 03"),
    ],
)
def test_a_first_line_of_numbers_that_rise_evenly_may_be_a_header_and_is_refused(tmp_path, first, said):
    message = error_of(tmp_path / "x.csv", f"{first}\n")
    assert message.startswith(f"has the numbers {said} in line 1: the columns counted, or a row? Remove")


@pytest.mark.parametrize(
    "first",
    [
        *("0", "1", "0.0,1.0", "0,1,3", "2,3", "1,0"),
        *(
            "2001,2002",
            "2001,2002,2004",
            "2003,2002,2001",
            "5,5,5",
            "2001,2002,2003.0",
            f"1,2,{3:0100}",
            f"1,2,{10**17}",
            "1,2,1" + "0" * 300,
        ),
    ],
)
def test_other_first_lines_of_numbers_are_samples(tmp_path, first):
    assert rows_of(tmp_path / "x.csv", f"{first}\n").shape == (1, len(first.split(",")))
