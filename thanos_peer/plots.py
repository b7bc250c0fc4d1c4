"""Pictures: the network, and the paper's figures. The one place that needs matplotlib, the extra `plots`."""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from thanos_peer.block import Matrix
from thanos_peer.errors import ConfigError
from thanos_peer.topology import Topology
from thanos_peer.topology.graph import Graph

LARGEST_LAYOUT, LAYOUT_SWEEPS = 300, 200
WINDOW = 51  # rounds
FORMATS = (".png", ".svg", ".pdf")


def require_matplotlib() -> None:
    """Complain at once, not after minutes of work, where there is no matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("pictures need matplotlib; install it with: pip install 'thanos-peer[plots]'")


def draw_topology(topology: Topology, path: Path) -> None:
    """The graph as a picture: agents by degree, edges by weight."""
    if path.suffix not in FORMATS:
        raise ConfigError(f"{path}: a picture's name ends in one of {', '.join(FORMATS)}")
    figure = _new_figure(figsize=(7, 7))
    axes = figure.subplots()
    graph, places = topology.graph, layout(topology.graph)
    weights = {(i, j): w for i, row in enumerate(graph.mixing) for j, w in row if i < j}
    heaviest = max(weights.values(), default=1.0)
    for (i, j), weight in weights.items():
        strength = weight / heaviest
        axes.plot(
            *places[[i, j]].T, color="#4a6fa5", lw=0.4 + 1.6 * strength, alpha=0.25 + 0.5 * strength, zorder=1
        )
    size = float(np.clip(9000 / graph.d, 12, 420))
    dots = axes.scatter(
        *places.T, s=size, c=graph.degrees, cmap="viridis", zorder=2, edgecolors="white", clip_on=False
    )
    if graph.d <= 64:
        for i, place in enumerate(places):
            shade = dots.norm(graph.degrees[i]) if len(set(graph.degrees)) > 1 else 0.0
            ink = "black" if shade > 0.6 else "white"
            axes.annotate(str(i), place, ha="center", va="center", color=ink, fontsize=8, zorder=3)
    axes.set_title(
        f"{topology.name}: {graph.d} peers, {len(graph.edges)} edges, diameter {graph.diameter}, "
        f"$\\lambda$ = {graph.lambda_:.4f}"
    )
    if len(set(graph.degrees)) > 1:
        ticks = sorted(set(graph.degrees))
        figure.colorbar(dots, ax=axes, label="degree", shrink=0.6, ticks=ticks if len(ticks) <= 10 else None)
    axes.set_axis_off()
    axes.margins(0.08)
    axes.set_aspect("equal")
    _save(figure, path)


def layout(graph: Graph) -> Matrix:
    """Places for the agents, (d, 2), from the graph alone, such that distances look like numbers of hops.

    Stress majorization: each sweep moves every agent to the mean of where the others would like it to be.
    """
    angle = 2 * np.pi * np.arange(graph.d) / graph.d
    circle = graph.diameter / 2 * np.stack([np.sin(angle), np.cos(angle)], axis=1)
    if graph.diameter <= 1 or graph.d > LARGEST_LAYOUT:
        return circle
    hops = _hops(graph)
    closeness = 1 / (hops + np.eye(graph.d)) ** 2 - np.eye(graph.d)
    places = _principal_axes(hops) + 0.1 * circle  # the circle parts agents that the axes cannot tell apart
    for _ in range(LAYOUT_SWEEPS):
        away = places[:, None] - places
        length = np.linalg.norm(away, axis=-1) + np.eye(graph.d)
        wished = places[None] + away * (hops / np.maximum(length, 1e-9))[..., None]
        places = (closeness[..., None] * wished).sum(axis=1) / closeness.sum(axis=1)[:, None]
    return places


def _hops(graph: Graph) -> Matrix:
    """The number of edges between any two agents, (d, d)."""
    is_next = (graph.matrix() > 0) | np.eye(graph.d, dtype=bool)
    is_reached, hops = np.eye(graph.d, dtype=bool), np.zeros((graph.d, graph.d))
    for _ in range(graph.diameter):
        hops += ~is_reached
        is_reached = (is_reached.astype(np.float32) @ is_next) > 0
    return hops


def _principal_axes(distances: Matrix) -> Matrix:
    """The flat map closest to the distances (classical scaling), (d, 2)."""
    centered = np.eye(len(distances)) - 1 / len(distances)
    values, vectors = np.linalg.eigh(-centered @ distances**2 @ centered / 2)
    places: Matrix = vectors[:, [-1, -2]] * np.sqrt(np.maximum(values[[-1, -2]], 0))
    return places


@dataclass(frozen=True)
class Curve:
    """One line of a figure: what stands in the legend, and a value per round."""

    label: str
    values: Sequence[float]


def draw_panels(title: str, panels: Mapping[str, Sequence[Curve]], paths: Sequence[Path]) -> None:
    """Panels side by side with logarithmic values against the round, and one legend below.

    The values themselves are drawn faintly, and over them their running geometric mean: curves that jump from
    round to round would hide each other otherwise.
    """
    figure = _new_figure(figsize=(5.2 * len(panels), 4.4))
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (label, curves) in zip(all_axes, panels.items(), strict=True):
        for curve, style in zip(curves, cycle(_styles()), strict=False):
            values = np.maximum(curve.values[1:], np.finfo(np.float64).tiny)  # round 0 is the start, not a result
            rounds = np.arange(1, len(values) + 1)
            axes.semilogy(rounds, values, color=style["color"], lw=0.5, alpha=0.25, zorder=1)
            axes.semilogy(rounds, _running_geometric_mean(values), label=curve.label, zorder=2, **style)
        axes.set_xlabel("round k")
        axes.set_ylabel(label)
        axes.grid(visible=True, which="major", alpha=0.3)
    handles, labels = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncol=len(labels), handlelength=3.2, frameon=False)
    figure.suptitle(f"{title}\n(faint: every round; line: geometric mean of {WINDOW} rounds)", fontsize=11)
    for path in paths:
        _save(figure, path)


def _running_geometric_mean(values: Matrix) -> Matrix:
    """The mean of the logarithms over a window around each round, shorter at the ends."""
    sums = np.concatenate([[0.0], np.cumsum(np.log(values))])
    at = np.arange(len(values))
    low, high = np.maximum(at - WINDOW // 2, 0), np.minimum(at + WINDOW // 2 + 1, len(values))
    mean: Matrix = np.exp((sums[high] - sums[low]) / (high - low))
    return mean


def _styles() -> list[dict[str, Any]]:
    """Told apart by color and by dash, so that print and color-blind readers can follow."""
    colors = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7f7f7f"]
    dashes = ["-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (7, 2))]
    return [{"color": color, "linestyle": dash, "lw": 1.6} for color, dash in zip(colors, dashes, strict=True)]


def _new_figure(**options: Any) -> Any:
    require_matplotlib()
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, imported where it is used

    return Figure(layout="constrained", **options)


def _save(figure: Any, path: Path) -> None:
    import matplotlib as mpl  # noqa: PLC0415

    path.parent.mkdir(parents=True, exist_ok=True)
    date_key = {".svg": "Date", ".pdf": "CreationDate"}.get(path.suffix)
    with mpl.rc_context({"svg.hashsalt": "thanos-peer"}):  # no date, no random ids: same data, same file
        figure.savefig(path, dpi=150, metadata={date_key: None} if date_key else None)
