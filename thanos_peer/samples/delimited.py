"""Tables as text: CSV, TSV and the like, with or without a header.

numpy reads chunks of lines, which is quick. Only where it stumbles are they looked at field by field, to name the
line and the column of the mistake. No line may be longer than numbers need, so that no file fills the memory.
"""

import contextlib
import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import TextIO

import numpy as np

from thanos_peer.block import Matrix
from thanos_peer.errors import DataFileError
from thanos_peer.samples.columns import Picked, Wanted
from thanos_peer.samples.table import MEND, Table, check_columns, even_chunks, rows_per_chunk

# Delimiters, in the order in which they are tried: a comma may also be inside a name.
DELIMITERS = "\t;|,"
LONGEST_FIRST_LINE = 64 * 2**20  # characters: names
# Characters of any other line, at most: in all, and per field.
LONGEST_LINE, LONGEST_PER_FIELD = 4096, 64
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
# A field is a text of its own where fields may be quoted or missing: so many at once, about.
FIELDS_AT_ONCE = 2**16
UNIT_SEPARATOR = "\x1f"
WHOLE = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True)
class _Layout:
    """How the lines of a file are to be read.

    Attributes:
        delimiter: Between two fields.
        columns: How many fields a line has.
        names: What the columns are called, where the file says so.
        picked: Those that are read.
        allows_missing: Whether a field may be missing.
    """

    delimiter: str
    columns: int
    names: tuple[str, ...] | None
    picked: Picked
    allows_missing: bool

    @property
    def longest_line(self) -> int:
        return LONGEST_LINE + LONGEST_PER_FIELD * self.columns

    def place(self, line: int, column: int) -> str:
        """In words, counted from 1."""
        name = "" if self.names is None else f" {self.names[column]!a}"
        return f"line {line}, column {column + 1}{name}"


@contextlib.contextmanager
def open_delimited(path: Path, wanted: Wanted) -> Iterator[Table]:
    """The table in a text file; names from its first line if that is not all numbers."""
    with path.open(encoding="utf-8-sig", errors="strict", newline=None) as file:
        with _readable_text():
            first, second = (_read_line(file, number) for number in (1, 2))
        layout = _layout_of(first, second, wanted)
        picked, header_lines = layout.picked, 0 if layout.names is None else 1
        lines = chain((first, second)[header_lines:], iter(partial(file.readline, layout.longest_line + 1), ""))
        chunks = _chunks(lines, layout, 1 + header_lines)
        if picked.places is not None:
            chunks = even_chunks(chunks, picked.count)
        yield Table(picked.count, picked.features, chunks)


@contextlib.contextmanager
def _readable_text() -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise DataFileError(f"is not UTF-8 text: {error.reason}") from error


def _read_line(file: TextIO, number: int) -> str:
    line = file.readline(LONGEST_FIRST_LINE + 1)
    _check_lengths([line], number, LONGEST_FIRST_LINE)
    return line


def _check_lengths(lines: Sequence[str], first_line: int, longest: int) -> None:
    if max(map(len, lines), default=0) > longest:
        place = next(place for place, line in enumerate(lines) if len(line) > longest)
        raise DataFileError(
            f"has more than {longest:,} characters in line {first_line + place}, too many for the columns it has"
        )


def _chunks(source: Iterator[str], layout: _Layout, first_line: int) -> Iterator[Matrix]:
    """All samples; blank lines are allowed at the end of the file only."""
    blank_line, has_samples = None, False
    while lines := _take(source, rows_per_chunk(layout.columns)):
        _check_lengths(lines, first_line, layout.longest_line)
        filled = len(lines)
        while filled and not lines[filled - 1].strip():
            filled -= 1
        if filled and blank_line is not None:
            raise _blank(blank_line)
        if filled:
            yield _parse(lines[:filled], first_line, layout)
            has_samples = True
        if filled < len(lines) and blank_line is None:
            blank_line = first_line + filled
        first_line += len(lines)
    if not has_samples:
        raise DataFileError("has a header and no samples; must hold a row per sample")


def _take(source: Iterator[str], count: int) -> list[str]:
    with _readable_text():
        return list(islice(source, count))


def _blank(line: int) -> DataFileError:
    return DataFileError(f"has a blank line {line}; a row per sample, and none left empty")


def _layout_of(first: str, second: str, wanted: Wanted) -> _Layout:
    if not first.strip():
        raise _blank(1) if second.strip() else DataFileError("is empty; must hold a row per sample")
    delimiter = _delimiter_of(first, second)
    fields = _split(first, 1, delimiter)
    is_number = [NUMBER.fullmatch(field) is not None or field.lower() in MISSING for field in fields]
    is_header = not all(is_number)
    if is_header and any(NUMBER.fullmatch(field) for field in fields):
        name = fields[is_number.index(False)]
        raise DataFileError(
            f"has {name!a} in line 1 beside numbers: neither a header nor a sample; name all columns, or mend it"
        )
    if _may_count(fields):
        raise DataFileError(
            f"has the numbers {fields[0]} to {fields[-1]} in line 1: the columns counted, or a row? Remove the "
            "line if it counts them; put a line with names before it if it is a row"
        )
    if wanted.columns.are_all:
        check_columns(len(fields), wanted.n)
    names = tuple(fields) if is_header else None
    return _Layout(delimiter, len(fields), names, wanted.picked(names, len(fields)), wanted.allows_missing)


