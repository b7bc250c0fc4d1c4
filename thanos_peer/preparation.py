"""What one agent brings to a run, and the phases that it goes through with it.

    mean, spread        the mean and the scale of all samples, where they are to be centered or scaled
    size                how large all samples are together, where something is to follow from it
    leading             the leading singular vectors of all samples, to start from;
    subspace, rotation  or the same by DESTINY
    the main phase      the rounds of the method
    consensus           the X that the agents have come to, as one, where the method leaves each its own
    verdict             what that X is worth: the objective, the variance explained, the residual certified

Only those that a topology needs. None of them has a coordinator: what is summed is summed over a tree.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from thanos_peer.algorithm.fixed_point import EXACT
from thanos_peer.algorithm.largest import Largest
from thanos_peer.algorithm.leading import Leading
from thanos_peer.algorithm.measures import certificate
from thanos_peer.algorithm.method import Setup
from thanos_peer.algorithm.methods import MIXING, SUMMING
from thanos_peer.algorithm.objectives import Objective, SparsePCA
from thanos_peer.algorithm.polynomial import distinct_eigenvalues
from thanos_peer.algorithm.pooling import Layout, Pooled, Sum
from thanos_peer.algorithm.proximal_tracking import Agreement
from thanos_peer.algorithm.regularizers import Regularizer, Zero
from thanos_peer.algorithm.ritz import TIE, leading_of, leading_vectors
from thanos_peer.algorithm.schedules import ConstantSmoothing, ConstantStep, Parameters
from thanos_peer.algorithm.stiefel import orthonormal_basis, polar
from thanos_peer.algorithm.thanos import Destiny
from thanos_peer.block import AgentId, Matrix
from thanos_peer.errors import DataFileError
from thanos_peer.phases import Found, Mixing, Phase, Plan, Pooling, run_sums
from thanos_peer.rules import (
    needs_size,
    parameters_of,
    regularizer_of,
    restart_of,
    share_of_regularizer,
    start_of,
)
from thanos_peer.samples import Moments, name_of
from thanos_peer.topology import Topology
from thanos_peer.topology.sections import DestinyStart, FileData, LeadingStart

NOTHING_LEFT = (
    "all samples of all peers are nothing but zeros, once they are centered and scaled if they are to be: there "
    "is nothing to explain; check what the files hold"
)
CAREFUL = 1 / 8  # of the step that samples of norm 1 would allow a single agent
NO_SPREAD = 16 * float(np.finfo(np.float64).eps)  # of its mean: no agent knows a constant any better
MOST_GIVEN_AWAY = 2  # numbers that follow from their sum and their sum of squares


class Share:
    """One agent's share of the work.

    Args:
        topology: What all agree on.
        agent: Which agent.
        data: What its samples amount to; or its objective, where nothing is to be done to it.
        g: Its regularizer; None for its share of the one in the topology.
    """

    def __init__(
        self, topology: Topology, agent: AgentId, data: Moments | Objective, g: Regularizer | None = None
    ) -> None:
        self._topology, self._agent, self._data = topology, agent, data
        self._d, self._shape = topology.d, (topology.problem.n, topology.problem.p)
        self._g = share_of_regularizer(topology) if g is None else g
        self._made: tuple[list[bytes], Objective] | None = None  # the last f_i, and what it was made with

    @property
    def samples(self) -> str:
        """The digest of its samples; empty where they follow from the topology."""
        return getattr(self._data, "digest", "")

    @property
    def _is_pca(self) -> bool:
        return self._topology.problem.objective is None

    @property
    def _tells_sums(self) -> bool:
        """Whether there are phases in which neighbors are told its sums and sums of squares."""
        data = self._topology.problem.data
        return isinstance(data, FileData) and (data.center or data.scale)

    @property
    def samples_given_away(self) -> int:
        """How many samples can be computed from what neighbors are told: all of one or two, else none for sure."""
        count = self._data.count if self._tells_sums and isinstance(self._data, Moments) else 0
        return count if count <= MOST_GIVEN_AWAY else 0

    # ------------------------------------------------------------------ the phases

    def plan(self) -> Plan:
        """Its phases, in order."""
        start, (n, p) = self._topology.algorithm.start, self._shape
        before: list[Phase] = []
        if self._tells_sums:
            before.append(self._sum("mean", n + 1, n + 1, self._mean_sum, _find_mean))
            before.append(self._sum("spread", n, n, self._spread_sum, self._find_spread))
        if needs_size(self._topology):
            before.append(self._sum("size", 2, 2, self._size_sum, self._find_size))
        if isinstance(start, LeadingStart) and not self.method_finds_start:
            before.append(self._leading_phase())
        if isinstance(start, DestinyStart):
            before.append(self._subspace_phase(start))
            before.append(self._sum("rotation", p * p, p + n * p, self._rotation_sum, self._find_rotation))
        if (preparation := getattr(MIXING.get(self._topology.method), "preparation", None)) is not None:
            before.append(self._agreement_phase(preparation))
        return Plan((*before, self._main_phase(), *self._phases_after()), len(before))

    @property
    def method_finds_start(self) -> bool:
        """Whether the leading vectors follow from what the method sums anyway."""
        return getattr(SUMMING.get(self._topology.method), "finds_start", False)

    def _phases_after(self) -> list[Phase]:
        if not isinstance(self._topology.problem.data, FileData):
            return []
        (n, p), after = self._shape, list[Phase]()
        if self._topology.method in MIXING:
            after.append(self._sum("consensus", 2 * n * p, 2 * n * p, self._consensus_sum, self._find_consensus))
        count = n * p + p + 2
        after.append(self._sum("verdict", count, count, self._verdict_sum, self._find_verdict))
        return after

    def _sum(
        self,
        name: str,
        count: int,
        words: int,
        prepare: Callable[[Found], Pooled],
        conclude: Callable[[Found, Matrix], Found],
    ) -> Pooling:
        """A phase of one sum of so many numbers, and a word of so many."""
        return Pooling(
            name,
            agent=self._agent,
            graph=self._topology.graph,
            layout=Layout(EXACT.kind, count, words),
            prepare=prepare,
            conclude=conclude,
        )

    def _agreement_phase(self, preparation: type[Agreement] | type[Largest]) -> Pooling:
        return Pooling(
            "agreement",
            agent=self._agent,
            graph=self._topology.graph,
            layout=preparation.layout(*self._shape, self._d),
            prepare=lambda found: preparation(self.prepare_main(found)),
            conclude=lambda found, word: replace(found, agreed=word),
        )

    def _leading_phase(self) -> Pooling:
        n, p = self._shape
        return Pooling(
            "leading",
            agent=self._agent,
            graph=self._topology.graph,
            layout=Leading.layout(n, p),
            most=Leading.most(n, p),
            prepare=self._leading,
            conclude=self._find_leading,
        )

    def _subspace_phase(self, start: DestinyStart) -> Mixing:
        return Mixing(
            "subspace",
            agent=self._agent,
            graph=self._topology.graph,
            shape=self._shape,
            most=start.max_rounds,
            tolerance=max(start.tolerance, self._topology.least_tolerance),
            method=Destiny.make,
            prepare=self._prepare_subspace,
            conclude=lambda found, arrays, _: replace(found, start=arrays["X"]),
            itemsize=self._topology.itemsize,
        )

    def _main_phase(self) -> Phase:
        name = self._topology.method
        if name in SUMMING:
            method = SUMMING[name]
            return Pooling(
                name,
                agent=self._agent,
                graph=self._topology.graph,
                layout=method.layout(*self._shape, is_pca=self._is_pca),
                most=max(1, self._topology.max_rounds // self._topology.graph.tree.rounds),
                has_tolerance=True,
                prepare=lambda found: method.make(self.prepare_main(found)),
                conclude=self._find_pooled,
                answer=self._pooled_answer,
            )
        return Mixing(
            name,
            agent=self._agent,
            graph=self._topology.graph,
            shape=self._shape,
            most=self._topology.max_rounds,
            tolerance=self._topology.tolerance,
            method=MIXING[name].make,
            prepare=self.prepare_main,
            conclude=_keep_result,
            itemsize=self._topology.itemsize,
        )

    # ------------------------------------------------------------------ the samples, as far as they are prepared

    def objective(self, found: Found) -> Objective:
        """f_i, of samples centered and scaled by what has been found so far."""
        if not isinstance(self._data, Moments):
            return self._data
        used = [
            np.asarray(each).tobytes() for each in (found.mean, found.variance, found.overall) if each is not None
        ]
        if self._made is None or self._made[0] != used:
            self._made = used, self._prepared(self._data, found)
        return self._made[1]

    def _prepared(self, moments: Moments, found: Found) -> SparsePCA:
        center, unit = applied(self._topology, found)
        if found.overall is not None:
            unit = float(found.overall) * (np.ones(self._shape[0]) if unit is None else unit)
        with np.errstate(over="ignore", invalid="ignore"):  # found where the first numbers are not finite
            spread = moments.about(center, unit)
        return SparsePCA(spread.A, spread.gram)

    def pca(self, found: Found) -> SparsePCA:
        """The same, where it is sparse PCA."""
        objective = self.objective(found)
        assert isinstance(objective, SparsePCA), "checked when the file was loaded"  # noqa: S101
        return objective

    # ------------------------------------------------------------------ mean and spread

    def _moments(self) -> Moments:
        assert isinstance(self._data, Moments)  # noqa: S101 - these phases are there for files only
        return self._data

    def _mean_sum(self, found: Found) -> Pooled:  # noqa: ARG002
        """The count, and the sum of each feature; the root divides."""
        moments = self._moments()
        return Sum(
            lambda: np.concatenate([[moments.count], moments.count * moments.mean]),
            lambda sums: np.concatenate([sums[:1], sums[1:] / sums[0]]),
        )

    def _spread_sum(self, found: Found) -> Pooled:
        return Sum(lambda: self._moments().squares_about(found.mean))

    def _find_spread(self, found: Found, squares: Matrix) -> Found:
        variance = np.maximum(squares / known(found.count), 0.0)
        data = self._topology.problem.data
        is_constant = np.sqrt(variance) <= NO_SPREAD * np.abs(known(found.mean))
        if isinstance(data, FileData) and data.scale and is_constant.any():
            name = name_of(int(np.argmax(is_constant)), self._moments().features)
            raise DataFileError(
                f"{name} is the same in all samples of all peers, up to {NO_SPREAD:.0e} of its mean, and cannot "
                "be scaled: leave it out of every file, subtract the same number from it in every file if it does "
                "vary, or set problem.data.scale = false"
            )
        if isinstance(data, FileData) and data.center and is_constant.all():
            raise DataFileError(NOTHING_LEFT)
        return replace(found, variance=variance)

    # ------------------------------------------------------------------ size

    def _size_sum(self, found: Found) -> Pooled:
        f = self.pca(found)
        return Sum(lambda: np.array([f.lipschitz(), f.variance()]))

    def _find_size(self, found: Found, sums: Matrix) -> Found:
        """The sum of all ||A_i||_2^2, a bound of ||A||_2^2, which the leading vectors replace by the thing itself.

        ||A||_F^2 does not depend on who has which samples, so that is what they are divided by where the leading
        vectors are not looked for. Before a search by DESTINY they are divided by the bound.
        """
        size, total = sums
        if not size > 0:
            raise DataFileError(NOTHING_LEFT)
        if not (np.isfinite(size) and np.isfinite(total)):
            raise DataFileError("all samples together are too large for double precision: scale them down")
        found, start = replace(found, size=size, total=total), self._topology.algorithm.start
        if isinstance(start, LeadingStart):
            return found
        return self.divided(found, size if isinstance(start, DestinyStart) else total)

    def divided(self, found: Found, square: Matrix) -> Found:
        """What all samples are divided by, if the file says so."""
        is_divided = getattr(self._topology.problem.data, "overall", None) == "auto"
        return replace(found, overall=np.sqrt(square)) if is_divided else found

    @staticmethod
    def _in_units(found: Found, number: Matrix | None) -> float | None:
        """A squared norm of the samples as they are minimised with, as far as it is known."""
        return (
            None
            if number is None
            else float(number) / (1.0 if found.overall is None else float(found.overall)) ** 2
        )

    # ------------------------------------------------------------------ the start

    def _leading(self, found: Found) -> Leading:
        start = start_of(self._topology)
        return Leading(self.pca(found), start, float(known(found.total)), self._d)

    def _find_leading(self, found: Found, word: Matrix) -> Found:
        method = self._leading(found)
        values = method.values(word)
        return self.divided(replace(found, start=method.vectors(word), values=values, size=values[0]), values[0])

    def _prepare_subspace(self, found: Found) -> Setup:
        """Problem (1) without g, with rules and a measure of gradients that suit samples of this size."""
        size = self._in_units(found, found.size) or 1.0
        step = ConstantStep(CAREFUL * self._d / size)  # Barzilai-Borwein steps wander where shares are unequal
        return Setup(
            f=self.objective(found),
            g=Zero(),
            whole=Zero(),
            d=self._d,
            start=start_of(self._topology),
            parameters=lambda: Parameters(size / self._d, step, ConstantSmoothing(1.0)),
            measure=1.0 if found.overall is not None else size,
        )

    def _rotation_sum(self, found: Found) -> Pooled:
        basis = polar(known(found.start))
        p = self._shape[1]

        def decide(sums: Matrix) -> Matrix:
            vectors, values = leading_vectors(basis, sums.reshape(p, p), start_of(self._topology), tie=TIE)
            return np.concatenate([values, vectors.ravel()])

        return Sum(lambda: self.pca(found).captured(basis).ravel(), decide)

    def _find_rotation(self, found: Found, word: Matrix) -> Found:
        p = self._shape[1]
        overall = 1.0 if found.overall is None else float(found.overall)
        values = overall**2 * word[:p]
        start = word[p:].reshape(self._shape)
        return self.divided(replace(found, start=start, values=values, size=values[0]), values[0])

    # ------------------------------------------------------------------ minimising

    def prepare_main(self, found: Found) -> Setup:
        """What is minimised, by which rules, and from where."""
        topology = self._topology
        size = self._in_units(found, found.size)
        start = start_of(topology) if found.start is None else found.start
        f = self.objective(found)
        if topology.problem.own_code():  # what the verdict needs shall fail now, or not at all
            f.value(start)
            self._g.value(start)
        return Setup(
            f=f,
            g=self._g,
            whole=regularizer_of(topology, mu=topology.problem.mu or 0.0),
            d=self._d,
            start=start,
            parameters=lambda: parameters_of(topology, size),
            size=size,
            measure=self._measure(found),
            bound=self._in_units(found, found.total),
            tolerance=topology.tolerance,
            most=max(1, topology.max_rounds // topology.graph.tree.rounds),
            finds_start=self.method_finds_start and isinstance(topology.algorithm.start, LeadingStart),
            agreed=found.agreed,
            spectrum=lambda: distinct_eigenvalues(topology.graph.matrix()),
            diameter=topology.graph.diameter,
            restarts=topology.algorithm.restarts,
            restart=lambda number: restart_of(topology, number),
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
        return (self._in_units(found, np.asarray(smallest)) or 1.0) + (self._topology.problem.mu or 0.0)

    def _pooled_answer(self, found: Found, word: Matrix | None) -> tuple[Matrix, Matrix]:
        method = SUMMING[self._topology.method]
        if word is None:
            start = start_of(self._topology) if found.start is None else found.start
            return start, start
        return method.answer(word, *self._shape)

    def _find_pooled(self, found: Found, word: Matrix) -> Found:
        method = SUMMING[self._topology.method].make(self.prepare_main(found))
        X, sparse = method.answer(word, *self._shape)
        final = {"residual": np.asarray(method.residual(word))}
        found = replace(found, X=X, sparse=sparse, common=X, final=final)
        if self.method_finds_start:
            size = method.size(word) * (1.0 if found.overall is None else found.overall**2)
            found = replace(found, size=size)
            if found.overall is None:
                found = self.divided(found, size)
        return found

    # ------------------------------------------------------------------ the verdict

    def _consensus_sum(self, found: Found) -> Pooled:
        """X and its sparse form: the mean is zero where all are."""
        return Sum(
            lambda: np.concatenate([known(found.X).ravel(), known(found.sparse).ravel()]),
            lambda sums: sums / self._d,
        )

    def _find_consensus(self, found: Found, word: Matrix) -> Found:
        common, sparse = word.reshape(2, *self._shape)
        return replace(found, common=common, common_sparse=sparse)

    def _common_sparse(self, found: Found) -> Matrix:
        """The answer with exact zeros, as one."""
        return known(found.sparse if found.common_sparse is None else found.common_sparse)

    def _verdict_sum(self, found: Found) -> Pooled:
        """At the nearest point of the manifold: the gradient of f_i; f_i or, of PCA, what each column captures.

        Of PCA also ||A_i||_F^2, and what the sparse X captures.
        """
        f, nearest = self.objective(found), self._nearest(found)

        def numbers() -> Matrix:
            worth = np.zeros(self._shape[1] + 2)
            if isinstance(f, SparsePCA):
                worth[:-2] = np.diag(f.captured(nearest))
                worth[-2:] = f.variance(), np.trace(f.captured(orthonormal_basis(self._common_sparse(found))))
            else:
                worth[0] = f.value(nearest)
            return np.concatenate([f.gradient(nearest).ravel(), worth])

        return Sum(numbers)

    def _nearest(self, found: Found) -> Matrix:
        """The common X on the manifold: as it is where the method keeps it there."""
        return known(found.common) if self._topology.method in SUMMING else polar(known(found.common))

    def _find_verdict(self, found: Found, sums: Matrix) -> Found:
        n, p = self._shape
        G, worth = sums[: n * p].reshape(n, p), sums[n * p :]
        nearest, whole = self._nearest(found), regularizer_of(self._topology, mu=self._topology.problem.mu or 0.0)
        residual = certificate(nearest, G, whole, self._in_units(found, found.size) or 1.0).relative
        found = replace(found, residual=np.asarray(residual))
        f = worth[0]
        if self._is_pca:
            captured, total, by_sparse = worth[:-2], worth[-2], worth[-1]
            if not total > 0:
                raise DataFileError(NOTHING_LEFT)
            f = -captured.sum() / 2
            found = replace(found, explained=captured / total, sparse_explained=by_sparse / total)
        return replace(found, objective=np.asarray(f + whole.value(nearest)))


def pooled_findings(topology: Topology, shares: Sequence[Share]) -> Found:
    """What the phases before the main one would find, for somebody who sees all agents: to compare with."""
    found = Found()
    plans = [share.plan() for share in shares]
    for phases in zip(*(plan.phases[: plan.main] for plan in plans), strict=True):
        sums = [phase for phase in phases if isinstance(phase, Pooling)]
        if sums:
            found = run_sums(sums, found)
        else:
            pooled = SparsePCA.pooled([share.pca(found) for share in shares])
            found = replace(found, start=pooled.leading(topology.problem.p))
    if shares[0].method_finds_start and isinstance(topology.algorithm.start, LeadingStart):
        gram = SparsePCA.pooled([share.pca(found) for share in shares]).whole_gram()
        start, values = leading_of(gram, start_of(topology))
        found = shares[0].divided(replace(found, start=start, values=values, size=values[0]), values[0])
    return found


def outline(topology: Topology) -> Plan:
    """The phases of any agent, without its data: to see their names and rounds."""
    return Share(topology, 0, SparsePCA(None), Zero()).plan()


def applied(topology: Topology, found: Found) -> tuple[Matrix | None, Matrix | None]:
    """What was taken away from all samples, and what they were divided by then, by column; None for nothing."""
    data = topology.problem.data
    if not isinstance(data, FileData):
        return None, None
    return found.mean if data.center else None, np.sqrt(known(found.variance)) if data.scale else None


def known(found: Matrix | None) -> Matrix:
    """What an earlier phase has found."""
    assert found is not None, "the phase that finds it comes before"  # noqa: S101
    return found


def _find_mean(found: Found, word: Matrix) -> Found:
    return replace(found, count=word[0], mean=word[1:])


def _keep_result(found: Found, arrays: Mapping[str, Matrix], answer: tuple[Matrix, Matrix]) -> Found:
    X, sparse = answer
    return replace(found, final=dict(arrays), X=X, sparse=sparse)
