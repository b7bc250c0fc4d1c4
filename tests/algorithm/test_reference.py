import numpy as np
import pytest
from scipy.optimize import lsq_linear

from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.algorithm.reference import Reference, solve
from thanos_peer.algorithm.regularizers import L1, L21, GroupL21, Zero
from thanos_peer.algorithm.stiefel import leading_left_singular_vectors, polar, proj, random_point

N, P, MU = 10, 3, 0.1
GROUPS = {"l21": tuple(range(N)), "group-l21": (0, 1, 2, 0, 1, 2, 0, 3, 3, 4)}
REGULARIZERS = {"l1": L1(MU), "l21": L21(MU), "group-l21": GroupL21(MU, GROUPS["group-l21"]), "none": Zero()}
each_problem = pytest.mark.parametrize("seed", range(4))
each_regularizer = pytest.mark.parametrize("kind", REGULARIZERS)
each_start = pytest.mark.parametrize("start", ["svd", "random"])


def make_problem(seed, start):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((N, 40))
    A /= np.linalg.norm(A, 2)
    X0 = leading_left_singular_vectors(A, P) if start == "svd" else random_point(N, P, rng)
    return SparsePCA(A), X0


def multiplier_mismatch(kind, f, X):
    """How far gradient + subgradient is from X Lambda with a symmetric Lambda, for the best of both.

    On the manifold, stationarity says that some subgradient makes this zero. The unknowns are the entries of
    Lambda and, for l1, those of the subgradient where X is zero, each within [-mu, mu]. For l2,1, X is zero in
    whole groups of rows, where X Lambda is zero as well: there the gradient itself may not be longer than mu.
    """
    G = f.gradient(X)
    pairs = [(a, b) for a in range(P) for b in range(a, P)]
    columns = []
    for a, b in pairs:
        Lambda = np.zeros((P, P))
        Lambda[a, b] = Lambda[b, a] = 1
        columns.append(-(X @ Lambda).ravel())
    bounds = [np.inf] * len(pairs)
    excess = 0.0
    if kind == "l1":
        is_zero = np.abs(X).ravel() < 1e-9
        G = G + MU * np.sign(np.where(is_zero.reshape(X.shape), 0, X))
        columns += list(np.eye(X.size)[is_zero])
        bounds += [MU] * int(is_zero.sum())
    elif kind in GROUPS:
        group_of = np.array(GROUPS[kind])
        lengths, slopes = (
            np.array([np.linalg.norm(E[group_of == number]) for number in group_of]) for E in (X, G)
        )
        is_zero = lengths < 1e-9
        excess = max(0.0, *slopes[is_zero] - MU) if is_zero.any() else 0.0
        G = G + MU * X / np.where(is_zero, 1, lengths)[:, None]
        G[is_zero] = 0
    found = lsq_linear(np.array(columns).T, -G.ravel(), (-np.array(bounds), np.array(bounds)), method="bvls")
    return max(excess, float(np.linalg.norm(found.fun)))


@each_problem
@each_start
@each_regularizer
def test_the_reference_is_precise_orthonormal_and_stationary_by_its_multipliers(seed, start, kind):
    f, X0 = make_problem(seed, start)
    found = solve(f, REGULARIZERS[kind], X0, lipschitz=f.lipschitz())
    assert found.residual < 1e-10
    assert found.is_precise
    assert np.abs(found.X.T @ found.X - np.eye(P)).max() < 1e-14
    assert multiplier_mismatch(kind, f, found.X) < 1e-9


@each_regularizer
def test_the_multipliers_tell_other_points_from_stationary_ones(kind):
    f, X0 = make_problem(0, "random")
    found = solve(f, REGULARIZERS[kind], X0, lipschitz=f.lipschitz()).X
    rng = np.random.default_rng(1)
    assert multiplier_mismatch(kind, f, X0) > 1e-2
    assert multiplier_mismatch(kind, f, polar(found + 1e-3 * rng.standard_normal((N, P)))) > 1e-4


@each_problem
@each_regularizer
def test_no_feasible_point_nearby_is_better(seed, kind):
    f, X0 = make_problem(seed, "random")
    g = REGULARIZERS[kind]
    X = solve(f, g, X0, lipschitz=f.lipschitz()).X
    rng = np.random.default_rng(seed)
    for size in np.repeat([1e-4, 1e-3, 1e-2, 1e-1], 5):
        near = polar(X + size * proj(X, rng.standard_normal((N, P))))
        assert f.value(near) + g.value(near) >= f.value(X) + g.value(X) - 1e-13


@each_problem
def test_without_a_regularizer_it_finds_the_leading_eigenspace(seed):
    f, X0 = make_problem(seed, "random")
    X = solve(f, Zero(), X0, lipschitz=f.lipschitz()).X
    values, vectors = np.linalg.eigh(f.A @ f.A.T)
    assert np.linalg.norm(X @ X.T - vectors[:, -P:] @ vectors[:, -P:].T) < 1e-9
    assert f.value(X) == pytest.approx(-values[-P:].sum() / 2)


def test_a_start_that_is_stationary_is_kept():
    f, X0 = make_problem(0, "svd")
    found = solve(f, Zero(), X0, lipschitz=f.lipschitz())
    assert found.iterations == 1
    assert np.abs(found.X - X0).max() < 1e-14


def test_a_lipschitz_constant_too_small_by_ten_is_made_up_for_by_a_smaller_step():
    f, X0 = make_problem(0, "random")
    found = solve(f, Zero(), X0, lipschitz=f.lipschitz() / 10, max_iterations=2000)
    assert found.is_precise
    assert multiplier_mismatch("none", f, found.X) < 1e-9


@each_regularizer
@pytest.mark.parametrize("factor", [1e-2, 1e-4, 1e-8, 1e-14])
def test_an_absurd_lipschitz_constant_still_gives_a_point_of_the_manifold_and_no_false_precision(kind, factor):
    f, X0 = make_problem(0, "random")
    found = solve(f, REGULARIZERS[kind], X0, lipschitz=f.lipschitz() * factor, max_iterations=300)
    assert np.abs(found.X.T @ found.X - np.eye(P)).max() < 1e-13
    assert not found.is_precise or multiplier_mismatch(kind, f, found.X) < 1e-9


@pytest.mark.parametrize("kind", ["l1", "l21"])
@pytest.mark.parametrize("scale", [1e-1, 1e-3, 1e-7, 1e-12])
def test_data_that_are_tiny_beside_mu_do_not_make_any_start_look_stationary(kind, scale):
    unit, X0 = make_problem(0, "random")
    f = SparsePCA(scale * unit.A)
    found = solve(f, REGULARIZERS[kind], X0, lipschitz=f.lipschitz(), max_iterations=2000)
    assert not found.is_precise or multiplier_mismatch(kind, f, found.X) < 1e-9


def test_what_ran_out_of_iterations_says_so_in_its_residual():
    f, X0 = make_problem(0, "random")
    found = solve(f, L1(MU), X0, lipschitz=f.lipschitz(), max_iterations=5)
    assert found.iterations == 4 * 5
    assert not found.is_precise
    assert found.residual > 1e-6
    assert np.abs(found.X.T @ found.X - np.eye(P)).max() < 1e-13


def test_an_objective_that_gives_no_numbers_returns_the_start():
    class Broken:
        def value(self, X):
            return float(X[0, 0])

        def gradient(self, X):
            return np.full_like(X, np.nan)

    _, X0 = make_problem(0, "random")
    found = solve(Broken(), L1(MU), X0, lipschitz=1.0)
    assert found == Reference(found.X, np.inf, 4)
    assert (found.X == X0).all()
