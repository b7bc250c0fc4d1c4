from itertools import permutations, product

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from thanos_peer.algorithm.stiefel import (
    best_assignment,
    infeasibility,
    inner,
    leading_left_singular_vectors,
    norm,
    orthonormal_basis,
    polar,
    proj,
    random_point,
    rotation_distance,
    signed_permutation_distance,
    sym,
    transpose,
)

SHAPES = [(1, 1), (4, 1), (5, 5), (7, 3)]
each_shape = pytest.mark.parametrize(("n", "p"), SHAPES)


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def is_orthonormal(X):
    return np.abs(X.T @ X - np.eye(X.shape[1])).max() < 1e-13


def signed_permutations(p):
    for order, signs in product(permutations(range(p)), product([1, -1], repeat=p)):
        yield np.eye(p)[:, order] * signs


def test_sym_is_the_symmetric_part(rng):
    B, C = rng.standard_normal((2, 4, 4))
    assert (sym(B) == sym(B).T).all()
    assert np.allclose(B - sym(B), -(B - sym(B)).T)
    assert np.trace(sym(B).T @ (C - C.T)) == pytest.approx(0, abs=1e-13)


@each_shape
def test_proj_gives_tangent_vectors_and_leaves_tangent_vectors_alone(rng, n, p):
    X, Y = random_point(n, p, rng), rng.standard_normal((n, p))
    tangent = proj(X, Y)
    assert np.abs(X.T @ tangent + tangent.T @ X).max() < 1e-13
    assert np.allclose(proj(X, tangent), tangent, rtol=0, atol=1e-13)


@each_shape
def test_proj_is_orthogonal(rng, n, p):
    X, Y, Z = random_point(n, p, rng), *rng.standard_normal((2, n, p))
    assert np.sum((Y - proj(X, Y)) * proj(X, Z)) == pytest.approx(0, abs=1e-13)


def test_proj_off_the_manifold_is_the_formula_of_definition_2(rng):
    X, Y = rng.standard_normal((2, 6, 2))
    assert np.allclose(proj(X, Y), Y - X @ (X.T @ Y + Y.T @ X) / 2)


def test_infeasibility_is_zero_on_the_manifold_only(rng):
    X = random_point(6, 3, rng)
    assert infeasibility(X) < 1e-14
    assert infeasibility(2 * X) == pytest.approx(3 * np.sqrt(3))
    assert infeasibility(np.zeros((6, 3))) == pytest.approx(np.sqrt(3))


def test_stacks_get_the_same_bits_as_matrices_one_by_one(rng):
    X, Y = rng.standard_normal((2, 5, 7, 3))
    for apply in (
        inner,
        proj,
        lambda X, _: norm(X),
        lambda X, _: infeasibility(X),
        lambda X, Y: sym(transpose(X) @ Y),
    ):
        alone = [np.asarray(apply(*pair)).tobytes() for pair in zip(X, Y, strict=True)]
        assert apply(X, Y).tobytes() == b"".join(alone)


def test_inner_and_norm_are_the_traces(rng):
    Y, Z = rng.standard_normal((2, 5, 3))
    assert inner(Y, Z) == pytest.approx(np.trace(Y.T @ Z))
    assert norm(Y) == pytest.approx(np.linalg.norm(Y))


@each_shape
def test_polar_is_orthonormal_and_nearer_than_any_other_point(rng, n, p):
    X = rng.standard_normal((n, p))
    nearest = polar(X)
    assert is_orthonormal(nearest)
    distance = np.linalg.norm(X - nearest)
    others = [polar(nearest + size * rng.standard_normal((n, p))) for size in (1e-3, 0.1, 10) for _ in range(20)]
    assert all(np.linalg.norm(X - other) >= distance - 1e-13 for other in others)


def test_polar_is_x_times_the_inverse_root_of_its_gram_matrix(rng):
    X = rng.standard_normal((6, 3))
    values, vectors = np.linalg.eigh(X.T @ X)
    assert np.allclose(polar(X), X @ vectors @ np.diag(values**-0.5) @ vectors.T, rtol=0, atol=1e-12)


@each_shape
def test_random_points_are_orthonormal_and_depend_on_the_seed_alone(n, p):
    one, again, other = (random_point(n, p, np.random.default_rng(seed)) for seed in (1, 1, 3))
    assert is_orthonormal(one)
    assert one.tobytes() == again.tobytes()
    assert n == 1 or not np.allclose(one, other)


