"""From a topology to the agents' mathematics: objectives, regularizers, rules, and the common start."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from thanos_peer.algorithm import conditions, reference
from thanos_peer.algorithm.measures import WholeProblem
from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.algorithm.regularizers import L1, L21, Regularizer, Zero
from thanos_peer.algorithm.schedules import (
    BarzilaiBorwein,
    ConstantSmoothing,
    ConstantStep,
    DecreasingSmoothing,
    Smoothing,
    StepRule,
)
from thanos_peer.algorithm.stiefel import (
    leading_left_singular_vectors,
    random_point,
    rotation_distance,
    signed_permutation_distance,
)
from thanos_peer.algorithm.thanos import LocalProblem, Parameters
from thanos_peer.block import AgentId, Matrix
from thanos_peer.errors import ConfigError
from thanos_peer.topology import Topology
from thanos_peer.topology.data import samples_of, synthetic_samples


def parameters_of(topology: Topology) -> Parameters:
    """The rules that all agents follow."""
    return Parameters(topology.algorithm.beta, _step_rule(topology), _smoothing(topology))


def regularizer_of(topology: Topology, *, mu: float) -> Regularizer:
    """mu r(X), with the r of the topology."""
    kinds: dict[str, type[L1 | L21]] = {"l1": L1, "l21": L21}
    kind = kinds.get(topology.problem.regularizer)
    return Zero() if kind is None else kind(mu)


def start_of(topology: Topology) -> Matrix:
    """The X^(0) that all agents begin with, (n, p); every host finds the same from the file alone."""
    n, p, start = topology.problem.n, topology.problem.p, topology.algorithm.start
    if start.kind == "random":
        return random_point(n, p, np.random.default_rng(start.seed))
    data = topology.problem.data
    assert data.kind == "synthetic", "checked when the file was loaded"  # noqa: S101
    samples = np.vstack(synthetic_samples(data, n=n, d=topology.d))
    return leading_left_singular_vectors(samples.T, p)


def local_problem(topology: Topology, agent: AgentId) -> LocalProblem:
    """What one agent minimises; of the data files only its own is read."""
    share = regularizer_of(topology, mu=(topology.problem.mu or 0.0) / topology.d)
    return LocalProblem(agent, SparsePCA(samples_of(topology, [agent])[0].T), share)


@dataclass(frozen=True)
class Instance:
    """Everything a whole network needs, in one place: for runs in one process only.

    Attributes:
        topology: Where it comes from.
        parameters: The rules that all agents follow.
        local_problems: What each agent minimises, in order of id.
        start: The common X^(0), (n, p).
    """

    topology: Topology
    parameters: Parameters
    local_problems: tuple[LocalProblem, ...]
    start: Matrix

    @cached_property
    def pooled(self) -> SparsePCA:
        """f as one agent with all the samples would have it.

        Raises:
            ConfigError: An agent has another objective, which cannot be pooled.
        """
        pcas = [local.f for local in self.local_problems if isinstance(local.f, SparsePCA)]
        if len(pcas) < len(self.local_problems):
            raise ConfigError("only sparse PCA can be pooled: with another objective there is no reference X*")
        return SparsePCA.pooled(pcas)

    @cached_property
    def whole(self) -> WholeProblem:
        """Problem (1) with nothing hidden."""
        return WholeProblem.of(
            [local.f for local in self.local_problems], [local.g for local in self.local_problems]
        )

    def solve_reference(self) -> reference.Reference:
        """The centralised X*, from the same start."""
        g = regularizer_of(self.topology, mu=self.topology.problem.mu or 0.0)
        return reference.solve(self.pooled, g, self.start, lipschitz=self.pooled.lipschitz())

    def aligned_distance(self, X: Matrix, X_star: Matrix) -> float:
        """||X - X*||_F after the best of the moves that the objective does not notice."""
        by_columns = self.topology.problem.regularizer == "l1"
        return (signed_permutation_distance if by_columns else rotation_distance)(X, X_star)


def build(topology: Topology) -> Instance:
    """The whole network of a topology."""
    g = regularizer_of(topology, mu=(topology.problem.mu or 0.0) / topology.d)
    return Instance(
        topology,
        parameters_of(topology),
        tuple(
            LocalProblem(i, SparsePCA(rows.T), g) for i, rows in enumerate(samples_of(topology, range(topology.d)))
        ),
        start_of(topology),
    )


def proven_parameters(instance: Instance) -> tuple[float, float]:
    """The least beta and, with it, the largest constant step for which Condition 1 proves convergence."""
    topology, whole = instance.topology, instance.whole
    d, n, p = topology.d, topology.problem.n, topology.problem.p
    lipschitz = max(local.f.lipschitz() for local in instance.local_problems if isinstance(local.f, SparsePCA))
    constants = conditions.Constants(  # in float64, which overflows to infinity where Python would raise
        d=d,
        p=p,
        L_f=np.float64(lipschitz),
        L_g=np.float64(max(g.lipschitz(n, p) for _, g in whole.shares)),
        M_f=np.float64(lipschitz) * conditions.gradient_radius(d, p),  # the gradient is linear
        sigma=np.float64(instance.parameters.smoothing.sigma(topology.algorithm.max_rounds)),
        lambda_=topology.graph.lambda_,
    )
    with np.errstate(over="ignore"):
        beta = conditions.beta_bound(constants)
        return float(beta), float(conditions.eta_bound(constants, beta))


def _step_rule(topology: Topology) -> StepRule:
    step = topology.algorithm.step
    return ConstantStep(step.eta) if step.rule == "constant" else BarzilaiBorwein(step.first)


def _smoothing(topology: Topology) -> Smoothing:
    smoothing = topology.algorithm.smoothing
    if smoothing is None:  # DESTINY: nothing to smooth, any sigma will do
        return ConstantSmoothing(1.0)
    if smoothing.rule == "constant":
        return ConstantSmoothing(smoothing.sigma)
    return DecreasingSmoothing(smoothing.sigma0, smoothing.exponent)
