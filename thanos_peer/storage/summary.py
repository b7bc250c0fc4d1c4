"""The result of a run in numbers and in words."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from thanos_peer.algorithm.measures import judged
from thanos_peer.algorithm.reference import TARGET, Reference
from thanos_peer.algorithm.solving import NEAR
from thanos_peer.algorithm.stiefel import infeasibility, orthonormal_basis, polar
from thanos_peer.block import Matrix
from thanos_peer.convergence import Convergence, judge
from thanos_peer.loadings.findings import words_on_mu
from thanos_peer.preparation import PathRow
from thanos_peer.problem import Instance
from thanos_peer.simulate import Row, ending_of
from thanos_peer.storage.outcome import Outcome

# Relative to the objective: an answer that is below X* by less than this is as good.
ROUNDING = 1e-8
MOST_SHOWN = 8  # components, in a line
OF_THE_LAST_ROW = ("objective", "feasibility", "consensus", "sigma", "distance", "aligned_distance", "gap")


@dataclass(frozen=True)
class Summary:
    """The result of a run in numbers. X is the mean of all agents' X_i moved to the manifold.

    Residual and verdict are of the answer that is judged: X with exact zeros, where that is on the manifold.
    Methods that mix leave it elsewhere than X: `judged_objective` is its own.

    The variance explained is known for sparse PCA only, and of an X near the manifold: the nearest point to zeros
    may be any. `rounds` are those of the phase that minimises; messages and bytes are of all phases.
    """

    name: str
    digest: str
    ending: str
    rounds: int
    seconds: float
    agents: int
    objective: float
    variance_explained: float | None
    sparse_variance_explained: float | None
    nonzeros: int
    entries: int
    nonzero_rows: int
    rows: int
    feasibility: float
    consensus: float
    epsilon: float
    sigma: float | None
    residual: float
    tolerance: float
    messages: int
    payload_bytes: int
    single_features: int = 0
    has_converged: bool | None = None
    verdict: str = ""
    relative_to: str = "||A||^2"
    reference_residual: float | None = None
    distance: float | None = None
    aligned_distance: float | None = None
    gap: float | None = None
    judged_objective: float | None = None
    rounds_by_phase: dict[str, int] = field(default_factory=dict)
    phases_cut_short: list[str] = field(default_factory=list)
    mu: float | None = None
    path: list[PathRow] = field(default_factory=list)
    choice: str = ""
    plain_pca_explained_variance_ratio: list[float] = field(default_factory=list)

    def in_words(self) -> str:
        """A few lines for a person."""
        lines = [
            f"{self.name}: {self.agents} agents, {self.rounds} rounds in {self.seconds:.1f} s; {self.ending}.",
            f"  objective           {self.objective:.9g}",
            *self._words_on_judged(),
            *self._words_on_variance(),
            f"  non-zeros           {self.nonzeros} of {self.entries}, in {self.nonzero_rows} of {self.rows} rows"
            + self.words_on_mu(),
            f"  feasibility         {self.feasibility:.2e}  (mean of ||X_i'X_i - I||)"
            + words_on_manifold(self.feasibility),
            f"  consensus           {self.consensus:.2e}  (largest ||X_i - mean||)",
            f"  residual            {self.residual:.2e} of the non-smooth problem, relative to {self.relative_to}",
            f"  verdict             {self.verdict}",
            *self._words_on_path(),
            *self._words_on_plain_pca(),
            *self._words_on_phases(),
            f"  traffic             {self.messages:,} messages, {self.payload_bytes:,} bytes in them",
        ]
        return "\n".join(lines + self._words_on_reference())

    def words_on_mu(self) -> str:
        """What the zeros say of the weight of the regularizer; nothing where it looks right."""
        return words_on_mu(self.nonzeros, self.single_features, self.rows, self.entries // self.rows)

    def _words_on_judged(self) -> list[str]:
        known, judged = f"{self.objective:.9g}", self.judged_objective
        if judged is None or f"{judged:.9g}" == known:
            return []
        return [f"  objective, judged   {judged:.9g}  (of X with exact zeros, as residual and verdict are)"]

    def _words_on_phases(self) -> list[str]:
        if len(self.rounds_by_phase) < 2:
            return []
        phases = ", ".join(f"{name} {rounds}" for name, rounds in self.rounds_by_phase.items())
        cut = "".join(f"; {name} was cut short by its max_rounds" for name in self.phases_cut_short)
        return [f"  rounds by phase     {phases}{cut}"]

    def _words_on_path(self) -> list[str]:
        """The table of a path, with the row that the result is."""
        if not self.path:
            return []
        lines = [
            f"  {'>' if row.is_chosen else ' '} mu = {row.mu:<9.4g} {sum(row.nonzeros):>6} non-zeros "
            f"({_listed(row.nonzeros)})  variance {row.explained:7.2%}  {_state(row)}"
            for row in self.path
        ]
        return [f"  path over mu        {self.choice}", *lines]

    def _words_on_plain_pca(self) -> list[str]:
        words = self.words_on_plain_pca()
        return [f"  plain PCA explains  {words}"] if words else []

    def words_on_plain_pca(self) -> str:
        """What so many components of plain PCA explain together; nothing where that is not known."""
        together = np.cumsum(self.plain_pca_explained_variance_ratio)
        shown = ", ".join(f"{j}: {share:.0%}" for j, share in enumerate(together, start=1))
        return f"{shown} (so many components together)" if shown else ""

    def _words_on_variance(self) -> list[str]:
        if self.sparse_variance_explained is None:
            return []
        known = "unknown" if self.variance_explained is None else f"{self.variance_explained:.2%}"
        return [f"  variance explained  {known} (sparse: {self.sparse_variance_explained:.2%})"]

    def _words_on_reference(self) -> list[str]:
        if self.reference_residual is None:
            return []
        note = "" if self.reference_residual < TARGET else "  (NOT below 1e-10: take the distances with care)"
        return [
            f"  reference X*        residual {self.reference_residual:.1e}{note}",
            f"  distance to X*      {self.distance:.3e}, after the best alignment {self.aligned_distance:.3e}",
            f"  objective gap       {self.gap:+.3e}{self.words_on_gap()}",
        ]

    def words_on_gap(self) -> str:
        """That the answer is better than X*, where it is: X* is a stationary point, as other answers are."""
        if self.gap is None or self.gap >= -ROUNDING * abs(self.objective):
            return ""
        return " (better than X*, which is not the global minimum)"


def _listed(counts: Sequence[int]) -> str:
    more = ", ..." if len(counts) > MOST_SHOWN else ""
    return ", ".join(map(str, counts[:MOST_SHOWN])) + more


def _state(row: PathRow) -> str:
    return {True: "converged", False: "not converged", None: "not judged"}[row.has_converged]


def words_on_manifold(feasibility: float) -> str:
    """That X is nowhere near orthonormal, where it is, and what to do; nothing else."""
    if feasibility <= NEAR:
        return ""
    return ': X is off the manifold, and its objective is of the nearest point there; take method = "auto"'


def summarize(
    network: Outcome, instance: Instance, row: Row, *, seconds: float, reference: Reference | None = None
) -> Summary:
    """Sum up a run that ended with `row`."""
    topology, rounds = instance.topology, network.rounds_by_phase
    measured = instance.divided_by(network.overall).chosen(network.account.chosen)
    answer, residual = _judged(network, measured)
    convergence = _convergence(network, measured, answer, residual)
    return Summary(
        name=topology.name,
        digest=topology.digest,
        ending=ending_of(network, topology).value,
        rounds=row.round,
        seconds=seconds,
        agents=topology.d,
        epsilon=row.stationarity.epsilon,
        residual=residual,
        judged_objective=measured.whole.value(answer),
        tolerance=topology.tolerance,
        has_converged=convergence.has_converged,
        verdict=convergence.words,
        relative_to=measured.unit_in_words,
        messages=sum(rounds.values()) * topology.messages_per_round,
        payload_bytes=sum(phase.payload(rounds.get(phase.name, 0)) for phase in instance.plan(0).phases),
        reference_residual=None if reference is None else reference.residual,
        rounds_by_phase=dict(rounds),
        phases_cut_short=list(network.phases_cut_short),
        mu=network.account.mu,
        path=list(network.account.path),
        choice=network.account.choice,
        plain_pca_explained_variance_ratio=list(network.account.plain_pca),
        **{name: getattr(row, name) for name in OF_THE_LAST_ROW},
        **_sparsity(network.sparse.mean(axis=0)),
        **_variance(network, instance),
    )


def _judged(network: Outcome, instance: Instance) -> tuple[Matrix, float]:
    """The answer that is judged, and its residual."""
    sparse = network.sparse.mean(axis=0)  # zero where all are
    answer = judged(sparse, polar(network.X.mean(axis=0)))
    is_sparse = answer is sparse
    is_strict = is_sparse and bool((network.sparse == network.sparse[0]).all())
    residual = instance.residual(answer, is_strict=is_strict)
    if "verdict" in network.rounds_by_phase and not is_sparse:
        residual = max(residual, float(infeasibility(sparse)))
    return answer, residual


def _sparsity(sparse: Matrix) -> dict[str, int]:
    return {
        "nonzeros": int(np.count_nonzero(sparse)),
        "entries": sparse.size,
        "nonzero_rows": int(np.count_nonzero(sparse.any(axis=1))),
        "rows": sparse.shape[0],
        "single_features": int((np.count_nonzero(sparse, axis=0) == 1).sum()),
    }


def _variance(network: Outcome, instance: Instance) -> dict[str, Any]:
    """The variance that the common answer explains; known for sparse PCA only."""
    X, sparse = network.X.mean(axis=0), network.sparse.mean(axis=0)
    is_known = instance.is_pca and bool(infeasibility(X) <= NEAR)
    return {
        "variance_explained": explained(instance, polar(X)) if is_known else None,
        "sparse_variance_explained": explained(instance, orthonormal_basis(sparse)) if instance.is_pca else None,
    }


def _convergence(network: Outcome, instance: Instance, X: Matrix, residual: float) -> Convergence:
    """The verdict with the data of all agents; never better than that of an agent itself."""
    found = judge(
        instance.topology,
        residual,
        instance.weakest(X),
        is_below_tolerance=network.is_below_tolerance,
        rounds=network.k,
        starts=network.starts,
        is_shared=bool((network.sparse == network.sparse[0]).all()),
    )
    if found.has_converged and network.has_converged is False:
        words = f"not converged: a peer denies it, as its .json file says; of all peers together: {found.words}"
        return Convergence(words, has_converged=False)
    return found


def explained(instance: Instance, X: Matrix) -> float:
    """The share of ||A||_F^2 that lies in the span of the orthonormal columns of X."""
    # The sum turns -0.0 into 0.0, where X is zero.
    return -2 * instance.pooled.value(X) / instance.pooled.variance() + 0.0
