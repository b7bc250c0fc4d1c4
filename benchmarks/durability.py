"""What it costs to survive: rounds per second with each setting of --survive, beside none.

python benchmarks/durability.py [--peers 8] [--rounds 3000] [--repeats 3] [--features 10] [--components 3]

The settings take turns in one sitting; medians and ratios are printed, and how many
checkpoints a peer wrote.
"""

import statistics
import tempfile
from pathlib import Path

import click
from peers import Figure, run_ours, topology_with

SETTINGS = ("nothing", "kill", "power")


@click.command()
@click.option("--peers", "d", type=int, default=8, show_default=True)
@click.option("--rounds", type=int, default=3000, show_default=True)
@click.option("--repeats", type=int, default=3, show_default=True)
@click.option("--features", "n", type=int, default=10, show_default=True)
@click.option("--components", "p", type=int, default=3, show_default=True)
def main(d: int, rounds: int, repeats: int, n: int, p: int) -> None:
    """Print medians of interleaved runs."""
    figures: dict[str, list[Figure]] = {setting: [] for setting in SETTINGS}
    with tempfile.TemporaryDirectory() as directory:
        topology = topology_with(Path(directory), d, rounds, n=n, p=p)
        for number in range(repeats):
            for setting in SETTINGS:
                out = Path(directory) / f"{setting}-{number}"
                figures[setting].append(run_ours(topology, out, survive=setting))
    speed = {setting: statistics.median(f.rounds_per_second for f in runs) for setting, runs in figures.items()}
    click.echo(f"d = {d}, n = {n}, p = {p}, {rounds} rounds, medians of {repeats} interleaved runs")
    click.echo(f"{'--survive':12}{'rounds/s':>10}{'of none':>10}{'CPU us/message':>16}{'checkpoints/peer':>18}")
    for setting, runs in figures.items():
        cpu = statistics.median(f.cpu_us_per_message for f in runs)
        saved = statistics.median(f.checkpoints for f in runs)
        click.echo(
            f"{setting:12}{speed[setting]:10.0f}{speed[setting] / speed['nothing']:9.2f}x{cpu:16.0f}{saved:18.0f}"
        )
    same = len({run.bits for runs in figures.values() for run in runs}) == 1
    click.echo(f"same bits: {'yes' if same else 'NO'}")


if __name__ == "__main__":
    main()
