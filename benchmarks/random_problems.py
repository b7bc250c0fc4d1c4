"""Random networks with random samples: everything about one follows from a seed and an index.

Graphs and kinds of samples take turns: 132 problems in a row have every pair of them once. All else is drawn.

    even            Gaussian samples, as many at each agent
    lopsided        Gaussian samples, 80% of them at one agent
    subspaces       each agent in a subspace of its own, sizes of agents over a factor of 100 and more
    steep           singular values that fall by 2 to 4 powers of ten
    spikes          a few sparse directions and noise
    close           leading eigenvalues that differ by 1e-2 to 1e-6 of themselves
    few             fewer samples than components, all agents together
    thin            fewer samples than components at some agents
    wine, digits, breast_cancer, diabetes           of scikit-learn, evenly or 80% at one agent
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Matrix: TypeAlias = NDArray[np.float64]
Edge: TypeAlias = tuple[int, int]
Generator: TypeAlias = np.random.Generator

MUS = (0.0, 1e-3, 0.01, 0.05, 0.1, 0.3, 0.5, 1.0)  # for samples of 2-norm 1
REGULARIZERS = ("l1", "l21", "none")
REAL = ("wine", "digits", "breast_cancer", "diabetes")
LEAST_N, MOST_N, MOST_P, LEAST_D, MOST_D = 5, 100, 10, 3, 32
# Features of large problems, and their share of the problems that are no tables.
LARGE_N, LARGE = 200, 0.05
# Most agents that can have fewer samples than MOST_P together, with one each.
FEW_D = 9


@dataclass(frozen=True)
class Problem:
    """One network and what it is to find.

    Attributes:
        seed: It follows from this
        index: and this.
        graph: The kind of graph.
        d: How many agents there are.
        edges: Who is whose neighbor.
        data: The kind of samples.
        split: How they are shared out: "even", "varied", "lopsided" or, as the kind has it, "thin".
        counts: How many samples each agent has.
        n: Features.
        p: Components.
        regularizer: "l1", "l21" or "none".
        mu: Its weight.
        center: Whether to subtract the mean of all samples.
        scale: Whether to divide each feature by its standard deviation.
    """

    seed: int
    index: int
    graph: str
    d: int
    edges: tuple[Edge, ...]
    data: str
    split: str
    counts: tuple[int, ...]
    n: int
    p: int
    regularizer: str
    mu: float
    center: bool
    scale: bool

    @property
    def name(self) -> str:
        """All that matters, in one line."""
        weight = self.regularizer if self.regularizer == "none" else f"{self.regularizer} {self.mu:g}"
        kind = self.data if self.split in {self.data, "even"} else f"{self.data} {self.split}"
        treated = "".join(f", {what}" for what, is_so in self._treatment if is_so)
        shape = f"n {self.n}, p {self.p}, m {sum(self.counts)}"
        return f"{self.seed}/{self.index}: {self.graph} of {self.d}, {kind}, {shape}, {weight}{treated}"

    @property
    def _treatment(self) -> tuple[tuple[str, bool], ...]:
        return ("centered", self.center), ("scaled", self.scale)

    def samples(self) -> list[Matrix]:
        """An array for each agent, (m_i, n): the same ones each time."""
        rng = np.random.default_rng([self.seed, self.index, 1])
        rows = self._real_rows(rng) if self.data in REAL else self._drawn_rows(rng)
        return np.split(rows, np.cumsum(self.counts)[:-1])

    def _real_rows(self, rng: Generator) -> Matrix:
        return rng.permutation(real_samples(self.data, is_scaled=self.scale))

    def _drawn_rows(self, rng: Generator) -> Matrix:
        rows = SAMPLES[self.data](rng, self)
        offset = rng.standard_normal(self.n) * np.sqrt(np.mean(rows**2)) if self.center else 0.0
        unit = 10 ** rng.uniform(-3, 3)
        return np.asarray(unit * (rows + offset))


def draw(seed: int, index: int) -> Problem:
    """The problem of this seed and index."""
    rng = np.random.default_rng([seed, index])
    graph, data = list(GRAPHS)[index % len(GRAPHS)], DATA[index % len(DATA)]
    n, p, d = _draw_shape(rng, graph, data)
    split = _draw_split(rng, data)
    scale = _draw_scale(rng, data)
    if data in REAL:
        n = real_samples(data, is_scaled=scale).shape[1]
    regularizer = str(rng.choice(REGULARIZERS, p=(0.45, 0.4, 0.15)))
    mu = 0.0 if regularizer == "none" else float(rng.choice(MUS))
    return Problem(
        seed=seed,
        index=index,
        graph=graph,
        d=d,
        edges=draw_graph(rng, graph, d),
        data=data,
        split=split,
        counts=_draw_counts(rng, data, split, n, p, d),
        n=n,
        p=p,
        regularizer=regularizer,
        mu=mu,
        center=data in REAL or bool(rng.random() < 0.6),
        scale=scale,
    )


def _draw_shape(rng: Generator, graph: str, data: str) -> tuple[int, int, int]:
    """n, p and d, as far as the kinds of graph and samples allow them."""
    sizes = [d for d in range(LEAST_D, MOST_D + 1) if fits(graph, d)]
    if data == "few":
        d = int(rng.choice([d for d in sizes if d <= FEW_D]))
        p = int(rng.integers(d + 1, MOST_P + 1))
        return _draw_n(rng, p), p, d
    n = real_samples(data, is_scaled=True).shape[1] if data in REAL else _draw_n(rng)
    return n, int(rng.integers(2 if data == "thin" else 1, min(MOST_P, n) + 1)), int(rng.choice(sizes))


def _draw_n(rng: Generator, least: int = LEAST_N) -> int:
    return LARGE_N if rng.random() < LARGE else _log_integer(rng, max(least, LEAST_N), MOST_N)


def _draw_scale(rng: Generator, data: str) -> bool:
    """Tables are scaled, but for half of the digits, whose pixels have one unit; made spectra are left alone."""
    share = {"digits": 0.5, "subspaces": 0.0, "steep": 0.0, "close": 0.0}.get(data, 1.0 if data in REAL else 0.25)
    return bool(rng.random() < share)


def _log_integer(rng: Generator, least: int, most: int) -> int:
    return min(most, int(np.exp(rng.uniform(np.log(least), np.log(most + 1)))))


# ---------------------------------------------------------------------- who has how many samples


def _draw_split(rng: Generator, data: str) -> str:
    if data in {"even", "lopsided", "thin"}:
        return data
    if data in REAL:
        return str(rng.choice(["even", "lopsided"]))
    return str(rng.choice(["even", "varied"] if data == "few" else ["even", "varied", "lopsided"]))


def _draw_counts(rng: Generator, data: str, split: str, n: int, p: int, d: int) -> tuple[int, ...]:
    if split == "thin":
        is_thin = rng.permutation(np.arange(d) < rng.integers(1, d))
        return tuple(int(rng.integers(1, p) if thin else rng.integers(p, 4 * p)) for thin in is_thin)
    total = _log_integer(rng, 5, 40) * d
    # The spectrum is made up, and every eigenvalue has its sample.
    if data in {"steep", "close"}:
        total = max(total, n + 1)
    if data == "few":
        total = int(rng.integers(d, p))
    if data in REAL:
        total = len(real_samples(data, is_scaled=True))
    return shares(rng, split, total, d)


def shares(rng: Generator, split: str, total: int, d: int) -> tuple[int, ...]:
    """How many of all samples each agent has: at least one."""
    if split == "even":
        return tuple(len(part) for part in np.array_split(np.arange(total), d))
    if split == "varied":
        return tuple(int(count) for count in 1 + rng.multinomial(total - d, rng.dirichlet(np.ones(d))))
    rest = [len(part) for part in np.array_split(np.arange(total - round(0.8 * total)), d - 1)]
    place = int(rng.integers(d))
    return (*rest[:place], round(0.8 * total), *rest[place:])


# ---------------------------------------------------------------------- samples


def _gaussian(rng: Generator, problem: Problem) -> Matrix:
    """With directions that count for more than others."""
    spread = rng.uniform(0.3, 3.0, problem.n)
    return rng.standard_normal((sum(problem.counts), problem.n)) * spread @ _orthonormal(rng, problem.n, problem.n)


def _in_subspaces(rng: Generator, problem: Problem) -> Matrix:
    sizes = rng.permutation(np.geomspace(1.0, 10 ** rng.uniform(2, 3), problem.d))
    parts = []
    for size, count in zip(sizes, problem.counts, strict=True):
        basis = _orthonormal(rng, problem.n, int(rng.integers(1, min(4, problem.n) + 1)))
        parts.append(size * rng.standard_normal((count, basis.shape[1])) @ basis.T)
    return np.concatenate(parts)


def _steep(rng: Generator, problem: Problem) -> Matrix:
    return _with_spectrum(rng, problem, 10 ** (-rng.uniform(2, 4) * np.linspace(0, 1, problem.n)))


def _close(rng: Generator, problem: Problem) -> Matrix:
    """More eigenvalues are close than there are components, where there is room."""
    apart = 10.0 ** rng.integers(-6, -1)
    eigenvalues = np.where(np.arange(problem.n) < problem.p + 2, 1 - apart * np.arange(problem.n), 0.3)
    return _with_spectrum(rng, problem, np.sqrt(eigenvalues))


def _with_spectrum(rng: Generator, problem: Problem, lengths: Matrix) -> Matrix:
    """Samples with just these singular values; their mean is 0, so that centering keeps them."""
    m = sum(problem.counts)
    columns = np.column_stack([np.ones(m), rng.standard_normal((m, problem.n))])
    left = np.linalg.qr(columns)[0][:, 1:]
    return np.asarray(left * lengths @ _orthonormal(rng, problem.n, problem.n))


def _spikes(rng: Generator, problem: Problem) -> Matrix:
    n, m = problem.n, sum(problem.counts)
    rows = 0.2 * rng.standard_normal((m, n))
    for strength in np.linspace(2.0, 1.0, min(problem.p + 1, n)):
        spike = np.zeros(n)
        support = rng.choice(n, max(2, n // 6), replace=False)
        spike[support] = rng.choice([-1.0, 1.0], len(support)) / np.sqrt(len(support))
        rows += strength * np.outer(rng.standard_normal(m), spike)
    return rows


def _orthonormal(rng: Generator, n: int, columns: int) -> Matrix:
    return np.asarray(np.linalg.qr(rng.standard_normal((n, columns)))[0])


SAMPLES: dict[str, Callable[[Generator, Problem], Matrix]] = {
    "even": _gaussian,
    "lopsided": _gaussian,
    "subspaces": _in_subspaces,
    "steep": _steep,
    "spikes": _spikes,
    "close": _close,
    "few": _gaussian,
    "thin": _gaussian,
}
DATA = (*SAMPLES, *REAL)


@cache
def real_samples(name: str, *, is_scaled: bool) -> Matrix:
    """A table of scikit-learn, a row per sample; without constant columns where it is to be scaled."""
    datasets = import_module("sklearn.datasets")  # an extra, and slow to import
    rows: Matrix = np.asarray(getattr(datasets, f"load_{name}")().data, dtype=np.float64)
    return rows[:, rows.std(axis=0) > 0] if is_scaled else rows


# ---------------------------------------------------------------------- graphs


def draw_graph(rng: Generator, kind: str, d: int) -> tuple[Edge, ...]:
    """The edges of a connected graph of this kind, with its agents numbered at random."""
    numbers = rng.permutation(d)
    pairs = [sorted((int(numbers[i]), int(numbers[j]))) for i, j in GRAPHS[kind](rng, d)]
    return tuple(sorted({(i, j) for i, j in pairs}))


def fits(kind: str, d: int) -> bool:
    """Whether there is a graph of this kind with d agents."""
    match kind:
        case "grid" | "torus":
            return bool(_widths(kind, d))
        case "barbell":
            return d >= 6
        case "3-regular":
            return d >= 4 and d % 2 == 0
        case _:
            return d >= LEAST_D


def _complete(_: Generator, d: int) -> list[Edge]:
    return [(i, j) for i in range(d) for j in range(i + 1, d)]


def _path(_: Generator, d: int) -> list[Edge]:
    return [(i, i + 1) for i in range(d - 1)]


def _ring(_: Generator, d: int) -> list[Edge]:
    return [(i, (i + 1) % d) for i in range(d)]


def _star(_: Generator, d: int) -> list[Edge]:
    return [(0, i) for i in range(1, d)]


def _tree(rng: Generator, d: int) -> list[Edge]:
    """Each agent is joined to one that came before it."""
    return [(int(rng.integers(i)), i) for i in range(1, d)]


def _widths(kind: str, d: int) -> list[int]:
    """How many columns a grid or torus of d agents may have: with two rows or more."""
    return [width for width in range(2 if kind == "grid" else 3, d // 2 + 1) if d % width == 0]


def _grid(rng: Generator, d: int) -> list[Edge]:
    width = int(rng.choice(_widths("grid", d)))
    return [(i, i + 1) for i in range(d) if (i + 1) % width] + [(i, i + width) for i in range(d - width)]


def _torus(rng: Generator, d: int) -> list[Edge]:
    width = int(rng.choice(_widths("torus", d)))
    across = [(i, i - i % width + (i + 1) % width) for i in range(d)]
    return across + [(i, (i + width) % d) for i in range(d)]


def _barbell(rng: Generator, d: int) -> list[Edge]:
    """Two complete graphs of 3 agents or more, and a path between them."""
    size = int(rng.integers(3, d // 2 + 1))
    left = _complete(rng, size)
    bridge = [(i, i + 1) for i in range(size - 1, d - size)]
    return left + bridge + [(d - 1 - i, d - 1 - j) for i, j in left]


def _regular(rng: Generator, d: int) -> list[Edge]:
    """A ring whose agents are joined in pairs, too, by edges that the ring lacks."""
    ring = _ring(rng, d)
    while True:
        order = rng.permutation(d)
        chords = [(int(order[i]), int(order[i + 1])) for i in range(0, d, 2)]
        if all(abs(i - j) not in {1, d - 1} for i, j in chords):
            return ring + chords


def _erdos_renyi(rng: Generator, d: int) -> list[Edge]:
    return _nearer_than(rng.random((d, d)), rng.uniform(0.15, 0.8))


def _geometric(rng: Generator, d: int) -> list[Edge]:
    """Agents at random places of the unit square."""
    places = rng.random((d, 2))
    return _nearer_than(np.linalg.norm(places[:, None] - places, axis=2), rng.uniform(0.2, 0.6))


def _nearer_than(distances: Matrix, limit: float) -> list[Edge]:
    """All pairs below the limit, and those of a minimum spanning tree: no more than that if they are connected."""
    d = len(distances)
    upper = np.triu(distances, 1)
    lengths = upper + upper.T
    edges = [(i, j) for i in range(d) for j in range(i + 1, d) if lengths[i, j] < limit]
    inside, outside = [0], set(range(1, d))
    while outside:
        i, j = min(((i, j) for i in inside for j in sorted(outside)), key=lambda pair: float(lengths[pair]))
        edges.append((i, j))
        inside.append(j)
        outside.remove(j)
    return edges


GRAPHS: dict[str, Callable[[Generator, int], list[Edge]]] = {
    "complete": _complete,
    "erdos-renyi": _erdos_renyi,
    "ring": _ring,
    "path": _path,
    "star": _star,
    "grid": _grid,
    "torus": _torus,
    "barbell": _barbell,
    "3-regular": _regular,
    "tree": _tree,
    "geometric": _geometric,
}
