"""What masks cost: rounds per second of sums with masks, beside the same sums without.

python benchmarks/masks.py [--peers 8] [--rounds 1000] [--repeats 5] [--features 10]

Both have keys and take turns in one sitting; medians and ratios are printed. Every sum of `proximal` is masked
anew, so its rounds are looked at.
"""

import statistics
import tempfile
from pathlib import Path

import click
from peers import Figure, figure_of, prepared, start_all, wait_for_all

from thanos_peer.topology import Topology, families, load
from thanos_peer.topology.render import Draft, render


def topology_with(directory: Path, d: int, rounds: int, n: int) -> Topology:
    """A network that sums in all its rounds."""
    file = directory / "masks.toml"
    draft = Draft(
        name=f"masks-{d}",
        d=d,
        edges=families.erdos_renyi(d, 0.5, seed=1),
        title="A benchmark.",
        n=n,
        method="proximal",
        samples=10 * d,
        max_rounds=rounds,
        tolerance=0.0,
    )
    file.write_text(render(draft), encoding="utf-8")
    return load(file)


@click.command()
@click.option("--peers", "d", type=int, default=8, show_default=True)
@click.option("--rounds", type=int, default=1000, show_default=True)
@click.option("--repeats", type=int, default=5, show_default=True)
@click.option("--features", "n", type=int, default=10, show_default=True)
def main(d: int, rounds: int, repeats: int, n: int) -> None:
    """Print medians of interleaved runs."""
    figures: dict[str, list[Figure]] = {"plain": [], "masked": []}
    with tempfile.TemporaryDirectory() as directory:
        topology = topology_with(Path(directory), d, rounds, n)
        for number in range(repeats):
            for name, runs in figures.items():
                place = Path(directory) / f"{name}-{number}"
                here = prepared(topology, place, has_keys=True)
                if name == "masked":
                    text = here.file.read_text(encoding="utf-8")
                    here.file.write_text(text.replace("masks = false", "masks = true"), encoding="utf-8")
                    here = load(here.file)
                    assert here.masks_sums, "the file has said no, in these words"  # noqa: S101
                wait_for_all(start_all(here, place / "run"))
                runs.append(figure_of(here, place / "run"))
    speed = {name: statistics.median(f.rounds_per_second for f in runs) for name, runs in figures.items()}
    click.echo(f"d = {d}, n = {n}, {rounds} rounds, medians of {repeats} interleaved runs")
    click.echo(f"{'':10}{'rounds/s':>10}{'of plain':>10}{'CPU us/message':>16}")
    for name, runs in figures.items():
        cpu = statistics.median(f.cpu_us_per_message for f in runs)
        click.echo(f"{name:10}{speed[name]:10.0f}{speed[name] / speed['plain']:9.2f}x{cpu:16.0f}")
    same = len({run.bits for runs in figures.values() for run in runs}) == 1
    click.echo(f"same bits: {'yes' if same else 'NO'}")


if __name__ == "__main__":
    main()
