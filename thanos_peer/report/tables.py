"""The numbers of a report in rows: a label, the value to the last digit, and how it is shown."""

from collections.abc import Sequence
from typing import NamedTuple

from thanos_peer.algorithm.methods import METHODS
from thanos_peer.block import Matrix
from thanos_peer.preparation import PathRow, outline
from thanos_peer.report.html import Html, element, join
from thanos_peer.report.reading import Run
from thanos_peer.storage.summary import Summary, words_on_manifold
from thanos_peer.topology import Topology

# Components that have columns of their own in the table of a path.
FEW = 3

Number = float | int


class TableRow(NamedTuple):
    """One line of a table."""

    label: str
    shown: str
    value: Number | None = None


def ending_rows(run: Run) -> list[TableRow]:
    """How the run ended; of one that has not, its latest round."""
    summary = run.summary
    if summary is None:
        return _latest_rows(run) or _first_peers_rows(run)
    return [
        TableRow("Ending", summary.ending),
        TableRow("Rounds", f"{summary.rounds:,}", summary.rounds),
        TableRow("Time", f"{summary.seconds:.1f} seconds", summary.seconds),
        *_measure_rows(summary.objective, summary.feasibility, summary.consensus),
        *_judged_rows(summary),
        *_verdict_rows(
            summary.residual, summary.tolerance, summary.verdict, f", relative to {summary.relative_to}"
        ),
        *_smoothing_rows(summary),
        *_reference_rows(summary),
    ]


def result_rows(run: Run) -> list[TableRow]:
    """What came out, and what went over the network."""
    rows = [] if run.summary is None else _summary_rows(run.summary)
    if run.facts:
        total = sum(edge.bytes_sent for facts in run.facts.values() for edge in facts.edges.values())
        rows.append(TableRow("All bytes sent", f"{total:,}, frames and greetings included", total))
    return rows


def _latest_rows(run: Run) -> list[TableRow]:
    if not run.history:
        return []
    latest = {name: float(column[-1]) for name, column in run.history.items()}
    return [
        TableRow("Latest round", f"{latest['round']:,.0f}", int(latest["round"])),
        *_measure_rows(latest["objective"], latest["feasibility"], latest["consensus"]),
        TableRow("Epsilon of this round", f"{latest['epsilon']:.2e}, by Def. 3", latest["epsilon"]),
    ]


def _first_peers_rows(run: Run) -> list[TableRow]:
    """The result as the first peer that has left one knows it: where there is no summary of all."""
    if not run.facts:
        return []
    first = min(run.facts)
    facts = run.facts[first]
    known = {
        "Objective": (facts.objective, ".9g"),
        "Variance explained": (facts.explained_variance, ".2%"),
        "Variance, sparse": (facts.sparse_explained_variance, ".2%"),
        "Feasibility": (facts.feasibility, ".2e"),
    }
    tolerance = run.topology.tolerance
    return [
        TableRow("As peer", str(first), first),
        TableRow("Rounds", f"{facts.round:,}", facts.round),
        *(
            TableRow(label, f"{value:{form}}", value)
            for label, (value, form) in known.items()
            if value is not None
        ),
        *_verdict_rows(facts.residual, tolerance, facts.verdict),
        TableRow("Non-zero loadings", f"{sum(facts.nonzeros):,}", sum(facts.nonzeros)),
    ]


def _measure_rows(objective: float, feasibility: float, consensus: float) -> list[TableRow]:
    return [
        TableRow("Objective", f"{objective:.9g}", objective),
        TableRow(
            "Feasibility",
            f"{feasibility:.2e}, mean of ||X_i'X_i - I||{words_on_manifold(feasibility)}",
            feasibility,
        ),
        TableRow("Consensus", f"{consensus:.2e}, largest ||X_i - mean||", consensus),
    ]


def _judged_rows(summary: Summary) -> list[TableRow]:
    """The objective of X with exact zeros, of which residual and verdict are, where that is another."""
    judged = summary.judged_objective
    if judged is None or f"{judged:.9g}" == f"{summary.objective:.9g}":
        return []
    return [TableRow("Objective, judged", f"{judged:.9g}, of X with exact zeros", judged)]


def _verdict_rows(residual: float | None, tolerance: float, verdict: str | None, unit: str = "") -> list[TableRow]:
    """What is certified of the non-smooth problem, and what that means."""
    wanted = f"tolerance {tolerance:g}" if tolerance else "no tolerance was set"
    shown = "not known" if residual is None else f"{residual:.2e}{unit}"
    row = TableRow("Residual", f"{shown}; {wanted}", residual)
    return [row, TableRow("Verdict", verdict)] if verdict else [row]


def _smoothing_rows(summary: Summary) -> list[TableRow]:
    """What is certified of the smoothed problem, by methods that smooth."""
    if summary.sigma is None:
        return []
    return [
        TableRow("Epsilon of Def. 3", f"{summary.epsilon:.2e}, with sigma = {summary.sigma:.3g}", summary.epsilon)
    ]


def _summary_rows(summary: Summary) -> list[TableRow]:
    variance = {
        "Variance explained": summary.variance_explained,
        "Variance, sparse": summary.sparse_variance_explained,
    }
    phases = ", ".join(f"{name} {rounds:,}" for name, rounds in summary.rounds_by_phase.items())
    phases += "".join(f"; {name} was cut short by its max_rounds" for name in summary.phases_cut_short)
    return [
        *(TableRow(name, f"{share:.2%}", share) for name, share in variance.items() if share is not None),
        *([TableRow("Plain PCA explains", known)] if (known := summary.words_on_plain_pca()) else []),
        TableRow(
            "Non-zero loadings",
            f"{summary.nonzeros:,} of {summary.entries:,}{summary.words_on_mu()}",
            summary.nonzeros,
        ),
        TableRow("Features in use", f"{summary.nonzero_rows:,} of {summary.rows:,}", summary.nonzero_rows),
        *([TableRow("Rounds by phase", phases)] if len(summary.rounds_by_phase) > 1 else []),
        TableRow("Messages", f"{summary.messages:,}", summary.messages),
        TableRow("Traffic", f"{summary.payload_bytes:,} bytes in them", summary.payload_bytes),
    ]


