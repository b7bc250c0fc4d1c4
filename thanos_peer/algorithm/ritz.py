"""Rayleigh-Ritz: from a basis of the leading subspace to the leading singular vectors themselves."""

from itertools import pairwise

import numpy as np

from thanos_peer.algorithm.stiefel import polar, sym
from thanos_peer.block import Matrix

# Eigenvalues that are closer than this, relative to the largest, count as equal.
TIE = 1e-10


def leading_vectors(X: Matrix, M: Matrix, compass: Matrix, tie: float = 0.0) -> tuple[Matrix, Matrix]:
    """Rotate X, (n, p), to the vectors that M = X'AA'X belongs to.

    Of equal eigenvalues rounding alone would choose the vectors, at each agent others; the compass does.

    Args:
        X: An orthonormal basis, or nearly.
        M: The sum of all agents' X'A_iA_i'X, (p, p).
        compass: The vectors' signs are chosen so that they point the same way as these columns.
        tie: Eigenvalues that are closer than this, relative to the largest, count as equal.

    Returns:
        The vectors in order of decreasing eigenvalue, and the eigenvalues.
    """
    values, Q = np.linalg.eigh(sym(M))
    values, vectors = values[::-1], polar(X) @ Q[:, ::-1]
    start = with_signs_of(vectors, compass)
    for tied in _ties(values, tie * abs(values[0])):
        start[:, tied] = vectors[:, tied] @ polar(vectors[:, tied].T @ compass[:, tied])
    return start, values


def leading_of(gram: Matrix, compass: Matrix) -> tuple[Matrix, Matrix]:
    """The leading eigenvectors of AA', as many as the compass has columns, and their eigenvalues."""
    p = compass.shape[1]
    values, vectors = np.linalg.eigh(gram)
    return leading_vectors(vectors[:, ::-1][:, :p], np.diag(values[::-1][:p]), compass, tie=TIE)


def _ties(values: Matrix, width: float) -> list[slice]:
    """Where two or more values in a row are each less than a width from the next."""
    ends = [0, *(np.flatnonzero(-np.diff(values) >= width) + 1), len(values)]
    return [slice(first, end) for first, end in pairwise(ends) if end - first > 1]


def with_signs_of(vectors: Matrix, compass: Matrix) -> Matrix:
    """Each column turned so that its inner product with the same column of the compass is not negative."""
    along = np.add.reduce(vectors * compass, axis=0)
    return vectors * np.where(along < 0, -1.0, 1.0)
