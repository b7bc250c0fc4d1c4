"""What a run leaves behind: a directory that says what ran, how it went, and what came out.

run.json       what ran: topology digest, versions, seeds, command; names of the features, if there are any
topology.toml  the file itself; paths in it lead to where they led
history.csv    a line per round, appended as the run goes
peers/07.npz   for every peer its X, its D and the sparse prox(X), and more: see `loadings/files.py`
peers/07.csv   its loadings by feature
peers/07.json  the result in numbers; from a network run also how it ended and what went over its edges,
peers/07.log   what it said,
peers/07.traj  and its X over the rounds, if kept
summary.json   the result in numbers
summary.txt    the same in words
report/        the same as a page and pictures, made afterwards by `thanos-peer report`
"""

import csv
import json
import platform
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import tomlkit

from thanos_peer import __version__
from thanos_peer.algorithm.reference import TARGET, Reference
from thanos_peer.algorithm.stiefel import infeasibility, orthonormal_basis, polar
from thanos_peer.block import AgentId, Matrix
from thanos_peer.convergence import Convergence, have_all, judge
from thanos_peer.durable import make_directory
from thanos_peer.errors import CheckpointError, ConfigError
from thanos_peer.loadings.files import read_facts, read_matrices, write_facts, write_loadings
from thanos_peer.loadings.findings import Findings, facts_of_loadings, found_as_findings
from thanos_peer.problem import Instance
from thanos_peer.simulate import Ended, Glimpse, Network, Row, ending_of
from thanos_peer.topology import Topology
from thanos_peer.topology.anchor import anchored
from thanos_peer.topology.data import features_of

FEASIBLE = 1e-9  # a sparse answer that is nearer to the manifold than this is what is judged


def cells_of(row: Row) -> dict[str, float | int | None]:
    """A row of the history, flat: name to number."""
    cells = asdict(row)
    parts: dict[str, float | int | None] = cells.pop("stationarity")
    return cells | parts | {"epsilon": row.stationarity.epsilon}


