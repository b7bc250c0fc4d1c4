"""`benchmarks/large_file.py`, with files that are not large."""

import re
import sys
from pathlib import Path

import pytest
from programs import run

SCRIPT = Path(__file__).parents[2] / "benchmarks/large_file.py"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux says how much memory was resident")
def test_every_kind_of_file_is_made_and_read_by_a_peer(tmp_path):
    sizes = ("--npy-gigabytes", 0.002, "--csv-gigabytes", 0.001, "--columns", 10)
    printed = run(sys.executable, SCRIPT, *sizes, "--directory", tmp_path)
    found = re.findall(r"(?m)^(\.\w+.*?) +(\d+) +([\d.]+) +(\d+)$", printed)
    kinds, megabytes, _, peaks = zip(*found, strict=True)
    assert kinds == (".npy, 1000 samples", ".npy, row by row", ".npy, column by column", ".csv")
    assert megabytes == ("0", "2", "2", "2")
    assert all(20 < int(peak) < 200 for peak in peaks), printed
    assert not list(tmp_path.iterdir())
