"""The figures of a report. Each is small enough to be read on a phone, and is drawn in two themes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thanos_peer.block import Matrix
from thanos_peer.plots import Theme, add_scale, colormap, has_scales, paint_network, picture, proportion, readable
from thanos_peer.preparation import PathRow
from thanos_peer.report.findings import TradeOff, end_of, longest_waits, mean_of
from thanos_peer.report.reading import Run

# Inches: about as wide as a phone, so that letters keep their size there.
WIDTH, HEIGHT = 4.0, 2.8
MOST_POINTS = 1200  # of a curve
# Cells of a heat map above which they are pixels in any format.
MANY_CELLS = 3000
# Components up to which there is room for figures in the cells of a heat map.
FEW_COMPONENTS = 6
DASHES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Drawing:
    """A figure before it is drawn.

    Attributes:
        name: Of its file.
        alt: What kind of picture it is, for those who do not see it.
        caption: What is to be seen.
        size: Width and height in inches.
        paint: Puts it on a figure, in the colors of a theme.
    """

    name: str
    alt: str
    caption: str
    size: tuple[float, float]
    paint: Callable[[Any, Theme], None]

    def drawn(self, theme: Theme, suffix: str) -> bytes:
        """As the bytes of a file."""
        return picture(lambda figure: self.paint(figure, theme), size=self.size, theme=theme, suffix=suffix)


@dataclass(frozen=True)
class Plot:
    """Columns of the history in one picture: name of the file, title, axis, and a label for each column."""

    name: str
    title: str
    axis: str
    columns: dict[str, str]
    is_logarithmic: bool = True


PLOTS = (
    Plot(
        "objective",
        "Objective",
        "objective at the mean of all X",
        {"objective": "objective"},
        is_logarithmic=False,
    ),
    Plot("feasibility", "Feasibility", r"mean of $\|X_i^\top X_i - I\|$", {"feasibility": "feasibility"}),
    Plot("consensus", "Consensus", r"largest $\|X_i - \bar{X}\|$", {"consensus": "consensus"}),
    Plot(
        "epsilon",
        "Stationarity: the epsilon of Def. 3",
        "epsilon, the largest of three",
        {"epsilon": "epsilon", "gradient": "gradient", "prox_gap": "prox gap", "infeasibility": "infeasibility"},
    ),
    Plot(
        "distance",
        "Distance to the reference X*",
        r"$\|X - X^*\|$",
        {"distance": "mean over peers", "aligned_distance": "mean X, best aligned"},
    ),
)


def convergence_drawings(run: Run) -> list[Drawing]:
    """How the measures went over the rounds; those that the history does not have are left out."""
    return [_curves(plot, run) for plot in PLOTS if _has_numbers(run, plot)]


def _has_numbers(run: Run, plot: Plot) -> bool:
    return any(np.isfinite(run.history.get(column, np.array([]))).any() for column in plot.columns)


def _curves(plot: Plot, run: Run) -> Drawing:
    history, rounds = run.history, run.history["round"]
    has_start = rounds[0] == 0 and len(rounds) > 1
    # All agents start together on the manifold: round 0 is zero there, up to rounding.
    begin = int(plot.is_logarithmic and has_start)
    rounds = rounds[begin:]
    columns = {name: _drawable(history[name][begin:], plot) for name in plot.columns if name in history}
    first = next(iter(columns.values()))
    values = {name: column for name, column in columns.items() if np.isfinite(column).any()} or columns

    def paint(figure: Any, theme: Theme) -> None:
        axes = _axes(figure, plot.title, "round k", plot.axis)
        for number, (name, column) in enumerate(values.items()):
            at = thinned(column)
            axes.plot(
                *(rounds[at], column[at]),
                label=plot.columns[name],
                color=theme.curves[number],
                linestyle=DASHES[number],
                # The first curve, the largest of all, shows from behind the others.
                linewidth=1.1 if number or len(values) == 1 else 3.5,
                alpha=1.0 if number or len(values) == 1 else 0.6,
                marker="o" if len(at) < 3 else None,
            )
        if plot.is_logarithmic and np.isfinite(first).any():
            axes.set_yscale("log")
        if len(values) > 1:
            figure.legend(loc="outside lower center", ncol=2, frameon=False)

    alt = f"Line chart over the rounds: {plot.title}"
    return Drawing(plot.name, alt, f"{plot.title}: {_course(rounds, first)}.", (WIDTH, HEIGHT), paint)


def _course(rounds: Matrix, values: Matrix) -> str:
    """Where a curve begins and ends, in words."""
    known = np.flatnonzero(np.isfinite(values))
    if not len(known):
        return "zero or not finite in every round, so there is no curve"
    begin, end = (f"{values[at]:.3g} in round {rounds[at]:.0f}" for at in (known[0], known[-1]))
    return f"from {begin} to {end}"


def _drawable(values: Matrix, plot: Plot) -> Matrix:
    """NaN for what has no place on the axis: infinities, and zero where it is logarithmic."""
    has_place = np.isfinite(values) & ((values > 0) | (not plot.is_logarithmic))
    return np.where(has_place, values, np.nan)


def thinned(values: Matrix) -> NDArray[np.intp]:
    """Places of a long curve that keep its looks: the least and largest value of every stretch, and the ends."""
    if len(values) <= MOST_POINTS:
        return np.arange(len(values))
    low, high = (np.nan_to_num(values, nan=beyond) for beyond in (np.inf, -np.inf))
    stretches = np.array_split(np.arange(len(values)), MOST_POINTS // 2)
    chosen = [place for part in stretches for place in (part[low[part].argmin()], part[high[part].argmax()])]
    return np.unique([0, *chosen, len(values) - 1])


def network_drawing(run: Run) -> Drawing:
    """The graph with its weights."""
    graph = run.topology.graph
    caption = (
        f"{graph.d} peers, colored by their number of neighbors, and {len(graph.edges)} edges, by their weight."
    )
    return Drawing(
        "network",
        "Drawing of the network",
        caption,
        (WIDTH, 0.5 + WIDTH * proportion(graph) + 0.6 * sum(has_scales(graph))),
        lambda figure, theme: paint_network(figure, run.topology, theme),
    )


def loadings_drawing(loadings: Matrix, rows: Sequence[int], names: Sequence[str]) -> Drawing:
    """A heat map of some rows of the loadings, (n, p), with the names of their features."""
    shown, p = loadings[rows], loadings.shape[1]
    most = max(float(np.abs(shown).max()), 1e-12)

    def paint(figure: Any, theme: Theme) -> None:
        axes = _axes(figure, "Loadings", "component", "feature")
        colors = colormap(theme.curves[0], theme.paper, theme.curves[1])
        cells = _cells(axes, shown, theme, cmap=colors, vmin=-most, vmax=most)
        _tick(axes, [str(column + 1) for column in range(p)], [shorten(names[row]) for row in rows])
        if p <= FEW_COMPONENTS:
            _write_values(axes, shown, "{:.2f}", cells, theme)
        add_scale(figure, axes, cells, "loading")

    height = 1.6 + 0.2 * len(rows)
    caption = f"Loadings of {len(rows)} features on {p} components, {np.count_nonzero(shown)} of them not zero."
    return Drawing("loadings", "Heat map of the loadings", caption, (WIDTH, height), paint)


def shorten(name: str, most: int = 22) -> str:
    """A name on one line that leaves room for the picture."""
    line = " ".join(name.split()) or "(no name)"
    return line if len(line) <= most else line[: most - 1] + "…"


def trade_off_drawing(run: Run, trade_off: TradeOff) -> Drawing | None:
    """Sparsity against variance: the curve, and where the run has ended on it; None if neither is known."""
    end, size, mean = end_of(run), run.topology.problem.n * run.topology.problem.p, mean_of(run)
    if end is None and not len(trade_off.kept):
        return None

    def paint(figure: Any, theme: Theme) -> None:
        axes = _axes(
            figure, "Sparsity against variance", f"non-zero loadings, of {size}", "variance explained (%)"
        )
        color = theme.curves
        if len(trade_off.kept):
            axes.plot(
                trade_off.kept, 100 * trade_off.shares, color=color[0], label="only the largest loadings kept"
            )
        if end is not None:
            at, label = (end.nonzeros, 100 * end.sparse), "sparse result of this run"
            axes.plot(*at, "o", ms=8, zorder=3, color=color[1], label=label)
            before = size if mean is None else int(np.count_nonzero(mean))
            # The X of an exact method has the zeros itself.
            if before > end.nonzeros:
                at, label = (before, 100 * end.dense), "the same before it is made sparse"
                axes.plot(*at, "s", ms=7, color=color[2], label=label)
        if size > 100:
            axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        figure.legend(loc="outside lower center", ncol=1, frameon=False)

    told = "Variance explained against the number of loadings that are not zero"
    if end is not None:
        told += f": {end.sparse:.2%} with {end.nonzeros} of {size}"
    alt = "Line chart of the variance explained against the number of non-zero loadings"
    return Drawing("sparsity", alt, told + ".", (WIDTH, HEIGHT + 0.6), paint)


def path_drawing(path: Sequence[PathRow]) -> Drawing:
    """Non-zeros against variance along a path over mu, with the chosen answer marked."""
    counts = np.array([sum(row.nonzeros) for row in path])
    shares = np.array([100 * row.explained for row in path])
    chosen = next((j for j, row in enumerate(path) if row.is_chosen), 0)

    def paint(figure: Any, theme: Theme) -> None:
        axes = _axes(figure, "Path over mu", "non-zero loadings", "variance explained (%)")
        is_done = np.array([row.has_converged is not False for row in path])
        axes.plot(counts, shares, color=theme.curves[0], linewidth=1.1)
        for mask, face, label in (
            (is_done, theme.curves[0], "a value of mu"),
            (~is_done, "none", "not converged"),
        ):
            if mask.any():
                options = {"ms": 5, "color": theme.curves[0], "mfc": face, "label": label, "clip_on": False}
                axes.plot(counts[mask], shares[mask], "o", **options)
        label = f"chosen: mu = {path[chosen].mu:.4g}"
        options = {"ms": 9, "color": theme.curves[1], "label": label, "clip_on": False}
        axes.plot(counts[chosen], shares[chosen], "o", zorder=3, **options)
        axes.set_ylim(bottom=0)
        figure.legend(loc="outside lower center", ncol=2, frameon=False)

    told = f"chosen: {shares[chosen]:.2f}% with {counts[chosen]} non-zeros, mu = {path[chosen].mu:.4g}"
    alt = "Line chart of the variance explained against the number of non-zero loadings, a point for each mu"
    caption = f"Variance explained by {len(path)} values of mu; {told}."
    return Drawing("path", alt, caption, (WIDTH, HEIGHT + 0.4), paint)


def waiting_drawing(waits: Matrix) -> Drawing:
    """A heat map of who waited for whom, (d, d)."""
    d = len(waits)

    def paint(figure: Any, theme: Theme) -> None:
        axes = _axes(figure, "Time waited per edge", "peer that was waited for", "peer that waited")
        most = max(float(np.nanmax(waits)), 1e-9)
        cells = _cells(axes, waits, theme, cmap=colormap(theme.faint, theme.curves[1]), vmin=0, vmax=most)
        _tick(axes, [str(i) for i in range(d)], [str(i) for i in range(d)], most_down=16)
        axes.set_aspect("equal")
        if d <= 10:
            _write_values(axes, waits, "{:.1f}", cells, theme)
        add_scale(figure, axes, cells, "seconds")

    i, j, seconds = longest_waits(waits, 1)[0]
    caption = f"Seconds waited per edge and direction; the most, {seconds:.2f}, by peer {i} for peer {j}."
    return Drawing("waiting", "Heat map of who waited for whom", caption, (WIDTH, WIDTH * 1.15), paint)


def _axes(figure: Any, title: str, across: str, up: str) -> Any:
    axes = figure.subplots()
    figure.suptitle(title, size="medium")
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(visible=True, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _cells(axes: Any, values: Matrix, theme: Theme, **colors: Any) -> Any:
    """A heat map with row 0 on top; thin lines part the cells while they are few."""
    is_large = values.size > MANY_CELLS
    axes.grid(visible=False)
    cells = axes.pcolormesh(
        np.ma.masked_invalid(values),
        edgecolors="none" if is_large else theme.faint,
        linewidth=0.3,
        rasterized=is_large,
        **colors,
    )
    axes.invert_yaxis()
    axes.tick_params(length=0)
    return cells


def _tick(axes: Any, across: Sequence[str], down: Sequence[str], *, most_down: int = 40) -> None:
    """A label in the middle of every column and row, or of every so many."""
    for labels, most, set_ticks in ((across, 16, axes.set_xticks), (down, most_down, axes.set_yticks)):
        places = range(0, len(labels), math.ceil(len(labels) / most))
        set_ticks([place + 0.5 for place in places], [labels[place] for place in places], parse_math=False)


def _write_values(axes: Any, values: Matrix, form: str, cells: Any, theme: Theme) -> None:
    for row, column in np.argwhere(np.isfinite(values) & (values != 0)):
        text = form.format(values[row, column])
        color = readable(cells.to_rgba(values[row, column]), theme)
        axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=7.5, color=color)
