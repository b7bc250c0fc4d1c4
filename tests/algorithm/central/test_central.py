"""The centralised methods against formulas of their own: plain numpy, polar factors by eigenvectors."""

from itertools import islice, pairwise

import numpy as np
import pytest

from thanos_peer.algorithm import reference
from thanos_peer.algorithm.central import CENTRAL, admm
from thanos_peer.algorithm.measures import certificate
from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.algorithm.regularizers import L1, L21, Zero
from thanos_peer.algorithm.stiefel import random_point
from thanos_peer.errors import ConfigError

N, P, MU = 10, 3, 0.1
REGULARIZERS = {"l1": L1(MU), "l21": L21(MU), "none": Zero()}
LIPSCHITZ = {"l1": MU * np.sqrt(N * P), "l21": MU * np.sqrt(N), "none": 0.0}
each_kind = pytest.mark.parametrize("kind", REGULARIZERS)
each_method = pytest.mark.parametrize("method", CENTRAL)


def make_problem(seed, start="random"):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((N, 40))
    f = SparsePCA(A / np.linalg.norm(A, 2))
    return f, f.leading(P) if start == "leading" else random_point(N, P, rng)


def run(method, f, g, X0, last):
    """The start and as many iterates."""
    return list(islice(CENTRAL[method](f, g, X0), last + 1))


def value(kind, A, X):
    rough = {"l1": np.abs(X).sum(), "l21": np.linalg.norm(X, axis=1).sum(), "none": 0.0}[kind]
    return -(np.linalg.norm(A.T @ X) ** 2) / 2 + MU * rough


def shrunk(kind, X, by):
    """prox of the regularizer, with weight `by`."""
    if kind == "l1":
        return np.sign(X) * np.clip(np.abs(X) - by, 0, None)
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    return X if kind == "none" else X / lengths * np.clip(lengths - by, 0, None)


def smoothed(kind, X, sigma):
    """The Moreau envelope of the regularizer and its gradient: Huber's function of entries or of rows."""
    if kind == "none":
        return 0.0, np.zeros_like(X)
    lengths = np.abs(X) if kind == "l1" else np.linalg.norm(X, axis=1, keepdims=True)
    parts = np.where(lengths <= sigma * MU, lengths**2 / (2 * sigma), MU * lengths - sigma * MU**2 / 2)
    return parts.sum(), X / np.maximum(sigma, lengths / MU)


def orthonormalised(Y):
    squares, Q = np.linalg.eigh(Y.T @ Y)
    return Y @ (Q / np.sqrt(squares)) @ Q.T


def tangential(X, S):
    """The part of S across the columns of X, plus the skew part along them."""
    along = X.T @ S
    return S - X @ along + X @ (along - along.T) / 2


def bend(X, G):
    """The largest eigenvalue of -sym(X'G), or the data's, which is 1."""
    return max(1.0, np.linalg.eigvalsh(-(X.T @ G + G.T @ X) / 2).max())


def tangent_point(kind, A, X, t):
    """ManPG's X + V, by ascent on the dual problem."""
    multiplier, Z = np.zeros((P, P)), X
    for _ in range(3000):
        Z = shrunk(kind, X + t * A @ (A.T @ X) - t * X @ multiplier, t * MU)
        across = X.T @ (Z - X)
        multiplier = multiplier + (across + across.T) / (2 * t)
    return Z


# ---------------------------------------------------------------------- all of them


@each_method
@each_kind
def test_the_start_comes_first_and_all_iterates_are_orthonormal(method, kind):
    f, X0 = make_problem(0)
    path = run(method, f, REGULARIZERS[kind], X0, 150)
    assert np.abs(path[0] - X0).max() < 1e-14
    assert max(np.abs(X.T @ X - np.eye(P)).max() for X in path) < 1e-12
    assert np.linalg.norm(path[1] - path[0]) > 1e-3


@pytest.mark.parametrize(
    ("method", "last", "gap"),
    [
        ("slpg", 300, 1e-12),
        ("manpg", 150, 1e-10),
        ("riemannian-admm", 600, 1e-9),
        ("riemannian-smoothing", 600, 3e-3),
        ("riemannian-subgradient", 600, 3e-3),
    ],
)
@each_kind
@pytest.mark.parametrize("seed", [4, 6])
def test_each_ends_with_the_references_objective_from_the_same_start(method, last, gap, kind, seed):
    """On problems where all find the same stationary point: on others the slower ones may find another."""
    f, X0 = make_problem(seed, "leading" if kind == "l1" else "random")
    star = reference.solve(f, REGULARIZERS[kind], X0, lipschitz=f.lipschitz())
    X = run(method, f, REGULARIZERS[kind], X0, last)[-1]
    assert star.is_precise
    assert value(kind, f.A, X) == pytest.approx(value(kind, f.A, star.X), abs=gap)


@each_method
def test_the_unit_of_the_data_does_not_matter(method):
    f, X0 = make_problem(3)
    plain = run(method, f, L1(MU), X0, 30)[-1]
    scaled = run(method, SparsePCA(1e3 * f.A), L1(1e6 * MU), X0, 30)[-1]
    assert np.abs(plain - scaled).max() < 1e-7


