"""SLPG, as the reference solver has it (reference.py), but for every iterate made orthonormal.

The step is the reference solver's first one: 1 divided by the larger of the Lipschitz constants of f's gradient
and of g. It is shorter where f is not sparse PCA and its gradient at the start is larger than that.

Tested are one iteration against its formulas written again, and that it ends at a stationary point, by the
multipliers there, with no better feasible point near by. The number of iterations that its paper proves is not.
"""

from collections.abc import Iterator

from thanos_peer.algorithm import reference
from thanos_peer.algorithm.central.curvature import gradient_size
from thanos_peer.algorithm.objectives import Objective
from thanos_peer.algorithm.regularizers import Regularizer
from thanos_peer.algorithm.stiefel import polar
from thanos_peer.block import Matrix


def iterates(f: Objective, g: Regularizer, X0: Matrix) -> Iterator[Matrix]:
    """The iterates of SLPG from X0, (n, p), without end."""
    scale = reference.scale_of(gradient_size(f, X0), g, X0)
    for X, _, _ in reference.slpg(f, g, X0, step=1 / scale):
        yield polar(X)
