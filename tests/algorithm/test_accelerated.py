from dataclasses import fields, replace

import numpy as np
import pytest

from thanos_peer.algorithm import accelerated, reference, search
from thanos_peer.algorithm.measures import certificate
from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.algorithm.regularizers import L1, L21, Zero
from thanos_peer.algorithm.stiefel import infeasibility, polar, random_point, rotation_distance, sym


class Own:
    """A regularizer that offers the three required methods and nothing else."""

    def __init__(self, g):
        self.value, self.prox, self.lipschitz = g.value, g.prox, g.lipschitz


class LogCosh:
    """f(X) = -sum log cosh(A'X), as in independent component analysis."""

    def __init__(self, A):
        self.A = A

    def value(self, X):
        U = np.abs(self.A.T @ X)
        return -float(np.sum(U + np.log1p(np.exp(-2 * U)) - np.log(2)))

    def gradient(self, X):
        return -self.A @ np.tanh(self.A.T @ X)


class Quartic:
    """f(X) = sign * sum (A'X)^4 / 4: no Lipschitz constant at all."""

    def __init__(self, A, sign):
        self.A, self.sign = A, sign

    def value(self, X):
        return self.sign * float(np.sum((self.A.T @ X) ** 4)) / 4

    def gradient(self, X):
        return self.sign * self.A @ (self.A.T @ X) ** 3


class Linear:
    """f(X) = <C, X>: its gradient has Lipschitz constant zero, the manifold has curvature."""

    def __init__(self, C):
        self.C = C

    def value(self, X):
        return float(np.sum(self.C * X))

    def gradient(self, X):
        assert X.shape == self.C.shape
        return self.C


def paper_problem(seed):
    """The f and the start of the paper's experiment."""
    A = np.random.default_rng(seed).standard_normal((10, 320))
    f = SparsePCA(A / np.linalg.norm(A, 2))
    return f, f.leading(3)


def data(kind, n, m, rng):
    A = rng.standard_normal((n, m))
    if kind == "steep":
        A = np.linalg.qr(rng.standard_normal((n, n)))[0] * 10.0 ** (-0.3 * np.arange(n)) @ A
    if kind == "nearly equal":
        A = np.eye(n, m) + 1e-3 * A
    return A / np.linalg.norm(A, 2)


def evaluate(state, f, g):
    return accelerated.tell(state, f.gradient(state.Y), f.value(state.Y), g)


def solve(f, g, X0, *, lipschitz=None, tolerance=1e-12, max_iterations=search.MOST):
    """The best of a whole search."""
    found = search.go_on(search.begin(X0, lipschitz), f, g, tolerance, max_iterations)
    return replace(found, Z=found.best, residual=found.least)


def step_by_hand(f, g, X):
    """The tangent step by the multiplier iteration alone, with steps that show an error in the curvature bound."""
    L, M, Z = f.lipschitz(), np.zeros((X.shape[1],) * 2), X
    for _ in range(1000):
        Z = g.prox(X - (f.gradient(X) + X @ M) / L, 1 / L)
        M = M + L * sym(X.T @ (Z - X))
    return Z


@pytest.mark.parametrize("g", [L1(0.1), L21(0.1)])
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("is_known", [True, False])
def test_the_papers_problem_takes_fewer_than_60_evaluations_to_a_gap_of_1e_8(g, seed, is_known):
    f, X0 = paper_problem(seed)
    state, values = accelerated.start(X0, f.lipschitz() if is_known else None), []
    while state.residual > 1e-12 and len(values) < 300:
        values.append(f.value(state.Y) + g.value(state.Y))
        state = evaluate(state, f, g)
    assert state.residual <= 1e-12
    assert next(k for k, value in enumerate(values, 1) if value - min(values) < 1e-8) < 60


