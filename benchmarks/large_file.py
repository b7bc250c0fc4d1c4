"""How much memory a peer with a large data file takes: the file's size beside the most that `start` had resident.

python benchmarks/large_file.py [--npy-gigabytes 2] [--csv-gigabytes 0.25] [--columns 200] [--directory /tmp]

Makes a .npy (stored row by row, and column by column) and a .csv in a temporary directory, and runs two peers on
each: `thanos-peer start` with the large file, and one with a thousand samples. They center and scale all samples,
find their start by themselves and minimise. Printed is the peak of the first process as Linux counted it (VmHWM;
getrusage would count what this process had when it started the other), beside that with a small file.
"""

import contextlib
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

GIGABYTE = 10**9
BLOCK_ROWS = 4096
FEW = 1000  # samples of the other peer
TOPOLOGY = """
name = "large-file"
edges = [[0, 1]]

[problem]
n = {columns}
p = 2
regularizer = "l1"
mu = 0.01
data = {{ kind = "files", center = true, scale = true, overall = "auto" }}

[algorithm]
method = "thanos"
beta = "auto"
max_rounds = 50
start = {{ kind = "destiny", seed = 1, max_rounds = 50 }}
step = {{ rule = "bb", first = "auto" }}
smoothing = {{ rule = "constant", sigma = 0.5 }}

[[peers]]
id = 0
address = "ipc://{directory}/0.sock"

[[peers]]
id = 1
address = "ipc://{directory}/1.sock"
data = "few.npy"
"""


def write_npy(path: Path, size: float, columns: int, *, is_by_columns: bool) -> None:
    """A table of about so many bytes; written through a map, block by block."""
    rows = max(1, int(size // (8 * columns)))
    table = np.lib.format.open_memmap(
        path, mode="w+", dtype=np.float64, shape=(rows, columns), fortran_order=is_by_columns
    )
    rng = np.random.default_rng(1)
    for first in range(0, rows, BLOCK_ROWS):
        table[first : first + BLOCK_ROWS] = rng.standard_normal((min(BLOCK_ROWS, rows - first), columns))
    table.flush()


def write_csv(path: Path, size: float, columns: int) -> None:
    """The same as text; one block of rows again and again."""
    block = np.random.default_rng(1).standard_normal((BLOCK_ROWS, columns))
    text = "".join(",".join(map(repr, row)) + "\n" for row in block.tolist())
    with path.open("w", encoding="ascii") as file:
        file.write(",".join(f"feature_{j}" for j in range(columns)) + "\n")
        while file.tell() < size:
            file.write(text)


def run_peers(directory: Path, samples: Path, columns: int) -> tuple[float, float]:
    """Seconds and peak MB of a peer with these samples, which runs to its end beside another."""
    file = directory / "net.toml"
    file.write_text(TOPOLOGY.format(columns=columns, directory=directory), encoding="utf-8")
    write_npy(directory / "few.npy", 8 * columns * FEW, columns, is_by_columns=False)
    start = [sys.executable, "-m", "thanos_peer", "start", "--topology", str(file)]
    start += ["--out", str(directory / "out")]
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((directory / "log").open("wb"))
        began = time.monotonic()
        peers = [
            stack.enter_context(subprocess.Popen([*start, *options], stderr=log))
            for options in (["--id", "0", "--data", str(samples)], ["--id", "1"])
        ]
        for peer in peers:
            stack.callback(peer.kill)
        peak = 0
        while peers[0].poll() is None:
            found = re.search(
                r"VmHWM:\s+(\d+) kB", Path(f"/proc/{peers[0].pid}/status").read_text(encoding="ascii")
            )
            peak = int(found[1]) if found else peak
            time.sleep(0.01)
        seconds = time.monotonic() - began
        if peers[0].returncode or peers[1].wait(60):
            raise click.ClickException((directory / "log").read_text(encoding="utf-8"))
    return seconds, peak * 1024 / 10**6


@click.command()
@click.option("--npy-gigabytes", type=float, default=2.0, show_default=True)
@click.option("--csv-gigabytes", type=float, default=0.25, show_default=True)
@click.option("--columns", type=int, default=200, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path, file_okay=False), help="Where the files are made.")
def main(npy_gigabytes: float, csv_gigabytes: float, columns: int, directory: Path | None) -> None:
    """Make files, run a peer on each, and print a line each."""
    npy, csv, small = npy_gigabytes * GIGABYTE, csv_gigabytes * GIGABYTE, 8 * columns * FEW
    kinds: dict[str, Callable[[Path], None]] = {
        f".npy, {FEW} samples": lambda path: write_npy(path, small, columns, is_by_columns=False),
        ".npy, row by row": lambda path: write_npy(path, npy, columns, is_by_columns=False),
        ".npy, column by column": lambda path: write_npy(path, npy, columns, is_by_columns=True),
        ".csv": lambda path: write_csv(path, csv, columns),
    }
    click.echo(f"{columns} columns, thanos-peer start")
    click.echo(f"{'file':24}{'MB':>8}{'seconds':>9}{'peak MB':>9}")
    for kind, write in kinds.items():
        with tempfile.TemporaryDirectory(dir=directory) as made:
            path = Path(made) / f"samples{kind.partition(',')[0]}"
            write(path)
            seconds, peak = run_peers(Path(made), path, columns)
            click.echo(f"{kind:24}{path.stat().st_size / 10**6:8.0f}{seconds:9.1f}{peak:9.0f}")


if __name__ == "__main__":
    main()
