import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

READER = """
import re, sys
from pathlib import Path
from thanos_peer.samples import read_moments
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
before = peak()
found = read_moments(Path(sys.argv[1]), allows_missing=True)
assert found.count == int(sys.argv[2])
if found.present.min() < found.count:
    assert found.filled(found.sums / found.present).count == found.count
print((peak() - before) / 1024)
"""
ROWS, COLUMNS = 400_000, 50  # 160 MB


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A large table of zeros, which takes no room on the disk."""
    path = tmp_path_factory.mktemp("large") / "zeros.npy"
    np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(ROWS, COLUMNS)).flush()
    return path


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux says how much memory was resident")
@pytest.mark.parametrize("kind", ["npy", "npy by columns", "npz", "npz with gaps"])
def test_a_large_file_is_read_with_a_part_of_its_size_resident(table, tmp_path, kind):
    path = table
    if kind == "npy by columns":
        path = tmp_path / "columns.npy"
        np.lib.format.open_memmap(
            path, mode="w+", dtype=np.float64, shape=(ROWS, COLUMNS), fortran_order=True
        ).flush()
    # As a .npz file, the 160 MB are a thousand times smaller.
    if kind == "npz":
        path = tmp_path / "zeros.npz"
        np.savez_compressed(path, X=np.load(table, mmap_mode="r"))
        assert path.stat().st_size < 10**6
    if kind == "npz with gaps":
        path = tmp_path / "gaps.npz"
        rows = np.zeros((ROWS, COLUMNS))
        rows[::20] = np.nan
        np.savez_compressed(path, X=rows)
        assert path.stat().st_size < 10**6
        del rows
    done = subprocess.run(
        [sys.executable, "-c", READER, path, str(ROWS)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )
    assert 0 < float(done.stdout) < 100, "MiB"
