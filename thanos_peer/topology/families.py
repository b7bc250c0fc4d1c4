"""Ready-made graphs: each function gives the edges of one family on agents 0..d-1.

A new family is a function here, and a line of the table at the end. Its keyword arguments are those options of
`make` that concern it.
"""

import inspect
import math
from collections.abc import Callable
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from thanos_peer.errors import ConfigError
from thanos_peer.topology.graph import Edge, components

# Draws of a random graph until one is connected, at most.
MOST_DRAWS = 1000


def make(
    family: str, d: int, *, seed: int, probability: float = 0.5, radius: float = 0.4, columns: int | None = None
) -> list[Edge]:
    """The edges of one of FAMILIES on d agents; each family uses those of the options that concern it."""
    given = {"seed": seed, "probability": probability, "radius": radius, "columns": columns}
    _, *concern = inspect.signature(FAMILIES[family]).parameters
    return FAMILIES[family](d, **{option: given[option] for option in concern})


def path(d: int) -> list[Edge]:
    """0 - 1 - 2 - ..."""
    return [(i, i + 1) for i in range(d - 1)]


def ring(d: int) -> list[Edge]:
    """A path with its ends joined; two agents have one edge, not two."""
    return path(d) + ([(0, d - 1)] if d > 2 else [])


def star(d: int) -> list[Edge]:
    """Agent 0 in the middle."""
    return [(0, i) for i in range(1, d)]


def complete(d: int) -> list[Edge]:
    """Each agent with each other."""
    return list(combinations(range(d), 2))


def tree(d: int) -> list[Edge]:
    """A binary tree with its root at 0."""
    return [((i - 1) // 2, i) for i in range(1, d)]


def grid(d: int, columns: int | None = None) -> list[Edge]:
    """Rows of `columns` agents, by default as square as d allows; the last row may be shorter."""
    width = _grid_width(d, columns)
    right = [(i, i + 1) for i in range(d - 1) if (i + 1) % width]
    down = [(i, i + width) for i in range(d - width)]
    return sorted(right + down)


def torus(d: int, columns: int | None = None) -> list[Edge]:
    """A grid whose rows and columns close; d must be rows times columns."""
    width = _grid_width(d, columns)
    if d % width:
        raise ConfigError(f"a torus of {d} peers has no {width} columns; --columns must divide {d}")
    height = d // width
    wrapped = [(i, i - i % width + (i + 1) % width) for i in range(d)]
    wrapped += [(i, (i + width) % d) for i in range(d)] if height > 1 else []
    return sorted({(min(edge), max(edge)) for edge in wrapped if edge[0] != edge[1]})


def erdos_renyi(d: int, probability: float, seed: int) -> list[Edge]:
    """Each pair is joined with the same probability; drawn again until the graph is connected."""
    return _draw_connected(d, seed, lambda rng: rng.random((d, d)) < probability, "--probability")


def geometric(d: int, radius: float, seed: int) -> list[Edge]:
    """Agents at random places of the unit square, joined when closer than the radius; drawn until connected."""

    def draw(rng: np.random.Generator) -> NDArray[np.bool_]:
        places = rng.random((d, 2))
        across, up = (places[:, None] - places).transpose(2, 0, 1)
        return np.asarray(np.hypot(across, up) < radius)

    return _draw_connected(d, seed, draw, "--radius")


def _draw_connected(
    d: int, seed: int, draw: Callable[[np.random.Generator], NDArray[np.bool_]], option: str
) -> list[Edge]:
    rng = np.random.default_rng(seed)
    for _ in range(MOST_DRAWS):
        edges = [(int(i), int(j)) for i, j in np.argwhere(np.triu(draw(rng), 1))]
        if len(components(d, edges)) == 1:
            return edges
    raise ConfigError(f"none of {MOST_DRAWS} draws on {d} peers was connected; choose a larger {option}")


def _grid_width(d: int, columns: int | None) -> int:
    if columns is not None:
        return columns
    root = math.isqrt(d)
    return next((d // height for height in range(root, 1, -1) if d % height == 0), math.ceil(math.sqrt(d)))


FAMILIES: Final[dict[str, Callable[..., list[Edge]]]] = {
    "ring": ring,
    "path": path,
    "star": star,
    "grid": grid,
    "torus": torus,
    "tree": tree,
    "complete": complete,
    "erdos-renyi": erdos_renyi,
    "geometric": geometric,
}
