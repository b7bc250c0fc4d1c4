"""From a tangent step, which has exact zeros, to the matrix near by that has them and orthonormal columns."""

import numpy as np
from numpy.typing import NDArray

from thanos_peer.algorithm.stiefel import identity, infeasibility, norm, polar, sym
from thanos_peer.algorithm.tangent import conjugate_gradients
from thanos_peer.block import Matrix

# Entries of Z that are smaller than this are zeros.
_DUST = 1e-13


def near(Z: Matrix) -> tuple[Matrix, Matrix]:
    """The answer for Z, (n, p), twice: X with orthonormal columns, and the sparse one with exact zeros.

    At convergence they are one matrix, orthonormal to rounding: Z is corrected within its own support. Before
    convergence that support may hold no orthonormal columns near Z. Then X is polar(Z), with fewer zeros, and the
    sparse one is Z, only nearly orthonormal; or X, where Z has lost a column.
    """
    Z = np.where(np.abs(Z) < _DUST, 0.0, Z)
    X = sparse_point(Z)
    if X is not None:
        return X, X
    X = _polar_without_zero_rows(Z)
    return X, Z if Z.any(axis=0).all() else X


def sparse_point(Z: Matrix) -> Matrix | None:
    """The matrix with orthonormal columns near Z that has Z's zeros; None where Newton's method finds none.

    Entries of Z that it turns to dust or to the other sign become zeros, too.
    """
    X = _orthonormal_within_support(Z)
    while X is not None and (is_lost := (Z != 0) & (X * np.sign(Z) < _DUST)).any():
        Z = np.where(is_lost, 0.0, Z)
        X = _orthonormal_within_support(Z)
    return X


def _orthonormal_within_support(Z: Matrix) -> Matrix | None:
    """The same, with Z's zeros and no more.

    Each step adds the shortest E within the support that solves sym(X'E) = (I - X'X)/2: E is X M on the support.
    """
    support = Z != 0
    if not support.any(axis=0).all():
        return None
    X, nearest, best = Z, Z, np.inf
    for _ in range(20):
        found = float(infeasibility(X))
        if not found < 0.5 * best:
            break
        nearest, best = X, found
        X = X + support * (X @ _correction(X, support))
    return nearest if best < 1e-14 * Z.shape[1] and norm(nearest - Z) < 0.1 else None


def _correction(X: Matrix, support: NDArray[np.bool_]) -> Matrix:
    """The M of one such step."""
    missing = (identity(X.shape[1]) - X.T @ X) / 2
    return conjugate_gradients(lambda V: sym(X.T @ (support * (X @ V))), missing, 1e-8)


def _polar_without_zero_rows(Z: Matrix) -> Matrix:
    """polar(Z), with exact zeros in the rows where Z has nothing else."""
    X, is_used = np.zeros_like(Z), (Z != 0).any(axis=1)
    if is_used.sum() < Z.shape[1]:  # too few rows for orthonormal columns
        return polar(Z)
    X[is_used] = polar(Z[is_used])
    return X
