"""A run directory as a report sees it. What is not there is left empty; what is damaged is an error."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from thanos_peer.block import AgentId, Matrix
from thanos_peer.durable import NotRegularError, read_regular
from thanos_peer.errors import ConfigError, DataFileError
from thanos_peer.json_files import DamagedJSONError, read_json
from thanos_peer.loadings import load_result
from thanos_peer.preparation import PathRow
from thanos_peer.samples.npy import load_arrays
from thanos_peer.storage.peer_files import PeerFiles
from thanos_peer.storage.summary import Summary
from thanos_peer.topology import Topology, load

COLUMNS = ("round", "objective", "feasibility", "consensus", "gradient", "prox_gap", "infeasibility", "epsilon")
T = TypeVar("T")


@dataclass(frozen=True)
class Description:
    """What a report takes from run.json: what ran, and the names of the features, if the run has any."""

    engine: str = ""
    started: str = ""
    topology: str = ""
    command: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    features: list[str] | None = None


@dataclass(frozen=True)
class EdgeFacts:
    """What one peer says of one of its edges."""

    bytes_sent: int
    seconds_waited: float


@dataclass(frozen=True)
class PeerFacts:
    """What one peer says of its run; a simulated one has no edges to speak of."""

    round: int
    edges: dict[AgentId, EdgeFacts] = field(default_factory=dict)
    digest: str | None = None
    is_done: bool = False
    objective: float | None = None
    feasibility: float | None = None
    residual: float | None = None
    has_converged: bool | None = None
    verdict: str | None = None
    explained_variance: float | None = None
    sparse_explained_variance: float | None = None
    nonzeros: list[int] = field(default_factory=list)
    path: list[PathRow] = field(default_factory=list)
    choice: str = ""


@dataclass(frozen=True)
class Run:
    """What a run has left so far.

    Attributes:
        path: Where.
        topology: What ran.
        description: From run.json.
        history: The columns of history.csv, all of one length; without any line, empty.
        summary: None while the run has not ended.
        X: For each peer with a result its X, (n, p).
        sparse: And its X with exact zeros.
        facts: For each peer of a network run that has left them.
        names: Of the features, where run.json or a peer's result has them.
    """

    path: Path
    topology: Topology
    description: Description
    history: Mapping[str, Matrix]
    summary: Summary | None
    X: Mapping[AgentId, Matrix]
    sparse: Mapping[AgentId, Matrix]
    facts: Mapping[AgentId, PeerFacts]
    names: list[str] | None = None

    @property
    def features(self) -> list[str]:
        """The names of the features, or else 0 to n - 1, as in a peer's .csv."""
        return self.names or [str(number) for number in range(self.topology.problem.n)]

    @property
    def last_round(self) -> int | None:
        """The round that the results are of; None if nothing tells."""
        if self.summary is not None:
            return self.summary.rounds
        if self.facts:
            return min(facts.round for facts in self.facts.values())
        return int(self.history["round"][-1]) if self.history else None


def read_run(path: Path, file: Path | None = None) -> Run:
    """Read what `simulate`, `run`, or peers that were started one by one have written.

    Args:
        path: The run directory.
        file: The topology file; None for the one in the directory.

    Raises:
        ConfigError: It is no run directory, or a file in it is damaged.
    """
    if not path.is_dir():
        raise ConfigError(f"{path} is a file, not a run directory" if path.exists() else f"{path} does not exist")
    if file is None and not (path / "topology.toml").is_file():
        raise ConfigError(
            f"{path} has no topology.toml, as `thanos-peer run` and `thanos-peer simulate` write it; name the "
            "topology file with --topology if its peers were started otherwise"
        )
    if file is not None and not (path / "peers").is_dir():
        raise ConfigError(f"{path} is not a run directory: it has no peers/ with the results of peers")
    topology = load(file or path / "topology.toml", data_of=())
    description = _read_description(path / "run.json", topology)
    loadings = _read_loadings(path, topology)
    return Run(
        path,
        topology,
        description,
        _read_history(path / "history.csv"),
        _read_json(path / "summary.json", Summary),
        {i: X for i, (X, _) in loadings.items()},
        {i: sparse for i, (_, sparse) in loadings.items()},
        _read_facts(path, topology),
        description.features or _read_names(path, topology),
    )


