"""The exact method: accelerated proximal gradient steps on the manifold, for f + g with exact sums.

The method asks and is told. A state names the point Y at which all agents evaluate f next. `tell` takes the sum of
their gradients there and returns the next state. One iteration is one evaluation:

Z  = the tangent step from Y with eta = 1/L  (tangent.py)
X+ = polar(Z)
if <Y - X+, X+ - X> > 0:  t+ = 1,                          Y+ = X+  (momentum starts anew)
else:                     t+ = (1 + sqrt(1 + 4 t^2)) / 2,  Y+ = polar(X+ + (t - 1)/t+ (X+ - X))

L must bound the curvature of f along the manifold:
(*)  f(Y+) <= f(Y) + <proj_Y(G), Y+ - Y> + L/2 ||Y+ - Y||_F^2.
Every evaluation shows which L the last step needed. If (*) failed, the step is taken again from the stored point,
with a larger L. If (*) held with much to spare, L falls. After every failure L falls more slowly, so L settles.
Beside a steep g, L stays above a part of its slope: else eta g would be so large that Z drowns in rounding.

What is left is measured in units of the problem (`units.py`): its unit of f, if no bound was given, is the
largest gradient, at the start or here. L is none: it rises without end where (*) never holds, as for a gradient
that is not that of f.

With a bound B of the Lipschitz constant of the gradient of f, if the objective knows one, (*) holds for
L = B + ||sym(Y'G)||_2, the curvature of f and that of the manifold. L begins there, falls as it does without, and
rises no higher. Should (*) fail there, B was too small, and L rises as it does without.
"""

from dataclasses import dataclass, replace

import numpy as np

from thanos_peer.algorithm import zeros
from thanos_peer.algorithm.regularizers import Regularizer, slope
from thanos_peer.algorithm.stiefel import infeasibility, inner, norm, polar, sym
from thanos_peer.algorithm.tangent import tangent_step
from thanos_peer.algorithm.units import scale, unit_of
from thanos_peer.block import Matrix

_EPS = float(np.finfo(np.float64).eps)
# L falls by this factor at most in one iteration, once (*) has failed.
_SHRINK = 0.9
# L stays above this fraction of ||sym(Y'G)||_2, however flat f is: eta g must not explode.
_FLATTEST = 1e-3
# L stays above this fraction of the slope of g.
STEEPEST = 0.01
# L falls by this factor at most before (*) has failed: the first guess of L may be far too large.
_FIRST_SHRINK = 0.125
# Pairs: while the least residual is at most the first number, the search goes on for at most so many evaluations
# without a better one.
_LONGEST_STALL = ((1e-12, 100), (1e-9, 10_000), (np.inf, 20_000))


@dataclass(frozen=True)
class AcceleratedState:
    """All that the method remembers. Every field is a float64 array; numbers are arrays of shape ().

    Attributes:
        X: The last polar(Z), (n, p).
        Y: Where to evaluate f next, (n, p), with orthonormal columns.
        Z: The last tangent step, (n, p), with exact zeros: the answer. Its columns are orthonormal only up to the
            square of its distance from where it started, so as good as exactly at convergence.
        multiplier: The multiplier of that step, (p, p).
        t: The momentum number.
        L: The curvature bound in use; 0 before the first evaluation.
        lipschitz: The bound that was given, 0 for none.
        shrink: By what factor L may fall after an evaluation.
        gradient: ||G||_F at the start.
        objective: f + g there.
        residual: (L + c) ||Z - Y||_F / scale for that Z and the Y it was made from. L ||Z - Y||_F bounds the
            distance of zero from proj_Y(G + subgradients of g at Z), and the rest what the gradient at Z adds to
            it, for c the larger one of L and scale. Infinite at the start.
        iterations: How many evaluations were used.
        least: The least residual so far.
        least_at: After how many evaluations it was found.
        Y_before: The Y that Z was made from, with what was known there: for making it again with another L.
        G_before: The gradient there.
        value_before: f there.
        X_before: X then.
        t_before: t then.
    """

    X: Matrix
    Y: Matrix
    Z: Matrix
    multiplier: Matrix
    t: Matrix
    L: Matrix
    lipschitz: Matrix
    shrink: Matrix
    gradient: Matrix
    objective: Matrix
    residual: Matrix
    iterations: Matrix
    least: Matrix
    least_at: Matrix
    Y_before: Matrix
    G_before: Matrix
    value_before: Matrix
    X_before: Matrix
    t_before: Matrix


