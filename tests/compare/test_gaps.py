import math

import pytest
from compare.runs_by_hand import record, result, trial, wandering

from thanos_peer.compare.gaps import ANOTHER_POINT, BEST_POINT, NOT_STATIONARY, Cost, JudgedRun, results
from thanos_peer.compare.records import DIVERGED, Record, Yardstick

NEVER = Cost(math.inf, math.inf, math.inf, math.inf)


def test_what_it_took_is_what_had_been_sent_when_the_gap_was_below_for_the_first_time():
    run = result([-0.5, -0.9801, -0.97, -0.99990, -1.0])  # gaps 0.25, 0.00995, 0.015, 5e-5, 0
    assert run.cost(1e-2) == Cost(20, 160, 2000, 0.2)
    assert run.cost(1e-4) == Cost(40, 320, 4000, 0.4)
    assert run.cost(1e-8) == Cost(50, 400, 5000, 0.5)
    assert run.final_gap == 0


def test_a_gap_that_was_never_reached_takes_for_ever():
    run = wandering()
    assert run.cost(1e-2) == NEVER
    assert run.final_gap == pytest.approx(0.05)


def test_a_centralised_method_sends_nothing():
    alone = record([-0.99, -1.0], messages_per_round=None, payload=None)
    run = JudgedRun(trial("slpg", is_central=True), alone, -1.0, 2.0)
    better = JudgedRun(run.trial, run.record, -1.1, 2.0)
    assert (run.cost(1e-8).rounds, run.cost(1e-8).seconds) == (20, 0.2)
    assert (better.cost(1e-8).rounds, better.cost(1e-8).seconds) == (math.inf, math.inf)
    for cost in (run.cost(1e-8), better.cost(1e-8)):
        assert math.isnan(cost.messages)
        assert math.isnan(cost.payload)


@pytest.mark.parametrize(
    ("objective", "residual", "ending"),
    [
        (-1.0, 1e-11, BEST_POINT),
        (-1.0, 1.1e-9, BEST_POINT),  # whatever tolerance the method goes by
        (-0.9, 1e-11, ANOTHER_POINT),
        (-0.9, 3e-8, ANOTHER_POINT),
        (-0.9, 1e-3, NOT_STATIONARY),
        (-1.0, 1.1e-6, NOT_STATIONARY),
        (-1.0, math.nan, NOT_STATIONARY),
        # The run is on its way to the same point.
        (-1.0 + 1e-7, 1e-7, BEST_POINT),
        (-1.0 + 1e-9, 1e-12, BEST_POINT),
    ],
)
def test_a_stationary_point_that_is_not_the_best_one_is_named_and_no_failure(objective, residual, ending):
    run = result([objective], residual=residual)
    assert run.ending == ending
    assert run.has_failed == (ending == NOT_STATIONARY)


def test_the_best_of_a_problem_is_that_of_its_reference_and_of_the_ends_of_its_runs():
    pairs = [
        # What a run has passed on its way does not count.
        (trial(), record([-1.5, -1.0])),
        (trial("gram"), record([-1.2])),
        (trial("thanos"), Record("digest", DIVERGED, "too far")),
        (trial(seed=2), record([-7.0])),
    ]
    rulers = {1: Yardstick("a", -1.1, 1e-12, 2.0), 2: Yardstick("b", -8.0, 1e-11, 4.0)}
    found = results(pairs, {each.problem: [rulers[each.seed]] for each, _ in pairs})
    assert [(run.best, run.scale) for run in found] == [(-1.2, 2.0)] * 3 + [(-8.0, 4.0)]
    assert found[2].ending == DIVERGED
    assert found[2].has_failed
    assert found[2].final_gap is None
    assert found[2].cost(1e-2) == NEVER


def test_other_objectives_are_measured_by_the_best_value():
    (found,) = results([(trial(), record([-4.0]))], {trial().problem: [Yardstick("a", None, None, None)]})
    assert (found.best, found.scale) == (-4.0, 4.0)


def test_runs_of_another_problem_are_not_compared():
    other = trial(**{"problem.mu": 0.5})
    pairs = [(trial(), record([-1.0])), (other, record([-3.0]))]
    found = results(pairs, {each.problem: [Yardstick("a", None, None, 1.0)] for each, _ in pairs})
    assert [run.best for run in found] == [-1.0, -3.0]