@pytest.mark.parametrize("g", [L1(0.1), L21(0.1), L1(0.5), Zero()])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_reference_solver_agrees_that_the_point_is_stationary(g, seed):
    f, X0 = paper_problem(seed)
    X, _ = accelerated.answer(solve(f, g, X0, lipschitz=f.lipschitz()))
    there = reference.solve(f, g, X, lipschitz=f.lipschitz())
    assert there.is_precise
    apart = rotation_distance(there.X, X) if isinstance(g, L21) else np.linalg.norm(there.X - X)
    assert apart < 1e-9
    assert np.linalg.norm(step_by_hand(f, g, X) - X) < 1e-10


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_from_the_same_start_the_reference_solver_ends_with_the_same_value(seed):
    f, X0 = paper_problem(seed)
    g = L21(0.1)
    X, _ = accelerated.answer(solve(f, g, X0, lipschitz=f.lipschitz()))
    there = reference.solve(f, g, X0, lipschitz=f.lipschitz())
    assert f.value(X) + g.value(X) == pytest.approx(f.value(there.X) + g.value(there.X), abs=1e-10)


@pytest.mark.parametrize(("n", "p"), [(8, 1), (20, 4), (12, 12), (30, 9)])
@pytest.mark.parametrize("is_known", [True, False])
def test_without_a_regularizer_it_finds_the_leading_singular_vectors(n, p, is_known):
    rng = np.random.default_rng(n)
    f = SparsePCA(data("even", n, 3 * n, rng))
    X0 = random_point(n, p, rng)
    state = solve(f, Zero(), X0, lipschitz=f.lipschitz() if is_known else None)
    assert state.residual <= 1e-12
    assert rotation_distance(accelerated.answer(state)[0], f.leading(p)) < 1e-8


@pytest.mark.parametrize("kind", ["even", "steep", "nearly equal"])
@pytest.mark.parametrize("g", [L1(0.01), L1(0.5), L1(5.0), L21(0.05), L21(5.0)])
@pytest.mark.parametrize(("n", "m", "p"), [(10, 30, 1), (20, 2, 4), (15, 40, 10), (5, 9, 5)])
def test_every_problem_ends_with_orthonormal_columns_exact_zeros_and_a_certificate(kind, g, n, m, p):
    rng = np.random.default_rng([n, m, p])
    f, X0 = SparsePCA(data(kind, n, m, rng)), random_point(n, p, rng)
    state = solve(f, g, X0, lipschitz=f.lipschitz(), tolerance=1e-11)
    X, sparse = accelerated.answer(state)
    found = certificate(sparse, f.gradient(sparse), g, f.lipschitz())
    assert state.residual <= 1e-11
    assert X is sparse
    assert ((sparse == 0) == (np.abs(state.Z) < 1e-13)).all()
    assert infeasibility(sparse) < 1e-13
    assert np.linalg.norm(sparse - state.Z) < 1e-9
    assert found.relative < 1e-9


@pytest.mark.parametrize("unit", [1e-8, 1e-4, 1e4, 1e8])
@pytest.mark.parametrize("is_known", [True, False])
def test_the_unit_of_the_data_does_not_matter(unit, is_known):
    f, X0 = paper_problem(1)
    other = SparsePCA(unit * f.A)
    bounds = (f.lipschitz(), other.lipschitz()) if is_known else (None, None)
    plain = solve(f, L1(0.1), X0, lipschitz=bounds[0])
    scaled = solve(other, L1(0.1 * unit**2), X0, lipschitz=bounds[1])
    assert scaled.residual <= 1e-12
    assert np.abs(plain.Z - scaled.Z).max() < 1e-9


@pytest.mark.parametrize("g", [L1(0.5), L21(0.5), Zero()])
@pytest.mark.parametrize("make", [LogCosh, lambda A: Quartic(A, 1), lambda A: Quartic(A, -1)])
def test_an_objective_that_is_not_quadratic_needs_no_lipschitz_constant(g, make):
    rng = np.random.default_rng(4)
    f, X0 = make(rng.standard_normal((8, 30))), random_point(8, 2, rng)
    state = solve(f, g, X0, tolerance=1e-10, max_iterations=5000)
    X, _ = accelerated.answer(state)
    assert state.residual <= 1e-10
    assert f.value(X) + g.value(X) < f.value(X0) + g.value(X0)
    assert certificate(X, f.gradient(X), g, float(state.L)).relative < 1e-8


