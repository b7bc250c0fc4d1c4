"""What one agent brings to a run, and the phases that it goes through with it.

    mean, spread        the mean and the scale of all samples, where they are to be centered or scaled
    size                how large all samples are together, where something is to follow from it
    subspace, rotation  the leading singular vectors of all samples, to start from
    thanos (destiny)    the rounds that minimise
    consensus           the X that the agents have come to, as one
    verdict             what that X is worth: the objective, the variance explained, the epsilon certified

Only those that a topology needs. None of them has a coordinator: averages come from mixing, as everything else.
"""

from collections.abc import Sequence

import numpy as np

from thanos_peer.algorithm.averaging import rounding, rounds_needed
from thanos_peer.algorithm.measures import Stationarity
from thanos_peer.algorithm.objectives import Objective, SparsePCA
from thanos_peer.algorithm.regularizers import Regularizer, Zero, envelope_gradient
from thanos_peer.algorithm.ritz import leading_vectors, top_left
from thanos_peer.algorithm.schedules import ConstantSmoothing, ConstantStep
from thanos_peer.algorithm.stiefel import orthonormal_basis, polar
from thanos_peer.algorithm.thanos import LocalProblem, Parameters
from thanos_peer.block import AgentId, Matrix
from thanos_peer.errors import DataFileError
from thanos_peer.phases import Averaging, Findings, Minimisation, Minimised, Minimising, Phase
from thanos_peer.rules import needs_size, parameters_of, share_of_regularizer, smoothing_of, start_of
from thanos_peer.samples import Moments, name_of
from thanos_peer.topology import Topology
from thanos_peer.topology.sections import DestinyStart, FileData

NOTHING_LEFT = (
    "all samples of all peers are nothing but zeros, once they are centered and scaled if they are to be: there "
    "is nothing to explain; check what the files hold"
)
CAREFUL = 1 / 8  # of the step that samples of norm 1 would allow a single agent
TIES = {"float64": 1e-10, "float32": 1e-5}  # eigenvalues that close may look equal to one agent only
MOST_GIVEN_AWAY = 2  # numbers that follow from their sum and their sum of squares


