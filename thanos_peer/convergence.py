"""Whether an answer has converged, in words: the one place that says so, for peers, summaries and reports."""

from collections.abc import Sequence
from typing import NamedTuple

from thanos_peer.algorithm.methods import GENERAL, METHODS
from thanos_peer.algorithm.search import MOST
from thanos_peer.block import Matrix
from thanos_peer.phases import Found
from thanos_peer.topology import Topology

FEWER = "take fewer components, or a smaller tolerance"
EXACT = 'take method = "auto"'
SMOOTHING = f"what is left is the smoothing: {EXACT}"
MORE_ROUNDS = f"raise max_rounds, or {EXACT}"
CHECK = "check that the objective is smooth, and gradient the gradient of value"
SEARCHED = (
    f"its search of at most {MOST:,} evaluations from each start is over: take a larger tolerance, another start, "
    f'or method = "{GENERAL}", which max_rounds alone bounds'
)
# A residual within this factor of what rounding on the way lets it reach is not to be had smaller by other means.
NEAR_ROUNDING = 10
STATIONARY = "stationary, not necessarily the global minimum"


class Convergence(NamedTuple):
    """A verdict in words, and whether the answer has converged; None where nothing is certified or judged."""

    words: str
    has_converged: bool | None


def judge(
    topology: Topology,
    residual: float | None,
    weakest: float | None,
    *,
    is_below_tolerance: bool,
    rounds: int,
    starts: int | None = None,
    is_shared: bool = True,
) -> Convergence:
    """The verdict on an answer.

    Of a method that mixes the certificate decides, and not the rule by which it stops. One that sums looks at
    values as well, and knows where a gradient is none.

    Args:
        topology: What was asked for.
        residual: How far from stationary it is certified to be, relative to the problem; None if it is not.
        weakest: What its weakest component is worth, in the same unit, leaving out those that are worth nothing
            but rounding: see `measures.weakest_component`; None if unknown.
        is_below_tolerance: Whether the method's own rule was met.
        rounds: Of the method.
        starts: From how many starts it was searched; None if unknown.
        is_shared: Whether all peers have this answer; else only that rule tells how far apart they are.
    """
    tolerance = topology.tolerance
    if not tolerance:
        known = "" if residual is None else f"; residual {residual:.1e}"
        return Convergence(f"not judged: no tolerance was set{known}", has_converged=None)
    if residual is None and is_below_tolerance:
        return Convergence(
            f"not certified: every peer says that it was below tolerance {tolerance:g} by its own rule",
            has_converged=None,
        )
    against = _objection(
        topology, residual, weakest, rounds, is_below_tolerance=is_below_tolerance, is_shared=is_shared
    )
    searched = _searched(topology, starts)
    if residual is None or against is not None:
        return Convergence(f"not converged: {against}{searched}", has_converged=False)
    note = "" if is_below_tolerance else f"; the peers' own rule was not met after {rounds} rounds"
    words = f"converged: residual {residual:.1e}, tolerance {tolerance:g}{note}; {STATIONARY}{searched}"
    return Convergence(words, has_converged=True)


def _searched(topology: Topology, starts: int | None) -> str:
    wanted = topology.algorithm.restarts
    if wanted == 1 or starts is None:
        return ""
    if starts == wanted:
        return f"; the best of {wanted} starts"
    return f"; only {starts} of {wanted} starts searched: raise max_rounds"


def _objection(
    topology: Topology,
    residual: float | None,
    weakest: float | None,
    rounds: int,
    *,
    is_below_tolerance: bool,
    is_shared: bool,
) -> str | None:
    """Why an answer has not converged, and what to do; None if it has."""
    tolerance, after = f"tolerance {topology.tolerance:g}", f"after {rounds} rounds"
    advice = _less(topology) if is_below_tolerance else _more(topology, residual, rounds)
    if residual is None:
        return f"{tolerance} not reached {after}; {advice}"
    if residual > topology.tolerance:
        return f"residual {residual:.1e} above {tolerance} {after}; {advice}"
    if not (is_below_tolerance or (is_shared and METHODS[topology.method].mixes)):
        return f"residual {residual:.1e} within {tolerance}, but the peers' own rule not met {after}; {advice}"
    if residual > 1:
        return f"residual {residual:.1e} above 1, the size of the problem itself; {advice}"
    if weakest is not None and residual > weakest:
        is_smoothed = _smooths(topology) or not is_below_tolerance
        what = f"its weakest component is worth {weakest:.1e} and is not determined"
        return f"residual {residual:.1e}, but {what}; {advice if is_smoothed else FEWER}"
    return None


def of_findings(topology: Topology, found: Found, *, is_below_tolerance: bool, rounds: int) -> Convergence:
    """The same, from what an agent has found."""
    numbers = map(_number, (found.residual, found.weakest))
    starts = starts_of(found)
    return judge(topology, *numbers, is_below_tolerance=is_below_tolerance, rounds=rounds, starts=starts)


def starts_of(found: Found) -> int | None:
    """From how many starts an agent's answer was searched, if it knows."""
    return None if found.starts is None else int(found.starts)


def have_all(converged: Sequence[bool | None]) -> bool | None:
    """Whether all have converged: not if one has not, and unknown if one does not know."""
    return False if False in converged else None if None in converged else True


def _number(found: Matrix | None) -> float | None:
    return None if found is None else float(found)


def _less(topology: Topology) -> str:
    """What to do where the method's own rule was met, and the certificate denies it."""
    if _smooths(topology):
        return SMOOTHING
    if topology.problem.objective is not None:
        return CHECK
    return (
        'take a smaller tolerance, or method = "auto"'
        if METHODS[topology.method].mixes
        else "take a smaller tolerance"
    )


def _more(topology: Topology, residual: float | None, rounds: int) -> str:
    """What to do where it was not."""
    if METHODS[topology.method].mixes:
        return _more_mixing(topology, residual)
    why = topology.why_over(rounds)
    if why == "max_rounds":
        return "raise max_rounds"
    if why == "searched":
        return SEARCHED
    check = "" if topology.problem.objective is None else f"; {CHECK}"
    return f"it does not fall any further: take a larger tolerance, or another start{check}"


def _more_mixing(topology: Topology, residual: float | None) -> str:
    """The same for methods that mix: rounding on the way alone is in the way only of a residual near to it."""
    is_fixed = _smooths(topology) and "smoothing" not in METHODS[topology.method].settings
    more, least = SMOOTHING if is_fixed else MORE_ROUNDS, topology.least_tolerance
    # An X of zeros, or one that wanders, does not come back.
    if residual is not None and residual > 1:
        more = EXACT
    if topology.tolerance >= least:
        return more
    finer = f'exchange = "float32" reaches about {least:g}: take "float64"'
    return finer if residual is not None and residual <= NEAR_ROUNDING * least else f"{finer}; {more}"


def _smooths(topology: Topology) -> bool:
    """Whether the method minimises something smoother than the problem."""
    return METHODS[topology.method].smooths and not topology.problem.is_smooth