def test_random_points_prefer_no_side(rng):
    points = np.array([random_point(3, 2, rng) for _ in range(2000)])
    assert np.abs(points.mean(axis=0)).max() < 0.06
    assert np.abs((points**2).mean(axis=0) - 1 / 3).max() < 0.04


@pytest.mark.parametrize("shape", [(6, 30), (6, 4)])
def test_leading_left_singular_vectors_are_the_leading_eigenvectors_with_a_settled_sign(rng, shape):
    A = rng.standard_normal(shape)
    U = leading_left_singular_vectors(A, 3)
    expected = np.linalg.eigh(A @ A.T)[1][:, :-4:-1]
    assert is_orthonormal(U)
    assert np.allclose(np.abs(np.sum(U * expected, axis=0)), 1)
    assert all(column[np.argmax(np.abs(column))] > 0 for column in U.T)
    assert np.allclose(leading_left_singular_vectors(-A, 3), U)


def test_rotations_do_not_count_in_rotation_distance(rng):
    X, Y = random_point(7, 3, rng), random_point(7, 3, rng)
    Q = random_point(3, 3, rng)
    assert rotation_distance(X @ Q, X) < 1e-14
    assert rotation_distance(X @ Q, Y) == pytest.approx(rotation_distance(X, Y))
    assert rotation_distance(X, Y @ Q) == pytest.approx(rotation_distance(X, Y))


def test_rotation_distance_is_the_least_over_rotations(rng):
    X, Y = random_point(7, 3, rng), random_point(7, 3, rng)
    least = rotation_distance(X, Y)
    assert least**2 == pytest.approx(6 - 2 * np.linalg.norm(X.T @ Y, "nuc"))
    assert all(np.linalg.norm(X @ random_point(3, 3, rng) - Y) >= least for _ in range(200))


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_signed_permutation_distance_is_the_least_over_all_of_them(rng, p):
    X, Y = random_point(6, p, rng), random_point(6, p, rng)
    least = min(np.linalg.norm(X @ Q - Y) for Q in signed_permutations(p))
    assert signed_permutation_distance(X, Y) == pytest.approx(least, abs=1e-13)


def test_signed_permutations_do_not_count_in_their_distance_but_rotations_do(rng):
    X, Y, Q = random_point(7, 3, rng), random_point(7, 3, rng), np.array([[0, -1, 0], [0, 0, 1], [1, 0, 0]])
    assert signed_permutation_distance(X @ Q, X) == 0
    assert signed_permutation_distance(X @ Q, Y) == pytest.approx(signed_permutation_distance(X, Y))
    assert signed_permutation_distance(X @ random_point(3, 3, rng), X) > 0.1


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("kind", ["normal", "integer", "negative"])
def test_the_best_assignment_is_the_best_of_all_permutations(rng, p, kind):
    for _ in range(20):
        gain = {
            "normal": rng.standard_normal((p, p)),
            "integer": rng.integers(0, 3, (p, p)).astype(float),  # many ties
            "negative": -rng.random((p, p)),
        }[kind]
        found = best_assignment(gain)
        assert sorted(found) == list(range(p))
        best = max(sum(gain[j, c] for j, c in enumerate(order)) for order in permutations(range(p)))
        assert gain[np.arange(p), found].sum() == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("p", [8, 20, 60])
def test_the_best_assignment_of_many_is_as_good_as_that_of_scipy(rng, p):
    for gain in (rng.standard_normal((p, p)), rng.integers(0, 5, (p, p)).astype(float)):
        found = best_assignment(gain)
        assert sorted(found) == list(range(p))
        assert gain[np.arange(p), found].sum() == pytest.approx(
            gain[linear_sum_assignment(gain, maximize=True)].sum()
        )


def test_an_orthonormal_basis_spans_the_columns_and_leaves_zero_columns_out(rng):
    Y = rng.standard_normal((6, 4))
    Y[:, [0, 2]] = 0
    basis = orthonormal_basis(Y)
    assert basis.shape == (6, 2)
    assert is_orthonormal(basis)
    assert np.allclose(basis @ (basis.T @ Y), Y)


def test_an_orthonormal_basis_counts_dependent_columns_once(rng):
    column = rng.standard_normal((6, 1))
    assert orthonormal_basis(np.hstack([column, -2 * column])).shape == (6, 1)


def test_an_orthonormal_basis_of_nothing_is_empty():
    assert orthonormal_basis(np.zeros((6, 3))).shape == (6, 0)
