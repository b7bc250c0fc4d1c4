"""Several starts in one run: all agents keep the best answer."""

import numpy as np
import pytest
from networks import make_instance, make_topology, raw_topology

from thanos_peer.algorithm.solving import rank
from thanos_peer.rules import restart_of
from thanos_peer.simulate import AgentNetwork, StackedNetwork

STARTS = 4
METHODS = ("gram", "proximal")


def problem(method, **algorithm):
    """A weight so strong that there are several stationary points, of which the leading vectors find a bad one."""
    raw = raw_topology("path", 3, n=8, p=2, samples=60, mu=0.3, seed=3, method=method)
    raw["algorithm"].update(algorithm)
    return raw


def run(raw, engine=StackedNetwork, **place):
    instance = make_instance(raw, **place)
    network = engine(instance)
    while not network.is_done:
        network.advance()
    return instance.whole.value(network.X[0]), network


@pytest.mark.parametrize("method", METHODS)
def test_the_best_of_all_starts_is_kept_and_is_what_that_start_finds_alone(tmp_path, method):
    alone = [run(problem(method))]
    for number in range(1, STARTS):
        start = restart_of(make_topology(problem(method)), number)
        assert np.abs(start.T @ start - np.eye(2)).max() < 1e-12
        np.save(tmp_path / "x.npy", start)
        raw = problem(method, start={"kind": "file", "path": "x.npy"})
        alone.append(run(raw, file=tmp_path / "net.toml"))
    objective, together = run(problem(method, restarts=STARTS))
    found, best = min(alone, key=lambda each: each[0])
    assert objective == pytest.approx(found, abs=1e-9)
    assert np.abs(together.X[0] - best.X[0]).max() < 1e-6
    assert ((together.X[0] != 0) == (best.X[0] != 0)).all()
    assert objective < alone[0][0] - 1e-3  # one start would have missed it
    assert all(each.has_converged for _, each in [*alone, (objective, together)])


@pytest.mark.parametrize("method", METHODS)
def test_all_agents_of_both_engines_have_the_same_bits_after_several_starts(method):
    raw = problem(method, restarts=STARTS)
    (_, agents), (_, stacked) = run(raw, AgentNetwork), run(raw)
    assert {X.tobytes() for X in agents.X} == {stacked.X[0].tobytes()}
    assert agents.rounds_by_phase == stacked.rounds_by_phase
    rounds = run(problem(method))[1].rounds_by_phase[method]
    # The root of gram has all it needs for more starts.
    assert (agents.rounds_by_phase[method] > rounds) == (method == "proximal")


def test_with_no_time_for_another_start_the_answer_of_the_first_stays():
    objective, one = run(problem("proximal"))
    rounds = one.rounds_by_phase["proximal"]
    cut, several = run(problem("proximal", restarts=STARTS, max_rounds=rounds + 4))
    assert several.rounds_by_phase["proximal"] == rounds + 4
    assert several.has_converged
    assert cut == objective
    assert several.X.tobytes() == one.X.tobytes()


def test_the_starts_are_other_ones_for_another_seed():
    one, other = (
        make_topology(problem("gram", start={"kind": "leading", "seed": seed}, restarts=2)) for seed in (1, 2)
    )
    assert not np.allclose(restart_of(one, 1), restart_of(other, 1))
    assert not np.allclose(restart_of(one, 1), restart_of(one, 2))
    assert restart_of(one, 1).tobytes() == restart_of(one, 1).tobytes()
    assert one.digest != make_topology(problem("gram", start={"kind": "leading", "seed": 1})).digest


def test_of_several_answers_those_that_have_converged_go_before():
    answers = [(1e-3, -9.0), (1e-12, -2.0), (1e-11, -3.0), (np.inf, -10.0), (np.nan, -11.0)]
    assert min(answers, key=lambda each: rank(*each, 1e-10)) == (1e-11, -3.0)
    assert min(answers[:1] + answers[3:], key=lambda each: rank(*each, 1e-10))[1] == -11.0
