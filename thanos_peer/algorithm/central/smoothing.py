"""The Riemannian smoothing gradient method of Peng, Wu, Hu and Deng (2022).

    X+ = polar(X - P_X(G)/c_k),   G = grad f(X) + gradient of g's Moreau envelope with sigma_k (Prop. 2),
    sigma_k = sigma k^(-1/3),   c_k = curvature of f at X + 1/sigma_k,   k = 1, 2, ...

Of the paper's text only the abstract was at hand: a decreasing sequence of smoothing parameters, and an
epsilon-stationary point after some epsilon^(-3) iterations. The power 1/3 and the step, 1 divided by a bound on
the curvature, were read in a public program for smoothing over manifolds, by others. They are also what that
rate needs (below). Here c_k is smaller: that program adds bounds on the gradients, for any retraction.

For sparse PCA c_k bounds the curvature of the smoothed objective F_k along the manifold, and so

    F_k(X+) <= F_k(X) - c_k sum_i (sqrt(1 + s_i) - 1),   s_i the eigenvalues of P_X(G)'P_X(G) / c_k^2.

Summed over k, with F_{k+1} <= F_k + (sigma_k - sigma_{k+1}) L_g^2/2, it says that the least ||P_X(G)||_F of the
first k iterations is at most of order k^(-1/3): the paper's rate. The tests check both.

sigma = 0.5, in units that do not depend on those of the data (`steepness`): 0.3, 1 and 3 were tried on 18
random problems, then 0.3, 0.5 and 1 on 51 others. Larger ones are quicker at first, smaller ones end nearer to
the answer after 3,000 iterations; 0.5 had the smallest gap at worst there.
"""

from collections.abc import Iterator
from itertools import count

from thanos_peer.algorithm.central.curvature import curvature, lipschitz_of, steepness
from thanos_peer.algorithm.objectives import Objective
from thanos_peer.algorithm.regularizers import Regularizer, envelope_gradient
from thanos_peer.algorithm.stiefel import polar, proj
from thanos_peer.block import Matrix

# sigma, in units of 1 / steepness.
_SIGMA = 0.5


def iterates(f: Objective, g: Regularizer, X0: Matrix) -> Iterator[Matrix]:
    """The iterates of the Riemannian smoothing gradient method from X0, (n, p), without end."""
    X, L, first = X0, lipschitz_of(f), _SIGMA / steepness(f, g, X0)
    is_smooth = g.lipschitz(*X0.shape) == 0
    for k in count(1):
        yield X
        sigma = first * k ** (-1 / 3)
        G = f.gradient(X) + envelope_gradient(g, X, sigma)
        X = polar(X - proj(X, G) / (curvature(L, X, G) + (0.0 if is_smooth else 1 / sigma)))
