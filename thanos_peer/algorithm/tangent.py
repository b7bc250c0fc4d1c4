"""The tangent proximal step: the best point in the tangent space of the manifold at Y for a linear f plus g.

Z = argmin <G, Z> + g(Z) + ||Z - Y||_F^2 / (2 eta)  subject to  sym(Y'(Z - Y)) = 0

The multiplier L of the constraint is symmetric, (p, p). Given L, Z = prox_{eta,g}(Y - eta (G + Y L)). The dual
function q(L) is concave with gradient phi = sym(Y'(Z - Y)), and has a maximiser. Newton's method finds it with a
generalized Hessian; a step must raise q enough or halve ||phi||. Where Newton fails, L + phi/eta always raises q.
Inside, everything is multiplied by eta, so that only numbers near one are added: M = eta L.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from thanos_peer.algorithm.regularizers import Regularizer, SmoothlyProxed
from thanos_peer.algorithm.stiefel import inner, norm, sym
from thanos_peer.block import Matrix

_EPS = float(np.finfo(np.float64).eps)
_NEWTON_STEPS = 60
_MULTIPLIER_STEPS = 500
_HALVINGS = 12
# Columns up to which Newton's equations are solved directly; above, by conjugate gradients.
_DENSE_UP_TO = 8
# Largest ||phi|| ever accepted: Z'Z = I + 2 phi + (Z - Y)'(Z - Y) must stay invertible.
_WIDEST = 0.1


@dataclass(frozen=True)
class TangentStep:
    """The minimiser and its multiplier.

    Attributes:
        Z: (n, p), with the exact zeros that prox gives.
        multiplier: L, (p, p), symmetric: where to start next time.
        mismatch: ||sym(Y'(Z - Y))||_F, how far Z is from the tangent space.
        steps: How many times prox was evaluated for a trial multiplier.
    """

    Z: Matrix
    multiplier: Matrix
    mismatch: float
    steps: int


def tangent_step(
    g: Regularizer, Y: Matrix, G: Matrix, eta: float, multiplier: Matrix | None = None, accuracy: float = 1e-3
) -> TangentStep:
    """Solve the problem above.

    Args:
        g: The whole regularizer, the sum over all agents.
        Y: A point of the manifold, (n, p).
        G: The gradient of the whole f at Y, (n, p).
        eta: The step size. Entries of eta G must be below about 1e150.
        multiplier: L of a nearby problem, (p, p); None where there was none.
        accuracy: ||sym(Y'(Z - Y))||_F may be this part of ||Z - Y||_F, or rounding.
    """
    dual = _Dual(g, Y, eta * G, eta)
    starts = [dual.at(dual.guess())]
    if multiplier is not None:
        starts.append(dual.at(eta * sym(multiplier)))
    best = _newton(dual, max(starts, key=lambda point: point.value), accuracy)
    if not best.is_within(accuracy) and best.mismatch > 100 * best.rounding:
        best = _newton(dual, dual.at(_from_shorter_steps(dual)), accuracy)
        best = _iterate_multiplier(dual, best, accuracy)
    return TangentStep(best.Z, best.M / eta, best.mismatch, dual.evaluations)


def _from_shorter_steps(dual: "_Dual") -> Matrix:
    """M by way of shorter steps, each the start of the next: Newton strays where eta g is steep."""
    steepness = max(1.0, dual.eta * dual.g.lipschitz(*dual.Y.shape))
    factors = [4.0**-j for j in range(1 + int(np.ceil(np.log2(steepness) / 2)), 0, -1)]
    M = factors[0] * dual.guess()
    for factor in factors:
        shorter = _Dual(dual.g, dual.Y, factor * dual.step, factor * dual.eta)
        M = 4 * _newton(shorter, shorter.at(M), 1e-2).M
        dual.evaluations += shorter.evaluations
    return M


@dataclass(frozen=True)
class _Point:
    """q at M, and what was found on the way.

    Attributes:
        M: eta L.
        U: Where prox is taken.
        Z: prox(U).
        value: eta q(M), up to a constant; -inf where it overflows.
        noise: How much of the value may be rounding.
        phi: Its gradient.
        mismatch: ||phi||_F.
        moved: ||Z - Y||_F.
    """

    M: Matrix
    U: Matrix
    Z: Matrix
    value: float
    noise: float
    phi: Matrix
    mismatch: float
    moved: float

    def is_within(self, accuracy: float) -> bool:
        """Whether phi is as small as asked for, or as rounding lets it be."""
        return self.mismatch <= max(min(accuracy * self.moved, _WIDEST), 4 * self.rounding)

    @property
    def rounding(self) -> float:
        """The size of the rounding errors in Z."""
        return _EPS * max(1.0, float(norm(self.U)))


class _Dual:
    """The dual function of one tangent step."""

    def __init__(self, g: Regularizer, Y: Matrix, step: Matrix, eta: float) -> None:
        self.g, self.Y, self.step, self.eta = g, Y, step, eta
        self.evaluations = 0
        self._smooth = g if isinstance(g, SmoothlyProxed) else None

    def at(self, M: Matrix) -> _Point:
        """Its value and gradient."""
        self.evaluations += 1
        with np.errstate(over="ignore", invalid="ignore"):
            pull = self.step + self.Y @ M
            U = self.Y - pull
            Z = self.g.prox(U, self.eta)
            D = Z - self.Y
            phi = sym(self.Y.T @ D)
            terms = (float(inner(pull, D)), self.eta * self.g.value(Z), float(inner(D, D)) / 2)
        value, noise = sum(terms), 8 * _EPS * sum(map(abs, terms))
        return _Point(
            M, U, Z, value if np.isfinite(value) else -np.inf, noise, phi, float(norm(phi)), float(norm(D))
        )

    def guess(self) -> Matrix:
        """The M that would be right if Y were stationary: -sym(Y'(eta G + S)), S nearly a subgradient of eta g."""
        small = 1e-3 * self.eta / max(1.0, self.eta * self.g.lipschitz(*self.Y.shape))
        S = (self.eta / small) * (self.Y - self.g.prox(self.Y, small))
        return -sym(self.Y.T @ (self.step + S))

    def curvature(self, point: _Point, V: Matrix) -> Matrix:
        """Minus the Hessian of q, applied to a symmetric V: sym(Y' J(Y V))."""
        return sym(self.Y.T @ self._derivative(point, self.Y @ V))

    def _derivative(self, point: _Point, V: Matrix) -> Matrix:
        """J V; a difference quotient where the regularizer has no derivative."""
        if self._smooth is not None:
            return self._smooth.prox_derivative(point.U, self.eta, V)
        h = 1e-8 * np.sqrt(max(1.0, float(norm(point.U)))) / max(float(norm(V)), 1e-300)
        quotient: Matrix = (self.g.prox(point.U + h * V, self.eta) - point.Z) / h
        return quotient


def _newton(dual: _Dual, point: _Point, accuracy: float) -> _Point:
    """Newton's method, as far as it gets."""
    damping = min(1e-3, point.mismatch)
    for _ in range(_NEWTON_STEPS):
        if point.is_within(accuracy):
            return point
        direction = _newton_direction(dual, point, damping)
        found, halvings = _line_search(dual, point, direction)
        if found is None:
            found, halvings = dual.at(point.M + point.phi), _HALVINGS
        if point.mismatch < 100 * point.rounding and found.mismatch > 0.5 * point.mismatch:
            return point  # rounding is all that is left
        damping = _next_damping(damping, halvings, found.mismatch)
        point = found
    return point


def _next_damping(damping: float, halvings: int, mismatch: float) -> float:
    """Less after a full step, more after one that had to be shortened."""
    factor = 0.1 if halvings == 0 else 1.0 if halvings == 1 else 4.0
    return float(np.clip(factor * damping, 1e-13, max(1e-13, min(1.0, mismatch))))


def _line_search(dual: _Dual, point: _Point, direction: Matrix) -> tuple[_Point | None, int]:
    """The first of the steps 1, 1/2, 1/4, ... that raises q by Armijo's rule, or halves ||phi||."""
    slope = float(inner(point.phi, direction))
    if not (slope > 0 and np.isfinite(direction).all()):
        return None, _HALVINGS
    for halvings in range(_HALVINGS):
        alpha = 0.5**halvings
        found = dual.at(point.M + alpha * direction)
        if found.mismatch <= 0.5 * point.mismatch and np.isfinite(found.value):
            return found, halvings
        if found.value >= point.value + 1e-4 * alpha * slope and found.value - point.value > -point.noise:
            return found, halvings
    return None, _HALVINGS


def _iterate_multiplier(dual: _Dual, point: _Point, accuracy: float) -> _Point:
    """M + phi, again and again: slow and sure."""
    best = point
    for _ in range(_MULTIPLIER_STEPS):
        if best.is_within(accuracy):
            break
        point = dual.at(point.M + point.phi)
        best = min(best, point, key=lambda candidate: candidate.mismatch)
    return best


def _newton_direction(dual: _Dual, point: _Point, damping: float) -> Matrix:
    """The symmetric V with curvature(V) + damping V = phi."""
    if dual.Y.shape[1] > _DENSE_UP_TO:
        return conjugate_gradients(
            lambda V: dual.curvature(point, V) + damping * V, point.phi, min(0.01, point.mismatch)
        )
    basis = _symmetric_basis(dual.Y.shape[1])
    image = np.array([dual.curvature(point, E) for E in basis])
    H = np.tensordot(basis, image, axes=([1, 2], [1, 2]))
    lengths, Q = np.linalg.eigh((H + H.T) / 2)
    right = Q.T @ np.tensordot(basis, point.phi, axes=2)
    direction: Matrix = np.tensordot(Q @ (right / (np.maximum(lengths, 0.0) + damping)), basis, axes=1)
    return direction


def conjugate_gradients(apply: Callable[[Matrix], Matrix], right: Matrix, reduction: float) -> Matrix:
    """A V with apply(V) = right up to reduction * ||right||_F; apply is symmetric and not negative."""
    V, rest = np.zeros_like(right), right
    search, square = rest, float(inner(rest, rest))
    enough = reduction**2 * square
    for _ in range(2 * right.size):
        image = apply(search)
        bend = float(inner(search, image))
        if not bend > 0:
            break
        V, rest = V + square / bend * search, rest - square / bend * image
        before, square = square, float(inner(rest, rest))
        if square <= enough:
            break
        search = rest + square / before * search
    return V


@lru_cache
def _symmetric_basis(p: int) -> Matrix:
    """An orthonormal basis of the symmetric matrices: (p (p + 1)/2, p, p), not to be written to."""
    rows, columns = np.triu_indices(p)
    basis = np.zeros((len(rows), p, p))
    size = np.where(rows == columns, 1.0, np.sqrt(0.5))
    basis[np.arange(len(rows)), rows, columns] = size
    basis[np.arange(len(rows)), columns, rows] = size
    basis.flags.writeable = False
    return basis