def tie_of(topology: Topology) -> float:
    """How close eigenvalues are that count as equal, relative to the largest: the same at all agents.

    What each agent has found of them differs by rounding, which grows with the rounds that it took to average.
    """
    exchange, graph = topology.algorithm.exchange, topology.graph
    rounding = float(np.finfo(exchange).eps) * rounds_needed(graph.lambda_, graph.d)
    return max(TIES[exchange], rounding)


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
    def _tells_sums(self) -> bool:
        """Whether there are phases in which neighbors are told its sums and sums of squares."""
        data = self._topology.problem.data
        return isinstance(data, FileData) and (data.center or data.scale)

    @property
    def samples_given_away(self) -> int:
        """How many samples can be computed from what neighbors are told: all of one or two, else none for sure."""
        count = self._data.count if self._tells_sums and isinstance(self._data, Moments) else 0
        return count if count <= MOST_GIVEN_AWAY else 0

    def plan(self) -> tuple[Phase, ...]:
        """Its phases, in order."""
        data, start, graph = self._topology.problem.data, self._topology.algorithm.start, self._topology.graph
        plan: list[Phase] = []
        if self._tells_sums:
            plan.append(Averaging("mean", graph, self._own_sums, self._find_mean))
            plan.append(Averaging("spread", graph, self._own_squares, self._find_spread))
        if needs_size(self._topology):
            plan.append(Averaging("size", graph, self._own_size, self._find_size))
        if isinstance(start, DestinyStart):
            plan.append(self._subspace_phase(start))
            plan.append(Averaging("rotation", graph, self._own_products, self._find_rotation))
        plan.append(self._main_phase())
        if isinstance(data, FileData):
            plan.append(Averaging("consensus", graph, self._own_result, self._find_consensus))
            plan.append(Averaging("verdict", graph, self._own_worth, self._find_verdict))
        return tuple(plan)

    def _subspace_phase(self, start: DestinyStart) -> Minimising:
        return Minimising(
            "subspace",
            d=self._d,
            most=start.max_rounds,
            tolerance=start.tolerance,
            prepare=self._prepare_subspace,
            conclude=lambda out: {"basis": out.state.X},
        )

    def _main_phase(self) -> Minimising:
        algorithm = self._topology.algorithm
        return Minimising(
            algorithm.method,
            d=self._d,
            most=algorithm.max_rounds,
            tolerance=algorithm.tolerance,
            prepare=self.prepare_main,
            conclude=_keep_result,
        )

    # ------------------------------------------------------------------ the samples, as far as they are prepared

    def objective(self, found: Findings) -> Objective:
        """f_i, of samples centered and scaled by what has been found so far."""
        if not isinstance(self._data, Moments):
            return self._data
        used = [np.asarray(found[name]).tobytes() for name in ("mean", "variance", "overall") if name in found]
        if self._made is None or self._made[0] != used:
            self._made = used, self._prepared(self._data, found)
        return self._made[1]

    def _prepared(self, moments: Moments, found: Findings) -> SparsePCA:
        data = self._topology.problem.data
        assert isinstance(data, FileData)  # noqa: S101 - moments come from files
        center = found["mean"] if data.center else None
        unit = np.sqrt(found["variance"]) if data.scale else None
        if "overall" in found:
            unit = float(found["overall"]) * (np.ones(self._shape[0]) if unit is None else unit)
        with np.errstate(over="ignore", invalid="ignore"):  # found where the first H is not finite
            spread = moments.about(center, unit)
        return SparsePCA(spread.A, spread.gram)

    def pca(self, found: Findings) -> SparsePCA:
        """The same, where it is sparse PCA."""
        objective = self.objective(found)
        assert isinstance(objective, SparsePCA), "checked when the file was loaded"  # noqa: S101
        return objective

    # ------------------------------------------------------------------ mean and spread

    def _moments(self) -> Moments:
        assert isinstance(self._data, Moments)  # noqa: S101 - these phases are there for files only
        return self._data

    def _own_sums(self, found: Findings) -> tuple[Matrix, Matrix]:  # noqa: ARG002
        moments = self._moments()
        return self._column(moments.count * moments.mean), self._column(np.full(self._shape[0], moments.count))

    def _find_mean(self, found: Findings, sums: Matrix, counts: Matrix) -> Findings:  # noqa: ARG002
        return {"mean": sums[:, 0] / counts[:, 0], "count": np.rint(self._d * counts[0, 0])}

    def _own_squares(self, found: Findings) -> tuple[Matrix, Matrix]:
        return self._column(self._moments().squares_about(found["mean"])), np.zeros(self._shape)

    def _find_spread(self, found: Findings, squares: Matrix, _: Matrix) -> Findings:
        variance = np.maximum(self._d * squares[:, 0] / found["count"], 0.0)
        data = self._topology.problem.data
        graph = self._topology.graph
        no_spread = rounding(graph.lambda_, graph.d)  # agents do not know the mean any better
        is_constant = np.sqrt(variance) <= no_spread * np.abs(found["mean"])
        if isinstance(data, FileData) and data.scale and is_constant.any():
            name = name_of(int(np.argmax(is_constant)), self._moments().features)
            raise DataFileError(
                f"{name} is the same in all samples of all peers, up to {no_spread:.0e} of its mean, and cannot "
                "be scaled: leave it out of every file, subtract the same number from it in every file if it does "
                "vary, or set problem.data.scale = false"
            )
        if isinstance(data, FileData) and data.center and is_constant.all():
            raise DataFileError(NOTHING_LEFT)
        return {"variance": variance}

    def _column(self, numbers: Matrix) -> Matrix:
        return top_left(numbers[:, None], self._shape)

    def _corner(self, number: float) -> Matrix:
        return top_left(np.array([[number]]), self._shape)

    # ------------------------------------------------------------------ size

    def _own_size(self, found: Findings) -> tuple[Matrix, Matrix]:
        f = self.pca(found)
        return self._corner(f.lipschitz()), self._corner(f.variance())

    def _find_size(self, found: Findings, bounds: Matrix, variances: Matrix) -> Findings:  # noqa: ARG002
        """The sum of all ||A_i||_2^2, a bound of ||A||_2^2, which a start by DESTINY replaces by the thing itself.

        Until then the samples are divided by its square root, where they are to be divided at all. Without such a
        start that would not do: the bound depends on who has which samples. ||A||_F^2 does not.
        """
        if not bounds[0, 0] > 0:
            raise DataFileError(NOTHING_LEFT)
        with np.errstate(over="ignore"):
            size, whole = self._d * bounds[0, 0], self._d * variances[0, 0]
        if not (np.isfinite(size) and np.isfinite(whole)):
            raise DataFileError("all samples together are too large for double precision: scale them down")
        finds_start = isinstance(self._topology.algorithm.start, DestinyStart)
        return {"size": size, **self._divisor(size if finds_start else whole)}

    def _divisor(self, square: Matrix) -> Findings:
        """What all samples are divided by, if the file says so."""
        is_divided = getattr(self._topology.problem.data, "overall", None) == "auto"
        return {"overall": np.sqrt(square)} if is_divided else {}

    @staticmethod
    def _size(found: Findings) -> float:
        """||A||_2^2 of the samples as they are minimised with, as far as it is known."""
        return float(found["size"]) / float(found.get("overall", 1.0)) ** 2

    # ------------------------------------------------------------------ the start

    def _prepare_subspace(self, found: Findings) -> Minimisation:
        """Problem (1) without g, with rules and a measure of gradients that suit samples of this size."""
        size = self._size(found)
        step = ConstantStep(
            CAREFUL * self._d / size
        )  # Barzilai-Borwein steps wander where shares are very unequal
        parameters = Parameters(size / self._d, step, ConstantSmoothing(1.0))
        local = LocalProblem(self._agent, self.objective(found), Zero())
        measure = 1.0 if "overall" in found else size  # divided by overall they have size 1, up to rounding
        return Minimisation(local, parameters, start_of(self._topology), measure)

    def _own_products(self, found: Findings) -> tuple[Matrix, Matrix]:
        return top_left(self.pca(found).captured(polar(found["basis"])), self._shape), np.zeros(self._shape)

    def _find_rotation(self, found: Findings, products: Matrix, _: Matrix) -> Findings:
        p = self._shape[1]
        start, values = leading_vectors(
            found["basis"], self._d * products[:p], start_of(self._topology), tie=tie_of(self._topology)
        )
        values = float(found.get("overall", 1.0)) ** 2 * values
        return {"start": start, "values": values, "size": values[0], **self._divisor(values[0])}

    # ------------------------------------------------------------------ minimising

    def prepare_main(self, found: Findings) -> Minimisation:
        """What is minimised, by which rules, and from where."""
        size = self._size(found) if "size" in found else None
        start = found["start"] if "start" in found else start_of(self._topology)
        f = self.objective(found)
        if self._topology.problem.own_code():  # what the verdict needs shall fail now, or not at all
            f.value(start)
            self._g.value(start)
        return Minimisation(LocalProblem(self._agent, f, self._g), parameters_of(self._topology, size), start)

    # ------------------------------------------------------------------ the verdict

    def _own_result(self, found: Findings) -> tuple[Matrix, Matrix]:
        """X, and of PCA ||A_i||_F^2."""
        f = self.objective(found)
        variance = f.variance() if isinstance(f, SparsePCA) else 0.0
        return found["X"], self._corner(variance)

    def _find_consensus(self, found: Findings, X: Matrix, variances: Matrix) -> Findings:  # noqa: ARG002
        if self._topology.problem.objective is None and not variances[0, 0] > 0:
            raise DataFileError(NOTHING_LEFT)
        return {"common": X, "total": variances[0, 0]}

    def _common_sparse(self, found: Findings) -> tuple[Matrix, float]:
        """What the prox makes of the common X, and its sigma."""
        sigma = smoothing_of(self._topology).sigma(int(found["rounds"]))
        return self._g.prox(found["common"], sigma), sigma

    def _own_worth(self, found: Findings) -> tuple[Matrix, Matrix]:
        """The gradient of f_i at the common X; beside it f_i of the nearest point of the manifold.

        Of PCA what each column captures there instead, and, below, what the sparse X captures, if there is room.
        """
        f, common, worth = self.objective(found), found["common"], np.zeros(self._shape)
        if isinstance(f, SparsePCA):
            worth[0] = np.diag(f.captured(polar(common)))
            if len(worth) > 1:
                worth[1, 0] = np.trace(f.captured(orthonormal_basis(self._common_sparse(found)[0])))
        else:
            worth[0, 0] = f.value(polar(common))
        return f.gradient(common), worth

    def _find_verdict(self, found: Findings, G: Matrix, worth: Matrix) -> Findings:
        common, (sparse, sigma) = found["common"], self._common_sparse(found)
        whole_gradient = self._d * (G + envelope_gradient(self._g, common, sigma))
        verdict: Findings = {}
        if self._topology.algorithm.exchange == "float64":  # rounded averages certify nothing
            verdict = {"epsilon": np.array(Stationarity.at(common, whole_gradient, [sparse]).epsilon)}
        f = worth[0, 0]
        if self._topology.problem.objective is None:
            f, total = -worth[0].sum() / 2, found["total"]
            by_sparse = worth[1, 0] if len(worth) > 1 else total * sparse.any()
            verdict = {**verdict, "explained": worth[0] / total, "sparse_explained": by_sparse / total}
        return {**verdict, "objective": np.array(self._d * (f + self._g.value(polar(common))))}


