"""From the largest useful weight on, components of a single feature or group are as good as any, or stationary."""

import numpy as np
import pytest

from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.algorithm.regularizers import REGULARIZERS
from thanos_peer.algorithm.search import answer, begin, go_on
from thanos_peer.algorithm.stiefel import random_point
from thanos_peer.launch.independent import worth_of

N = 8
GROUPS = [[0, 3], [1, 4, 5]]


def samples(seed):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((N, 2)) @ rng.standard_normal((2, 30)) + 0.3 * rng.standard_normal((N, 30))
    return A / np.linalg.norm(A, 2)


def weighted(name, mu):
    return REGULARIZERS[name].make(mu, {"groups": GROUPS} if name == "group-l21" else {}, n=N)


@pytest.mark.parametrize("seed", range(5))
def test_with_l1_no_component_is_better_than_the_largest_feature_and_below_one_may_be(seed):
    A = samples(seed)
    C, f = A @ A.T, SparsePCA(A)
    largest = weighted("l1", 1.0).largest_useful(np.diag(C), 1.0, 1)

    def ahead(mu):
        """By how much the best of many stationary points is better than the best single feature."""
        g, start = weighted("l1", mu), np.linalg.eigh(C)[1][:, -1:]
        starts = [start, *(random_point(N, 1, np.random.default_rng(each)) for each in range(20))]
        found = [answer(go_on(begin(X), f, g, 1e-10))[0] for X in starts]
        return mu - np.diag(C).max() / 2 - min(f.value(X) + g.value(X) for X in found)

    assert ahead(largest) <= 1e-12
    assert ahead(largest / 4) > 1e-3


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("name", ["l1", "l21", "group-l21"])
def test_the_largest_features_are_stationary(name, p):
    A = samples(p)
    squares = np.diag(A @ A.T)
    mu = weighted(name, 1.0).largest_useful(squares, 1.0, p)
    X = np.zeros((N, p))
    # A feature of no group, or of another one, for each component.
    X[[2, 6, 7][:p], range(p)] = 1.0
    groups = GROUPS if name == "group-l21" else ()
    assert worth_of(A, X, name, mu, groups).residual < 1e-12
    assert worth_of(A, X, name, mu / 30, groups).residual > 1e-3


def test_the_largest_useful_weight_grows_with_the_unit_of_the_samples():
    squares = np.array([1.0, 3.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    for name in ("l1", "l21", "group-l21"):
        one, other = (weighted(name, 1.0).largest_useful(unit * squares, unit * 5.0, 2) for unit in (1.0, 7.0))
        assert other == pytest.approx(7 * one)
    assert weighted("group-l21", 1.0).largest_useful(squares, 5.0, 1) == pytest.approx((25**0.5 + 5.0) / 2)
    assert weighted("l1", 1.0).largest_useful(squares, 5.0, 1) == pytest.approx((15**0.5 + 3.0) / 2)
