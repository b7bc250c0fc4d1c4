"""The paper's two experiments: sparse PCA with l1 and l2,1 on 32 agents, for several sigma, against X*.

The paper says only that A is random; with a raw Gaussian A the weight mu = 0.1 changes almost nothing, so A is
divided by ||A||_2. The start is the leading singular vectors; the constants are those of `preset = "paper"`.
"""

import csv
import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from thanos_peer.algorithm.reference import Reference
from thanos_peer.plots import PlottedCurve, draw_panels
from thanos_peer.problem import build
from thanos_peer.simulate import Row, StackedNetwork, run
from thanos_peer.topology import Topology, families, parse
from thanos_peer.topology.render import Draft, render

AGENTS, PROBABILITY = 32, 0.5
SIGMAS = (10.0, 1.0, 0.1, 0.01)
# Speeds whose ratio is above this are called the same: above sigma = 1 they are, by and large.
SLACK = 0.8
# A distance that is above this share of another does not count as smaller.
MARGIN = 0.95
# A curve that is below both has come to its end: it is stationary, and flat at last.
SETTLED_GRADIENT, SETTLED_CHANGE = 1e-3, 0.02


def paper_draft(regularizer: str, seed: int, *, sigma: float | None, max_rounds: int) -> Draft:
    """The paper's network and problem; None for sigma is the schedule k^(-1/3)."""
    return Draft(
        name=f"paper-{regularizer}",
        d=AGENTS,
        edges=families.erdos_renyi(AGENTS, PROBABILITY, seed),
        title=f"The paper's network: {AGENTS} peers, Erdos-Renyi {PROBABILITY}, seed {seed}.",
        regularizer=regularizer,
        preset="paper",
        seed=seed,
        sigma=sigma,
        max_rounds=max_rounds,
        tolerance=0.0,
    )


