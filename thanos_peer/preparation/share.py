"""One agent's share of the work: its phases, and the main one of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from thanos_peer.algorithm.method import Preparation, Setup
from thanos_peer.algorithm.methods import METHODS, MIXING, SUMMING
from thanos_peer.algorithm.objectives import Objective, SparsePCA
from thanos_peer.algorithm.path import Path
from thanos_peer.algorithm.polynomial import distinct_eigenvalues
from thanos_peer.algorithm.pooling import Pooled
from thanos_peer.algorithm.regularizers import Regularizer, Zero
from thanos_peer.algorithm.ritz import leading_of
from thanos_peer.algorithm.traits import Traits
from thanos_peer.block import AgentId, Matrix
from thanos_peer.phases import Found, Masking, Mixing, Phase, Plan, Pooling, run_sums
from thanos_peer.preparation.own import Own, weight_of, weights_of
from thanos_peer.preparation.scaling import Besides, Scaling
from thanos_peer.preparation.start import Start
from thanos_peer.preparation.verdict import Verdict
from thanos_peer.preparation.weights import Weights
from thanos_peer.rules import parameters_of, regularizer_of, restart_of, seed_of, share_of_regularizer, start_of
from thanos_peer.samples import Incomplete, Moments
from thanos_peer.topology import Topology
from thanos_peer.topology.prediction import passes_of
from thanos_peer.topology.sections import DestinyStart, LeadingStart

SCALED = 'problem.data.overall = "auto" for files, or take method = "auto", which cannot diverge'
SHORTER = f"try a smaller step (algorithm.step), a larger sigma, {SCALED}"


class Share:
    """One agent's share of the work.

    Args:
        topology: What all agree on.
        agent: Which agent.
        data: What its samples amount to, of which values may be missing; or its objective, where nothing is to be
            done to it.
        g: Its regularizer; None for its share of the one in the topology.
    """

    def __init__(
        self,
        topology: Topology,
        agent: AgentId,
        data: Moments | Incomplete | Objective,
        g: Regularizer | None = None,
    ) -> None:
        self.own = Own(topology, agent, data)
        self._topology, self._shape = topology, self.own.shape
        self._g = share_of_regularizer(topology) if g is None else g

    @property
    def samples(self) -> str:
        """The digest of its samples; empty where they follow from the topology."""
        return getattr(self.own.data, "digest", "")

    @property
    def count(self) -> int | None:
        """How many samples it has; None where they follow from the topology."""
        count: int | None = getattr(self.own.data, "count", None)
        return count

    def plan(self) -> Plan:
        """Its phases, in order."""
        preparation = MIXING[self._topology.method].preparation if self._method.mixes else None
        besides = None
        if preparation is not None and self._agrees_at_once:
            besides = Besides(preparation, self.prepare_main)
        before = Scaling(self.own, besides).phases()
        if not self.finds_start_itself:
            before += Start(self.own).phases()
        before += Weights(self.own).phases()
        if preparation is not None and besides is None:
            before.append(self._agreement_phase(preparation))
        main = self._main_phase()
        return self._with_masks(Plan((*before, main, *Verdict(self.own).phases()), len(before)))

    def _with_masks(self, plan: Plan) -> Plan:
        """The same, with the phase that agrees on masks right before the first one that sums, if they are wanted.

        Not before one that mixes: a run that begins with the main phase can go on from any X in a later epoch.
        """
        topology, phases = self._topology, plan.phases
        at = next((number for number, phase in enumerate(phases) if phase.name not in plan.mixing), None)
        if at is None or not topology.masks_sums:
            return plan
        masking = Masking(agent=self.own.agent, graph=topology.graph, run=topology.digest)
        return Plan((*phases[:at], masking, *phases[at:]), plan.main + (at <= plan.main))

    @property
    def finds_start_itself(self) -> bool:
        """Whether the leading vectors are wanted, and follow from what the method sums anyway.

        Where the network finds the values of mu, they are wanted before.
        """
        is_in_time = bool(self._topology.problem.weights)
        is_wanted = isinstance(self._topology.algorithm.start, LeadingStart)
        return self._method.finds_start and is_wanted and is_in_time

    @property
    def _agrees_at_once(self) -> bool:
        """Whether no phase finds its start, or divides its samples: then one sum finds the size and the rest."""
        topology = self._topology
        is_divided = getattr(topology.problem.data, "overall", None) == "auto"
        return not is_divided and not isinstance(topology.algorithm.start, LeadingStart | DestinyStart)

    @property
    def _method(self) -> type[Traits]:
        """What differs with the method."""
        return METHODS[self._topology.method]

    def _agreement_phase(self, preparation: type[Preparation]) -> Pooling:
        return Pooling(
            "agreement",
            agent=self.own.agent,
            graph=self._topology.graph,
            layout=preparation.layout(*self._shape, self.own.d),
            prepare=lambda found: preparation(self.prepare_main(found)),
            conclude=lambda found, word: replace(found, agreed=word),
        )

    def _main_phase(self) -> Phase:
        return self._mixing_phase() if self._method.mixes else self._summing_phase()

    def _summing_phase(self) -> Pooling:
        topology, problem, method = self._topology, self._topology.problem, SUMMING[self._topology.method]
        allowed = topology.max_rounds // topology.graph.tree.rounds
        most = method.most(allowed, *self._shape, topology.algorithm.restarts)
        return Pooling(
            topology.method,
            agent=self.own.agent,
            graph=topology.graph,
            layout=Path.layout(method, problem.weight_count, *self._shape)
            if problem.is_path
            else method.layout(*self._shape, is_pca=self.own.is_pca),
            most=min(allowed, passes_of(problem) * most),
            has_tolerance=True,
            prepare=self._solving,
            conclude=self._find_pooled,
            answer=self._pooled_answer,
        )

    def _solving(self, found: Found) -> Pooled:
        """The method, or a path of several."""
        method, setup = SUMMING[self._topology.method], self.prepare_main(found)
        if not self._topology.problem.is_path:
            return method.make(setup)
        return Path(method, setup, [self._weighted(mu) for mu in weights_of(self._topology, found)])

    def _weighted(self, mu: float) -> Regularizer:
        return regularizer_of(self._topology, mu=mu)

    def _words(self, word: Matrix) -> list[Matrix]:
        """That of each search of the main phase."""
        problem = self._topology.problem
        return Path.words(word, problem.weight_count, *self._shape) if problem.is_path else [word]

    def _mixing_phase(self) -> Mixing:
        return Mixing(
            self._topology.method,
            agent=self.own.agent,
            graph=self._topology.graph,
            shape=self._shape,
            most=self._topology.max_rounds,
            tolerance=self._topology.tolerance,
            method=MIXING[self._topology.method].make,
            prepare=self.prepare_main,
            conclude=_keep_result,
            advice=SHORTER if "step" in self._method.settings else f"try {SCALED}",
            itemsize=self._topology.itemsize,
        )

    def prepare_main(self, found: Found) -> Setup:
        """What is minimised, by which rules, and from where."""
        topology = self._topology
        size, start = self.own.in_units(found, found.size), self.own.start(found)
        f = self.own.objective(found)
        # Code that the verdict needs shall fail now, or not at all.
        if topology.problem.own_code():
            f.value(start)
            self._g.value(start)
        return Setup(
            f=f,
            g=self._g,
            whole=self._weighted(weight_of(topology, found)),
            d=self.own.d,
            start=start,
            parameters=lambda: parameters_of(topology, size),
            size=size if self.own.is_pca else None,
            lipschitz=0.0 if self.own.is_pca else size or 0.0,
            measure=self._measure(found),
            bound=self.own.in_units(found, found.total),
            tolerance=topology.tolerance,
            most=topology.max_rounds // topology.graph.tree.rounds,
            finds_start=self.finds_start_itself,
            agreed=found.agreed,
            spectrum=lambda: distinct_eigenvalues(topology.graph.matrix()),
            diameter=topology.graph.diameter,
            restarts=topology.algorithm.restarts,
            restart=lambda number: restart_of(topology, number),
            mixings=topology.algorithm.mixings,
            agents=(self.own.agent,),
            samples=self.own.kept(found) if self._method.needs_samples else (),
            seed=seed_of(topology),
            divides=getattr(topology.problem.data, "overall", None) == "auto" and found.overall is None,
        )

    def _measure(self, found: Found) -> float:
        """What a gradient is compared with: the smallest eigenvalue that matters, where it is known, and mu.

        Trailing eigenvalues may be tiny beside the first: a gradient that is small beside that one says nothing of
        their vectors.
        """
        if found.values is None:
            return 1.0
        smallest = max(float(found.values[-1]), 1e-12 * float(found.values[0]))
        return (self.own.in_units(found, np.asarray(smallest)) or 1.0) + weight_of(self._topology, found)

    def _pooled_answer(self, found: Found, word: Matrix | None) -> tuple[Matrix, Matrix]:
        method = SUMMING[self._topology.method]
        if word is None:
            start = self.own.start(found)
            return start, start
        return method.answer(self._words(word)[0], *self._shape)

    def _find_pooled(self, found: Found, word: Matrix) -> Found:
        method, words = SUMMING[self._topology.method].make(self.prepare_main(found)), self._words(word)
        if len(words) > 1:
            path = [method.answer(each, *self._shape)[1] for each in words]
            found = replace(found, path=np.array(path), marks=np.array([each[0] for each in words]))
        word = words[0]
        X, sparse = method.answer(word, *self._shape)
        residual = np.asarray(method.residual(word))
        starts = method.starts(word)
        found = replace(found, X=X, sparse=sparse, common=X, residual=residual, starts=starts, final={})
        if self._method.finds_start:
            size = method.size(word) * (1.0 if found.overall is None else found.overall**2)
            found = replace(found, size=size, spectrum=self._spectrum(found, method.spectrum(word)))
            if found.overall is None:
                found = self.own.divided(found, size)
        return found

    @staticmethod
    def _spectrum(found: Found, values: Matrix) -> Matrix:
        """In the unit of the samples themselves."""
        return values * (1.0 if found.overall is None else found.overall**2)


def pooled_findings(topology: Topology, shares: Sequence[Share]) -> Found:
    """What the phases before the main one would find, computed from all agents' samples: to compare with."""
    found = Found()
    plans = [share.plan() for share in shares]
    for phases in zip(*(plan.phases[: plan.main] for plan in plans), strict=True):
        found = phases[0].together(phases, _Pooled(topology, shares, found))
    if shares[0].finds_start_itself:
        gram = SparsePCA.pooled([share.own.pca(found) for share in shares]).whole_gram()
        start, values = leading_of(gram, start_of(topology))
        found = shares[0].own.divided(replace(found, start=start, values=values, size=values[0]), values[0])
    return found


class _Pooled:
    """What a phase finds, from all agents' samples: one that mixes is for the leading vectors of all of them."""

    def __init__(self, topology: Topology, shares: Sequence[Share], found: Found) -> None:
        self._topology, self._shares, self._found = topology, shares, found

    def summing(self, phases: Sequence[Pooling]) -> Found:
        """The sums themselves."""
        return run_sums(phases, self._found)

    def masking(self, phases: Sequence[Masking]) -> Found:
        """Nothing: masks do not change a sum."""
        return phases[0].concluded(self._found)

    def mixing(self, phases: Sequence[Mixing]) -> Found:  # noqa: ARG002
        """What its rounds come near to."""
        pooled = SparsePCA.pooled([share.own.pca(self._found) for share in self._shares])
        return replace(self._found, start=pooled.leading(self._topology.problem.p))


def outline(topology: Topology) -> Plan:
    """The phases of any agent, without its data: to see their names and rounds."""
    return Share(topology, 0, SparsePCA(None), Zero()).plan()


def _keep_result(found: Found, arrays: Mapping[str, Matrix], answer: tuple[Matrix, Matrix]) -> Found:
    X, sparse = answer
    return replace(found, final=dict(arrays), X=X, sparse=sparse)