class Linear:
    """f(X) = <C, X>: the Lipschitz constant of its gradient is zero, and only the manifold bends it."""

    def __init__(self, C):
        self.C = C

    def value(self, X):
        return float(np.sum(self.C * X))

    def gradient(self, X):
        assert X.shape == self.C.shape
        return self.C

    def lipschitz(self):
        return 0.0


@each_method
@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_another_objective_is_minimised_too(method, unit):
    rng = np.random.default_rng(5)
    C = unit * rng.standard_normal((N, P))
    X = run(method, Linear(C), Zero(), random_point(N, P, rng), 400)[-1]
    assert np.abs(X + orthonormalised(C)).max() < 1e-5


@each_method
def test_an_objective_without_a_lipschitz_constant_is_refused_by_name(method):
    class Unbounded:
        def value(self, X):
            return float(np.sum(X**4))

        def gradient(self, X):
            return 4 * X**3

    with pytest.raises(ConfigError, match=r"Unbounded has no method lipschitz\(\)"):
        run(method, Unbounded(), L1(MU), make_problem(0)[1], 1)


# ---------------------------------------------------------------------- one by one


@each_kind
def test_an_iteration_of_slpg_is_five_multiplier_steps_and_a_newton_schulz_step(kind):
    f, X0 = make_problem(4)
    t = 1 / max(1.0, LIPSCHITZ[kind])
    D, multiplier, Z = tangential(X0, -f.A @ (f.A.T @ X0)), np.zeros((P, P)), X0
    for _ in range(5):
        Z = shrunk(kind, X0 - t * (D + X0 @ multiplier), t * MU)
        across = X0.T @ (Z - X0)
        multiplier = multiplier + (across + across.T) / (2 * t)
    expected = orthonormalised(1.5 * Z - Z @ (Z.T @ Z) / 2)
    assert np.abs(run("slpg", f, REGULARIZERS[kind], X0, 1)[1] - expected).max() < 1e-13


@each_kind
def test_an_iteration_of_manpg_goes_along_the_minimiser_in_the_tangent_space(kind):
    f, X0 = make_problem(4)
    V = tangent_point(kind, f.A, X0, 1.0) - X0
    expected, a = orthonormalised(X0 + V), 1.0
    while value(kind, f.A, expected) > value(kind, f.A, X0) - a / 2 * np.sum(V * V):
        a /= 2
        expected = orthonormalised(X0 + a * V)
    assert np.abs(run("manpg", f, REGULARIZERS[kind], X0, 1)[1] - expected).max() < 2e-6


class Convex:
    """f(X) = tr(X'AA'X)/2, with a Lipschitz constant that is too small by ten, so that full steps are too long."""

    def __init__(self, A):
        self.A = A

    def value(self, X):
        return float(np.sum((self.A.T @ X) ** 2) / 2)

    def gradient(self, X):
        return self.A @ (self.A.T @ X)

    def lipschitz(self):
        return 0.1


@each_kind
@pytest.mark.parametrize(("make", "residual"), [(SparsePCA, 1e-10), (Convex, 1e-6)])
def test_manpg_decreases_enough_in_every_iteration_and_ends_stationary(kind, make, residual):
    """||X+ - X|| <= a ||V|| and a <= 1, so a/(2t) ||V||^2 is at least ||X+ - X||^2/(2t).

    Where steps are too long, only the objective shows it, and not below the root of its rounding.
    """
    pca, X0 = make_problem(6)
    f, g = make(pca.A), REGULARIZERS[kind]
    path = run("manpg", f, g, X0, 200)
    for X, X_next in pairwise(path):
        least = f.lipschitz() / 2 * np.sum((X_next - X) ** 2)
        assert f.value(X_next) + g.value(X_next) <= f.value(X) + g.value(X) - least + 2e-14
    assert certificate(path[-1], f.gradient(path[-1]), g, 1.0).relative < residual


@each_kind
def test_an_iteration_of_the_subgradient_method_goes_against_a_projected_subgradient(kind):
    f, X0 = make_problem(7)
    path = run("riemannian-subgradient", f, REGULARIZERS[kind], X0, 40)
    for k in (1, 2, 40):
        X = path[k - 1]
        S = -f.A @ (f.A.T @ X) + smoothed(kind, X, 1e-12)[1]
        b = 2 / (1 + LIPSCHITZ[kind] / np.sqrt(P)) * k**-0.75
        assert np.abs(path[k] - orthonormalised(X - b * tangential(X, S))).max() < 3e-8