@dataclass(frozen=True)
class SigmaRun:
    """One curve of a figure: sigma (None for the schedule) and a row per round."""

    sigma: float | None
    rows: Sequence[Row]

    @property
    def label(self) -> str:
        """For tables."""
        return "k^(-1/3)" if self.sigma is None else f"{self.sigma:g}"

    def distance(self, k: int) -> float:
        """dist^(k)."""
        return self.rows[k].distance or 0.0

    @property
    def final_distance(self) -> float:
        """dist after the last round."""
        return self.distance(-1)

    @property
    def halving_round(self) -> float:
        """The first round with half the initial distance, infinite if there is none."""
        half = self.distance(0) / 2
        return next((row.round for row in self.rows if (row.distance or 0.0) <= half), math.inf)

    @property
    def has_settled(self) -> bool:
        """Whether its own smoothed problem is solved, near X*: small gradient, and flat over the last tenth."""
        earlier, last = self.distance(-1 - len(self.rows) // 10), self.final_distance
        is_flat = abs(earlier - last) <= SETTLED_CHANGE * last
        is_stationary = self.rows[-1].stationarity.gradient <= SETTLED_GRADIENT
        return is_flat and is_stationary and math.isfinite(self.halving_round)


@dataclass(frozen=True)
class Observation:
    """Whether an observation of the paper holds in this run; None where the run does not decide it."""

    observation: str
    holds: bool | None
    evidence: str


@dataclass(frozen=True)
class Figure:
    """One of the two experiments: the reference, and a trial for each sigma and for the schedule."""

    regularizer: str
    seed: int
    reference: Reference
    trials: Sequence[SigmaRun]

    @property
    def constants(self) -> list[SigmaRun]:
        """The trials with constant sigma, the largest first."""
        fixed = [trial for trial in self.trials if trial.sigma is not None]
        return sorted(fixed, key=lambda trial: -(trial.sigma or 0.0))

    @property
    def schedule(self) -> SigmaRun:
        """The trial with decreasing sigma."""
        return next(trial for trial in self.trials if trial.sigma is None)

    def verdicts(self) -> list[Observation]:
        """The paper's three observations, judged from the data of this run."""
        return [self._smaller_is_slower(), self._larger_ends_worse(), self._schedule_beats_small()]

    def _smaller_is_slower(self) -> Observation:
        rounds = [trial.halving_round for trial in self.constants]
        shown = ", ".join("never" if math.isinf(k) else str(k) for k in rounds)
        holds = None
        if math.isfinite(rounds[0]):
            is_ordered = all(smaller >= SLACK * larger for larger, smaller in pairwise(rounds))
            holds = is_ordered and rounds[-1] >= 2 * rounds[0]
        return Observation(
            "a smaller sigma converges more slowly",
            holds,
            f"rounds to half the distance, largest sigma first: {shown}; none below {SLACK:g} of the one before",
        )

    def _larger_ends_worse(self) -> Observation:
        settled = [trial for trial in self.constants if trial.has_settled]
        shown = ", ".join(f"{trial.final_distance:.1e} (sigma {trial.label})" for trial in settled)
        holds = None
        if len(settled) > 1:
            holds = all(larger.final_distance > smaller.final_distance for larger, smaller in pairwise(settled))
        return Observation(
            "a larger sigma ends at a larger error", holds, f"final distance where settled: {shown or 'none has'}"
        )

    def _schedule_beats_small(self) -> Observation:
        small, ours = self.constants[-1], self.schedule.final_distance
        # Otherwise the run has got nowhere yet.
        is_decided = ours < 0.95 * self.schedule.distance(0)
        return Observation(
            "the decreasing scheme beats a small constant sigma",
            ours < MARGIN * small.final_distance if is_decided else None,
            f"final distance {ours:.1e} against {small.final_distance:.1e} (sigma {small.label})",
        )

    def write(self, directory: Path) -> list[Path]:
        """The data as CSV, the two panels as PNG and SVG; returns what was written."""
        directory.mkdir(parents=True, exist_ok=True)
        table, *pictures = (directory / f"figure-{self.regularizer}{end}" for end in (".csv", ".png", ".svg"))
        with table.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["sigma", "round", "dist", "feas", "aligned_dist", "gap", "gradient"])
            for trial in self.trials:
                writer.writerows(_csv_cells(trial.label, row) for row in trial.rows)
        distances = [
            PlottedCurve(_legend(trial), [row.distance or 0.0 for row in trial.rows]) for trial in self.trials
        ]
        infeasible = [
            PlottedCurve(_legend(trial), [row.feasibility for row in trial.rows]) for trial in self.trials
        ]
        spelled = {"l1": r"\ell_1", "l21": r"\ell_{2,1}"}[self.regularizer]
        draw_panels(
            f"THANOS on sparse PCA with ${spelled}$, seed {self.seed}",
            {r"dist$^{(k)}$": distances, r"feas$^{(k)}$": infeasible},
            pictures,
        )
        return [table, *pictures]


def reproduce(
    regularizer: str, *, seed: int, max_rounds: int, sigmas: Sequence[float], on_round: Callable[[Row], None]
) -> Figure:
    """Run one of the two experiments; `on_round` hears of every round of every trial."""
    reference: Reference | None = None
    trials = []
    for sigma in (*sorted(sigmas, reverse=True), None):
        instance = build(_topology(paper_draft(regularizer, seed, sigma=sigma, max_rounds=max_rounds)))
        reference = reference or instance.solve_reference()
        rows = []
        for row in run(StackedNetwork(instance), instance, reference=reference):
            rows.append(row)
            on_round(row)
        trials.append(SigmaRun(sigma, rows))
    assert reference is not None, "there is always the schedule"  # noqa: S101
    return Figure(regularizer, seed, reference, trials)


def _topology(draft: Draft) -> Topology:
    return parse(tomllib.loads(render(draft)), file=Path(f"{draft.name}.toml"))


def _legend(trial: SigmaRun) -> str:
    return r"$\sigma^{(k)} = k^{-1/3}$" if trial.sigma is None else rf"$\sigma = {trial.sigma:g}$"


def _csv_cells(label: str, row: Row) -> list[object]:
    values = (row.distance, row.feasibility, row.aligned_distance, row.gap, row.stationarity.gradient)
    return [label, row.round, *map(repr, values)]
