"""What a report finds out from a run: loadings, what sparsity costs in variance, who waited for whom."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thanos_peer.algorithm.stiefel import orthonormal_basis, polar
from thanos_peer.block import AgentId, Matrix
from thanos_peer.errors import ConfigError
from thanos_peer.preparation import PathRow
from thanos_peer.problem import Instance, build
from thanos_peer.report.reading import Run
from thanos_peer.storage.summary import explained

STEPS = 80  # points of a curve, at most
# Numbers in all samples together, at most: more are not made for one curve.
LARGEST_DATA = 10_000_000
# Bytes in all data files together, at most: more are not read for one curve either.
LARGEST_FILES = 8 * LARGEST_DATA


def mean_of(run: Run) -> Matrix | None:
    """The mean X of all peers that left one, (n, p)."""
    return np.mean([run.X[i] for i in sorted(run.X)], axis=0) if run.X else None


def loadings_of(run: Run) -> Matrix | None:
    """The mean of all sparse X, (n, p), as the summary counts its non-zeros: zero where all of them are."""
    return np.mean([run.sparse[i] for i in sorted(run.sparse)], axis=0) if run.sparse else None


@dataclass(frozen=True)
class TradeOff:
    """How much variance is explained when only the largest loadings are kept.

    Attributes:
        kept: How many are kept, increasing.
        shares: The share of the variance for each; empty like `kept` if it is not known.
        why: Why not, then.
    """

    kept: Matrix
    shares: Matrix
    why: str = ""


def trade_off_of(run: Run) -> TradeOff:
    """Keep the m largest loadings of the mean on the manifold, for m from 1 to all."""
    mean, instance = mean_of(run), instance_of(run)
    if mean is None or isinstance(instance, str):
        why = "no peer has left a result" if mean is None else str(instance)
        return TradeOff(np.array([]), np.array([]), why)
    X = polar(mean)
    kept = np.unique(np.geomspace(1, X.size, STEPS).round().astype(int))
    order = np.argsort(-np.abs(X), axis=None, kind="stable")
    return TradeOff(kept, np.array([explained(instance, _keep(X, order[:m])) for m in kept]))


class End(NamedTuple):
    """Where a run has ended: the non-zeros of its sparse result, and the shares that it and X explain."""

    nonzeros: int
    sparse: float
    dense: float


def end_of(run: Run) -> End | None:
    """By the summary, or else by the first peer that knows; None if none does."""
    summary = run.summary
    ends = [
        (facts.nonzeros, facts.sparse_explained_variance, facts.explained_variance)
        for _, facts in sorted(run.facts.items())
    ]
    if summary is not None:
        ends = [([summary.nonzeros], summary.sparse_variance_explained, summary.variance_explained)]
    return next(
        (
            End(sum(nonzeros), sparse, dense)
            for nonzeros, sparse, dense in ends
            if sparse is not None and dense is not None
        ),
        None,
    )


def answers_of(run: Run) -> tuple[Sequence[PathRow], str]:
    """The table of a path over mu, and by which rule the result was chosen; nothing where there is none."""
    told = [run.summary] if run.summary is not None else [run.facts[i] for i in sorted(run.facts)]
    return next(((each.path, each.choice) for each in told if each.path), ((), ""))


def _keep(X: Matrix, places: NDArray[np.intp]) -> Matrix:
    """An orthonormal basis of what is left of X when all but some places are zero."""
    sparse = np.zeros(X.size)
    sparse[places] = X.ravel()[places]
    return orthonormal_basis(sparse.reshape(X.shape))


def instance_of(run: Run) -> Instance | str:
    """The problem with its data, or why that is not at hand. Data may lie where the run's own topology says."""
    topology, data = run.topology, run.topology.problem.data
    if topology.problem.own_code():
        return "the topology names code of its own, which a report does not run"
    if data.kind == "synthetic":
        is_small = data.samples * topology.problem.n <= LARGEST_DATA
        return build(topology) if is_small else "the samples are too many to be made again for a curve"
    try:
        size = sum(topology.data_file(i).stat().st_size for i in range(topology.d))
        return build(topology) if size <= LARGEST_FILES else "the data files are too large to be read for a curve"
    except OSError as error:
        return f"{error.filename} cannot be read: {error.strerror}"
    except ConfigError as error:
        return str(error)


def waits_of(run: Run) -> Matrix:
    """Seconds that peer i has waited for peer j, (d, d); NaN where there is no edge or no figure."""
    waits = np.full((run.topology.d, run.topology.d), np.nan)
    for i, facts in run.facts.items():
        for j, edge in facts.edges.items():
            waits[i, j] = edge.seconds_waited
    return waits


def longest_waits(waits: Matrix, count: int) -> list[tuple[AgentId, AgentId, float]]:
    """Who waited longest, for whom, for how many seconds."""
    order = np.argsort(-np.nan_to_num(waits, nan=-1.0), axis=None, kind="stable")[:count]
    pairs = [divmod(int(place), len(waits)) for place in order]
    return [(i, j, float(waits[i, j])) for i, j in pairs if np.isfinite(waits[i, j])]


def main_rows(loadings: Matrix, count: int) -> list[int]:
    """All rows if they are not too many, or else those with the largest loadings, in their own order, no zeros."""
    if len(loadings) <= count:
        return list(range(len(loadings)))
    lengths = np.linalg.norm(loadings, axis=1)
    largest = np.argsort(-lengths, kind="stable")[:count]
    return sorted(int(row) for row in largest if lengths[row] > 0 or row == largest[0])
