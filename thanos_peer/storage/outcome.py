"""What the peers of a network have left behind, all together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from thanos_peer.algorithm.stiefel import polar
from thanos_peer.block import Matrix
from thanos_peer.convergence import have_all
from thanos_peer.errors import ConfigError, DataFileError
from thanos_peer.json_files import DamagedJSONError, read_json
from thanos_peer.loadings.files import read_facts, read_matrices, read_path
from thanos_peer.loadings.result import load_result
from thanos_peer.preparation import Account
from thanos_peer.problem import Instance
from thanos_peer.simulate import Ended, Snapshot
from thanos_peer.storage.peer_files import PeerFiles
from thanos_peer.topology import Topology


class Outcome(Snapshot, Ended, Protocol):
    """What a summary is made from: a finished network, simulated or real."""

    @property
    def sparse(self) -> Matrix:
        """All X_i with exact zeros, (d, n, p)."""


@dataclass(frozen=True)
class NetworkOutcome:
    """What the peers of a network run left behind; D only of methods that track gradients, paths of a path."""

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
    account: Account = field(default_factory=Account)
    paths: tuple[Matrix | None, ...] = ()

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
        account=facts[0].account,
        paths=tuple(read_path(file.result, shape) for file in files),
    )


@dataclass(frozen=True)
class _Samples:
    """What run.json says of the samples of a run."""

    data: dict[str, Any] = field(default_factory=dict)
    samples: str = ""


def _check_samples(path: Path, instance: Instance) -> None:
    """Refuse a run on other samples; one of peers that were started one by one has no run.json, and may be any."""
    file, asked = path / "run.json", instance.topology.problem.data
    data = asked.model_dump(mode="json")
    try:
        told = read_json(file, _Samples)
    except FileNotFoundError:
        return
    except (OSError, DamagedJSONError) as error:
        raise DataFileError(f"{file} is not what a run says of itself: {error}") from error
    # What it does not say was not there yet, and is as if left out.
    had = {key: told.data.get(key, field.default) for key, field in type(asked).model_fields.items()}
    other = [f"problem.data.{key} is {had[key]!r} there" for key in data if had[key] != data[key]]
    if told.samples not in ("", instance.samples):
        other.append("its files held others, or other peers had them")
    if other:
        raise ConfigError(
            f"{path} is a run on other samples, as its run.json says: {other[0]}; name one on the same"
        )


def mean_of_run(path: Path, instance: Instance) -> Matrix:
    """The mean of all peers' X that a run has left, moved to the manifold.

    Raises:
        ConfigError: A peer has left nothing, or it is of another shape, or of other samples.
        DataFileError: What it says of itself is damaged.
    """
    _check_samples(path, instance)
    topology = instance.topology
    results = [load_result(path, peer=i).components_.T for i in range(topology.d)]
    expected = topology.problem.n, topology.problem.p
    if any(X.shape != expected for X in results):
        raise ConfigError(f"{path} is a run of another problem: its X are {results[0].shape}, here {expected}")
    return polar(np.mean(results, axis=0))


def words_on_distance(instance: Instance, X: Matrix, Y: Matrix, path: Path) -> str:
    """How far the answers X, of the run in `path`, and Y are from each other."""
    distance, aligned = float(np.linalg.norm(X - Y)), instance.aligned_distance(Y, X)
    return f"  distance to {path}/  {distance:.3e}, after the best alignment {aligned:.3e}"
