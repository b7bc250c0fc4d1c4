import numpy as np
import pytest

from thanos_peer.algorithm.objectives import SparsePCA

# The first makes a Gram matrix, the second does not.
WIDE, TALL = (5, 9), (20, 3)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.mark.parametrize("shape", [WIDE, TALL])
def test_the_value_is_minus_half_the_trace_of_the_paper(rng, shape):
    A, X = rng.standard_normal(shape), rng.standard_normal((shape[0], 2))
    assert SparsePCA(A).value(X) == pytest.approx(-np.trace(X.T @ A @ A.T @ X) / 2, rel=1e-13)


@pytest.mark.parametrize("shape", [WIDE, TALL])
def test_the_gradient_agrees_with_finite_differences(rng, shape):
    f, X, h = SparsePCA(rng.standard_normal(shape)), rng.standard_normal((shape[0], 2)), 1e-4
    gradient = f.gradient(X)
    for place in np.ndindex(X.shape):
        step = np.zeros_like(X)
        step[place] = h
        slope = (f.value(X + step) - f.value(X - step)) / (2 * h)
        assert slope == pytest.approx(gradient[place], abs=1e-7)


@pytest.mark.parametrize(
    ("n", "m", "has_gram"),
    [(1, 1, True), (4, 2, True), (5, 2, False), (10, 5, True), (11, 5, False), (3, 40, True)],
)
def test_the_gram_matrix_is_made_where_it_is_not_the_dearer_form(rng, n, m, has_gram):
    assert (SparsePCA(rng.standard_normal((n, m))).gram is not None) == has_gram


def test_both_forms_agree(rng):
    A, X = rng.standard_normal((12, 4)), rng.standard_normal((12, 3))
    without = SparsePCA(A)
    # The same f, wide enough for a Gram matrix.
    padded = SparsePCA(np.hstack([A, np.zeros((12, 4))]))
    assert without.gram is None
    assert padded.gram is not None
    assert np.allclose(without.gradient(X), padded.gradient(X), rtol=0, atol=1e-12)
    assert without.value(X) == pytest.approx(padded.value(X), rel=1e-13)


def test_pooled_is_the_sum_whatever_the_forms_of_the_parts(rng):
    parts = [SparsePCA(rng.standard_normal((8, m))) for m in (1, 3, 4, 11)]
    X = rng.standard_normal((8, 2))
    pooled = SparsePCA.pooled(parts)
    assert np.allclose(pooled.gradient(X), sum(part.gradient(X) for part in parts), rtol=0, atol=1e-12)
    assert pooled.value(X) == pytest.approx(sum(part.value(X) for part in parts), rel=1e-13)
    assert pooled.variance() == pytest.approx(sum(part.variance() for part in parts), rel=1e-13)


@pytest.mark.parametrize("shape", [WIDE, TALL])
def test_lipschitz_is_the_least_constant_of_the_gradient(rng, shape):
    A = rng.standard_normal(shape)
    f = SparsePCA(A)
    assert f.lipschitz() == pytest.approx(np.linalg.eigvalsh(A @ A.T)[-1])
    for _ in range(20):
        X, Y = rng.standard_normal((2, shape[0], 2))
        assert np.linalg.norm(f.gradient(X) - f.gradient(Y)) <= f.lipschitz() * np.linalg.norm(X - Y)
    leading = np.linalg.eigh(A @ A.T)[1][:, -1:]
    assert np.linalg.norm(f.gradient(leading)) == pytest.approx(f.lipschitz())


def test_variance_is_what_all_components_together_capture(rng):
    f = SparsePCA(rng.standard_normal(WIDE))
    assert f.variance() == pytest.approx(-2 * f.value(np.eye(WIDE[0])))
