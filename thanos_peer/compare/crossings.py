"""Where, of the two exact methods, the one that sends less changes with n, beside what was predicted."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from thanos_peer.compare.gaps import GAPS, JudgedRun
from thanos_peer.compare.trials import spell
from thanos_peer.topology.prediction import OF_A_GAP, crossing, digits_of

FEATURES = "problem.n"


def crossings(results: Sequence[JudgedRun]) -> list[str]:
    """For people: of each setting that was run with several n; nothing where no two methods cross."""
    groups: dict[str, list[JudgedRun]] = {}
    for result in results:
        settings = result.trial.contender.settings
        if FEATURES in settings and result.trial.topology.problem.objective is None:
            others = {key: value for key, value in settings.items() if key != FEATURES}
            groups.setdefault(spell(others) if others else "", []).append(result)
    return ["\n".join(lines) for others, found in groups.items() if (lines := list(_lines(others, found)))]


def _lines(others: str, results: Sequence[JudgedRun]) -> Iterator[str]:
    topology = results[0].trial.topology
    expected = crossing(topology.problem, topology.algorithm, min(digits_of(topology.algorithm), OF_A_GAP))
    few, many = (_payloads(results, method) for method in (expected.few, expected.many))
    both = sorted(few.keys() & many.keys())
    if len(both) < 2:
        return
    yield f"Bytes to a gap of 1e-8 by n{f', with {others}' if others else ''}; medians, and over how many seeds:\n"
    for n in both:
        sent = (f"{name} {_median(known[n])}" for name, known in ((expected.few, few), (expected.many, many)))
        yield f"- n = {n}: {', '.join(sent)}"
    found = crossing_between([(n, float(np.median(few[n])), float(np.median(many[n]))) for n in both])
    ratio = "no crossing in between" if found is None else f"{found:.0f}, {found / expected.n:.2f} of that"
    yield f"- {expected.few} sends less up to n = {expected.n} by prediction; measured: {ratio}"


def _payloads(results: Sequence[JudgedRun], method: str) -> Mapping[int, list[float]]:
    """Those of all seeds by n, infinite where the gap was not reached."""
    found: dict[int, list[float]] = {}
    for result in results:
        if result.trial.contender.method == method:
            found.setdefault(result.trial.topology.problem.n, []).append(result.cost(GAPS[-1]).payload)
    return found


def _median(payloads: Sequence[float]) -> str:
    middle, reached = float(np.median(payloads)), sum(map(math.isfinite, payloads))
    return f"{f'{middle:,.0f}' if math.isfinite(middle) else 'never'} ({reached} of {len(payloads)})"


def crossing_between(points: Sequence[tuple[int, float, float]]) -> float | None:
    """The n where the second of two amounts becomes the smaller: straight lines through the logarithms.

    Args:
        points: n and the two amounts, by n.
    """
    known = [(math.log(n), math.log(many / few)) for n, few, many in points if math.isfinite(few + many)]
    for (before, above), (after, below) in itertools.pairwise(known):
        if above > 0 >= below:
            return math.exp(before + (after - before) * above / (above - below))
    return None
