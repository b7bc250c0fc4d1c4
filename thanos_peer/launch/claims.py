"""What the peers of a run claim of their results, computed again from the data of all of them.

Nothing here shares mathematics with what it checks: the numbers follow from the samples and the definitions alone.

    samples, mean, scale        of all samples, with the mean of what is there wherever a value is missing
    missing, fill               how many values of each feature are missing, and what they become
    overall                     ||A||_F^2/n <= overall^2 <= ||A||_F^2, of the samples centered and scaled
    common                      the mean of all peers' X
    feasibility                 ||X'X - I||_F
    nonzeros, nonzero_rows      of the sparse X
    objective, explained...     at the orthonormal matrix nearest to the common X, or to the sparse one
    residual                    at least that of the sparse X, in the largest unit that a peer may take
    has_converged               the residual is within the tolerance and not above what the weakest component is
                                worth, if it is worth more than rounding, and the columns of the sparse X are
                                orthonormal
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from thanos_peer.block import AgentId, Matrix
from thanos_peer.launch.independent import filled, prepared, regularizer_value, worth_of
from thanos_peer.loadings.result import Result, load_result
from thanos_peer.topology import Topology
from thanos_peer.topology.data import samples_of

# A point nearer to orthonormal columns than this may be certified.
CERTIFIABLE = 1e-9
# Largest relative difference between two ways to compute the same number.
EXACT = 1e-7
ROUNDING = 1e-12  # residuals below are not compared
# Factor by which a residual may be larger than claimed: both are found by iterations.
LOOSE = 1.01
# Components that are worth no larger share than this are rounding: twice what peers say, who round as well.
WORTHLESS = 2e-14
# Regularizers that `independent.py` knows, named again here: the judge imports nothing of the methods.
JUDGED = ("l1", "l21", "group-l21", "none")

Facts: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """One thing that a peer says: in numbers, what follows from the data, and whether that is the same."""

    peer: AgentId
    name: str
    claimed: object
    computed: object
    is_true: bool

    def __str__(self) -> str:
        return f"peer {self.peer}: {self.name}: claimed {self.claimed}, the data say {self.computed}"


@dataclass(frozen=True)
class Checked:
    """What came of a check: how many claims there were, those that are false, and what could not be checked."""

    count: int
    false: list[Claim]
    left_out: str


@dataclass(frozen=True, eq=False)
class Data:
    """The samples of all peers together, and what is minimised over them.

    Attributes:
        topology: What was asked for.
        read: The samples of each peer, (m_i, n), NaN where a value is missing.
        chosen: The weight of the regularizer that an answer of a path belongs to; None for that of the file.
    """

    topology: Topology
    read: Sequence[Matrix]
    chosen: float | None = None

    @property
    def mu(self) -> float:
        """The weight of the regularizer."""
        return self.topology.problem.weights[0] if self.chosen is None else self.chosen

    @cached_property
    def rows(self) -> Matrix:
        """All samples, (m, n)."""
        rows = np.concatenate(self.read)
        return filled(rows) if np.isnan(rows).any() else rows

    @cached_property
    def parts(self) -> list[Matrix]:
        """The same by peer."""
        return np.split(self.rows, np.cumsum([len(part) for part in self.read])[:-1])

    @cached_property
    def A(self) -> Matrix:
        """The same as they are minimised with, but for `overall`: (n, m)."""
        data = self.topology.problem.data
        if data.kind == "synthetic":
            return self.rows.T
        return prepared(self.parts, center=data.center, scale=data.scale)

    @cached_property
    def largest_unit(self) -> float:
        """The sum of all ||A_i||_2^2 divided by ||A||_2^2: the most that a peer may take for it."""
        ends = np.cumsum([len(part) for part in self.parts])[:-1]
        sizes = [np.linalg.norm(A_i, 2) ** 2 for A_i in np.split(self.A, ends, axis=1) if A_i.size]
        return float(sum(sizes) / np.linalg.norm(self.A, 2) ** 2)

    @property
    def is_judged(self) -> bool:
        """Whether objective and regularizer are known here: not those of the user's own."""
        problem = self.topology.problem
        return problem.objective is None and problem.regularizer in JUDGED

    def least_residual(self, X: Matrix, overall: float) -> float:
        """How far X is from stationary at the least, in the largest unit that a peer may take."""
        problem, key = self.topology.problem, (X.tobytes(), overall)
        if key not in self._residuals:
            groups = problem.regularizer_options.get("groups", ())
            found = worth_of(self.A / overall, X, problem.regularizer, self.mu, groups)
            self._residuals[key] = found.residual / self.largest_unit
        return self._residuals[key]

    @cached_property
    def _residuals(self) -> dict[tuple[bytes, float], float]:
        return {}

    def most_residual(self, X: Matrix, overall: float) -> float:
        """The largest residual that may be called converged: see `thanos_peer.convergence`."""
        return min(self.topology.tolerance, 1.0, self._weakest(X, overall))

    def objective(self, X: Matrix, overall: float) -> float:
        """The value of the whole problem at X."""
        problem = self.topology.problem
        groups = problem.regularizer_options.get("groups", ())
        g = self.mu * regularizer_value(X, problem.regularizer, groups)
        return g - float(np.square(self.A.T @ X).sum()) / 2 / overall**2

    def explained(self, X: Matrix) -> Matrix:
        """The share of ||A||_F^2 that each of the orthonormal columns of X captures."""
        shares: Matrix = np.square(self.A.T @ X).sum(axis=0) / np.square(self.A).sum()
        return shares

    def added(self, X: Matrix) -> Matrix:
        """The share of ||A||_F^2 of the scores of each column of X, less what those before it explain of them."""
        R = np.linalg.qr(self.A.T @ X, mode="r")
        shares: Matrix = np.square(np.diag(R)) / np.square(self.A).sum()
        return shares

    def _weakest(self, X: Matrix, overall: float) -> float:
        """What the weakest component is worth, relative to ||A||_2^2, leaving out those that are worth nothing."""
        size, captured = np.linalg.norm(self.A, 2) ** 2, np.linalg.svd(self.A.T @ X, compute_uv=False) ** 2
        worth = (captured + self.mu * overall**2) / size
        return float(min(worth[worth > WORTHLESS * self.largest_unit], default=0.0))


