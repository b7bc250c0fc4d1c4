import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thanos_peer.algorithm.ritz import leading_of, leading_vectors, with_signs_of
from thanos_peer.algorithm.stiefel import random_point

SIZES = st.tuples(st.integers(1, 9), st.integers(1, 9)).map(lambda pair: (max(pair), min(pair)))
SEEDS = st.integers(0, 2**32 - 1)


def eigenvectors(rng, n):
    """A symmetric matrix with eigenvalues that are well apart, its eigenvectors by decreasing eigenvalue."""
    vectors, values = random_point(n, n, rng), np.arange(n, 0, -1.0) ** 2
    return vectors * values @ vectors.T, vectors, values


@given(size=SIZES, seed=SEEDS)
def test_any_basis_of_the_leading_subspace_is_rotated_to_the_leading_vectors(size, seed):
    (n, p), rng = size, np.random.default_rng(seed)
    gram, vectors, values = eigenvectors(rng, n)
    X = vectors[:, :p] @ random_point(p, p, rng)
    found, sizes = leading_vectors(X, X.T @ gram @ X, compass=vectors[:, :p])
    assert np.abs(found - vectors[:, :p]).max() < 1e-11
    assert sizes == pytest.approx(values[:p])
    assert np.abs(found.T @ found - np.eye(p)).max() < 1e-12


@given(size=SIZES, seed=SEEDS)
def test_a_basis_that_is_not_quite_orthonormal_is_made_so(size, seed):
    (n, p), rng = size, np.random.default_rng(seed)
    gram, vectors, _ = eigenvectors(rng, n)
    X = vectors[:, :p] @ random_point(p, p, rng)
    found, _ = leading_vectors(X * (1 + 1e-6), X.T @ gram @ X, compass=vectors[:, :p])
    assert np.abs(found.T @ found - np.eye(p)).max() < 1e-12


@given(size=SIZES, seed=SEEDS)
def test_of_a_whole_gram_matrix_the_leading_vectors_and_values_are_found(size, seed):
    (n, p), rng = size, np.random.default_rng(seed)
    gram, vectors, values = eigenvectors(rng, n)
    compass = random_point(n, p, rng)
    found, sizes = leading_of(gram, compass)
    assert np.abs(found - with_signs_of(vectors[:, :p], compass)).max() < 1e-11
    assert sizes == pytest.approx(values[:p])


@given(size=SIZES, seed=SEEDS, flips=st.integers(0, 2**9 - 1))
def test_the_signs_follow_the_compass_whatever_they_were(size, seed, flips):
    (n, p), rng = size, np.random.default_rng(seed)
    vectors, compass = random_point(n, p, rng), rng.standard_normal((n, p))
    signs = np.array([-1.0 if flips >> column & 1 else 1.0 for column in range(p)])
    turned = with_signs_of(vectors * signs, compass)
    assert (np.sum(turned * compass, axis=0) >= 0).all()
    assert turned.tobytes() == with_signs_of(vectors, compass).tobytes()


@given(size=SIZES, seed=SEEDS)
def test_of_equal_eigenvalues_the_compass_chooses_the_vectors_whatever_the_basis(size, seed):
    (n, p), rng = size, np.random.default_rng(seed)
    compass, subspace = random_point(n, p, rng), random_point(n, p, rng)
    values = np.repeat([3.0, 2.0, 1.0], [p // 3, p // 3, p - 2 * (p // 3)])
    gram = subspace * values @ subspace.T
    found = []
    for _ in range(2):
        X = subspace @ random_point(p, p, rng)
        start, sizes = leading_vectors(X, X.T @ gram @ X, compass, tie=1e-10)
        assert np.abs(start.T @ start - np.eye(p)).max() < 1e-12
        assert np.abs(gram @ start - start * values).max() < 1e-11
        assert sizes == pytest.approx(values, abs=1e-12)
        found.append(start)
    overlaps = [np.linalg.svd(subspace[:, g].T @ compass[:, g])[1].min() for g in _groups(values)]
    # Otherwise the compass hardly points into the subspace.
    if min(overlaps) > 1e-3:
        assert np.abs(found[0] - found[1]).max() < 1e-8


def _groups(values):
    return [values == value for value in np.unique(values)]
