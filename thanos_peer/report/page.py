"""One page that tells how a run went. Everything is in it: nothing is loaded, nothing is executed."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thanos_peer import __version__
from thanos_peer.block import Matrix
from thanos_peer.plots import DARK, LIGHT
from thanos_peer.report import figures, findings, tables
from thanos_peer.report.figures import Drawing
from thanos_peer.report.html import Html, element
from thanos_peer.report.reading import Run
from thanos_peer.report.style import STYLE

MOST_ROWS = 40  # features in the heat map
LONGEST_WAITS = 8


@dataclass(frozen=True)
class PageSection:
    """A part of the page: where a link leads to, its heading, what it says, and the figures in it."""

    anchor: str
    title: str
    content: Html
    drawings: tuple[Drawing, ...] = ()


def sections_of(run: Run) -> list[PageSection]:
    """The sections about a run, in order."""
    return [
        _numbers(run),
        _convergence(run),
        _network(run),
        _loadings(run),
        *_path(run),
        _sparsity(run),
        _waiting(run),
        PageSection("origin", "What ran", tables.table_of(tables.origin_rows(run))),
    ]


def render_page(run: Run, sections: Sequence[PageSection]) -> str:
    """The page as text."""
    name = run.topology.name
    links = [element("a", section.title, href=f"#{section.anchor}") for section in sections]
    header = element(
        "header",
        element("p", "thanos-peer report", class_="quiet"),
        element("h1", name),
        element("p", _lead(run), class_="lead"),
        _missing(run),
        element("nav", *links, aria_label="Sections"),
    )
    parts = [
        element("section", element("h2", part.title, id=part.anchor), part.content, aria_labelledby=part.anchor)
        for part in sections
    ]
    footer = element("footer", element("p", f"Made by thanos-peer {__version__}.", class_="quiet"))
    body = element("body", header, element("main", *parts), footer)
    return "<!DOCTYPE html>\n" + element("html", _head(name), body, lang="en") + "\n"


def _head(name: str) -> Html:
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{name}: thanos-peer report"),
        element("style", Html(STYLE)),
    )


def _lead(run: Run) -> str:
    summary = run.summary
    done = [i for i, facts in run.facts.items() if facts.is_done]
    if summary is None and run.facts and len(done) == len(run.facts):
        rounds = f"{run.topology.d} peers, {run.last_round:,} rounds"
        if len(done) == run.topology.d:
            return f"{rounds}; all of them are done."
        return f"{rounds}. Done: {_listed(done)}; what the other peers have is not in this directory."
    if summary is None:
        return f"{run.topology.d} peers; this run has not ended, or was ended before it could sum up."
    return f"{summary.agents} peers, {summary.rounds:,} rounds in {summary.seconds:.1f} s; {summary.ending}."


def _missing(run: Run) -> Html:
    """What a reader should know to be absent."""
    d, words = run.topology.d, []
    if run.summary is None:
        whose = (
            "of the latest round in the history" if run.history or not run.facts else f"of peer {min(run.facts)}"
        )
        words.append(f"There is no summary.json: the numbers are those {whose}.")
    elif run.summary.digest != run.topology.digest:
        words.append(
            f"summary.json belongs to another topology than {run.topology.file.name}: their digests differ."
        )
    if not run.history:
        words.append("history.csv holds no round: there is no convergence to draw.")
    if len(run.X) < d:
        absent = [i for i in range(d) if i not in run.X]
        words.append(f"{len(absent)} of {d} peers have no result here: {_listed(absent)}.")
    if run.facts and len(run.facts) < d:
        absent = [i for i in range(d) if i not in run.facts]
        words.append(f"{len(absent)} of {d} peers do not tell how long they waited: {_listed(absent)}.")
    if not words:
        return Html("")
    points = element("ul", *(element("li", line) for line in words))
    return element("div", element("strong", "Not everything is here."), points, class_="missing", role="note")


def _listed(agents: Sequence[int], most: int = 12) -> str:
    return ", ".join(map(str, agents[:most])) + (" and others" if len(agents) > most else "")


def _numbers(run: Run) -> PageSection:
    parts = [tables.table_of(rows) for rows in (tables.ending_rows(run), tables.result_rows(run)) if rows]
    content = element("div", *parts, class_="grid") if parts else element("p", "No round has been measured yet.")
    return PageSection("numbers", "Numbers", content)


def _convergence(run: Run) -> PageSection:
    drawings = figures.convergence_drawings(run)
    if not drawings:
        return PageSection("convergence", "Convergence", element("p", "No round has been measured yet."))
    return _with_figures("convergence", "Convergence", drawings)


def _network(run: Run) -> PageSection:
    beside = tables.table_of(tables.network_rows(run))
    return _with_figures("network", "Network", [figures.network_drawing(run)], beside)


def _loadings(run: Run) -> PageSection:
    title, loadings = "Loadings", findings.loadings_of(run)
    if loadings is None:
        return PageSection(
            "loadings", title, element("p", "No peer has left a result: there are no loadings to draw.")
        )
    rows = findings.main_rows(loadings, MOST_ROWS)
    has_values = loadings.shape[1] <= figures.FEW_COMPONENTS
    zeros = (
        "Cells without a number are exactly zero." if has_values else "The paler a cell, the nearer it is to zero."
    )
    whose = "all peers" if len(run.X) == run.topology.d else "the peers whose results are here"
    said = f"The sparse result, the mean over {whose}: zero where it is zero at every one of them. {zeros}"
    beside = element(
        "div",
        element("p", said),
        element("p", _rest(loadings, rows)),
        tables.loadings_table(loadings, rows, run.features),
    )
    return _with_figures("loadings", title, [figures.loadings_drawing(loadings, rows, run.features)], beside)


def _path(run: Run) -> list[PageSection]:
    """The path over mu, where there is one."""
    path, choice = findings.answers_of(run)
    if not path:
        return []
    said = (
        f"{choice[:1].upper()}{choice[1:]}. What a component adds is its share of the variance, less what those "
        "before it explain of the same."
    )
    beside = element("div", element("p", said), tables.path_table(path))
    return [_with_figures("path", "Path over mu", [figures.path_drawing(path)], beside)]


def _rest(loadings: Matrix, rows: Sequence[int]) -> str:
    """What is not in the heat map."""
    n, others = len(loadings), np.delete(loadings, rows, axis=0)
    if not others.size:
        return f"All {n} features are shown."
    largest = float(np.abs(others).max())
    rest = "all loadings of the others are zero" if largest == 0 else f"no other has a loading above {largest:.2g}"
    return f"The {len(rows)} of {n} features with the largest loadings are shown; {rest}."


def _sparsity(run: Run) -> PageSection:
    title, trade_off = "Sparsity against variance", findings.trade_off_of(run)
    drawing = figures.trade_off_drawing(run, trade_off)
    if drawing is None:
        return PageSection(
            "sparsity",
            title,
            element(
                "p",
                "How much variance is explained is not known: no peer tells it, and it cannot be found out here "
                f"({trade_off.why}).",
            ),
        )
    said = (
        "The curve keeps only so many of the largest loadings of the mean X, and sets the others to zero: what "
        "sparsity costs in variance. The regularizer decides where on the way the run ends."
        if len(trade_off.kept)
        else f"There are no numbers to draw a curve from ({trade_off.why}): only where the run has ended is "
        "known, not the curve."
    )
    return _with_figures("sparsity", title, [drawing], element("div", element("p", said)))


def _waiting(run: Run) -> PageSection:
    title, waits = "Time waited per edge", findings.waits_of(run)
    if not np.isfinite(waits).any():
        simulated = run.description.engine not in ("", "network")
        why = (
            "This run was simulated in one process: no peer waited for another."
            if simulated
            else "No peer tells how long it has waited for its neighbors."
        )
        return PageSection("waiting", title, element("p", why))
    longest = findings.longest_waits(waits, LONGEST_WAITS)
    lines = [[f"{i} for {j}", f"{seconds:.2f}"] for i, j, seconds in longest]
    said = (
        "How long a peer was ready for the next round while a neighbor's block was not there, since it was "
        "started. Waits for several neighbors overlap. Squares without color are pairs without an edge."
    )
    beside = element("div", element("p", said), tables.numbers_table(["longest waits", "seconds"], lines))
    return _with_figures("waiting", title, [figures.waiting_drawing(waits)], beside)


def _with_figures(anchor: str, title: str, drawings: Sequence[Drawing], *beside: Html) -> PageSection:
    shown = [_figure(drawing) for drawing in drawings]
    return PageSection(anchor, title, element("div", *shown, *beside, class_="grid"), tuple(drawings))


def _figure(drawing: Drawing) -> Html:
    """A picture that follows the reader's choice of light or dark."""
    dark, light = (_data_uri(drawing.drawn(theme, ".svg")) for theme in (DARK, LIGHT))
    width, height = (str(round(96 * inches)) for inches in drawing.size)
    image = element("img", src=light, alt=drawing.alt, width=width, height=height)
    return element(
        "figure",
        element("picture", element("source", srcset=dark, media="(prefers-color-scheme: dark)"), image),
        element("figcaption", drawing.caption),
    )


def _data_uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
