"""Rayleigh-Ritz: from a basis of the leading subspace to the leading singular vectors themselves."""

from collections.abc import Sequence

import numpy as np

from thanos_peer.algorithm.stiefel import polar, sym
from thanos_peer.block import Matrix


def leading_vectors(X: Matrix, M: Matrix, compass: Matrix) -> tuple[Matrix, Matrix]:
    """Rotate X, (n, p), to the vectors that M = X'AA'X belongs to.

    Args:
        X: An orthonormal basis, or nearly.
        M: The sum of all agents' X'A_iA_i'X, (p, p).
        compass: The vectors' signs are chosen so that they point the same way as these columns.

    Returns:
        The vectors in order of decreasing eigenvalue, and the eigenvalues.
    """
    values, Q = np.linalg.eigh(sym(M))
    vectors = polar(X) @ Q[:, ::-1]
    return with_signs_of(vectors, compass), values[::-1]


def with_signs_of(vectors: Matrix, compass: Matrix) -> Matrix:
    """Each column turned so that its inner product with the same column of the compass is not negative."""
    along = np.add.reduce(vectors * compass, axis=0)
    return vectors * np.where(along < 0, -1.0, 1.0)


def top_left(matrix: Matrix, shape: Sequence[int]) -> Matrix:
    """A matrix laid into the top left corner of zeros of a larger shape."""
    padded = np.zeros(tuple(shape))
    padded[: matrix.shape[0], : matrix.shape[1]] = matrix
    return padded
