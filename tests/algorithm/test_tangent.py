import numpy as np
import pytest

from thanos_peer.algorithm.regularizers import L1, L21, SmoothlyProxed, Zero
from thanos_peer.algorithm.stiefel import polar, random_point, sym
from thanos_peer.algorithm.tangent import conjugate_gradients, tangent_step

WEIGHTS = (0.0, 1e-12, 0.1, 5.0, 1e3)
SHAPES = ((1, 1), (5, 1), (3, 3), (10, 3), (12, 10), (30, 8), (40, 9))


class Own:
    """A regularizer that offers the three required methods and nothing else."""

    def __init__(self, g):
        self.value, self.prox, self.lipschitz = g.value, g.prox, g.lipschitz


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def points(n, p, rng):
    """Points of the manifold: dense, without a row but the first p, and nearly sparse."""
    Y = random_point(n, p, rng)
    return Y, np.eye(n)[:, :p], polar(Y * (rng.random((n, p)) < 0.3) + 1e-9 * Y)


def objective(g, Y, G, eta, Z):
    return float(np.sum(G * Z)) + g.value(Z) + float(np.sum((Z - Y) ** 2)) / (2 * eta)


def distance_to_subgradients(g, Z, S):
    """How far S is from the subdifferential of g at Z, from its definition."""
    match g:
        case L1(weight):
            gap = np.where(Z != 0, np.abs(S - weight * np.sign(Z)), np.maximum(np.abs(S) - weight, 0))
            return float(np.linalg.norm(gap))
        case L21(weight):
            rows = np.linalg.norm(Z, axis=1, keepdims=True)
            on_rows = np.linalg.norm(S - weight * Z / np.where(rows > 0, rows, 1), axis=1)
            off_rows = np.maximum(np.linalg.norm(S, axis=1) - weight, 0)
            return float(np.linalg.norm(np.where(rows[:, 0] > 0, on_rows, off_rows)))
        case _:
            return float(np.linalg.norm(S))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", [L1, L21, lambda _: Zero()])
def test_z_is_tangent_and_fulfils_the_optimality_conditions(shape, kind, rng):
    for weight in WEIGHTS:
        g = kind(weight)
        for Y in points(*shape, rng):
            for size in (0.0, 1e-6, 3.0):
                G = size * rng.standard_normal(shape)
                step = tangent_step(g, Y, G, 1.0, accuracy=1e-8)
                moved, rounding = np.linalg.norm(step.Z - Y), 1e-13 * (10 + weight * shape[0] + size)
                assert np.linalg.norm(sym(Y.T @ (step.Z - Y))) <= 1e-8 * moved + rounding
                S = -(G + Y @ step.multiplier) - (step.Z - Y)
                assert distance_to_subgradients(g, step.Z, S) <= rounding
                assert (step.multiplier == step.multiplier.T).all()


@pytest.mark.parametrize("g", [L1(0.3), L21(0.3), L1(4.0), Zero()])
def test_no_other_tangent_point_is_better(g, rng):
    n, p, eta = 6, 2, 0.7
    Y, G = random_point(n, p, rng), rng.standard_normal((n, p))
    Z = tangent_step(g, Y, G, eta, accuracy=1e-12).Z
    least = objective(g, Y, G, eta, Z)
    for size in (1e-3, 1e-1, 1.0):
        for _ in range(200):
            move = size * rng.standard_normal((n, p))
            move -= Y @ sym(Y.T @ move)
            # Strong convexity shows a near miss, too.
            growth = np.sum(move**2) / (2 * eta)
            assert objective(g, Y, G, eta, Z + move) >= least + growth - 1e-9


def test_one_column_with_two_rows_is_what_a_search_of_the_line_finds():
    Y, G, eta, g = np.array([[0.6], [0.8]]), np.array([[1.0], [-0.4]]), 0.5, L1(0.9)
    tangent = np.array([[-0.8], [0.6]])
    line = np.linspace(-3, 3, 600_001)
    Z = Y[:, 0] + line[:, None] * tangent[:, 0]
    values = Z @ G[:, 0] + 0.9 * np.abs(Z).sum(axis=1) + line**2 / (2 * eta)
    found = tangent_step(g, Y, G, eta, accuracy=1e-12).Z
    assert np.abs(found[:, 0] - Z[values.argmin()]).max() < 2e-5


def test_without_a_regularizer_it_is_the_projected_gradient_step(rng):
    Y, G = random_point(9, 4, rng), rng.standard_normal((9, 4))
    expected = Y - 0.3 * (G - Y @ sym(Y.T @ G))
    assert np.abs(tangent_step(Zero(), Y, G, 0.3).Z - expected).max() < 1e-14


