"""How many sums the phase `leading` and the method `proximal` take: what predictions and `auto` expect.

And how many iterations `proximal-tracking` takes, each of as many rounds as its graph needs.

python benchmarks/typical_sums.py [--seed 1]

Sums are exact, so their number is the same on every graph and for every split of the samples: one agent that has
all of them tells it. Problems are those of `random_problems` with n and p set, and plain noise, which `topology
new` has; samples have 2-norm 1. A gap is of the objective, to the best that was seen. Means are printed: what is
to be small is the sum of all bytes. In the table by weight they are scaled to p = 4, as sqrt(p) grows.
"""

from collections.abc import Iterator
from dataclasses import replace

import click
import numpy as np
from random_problems import SAMPLES, draw

from thanos_peer.algorithm.leading import Leading
from thanos_peer.algorithm.method import Sent, Setup, Term
from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.algorithm.proximal import Proximal
from thanos_peer.algorithm.proximal_tracking import Agreement, ProximalTracking
from thanos_peer.algorithm.regularizers import L1, L21, Regularizer
from thanos_peer.algorithm.schedules import Parameters
from thanos_peer.algorithm.stiefel import random_point
from thanos_peer.block import Matrix

KINDS = [name for name in SAMPLES if name not in {"few", "thin", "lopsided"}]  # a split alone changes nothing here
SHAPES = [(20, 3), (100, 3), (100, 5), (100, 10), (300, 3), (400, 5)]
WEIGHTS = (0.001, 0.007, 0.02, 0.05, 0.07, 0.1, 0.2)
MOST, TOLERANCE, GAP = 1500, 1e-10, 1e-8


def drawn(seed: int, index: int, n: int, p: int) -> Matrix:
    """A of one of the random problems, of this shape, with one to three samples a feature; of norm 1."""
    m = n + 1 + index % 3 * n
    if index == len(KINDS):
        A = np.random.default_rng([seed, n, p]).standard_normal((n, m))
    else:
        problem = replace(draw(seed, len(SAMPLES) * index), data=KINDS[index], n=n, p=p, d=1, counts=(m,))
        A = replace(problem, center=False, scale=False).samples()[0].T
    return np.asarray(A / np.linalg.norm(A, 2))


def sums_of_leading(f: SparsePCA, p: int) -> tuple[int, Matrix]:
    """How many, and the vectors."""
    n = f.whole_gram().shape[0]
    method = Leading(f, random_point(n, p, np.random.default_rng(1)), f.variance(), 1)
    state, word, count = method.begin(), None, 0
    while word is None or not method.is_last(word):
        state, word = method.decide(state, method.numbers(word))
        count += 1
    return count, method.vectors(word)


def sums_of_proximal(f: SparsePCA, g: Regularizer, start: Matrix) -> tuple[int, int]:
    """How many to the gap, and to the tolerance."""
    method = Proximal(Setup(
        f=f, g=g, whole=g, d=1, start=start, parameters=_none, size=1.0, tolerance=TOLERANCE, most=MOST,
    ))  # fmt: skip
    state, word, values = method.begin(), None, []
    while word is None or not method.is_last(word):
        state, word = method.decide(state, method.numbers(word))
        X = method.answer(word, *start.shape)[0]
        values.append(f.value(X) + g.value(X))
    best = min(values)
    reached = next(i for i, each in enumerate(values) if each - best <= GAP * max(1.0, abs(best)))
    return reached + 1, len(values)


class Alone:
    """What an agent without neighbors hears: itself."""

    def __init__(self, sent: Sent) -> None:
        self._sent = sent

    def mix(self, term: Term) -> Matrix:
        """As it is."""
        return np.asarray(term(*self._sent))

    def mismatch(self, X: Matrix) -> Matrix:
        """None."""
        return np.zeros(X.shape[:-2])

    def largest_eta(self) -> Matrix:
        """Its own."""
        return self._sent.eta


def iterations_of_tracking(f: SparsePCA, g: Regularizer, start: Matrix) -> int:
    """How many to the tolerance."""
    setup = Setup(f=f, g=g, whole=g, d=1, start=start, parameters=_none, size=1.0, bound=f.variance())
    agreement = Agreement(setup)
    method = ProximalTracking(replace(setup, agreed=agreement.decide(None, agreement.numbers(None))[1]))
    state, k = method.start(start), 0
    while state.residual > TOLERANCE and k < MOST:
        state, k = method.step(k, state, Alone(method.send(state))), k + 1
    return k


def _none() -> Parameters:
    raise AssertionError("these are of THANOS")


def measured(seed: int) -> Iterator[tuple[float, ...]]:
    """n, p, mu, whether it is l1 and noise; sums of leading, of proximal to gap and tolerance; iterations."""
    for n, p in SHAPES:
        for index in range(len(KINDS) + 1):
            f = SparsePCA(drawn(seed, index, n, p))
            leading, start = sums_of_leading(f, p)
            for mu in WEIGHTS:
                for g in (L1(mu), L21(mu)):
                    tracking = iterations_of_tracking(f, g, start)
                    is_noise = index == len(KINDS)
                    yield n, p, mu, isinstance(g, L1), is_noise, leading, *sums_of_proximal(f, g, start), tracking


def means(rows: Matrix) -> str:
    """Of each column."""
    return " | ".join(f"{mean:.0f}" for mean in rows.mean(axis=0))


@click.command()
@click.option("--seed", default=1, show_default=True)
def main(seed: int) -> None:
    """Print means of each number of sums, by weight and by shape."""
    rows = np.array(list(measured(seed)))
    n, p, mu, is_l1, is_noise = rows[:, :5].T
    scaled = rows[:, 6:] * np.sqrt(4 / p)[:, None]
    each_of = "to a gap of 1e-8 | to 1e-10 | tracking to 1e-10"
    click.echo(f"| mu | l1: {each_of} | l2,1: {each_of} |\n|---|---|---|---|---|---|---|")
    for each in WEIGHTS:
        shown = (means(scaled[(mu == each) & (is_l1 == kind)]) for kind in (1, 0))
        click.echo(f"| {each} | {' | '.join(shown)} |")
    numbers = "leading | proximal to a gap of 1e-8 | to 1e-10 | tracking to 1e-10"
    click.echo(f"\n| n | p | leading, noise | {numbers} |\n|---|---|---|---|---|---|---|")
    for shape in SHAPES:
        here = (n == shape[0]) & (p == shape[1])
        noise = means(rows[here & (is_noise == 1), 5:6])
        click.echo(f"| {shape[0]} | {shape[1]} | {noise} | {means(rows[here, 5:])} |")


if __name__ == "__main__":
    main()
