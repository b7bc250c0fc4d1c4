import numpy as np
import pytest

from thanos_peer.algorithm.measures import (
    Stationarity,
    WholeProblem,
    certificate,
    consensus_error,
    distance,
    feasibility,
)
from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.algorithm.regularizers import L1, L21, Zero
from thanos_peer.algorithm.stiefel import random_point

N, P = 6, 2


class Pull:
    """f(X) = ||X - T||_F^4 / 4: no sparse PCA at all."""

    def __init__(self, T):
        self.T = T

    def value(self, X):
        return float(np.sum((X - self.T) ** 2) ** 2 / 4)

    def gradient(self, X):
        return np.sum((X - self.T) ** 2) * (X - self.T)


class Ball:
    """g(X) = weight * ||X||_F, whose prox shortens the whole matrix."""

    def __init__(self, weight):
        self.weight = weight

    def value(self, X):
        return self.weight * float(np.linalg.norm(X))

    def prox(self, X, sigma):
        return X * max(0.0, 1 - sigma * self.weight / np.linalg.norm(X))

    def lipschitz(self, n, p):
        assert n >= p
        return self.weight


@pytest.fixture
def rng():
    return np.random.default_rng(2)


def agents_of(kind, rng):
    """Four agents' (f_i, g_i)."""
    pcas = [SparsePCA(rng.standard_normal((N, m))) for m in (2, 5, 3, 9)]
    pulls = [Pull(rng.standard_normal((N, P))) for _ in range(4)]
    shared, mixed = [L1(0.3)] * 4, [L1(0.3), L21(0.2), Zero(), Ball(0.7)]
    return {
        "sparse PCA, one g": (pcas, shared),
        "sparse PCA, equal g that are not the same object": (pcas, [L21(0.3) for _ in range(4)]),
        "sparse PCA, different g": (pcas, mixed),
        "objectives of one's own": (pulls, [Ball(0.1 * i) for i in range(1, 5)]),
        "objectives of all kinds": ([*pcas[:2], *pulls[:2]], mixed),
    }[kind]


each_network = pytest.mark.parametrize(
    "kind",
    [
        "sparse PCA, one g",
        "sparse PCA, equal g that are not the same object",
        "sparse PCA, different g",
        "objectives of one's own",
        "objectives of all kinds",
    ],
)


def test_distance_feasibility_and_consensus_are_means_and_a_maximum_over_agents(rng):
    X, X_star = rng.standard_normal((5, N, P)), rng.standard_normal((N, P))
    mean = sum(X) / 5
    assert distance(X, X_star) == pytest.approx(sum(np.linalg.norm(X_i - X_star) for X_i in X) / 5)
    assert feasibility(X) == pytest.approx(sum(np.linalg.norm(X_i.T @ X_i - np.eye(P)) for X_i in X) / 5)
    assert consensus_error(X) == pytest.approx(max(np.linalg.norm(X_i - mean) for X_i in X))


def test_agents_that_agree_on_a_point_of_the_manifold_have_no_error(rng):
    X_star = random_point(N, P, rng)
    X = np.stack([X_star] * 4)
    assert distance(X, X_star) == 0
    assert consensus_error(X) < 1e-15
    assert feasibility(X) < 1e-14


@each_network
def test_the_whole_value_is_the_sum_over_agents(rng, kind):
    fs, gs = agents_of(kind, rng)
    X = random_point(N, P, rng)
    expected = sum(f.value(X) + g.value(X) for f, g in zip(fs, gs, strict=True))
    assert WholeProblem.of(fs, gs).value(X) == pytest.approx(expected, rel=1e-13)


@each_network
@pytest.mark.parametrize("sigma", [0.1, 1.0, 4.0])
def test_stationarity_is_the_three_quantities_of_definition_3_summed_agent_by_agent(rng, kind, sigma):
    fs, gs = agents_of(kind, rng)
    X = 1.1 * random_point(N, P, rng)
    G = np.zeros_like(X)
    gaps = []
    for f, g in zip(fs, gs, strict=True):
        Y_i = g.prox(X, sigma)
        G += f.gradient(X) + (X - Y_i) / sigma
        gaps.append(np.linalg.norm(X - Y_i))
    projected = G - X @ (X.T @ G + G.T @ X) / 2
    found = WholeProblem.of(fs, gs).stationarity(X, sigma)
    assert found.gradient == pytest.approx(np.linalg.norm(projected), rel=1e-12)
    assert found.prox_gap == pytest.approx(max(gaps), rel=1e-12)
    assert found.infeasibility == pytest.approx(np.linalg.norm(X.T @ X - np.eye(P)))


@pytest.mark.parametrize("largest", ["gradient", "prox_gap", "infeasibility"])
def test_epsilon_is_the_largest_of_the_three(largest):
    values = {"gradient": 0.1, "prox_gap": 0.2, "infeasibility": 0.15} | {largest: 0.5}
    assert Stationarity(**values).epsilon == 0.5


@each_network
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 2.0])
def test_a_sigma_of_at_most_epsilon_over_2_l_g_keeps_the_prox_gap_below_epsilon(rng, kind, epsilon):
    fs, gs = agents_of(kind, rng)
    sigma = epsilon / (2 * max(g.lipschitz(N, P) for g in gs))
    found = [WholeProblem.of(fs, gs).stationarity(rng.standard_normal((N, P)), sigma) for _ in range(20)]
    assert all(0 < each.prox_gap <= epsilon for each in found)


def test_a_stationary_point_of_the_smoothed_problem_is_certified_with_such_a_sigma(rng):
    X, epsilon = np.eye(N)[:, :1], 1e-6
    g = L1(0.5)
    sigma = epsilon / (2 * g.lipschitz(N, 1))
    problem = WholeProblem.of([SparsePCA(np.diag(rng.uniform(1, 2, N)))], [g])
    assert problem.stationarity(X, sigma).epsilon <= epsilon
    assert problem.stationarity(X, 100 * sigma).epsilon > epsilon
    assert problem.stationarity(random_point(N, 1, rng), sigma).epsilon > epsilon


def test_a_strict_certificate_does_not_take_a_tiny_entry_for_a_zero():
    A, g = np.diag([3.0, 1.0]), L1(0.1)
    f, X = SparsePCA(A), np.array([[np.cos(1e-7)], [-np.sin(1e-7)]])
    G = f.gradient(X)
    assert certificate(X, G, g, 9.0).distance < 1e-5
    # At the tiny entry the subgradient is -0.1, and 0 is wanted.
    strict = certificate(X, G, g, 9.0, is_strict=True).distance
    assert strict == pytest.approx(0.1, rel=1e-3)
    zero = np.array([[1.0], [0.0]])
    assert certificate(zero, f.gradient(zero), g, 9.0, is_strict=True).distance < 1e-15