@each_kind
def test_a_subgradient_step_gets_nearer_to_a_better_point_as_the_subgradient_inequality_says(kind):
    f, X0 = make_problem(8, "leading")
    X_star = reference.solve(f, REGULARIZERS[kind], X0, lipschitz=f.lipschitz()).X
    path = run("riemannian-subgradient", f, REGULARIZERS[kind], X0, 300)
    for k, (X, X_next) in enumerate(pairwise(path), 1):
        S = -f.A @ (f.A.T @ X) + smoothed(kind, X, 1e-12)[1]
        b = 2 / (1 + LIPSCHITZ[kind] / np.sqrt(P)) * k**-0.75
        gap, D = value(kind, f.A, X) - value(kind, f.A, X_star), X_star - X
        weak = (1 + np.linalg.norm(S, 2)) / 2 * np.sum(D * D)
        assert -gap >= np.sum(tangential(X, S) * D) - weak - 1e-9  # the Riemannian subgradient inequality
        most = np.sum(D * D) - 2 * b * (gap - weak) + b**2 * np.sum(tangential(X, S) ** 2)
        assert np.sum((X_next - X_star) ** 2) <= most + 1e-9


@each_kind
def test_the_smoothing_method_decreases_the_smoothed_objective_and_finds_a_small_gradient_in_time(kind):
    f, X0 = make_problem(9)
    sigma = 0.5 / (1 + LIPSCHITZ[kind] / np.sqrt(P)) * np.arange(1, 601) ** (-1 / 3)
    path = run("riemannian-smoothing", f, REGULARIZERS[kind], X0, 600)
    squares, falls, longest = [], [], 0.0
    for X, X_next, s in zip(path, path[1:], sigma, strict=False):
        G = -f.A @ (f.A.T @ X) + smoothed(kind, X, s)[1]
        c = bend(X, G) + (0 if kind == "none" else 1 / s)
        step = tangential(X, G) / c
        assert np.abs(X_next - orthonormalised(X - step)).max() < 1e-12
        ends = [value("none", f.A, Y) + smoothed(kind, Y, s)[0] for Y in (X, X_next)]
        lengths = np.linalg.eigvalsh(step.T @ step)
        assert c * (np.sqrt(1 + lengths) - 1).sum() <= ends[0] - ends[1] + 1e-13
        squares.append(np.sum((c * step) ** 2))
        falls.append(1 / c)
        longest = max(longest, lengths.max())
    low = -np.linalg.eigvalsh(f.A @ f.A.T)[-P:].sum() / 2
    most = value("none", f.A, X0) + smoothed(kind, X0, sigma[0])[0] - low + sigma[0] * LIPSCHITZ[kind] ** 2 / 2
    for k in (10, 100, 600):
        assert min(squares[:k]) <= (1 + np.sqrt(1 + longest)) * most / sum(falls[:k])
    assert min(squares) < 0.1 * min(squares[:10])


@each_kind
@pytest.mark.parametrize("gamma_rho", [2.0, 1e-4])
def test_the_multiplier_of_admm_is_the_gradient_of_the_envelope_at_y(kind, gamma_rho):
    """That says that Y minimises: 0 = gradient of the envelope at Y - L - rho (X - Y)."""
    f, X0 = make_problem(10)
    rho, g = 3.0, REGULARIZERS[kind]
    path = list(islice(admm.states(f, g, X0, rho=rho, gamma=gamma_rho / rho), 50))
    for (X, Y, L), (X_next, Y_next, L_next) in pairwise(path):
        G = -f.A @ (f.A.T @ X) + L + rho * (X - Y)
        step = tangential(X, G) / (bend(X, G) + rho)
        assert np.abs(X_next - orthonormalised(X - step)).max() < 1e-12
        assert np.abs(L_next - L - rho * (X_next - Y_next)).max() < 1e-12
        assert np.abs(L_next - smoothed(kind, Y_next, gamma_rho / rho)[1]).max() < 1e-10


@each_kind
def test_with_strong_smoothing_the_augmented_lagrangian_falls_and_x_and_y_meet(kind):
    f, X0 = make_problem(11)
    rho, gamma = 2.0, 1.0
    path = list(islice(admm.states(f, REGULARIZERS[kind], X0, rho=rho, gamma=gamma), 1500))
    values = [
        value("none", f.A, X) + smoothed(kind, Y, gamma)[0] + np.sum(L * (X - Y)) + rho / 2 * np.sum((X - Y) ** 2)
        for X, Y, L in path[1:]
    ]
    X, Y, L = path[-1]
    assert (np.diff(values) <= 1e-13).all()
    assert np.abs(X - Y).max() < 1e-7
    assert np.abs(tangential(X, L - f.A @ (f.A.T @ X))).max() < 1e-6


@each_kind
def test_with_its_own_parameters_admm_gets_x_and_y_together(kind):
    f, X0 = make_problem(12)
    rho = 2 * (1 + LIPSCHITZ[kind] / np.sqrt(P))
    path = list(islice(admm.states(f, REGULARIZERS[kind], X0, rho=rho, gamma=1e-8 / rho), 1501))
    assert np.abs(path[1500][0] - run("riemannian-admm", f, REGULARIZERS[kind], X0, 1500)[-1]).max() < 1e-6
    assert np.abs(path[1500][0] - path[1500][1]).max() < 1e-6
    assert np.abs(path[1][0] - path[1][1]).max() > 1e-3 or kind == "none"
