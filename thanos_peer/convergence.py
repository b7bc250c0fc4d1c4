"""Whether an answer has converged, in words: the one place that says so, for peers, summaries and reports."""

from collections.abc import Sequence
from typing import NamedTuple

from thanos_peer.algorithm.methods import MIXING
from thanos_peer.block import Matrix
from thanos_peer.phases import Found
from thanos_peer.topology import Topology

SLACK = 10.0  # times the tolerance: a method's own rule measures otherwise than the certificate
NEGLIGIBLE = 1e-8  # of ||A||^2: components that capture less are what rounding makes of them
STATIONARY = "stationary, not necessarily the global minimum"


class Convergence(NamedTuple):
    """What may be said of an answer, and whether it has converged; None where nothing is certified."""

    words: str
    has_converged: bool | None


def judge(
    topology: Topology, residual: float | None, weakest: float | None, *, is_below_tolerance: bool, rounds: int
) -> Convergence:
    """What may be said of an answer.

    Args:
        topology: What was asked for.
        residual: How far from stationary it is certified to be, relative to ||A||^2; None if it is not.
        weakest: What its weakest component is worth, relative to ||A||^2; None if nobody knows.
        is_below_tolerance: Whether the method's own rule was met.
        rounds: Of the method.
    """
    tolerance = topology.tolerance
    if not tolerance:
        known = "" if residual is None else f"; residual {residual:.1e}"
        return Convergence(f"not judged: no tolerance was set{known}", has_converged=False)
    if residual is None and is_below_tolerance:
        return Convergence(
            f"not certified: every peer was below tolerance {tolerance:g} by its own rule", has_converged=None
        )
    most = 1.0 if weakest is None else min(1.0, max(weakest, NEGLIGIBLE))
    against = _objection(topology, residual, most, f"after {rounds} rounds", is_below_tolerance=is_below_tolerance)
    if residual is None or against is not None:
        return Convergence(f"not converged: {against}", has_converged=False)
    within = "" if residual <= tolerance else "within ten times "
    return Convergence(
        f"converged: residual {residual:.1e}, {within}tolerance {tolerance:g}; {STATIONARY}", has_converged=True
    )


def _objection(
    topology: Topology, residual: float | None, most: float, after: str, *, is_below_tolerance: bool
) -> str | None:
    """Why an answer has not converged, and what to do; None if it has."""
    tolerance = f"tolerance {topology.tolerance:g}"
    advice = _less(topology) if is_below_tolerance else _more(topology)
    if residual is None:
        return f"{tolerance} not reached {after}; {advice}"
    if residual > (SLACK if is_below_tolerance else 1.0) * topology.tolerance:
        return f"residual {residual:.1e} above {tolerance} {after}; {advice}"
    if not is_below_tolerance:
        return f"residual {residual:.1e} within {tolerance}, but the peers' own rule not met {after}; {advice}"
    if residual > most:
        return f"residual {residual:.1e} above what the weakest component is worth, {most:.1e}; {advice}"
    return None


def of_findings(topology: Topology, found: Found, *, is_below_tolerance: bool, rounds: int) -> Convergence:
    """The same, from what an agent has found."""
    numbers = map(_number, (found.residual, found.weakest))
    return judge(topology, *numbers, is_below_tolerance=is_below_tolerance, rounds=rounds)


def have_all(converged: Sequence[bool | None]) -> bool | None:
    """Whether all have converged: not if one has not, and unknown if one does not know."""
    return False if False in converged else None if None in converged else True


def _number(found: Matrix | None) -> float | None:
    return None if found is None else float(found)


def _less(topology: Topology) -> str:
    """What to do where the method's own rule was met, and the certificate denies it."""
    method = MIXING.get(topology.method)
    if method is not None and "smoothing" in method.settings:
        return 'what is left is the smoothing: take method = "auto"'
    return 'take a smaller tolerance, or method = "auto"'


def _more(topology: Topology) -> str:
    """What to do where it was not."""
    if topology.tolerance < topology.least_tolerance and topology.method in MIXING:
        return f'exchange = "float32" reaches about {topology.least_tolerance:g}: take "float64"'
    return 'raise max_rounds, or take method = "auto"' if topology.method in MIXING else "raise max_rounds"
