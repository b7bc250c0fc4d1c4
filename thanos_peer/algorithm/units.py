"""What residuals are relative to: a size of the problem, so that nothing depends on the unit of f + g.

For sparse PCA that is ||A||_2^2, the Lipschitz constant of the gradient of f. Of another f no such constant is
known: then it is the larger one of two gradients, at the start and at the answer. For a steep g it is the slope of
g: its subgradients are as large, and rounding leaves a part of that in their sum with the gradient.
"""

from thanos_peer.algorithm.regularizers import Regularizer, slope
from thanos_peer.algorithm.stiefel import norm
from thanos_peer.block import Matrix


def scale(size: float, g: Regularizer, n: int, p: int) -> float:
    """What a residual is divided by.

    Args:
        size: ||A||_2^2, or the unit of another f.
        g: The whole regularizer.
        n: Rows of X.
        p: Its columns.
    """
    return max(size, slope(g, n, p)) or 1.0


def unit_of(first: float, G: Matrix) -> float:
    """The unit of an f that is not PCA, from ||G||_F at the start and G, (n, p), at the answer."""
    return max(first, float(norm(G)))
