"""From a topology to the agents' mathematics: what each of them brings, and all of it together in one place."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from thanos_peer.algorithm import conditions, reference
from thanos_peer.algorithm.measures import WholeProblem, certificate, weakest_component
from thanos_peer.algorithm.methods import METHODS
from thanos_peer.algorithm.objectives import Objective, SparsePCA
from thanos_peer.algorithm.regularizers import REGULARIZERS, Regularizer, slope
from thanos_peer.algorithm.schedules import Parameters, Smoothing
from thanos_peer.algorithm.stiefel import norm, rotation_distance, signed_permutation_distance
from thanos_peer.algorithm.units import scale, unit_of
from thanos_peer.block import AgentId, Matrix
from thanos_peer.errors import ConfigError, DataFileError
from thanos_peer.own_code import OwnObjective, check_allowed
from thanos_peer.phases import Found, Plan
from thanos_peer.preparation import NOTHING_LEFT, Share, pooled_findings
from thanos_peer.preparation.own import weight_of
from thanos_peer.rules import regularizer_of, share_of_regularizer
from thanos_peer.samples import Incomplete, Moments
from thanos_peer.topology import Topology
from thanos_peer.topology.data import moments_of, samples_of


def share_of(topology: Topology, agent: AgentId) -> Share:
    """What one agent brings; of the data files only its own is read.

    Raises:
        DataFileError: It cannot be used, or has another number of samples than the topology file says.
    """
    share = Share(topology, agent, _data_of(topology, [agent])[0])
    if (said := topology.peers[agent].samples) not in (None, share.count):
        where = f"{topology.data_file(agent)} of peer {agent}"
        raise DataFileError(f"{where} has {share.count} samples; the topology file says samples = {said} of it")
    return share


def _data_of(topology: Topology, agents: Sequence[AgentId]) -> list[Moments | Incomplete | Objective]:
    """What some agents bring: samples that are fixed, files that the network may have to prepare, or own code."""
    check_allowed(topology)
    if topology.problem.objective is not None:
        return [OwnObjective(topology, rows) for rows in samples_of(topology, agents)]
    if topology.problem.data.kind == "synthetic":
        return [SparsePCA(rows.T) for rows in samples_of(topology, agents)]
    return [moments_of(topology, agent) for agent in agents]


@dataclass(frozen=True)
class LocalProblem:
    """What agent `agent` minimises: f_i + g_i, its share of (1)."""

    agent: AgentId
    f: Objective
    g: Regularizer


@dataclass(frozen=True)
class Instance:
    """Everything a whole network needs, in one place: for runs in one process only.

    Attributes:
        topology: Where it comes from.
        local_problems: What each agent minimises, in order of id.
        start: The common X^(0), (n, p).
        shares: What each agent brings.
        found: What the agents find before they minimise, computed from all samples.
    """

    topology: Topology
    local_problems: tuple[LocalProblem, ...]
    start: Matrix
    shares: tuple[Share, ...]
    found: Found

    @property
    def samples(self) -> str:
        """A digest of all agents' samples and of who has which; empty where they follow from the topology."""
        digests = [share.samples for share in self.shares]
        return hashlib.sha256(" ".join(digests).encode()).hexdigest() if any(digests) else ""

    def plan(self, agent: AgentId) -> Plan:
        """The phases of one agent."""
        return self.shares[agent].plan()

    @cached_property
    def parameters(self) -> Parameters:
        """Those of THANOS."""
        return self.shares[0].prepare_main(self.found).parameters()

    @cached_property
    def smoothing(self) -> Smoothing | None:
        """How sigma shrinks; None for methods that do not smooth."""
        return self.parameters.smoothing if METHODS[self.topology.method].has_parameters else None

    def unit(self, G: Matrix) -> float:
        """What residuals are relative to, where the gradient of the whole f is G: see `units.py`."""
        n, p = G.shape
        return scale(
            self.pooled.lipschitz() if self.is_pca else unit_of(self._first, G), self.whole_regularizer, n, p
        )

    @cached_property
    def _first(self) -> float:
        """||G||_F at the start."""
        return float(norm(self.whole.f.gradient(self.start)))

    def residual(self, X: Matrix, *, is_strict: bool = False) -> float:
        """How far X on the manifold is from a stationary point of the non-smooth problem, in that unit."""
        G = self.whole.f.gradient(X)
        return certificate(X, G, self.whole_regularizer, self.unit(G), is_strict=is_strict).relative

    def weakest(self, X: Matrix) -> float | None:
        """What the weakest component of X is worth, in that unit; None for objectives that are not PCA."""
        if not self.is_pca:
            return None
        G = self.pooled.gradient(X)
        return weakest_component(X, G, self.mu, self.unit(G))

    @property
    def mu(self) -> float:
        """The weight of the regularizer; of a path that of the chosen answer, and before that the largest."""
        return weight_of(self.topology, self.found)

    @property
    def unit_in_words(self) -> str:
        """What residuals are relative to."""
        if not self.is_pca:
            return "the largest gradient"
        is_steep = slope(self.whole_regularizer, *self.start.shape) > self.pooled.lipschitz()
        return "the slope of the regularizer" if is_steep else "||A||^2"

    @cached_property
    def whole_regularizer(self) -> Regularizer:
        """The sum of all g_i."""
        return regularizer_of(self.topology, mu=self.mu)

    @property
    def is_pca(self) -> bool:
        """Whether the objective is sparse PCA."""
        return all(isinstance(local.f, SparsePCA) for local in self.local_problems)

    @cached_property
    def pooled(self) -> SparsePCA:
        """f as one agent with all the samples would have it.

        Raises:
            ConfigError: An agent has another objective, which cannot be pooled.
        """
        pcas = [local.f for local in self.local_problems if isinstance(local.f, SparsePCA)]
        if not self.is_pca:
            raise ConfigError("only sparse PCA can be pooled: with another objective there is no reference X*")
        return SparsePCA.pooled(pcas)

    @cached_property
    def whole(self) -> WholeProblem:
        """Problem (1) with nothing hidden."""
        return WholeProblem.of(
            [local.f for local in self.local_problems], [local.g for local in self.local_problems]
        )

    def divided_by(self, overall: float | None) -> "Instance":
        """The same network, whose agents have found that they divide all samples by this; None for nothing.

        That need not be what follows from all samples: their start may have been cut short. But what they minimise
        is what is measured.
        """
        if overall is None or not self.is_divided:
            return self
        if overall not in self._divided:
            found = replace(self.found, overall=np.array(overall))
            both = zip(self.local_problems, self.shares, strict=True)
            own = tuple(replace(local, f=share.own.objective(found)) for local, share in both)
            self._divided[overall] = replace(self, local_problems=own, found=found)
        return self._divided[overall]

    def chosen(self, number: int | None) -> "Instance":
        """The same network with one value of a path, by its number from the largest on; None for the largest."""
        if number is None or not self.topology.problem.is_path:
            return self
        if number not in self._chosen:
            found = replace(self.found, chosen=np.array(float(number)))
            g = share_of_regularizer(self.topology, mu=weight_of(self.topology, found))
            own = tuple(replace(local, g=g) for local in self.local_problems)
            self._chosen[number] = replace(self, local_problems=own, found=found)
        return self._chosen[number]

    @cached_property
    def _chosen(self) -> dict[int, "Instance"]:
        return {}

    @cached_property
    def _divided(self) -> dict[float, "Instance"]:
        return {}

    @property
    def is_divided(self) -> bool:
        """Whether the agents divide all samples by something that they find."""
        return getattr(self.topology.problem.data, "overall", None) == "auto"

    def solve_reference(self) -> reference.Reference:
        """The centralised X*, from the same start; it is solved once."""
        return self._reference

    @cached_property
    def _reference(self) -> reference.Reference:
        return reference.solve(self.pooled, self.whole_regularizer, self.start, lipschitz=self.pooled.lipschitz())

    def aligned_distance(self, X: Matrix, X_star: Matrix) -> float:
        """||X - X*||_F after the best of the moves that the objective does not notice."""
        kind = REGULARIZERS.get(self.topology.problem.regularizer)
        is_seen = kind is not None and kind.sees_rotations
        return (signed_permutation_distance if is_seen else rotation_distance)(X, X_star)