def _reference_rows(summary: Summary) -> list[TableRow]:
    known = {
        "Residual of the reference X*": summary.reference_residual,
        "Distance to X*": summary.distance,
        "Distance to X*, aligned": summary.aligned_distance,
    }
    rows = [TableRow(label, f"{value:.3e}", value) for label, value in known.items() if value is not None]
    if summary.gap is not None:
        gap = f"{summary.gap:.3e}{summary.words_on_gap()}"
        rows.append(TableRow("Objective gap to X*", gap, summary.gap))
    return rows


def network_rows(run: Run) -> list[TableRow]:
    """The graph in numbers."""
    graph = run.topology.graph
    weights = [weight for i, row in enumerate(graph.mixing) for j, weight in row if i != j]
    kind = "Metropolis" if graph.explicit_weights is None else "given as a matrix"
    return [
        TableRow("Peers", f"{graph.d:,}", graph.d),
        TableRow("Edges", f"{len(graph.edges):,}", len(graph.edges)),
        TableRow("Neighbors per peer", _range(graph.degrees)),
        TableRow("Weights of edges", f"{_range(weights)}; {kind}"),
        TableRow("Diameter", str(graph.diameter), graph.diameter),
        TableRow(
            "lambda",
            f"{graph.lambda_:.6f}: what a round of mixing leaves of any disagreement, at most",
            graph.lambda_,
        ),
    ]


def _range(values: Sequence[float]) -> str:
    low, high = (f"{value:.4g}" for value in (min(values, default=0), max(values, default=0)))
    return f"{low} each" if low == high else f"{low} to {high}"


def origin_rows(run: Run) -> list[TableRow]:
    """What ran, when, and with what."""
    topology, described = run.topology, run.description
    problem = topology.problem
    weight = "" if problem.is_smooth else f" with {problem.weights_in_words()}"
    rows = {
        "Started": described.started,
        "Run as": {"network": "a process per peer"}.get(described.engine, f"one process ({described.engine})"),
        "Command": " ".join(described.command),
        "Topology file": described.topology,
        "Digest": topology.digest,
        "Problem": f"n = {problem.n}, p = {problem.p}, regularizer {problem.regularizer}{weight}",
        "Data": problem.data.kind,
        "Algorithm": f"{_method(topology)}, at most {outline(topology).most:,} rounds, "
        f"tolerance {topology.tolerance:g}",
        "Versions": ", ".join(f"{name} {version}" for name, version in described.versions.items()),
    }
    if not described.engine:
        del rows["Run as"]
    return [TableRow(label, shown) for label, shown in rows.items() if shown]


def _method(topology: Topology) -> str:
    """Its name, as it was asked for and as it was chosen, and beta where it has one."""
    asked, method, beta = topology.algorithm.method, topology.method, topology.algorithm.beta
    name = method if asked == method else f"{asked} ({method})"
    has_beta = METHODS[method].has_parameters
    return f"{name}, beta = {beta if isinstance(beta, str) else f'{beta:g}'}" if has_beta else name


def table_of(rows: Sequence[TableRow]) -> Html:
    """Rows with a label each; what is rounded for the eye has all its digits in the `value` of a data element."""
    lines = [
        element(
            "tr",
            element("th", row.label, scope="row"),
            element("td", row.shown if row.value is None else element("data", row.shown, value=repr(row.value))),
        )
        for row in rows
    ]
    return element("div", element("table", element("tbody", *lines)), class_="card")


def numbers_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> Html:
    """A table whose first column names what the others are about."""
    heading = element("tr", *(element("th", text, scope="col") for text in head))
    body = [
        element("tr", element("th", line[0], scope="row"), *(element("td", cell) for cell in line[1:]))
        for line in lines
    ]
    return element(
        "div",
        element("table", element("thead", heading), element("tbody", *body), class_="numbers"),
        class_="card",
    )


def path_table(path: Sequence[PathRow]) -> Html:
    """A row for each value of mu; an arrow before the chosen one."""
    components = range(1, len(path[0].nonzeros) + 1)
    counted = [f"non-zeros {j}" for j in components] if len(components) <= FEW else []
    added = [f"adds {j}" for j in components] if len(components) <= FEW else []
    state = {True: "converged", False: "not converged", None: "not judged"}
    head = ["mu", "non-zeros", *counted, "variance", *added, "objective", "residual", ""]
    lines = [
        [
            f"{'→ ' if row.is_chosen else ''}{row.mu:.4g}",
            str(sum(row.nonzeros)),
            *(str(count) for count in row.nonzeros[: len(counted)]),
            f"{row.explained:.2%}",
            *(f"{share:.2%}" for share in row.adjusted[: len(added)]),
            f"{row.objective:.6g}",
            f"{row.residual:.1e}",
            state[row.has_converged] + (", chosen" if row.is_chosen else ""),
        ]
        for row in path
    ]
    return numbers_table(head, lines)


def loadings_table(loadings: Matrix, rows: Sequence[int], names: Sequence[str]) -> Html:
    """The loadings that the heat map shows, as figures."""
    head = ["feature", *(str(column + 1) for column in range(loadings.shape[1]))]
    lines = [[names[row], *(f"{value:.4f}" if value else "0" for value in loadings[row])] for row in rows]
    return element("details", element("summary", "The same as a table"), join(numbers_table(head, lines)))
