"""The Riemannian subgradient method of Li, Chen, Deng, Qu, Zhu and So (2021).

    X+ = polar(X - b_k P_X(grad f(X) + a subgradient of g at X)),    b_k = b k^(-3/4),    k = 1, 2, ...

P_X is the projection onto the tangent space at X. The step is that of the authors' public programs, where b_k =
b k^(-1/2), and of the program of ManPG's authors, where b_k = k^(-3/4). Here b = 2, in units that do not depend
on those of the data (`steepness`). b of 0.3, 1 and 3 with powers 1/2 and 3/4 were tried on 18 random problems,
then (b, power) of (1, 3/4), (2, 3/4), (0.5, 1/2) and (1, 0.6) on 51 others: of these four it ended nearest to
the answer after 3,000 iterations, in the median and at worst. It does not get as near as others do:
subgradients do not shrink there, and X hovers about its zeros.

Of the paper's text only the abstract was at hand. It rests on a Riemannian subgradient inequality, which the
tests check as far as it can be derived in two lines, and with it how far a step goes towards any better point.
An epsilon-stationary point takes some epsilon^(-4) iterations, by a measure that itself asks for minimisation
over the manifold: that is not checked.

The subgradient comes from prox, as in the decentralized method (algorithm/subgradient.py).
"""

from collections.abc import Iterator
from itertools import count

from thanos_peer.algorithm.central.curvature import steepness
from thanos_peer.algorithm.objectives import Objective
from thanos_peer.algorithm.regularizers import Regularizer, envelope_gradient
from thanos_peer.algorithm.stiefel import polar, proj
from thanos_peer.algorithm.subgradient import NEARBY
from thanos_peer.block import Matrix

# b, in units of 1 / steepness.
_STEP = 2.0
_POWER = 0.75


def iterates(f: Objective, g: Regularizer, X0: Matrix) -> Iterator[Matrix]:
    """The iterates of the Riemannian subgradient method from X0, (n, p), without end."""
    X, unit = X0, 1 / steepness(f, g, X0)
    for k in count(1):
        yield X
        S = f.gradient(X) + envelope_gradient(g, X, NEARBY * unit)
        X = polar(X - _STEP * unit / k**_POWER * proj(X, S))
