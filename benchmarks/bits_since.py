"""Whether THANOS and DESTINY have the bits that they had at an older commit: of X and D of all agents.

python benchmarks/bits_since.py 96f9c87

Takes the code of that commit out of git and runs the same networks with it and with the code of this directory,
each for 200 rounds with both engines and both precisions. Prints how many networks have the same bits. They are
the files in topologies/ of that commit, and a ring whose peers have data files, as they are or prepared, with both
starts that both programs know. Networks that either program refuses are left out.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np

ROOT = Path(__file__).parents[1]
ROUNDS = 200
METHODS, PRECISIONS, ENGINES = ("thanos", "destiny"), ("float64", "float32"), ("AgentNetwork", "StackedNetwork")
STARTS: dict[str, dict[str, Any]] = {
    "random": {"kind": "random", "seed": 1},
    "destiny": {"kind": "destiny", "seed": 1, "max_rounds": 200, "tolerance": 1e-6},
}
D, N = 6, 8


def shipped(directory: Path) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """Every shipped file with both methods: a label, the file, and what it says."""
    for file, method in product(sorted((directory / "topologies").glob("*.toml")), METHODS):
        raw = tomllib.loads(file.read_text())
        raw["algorithm"]["method"] = method
        if method == "destiny":
            raw["problem"] |= {"regularizer": "none", "mu": 0.0}
            raw["algorithm"].pop("smoothing", None)
        yield "shipped files", file, raw


def with_files(directory: Path) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """A ring with data files: as they are or prepared, from both starts, with l1 and l2,1."""
    rng = np.random.default_rng(1)
    for i in range(D):
        np.save(directory / f"{i}.npy", rng.normal(size=(5 + 20 * i, N)) * np.arange(1, N + 1) + 3)
    peers = [{"id": i, "address": f"tcp://127.0.0.1:{17000 + i}", "data": f"{i}.npy"} for i in range(D)]
    for regularizer, is_prepared, start in product(("l1", "l21"), (False, True), STARTS):
        data = {
            "kind": "files",
            "center": is_prepared,
            "scale": is_prepared,
            "overall": "auto" if is_prepared else "raw",
        }
        step = {"rule": "bb", "first": 0.1} if is_prepared else {"rule": "constant", "eta": 1e-4}
        algorithm = {
            "method": "thanos",
            "beta": 1.0,
            "tolerance": 0.0,
            "start": STARTS[start],
            "step": step,
            "smoothing": {"rule": "constant", "sigma": 0.5},
        }
        label = f"data files {'prepared' if is_prepared else 'as they are'}, start {start}"
        problem = {"n": N, "p": 2, "regularizer": regularizer, "mu": 0.1, "data": data}
        yield (
            label,
            directory / "files.toml",
            {
                "name": "files",
                "weights": "metropolis",
                "edges": [[i, (i + 1) % D] for i in range(D)],
                "problem": problem,
                "algorithm": algorithm,
                "peers": peers,
            },
        )


def digests(directory: Path) -> Iterator[tuple[str, str]]:
    """Label and digest of each network, "refused" where this program does not take it."""
    from thanos_peer import simulate  # noqa: PLC0415 - of the commit that PYTHONPATH names
    from thanos_peer.errors import ThanosPeerError  # noqa: PLC0415
    from thanos_peer.problem import build  # noqa: PLC0415
    from thanos_peer.topology import parse  # noqa: PLC0415

    for label, file, raw in (*shipped(directory), *with_files(directory)):
        for precision, engine in product(PRECISIONS, ENGINES):
            raw["algorithm"] |= {"exchange": precision, "max_rounds": ROUNDS}
            try:
                network: Any = getattr(simulate, engine)(build(parse(raw, file=file)))
                while not network.is_done:
                    network.advance()
            except ThanosPeerError:
                yield label, "refused"
                continue
            tracked = network.D if hasattr(network, "D") else network.array("D")
            numbers = np.ascontiguousarray(network.X).tobytes() + np.ascontiguousarray(tracked).tobytes()
            yield label, hashlib.sha256(numbers).hexdigest()


def digests_by(code: Path, directory: Path) -> list[tuple[str, str]]:
    """The same, by the code in that directory."""
    command = [sys.executable, __file__, "--digests", str(directory)]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(code)}, stdout=subprocess.PIPE, check=True)
    return [(label, digest) for label, digest in json.loads(done.stdout)]


@click.command()
@click.argument("commit")
def main(commit: str) -> None:
    """Compare the bits of COMMIT with those of this directory."""
    with tempfile.TemporaryDirectory() as directory:
        older = Path(directory)
        tree = subprocess.run(["git", "-C", str(ROOT), "archive", commit], stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "-x", "-C", str(older)], input=tree.stdout, check=True)
        before, now = digests_by(older, older), digests_by(ROOT, older)
    same, compared = Counter[str](), Counter[str]()
    for (label, old), (_, new) in zip(before, now, strict=True):
        is_run = "refused" not in (old, new)
        compared[label] += is_run
        same[label] += is_run and old == new
    for label, count in compared.items():
        print(f"{label}: {same[label]} of {count} have the same bits")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--digests"]:
        print(json.dumps(list(digests(Path(sys.argv[2])))))
    else:
        main()
