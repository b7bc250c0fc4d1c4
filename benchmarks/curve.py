"""What keys cost: rounds per second with every link encrypted, beside the same run in the clear.

python benchmarks/curve.py [--peers 8] [--rounds 2000] [--repeats 3]

Both take turns in one sitting; medians and ratios are printed. `thanos-peer run` always uses keys, so the peers
are started here one by one, on loopback.
"""

import statistics
import tempfile
from pathlib import Path

import click
from peers import Figure, figure_of, prepared, start_all, topology_with, wait_for_all


@click.command()
@click.option("--peers", "d", type=int, default=8, show_default=True)
@click.option("--rounds", type=int, default=2000, show_default=True)
@click.option("--repeats", type=int, default=3, show_default=True)
def main(d: int, rounds: int, repeats: int) -> None:
    """Print medians of interleaved runs."""
    figures: dict[str, list[Figure]] = {"in the clear": [], "with keys": []}
    with tempfile.TemporaryDirectory() as directory:
        topology = topology_with(Path(directory), d, rounds)
        for number in range(repeats):
            for name, runs in figures.items():
                place = Path(directory) / f"{name}-{number}"
                here = prepared(topology, place, has_keys=name == "with keys")
                wait_for_all(start_all(here, place / "run"))
                runs.append(figure_of(here, place / "run"))
    speed = {name: statistics.median(f.rounds_per_second for f in runs) for name, runs in figures.items()}
    click.echo(f"d = {d}, {rounds} rounds, medians of {repeats} interleaved runs")
    click.echo(f"{'':14}{'rounds/s':>10}{'of clear':>10}{'CPU us/message':>16}")
    for name, runs in figures.items():
        cpu = statistics.median(f.cpu_us_per_message for f in runs)
        click.echo(f"{name:14}{speed[name]:10.0f}{speed[name] / speed['in the clear']:9.2f}x{cpu:16.0f}")
    same = len({run.bits for runs in figures.values() for run in runs}) == 1
    click.echo(f"same bits: {'yes' if same else 'NO'}")


if __name__ == "__main__":
    main()
