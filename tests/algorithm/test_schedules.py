from itertools import pairwise

import numpy as np
import pytest

from thanos_peer.algorithm.schedules import (
    BarzilaiBorwein,
    ConstantSmoothing,
    ConstantStep,
    DecreasingSmoothing,
)


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def test_constant_smoothing_is_the_same_in_every_round():
    assert {ConstantSmoothing(0.3).sigma(k) for k in (0, 1, 10, 10**6)} == {0.3}


def test_decreasing_smoothing_is_sigma0_times_a_power_of_the_round():
    rule = DecreasingSmoothing(sigma0=2.0, exponent=1 / 3)
    assert rule.sigma(1) == 2.0
    assert rule.sigma(8) == pytest.approx(1.0)
    assert rule.sigma(1000) == pytest.approx(0.2)
    assert DecreasingSmoothing(1.0, 0.5).sigma(16) == pytest.approx(0.25)


def test_round_0_is_smoothed_as_round_1():
    rule = DecreasingSmoothing(sigma0=0.7, exponent=0.4)
    assert rule.sigma(0) == rule.sigma(1) == 0.7


def test_decreasing_smoothing_decreases_and_stays_positive():
    values = [DecreasingSmoothing(1.0, 1 / 3).sigma(k) for k in range(1, 2000)]
    assert all(a > b > 0 for a, b in pairwise(values))


def test_a_constant_step_does_not_look_at_the_moves(rng):
    rule = ConstantStep(0.25)
    assert rule.first == 0.25
    assert rule.eta(*rng.standard_normal((2, 4, 2))) == 0.25
    assert rule.eta(*rng.standard_normal((2, 3, 4, 2))).tolist() == [0.25] * 3


def test_the_bb_step_is_the_short_one(rng):
    S, J = rng.standard_normal((2, 4, 2))
    rule = BarzilaiBorwein(0.1)
    assert rule.first == 0.1
    assert rule.eta(S, J) == pytest.approx(abs(np.trace(S.T @ J)) / np.linalg.norm(J) ** 2)
    assert rule.eta(-S, J) == rule.eta(S, J)
    assert (
        rule.eta(S, J) <= np.linalg.norm(S) / np.linalg.norm(J) <= np.linalg.norm(S) ** 2 / abs(np.trace(S.T @ J))
    )


def test_the_bb_step_finds_the_inverse_curvature_of_a_quadratic(rng):
    S = rng.standard_normal((4, 2))
    assert BarzilaiBorwein(0.1).eta(S, 8 * S) == pytest.approx(1 / 8)


@pytest.mark.parametrize("J", [np.zeros((3, 2)), np.full((3, 2), 1e-200)])
def test_a_bb_step_without_curvature_falls_back_to_the_first(J):
    assert BarzilaiBorwein(0.1).eta(np.ones((3, 2)), J) == 0.1


def test_in_a_stack_only_agents_without_curvature_fall_back_and_all_get_the_bits_they_would_get_alone(rng):
    S, J = rng.standard_normal((2, 4, 5, 3))
    J[[0, 2]] = 0
    rule = BarzilaiBorwein(0.1)
    eta = rule.eta(S, J)
    assert eta.shape == (4,)
    assert eta[[0, 2]].tolist() == [0.1, 0.1]
    assert eta.tolist() == [float(rule.eta(*pair)) for pair in zip(S, J, strict=True)]
    assert 0.1 not in eta[[1, 3]]


def test_a_bb_step_is_bounded_where_a_bound_is_given(rng):
    S = rng.standard_normal((2, 4, 2))
    J = np.array([8 * S[0], 0.5 * S[1]])
    assert BarzilaiBorwein(0.1, most=1.0).eta(S, J).tolist() == [pytest.approx(1 / 8), 1.0]
    assert BarzilaiBorwein(0.1, most=1.0).eta(S[1], J[1]) == 1.0
    assert BarzilaiBorwein(0.1).eta(S[1], J[1]) == pytest.approx(2)