class RunDirectory:
    """A new directory for one run; the history in it grows with every row.

    Raises:
        ConfigError: The directory holds something already.
    """

    def __init__(self, path: Path, topology: Topology, *, engine: str) -> None:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ConfigError(f"{path} exists already; choose another directory with --out, or remove it")
        self._features = [features_of(topology, i) for i in range(topology.d)]  # while the files are there
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        _copy_topology(topology, path / "topology.toml")
        features = next((list(names) for names in self._features if names is not None), None)
        _write_json(path / "run.json", _describe(topology, engine) | {"features": features})
        self._history = (path / "history.csv").open("a", encoding="utf-8", newline="", buffering=1)
        self._writer: csv.DictWriter[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._history.close()

    def append(self, row: Row) -> None:
        """Add a line to the history."""
        cells = {name: "" if cell is None else repr(cell) for name, cell in cells_of(row).items()}
        if self._writer is None:
            self._writer = csv.DictWriter(self._history, fieldnames=list(cells))
            self._writer.writeheader()
        self._writer.writerow(cells)

    def finish(self, network: Network, instance: Instance, summary: "Summary") -> None:
        """Write what came out."""
        topology, D, common = instance.topology, network.array("D"), network.X.mean(axis=0)
        known = replace(
            found_as_findings(topology, network.found, None),
            common=common,
            objective=summary.objective,
            explained_variance_ratio=_explained_by_each(instance, polar(common)) if instance.is_pca else None,
            sparse_explained_variance=summary.sparse_variance_explained,
            residual=summary.residual,
        )
        for i, (X, sparse) in enumerate(zip(network.X, network.sparse, strict=True)):
            findings = replace(known, features=self._features[i])
            facts = _facts_of_agent(network, topology, i, summary)
            PeerFiles(self.path, topology, i).write(X, None if D is None else D[i], sparse, facts, findings)
        self.write_summary(summary)

    def write_summary(self, summary: "Summary") -> None:
        """Write the result in numbers and in words."""
        _write_json(self.path / "summary.json", asdict(summary))
        (self.path / "summary.txt").write_text(summary.in_words() + "\n", encoding="utf-8")


class PeerFiles:
    """Where one peer's part of a run directory lies."""

    def __init__(self, out: Path, topology: Topology, agent: AgentId) -> None:
        self._directory = out / "peers"
        stem = self._directory / f"{agent:0{len(str(topology.d - 1))}}"
        self.result, self.facts = stem.with_suffix(".npz"), stem.with_suffix(".json")
        self.table = stem.with_suffix(".csv")
        self.log, self.trajectory = stem.with_suffix(".log"), stem.with_suffix(".traj")

    def prepare(self, *, is_resumed: bool = False) -> None:
        """Make the directory, and refuse to overwrite a finished result, unless the run that wrote it goes on.

        Raises:
            ConfigError: This peer's result is there already.
            CheckpointError: The directory cannot be made.
        """
        if self.result.exists() and self.is_finished is not False and not is_resumed:
            raise ConfigError(f"{self.result} exists already; choose another directory with --out, or remove it")
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"cannot write the results to {self._directory}: {error.strerror}; mend it, or give a "
                "directory that can be written to with --out"
            ) from error

    @property
    def is_finished(self) -> bool | None:
        """Whether the result is that of the last round; None if there is none, or nothing is said of it."""
        facts = self._facts_there()
        return facts.get("is_done") if self.result.exists() else None

    def finished_round(self, digest: str) -> int | None:
        """The last round of a finished run of this topology; None if there is no such result."""
        facts = self._facts_there()
        return facts["round"] if self.is_finished and facts.get("digest") == digest else None

    @property
    def finished_after(self) -> int:
        """The rounds of all phases of a finished run, as they are counted to neighbors."""
        facts = self._facts_there()
        return sum(facts.get("rounds_by_phase", {}).values()) or int(facts["round"])

    @property
    def finished_epoch(self) -> int:
        """The epoch that a finished run ended in."""
        return int(self._facts_there().get("epoch", 0))

    def withdraw(self) -> None:
        """Let the result not count as finished: the network has begun anew.

        It stays until there is another, and says so: a result of which nothing is said would never be replaced.

        Raises:
            CheckpointError: That cannot be written.
        """
        try:
            if self.facts.exists():
                write_facts(self.facts, self._facts_there() | {"is_done": False, "ending": "withdrawn"})
        except OSError as error:
            raise CheckpointError(
                f"cannot withdraw {self.facts}, which belongs to an earlier epoch: {error.strerror}; nothing is "
                "lost: mend it and start this peer again with the same command"
            ) from error

    def _facts_there(self) -> dict[str, Any]:
        try:
            facts: dict[str, Any] = json.loads(self.facts.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return facts

    def write(
        self,
        X: Matrix,
        D: Matrix | None,
        sparse: Matrix,
        facts: dict[str, Any] | None = None,
        findings: Findings | None = None,
    ) -> None:
        """Write what came out."""
        findings = findings or Findings()
        make_directory(self._directory)
        write_loadings(self.result, X, D, sparse, findings)
        if facts is not None:
            write_facts(self.facts, facts | facts_of_loadings(X, sparse, findings))


class Outcome(Glimpse, Ended, Protocol):
    """What a summary is made from: a finished network, simulated or real."""

    @property
    def sparse(self) -> Matrix:
        """All X_i with exact zeros, (d, n, p)."""


@dataclass(frozen=True)
class NetworkOutcome:
    """What the peers of a network run left behind; D only of methods that track gradients."""

    X: Matrix
    sparse: Matrix
    D: Matrix | None
    eta: Matrix
    overall: float | None
    rounds: tuple[int, ...]
    rounds_by_phase: Mapping[str, int]
    phases_cut_short: Sequence[str]
    seconds: float
    is_done: bool
    is_below_tolerance: bool
    has_converged: bool | None
    starts: int | None = None

    @property
    def k(self) -> int:
        """The last round; the earliest one where peers were stopped at different ones."""
        return min(self.rounds)


def has_outcome(out: Path, topology: Topology) -> bool:
    """Whether every peer of a network run has left its result."""
    return all(PeerFiles(out, topology, i).facts.exists() for i in range(topology.d))


def load_outcome(out: Path, topology: Topology) -> NetworkOutcome:
    """Read what the peers of a network run wrote.

    Raises:
        ConfigError: A peer has left nothing.
        DataFileError: What it has left is damaged, or of another shape.
    """
    files = [PeerFiles(out, topology, i) for i in range(topology.d)]
    absent = [str(file.facts) for file in files if not file.facts.exists()]
    if absent:
        raise ConfigError(f"{len(absent)} of {topology.d} peers left no result, among them {absent[0]}")
    facts = [read_facts(file.facts) for file in files]
    shape = (topology.problem.n, topology.problem.p)
    matrices = [read_matrices(file.result, shape) for file in files]
    trackers = [D for _, _, D in matrices if D is not None]
    return NetworkOutcome(
        X=np.array([X for X, _, _ in matrices]),
        sparse=np.array([sparse for _, sparse, _ in matrices]),
        D=np.array(trackers) if len(trackers) == len(files) else None,
        eta=np.array([fact.eta for fact in facts]),
        overall=facts[0].overall,
        rounds=tuple(fact.round for fact in facts),
        rounds_by_phase=min(
            (fact.rounds_by_phase or {topology.method: fact.round} for fact in facts),
            key=lambda rounds: sum(rounds.values()),
        ),
        phases_cut_short=facts[0].phases_cut_short,
        seconds=max(fact.seconds for fact in facts),
        is_done=all(fact.is_done for fact in facts),
        is_below_tolerance=all(fact.ending == "tolerance" for fact in facts),
        has_converged=have_all([fact.has_converged for fact in facts]),
        starts=facts[0].starts,
    )


@dataclass(frozen=True)
class Summary:
    """The result of a run in numbers. X is the mean of all agents' X_i moved to the manifold.

    The variance explained is known for sparse PCA only. `rounds` are those of the phase that minimises;
    messages and bytes are of all phases.
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
    has_converged: bool = False
    verdict: str = ""
    relative_to: str = "||A||^2"
    reference_residual: float | None = None
    distance: float | None = None
    aligned_distance: float | None = None
    gap: float | None = None
    rounds_by_phase: dict[str, int] = field(default_factory=dict)
    phases_cut_short: list[str] = field(default_factory=list)

    def in_words(self) -> str:
        """A few lines for a person."""
        lines = [
            f"{self.name}: {self.agents} agents, {self.rounds} rounds in {self.seconds:.1f} s; {self.ending}.",
            f"  objective           {self.objective:.9g}",
            *self._words_on_variance(),
            f"  non-zeros           {self.nonzeros} of {self.entries}, in {self.nonzero_rows} of {self.rows} rows"
            + ("" if self.nonzeros else ": mu is too large for this sigma"),
            f"  feasibility         {self.feasibility:.2e}  (mean of ||X_i'X_i - I||)",
            f"  consensus           {self.consensus:.2e}  (largest ||X_i - mean||)",
            f"  residual            {self.residual:.2e} of the non-smooth problem, relative to {self.relative_to}",
            f"  verdict             {self.verdict}",
            *self._words_on_phases(),
            f"  traffic             {self.messages:,} messages, {self.payload_bytes:,} bytes in them",
        ]
        return "\n".join(lines + self._words_on_reference())

    def _words_on_phases(self) -> list[str]:
        if len(self.rounds_by_phase) < 2:
            return []
        phases = ", ".join(f"{name} {rounds}" for name, rounds in self.rounds_by_phase.items())
        cut = "".join(f"; {name} was cut short by its max_rounds" for name in self.phases_cut_short)
        return [f"  rounds by phase     {phases}{cut}"]

    def _words_on_variance(self) -> list[str]:
        if self.variance_explained is None:
            return []
        return [
            f"  variance explained  {self.variance_explained:.2%} (sparse: {self.sparse_variance_explained:.2%})"
        ]

    def _words_on_reference(self) -> list[str]:
        if self.reference_residual is None:
            return []
        note = "" if self.reference_residual < TARGET else "  (NOT below 1e-10: take the distances with care)"
        return [
            f"  reference X*        residual {self.reference_residual:.1e}{note}",
            f"  distance to X*      {self.distance:.3e}, after the best alignment {self.aligned_distance:.3e}",
            f"  objective gap       {self.gap:+.3e}",
        ]


def summarize(
    network: Outcome, instance: Instance, row: Row, *, seconds: float, reference: Reference | None = None
) -> Summary:
    """Sum up a run that ended with `row`."""
    topology, mean = instance.topology, network.X.mean(axis=0)
    rounds = network.rounds_by_phase
    payload = sum(phase.payload(rounds.get(phase.name, 0)) for phase in instance.plan(0).phases)
    sparse = network.sparse.mean(axis=0)  # zero where all are
    measured = instance.divided_by(network.overall)
    is_sparse = bool(infeasibility(sparse) < FEASIBLE)
    is_strict = is_sparse and bool((network.sparse == network.sparse[0]).all())
    judged = sparse if is_sparse else polar(mean)
    residual = measured.residual(judged, is_strict=is_strict)
    if "verdict" in rounds and not is_sparse:
        residual = max(residual, float(infeasibility(sparse)))
    convergence = _convergence(network, measured, judged, residual)
    return Summary(
        name=topology.name,
        digest=topology.digest,
        ending=ending_of(network).value,
        rounds=row.round,
        seconds=seconds,
        agents=topology.d,
        objective=row.objective,
        variance_explained=explained(instance, polar(mean)) if instance.is_pca else None,
        sparse_variance_explained=explained(instance, orthonormal_basis(sparse)) if instance.is_pca else None,
        nonzeros=int(np.count_nonzero(sparse)),
        entries=sparse.size,
        nonzero_rows=int(np.count_nonzero(sparse.any(axis=1))),
        rows=sparse.shape[0],
        feasibility=row.feasibility,
        consensus=row.consensus,
        epsilon=row.stationarity.epsilon,
        sigma=row.sigma,
        residual=residual,
        tolerance=topology.tolerance,
        has_converged=bool(convergence.has_converged),
        verdict=convergence.words,
        relative_to=measured.unit_in_words,
        messages=sum(rounds.values()) * topology.messages_per_round,
        payload_bytes=payload,
        reference_residual=None if reference is None else reference.residual,
        distance=row.distance,
        aligned_distance=row.aligned_distance,
        gap=row.gap,
        rounds_by_phase=dict(network.rounds_by_phase),
        phases_cut_short=list(network.phases_cut_short),
    )


def _convergence(network: Outcome, instance: Instance, X: Matrix, residual: float) -> Convergence:
    """What may be said by somebody who sees all agents; what they themselves deny is not said."""
    found = judge(
        instance.topology,
        residual,
        instance.weakest(X),
        is_below_tolerance=network.is_below_tolerance,
        rounds=network.k,
        starts=network.starts,
    )
    if found.has_converged and network.has_converged is False:
        words = f"not converged: a peer denies it, as its .json file says; of all peers together: {found.words}"
        return Convergence(words, has_converged=False)
    return found


def explained(instance: Instance, X: Matrix) -> float:
    """The share of ||A||_F^2 that lies in the span of the orthonormal columns of X."""
    return -2 * instance.pooled.value(X) / instance.pooled.variance() + 0.0  # not -0.0, where X is zero


def _facts_of_agent(network: Network, topology: Topology, agent: AgentId, summary: Summary) -> dict[str, Any]:
    """What a simulated agent has to say of the run, with the names that a peer uses."""
    return {
        "id": agent,
        "name": topology.name,
        "digest": topology.digest,
        "version": __version__,
        "round": network.k,
        "rounds_by_phase": dict(network.rounds_by_phase),
        "phases_cut_short": list(network.phases_cut_short),
        "is_done": network.is_done,
        "has_converged": summary.has_converged,
        "tolerance": topology.tolerance,
        "starts": network.starts,
        "verdict": summary.verdict,
        "eta": float(network.eta[agent]),
        "messages_sent": sum(network.rounds_by_phase.values()) * topology.graph.degrees[agent],
    }


def _explained_by_each(instance: Instance, X: Matrix) -> Matrix:
    """The same for each column by itself, (p,)."""
    shares: Matrix = -(X * instance.pooled.gradient(X)).sum(axis=0) / instance.pooled.variance()
    return shares


def _copy_topology(topology: Topology, file: Path) -> None:
    """As it is, unless it names files, whose paths may start from where it lay."""
    has_paths = topology.algorithm.start.kind == "file" or any(peer.data is not None for peer in topology.peers)
    if has_paths or topology.other_method is not None or topology.other_settings:
        file.write_text(tomlkit.dumps(anchored(topology)), encoding="utf-8")
    else:
        shutil.copyfile(topology.file, file)


def _describe(topology: Topology, engine: str) -> dict[str, Any]:
    return {
        "name": topology.name,
        "topology": str(topology.file.resolve()),
        "digest": topology.digest,
        "data": topology.problem.data.model_dump(),
        "start": topology.algorithm.start.model_dump(),
        "engine": engine,
        "command": sys.argv,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "versions": {
            "thanos-peer": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "platform": platform.platform(),
        },
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_bytes(_as_json(content))


def _as_json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()