@dataclass(frozen=True, eq=False)
class PeerClaims:
    """What one peer has left.

    Attributes:
        peer: Which.
        result: Its loadings, and its facts beside them.
        common: The mean of all peers' X, as they have left them.
    """

    peer: AgentId
    result: Result
    common: Matrix

    def claims(self, data: Data) -> Iterator[Claim]:
        """All that it says and that can be computed again."""
        if (mu := self._facts.get("mu")) is not None:
            data = replace(data, chosen=mu)
            if (weights := data.topology.problem.weights) and mu not in weights:
                yield Claim(self.peer, "mu", mu, f"one of {weights}", is_true=False)
        yield from self._on_samples(data)
        yield from self._on_loadings()
        if data.is_judged:
            yield from self._on_objective(data)
            yield from self._on_convergence(data)
            yield from self._on_path(data)

    @property
    def _facts(self) -> Facts:
        return self.result.facts

    @property
    def _overall(self) -> float:
        return float(self._facts.get("overall") or 1.0)

    def _equal(self, name: str, claimed: Any, computed: Any, size: Any = 1.0) -> Iterator[Claim]:
        """A claim that is true if both are the same up to rounding, in units of a size; none if none is made."""
        if claimed is None:
            return
        one, other = np.atleast_1d(np.asarray(claimed, np.float64)), np.atleast_1d(np.asarray(computed))
        if one.shape != other.shape:
            yield Claim(self.peer, name, f"shape {one.shape}", f"shape {other.shape}", is_true=False)
            return
        off = np.abs(one - other) / np.broadcast_to(size, one.shape)
        worst = np.unravel_index(int(np.argmax(np.where(np.isfinite(off), off, np.inf))), off.shape)
        where = f"{name}[{', '.join(map(str, worst))}]" if one.size > 1 else name
        yield Claim(self.peer, where, float(one[worst]), float(other[worst]), is_true=bool((off <= EXACT).all()))

    def _on_samples(self, data: Data) -> Iterator[Claim]:
        mean, deviation = data.rows.mean(axis=0), data.rows.std(axis=0)
        size = np.abs(mean) + deviation + np.finfo(np.float64).tiny
        yield from self._equal("samples", self._facts.get("samples"), len(data.rows))
        missing = np.isnan(np.concatenate(data.read)).sum(axis=0)
        yield from self._equal("missing", self._facts.get("missing"), missing)
        yield from self._equal("fill", self.result.fill_, mean, size)
        yield from self._equal("mean", self.result.mean_, mean, size)
        yield from self._equal("scale", self.result.scale_, deviation, size)
        if (overall := self._facts.get("overall")) is not None:
            most = float(np.linalg.norm(data.A))
            least = most / float(np.sqrt(len(data.A)))
            is_true = (1 - EXACT) * least <= overall <= (1 + EXACT) * most
            yield Claim(self.peer, "overall", overall, f"{least} to {most}", is_true=bool(is_true))

    def _on_loadings(self) -> Iterator[Claim]:
        X, common = self.result.components_.T, self.result.common_components_
        yield from self._equal("feasibility", self._facts.get("feasibility"), _infeasibility(X))
        sparse = self.result.sparse_components_.T
        yield from self._equal("nonzeros", self._facts.get("nonzeros"), (sparse != 0).sum(axis=0))
        yield from self._equal("nonzero_rows", self._facts.get("nonzero_rows"), (sparse != 0).any(axis=1).sum())
        yield from self._equal("common", None if common is None else common.T, self.common)

    def _on_objective(self, data: Data) -> Iterator[Claim]:
        if self.result.common_components_ is None:
            return
        nearest = _basis(self.result.common_components_.T)
        value, explained = data.objective(nearest, self._overall), data.explained(nearest)
        sparse = data.explained(_basis(self.result.sparse_components_.T, is_span=True)).sum()
        yield from self._equal("objective", self._facts.get("objective"), value, max(abs(value), EXACT))
        yield from self._equal("explained_variance", self._facts.get("explained_variance"), explained.sum())
        yield from self._equal("explained_variance_ratio", self.result.explained_variance_ratio_, explained)
        yield from self._equal("sparse_explained_variance", self._facts.get("sparse_explained_variance"), sparse)

    def _on_convergence(self, data: Data) -> Iterator[Claim]:
        claimed, has_converged = self._facts.get("residual"), self._facts.get("has_converged")
        if claimed is None and not has_converged:
            return
        sparse = self.result.sparse_components_.T
        off, least = _infeasibility(sparse), data.least_residual(sparse, self._overall)
        if claimed is not None and off <= CERTIFIABLE:  # else another point is certified
            yield Claim(
                self.peer, "residual", claimed, f"at least {least}", is_true=least <= LOOSE * claimed + ROUNDING
            )
        if has_converged:
            most = data.most_residual(sparse, self._overall)
            is_true = claimed is not None and max(off, least) <= LOOSE * most + ROUNDING
            said = f"a residual of at least {least}, columns {off} off orthonormal; at most {most} has converged"
            yield Claim(self.peer, "has_converged", claimed=True, computed=said, is_true=is_true)

    def _on_path(self, data: Data) -> Iterator[Claim]:
        """Each row of the table, of the answer with that mu."""
        for row, components in zip(self._facts.get("path", ()), self.result.path_components_, strict=True):
            one, X = replace(data, chosen=row["mu"]), components.T
            name, value = f"path, mu = {row['mu']:g}", one.objective(_basis(X), self._overall)
            explained = one.explained(_basis(X, is_span=True)).sum()
            yield from self._equal(f"{name}: nonzeros", row["nonzeros"], np.count_nonzero(X, axis=0))
            yield from self._equal(f"{name}: objective", row["objective"], value, max(abs(value), EXACT))
            yield from self._equal(f"{name}: explained", row["explained"], explained)
            yield from self._equal(f"{name}: adjusted", row["adjusted"], one.added(_basis(X)))
            if row["has_converged"]:
                least, most = one.least_residual(X, self._overall), one.most_residual(X, self._overall)
                is_true = max(_infeasibility(X), least) <= LOOSE * most + ROUNDING
                yield Claim(self.peer, f"{name}: has_converged", claimed=True, computed=least, is_true=is_true)


def check_claims(topology: Topology, path: Path) -> Checked:
    """Compute again what all peers of a run say of it, in the run directory `path`."""
    data = Data(topology, samples_of(topology, range(topology.d)))
    results = [load_result(path, peer=i) for i in range(topology.d)]
    common: Matrix = np.mean([result.components_.T for result in results], axis=0)
    claims = [claim for i, result in enumerate(results) for claim in PeerClaims(i, result, common).claims(data)]
    left_out = "" if data.is_judged else "; not the residual and the objective of code of the user's own"
    return Checked(len(claims), [claim for claim in claims if not claim.is_true], left_out)


def _infeasibility(X: Matrix) -> float:
    return float(np.linalg.norm(X.T @ X - np.eye(X.shape[1])))


def _basis(X: Matrix, *, is_span: bool = False) -> Matrix:
    """The orthonormal matrix nearest to X, or an orthonormal basis of its columns, of which some may be zero."""
    U, lengths, Vt = np.linalg.svd(X, full_matrices=False)
    basis: Matrix = U[:, lengths > ROUNDING * max(1.0, lengths[0])] if is_span else U @ Vt
    return basis
