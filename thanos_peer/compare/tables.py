"""The results as tables: one row per run, one per method, and Markdown for people."""

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from thanos_peer.compare.crossings import crossings
from thanos_peer.compare.gaps import (
    ANOTHER_POINT,
    BEST_POINT,
    FACTOR,
    GAPS,
    NOT_STATIONARY,
    STATIONARY,
    Cost,
    JudgedRun,
)
from thanos_peer.compare.trials import Contender, spell

SPREADS = ("median", "min", "max")


@dataclass(frozen=True)
class Line:
    """All runs of one method with the same settings."""

    contender: Contender
    results: Sequence[JudgedRun]


def lines(results: Sequence[JudgedRun]) -> list[Line]:
    """The runs by method and settings, in the order in which they were asked for."""
    labels = list(dict.fromkeys(result.trial.contender.label for result in results))
    by_label: dict[str, list[JudgedRun]] = {label: [] for label in labels}
    for result in results:
        by_label[result.trial.contender.label].append(result)
    return [Line(found[0].trial.contender, found) for found in by_label.values()]


# ---------------------------------------------------------------------- CSV


def runs_csv(results: Sequence[JudgedRun]) -> str:
    """One row per run."""
    keys = list(dict.fromkeys(key for result in results for key in result.trial.contender.settings))
    head = ["method", "central", *keys, "seed", "ending", "words", "objective", "gap", *_OF_RUN]
    head += [f"{name}_{spell_gap(gap)}" for gap in GAPS for name in Cost._fields]
    return _csv(head, (_run_cells(result, keys) for result in results))


_OF_RUN = (
    *("residual", "feasibility", "consensus", "nonzeros", "entries", "has_same_zeros"),
    *("rounds", "messages_per_round", "payload", "seconds"),
)


def _run_cells(result: JudgedRun, keys: Sequence[str]) -> list[object]:
    contender, record = result.trial.contender, result.record
    settings = [spell(contender.settings[key]) if key in contender.settings else None for key in keys]
    return [
        contender.method,
        contender.is_central,
        *settings,
        result.trial.seed,
        result.ending,
        record.words,
        record.objective,
        result.final_gap,
        *(getattr(record, name) for name in _OF_RUN),
        *(cost for gap in GAPS for cost in result.cost(gap)),
    ]


def table_csv(results: Sequence[JudgedRun]) -> str:
    """One row per method and settings: medians and spread over seeds, and how the runs ended."""
    names = [f"{name}_{spell_gap(gap)}" for gap in GAPS for name in Cost._fields] + list(_MEASURES)
    head = ["method", "seeds", "failed", "endings"]
    head += [f"{name}_{spread}" for name in names for spread in SPREADS]
    return _csv(head, map(_line_cells, lines(results)))


_MEASURES = ("gap", "residual", "feasibility", "nonzeros")


def _measures(result: JudgedRun) -> tuple[float | None, ...]:
    record = result.record
    return result.final_gap, record.residual, record.feasibility, record.nonzeros


def _line_cells(line: Line) -> list[object]:
    costs = np.array([[cost for gap in GAPS for cost in result.cost(gap)] for result in line.results])
    ends = np.array([_measures(result) for result in line.results], dtype=float)  # None becomes NaN
    columns = [*costs.T, *ends.T]
    failed = sum(result.has_failed for result in line.results)
    spreads = [number for column in columns for number in spread(column)]
    return [line.contender.label, len(line.results), failed, _endings(line), *spreads]


def spread(values: Sequence[float] | np.ndarray) -> tuple[float, float, float]:
    """Median, least and largest, of those that are known; NaN if none is."""
    known = [float(value) for value in values if not math.isnan(value)]
    if not known:
        return math.nan, math.nan, math.nan
    return float(np.median(known)), min(known), max(known)


def _csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(head)
    writer.writerows([_csv_cell(cell) for cell in row] for row in rows)
    return text.getvalue()


