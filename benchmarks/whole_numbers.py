"""How long whole numbers for exact sums take, with the Gram matrix of n features.

python benchmarks/whole_numbers.py [N ...]

One agent encodes its numbers, adds those of a child, and decodes what the root has: seconds of CPU time, the best
of three.
"""

import time
from collections.abc import Callable

import click
import numpy as np

from thanos_peer.algorithm.fixed_point import FixedPoint


def seconds(work: Callable[..., object], *given: object) -> float:
    """Of the quickest of three."""
    taken = []
    for _ in range(3):
        began = time.process_time()
        work(*given)
        taken.append(time.process_time() - began)
    return min(taken)


@click.command()
@click.argument("sizes", type=int, nargs=-1)
def main(sizes: tuple[int, ...]) -> None:
    """Print a line for each n of SIZES."""
    form = FixedPoint.within(10.0, 8)
    click.echo("| n | numbers | encode | add | decode |\n|---|---|---|---|---|")
    for n in sizes or (100, 500, 2000):
        values = np.random.default_rng(n).standard_normal(n * (n + 1) // 2)
        raw = form.encode(values, 8)
        taken = seconds(form.encode, values, 8), seconds(form.total, raw, [raw]), seconds(form.decode, raw)
        click.echo(f"| {n} | {len(values)} | " + " | ".join(f"{each:.4f}" for each in taken) + " |")


if __name__ == "__main__":
    main()
