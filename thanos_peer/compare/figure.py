"""The gap against rounds and against bytes: a line for the median over seeds, a band from least to most."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thanos_peer.block import Matrix
from thanos_peer.compare.gaps import GAPS, JudgedRun
from thanos_peer.compare.tables import Line, lines
from thanos_peer.errors import ConfigError
from thanos_peer.plots import LIGHT, picture

# Smallest gap that is drawn: below is rounding.
FLOOR = 1e-16
POINTS = 400  # of a curve
LEGEND_COLUMNS = 4
COLORS = (
    *("#0072b2", "#c75000", "#007a5a", "#a8497f", "#e69f00", "#56b4e9", "#7f7f7f"),
    *("#5b3a8e", "#8b5a2b", "#9acd32", "#e377c2", "#17becf", "#8b0000", "#000000"),
)
DASHES, CENTRAL_DASHES = ("-", "--", "-."), ((0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))
Axis = Callable[[JudgedRun], NDArray[np.float64]]


def draw(results: Sequence[JudgedRun], title: str) -> bytes:
    """The figure, as a PNG file.

    Raises:
        ConfigError: There is nothing to draw, or nothing to draw with.
    """
    found = [line for line in lines(results) if any(len(result.gaps) for result in line.results)]
    if not found:
        raise ConfigError("every run has failed")
    size = (11.0, 4.6 + 0.22 * -(-len(found) // LEGEND_COLUMNS))
    return picture(lambda figure: _paint(figure, found, title), size=size, theme=LIGHT, suffix=".png")


def _paint(figure: Any, found: Sequence[Line], title: str) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
    for number, line in enumerate(found):
        dashes = CENTRAL_DASHES if line.contender.is_central else DASHES
        at = number // len(COLORS) % len(dashes)
        style = {"color": COLORS[number % len(COLORS)], "linestyle": dashes[at]}
        _draw_line(left, line, _rounds, style)
        if not line.contender.is_central:
            _draw_line(right, line, _payload, style)
    left.set_ylabel("gap")
    left.set_ylim(
        FLOOR / 3, 3 * max(1.0, *(result.gaps.max(initial=0) for line in found for result in line.results))
    )
    for axes, label in (
        (left, "rounds (iterations of centralised methods)"),
        (right, "payload bytes, all agents"),
    ):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(label)
        axes.grid(visible=True, which="major", alpha=0.6)
        for gap in GAPS:
            axes.axhline(gap, color=LIGHT.ink, linewidth=0.6, alpha=0.5, zorder=0)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncol=LEGEND_COLUMNS, handlelength=3.0, frameon=False
    )
    figure.suptitle(title, fontsize=10.5)


def _draw_line(axes: Any, line: Line, axis: Axis, style: dict[str, Any]) -> None:
    runs = [result for result in line.results if len(result.gaps)]
    at, gaps = common_curves([axis(result) for result in runs], [result.gaps for result in runs])
    middle, least, most = (np.maximum(f(gaps, axis=0), FLOOR) for f in (np.median, np.min, np.max))
    is_point = len(at) < 2
    axes.plot(
        at, middle, label=line.contender.label, linewidth=1.5, marker="o" if is_point else None, zorder=2, **style
    )
    axes.fill_between(
        at,
        least,
        most,
        color=style["color"],
        alpha=0.06 if line.contender.is_central else 0.15,
        linewidth=0,
        zorder=1,
    )


def _rounds(result: JudgedRun) -> NDArray[np.float64]:
    """Where the curve changes, and where it ends."""
    return np.array([*result.record.curve.rounds, result.record.rounds], dtype=float)


def _payload(result: JudgedRun) -> NDArray[np.float64]:
    return np.array([*result.record.curve.payload, result.record.payload], dtype=float)


def common_curves(places: Sequence[Matrix], gaps: Sequence[Matrix]) -> tuple[Matrix, Matrix]:
    """Curves of several seeds at the same places: each stays where it is until its next point, and after its end.

    Args:
        places: Of the points of each curve, and of its end.
        gaps: At its points.

    Returns:
        The places, from where all curves have begun, and the gaps of each curve there.
    """
    # A logarithmic axis has no place for zero.
    begin = max(min(place[place > 0], default=1.0) for place in places)
    end = max(place[-1] for place in places)
    at = np.unique(np.concatenate([np.geomspace(begin, max(begin, end), POINTS), [begin, end]]))
    at = at[(at >= begin) & (at <= max(begin, end))]
    rows = [
        gap[np.maximum(np.searchsorted(place[:-1], at, side="right") - 1, 0)]
        for place, gap in zip(places, gaps, strict=True)
    ]
    return at, np.array(rows)