def pooled_findings(topology: Topology, shares: Sequence[Share]) -> Findings:
    """What the phases before the main one would find, for somebody who sees all agents: to compare with."""
    found: Findings = {}
    for phases in zip(*(share.plan() for share in shares), strict=True):
        if phases[0].name == topology.algorithm.method:
            break
        if isinstance(phases[0], Averaging):
            with np.errstate(over="ignore", invalid="ignore"):  # found by what follows from it
                own = [phase.own(found) for phase in phases if isinstance(phase, Averaging)]
                X, D = np.mean([X for X, _ in own], axis=0), np.mean([D for _, D in own], axis=0)
            found = {**found, **phases[0].conclude_from(found, X, D)}
        else:
            pooled = SparsePCA.pooled([share.pca(found) for share in shares])
            found = {**found, "basis": pooled.leading(topology.problem.p)}
    return found


def outline(topology: Topology) -> tuple[Phase, ...]:
    """The phases of any agent, without its data: to see their names and rounds."""
    return Share(topology, 0, SparsePCA(None), Zero()).plan()


def applied(topology: Topology, found: Findings) -> tuple[Matrix | None, Matrix | None]:
    """What was taken away from all samples, and what they were divided by then, by column; None for nothing."""
    data = topology.problem.data
    if not isinstance(data, FileData):
        return None, None
    return found["mean"] if data.center else None, np.sqrt(found["variance"]) if data.scale else None


def _keep_result(out: Minimised) -> Findings:
    state = out.state
    return {
        "X": state.X,
        "D": state.D,
        "H": state.H,
        "eta": np.array(state.eta),
        "rounds": np.array(float(out.rounds)),
        "sparse": out.sparse,
    }
