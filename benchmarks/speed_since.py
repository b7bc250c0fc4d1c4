"""How fast peers are beside those of an older commit: rounds per second, measured in turns in one sitting.

python benchmarks/speed_since.py 96f9c87 [--peers 8 --peers 32] [--repeats 5]

Takes the code of that commit out of git. Both programs run the same file (Erdos-Renyi 0.5, n = 10, p = 3, THANOS),
a process per peer: bare, in the clear and with nothing saved; and as it comes, encrypted and safe from power cuts.
Prints medians, the ratio of now to then, the ratios of single turns, and whether the bits are the same.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).parents[1]
WAYS = ("bare, ipc", "bare, TCP", "as it comes, TCP")


def run_once(file: Path, way: str, directory: Path) -> dict[str, Any]:
    """One run by the code that PYTHONPATH names."""
    import peers  # noqa: PLC0415 - of that code

    from thanos_peer.topology import load  # noqa: PLC0415

    topology = load(file)
    if way == "as it comes, TCP":
        return asdict(peers.run_ours(topology, directory))
    return asdict(peers.run_bare(topology, directory, is_local=way == "bare, ipc"))


def python_with(code: Path, *arguments: str) -> str:
    """What a Python program prints that imports the code in a directory, and so do its children."""
    path = os.pathsep.join([str(code), str(code / "benchmarks")])
    # Without PYTHONSAFEPATH the working directory, or that of this file, would come first.
    environment = os.environ | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True).stdout


def run_by(code: Path, file: Path, way: str, directory: Path) -> dict[str, Any]:
    """The same, by the code in a directory."""
    printed = python_with(code, __file__, "--once", str(file), way, str(directory))
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def make_file(code: Path, directory: Path, d: int, rounds: int) -> Path:
    """The network, as the older code writes it."""
    return Path(python_with(code, __file__, "--file", str(directory), str(d), str(rounds)).strip())


@click.command()
@click.argument("commit")
@click.option("--peers", "sizes", type=int, multiple=True, default=(8, 32), show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True)
@click.option("--rounds", type=int, help="Rounds per run.  [default: 2000 with 8 peers, fewer with more]")
def main(commit: str, sizes: tuple[int, ...], repeats: int, rounds: int | None) -> None:
    """Compare the speed of COMMIT with that of this directory."""
    with tempfile.TemporaryDirectory() as directory:
        older = Path(directory) / "older"
        older.mkdir()
        tree = subprocess.run(["git", "-C", str(ROOT), "archive", commit], stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "-x", "-C", str(older)], input=tree.stdout, check=True)
        click.echo(f"{'':24}{'then':>10}{'now':>10}{'ratio':>8}   single turns")
        for d, way in product(sizes, WAYS):
            file = make_file(older, Path(directory), d, rounds or max(400, 128_000 // d**2))
            turns = []
            for number in range(repeats):
                # Who is first alternates: the machine's other work comes and goes.
                order = ("then", "now") if number % 2 == 0 else ("now", "then")
                codes, turn = {"then": older, "now": ROOT}, {}
                for name in order:
                    place = Path(directory) / f"{d}-{WAYS.index(way)}-{number}-{name}"
                    turn[name] = run_by(codes[name], file, way, place)
                turns.append(turn)
            report(d, way, turns)


def report(d: int, way: str, turns: list[dict[str, dict[str, Any]]]) -> None:
    """One line."""
    speeds = {name: [turn[name]["rounds_per_second"] for turn in turns] for name in ("then", "now")}
    then, now = (statistics.median(speeds[name]) for name in ("then", "now"))
    singles = " ".join(f"{b / a:.2f}" for a, b in zip(speeds["then"], speeds["now"], strict=True))
    bits = "" if len({turn[name]["bits"] for turn in turns for name in turn}) == 1 else "   DIFFERENT BITS"
    click.echo(f"d = {d:<3} {way:16}{then:10.0f}{now:10.0f}{now / then:7.2f}x   {singles}{bits}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--once"]:
        print(json.dumps(run_once(Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))))
    elif sys.argv[1:2] == ["--file"]:
        import peers

        print(peers.topology_with(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])).file)
    else:
        main()
