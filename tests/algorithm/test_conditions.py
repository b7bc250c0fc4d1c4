from dataclasses import asdict, replace
from math import cos, pi, sqrt

import pytest
from networks import make_instance

from thanos_peer.algorithm.conditions import Constants, beta_bound, eta_bound, gradient_radius
from thanos_peer.problem import proven_parameters

SMALL = Constants(d=2, p=1, L_f=1.0, L_g=0.5, M_f=2.0, sigma=0.1, lambda_=0.5)


def bounds_as_printed(*, d, p, L_f, L_g, M_f, sigma, lambda_, beta):
    """Condition 1, typed from the paper once more."""
    M_g = 3 * (M_f + L_g) * (7 * d * p + 6 * d + 3) / 6
    beta_above = max(
        (6 + 21 * (M_f + L_g)) / 5, 72 * (4 + 3 * M_g) / 5, 1 / (7 * d * p + 6 * d), 22 * (L_f + 1 / sigma) ** 2
    )
    L_r = 7 * d * p * (L_f + 1 / sigma) + 6 * d + 3
    return beta_above, d * (1 - lambda_**2) / (48 * (L_r + (7 * d * p + 6 * d) * beta) ** 2)


def test_the_radius_is_the_papers():
    assert gradient_radius(6, 7) == 7 + sqrt(6)


def test_with_a_small_sigma_the_smoothed_curvature_decides_beta():
    assert beta_bound(SMALL) == pytest.approx(22 * 11**2)


def test_with_a_large_sigma_the_size_of_the_gradients_decides_beta():
    assert beta_bound(replace(SMALL, sigma=1.0)) == pytest.approx(72 * (4 + 3 * 36.25) / 5)


def test_the_step_bound_by_hand():
    assert eta_bound(SMALL, beta=10.0) == pytest.approx(1.5 / (48 * (169 + 260) ** 2))


@pytest.mark.parametrize(
    "c",
    [
        SMALL,
        Constants(d=32, p=3, L_f=0.1, L_g=0.02, M_f=1.7, sigma=0.07, lambda_=0.4),
        Constants(d=1, p=1, L_f=0.0, L_g=0.0, M_f=0.0, sigma=5.0, lambda_=0.0),
        Constants(d=8, p=5, L_f=320.0, L_g=1.0, M_f=9e3, sigma=10.0, lambda_=0.99),
    ],
)
def test_both_bounds_are_those_of_the_paper(c):
    beta = beta_bound(c)
    expected = bounds_as_printed(**asdict(c), beta=beta)
    assert (beta, eta_bound(c, beta)) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    "harder",
    [{"d": 4}, {"p": 2}, {"L_g": 5.0}, {"M_f": 40.0}, {"sigma": 0.01}, {"L_f": 3.0}],
    ids=lambda change: next(iter(change)),
)
@pytest.mark.parametrize("base", [SMALL, replace(SMALL, sigma=1.0)], ids=["small-sigma", "large-sigma"])
def test_a_harder_problem_never_allows_a_smaller_beta_nor_with_it_a_longer_step(base, harder):
    changed = replace(base, **harder)
    assert beta_bound(changed) >= beta_bound(base)
    assert eta_bound(changed, beta_bound(changed)) <= eta_bound(base, beta_bound(base))


def test_a_worse_connected_network_or_a_larger_beta_asks_for_a_shorter_step():
    assert eta_bound(replace(SMALL, lambda_=0.9), 10.0) < eta_bound(SMALL, 10.0)
    assert eta_bound(replace(SMALL, sigma=0.05), 10.0) < eta_bound(SMALL, 10.0)
    assert eta_bound(SMALL, 20.0) < eta_bound(SMALL, 10.0)
    assert eta_bound(replace(SMALL, lambda_=1.0), 10.0) == 0


def test_a_networks_proven_parameters_are_the_bounds_for_its_own_constants():
    instance = make_instance(family="ring", d=5, n=6, p=2, mu=0.1, regularizer="l1", sigma=0.5)
    L_f = max(local.f.lipschitz() for local in instance.local_problems)
    radius = sqrt(7 * 5 * 2 / 6) + sqrt(5)
    lambda_ = (1 + 2 * cos(2 * pi / 5)) / 3  # of a ring of five
    beta, eta = proven_parameters(instance)
    expected = bounds_as_printed(
        d=5, p=2, L_f=L_f, L_g=0.02 * sqrt(12), M_f=L_f * radius, sigma=0.5, lambda_=lambda_, beta=beta
    )
    assert (beta, eta) == pytest.approx(expected, rel=1e-12)
