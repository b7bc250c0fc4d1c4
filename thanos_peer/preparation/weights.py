"""The values of a path over mu, where the network is to find them."""

from dataclasses import replace

import numpy as np

from thanos_peer.algorithm.faults import range_fault
from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.algorithm.pooling import Pooled, Sum
from thanos_peer.algorithm.regularizers import NamedRegularizer
from thanos_peer.block import Matrix
from thanos_peer.phases import Found, Phase
from thanos_peer.preparation.own import Own, known
from thanos_peer.rules import regularizer_of

# The largest value divided by the smallest one.
SPAN = 50.0


class Weights:
    """Phase `weights`: the sum of squares of each feature, from which the largest useful mu follows."""

    def __init__(self, own: Own) -> None:
        self._own = own

    def phases(self) -> list[Phase]:
        """It alone, where the topology leaves the values to the network."""
        problem = self._own.topology.problem
        if problem.weights:
            return []
        return [self._own.sum("weights", problem.n, problem.weight_count, self._sum, self._find)]

    def _sum(self, found: Found) -> Pooled:
        squares = squares_of(self._own.pca(found))

        def decide(sums: Matrix) -> Matrix:
            count = self._own.topology.problem.weight_count
            return np.geomspace(most := self._largest(found, sums), most / SPAN, count)

        def fault(word: Matrix) -> str | None:
            total = self._own.in_units(found, known(found.total)) or 0.0
            least, most = (self._largest(found, each) for each in (squares, np.full_like(squares, total)))
            ratio = SPAN ** (1 / (len(word) - 1))
            spread = word[:-1] / np.maximum(word[1:], np.finfo(np.float64).tiny)
            return (
                range_fault("the largest mu", float(word[0]), least, most)
                or range_fault("the least ratio of two values of mu", float(spread.min()), ratio, ratio)
                or range_fault("the largest ratio of two values of mu", float(spread.max()), ratio, ratio)
            )

        return Sum(lambda: squares, decide, word_fault=fault)

    def _largest(self, found: Found, squares: Matrix) -> float:
        g, (_, p) = regularizer_of(self._own.topology, mu=1.0), self._own.shape
        assert isinstance(g, NamedRegularizer), "checked when the file was loaded"  # noqa: S101
        size = self._own.in_units(found, known(found.values)[0]) or 0.0
        return g.largest_useful(squares, size, p)

    def _find(self, found: Found, word: Matrix) -> Found:
        return replace(found, mus=word)


def squares_of(f: SparsePCA) -> Matrix:
    """The diagonal of AA', (n,)."""
    squares: Matrix = np.diag(f.whole_gram()).copy() if f.A is None else (f.A * f.A).sum(axis=1)
    return squares