def start(X0: Matrix, lipschitz: float | None = None) -> AcceleratedState:
    """The state before the first evaluation, which is due at Y = X0.

    Args:
        X0: (n, p), with orthonormal columns; if they are not, the nearest such matrix is taken.
        lipschitz: A bound of the Lipschitz constant of the gradient of the whole f; None or 0 if none is known.
    """
    X0 = on_manifold(X0)
    zero, one, p = _number(0.0), _number(1.0), X0.shape[1]
    return AcceleratedState(
        X=X0,
        Y=X0,
        Z=X0,
        multiplier=np.zeros((p, p)),
        t=one,
        L=zero,
        lipschitz=_number(lipschitz or 0.0),
        shrink=_number(_FIRST_SHRINK),
        gradient=zero,
        objective=zero,
        residual=_number(np.inf),
        iterations=zero,
        least=_number(np.inf),
        least_at=zero,
        Y_before=X0,
        G_before=np.zeros_like(X0),
        value_before=zero,
        X_before=X0,
        t_before=one,
    )


def on_manifold(X0: Matrix) -> Matrix:
    """The same, if its columns are orthonormal up to rounding, or the nearest such matrix."""
    return X0 if infeasibility(X0) < 1e-14 else polar(X0)


def tell(state: AcceleratedState, G: Matrix, value: float, g: Regularizer, bound: float = 0.0) -> AcceleratedState:
    """The next state, from what the agents found at state.Y.

    Args:
        state: What the agents were asked with.
        G: The sum of their gradients at state.Y, (n, p).
        value: The sum of their f_i(state.Y).
        g: The sum of their regularizers.
        bound: Of the Lipschitz constant of the gradient of the whole f, as the objective knows it; 0 for none.

    Raises:
        ValueError: A sum is not finite.
    """
    if not (np.isfinite(G).all() and np.isfinite(value)):
        raise ValueError("The sum of the gradients or of the values of f is not finite.")
    here = replace(state, iterations=_number(float(state.iterations) + 1))
    if state.iterations == 0:
        L = bound + _turning(state.Y, G) if bound > 0 else _first_bound(state.Y, G, g)
        here = replace(here, objective=_number(value + g.value(state.Y)), L=_number(L))
        return _step(replace(here, gradient=_number(float(state.gradient) or float(norm(G)))), G, value, g)
    needed, L = _needed_bound(state, G, value), float(state.L)
    if needed > (1 + 1e-6) * L:
        return _step(_back(here, needed, bound), state.G_before, float(state.value_before), g)
    if np.isfinite(needed):
        least = max(float(state.shrink) * L, _FLATTEST * _turning(state.Y, G))
        here = replace(here, L=_number(min(L, max(2 * needed, least))))
    return _step(here, G, value, g)


def is_over(state: AcceleratedState, tolerance: float) -> bool:
    """Whether the tolerance is reached, or the residual has long stopped falling because of rounding."""
    patience = next(most for below, most in _LONGEST_STALL if state.least <= below)
    return bool(state.least <= tolerance or state.iterations - state.least_at > patience)


def has_risen(state: AcceleratedState, g: Regularizer) -> bool:
    """Whether f + g is larger than at the start, by more than rounding: then G was not the gradient of f.

    Short steps do not show that, one by one: rounding hides what they change.
    """
    rounding = 1e-9 * (abs(float(state.objective)) + float(state.gradient))
    return float(state.value_before) + g.value(state.Y_before) > float(state.objective) + rounding


def answer(state: AcceleratedState) -> tuple[Matrix, Matrix]:
    """The answer twice, (n, p), as `zeros.near` gives it: X, and the sparse one."""
    return zeros.near(state.Z)


