"""What a run leaves behind: a directory that says what ran, how it went, and what came out.

run.json       what ran: topology digest, versions, seeds, command
topology.toml  the file itself
history.csv    a line per round, appended as the run goes
peers/07.npz   for every peer its X, its D and the sparse prox(X); from a network run also
peers/07.json  how it ended and what went over its edges,
peers/07.log   what it said,
peers/07.traj  and its X over the rounds, if kept
summary.json   the result in numbers
summary.txt    the same in words
"""

import csv
import json
import platform
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from thanos_peer import __version__
from thanos_peer.algorithm.reference import TARGET, Reference
from thanos_peer.algorithm.stiefel import orthonormal_basis, polar
from thanos_peer.block import AgentId, Matrix
from thanos_peer.errors import ConfigError
from thanos_peer.problem import Instance
from thanos_peer.simulate import Ended, Network, Row, ending_of
from thanos_peer.topology import Topology


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
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        shutil.copyfile(topology.file, path / "topology.toml")
        _write_json(path / "run.json", _describe(topology, engine))
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
        sigma = instance.parameters.smoothing.sigma(network.k)
        for local, X, D in zip(instance.local_problems, network.X, network.D, strict=True):
            PeerFiles(self.path, instance.topology, local.agent).write(X, D, local.g.prox(X, sigma))
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
        self.log, self.trajectory = stem.with_suffix(".log"), stem.with_suffix(".traj")

    def prepare(self) -> None:
        """Make the directory, and refuse to overwrite a result.

        Raises:
            ConfigError: This peer's result is there already.
        """
        if self.result.exists():
            raise ConfigError(f"{self.result} exists already; choose another directory with --out, or remove it")
        self._directory.mkdir(parents=True, exist_ok=True)

    def write(self, X: Matrix, D: Matrix, sparse: Matrix, facts: dict[str, Any] | None = None) -> None:
        """Write what came out."""
        self._directory.mkdir(parents=True, exist_ok=True)
        np.savez(self.result, X=X, D=D, sparse=sparse)
        if facts is not None:
            _write_json(self.facts, facts)


class Outcome(Ended, Protocol):
    """What a summary is made from: a finished network, simulated or real."""

    @property
    def X(self) -> Matrix:
        """All X_i, (d, n, p)."""


@dataclass(frozen=True)
class NetworkOutcome:
    """What the peers of a network run left behind."""

    X: Matrix
    D: Matrix
    eta: Matrix
    rounds: tuple[int, ...]
    is_done: bool
    has_converged: bool

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
    """
    files = [PeerFiles(out, topology, i) for i in range(topology.d)]
    absent = [str(file.facts) for file in files if not file.facts.exists()]
    if absent:
        raise ConfigError(f"{len(absent)} of {topology.d} peers left no result, among them {absent[0]}")
    facts = [json.loads(file.facts.read_text(encoding="utf-8")) for file in files]
    arrays = [_load_arrays(file.result) for file in files]
    return NetworkOutcome(
        X=np.array([each["X"] for each in arrays]),
        D=np.array([each["D"] for each in arrays]),
        eta=np.array([fact["eta"] for fact in facts]),
        rounds=tuple(fact["round"] for fact in facts),
        is_done=all(fact["is_done"] for fact in facts),
        has_converged=all(fact["has_converged"] for fact in facts),
    )


@dataclass(frozen=True)
class Summary:
    """The result of a run in numbers. X is the mean of all agents' X_i moved to the manifold."""

    name: str
    digest: str
    ending: str
    rounds: int
    seconds: float
    agents: int
    objective: float
    variance_explained: float
    sparse_variance_explained: float
    nonzeros: int
    entries: int
    nonzero_rows: int
    rows: int
    feasibility: float
    consensus: float
    epsilon: float
    sigma: float
    messages: int
    payload_bytes: int
    reference_residual: float | None = None
    distance: float | None = None
    aligned_distance: float | None = None
    gap: float | None = None

    def in_words(self) -> str:
        """A few lines for a person."""
        lines = [
            f"{self.name}: {self.agents} agents, {self.rounds} rounds in {self.seconds:.1f} s; {self.ending}.",
            f"  objective           {self.objective:.9g}",
            f"  variance explained  {self.variance_explained:.2%} (sparse: {self.sparse_variance_explained:.2%})",
            f"  non-zeros           {self.nonzeros} of {self.entries}, in {self.nonzero_rows} of {self.rows} rows",
            f"  feasibility         {self.feasibility:.2e}  (mean of ||X_i'X_i - I||)",
            f"  consensus           {self.consensus:.2e}  (largest ||X_i - mean||)",
            f"  stationarity        epsilon = {self.epsilon:.2e} certified, with sigma = {self.sigma:.3g}",
            f"  traffic             {self.messages:,} messages, {self.payload_bytes:,} bytes of X and D",
        ]
        return "\n".join(lines + self._words_on_reference())

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
    sparse = instance.local_problems[0].g.prox(mean, row.sigma)
    return Summary(
        name=topology.name,
        digest=topology.digest,
        ending=ending_of(network).value,
        rounds=row.round,
        seconds=seconds,
        agents=topology.d,
        objective=row.objective,
        variance_explained=_explained(instance, polar(mean)),
        sparse_variance_explained=_explained(instance, orthonormal_basis(sparse)),
        nonzeros=int(np.count_nonzero(sparse)),
        entries=sparse.size,
        nonzero_rows=int(np.count_nonzero(sparse.any(axis=1))),
        rows=sparse.shape[0],
        feasibility=row.feasibility,
        consensus=row.consensus,
        epsilon=row.stationarity.epsilon,
        sigma=row.sigma,
        messages=row.round * topology.messages_per_round,
        payload_bytes=row.round * topology.messages_per_round * topology.payload_per_message,
        reference_residual=None if reference is None else reference.residual,
        distance=row.distance,
        aligned_distance=row.aligned_distance,
        gap=row.gap,
    )


def _explained(instance: Instance, X: Matrix) -> float:
    """The share of ||A||_F^2 that lies in the span of the orthonormal columns of X."""
    return -2 * instance.pooled.value(X) / instance.pooled.variance()


def _describe(topology: Topology, engine: str) -> dict[str, Any]:
    return {
        "name": topology.name,
        "topology": str(topology.file),
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


def _load_arrays(path: Path) -> dict[str, Matrix]:
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