def _may_count(fields: list[str]) -> bool:
    """Whether the first line may name columns by numbers: 0,1 and 1,2 do, and years, or any that rise evenly."""
    if len(fields) == 2:
        return fields in (["0", "1"], ["1", "2"])
    if len(fields) < 2 or not all(WHOLE.fullmatch(field) for field in fields):
        return False
    steps = {int(later) - int(earlier) for earlier, later in pairwise(fields)}
    return len(steps) == 1 and min(steps) > 0


def _delimiter_of(first: str, second: str) -> str:
    """The one that splits both lines into equally many fields; else one that splits the first at all."""
    there = [delimiter for delimiter in DELIMITERS if delimiter in first]
    for delimiter in there:
        with contextlib.suppress(DataFileError):
            if len(_split(first, 1, delimiter)) == len(_split(second, 2, delimiter)) > 1:
                return delimiter
    return there[0] if there else ","


def _split(line: str, number: int, delimiter: str) -> list[str]:
    try:
        fields = next(csv.reader([line], delimiter=delimiter, strict=True, skipinitialspace=True), [])
    except csv.Error as error:
        raise DataFileError(f"has a line {number} that cannot be split into fields: {error}") from error
    return [field.strip() for field in fields]


def _parse(lines: list[str], first_line: int, layout: _Layout) -> Matrix:
    """The numbers in some lines: quickly, where that is certain to be right; else field by field."""
    with contextlib.suppress(ValueError):
        samples = _loaded(lines, layout)
        if samples.shape == (len(lines), layout.picked.count) and np.isfinite(samples).all():
            return samples
    if layout.picked.places is not None or layout.allows_missing:
        step = max(1, FIELDS_AT_ONCE // layout.columns)
        with contextlib.suppress(ValueError, csv.Error):
            parts = (lines[start : start + step] for start in range(0, len(lines), step))
            return np.concatenate([_with_gaps(part, layout) for part in parts])
    return np.array([_numbers(line, number, layout) for number, line in enumerate(lines, start=first_line)])


def _loaded(lines: list[str], layout: _Layout) -> Matrix:
    """What numpy makes of lines.

    Raises:
        ValueError: They are not all as they should be.
    """
    places = layout.picked.places
    if places is not None:
        # numpy does not count the fields of a line when it reads some of them only.
        between = layout.columns - 1
        if any(line.count(layout.delimiter) != between or '"' in line for line in lines):
            raise ValueError("ragged, or quoted")
    samples: Matrix = np.loadtxt(
        lines, delimiter=layout.delimiter, quotechar='"', comments=None, usecols=places, ndmin=2
    )
    return samples


def _with_gaps(lines: list[str], layout: _Layout) -> Matrix:
    """The same where fields may be quoted, or missing.

    Raises:
        ValueError, csv.Error: They are not all as they should be.
    """
    rows = list(csv.reader(lines, delimiter=layout.delimiter, strict=True, skipinitialspace=True))
    if len(rows) != len(lines) or any(len(row) != layout.columns for row in rows):
        raise ValueError("ragged")
    places, gaps = layout.picked.places or range(layout.columns), 0
    texts = []
    for row in rows:
        fields = [row[place].strip() for place in places]
        if layout.allows_missing:
            is_missing = [field.lower() in MISSING for field in fields]
            gaps += sum(is_missing)
            fields = ["nan" if gap else field for field, gap in zip(fields, is_missing, strict=True)]
        texts.append(UNIT_SEPARATOR.join(fields))
    samples: Matrix = np.loadtxt(texts, delimiter=UNIT_SEPARATOR, comments=None, ndmin=2)
    # Other words for NaN are no numbers.
    if samples.shape != (len(lines), len(places)) or np.count_nonzero(~np.isfinite(samples)) != gaps:
        raise ValueError("not all numbers")
    samples[np.isnan(samples)] = np.nan
    return samples


def _numbers(line: str, number: int, layout: _Layout) -> list[float]:
    """One line field by field: its numbers, or what is wrong with it."""
    if not line.strip():
        raise _blank(number)
    fields = _split(line, number, layout.delimiter)
    if len(fields) != layout.columns:
        raise DataFileError(f"has {len(fields)} fields in line {number}; must have {layout.columns}, as in line 1")
    places = layout.picked.places or range(layout.columns)
    return [
        _number(fields[column], layout.place(number, column), allows_missing=layout.allows_missing)
        for column in places
    ]


def _number(field: str, place: str, *, allows_missing: bool) -> float:
    shown = ascii(field) if len(field) <= 40 else f"{field[:37]!a}..."
    if field.lower() in MISSING:
        if allows_missing:
            return float("nan")
        raise DataFileError(f"has a missing value ({shown}) in {place}; {MEND}")
    if NUMBER.fullmatch(field) is None:
        hint = "; write decimals with a point" if NUMBER.fullmatch(field.replace(",", ".")) else ""
        raise DataFileError(f"has {shown} in {place}; must be a finite number{hint}")
    value = float(field)
    if value in {float("inf"), float("-inf")}:
        raise DataFileError(f"has {shown} in {place}; must be a finite number of double precision")
    return value
