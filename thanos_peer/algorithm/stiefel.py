"""Matrices with orthonormal columns: the operators of the Stiefel manifold, and distances up to symmetry."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from thanos_peer.block import Matrix


@lru_cache
def identity(p: int) -> Matrix:
    """I, (p, p), made once and not to be written to."""
    eye = np.eye(p)
    eye.flags.writeable = False
    return eye


def transpose(X: Matrix) -> Matrix:
    """X', for one matrix or each of a stack."""
    return X.swapaxes(-1, -2)


def sym(B: Matrix) -> Matrix:
    """The symmetric part (B + B')/2."""
    return (B + transpose(B)) / 2


def proj(X: Matrix, Y: Matrix) -> Matrix:
    """Y - X sym(X'Y): on the manifold, the projection of Y onto the tangent space at X (Def. 2)."""
    return Y - X @ sym(transpose(X) @ Y)


def inner(Y: Matrix, Z: Matrix) -> Matrix:
    """<Y, Z> = tr(Y'Z): a scalar for two matrices, (d,) for two stacks.

    Flattening first makes numpy add in the same order for a matrix alone and for the same one in a stack.
    """
    product = Y * Z
    *stack, n, p = product.shape
    total: Matrix = np.add.reduce(product.reshape(*stack, n * p), axis=-1)
    return total


def norm(Y: Matrix) -> Matrix:
    """The Frobenius norm of a matrix, or (d,) norms of a stack."""
    return np.sqrt(inner(Y, Y))


def infeasibility(X: Matrix) -> Matrix:
    """||X'X - I||_F, of a matrix or of each of a stack."""
    return norm(transpose(X) @ X - identity(X.shape[-1]))


def polar(X: Matrix) -> Matrix:
    """The nearest matrix with orthonormal columns: UV' where X = U S V'."""
    U, _, Vt = np.linalg.svd(X, full_matrices=False)
    nearest: Matrix = U @ Vt
    return nearest


def orthonormal_basis(Y: Matrix) -> Matrix:
    """An orthonormal basis of the columns of Y, with zero columns left out: (n, rank)."""
    U, lengths, _ = np.linalg.svd(Y, full_matrices=False)
    return U[:, lengths > 1e-12 * max(1.0, float(lengths[0]))]


def random_point(n: int, p: int, rng: np.random.Generator) -> Matrix:
    """A uniformly random point of the manifold, (n, p)."""
    Q, R = np.linalg.qr(rng.standard_normal((n, p)))
    # The QR decomposition is unique once diag(R) > 0.
    return Q * np.where(np.diag(R) < 0, -1.0, 1.0)


def leading_left_singular_vectors(A: Matrix, p: int) -> Matrix:
    """The p leading left singular vectors of A, each with its largest entry positive: (n, p)."""
    U = np.linalg.svd(A, full_matrices=False)[0][:, :p]
    largest = U[np.argmax(np.abs(U), axis=0), np.arange(p)]
    return U * np.where(largest < 0, -1.0, 1.0)


def rotation_distance(X: Matrix, Y: Matrix) -> float:
    """The least ||XQ - Y||_F over orthogonal Q (Procrustes): what l2,1 and f cannot tell apart."""
    U, _, Vt = np.linalg.svd(X.T @ Y)
    return float(norm(X @ (U @ Vt) - Y))


def signed_permutation_distance(X: Matrix, Y: Matrix) -> float:
    """The least ||XQ - Y||_F over signed permutations Q: what l1 and f cannot tell apart."""
    overlap = X.T @ Y
    # Column column_for[j] of X goes with column j of Y.
    column_for = best_assignment(np.abs(overlap).T)
    signs = np.where(overlap[column_for, np.arange(Y.shape[1])] < 0, -1.0, 1.0)
    return float(norm(X[:, column_for] * signs - Y))


def best_assignment(gain: Matrix) -> NDArray[np.intp]:
    """The permutation c with the largest sum of gain[j, c[j]], by shortest augmenting paths: O(p^3)."""
    size = gain.shape[0]
    row_price, column_price = np.zeros(size), np.zeros(size)
    row_of = np.full(size, -1)
    for start in range(size):
        # Cheapest known way to reach each column from the row to be placed.
        slack = np.full(size, np.inf)
        came_from = np.full(size, -1)
        is_settled = np.zeros(size, dtype=bool)
        row, column, length = start, -1, 0.0
        while row != -1:
            reduced = length - gain[row] - row_price[row] - column_price
            is_better = ~is_settled & (reduced < slack)
            slack[is_better], came_from[is_better] = reduced[is_better], column
            column = int(np.argmin(np.where(is_settled, np.inf, slack)))
            length = float(slack[column])
            is_settled[column] = True
            row = int(row_of[column])
        is_inner = is_settled & (row_of != -1)
        row_price[start] += length
        row_price[row_of[is_inner]] += length - slack[is_inner]
        column_price[is_settled] -= length - slack[is_settled]
        # Hand every column on the path to the row before it.
        while column != -1:
            previous = int(came_from[column])
            row_of[column] = row_of[previous] if previous != -1 else start
            column = previous
    assignment = np.empty(size, dtype=np.intp)
    assignment[row_of] = np.arange(size)
    return assignment