@pytest.mark.parametrize("lipschitz", [None, 1e-6])
def test_a_linear_objective_is_solved_by_the_polar_factor(lipschitz):
    rng = np.random.default_rng(3)
    C = rng.standard_normal((9, 3))
    state = solve(Linear(C), Zero(), random_point(9, 3, rng), lipschitz=lipschitz, tolerance=1e-11)
    assert np.abs(accelerated.answer(state)[0] - polar(-C)).max() < 1e-9


@pytest.mark.parametrize("wrong", [1e-9, 1e-3, 1e3, 1e9])
def test_a_curvature_bound_that_is_far_off_is_soon_corrected(wrong):
    f, X0 = paper_problem(2)
    state = solve(f, L21(0.1), X0)
    off = replace(evaluate(accelerated.start(X0), f, L21(0.1)), L=np.array(wrong))
    for _ in range(int(state.iterations) + 30):
        off = evaluate(off, f, L21(0.1))
    assert 0.1 < off.L < 2
    assert off.residual < 1e-9


def test_a_point_where_the_gradient_is_zero_is_a_start_like_any_other():
    X0 = np.eye(6)[:, :2]
    f = SparsePCA(np.eye(6)[:, 3:5] * [1.0, 0.5])
    # The start is a maximum of f, and so stationary.
    state = solve(f, Zero(), X0)
    assert state.residual <= 1e-12
    assert (accelerated.answer(state)[0] == X0).all()


def test_a_regularizer_without_a_derivative_gets_the_same_answer():
    f, X0 = paper_problem(3)
    g = L1(0.1)
    own, shipped = (solve(f, h, X0, lipschitz=f.lipschitz()) for h in (Own(g), g))
    assert own.residual <= 1e-12
    assert np.abs(own.Z - shipped.Z).max() < 1e-9


def test_all_that_is_remembered_are_float64_arrays_and_they_suffice_to_go_on():
    f, X0 = paper_problem(4)
    g, state = L1(0.1), accelerated.start(X0, f.lipschitz())
    for _ in range(7):
        state = evaluate(state, f, g)
        written = {field.name: getattr(state, field.name) for field in fields(state)}
        assert all(isinstance(value, np.ndarray) and value.dtype == np.float64 for value in written.values())
    read = accelerated.AcceleratedState(
        **{name: np.frombuffer(value.tobytes()).reshape(value.shape) for name, value in written.items()}
    )
    ahead, behind = evaluate(state, f, g), evaluate(read, f, g)
    for field in fields(state):
        assert getattr(ahead, field.name).tobytes() == getattr(behind, field.name).tobytes()


def test_before_convergence_the_answer_still_has_orthonormal_columns():
    f, X0 = paper_problem(5)
    g, state = L1(0.3), accelerated.start(X0, f.lipschitz())
    for _ in range(6):
        X, sparse = accelerated.answer(state)
        assert infeasibility(X) < 1e-13
        assert X.shape == sparse.shape
        state = evaluate(state, f, g)


def test_what_was_not_reached_is_said():
    f, X0 = paper_problem(1)
    state = solve(f, L21(0.1), X0, lipschitz=f.lipschitz(), max_iterations=5)
    assert state.iterations == 5
    assert state.residual > 1e-6


def test_a_tolerance_below_rounding_ends_the_loop_all_the_same():
    f, X0 = paper_problem(1)
    state = solve(f, L21(0.1), X0, lipschitz=f.lipschitz(), tolerance=0.0)
    assert state.residual < 1e-13
    assert state.iterations < 10_000


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_sum_that_is_not_finite_is_refused(number):
    f, X0 = paper_problem(1)
    state = accelerated.start(X0)
    for G, value in ((np.full_like(X0, number), 0.0), (f.gradient(X0), number)):
        with pytest.raises(ValueError, match="not finite"):
            accelerated.tell(state, G, value, Zero())


@pytest.mark.parametrize("g", [L1(0.3), L21(0.3), Own(L1(0.3)), Zero()])
def test_the_certificate_is_never_below_the_step_by_hand(g):
    rng = np.random.default_rng(6)
    f = SparsePCA(data("even", 12, 40, rng))
    for X in (random_point(12, 3, rng), np.eye(12)[:, :3], f.leading(3)):
        found = certificate(X, f.gradient(X), g, f.lipschitz())
        least = f.lipschitz() * np.linalg.norm(step_by_hand(f, g, X) - X)  # at most the true distance
        assert found.distance >= least - 1e-9
        assert found.relative == pytest.approx(found.distance / f.lipschitz())


