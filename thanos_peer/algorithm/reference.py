"""The centralised X*: what a solver that holds all the data finds, to compare the network with.

Sequential linearised proximal gradient (SLPG): a prox step along the tangent direction, with a multiplier
Lambda that keeps the step tangent, then one Newton-Schulz step towards orthonormal columns. The usual
Barzilai-Borwein step of that method is not safe here, so the step is fixed; where even that fails to settle,
a smaller one is tried, and the residual says what was reached.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from thanos_peer.algorithm.objectives import Objective
from thanos_peer.algorithm.regularizers import Regularizer
from thanos_peer.algorithm.stiefel import identity, infeasibility, norm, polar, sym
from thanos_peer.block import Matrix

# A residual above this deserves a warning wherever X* is used.
TARGET = 1e-10
_GOAL = 1e-12  # what the solver works towards
# Steps to try, in units of 1/L: L is the Lipschitz constant of f's gradient or of g, whichever is larger.
_STEPS = (1.0, 0.5, 0.2, 0.05)
_INNER, _INNER_FINAL = 5, 2000


@dataclass(frozen=True)
class Reference:
    """A stationary point of the whole problem.

    Attributes:
        X: The point, (n, p), with orthonormal columns.
        residual: ||Z - X||_F / (step L) where Z is one more proximal step from X, and L the larger of the
            Lipschitz constants of f's gradient and of g: zero at a stationary point, whatever the scale.
        iterations: How many the solver took, over all step sizes tried.
    """

    X: Matrix
    residual: float
    iterations: int

    @property
    def is_precise(self) -> bool:
        """Whether the residual is below 1e-10."""
        return self.residual < TARGET


def solve(
    f: Objective, g: Regularizer, X0: Matrix, *, lipschitz: float, max_iterations: int = 200_000
) -> Reference:
    """Minimise f + g over the manifold from X0.

    Args:
        f: The sum of all f_i.
        g: The sum of all g_i.
        X0: Where to start, (n, p); of several stationary points the one found depends on it.
        lipschitz: The Lipschitz constant of the gradient of f.
        max_iterations: For each step size.
    """
    scale = scale_of(lipschitz, g, X0)
    best = Reference(X0, np.inf, 0)
    total = 0
    for fraction in _STEPS:
        found = _solve_with_step(f, g, X0, fraction=fraction, scale=scale, max_iterations=max_iterations)
        total += found.iterations
        if found.residual < best.residual:
            best = found
        if best.is_precise:
            break
    return Reference(best.X, best.residual, total)


def scale_of(lipschitz: float, g: Regularizer, X0: Matrix) -> float:
    """What steps are measured by: a step much longer than 1/L_g sees nothing but g."""
    return max(lipschitz, g.lipschitz(*X0.shape)) or 1.0


def slpg(f: Objective, g: Regularizer, X0: Matrix, *, step: float) -> Iterator[tuple[Matrix, Matrix, Matrix]]:
    """The iterations of SLPG, without end: X, the proximal step Z from there, and the multiplier of that step.

    X is only nearly on the manifold. It leaves the numbers where the step is too long.
    """
    X, multiplier = X0, np.zeros((X0.shape[1],) * 2)
    while True:
        Z, multiplier = _tangent_step(f, g, X, multiplier, step, _INNER)
        yield X, Z, multiplier
        X = _nearer_to_orthonormal(Z)


def _solve_with_step(
    f: Objective, g: Regularizer, X0: Matrix, *, fraction: float, scale: float, max_iterations: int
) -> Reference:
    step = fraction / scale
    X, Z, multiplier, iterations = X0, X0, np.zeros((X0.shape[1],) * 2), 0
    with np.errstate(over="ignore", invalid="ignore"):
        path = enumerate(slpg(f, g, X0, step=step), 1)
        for iterations, taken in islice(path, max_iterations):
            X, Z, multiplier = taken
            moved = float(norm(Z - X)) / fraction
            # The step is too long; `not <` is true of NaN, too.
            if not moved < 1e6:
                return Reference(X0, np.inf, iterations)
            if moved < _GOAL and infeasibility(X) < _GOAL:
                break
        else:
            X = _nearer_to_orthonormal(Z)
    X = polar(X)
    Z, _ = _tangent_step(f, g, X, multiplier, step, _INNER_FINAL)
    return Reference(X, float(norm(Z - X)) / fraction, iterations)


def _nearer_to_orthonormal(Z: Matrix) -> Matrix:
    """One Newton-Schulz step."""
    nearer: Matrix = Z @ (3 * identity(Z.shape[1]) - Z.T @ Z) / 2
    return nearer


def _tangent_step(
    f: Objective, g: Regularizer, X: Matrix, multiplier: Matrix, step: float, inner_steps: int
) -> tuple[Matrix, Matrix]:
    """Z = prox_{step,g}(X - step (grad f - X sym(X'grad f) + X Lambda)) with sym(X'(Z - X)) driven to zero."""
    gradient = f.gradient(X)
    direction = gradient - X @ sym(X.T @ gradient)
    Z = X
    for _ in range(inner_steps):
        Z = g.prox(X - step * (direction + X @ multiplier), step)
        mismatch = sym(X.T @ (Z - X))
        multiplier = multiplier + mismatch / step
        if norm(mismatch) < 1e-16:
            break
    return Z, multiplier
