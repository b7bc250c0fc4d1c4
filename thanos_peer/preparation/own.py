"""What one agent has of its own: its samples, as far as the network has prepared them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from thanos_peer.algorithm.fixed_point import EXACT
from thanos_peer.algorithm.objectives import Objective, SparsePCA
from thanos_peer.algorithm.pooling import Layout, Pooled
from thanos_peer.block import AgentId, Matrix
from thanos_peer.phases import Found, Pooling
from thanos_peer.rules import start_of
from thanos_peer.samples import Incomplete, Moments
from thanos_peer.topology import Topology
from thanos_peer.topology.sections import FileData

NOTHING_LEFT = (
    "all samples of all peers are nothing but zeros, once they are centered and scaled if they are to be: there "
    "is nothing to explain; check what the files hold"
)


class Own:
    """One agent's data, and its sums over the network.

    Args:
        topology: What all agree on.
        agent: Which agent.
        data: What its samples amount to, of which values may be missing; or its objective, where nothing is to be
            done to it.
    """

    def __init__(self, topology: Topology, agent: AgentId, data: Moments | Incomplete | Objective) -> None:
        self.topology, self.agent, self.data = topology, agent, data
        self.d, self.shape = topology.d, (topology.problem.n, topology.problem.p)
        # The last f_i that was made, and what it was made from.
        self._made: tuple[list[bytes], Objective] | None = None
        # The last samples that were filled, and with what.
        self._filled: tuple[bytes, Moments] | None = None

    @property
    def is_pca(self) -> bool:
        """Whether the objective is sparse PCA."""
        return self.topology.problem.objective is None

    @property
    def fills(self) -> bool:
        """Whether a missing value becomes the mean of its feature over all agents."""
        return self.topology.problem.data.fills

    @property
    def tells_squares(self) -> bool:
        """Whether there is a phase in which neighbors are told its sums of squares."""
        data = self.topology.problem.data
        return isinstance(data, FileData) and (data.center or data.scale)

    def sum(
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
            agent=self.agent,
            graph=self.topology.graph,
            layout=Layout(EXACT.kind, count, words),
            prepare=prepare,
            conclude=conclude,
        )

    def objective(self, found: Found) -> Objective:
        """f_i, of samples centered and scaled by what has been found so far."""
        if not isinstance(self.data, Moments | Incomplete):
            return self.data
        used = [
            np.asarray(each).tobytes() for each in (found.mean, found.variance, found.overall) if each is not None
        ]
        if self._made is None or self._made[0] != used:
            self._made = used, self._prepared(self.moments(found), found)
        return self._made[1]

    def _prepared(self, moments: Moments, found: Found) -> SparsePCA:
        center, unit = applied(self.topology, found)
        if found.overall is not None:
            unit = float(found.overall) * (np.ones(self.shape[0]) if unit is None else unit)
        # An overflow is found when the first numbers are not finite.
        with np.errstate(over="ignore", invalid="ignore"):
            spread = moments.about(center, unit)
        return SparsePCA(spread.A, spread.gram)

    def pca(self, found: Found) -> SparsePCA:
        """The same, where it is sparse PCA."""
        objective = self.objective(found)
        assert isinstance(objective, SparsePCA), "checked when the file was loaded"  # noqa: S101
        return objective

    def kept(self, found: Found) -> tuple[Matrix]:
        """The samples themselves, (n, m_i), where a method needs them."""
        A = self.pca(found).A
        assert A is not None, "they are kept for such a method"  # noqa: S101
        return (A,)

    def start(self, found: Found) -> Matrix:
        """Where the main phase begins: as the network has found it, or as the file says."""
        return start_of(self.topology) if found.start is None else found.start

    def samples(self) -> Moments | Incomplete:
        """What its file amounts to."""
        assert isinstance(self.data, Moments | Incomplete)  # noqa: S101 - only files have these phases
        return self.data

    def moments(self, found: Found) -> Moments:
        """The same with missing values filled in, as soon as the network has found what with."""
        samples = self.samples()
        if isinstance(samples, Moments):
            return samples
        mean = known(found.mean)
        if self._filled is None or self._filled[0] != mean.tobytes():
            self._filled = mean.tobytes(), samples.filled(mean)
        return self._filled[1]

    def divided(self, found: Found, square: Matrix) -> Found:
        """What all samples are divided by, if the file says so."""
        is_divided = getattr(self.topology.problem.data, "overall", None) == "auto"
        return replace(found, overall=np.sqrt(square)) if is_divided else found

    @staticmethod
    def in_units(found: Found, number: Matrix | None) -> float | None:
        """A squared norm of the samples as they are minimised with, as far as it is known."""
        return (
            None
            if number is None
            else float(number) / (1.0 if found.overall is None else float(found.overall)) ** 2
        )


def weights_of(topology: Topology, found: Found) -> tuple[float, ...]:
    """All values of mu, from the largest on: those of the file, or those that the network has found."""
    return topology.problem.weights or tuple(map(float, known(found.mus)))


def weight_of(topology: Topology, found: Found) -> float:
    """The mu of the answer: of a path the chosen one, and before that the largest."""
    weights = weights_of(topology, found)
    return weights[0 if found.chosen is None else int(found.chosen)]


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