def build(topology: Topology) -> Instance:
    """The whole network of a topology."""
    return assemble(topology, _data_of(topology, range(topology.d)))


def assemble(topology: Topology, data: Sequence[Moments | Incomplete | Objective]) -> Instance:
    """The whole network of agents that bring this, in order of id."""
    shares = [Share(topology, i, own) for i, own in enumerate(data)]
    found = pooled_findings(topology, shares)
    prepared = [share.prepare_main(found) for share in shares]
    pcas = [each.f for each in prepared if isinstance(each.f, SparsePCA)]
    if len(pcas) == len(shares) and all(f.variance() == 0 for f in pcas):
        raise DataFileError(NOTHING_LEFT)
    g = share_of_regularizer(topology, mu=weight_of(topology, found))
    locals_ = tuple(LocalProblem(i, share.own.objective(found), g) for i, share in enumerate(shares))
    return Instance(topology, locals_, prepared[0].start, tuple(shares), found)


def proven_parameters(instance: Instance) -> tuple[float, float]:
    """The least beta and, with it, the largest constant step for which Condition 1 proves convergence."""
    topology, whole = instance.topology, instance.whole
    d, n, p = topology.d, topology.problem.n, topology.problem.p
    lipschitz = max(local.f.lipschitz() for local in instance.local_problems if isinstance(local.f, SparsePCA))
    # In float64, overflow gives infinity where Python's own numbers would raise an error.
    constants = conditions.Constants(
        d=d,
        p=p,
        L_f=np.float64(lipschitz),
        L_g=np.float64(max(g.lipschitz(n, p) for _, g in whole.shares)),
        M_f=np.float64(lipschitz) * conditions.gradient_radius(d, p),  # the gradient is linear
        sigma=np.float64(instance.parameters.smoothing.sigma(topology.max_rounds)),
        lambda_=topology.graph.lambda_,
    )
    with np.errstate(over="ignore"):
        beta = conditions.beta_bound(constants)
        return float(beta), float(conditions.eta_bound(constants, beta))
