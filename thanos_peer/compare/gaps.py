"""How far every run was from the best that is known, and what it took to get how near."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thanos_peer.block import Matrix
from thanos_peer.compare.records import Record, Yardstick
from thanos_peer.compare.trials import Trial

GAPS = (1e-2, 1e-4, 1e-8)
# A residual up to this is small; and so is a gap up to FACTOR times the residual.
STATIONARY = 1e-6
FACTOR = 100.0
BEST_POINT = "at the best stationary point"
ANOTHER_POINT = "at another stationary point"
NOT_STATIONARY = "not stationary"


class Cost(NamedTuple):
    """What it took; infinite for never, NaN for what a centralised method does not have."""

    rounds: float
    messages: float
    payload: float
    seconds: float


@dataclass(frozen=True)
class JudgedRun:
    """A run, beside the best that is known of its problem.

    Attributes:
        trial: What ran.
        record: What it has come to.
        best: The least objective at the end of any run of the same problem, or of the reference.
        scale: What gaps are divided by.
        precision: The residual of the reference; None where there is none.
    """

    trial: Trial
    record: Record
    best: float
    scale: float
    precision: float | None = None

    @property
    def gaps(self) -> Matrix:
        """The gap at each point of the curve; below zero where it passed something better than it ended at."""
        return (np.array(self.record.curve.objective) - self.best) / self.scale

    @property
    def final_gap(self) -> float | None:
        """The gap at the end."""
        return None if self.record.objective is None else (self.record.objective - self.best) / self.scale

    def cost(self, gap: float) -> Cost:
        """What it took until the gap was at most this for the first time."""
        reached, curve = np.flatnonzero(self.gaps <= gap), self.record.curve
        if not len(reached):
            cost = Cost(math.inf, math.inf, math.inf, math.inf)
        else:
            at, rounds = int(reached[0]), curve.rounds[reached[0]]
            messages = rounds * (self.record.messages_per_round or 0)
            cost = Cost(rounds, messages, curve.payload[at] if curve.payload else 0, curve.seconds[at])
        return cost._replace(messages=math.nan, payload=math.nan) if self.trial.contender.is_central else cost

    @property
    def ending(self) -> str:
        """How it ended: by residual and gap alone, whatever tolerance the method itself goes by."""
        gap, residual = self.final_gap, self.record.residual
        if gap is None or residual is None or self.record.has_failed:
            return self.record.ended
        if not residual <= STATIONARY:
            return NOT_STATIONARY
        return ANOTHER_POINT if gap > max(GAPS[-1], FACTOR * residual) else BEST_POINT

    @property
    def has_failed(self) -> bool:
        """Whether it did not get to any stationary point."""
        return self.record.has_failed or self.ending == NOT_STATIONARY


def results(
    pairs: Sequence[tuple[Trial, Record]], yardsticks: Mapping[str, Sequence[Yardstick]]
) -> list[JudgedRun]:
    """Every run beside the best of its problem; what it is measured by is found by the name of the problem."""
    found = []
    for trial, record in pairs:
        same = [other.objective for each, other in pairs if each.problem == trial.problem]
        same += [each.objective for each in yardsticks[trial.problem]]
        best = min((objective for objective in same if objective is not None), default=math.nan)
        scale = yardsticks[trial.problem][0].scale or abs(best) or 1.0
        precise = [each.residual for each in yardsticks[trial.problem] if each.residual is not None]
        found.append(JudgedRun(trial, record, best, scale, min(precise, default=None)))
    return found
