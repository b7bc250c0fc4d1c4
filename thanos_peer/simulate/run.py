"""Run a network to its end, measuring as it goes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from thanos_peer.algorithm.measures import Stationarity, consensus_error, distance, feasibility
from thanos_peer.algorithm.reference import Reference
from thanos_peer.algorithm.search import MOST
from thanos_peer.algorithm.stiefel import infeasibility, polar
from thanos_peer.block import Matrix
from thanos_peer.problem import Instance
from thanos_peer.simulate.network import Ended, Network, Snapshot
from thanos_peer.topology import Topology


class EndReason(Enum):
    """Why a run ended."""

    TOLERANCE = "every agent met the stopping rule of the method"
    MAX_ROUNDS = "the maximum number of rounds was reached"
    STUCK = "the residual did not fall any further"
    SEARCHED = f"the search of at most {MOST:,} evaluations from each start was over"
    INTERRUPTED = "it was interrupted"


@dataclass(frozen=True)
class Row:
    """What a round looks like to an observer of all agents: one line of the history.

    The objective is taken at the mean of all X_i, moved to the manifold; the stationarity of Def. 3 at the mean
    itself. The residual is that of the non-smooth problem, relative to ||A||_2^2; methods that smooth leave it to
    the end of the run. The last three are known with a reference X* only.
    """

    round: int
    objective: float
    feasibility: float
    consensus: float
    stationarity: Stationarity
    sigma: float | None
    eta_min: float
    eta_max: float
    residual: float | None = None
    tolerance: float = 0.0
    distance: float | None = None
    aligned_distance: float | None = None
    gap: float | None = None


def measure(network: Snapshot, instance: Instance, reference: Reference | None = None) -> Row:
    """The row of the round that the network is in, of the problem as its agents have prepared it."""
    instance = instance.divided_by(network.overall).chosen(network.account.chosen)
    X, eta = network.X, network.eta
    mean = X.mean(axis=0)
    sigma = None if instance.smoothing is None else instance.smoothing.sigma(network.k)
    nearest = polar(mean)
    residual = instance.residual(mean) if sigma is None else None
    objective = instance.whole.value(nearest)
    return Row(
        round=network.k,
        objective=objective,
        feasibility=feasibility(X),
        consensus=consensus_error(X),
        stationarity=_stationarity(instance, mean, sigma, residual),
        sigma=sigma,
        eta_min=float(eta.min()),
        eta_max=float(eta.max()),
        residual=residual,
        tolerance=instance.topology.tolerance,
        distance=None if reference is None else distance(X, reference.X),
        aligned_distance=None if reference is None else instance.aligned_distance(mean, reference.X),
        gap=None if reference is None else objective - instance.whole.value(reference.X),
    )


def _stationarity(instance: Instance, X: Matrix, sigma: float | None, residual: float | None) -> Stationarity:
    """That of Def. 3 with Y_i = prox(X); or, where nothing is smoothed, with Y_i = X."""
    if sigma is not None or residual is None:
        return instance.whole.stationarity(X, sigma or 1.0)
    return Stationarity(instance.unit(instance.whole.f.gradient(X)) * residual, 0.0, float(infeasibility(X)))


def prepare(
    network: Network,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    on_phase: Callable[[str, int], None] = lambda name, k: None,  # noqa: ARG005
) -> None:
    """Advance to the phase that minimises; `on_phase` hears of the rounds before."""
    while network.is_preparing and not should_stop():
        on_phase(*network.phase)
        network.advance()


def run(
    network: Network,
    instance: Instance,
    *,
    reference: Reference | None = None,
    every: int = 1,
    should_stop: Callable[[], bool] = lambda: False,
    on_phase: Callable[[str, int], None] = lambda name, k: None,  # noqa: ARG005
) -> Iterator[Row]:
    """Advance to the last round, and yield the row of every `every`-th round, of round 0 and of the last.

    Nothing is yielded of the phases before and after the one that minimises: `on_phase` hears of their rounds.
    """
    prepare(network, should_stop=should_stop, on_phase=on_phase)
    if network.is_preparing:
        return
    shown = network.k
    yield measure(network, instance, reference)
    while not network.is_done and not should_stop():
        network.advance()
        if not network.is_in_main_phase:
            on_phase(*network.phase)
        if network.k > shown and (network.k % every == 0 or network.is_done):
            shown = network.k
            yield measure(network, instance, reference)
    if network.k > shown:
        yield measure(network, instance, reference)


def ending_of(network: Ended, topology: Topology) -> EndReason:
    """Why the network stands where it stands."""
    if not network.is_done:
        return EndReason.INTERRUPTED
    if network.is_below_tolerance:
        return EndReason.TOLERANCE
    return EndReason[topology.why_over(network.k).upper()]
