"""Pictures: the network, and the paper's figures. The one place that needs matplotlib, the extra `plots`."""

import importlib.util
import io
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from thanos_peer.block import Matrix
from thanos_peer.errors import ConfigError
from thanos_peer.topology import Topology
from thanos_peer.topology.graph import Graph

LARGEST_LAYOUT, LAYOUT_SWEEPS = 300, 200
# Up to FEW_EDGES edges show their weights in figures; more than MANY_EDGES are drawn as pixels in any format.
FEW_EDGES, MANY_EDGES = 24, 5000
# Inches of width that FEW_EDGES weights need.
FULL_WIDTH = 7.0
WINDOW = 51  # rounds
FORMATS = (".png", ".svg", ".pdf")


def require_matplotlib() -> None:
    """Complain at once, not after minutes of work, where there is no matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("pictures need matplotlib: pip install '.[plots]' in a checkout of thanos-peer")


@dataclass(frozen=True)
class Theme:
    """The colors of a picture: what is written, what it is written on, what stays behind, and the curves."""

    ink: str
    paper: str
    faint: str
    curves: tuple[str, ...]


# Curves in colors that color-blind readers can tell apart, each dark or light enough for its paper.
LIGHT = Theme("#1f2328", "#ffffff", "#d5dae0", ("#0072b2", "#c75000", "#007a5a", "#a8497f"))
DARK = Theme("#e6e9ee", "#1a1f26", "#3a424d", ("#56b4e9", "#f0a04b", "#2fc79a", "#e58fc0"))


def picture(paint: Callable[[Any], None], *, size: tuple[float, float], theme: Theme, suffix: str) -> bytes:
    """What `paint` puts on a figure of so many inches, in the colors of a theme, as the bytes of a file."""
    require_matplotlib()
    import matplotlib as mpl  # noqa: PLC0415

    file = io.BytesIO()
    with mpl.rc_context(_settings(theme)), warnings.catch_warnings():
        # A missing glyph is drawn as a box, which is no failure.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = _new_figure(figsize=size)
        paint(figure)
        _save(figure, file, suffix)
    return file.getvalue()


def _settings(theme: Theme) -> Any:
    inked = ("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color")
    paper = ("figure.facecolor", "axes.facecolor", "savefig.facecolor", "legend.facecolor")
    return {
        **dict.fromkeys(inked, theme.ink),
        **dict.fromkeys(paper, theme.paper),
        **dict.fromkeys(("axes.edgecolor", "grid.color", "legend.edgecolor"), theme.faint),
        "font.size": 9.5,
        "axes.titlesize": 10.5,
    }


def colormap(*colors: str) -> Any:
    """From the first color, for the least value, evenly to the last one, for the largest."""
    from matplotlib.colors import LinearSegmentedColormap  # noqa: PLC0415

    return LinearSegmentedColormap.from_list("between", colors)


def readable(rgba: Sequence[float], theme: Theme) -> str:
    """Ink or paper, whichever can be read on a color."""
    from matplotlib.colors import to_rgb  # noqa: PLC0415

    def luminance(color: Sequence[float]) -> float:
        parts = np.array(color)
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    def contrast(color: str) -> float:
        low, high = sorted((luminance(rgba[:3]), luminance(to_rgb(color))))
        return (high + 0.05) / (low + 0.05)

    return max(theme.ink, theme.paper, key=contrast)


def draw_topology(topology: Topology, path: Path) -> None:
    """The graph as a picture: agents by degree, edges by weight."""
    if path.suffix not in FORMATS:
        raise ConfigError(f"{path}: a picture's name ends in one of {', '.join(FORMATS)}")
    drawn = picture(
        lambda on: paint_network(on, topology, LIGHT), size=(FULL_WIDTH, 7.6), theme=LIGHT, suffix=path.suffix
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(drawn)


def paint_network(figure: Any, topology: Topology, theme: Theme) -> None:
    """The graph on a figure: agents by degree; edges by weight, which is written beside them if they are few."""
    axes, graph, places = figure.subplots(), topology.graph, layout(topology.graph)
    figure.suptitle(
        f"{topology.name}: {graph.d} peers, {len(graph.edges)} edges,\n"
        f"diameter {graph.diameter}, lambda = {graph.lambda_:.4f}",
        size="medium",
    )
    if graph.edges:
        _paint_edges(figure, axes, graph, places, theme)
    width = min(figure.get_size_inches())
    size = float(np.clip(300 * width**2 / graph.d, 12, 10 * width**2))
    least, most = min(graph.degrees) if has_scales(graph)[0] else 0, max(graph.degrees) or 1
    dots = axes.scatter(
        *places.T,
        s=size,
        c=graph.degrees,
        cmap=colormap(theme.faint, theme.curves[2]),
        vmin=least,
        vmax=most,
        zorder=3,
        edgecolors=theme.paper,
        clip_on=False,
    )
    if graph.d <= 64:
        size_of_ids = 8 if graph.d <= 32 else 6
        for i, place in enumerate(places):
            ink = readable(dots.to_rgba(graph.degrees[i]), theme)
            axes.annotate(str(i), place, ha="center", va="center", color=ink, fontsize=size_of_ids, zorder=4)
    if has_scales(graph)[0]:
        ticks = range(least, most + 1, math.ceil((most - least) / 8))
        add_scale(figure, axes, dots, "degree: number of neighbors", ticks=ticks)
    axes.set_axis_off()
    axes.margins(0.08)
    axes.set_aspect("equal", adjustable="datalim")


def proportion(graph: Graph) -> float:
    """How tall the drawing of a graph is beside its width; never very flat or very tall."""
    width, height = np.ptp(layout(graph), axis=0)
    return float(np.clip(height / max(width, 1e-9), 0.45, 1.1))


def has_scales(graph: Graph) -> tuple[bool, bool]:
    """Whether its drawing needs a scale for degrees, and one for weights: where not all are the same."""
    weights = [weight for i, row in enumerate(graph.mixing) for j, weight in row if i < j]
    return len(set(graph.degrees)) > 1, bool(weights) and max(weights) - min(weights) > 1e-12


def _paint_edges(figure: Any, axes: Any, graph: Graph, places: Matrix, theme: Theme) -> None:
    from matplotlib.collections import LineCollection  # noqa: PLC0415

    W = graph.matrix()
    weights = np.array([W[edge] for edge in graph.edges])
    shares = np.abs(weights) / max(float(np.abs(weights).max()), np.finfo(np.float64).tiny)
    lines = LineCollection(
        places[np.array(graph.edges)],
        array=weights,
        cmap=colormap(theme.faint, theme.curves[0]),
        clim=(weights.min() if has_scales(graph)[1] else 0.0, weights.max()),
        linewidths=0.3 + 1.7 * min(1.0, FEW_EDGES / len(weights)) * shares,
        rasterized=len(weights) > MANY_EDGES,
    )
    axes.add_collection(lines)
    if len(weights) <= FEW_EDGES * min(1.0, figure.get_size_inches()[0] / FULL_WIDTH):
        box = {"boxstyle": "round,pad=0.15", "facecolor": theme.paper, "edgecolor": "none"}
        for (i, j), weight in zip(graph.edges, weights, strict=True):
            middle = places[[i, j]].mean(axis=0)
            axes.annotate(f"{weight:.3g}", middle, ha="center", va="center", fontsize=7, bbox=box, zorder=2)
    if has_scales(graph)[1]:
        add_scale(figure, axes, lines, "weight of an edge")


def add_scale(figure: Any, axes: Any, shown: Any, label: str, **options: Any) -> None:
    """Say which color stands for which number."""
    bar = figure.colorbar(
        shown, ax=axes, label=label, location="bottom", fraction=0.05, pad=0.02, aspect=30, **options
    )
    bar.outline.set_visible(False)


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
    # The circle parts agents that the axes cannot tell apart.
    places = _principal_axes(hops) + 0.1 * circle
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
class PlottedCurve:
    """One line of a figure: what stands in the legend, and a value per round."""

    label: str
    values: Sequence[float]


def draw_panels(title: str, panels: Mapping[str, Sequence[PlottedCurve]], paths: Sequence[Path]) -> None:
    """Panels side by side with logarithmic values against the round, and one legend below.

    The values themselves are drawn faintly, and over them their running geometric mean: curves that jump from
    round to round would hide each other otherwise.
    """
    figure = _new_figure(figsize=(5.2 * len(panels), 4.4))
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (label, curves) in zip(all_axes, panels.items(), strict=True):
        for curve, style in zip(curves, cycle(_styles()), strict=False):
            # Round 0 is left out: it is the start, not a result.
            values = np.maximum(curve.values[1:], np.finfo(np.float64).tiny)
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
        path.parent.mkdir(parents=True, exist_ok=True)
        _save(figure, path, path.suffix)


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
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    return Figure(layout="constrained", **options)


def _save(figure: Any, file: BinaryIO | Path, suffix: str) -> None:
    import matplotlib as mpl  # noqa: PLC0415

    date_key = {".svg": "Date", ".pdf": "CreationDate"}.get(suffix)
    # Without a date and random ids, the same data give the same file.
    with mpl.rc_context({"svg.hashsalt": "thanos-peer"}):
        figure.savefig(file, format=suffix[1:], dpi=150, metadata={date_key: None} if date_key else None)
