"""A comparison from what is asked for to what is written: runs that are finished already are not run again."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from thanos_peer import __version__
from thanos_peer.algorithm.reference import TARGET
from thanos_peer.compare.figure import draw
from thanos_peer.compare.gaps import JudgedRun, results
from thanos_peer.compare.processes import run_peers
from thanos_peer.compare.records import Record, Store, Yardstick
from thanos_peer.compare.runs import OnRound, attempt, centralise, simulate, yardstick
from thanos_peer.compare.tables import markdown, runs_csv, table_csv
from thanos_peer.compare.trials import Contender, Request, Trial, judge_topology, trials
from thanos_peer.durable import whole_file
from thanos_peer.errors import ConfigError
from thanos_peer.problem import Instance, build
from thanos_peer.topology import load


class Comparison:
    """Methods on the same problems.

    Args:
        request: What is asked for.
        found: The methods with their settings.
        out: The directory of its records.
        over_processes: Whether the peers are processes of their own.

    Raises:
        ConfigError: The file, a setting, or the directory cannot be used.
    """

    def __init__(self, request: Request, found: Sequence[Contender], out: Path, *, over_processes: bool) -> None:
        self.request, self._over_processes = request, over_processes
        self.trials = trials(request, found)
        self._store = Store(out, _meaning(request, over_processes=over_processes))
        self._judge: tuple[str, Instance] | None = None

    @property
    def path(self) -> Path:
        """Where everything is written."""
        return self._store.path

    def is_finished(self, trial: Trial) -> bool:
        """Whether a run has been kept, and what its problem is measured by."""
        ruler = self._store.yardstick_of(trial, judge_topology(self.request, trial).digest)
        return self._store.file_of(trial).exists() and ruler.exists()

    def run(self, trial: Trial, on_round: OnRound) -> None:
        """Run it, and keep what it has come to."""
        judge = self._judge_of(trial)
        ruler = self._store.yardstick_of(trial, judge.topology.digest)
        if not ruler.exists():
            self._store.write(ruler, yardstick(judge))
        self._store.write(
            self._store.file_of(trial), attempt(lambda: self._run(trial, judge, on_round), trial.digest)
        )

    def _run(self, trial: Trial, judge: Instance, on_round: OnRound) -> Record:
        if trial.contender.is_central:
            return centralise(trial, judge, on_round)
        if self._over_processes:
            return run_peers(trial, judge, self.path / "running", on_round)
        return simulate(trial, judge, on_round)

    def _judge_of(self, trial: Trial) -> Instance:
        """Built once for all trials that follow each other with the same problem and start."""
        topology = judge_topology(self.request, trial)
        if self._judge is None or self._judge[0] != topology.digest:
            self._judge = topology.digest, build(topology)
        return self._judge[1]

    def results(self) -> list[JudgedRun]:
        """All runs beside the best of each problem.

        Raises:
            DataFileError: A record is damaged.
        """
        pairs: list[tuple[Trial, Record]] = []
        rulers: dict[str, dict[str, Yardstick]] = {}
        for trial in self.trials:
            digest = judge_topology(self.request, trial).digest
            pairs.append((trial, self._store.read(self._store.file_of(trial), Record, trial.digest)))
            ruler = self._store.read(self._store.yardstick_of(trial, digest), Yardstick, digest)
            rulers.setdefault(trial.problem, {})[digest] = ruler
        return results(pairs, {problem: list(found.values()) for problem, found in rulers.items()})

    def write(self, found: Sequence[JudgedRun], warn: Callable[[str], None]) -> str:
        """Write tables and figure; returns the table for people."""
        text = markdown(found, self._head(found))
        files = {"table.md": text, "table.csv": table_csv(found), "runs.csv": runs_csv(found)}
        for name, content in files.items():
            with whole_file(self.path / name) as file:
                file.write(content.encode())
        try:
            drawn = draw(found, f"{found[0].trial.topology.name}: {self._how()}; median and spread over seeds")
        except ConfigError as error:
            warn(f"no figure: {error}")
        else:
            with whole_file(self.path / "figure.png") as file:
                file.write(drawn)
        return text

    def _how(self) -> str:
        seeds = sorted({trial.seed for trial in self.trials})
        spelled = f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds, {seeds[0]} to {seeds[-1]}"
        where = "a process per peer" if self._over_processes else "in one process"
        return f"{self.trials[0].topology.d} agents, {spelled}, {where}"

    def _head(self, found: Sequence[JudgedRun]) -> list[str]:
        topology = found[0].trial.topology
        is_pca = topology.problem.objective is None
        best = (
            "of the centralised reference from the same start and of the ends of all runs"
            if is_pca
            else "of the ends of all runs: an objective of your own has no reference"
        )
        scale = "||A||_2^2" if is_pca else "its absolute value"
        worst = max((result.precision or 0.0 for result in found), default=0.0)
        doubt = "" if worst < TARGET else f" The residual of a reference is {worst:.1e}, NOT below {TARGET:g}."
        return [
            f"# {topology.name}: {self._how()}",
            "",
            "Gap: the objective at the nearest point of the manifold to the mean of all X_i, less the best one "
            f"known ({best}), divided by {scale}. Rounds, messages and bytes (payload) are of all agents, from "
            "the first round of all phases until the gap is below for the first time; for centralised methods "
            "rounds are iterations. Medians over seeds, and from least to most; a run that never gets there "
            "counts as infinite." + doubt,
        ]


def _meaning(request: Request, *, over_processes: bool) -> dict[str, Any]:
    """What all records of a directory have in common: other methods and more seeds may join them."""
    topology = load(request.file, allowed_code=request.allowed_code)
    instance = build(topology)
    samples = hashlib.sha256("".join(share.samples for share in instance.shares).encode()).hexdigest()
    return {
        "version": __version__,
        "topology": topology.name,
        "digest": topology.digest,
        "samples": samples,
        "--processes": over_processes,
        "--max-rounds": request.max_rounds,
        "--sweep": {key: list(values) for key, values in request.sweep.items()},
    }
