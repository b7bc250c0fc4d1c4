"""From a topology file to the rules that all agents follow, and the start that they have in common."""

import numpy as np

from thanos_peer.algorithm.methods import METHODS
from thanos_peer.algorithm.regularizers import REGULARIZERS, Regularizer
from thanos_peer.algorithm.schedules import (
    BarzilaiBorwein,
    ConstantSmoothing,
    ConstantStep,
    DecreasingSmoothing,
    Parameters,
    Smoothing,
    StepRule,
)
from thanos_peer.algorithm.stiefel import leading_left_singular_vectors, random_point
from thanos_peer.block import Matrix
from thanos_peer.own_code import OwnRegularizer
from thanos_peer.topology import Topology
from thanos_peer.topology.data import read_start, synthetic_samples

FIRST_STEP = 0.1  # for samples of norm 1
# Longest step for samples of norm 1, where the first step follows from the samples.
LONGEST_STEP = 0.25


def parameters_of(topology: Topology, size: float | None = None) -> Parameters:
    """Beta, step and smoothing.

    Args:
        topology: Where they stand.
        size: ||A||_2^2 of all samples, as far as the network knows; needed where they are to follow from it.
    """
    beta = topology.algorithm.beta
    return Parameters(
        _slope(topology, size) if beta == "auto" else beta, _step_rule(topology, size), smoothing_of(topology)
    )


def _slope(topology: Topology, size: float | None) -> float:
    """About the largest ||D||_F on the manifold: beta is as large, and no step longer than 1 by this."""
    n, p, mu = topology.problem.n, topology.problem.p, topology.problem.weights[0]
    return (_known(size) + regularizer_of(topology, mu=mu).lipschitz(n, p)) / topology.d


def regularizer_of(topology: Topology, *, mu: float) -> Regularizer:
    """mu r(X), with the r of the topology."""
    problem = topology.problem
    kind = REGULARIZERS.get(problem.regularizer)
    if kind is None:
        return OwnRegularizer.of(topology, mu)
    return kind.make(mu, problem.regularizer_options, n=problem.n)


def share_of_regularizer(topology: Topology, *, mu: float | None = None) -> Regularizer:
    """What each agent has of it: mu r(X) / d; with the largest mu of the file, if not with another."""
    largest = (topology.problem.weights or (0.0,))[0]
    return regularizer_of(topology, mu=(largest if mu is None else mu) / topology.d)


def start_of(topology: Topology) -> Matrix:
    """The X^(0) that follows from the file alone, (n, p); with DESTINY that is where the search begins."""
    n, p, start = topology.problem.n, topology.problem.p, topology.algorithm.start
    if start.kind == "file":
        return read_start(topology.directory / start.path, n=n, p=p)
    if start.kind in ("random", "destiny", "leading"):
        return random_point(n, p, np.random.default_rng(start.seed))
    data = topology.problem.data
    assert data.kind == "synthetic", "checked when the file was loaded"  # noqa: S101
    samples = np.vstack(synthetic_samples(data, n=n, d=topology.d))
    return leading_left_singular_vectors(samples.T, p)


def restart_of(topology: Topology, number: int) -> Matrix:
    """Where to begin once more: a random point of the manifold, the same at every agent."""
    n, p = topology.problem.n, topology.problem.p
    return random_point(n, p, np.random.default_rng([seed_of(topology), number]))


def seed_of(topology: Topology) -> int:
    """Of what is drawn during a run: that of the start, and 0 where that has none."""
    seed: int = getattr(topology.algorithm.start, "seed", 0)
    return seed


def needs_size(topology: Topology) -> bool:
    """Whether something in the file is to follow from how large all samples are together."""
    algorithm, data = topology.algorithm, topology.problem.data
    # Nothing is known of the size of the user's own objective.
    if topology.problem.objective is not None:
        return False
    return (
        "auto" in (algorithm.beta, getattr(algorithm.step, "first", None), getattr(data, "overall", None))
        or algorithm.start.kind in ("destiny", "leading")
        or not METHODS[topology.method].has_parameters
    )


def _known(size: float | None) -> float:
    assert size is not None, "the phase that finds it comes before"  # noqa: S101
    return size


def _step_rule(topology: Topology, size: float | None) -> StepRule:
    step = topology.algorithm.step
    if step.rule == "constant":
        return ConstantStep(step.eta)
    if step.first != "auto":
        return BarzilaiBorwein(step.first)
    # On badly mixing graphs shorter steps wander, too; with a strong mu a step longer than 1/beta can end at X =
    # 0.
    longest = min(LONGEST_STEP, (1 - topology.graph.lambda_) * topology.d) / _known(size)
    most = min(longest, 1 / _slope(topology, size))
    return BarzilaiBorwein(min(FIRST_STEP / _known(size), most), most)


def smoothing_of(topology: Topology) -> Smoothing:
    """The rule for sigma."""
    smoothing = topology.algorithm.smoothing
    # DESTINY has nothing to smooth: any sigma will do.
    if smoothing is None:
        return ConstantSmoothing(1.0)
    if smoothing.rule == "constant":
        return ConstantSmoothing(smoothing.sigma)
    return DecreasingSmoothing(smoothing.sigma0, smoothing.exponent)
