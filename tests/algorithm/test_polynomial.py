import math
from itertools import combinations

import numpy as np
import pytest
from oracle import metropolis

from thanos_peer.algorithm.polynomial import (
    amplification,
    best_polynomial,
    chebyshev_roots,
    chebyshev_rounds,
    distinct_eigenvalues,
    factor,
    left_over,
    leja_order,
    roots,
    steady_order,
)
from thanos_peer.topology import families


def barbell(d):
    half = list(combinations(range(d // 2), 2))
    return [*half, *((i + d // 2, j + d // 2) for i, j in half), (d // 2 - 1, d // 2)]


GRAPHS = {
    "star": (32, families.star(32)),
    "barbell": (16, barbell(16)),
    "ring": (32, families.ring(32)),
    "path": (16, families.path(16)),
    "torus": (32, families.torus(32, 8)),
    "grid": (32, families.grid(32, 8)),
    "tree": (31, families.tree(31)),
    "erdos-renyi": (32, families.erdos_renyi(32, 0.5, 5)),
}


def mixing(name):
    return metropolis(*GRAPHS[name])


def in_rounds(W, chosen, x):
    """A round for each root, with what a round has: the mixed numbers and one's own."""
    for u in chosen:
        x = factor(u, W @ x, x)
    return x


def least_error(points, k):
    """Of all polynomials of degree k that are 1 at 1: by duality the largest of the least errors on k + 1 points.

    On k + 1 points it is 1/sum_j |l_j(1)|, with Lagrange's l_j.
    """
    return max(
        1 / sum(abs(math.prod((1 - u) / (v - u) for u in some if u != v)) for v in some)
        for some in combinations(points, k + 1)
    )


@pytest.mark.parametrize(
    ("name", "exact", "chebyshev"),
    [
        ("star", 2, 99),
        ("barbell", 4, 122),
        ("ring", 16, 180),
        ("path", 15, 179),
        ("torus", 10, 64),
        ("grid", 31, 116),
        ("tree", 14, 202),
        ("erdos-renyi", 31, 21),
    ],
)
def test_both_polynomials_average_to_rounding_in_as_many_rounds_as_the_table_says(name, exact, chebyshev):
    W = mixing(name)
    spectrum = distinct_eigenvalues(W)
    low, high = spectrum[0], spectrum[-1]
    assert len(roots(W)) == exact
    assert chebyshev_rounds(low, high, 1e15) == chebyshev
    for chosen in (roots(W), chebyshev_roots(low, high, chebyshev), best_polynomial(spectrum, 1e15).all_roots):
        assert np.abs(in_rounds(W, chosen, np.eye(len(W))) - 1 / len(W)).max() < 1e-12


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_left_of_random_numbers_is_rounding_and_their_mean_stays(name):
    W = mixing(name)
    x = np.random.default_rng(1).standard_normal((len(W), 5))
    averaged = in_rounds(W, roots(W), x)
    assert np.abs(averaged - x.mean(axis=0)).max() < 1e-12


def test_in_sorted_order_rounding_is_far_larger_than_in_leja_order():
    W = metropolis(64, families.path(64))
    spectrum = distinct_eigenvalues(W)
    eye = np.eye(64)
    in_leja, in_sorted = (np.abs(in_rounds(W, each, eye) - 1 / 64).max() for each in (roots(W), spectrum))
    assert in_leja < 1e-12
    assert in_sorted > 1e-3


def test_leja_order_is_a_permutation_that_begins_with_the_smallest_and_then_the_farthest():
    values = np.array([-0.3, -0.2, 0.1, 0.5, 0.9])
    order = leja_order(values)
    assert sorted(order) == values.tolist()
    assert order[:2] == (-0.3, 0.9)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("rounds", [1, 3, 8])
def test_chebyshevs_polynomial_leaves_no_more_than_one_over_cosh(name, rounds):
    spectrum = distinct_eigenvalues(mixing(name))
    low, high = spectrum[0], spectrum[-1]
    z = (2 - low - high) / (high - low)
    bound = 1 / math.cosh(rounds * math.acosh(z))
    assert left_over(spectrum, chebyshev_roots(low, high, rounds)) <= bound * (1 + 1e-12)


@pytest.mark.parametrize("name", ["star", "barbell", "torus"])
def test_the_best_polynomial_has_the_fewest_roots_that_any_polynomial_can_have(name):
    spectrum = distinct_eigenvalues(mixing(name))
    errors = [1.0, *(least_error(spectrum, k) for k in range(1, len(spectrum))), 0.0]
    for shrink in (1.5, 3.0, 6.0, 60.0, 1e3, 1e6):
        chosen = best_polynomial(spectrum, shrink).all_roots
        assert len(chosen) == next(k for k, error in enumerate(errors) if error <= 1 / shrink)
        assert left_over(spectrum, chosen) == pytest.approx(errors[len(chosen)], rel=1e-7, abs=1e-14)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("shrink", [6.0, 1e3, 1e15])
def test_the_best_polynomial_needs_no_more_rounds_than_the_two_others_and_does_what_it_says(name, shrink):
    W = mixing(name)
    spectrum = distinct_eigenvalues(W)
    chosen = best_polynomial(spectrum, shrink).all_roots
    assert len(chosen) <= min(len(spectrum), chebyshev_rounds(spectrum[0], spectrum[-1], shrink))
    assert left_over(spectrum, chosen) <= (1 + 1e-8) / shrink
    left = np.linalg.norm(in_rounds(W, chosen, np.eye(len(W))) - 1 / len(W), 2)
    assert left <= 1.001 / shrink + 1e-11


def test_where_eigenvalues_crowd_the_best_polynomial_needs_far_fewer_rounds_than_the_two_others():
    spectrum = distinct_eigenvalues(metropolis(100, families.geometric(100, 0.2, 0)))
    assert len(spectrum) == 99
    assert chebyshev_rounds(spectrum[0], spectrum[-1], 1e15) == 131
    assert len(best_polynomial(spectrum, 1e15).all_roots) == 46


def test_one_agent_or_nothing_to_shrink_takes_no_round_and_equal_eigenvalues_take_one():
    assert roots(np.ones((1, 1))) == best_polynomial(distinct_eigenvalues(np.ones((1, 1))), 6.0).all_roots == ()
    spectrum = distinct_eigenvalues(mixing("ring"))
    assert best_polynomial(spectrum, 1.0).all_roots == ()
    assert chebyshev_rounds(spectrum[0], spectrum[-1], 1.0) == 0
    complete = metropolis(8, families.complete(8))
    assert len(roots(complete)) == len(best_polynomial(distinct_eigenvalues(complete), 1e15).all_roots) == 1
    assert chebyshev_rounds(0.0, 0.0, 1e15) == 1


def test_a_graph_in_two_parts_is_refused():
    with pytest.raises(ValueError, match="connected"):
        roots(metropolis(4, [(0, 1), (2, 3)]))


def random_tree(d, seed):
    rng = np.random.default_rng(seed)
    return [(int(rng.integers(i)), i) for i in range(1, d)]


STEADY = {
    "path": families.path(32),
    "binary tree": families.tree(32),
    "random tree": random_tree(32, 3),
    "larger random tree": random_tree(100, 1),
    "barbell": barbell(32),
}


@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize("name", STEADY)
def test_rounding_is_not_multiplied_on_graphs_whose_eigenvalues_crowd(name, level):
    d = 1 + max(map(max, STEADY[name]))
    W = metropolis(d, STEADY[name])
    shrink = 6 * 4**level * d  # as unequal as agents can be
    chosen = best_polynomial(distinct_eigenvalues(W), shrink)
    same = np.tile(np.random.default_rng(1).standard_normal(50), (d, 1))
    assert np.ptp(in_rounds(W, chosen.all_roots, same), axis=0).max() < 2e-11
    apart = np.random.default_rng(2).standard_normal((d, 50))
    left = np.linalg.norm(in_rounds(W, chosen.all_roots, apart) - apart.mean(axis=0), axis=0)
    assert (left <= 1.001 * np.linalg.norm(apart, axis=0) / shrink + 1e-9).all()


def test_the_steady_order_is_a_permutation_whose_first_and_last_factors_multiply_little():
    spectrum = distinct_eigenvalues(metropolis(32, random_tree(32, 3)))
    order = steady_order(spectrum, spectrum)
    assert sorted(order) == spectrum.tolist()
    some = [order[:k] for k in range(1, len(order))] + [order[k:] for k in range(len(order))]
    products = [abs(math.prod((v - u) / (1 - u) for u in each)) for each in some for v in spectrum]
    assert amplification(spectrum, order) == pytest.approx(max(products))
    assert max(products) < 1e-3 * amplification(spectrum, leja_order(spectrum))
