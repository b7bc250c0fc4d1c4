"""What a run leaves behind: a directory that says what ran, how it went, and what came out.

run.json       what ran: topology digest, versions, seeds, command
topology.toml  the file itself
history.csv    a line per round, appended as the run goes
peers/07.npz   for every peer its X, its D and the sparse prox(X)
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
from typing import Any, Self

import numpy as np

from thanos_peer import __version__
from thanos_peer.algorithm.reference import Reference
from thanos_peer.algorithm.stiefel import orthonormal_basis, polar
from thanos_peer.block import Matrix
from thanos_peer.errors import ConfigError
from thanos_peer.problem import Instance
from thanos_peer.simulate import Network, Row, ending_of
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
        peers = self.path / "peers"
        peers.mkdir()
        width = len(str(instance.topology.d - 1))
        sigma = instance.parameters.smoothing.sigma(network.k)
        for local, X, D in zip(instance.local_problems, network.X, network.D, strict=True):
            np.savez(peers / f"{local.agent:0{width}}.npz", X=X, D=D, sparse=local.g.prox(X, sigma))
        _write_json(self.path / "summary.json", asdict(summary))
        (self.path / "summary.txt").write_text(summary.in_words() + "\n", encoding="utf-8")


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
        note = "" if self.reference_residual < 1e-10 else "  (NOT below 1e-10: take the distances with care)"
        return [
            f"  reference X*        residual {self.reference_residual:.1e}{note}",
            f"  distance to X*      {self.distance:.3e}, after the best alignment {self.aligned_distance:.3e}",
            f"  objective gap       {self.gap:+.3e}",
        ]


def summarize(
    network: Network, instance: Instance, row: Row, *, seconds: float, reference: Reference | None = None
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


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
