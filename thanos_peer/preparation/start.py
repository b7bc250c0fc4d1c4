"""Where the agents begin, if they have to find it: the leading singular vectors of all samples."""

from dataclasses import replace

from thanos_peer.algorithm.leading import Leading
from thanos_peer.algorithm.method import Setup
from thanos_peer.algorithm.regularizers import Zero
from thanos_peer.algorithm.rotation import Rotation
from thanos_peer.algorithm.schedules import ConstantSmoothing, ConstantStep, Parameters
from thanos_peer.algorithm.thanos import Destiny
from thanos_peer.block import Matrix
from thanos_peer.phases import Found, Mixing, Phase, Pooling
from thanos_peer.preparation.own import Own, known
from thanos_peer.rules import start_of
from thanos_peer.topology.sections import DestinyStart, LeadingStart

# Length of the step, relative to the one that samples of norm 1 would allow a single agent.
CAREFUL = 1 / 8


class Start:
    """Phase `leading`, or `subspace` and `rotation`."""

    def __init__(self, own: Own) -> None:
        self._own = own

    def phases(self) -> list[Phase]:
        """Those that the topology needs."""
        start = self._own.topology.algorithm.start
        if isinstance(start, LeadingStart):
            return [self._leading_phase()]
        if isinstance(start, DestinyStart):
            return [self._subspace_phase(start), self._rotation_phase()]
        return []

    def _leading_phase(self) -> Pooling:
        n, p = self._own.shape
        return Pooling(
            "leading",
            agent=self._own.agent,
            graph=self._own.topology.graph,
            layout=Leading.layout(n, p),
            most=Leading.most(n, p),
            prepare=self._leading,
            conclude=self._find_leading,
        )

    def _rotation_phase(self) -> Pooling:
        return Pooling(
            "rotation",
            agent=self._own.agent,
            graph=self._own.topology.graph,
            layout=Rotation.layout(*self._own.shape),
            most=2,
            prepare=self._rotation,
            conclude=self._find_rotation,
        )

    def _subspace_phase(self, start: DestinyStart) -> Mixing:
        return Mixing(
            "subspace",
            agent=self._own.agent,
            graph=self._own.topology.graph,
            shape=self._own.shape,
            most=start.max_rounds,
            tolerance=max(start.tolerance, self._own.topology.least_tolerance),
            method=Destiny.make,
            prepare=self._prepare_subspace,
            conclude=lambda found, arrays, _: replace(found, start=arrays["X"]),
            advice='take algorithm.start = { kind = "leading" }: exact sums, which cannot diverge',
            itemsize=self._own.topology.itemsize,
        )

    def _leading(self, found: Found) -> Leading:
        start = start_of(self._own.topology)
        return Leading(self._own.pca(found), start, float(known(found.total)), self._own.d)

    def _find_leading(self, found: Found, word: Matrix) -> Found:
        method = self._leading(found)
        values = method.values(word)
        return self._own.divided(
            replace(found, start=method.vectors(word), values=values, size=values[0]), values[0]
        )

    def _prepare_subspace(self, found: Found) -> Setup:
        """Problem (1) without g, with rules and a measure of gradients that suit samples of this size."""
        size = self._own.in_units(found, found.size) or 1.0
        # The step is constant, as Barzilai-Borwein steps wander where shares are unequal.
        step = ConstantStep(CAREFUL * self._own.d / size)
        return Setup(
            f=self._own.objective(found),
            g=Zero(),
            whole=Zero(),
            d=self._own.d,
            start=start_of(self._own.topology),
            parameters=lambda: Parameters(size / self._own.d, step, ConstantSmoothing(1.0)),
            measure=1.0 if found.overall is not None else size,
        )

    def _rotation(self, found: Found) -> Rotation:
        total = self._own.in_units(found, found.total) or 0.0
        return Rotation(self._own.pca(found), known(found.start), start_of(self._own.topology), total)

    def _find_rotation(self, found: Found, word: Matrix) -> Found:
        method, overall = self._rotation(found), 1.0 if found.overall is None else float(found.overall)
        values = overall**2 * method.values(word)
        return self._own.divided(
            replace(found, start=method.vectors(word), values=values, size=values[0]), values[0]
        )
