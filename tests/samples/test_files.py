import contextlib

import numpy as np
import pytest
from samples.tables import write_table

from thanos_peer.errors import DataFileError
from thanos_peer.samples import FORMATS, Table, open_table, read_moments, read_rows

ROWS = np.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize("announced", [3, 5])
@pytest.mark.parametrize("read", [read_rows, read_moments])
def test_a_file_with_other_rows_than_it_announces_is_refused(tmp_path, monkeypatch, announced, read):
    @contextlib.contextmanager
    def open_liar(path, n):  # noqa: ARG001
        yield Table(3, None, iter([ROWS[:2], ROWS[2:]]), announced)

    monkeypatch.setitem(FORMATS, ".npy", open_liar)
    (tmp_path / "x.npy").touch()
    with pytest.raises(DataFileError, match=f"^does not hold the {announced} samples that it announces"):
        read(tmp_path / "x.npy")


def test_an_error_of_the_code_that_uses_the_samples_is_not_one_of_the_file(tmp_path):
    def use():
        with open_table(write_table(tmp_path / "x.csv", ROWS)) as table:
            for _ in table.chunks:
                raise OSError("the other disk is full")

    with pytest.raises(OSError, match="the other disk is full"):
        use()


def test_all_rows_come_back_from_every_format(tmp_path, kind):
    assert np.array_equal(read_rows(write_table(tmp_path / f"x.{kind}", ROWS), n=3), ROWS)