def _csv_cell(cell: object) -> object:
    """Nothing where there is no number, and "never" where it was not reached."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, float):
        return "never" if math.isinf(cell) else int(cell) if cell.is_integer() and abs(cell) >= 1 else repr(cell)
    return cell


# ---------------------------------------------------------------------- Markdown


def markdown(results: Sequence[JudgedRun], head: Sequence[str]) -> str:
    """For people: what it took, and how it ended."""
    found = lines(results)
    blocks = [
        "\n".join(head),
        _markdown(("method", "gap below", "seeds", "rounds", "messages", "bytes", "seconds"), _cost_rows(found)),
        *crossings(results),
        _legend(results),
        _markdown(
            ("method", "ended", "final gap", "residual", "feasibility", "non-zeros", "same zeros"),
            map(_end_row, found),
        ),
        *_words(found),
    ]
    return "\n\n".join(blocks) + "\n"


def _legend(results: Sequence[JudgedRun]) -> str:
    """By which rule the second table says how runs ended: one for all methods."""
    smoothing = dict.fromkeys(result.trial.contender.method for result in results if result.trial.smooths)
    note = (
        f" These minimise a smoothed problem, and may stop by their own rule where they are {NOT_STATIONARY}: "
        f"{', '.join(smoothing)}."
    )
    return (
        f"Ended: {NOT_STATIONARY} if the residual, of the problem itself, is above {spell_gap(STATIONARY)}, "
        f"whatever tolerance the method goes by. Else {ANOTHER_POINT} if the final gap is above "
        f"{spell_gap(GAPS[-1])} and above {FACTOR:g} times the residual, and {BEST_POINT} if not."
        + (note if smoothing else "")
    )


def _cost_rows(found: Iterable[Line]) -> Iterable[list[str]]:
    for line in found:
        for gap in GAPS:
            costs = [result.cost(gap) for result in line.results]
            reached = sum(math.isfinite(cost.rounds) for cost in costs)
            columns = [_spell_spread([cost[at] for cost in costs], _spell_count) for at in range(3)]
            columns.append(_spell_spread([cost.seconds for cost in costs], _spell_seconds))
            name = line.contender.label if gap == GAPS[0] else ""
            yield [name, spell_gap(gap), f"{reached} of {len(costs)}", *columns]


def _end_row(line: Line) -> list[str]:
    columns = [[_measures(result)[at] for result in line.results] for at in range(4)]
    gap, residual, feasibility, nonzeros = ([value for value in column if value is not None] for column in columns)
    same = [result.record.has_same_zeros for result in line.results if result.record.has_same_zeros is not None]
    return [
        line.contender.label,
        _endings(line),
        *(_spell_spread(values, _spell_measure) for values in (gap, residual, feasibility)),
        _spell_spread(nonzeros, _spell_count),
        f"{sum(same)} of {len(same)}" if same else "",
    ]


def _endings(line: Line) -> str:
    counted = Counter(result.ending for result in line.results)
    return ", ".join(f"{count} {ending}" for ending, count in counted.items())


def _words(found: Iterable[Line]) -> list[str]:
    """What those say that have failed, each thing once."""
    said: dict[str, list[int]] = {}
    for line in found:
        for result in line.results:
            if result.has_failed:
                words = " ".join(result.record.words.split())
                said.setdefault(f"{line.contender.label}, {result.ending}: {words}", []).append(result.trial.seed)
    notes = [f"- {words} (seed {', '.join(map(str, seeds))})" for words, seeds in said.items()]
    return ["\n".join(["What was not reached, in the words of each run:", "", *notes])] if notes else []


def _spell_spread(values: Sequence[float], spelled: Callable[[float], str]) -> str:
    middle, least, most = spread(values)
    if math.isnan(middle):
        return ""
    shown, low, high = (("never" if math.isinf(value) else spelled(value)) for value in (middle, least, most))
    return shown if low == high else f"{shown} ({low} to {high})"


def _spell_count(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")  # a median may lie between two


def _spell_seconds(value: float) -> str:
    return f"{value:.2g}" if value < 100 else f"{value:,.0f}"


def _spell_measure(value: float) -> str:
    return f"{value:.1e}" if value else "0"


def spell_gap(gap: float) -> str:
    """1e-2, not 0.01."""
    return f"{gap:.0e}".replace("e-0", "e-")


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """With columns in line, so that it can be read as it is."""
    table = [list(head), *map(list, rows)]
    widths = [max(len(row[at]) for row in table) for at in range(len(head))]
    table.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| "
        + " | ".join(cell.replace("|", "/").ljust(width) for cell, width in zip(row, widths, strict=True))
        + " |"
        for row in table
    )