def test_the_certificate_is_the_distance_that_a_search_of_all_subgradients_finds():
    X, G, g = np.array([[1.0], [0.0]]), np.array([[-0.3], [0.9]]), L1(0.5)
    # the tangent space is the second axis, where the subgradients are [-0.5, 0.5]
    assert certificate(X, G, g, 1.0).distance == pytest.approx(0.4)
    assert certificate(X, G, L1(1.0), 1.0).distance == 0


@pytest.mark.parametrize("tiny", [1e-12, 1e-6, 1e-3])
def test_an_entry_in_place_of_a_zero_costs_as_much_as_it_is_far_from_zero(tiny):
    X = np.array([[np.sqrt(1 - tiny**2)], [tiny]])
    G = np.array([[-0.3], [0.2]])
    assert tiny <= certificate(X, G, L1(0.5), 1.0).distance <= 5 * tiny


def test_the_certificate_names_columns_that_are_not_orthonormal():
    X = np.array([[2.0], [0.0]])
    assert certificate(X, np.zeros((2, 1)), Zero(), 1.0).infeasibility == 3


@pytest.mark.parametrize("mu", [1e6, 1e18])
@pytest.mark.parametrize("g", [L1, L21])
def test_beside_a_steep_regularizer_a_few_steps_lead_to_the_sparsest_matrix(g, mu):
    f, X0 = paper_problem(1)
    state = solve(f, g(mu), X0, lipschitz=f.lipschitz(), tolerance=1e-12)
    X, sparse = accelerated.answer(state)
    assert state.iterations < 20
    assert state.residual < 1e-12
    assert np.count_nonzero(sparse.any(axis=1)) == X0.shape[1]
    assert np.abs(X.T @ X - np.eye(X0.shape[1])).max() < 1e-14


def test_no_column_of_the_sparse_answer_is_lost():
    _, X0 = paper_problem(1)
    Z = X0 * (np.arange(X0.shape[1]) > 0)
    X, sparse = accelerated.answer(replace(accelerated.start(X0), Z=Z))
    assert (sparse == X).all()
    assert np.abs(X.T @ X - np.eye(X0.shape[1])).max() < 1e-14


@pytest.mark.parametrize("g", [L1(0.3), L21(0.05), L21(0.3), Zero()])
@pytest.mark.parametrize("tolerance", [1e-4, 1e-9])
def test_the_residual_bounds_what_is_certified_of_the_answer(g, tolerance):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        f, X0 = SparsePCA(data("random", 16, 7, rng)), random_point(16, 8, rng)
        state = solve(f, g, X0, lipschitz=f.lipschitz(), tolerance=tolerance)
        X, _ = accelerated.answer(state)
        certified = certificate(X, f.gradient(X), g, f.lipschitz(), is_strict=True).relative
        assert certified <= max(1e-13, float(state.residual)) <= tolerance


@pytest.mark.parametrize("share", [1.0, 1e-4])
def test_a_bound_of_the_objective_begins_the_search_and_is_its_limit_unless_it_is_too_small(share):
    rng = np.random.default_rng(3)
    A, X, X0 = rng.standard_normal((50, 10)), random_point(10, 3, rng), random_point(10, 3, rng)
    state, bound, steps = accelerated.start(X0), share * np.linalg.norm(A, 2) ** 2, []
    while not accelerated.is_over(state, 1e-10):
        R = A @ (state.Y - X)
        state = accelerated.tell(state, A.T @ R, float((R**2).sum() / 2), Zero(), bound)
        limit = bound + np.linalg.norm(sym(state.Y_before.T @ state.G_before), 2)
        steps.append((float(state.L), limit))
    assert steps[0][0] == pytest.approx(steps[0][1], rel=1e-15)
    assert all(1.0001 * limit >= L for L, limit in steps) == (share == 1)
    assert state.residual <= 1e-10
