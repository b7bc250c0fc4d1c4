"""ManPG, the manifold proximal gradient method of Chen, Ma, So and Zhang (2020).

    V  = the tangent step from X with step t, minus X  (tangent.py)
    X+ = polar(X + a V),  a = 1, 1/2, 1/4, ... until F(X+) <= F(X) - a/(2 t) ||V||_F^2,  F = f + g

t = 1/L as in the authors' public program, for their Lipschitz constant L; where f is not sparse PCA and the
manifold bends it more, t is smaller (curvature.py). The rule for a is the program's, too: F falls in every
iteration by a multiple of ||V||_F^2, which is what the tests check. Two things differ. The tangent step is only
as exact as makes a difference: V may leave the tangent space by 1e-6 of its length. And F may miss its decrease
by rounding: so V goes on to shrink when F has long stopped falling.
"""

from collections.abc import Iterator

import numpy as np

from thanos_peer.algorithm.central.curvature import curvature, lipschitz_of
from thanos_peer.algorithm.objectives import Objective
from thanos_peer.algorithm.regularizers import Regularizer
from thanos_peer.algorithm.stiefel import inner, polar
from thanos_peer.algorithm.tangent import tangent_step
from thanos_peer.block import Matrix

# Relative accuracy of the tangent step.
_ACCURACY = 1e-6
# Values of a to try, 1, 1/2, ...: a stays above 1e-4, as in the authors' program.
_HALVINGS = 14
# Rounding of f + g, relative to |f| + g.
_ROUNDING = 16 * float(np.finfo(np.float64).eps)


def iterates(f: Objective, g: Regularizer, X0: Matrix) -> Iterator[Matrix]:
    """The iterates of ManPG from X0, (n, p), without end."""
    L, X, multiplier = lipschitz_of(f), X0, None
    while True:
        yield X
        G = f.gradient(X)
        t = 1 / curvature(L, X, G)
        step = tangent_step(g, X, G, t, multiplier, _ACCURACY)
        X, multiplier = _descend(f, g, X, step.Z - X, t), step.multiplier


def _descend(f: Objective, g: Regularizer, X: Matrix, V: Matrix, t: float) -> Matrix:
    """The first X+ on the way that is better by enough; the last one where none is."""
    smooth, rough = f.value(X), g.value(X)
    most = smooth + rough + _ROUNDING * (abs(smooth) + rough)
    fall = float(inner(V, V)) / (2 * t)
    X_next = X
    for halvings in range(_HALVINGS):
        a = 0.5**halvings
        X_next = polar(X + a * V)
        if f.value(X_next) + g.value(X_next) <= most - a * fall:
            break
    return X_next