def _read_description(path: Path, topology: Topology) -> Description:
    description, n = _read_json(path, Description) or Description(), topology.problem.n
    if description.features is not None and len(description.features) != n:
        raise ConfigError(
            f"{path}: features has {len(description.features)} names; the problem has n = {n} features"
        )
    return description


def _read_json(path: Path, kind: type[T]) -> T | None:
    """A JSON file of a known form; None if there is no such file."""
    if not path.exists():
        return None
    try:
        return read_json(path, kind)
    except DamagedJSONError as error:
        raise _damaged(path, str(error)) from error


def _read_history(path: Path) -> dict[str, Matrix]:
    if not path.exists():
        return {}
    try:
        text = read_regular(path).decode(errors="replace")
    except NotRegularError as error:
        raise _damaged(path, str(error)) from error
    # A run that is killed while it writes leaves half a line.
    whole = text[: text.rfind("\n") + 1]
    try:
        lines = list(csv.DictReader(whole.splitlines()))
    except csv.Error as error:
        raise _damaged(path, f"it is not CSV: {error}") from error
    absent = [name for name in COLUMNS if lines and name not in lines[0]]
    if absent:
        raise _damaged(path, f"it has no column {absent[0]}")
    rows = [_numbers(line) for line in lines]
    if None in rows:
        raise _damaged(path, f"line {rows.index(None) + 2} is not a line of numbers")
    names = [] if not rows else list(lines[0])
    return {name: np.array([row[name] for row in rows if row]) for name in names}


def _numbers(line: Mapping[str, Any]) -> dict[str, float] | None:
    """The cells of a line, NaN where one is empty; None if the line is not whole."""
    try:
        numbers = {name: float(cell) if cell != "" else np.nan for name, cell in line.items()}
    except (TypeError, ValueError):
        return None
    return numbers if np.isfinite(numbers["round"]) else None


def _read_loadings(path: Path, topology: Topology) -> dict[AgentId, tuple[Matrix, Matrix]]:
    files = {i: PeerFiles(path, topology, i).result for i in range(topology.d)}
    found = {i: _read_arrays(file) for i, file in files.items() if file.exists()}
    return {
        i: (_matrix_in(files[i], arrays, "X", topology), _matrix_in(files[i], arrays, "sparse", topology))
        for i, arrays in found.items()
    }


def _read_names(path: Path, topology: Topology) -> list[str] | None:
    """The names of the features in the first result that has any."""
    for i in range(topology.d):
        file = PeerFiles(path, topology, i).result
        if file.exists() and (names := load_result(file).feature_names_in_) is not None:
            return [str(name) for name in names]
    return None


def _read_arrays(path: Path) -> Mapping[str, Any]:
    try:
        return load_arrays(path)
    except DataFileError as error:
        raise _damaged(path, f"it holds no X: {error}") from error


def _matrix_in(path: Path, arrays: Mapping[str, Any], name: str, topology: Topology) -> Matrix:
    shape = (topology.problem.n, topology.problem.p)
    try:
        matrix: Matrix = np.asarray(arrays[name], dtype=np.float64)
    except (KeyError, ValueError) as error:
        raise _damaged(path, f"it holds no {name}: {error}") from error
    if matrix.shape != shape or not np.isfinite(matrix).all():
        raise _damaged(
            path,
            f"{name} must hold finite numbers in the shape {shape} of {topology.file.name}, not {matrix.shape}",
        )
    return matrix


def _read_facts(path: Path, topology: Topology) -> dict[AgentId, PeerFacts]:
    found: dict[AgentId, PeerFacts] = {}
    for i in range(topology.d):
        file = PeerFiles(path, topology, i).facts
        facts = _read_json(file, PeerFacts)
        if facts is None or (not facts.edges and topology.d > 1):
            continue
        if facts.digest not in (None, topology.digest):
            raise ConfigError(
                f"{file} is of the topology {str(facts.digest)[:16]}, not of {topology.file}, which is "
                f"{topology.digest[:16]}; name the file that its peers were started with"
            )
        if not set(facts.edges) <= set(topology.graph.neighbors[i]):
            raise _damaged(
                file, f"edges: {topology.file.name} gives peer {i} the neighbors {topology.graph.neighbors[i]}"
            )
        found[i] = facts
    return found


def _damaged(path: Path, what: str) -> ConfigError:
    return ConfigError(f"{path} is damaged: {what}; mend it, or remove it to have a report on the rest")