@pytest.mark.parametrize("shape", [(5, 1), (10, 3), (30, 9)])
@pytest.mark.parametrize("g", [L1(0.2), L21(0.2), L1(3.0), L21(3.0)])
def test_a_regularizer_without_a_derivative_gets_the_same_step(shape, g, rng):
    assert not isinstance(Own(g), SmoothlyProxed)
    Y, G = random_point(*shape, rng), rng.standard_normal(shape)
    own, shipped = (tangent_step(h, Y, G, 1.0, accuracy=1e-9).Z for h in (Own(g), g))
    assert np.abs(own - shipped).max() < 1e-7


@pytest.mark.parametrize("scale", [1e-16, 1e-8, 1e8, 1e16])
def test_the_unit_of_f_does_not_matter(scale, rng):
    Y, G = random_point(12, 3, rng), rng.standard_normal((12, 3))
    plain = tangent_step(L1(0.4), Y, G, 1.0, accuracy=1e-10)
    scaled = tangent_step(L1(0.4 * scale), Y, G * scale, 1 / scale, accuracy=1e-10)
    assert np.abs(plain.Z - scaled.Z).max() < 1e-10
    assert np.abs(plain.multiplier - scaled.multiplier / scale).max() < 1e-8


def test_a_multiplier_at_hand_saves_work_and_changes_nothing(rng):
    Y, G, g = random_point(40, 6, rng), rng.standard_normal((40, 6)), L1(0.5)
    cold = tangent_step(g, Y, G, 1.0, accuracy=1e-9)
    warm = tangent_step(g, Y, G, 1.0, cold.multiplier, accuracy=1e-9)
    # The prox is evaluated once for the guess, and once for the multiplier.
    assert warm.steps == 2
    assert cold.steps > 2
    assert np.abs(cold.Z - warm.Z).max() < 1e-8


@pytest.mark.parametrize("multiplier", [np.full((3, 3), 1e6), np.full((3, 3), -1e6)])
def test_a_multiplier_that_is_far_off_does_no_harm(multiplier, rng):
    Y, G, g = random_point(20, 3, rng), rng.standard_normal((20, 3)), L21(0.5)
    near, far = (tangent_step(g, Y, G, 1.0, start, accuracy=1e-9).Z for start in (None, multiplier))
    assert np.abs(near - far).max() < 1e-8


def test_the_same_input_gives_the_same_bits(rng):
    Y, G = random_point(30, 5, rng), rng.standard_normal((30, 5))
    first, second = (tangent_step(L1(0.3), Y, G, 1.0) for _ in range(2))
    assert first.Z.tobytes() == second.Z.tobytes()
    assert first.multiplier.tobytes() == second.multiplier.tobytes()


@pytest.mark.parametrize("g", [L1(0.7), L21(0.7), L1(0.0), L21(0.0), Zero()])
@pytest.mark.parametrize("sigma", [0.1, 1.0, 5.0])
def test_the_derivative_of_prox_agrees_with_finite_differences(g, sigma, rng):
    X, V, h = rng.standard_normal((20, 3)), rng.standard_normal((20, 3)), 1e-7
    quotient = (g.prox(X + h * V, sigma) - g.prox(X - h * V, sigma)) / (2 * h)
    assert np.abs(g.prox_derivative(X, sigma, V) - quotient).max() < 1e-6


@pytest.mark.parametrize("g", [L1(0.7), L21(0.7), Zero()])
def test_the_derivative_of_prox_is_symmetric_and_between_zero_and_one_even_at_kinks(g, rng):
    X = rng.choice([-0.7, 0.0, 0.7, 2.0], size=(12, 2))
    U, V = rng.standard_normal((2, 12, 2))
    assert np.sum(U * g.prox_derivative(X, 1.0, V)) == pytest.approx(np.sum(V * g.prox_derivative(X, 1.0, U)))
    assert -1e-14 <= np.sum(V * g.prox_derivative(X, 1.0, V)) <= np.sum(V * V) + 1e-14


@pytest.mark.parametrize("g", [L1(0.7), L21(0.7), Zero()])
def test_the_nearest_subgradient_is_a_subgradient_and_nearest(g, rng):
    X = rng.standard_normal((12, 2)) * (rng.random((12, 1)) < 0.5)
    T = rng.standard_normal((12, 2))
    S = g.nearest_subgradient(X, T)
    assert distance_to_subgradients(g, X, S) < 1e-14
    # Every other subgradient lies behind the plane through S.
    for _ in range(100):
        other = g.nearest_subgradient(X, 2 * rng.standard_normal((12, 2)))
        assert np.sum((T - S) * (other - S)) <= 1e-12


def test_conjugate_gradients_solve_a_singular_system_that_has_a_solution(rng):
    B = rng.standard_normal((4, 2))
    right = B @ rng.standard_normal((2, 3))
    V = conjugate_gradients(lambda V: B @ (B.T @ V), right, 1e-12)
    assert np.abs(B @ (B.T @ V) - right).max() < 1e-10