def _number(value: float) -> Matrix:
    return np.asarray(value, dtype=np.float64)


def _first_bound(Y: Matrix, G: Matrix, g: Regularizer) -> float:
    """A first guess of L: for sparse PCA sym(-Y'G) = Y'AA'Y."""
    return _turning(Y, G) or float(norm(G)) or g.lipschitz(*Y.shape) or 1.0


def _turning(Y: Matrix, G: Matrix) -> float:
    """||sym(Y'G)||_2: the curvature that the manifold gives to a linear f."""
    return float(np.linalg.norm(sym(Y.T @ G), 2))


def _needed_bound(state: AcceleratedState, G: Matrix, value: float) -> float:
    """The least L with which (*) holds for the last step; -inf where rounding hides it.

    <proj_Y(G), D> = <G, D> + <sym(Y'G), D'D>/2 for D = Y+ - Y, because sym(Y'D) = -D'D/2 on the manifold.
    Short steps hide f(Y+) - f(Y) - <G, D> in rounding. <G+ - G, D>/2 is the same for a quadratic f, nearly the
    same for another one and a short step, and can be seen for longer.
    """
    D, G_before, value_before = state.Y - state.Y_before, state.G_before, float(state.value_before)
    square, slope = float(inner(D, D)), float(inner(G_before, D))
    bend = float(inner(sym(state.Y_before.T @ G_before), D.T @ D))
    hidden = 1e-6 * float(state.L) * square
    if square > 1e-6 and 8 * _EPS * (abs(value) + abs(value_before) + abs(slope)) < hidden:
        return (2 * (value - value_before - slope) - bend) / square
    if square > 0 and 4 * _EPS * float(norm(G) + norm(G_before)) * np.sqrt(square) < hidden:
        return (float(inner(G - G_before, D)) - bend) / square
    return -np.inf


def _back(state: AcceleratedState, needed: float, bound: float) -> AcceleratedState:
    """The state where the last step was taken, with an L that is large enough for it."""
    L = max(1.2 * float(state.L), 1.1 * needed)
    most = float(state.lipschitz) if bound == 0 else bound + _turning(state.Y_before, state.G_before)
    if needed <= most:
        L = min(L, most)
    shrink = _number(max(_SHRINK, float(np.sqrt(state.shrink))))
    return replace(state, X=state.X_before, Y=state.Y_before, t=state.t_before, L=_number(L), shrink=shrink)


def _step(state: AcceleratedState, G: Matrix, value: float, g: Regularizer) -> AcceleratedState:
    """One step from Y, where the gradient is G."""
    X, Y = state.X, state.Y
    L = max(float(state.L), STEEPEST * slope(g, *Y.shape))
    step = tangent_step(g, Y, G, 1 / L, state.multiplier)
    unit = _scale(state, G, g)
    X_next, residual = polar(step.Z), (L + max(L, unit)) / unit * float(norm(step.Z - Y))
    t_next, Y_next = _with_momentum(X, Y, X_next, float(state.t))
    return replace(
        state,
        X=X_next,
        Y=Y_next,
        Z=step.Z,
        multiplier=step.multiplier,
        t=_number(t_next),
        L=_number(L),
        residual=_number(residual),
        least=_number(min(float(state.least), residual)),
        least_at=state.iterations if residual < state.least else state.least_at,
        Y_before=Y,
        G_before=G,
        value_before=_number(value),
        X_before=X,
        t_before=state.t,
    )


def _scale(state: AcceleratedState, G: Matrix, g: Regularizer) -> float:
    """What the residual is relative to."""
    return scale(float(state.lipschitz) or unit_of(float(state.gradient), G), g, *G.shape)


def _with_momentum(X: Matrix, Y: Matrix, X_next: Matrix, t: float) -> tuple[float, Matrix]:
    if inner(Y - X_next, X_next - X) > 0:
        return 1.0, X_next
    t_next = (1 + np.sqrt(1 + 4 * t * t)) / 2
    return float(t_next), polar(X_next + ((t - 1) / t_next) * (X_next - X))
