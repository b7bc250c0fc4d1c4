"""The guard of proximal gradient tracking, and what mixing keeps, with agents that really mix."""

import tomllib
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from networks import make_instance, raw_topology

import thanos_peer
from thanos_peer.agent import Agent
from thanos_peer.algorithm import proximal_tracking
from thanos_peer.algorithm.proximal_tracking import ALARM_LEVELS, SHORTEST, TrackingState
from thanos_peer.simulate import AgentNetwork, StackedNetwork

# Iterations between two looks of the guard: few, so that tests are quick.
WATCH = 8
TOPOLOGIES = Path(__file__).parents[2] / "topologies"
NAMES = [field.name for field in fields(TrackingState)]


@pytest.fixture
def instance(monkeypatch):
    """A path of six that never ends by itself, and a guard that looks often, at rounding too."""
    monkeypatch.setattr(proximal_tracking, "WATCH", WATCH)
    monkeypatch.setattr(proximal_tracking, "FLOOR", 0.0)
    raw = raw_topology("path", 6, n=5, p=2, method="proximal-tracking")
    raw["algorithm"] |= {"tolerance": 0.0, "max_rounds": 3000}
    return make_instance(raw)


def begun(engine, instance):
    network = engine(instance)
    while network.is_preparing:
        network.advance()
    return network


def states(network):
    return [agent.runner.state for agent in network.agents]


def numbers(network, name):
    return [float(getattr(state, name)) for state in states(network)]


def to_iteration(network, iteration, *, at=0, is_second=0):
    """Advance to the first round of an iteration, or to a later one of it."""
    wanted = {"iteration": iteration, "at": at, "is_second": is_second}
    while any(numbers(network, name)[0] != value for name, value in wanted.items()):
        network.advance()


def with_level(network, level):
    """As after so many alarms."""
    for agent in network.agents:
        agent.runner.state = replace(agent.runner.state, level=np.asarray(float(level)))


def bits(network):
    return {name: network.array(name).tobytes() for name in NAMES}


@pytest.mark.parametrize("origin", [0, 3])
def test_an_alarm_is_with_all_agents_before_any_acts_on_it(instance, origin):
    network = begun(AgentNetwork, instance)
    to_iteration(network, WATCH)  # the first look
    assert numbers(network, "alarm") == [0.0] * 6
    state = network.agents[origin].runner.state
    network.agents[origin].runner.state = replace(state, alarm=np.asarray(1.0))
    heard = []
    while numbers(network, "level") == [0.0] * 6:
        network.advance()
        heard.append(sum(numbers(network, "alarm")))
    assert heard[:-1] == sorted(heard[:-1])
    assert heard[-2] == 6
    assert numbers(network, "iteration") == [2 * WATCH] * 6
    assert numbers(network, "level") == [1.0] * 6
    assert heard[-1] == 0


def test_agents_that_see_nothing_improve_raise_it_themselves_and_act_together(instance):
    network = begun(AgentNetwork, instance)
    levels = set()
    while max(numbers(network, "level")) < 2:
        network.advance()
        levels.add(tuple(numbers(network, "level")))
    assert levels == {(level,) * 6 for level in (0.0, 1.0, 2.0)}


def test_agents_at_the_floor_of_rounding_or_below_their_tolerance_raise_none(instance, monkeypatch):
    monkeypatch.setattr(proximal_tracking, "FLOOR", 1e-10)
    network = begun(AgentNetwork, instance)
    to_iteration(network, 20 * WATCH)
    assert max(numbers(network, "least")) < 1e-13
    assert numbers(network, "alarm") == numbers(network, "level") == [0.0] * 6


def test_after_an_alarm_v_and_d_are_mixed_one_after_the_other(instance):
    network = begun(AgentNetwork, instance)
    to_iteration(network, 3)
    with_level(network, 1)
    rounds = []
    while numbers(network, "iteration")[0] == 3 or numbers(network, "is_second")[0]:
        before = states(network)
        network.advance()
        changed = {name for name in ("V", "D", "Y") if bits_of(before, name) != bits_of(states(network), name)}
        rounds.append((before[0].is_second, before[0].at, changed))
    T = len(rounds) // 2
    assert [at for _, at, _ in rounds] == [*range(T), *range(T)]
    *mixing_V, last = (changed for is_second, _, changed in rounds if not is_second)
    assert (mixing_V, last) == ([{"V"}] * (T - 1), {"V", "D", "Y"})
    *mixing_D, last = (changed for is_second, _, changed in rounds if is_second)
    assert (mixing_D, last) == ([{"D"}] * (T - 1), {"V", "D"})


def bits_of(found, name):
    return [getattr(state, name).tobytes() for state in found]


@pytest.mark.parametrize("level", range(ALARM_LEVELS + 1))
def test_the_trackers_add_up_to_the_gradients_at_every_level(instance, level):
    network = begun(AgentNetwork, instance)
    to_iteration(network, 3)
    with_level(network, level)
    for iteration in range(4, 8):
        to_iteration(network, iteration)
        found = states(network)
        sums = [np.sum([getattr(state, name) for state in found], axis=0) for name in ("D", "G")]
        assert sums[0] == pytest.approx(sums[1], abs=1e-13)


@pytest.mark.parametrize(("level", "shorter"), [(1, 1), (2, 1 / 2), (3, 1 / 4), (4, SHORTEST), (7, SHORTEST)])
def test_from_the_second_alarm_on_steps_are_halved_down_to_an_eighth(instance, level, shorter):
    network = begun(AgentNetwork, instance)
    to_iteration(network, 60)
    assert max(numbers(network, "residual")) < 1e-6
    eta = numbers(network, "eta")
    with_level(network, level)
    to_iteration(network, 61)
    assert numbers(network, "eta") == pytest.approx([shorter * each for each in eta], rel=1e-6)


def test_both_engines_and_an_agent_that_was_killed_have_the_same_bits_after_alarms(instance):
    agents, stacked, resumed = (begun(engine, instance) for engine in (AgentNetwork, StackedNetwork, AgentNetwork))
    lives = 0
    while numbers(agents, "level")[0] < 3:
        for network in (agents, stacked, resumed):
            network.advance()
        assert bits(agents) == bits(stacked) == bits(resumed)
        if numbers(agents, "level")[0] and agents.k % 7 == 0:  # at whatever place of an iteration
            i, lives = agents.k % 6, lives + 1
            resumed.agents[i] = Agent(instance.topology, i, instance.plan(i), resumed.agents[i].memory())
    assert lives > 6


@pytest.mark.parametrize(("file", "rounds"), [("paper-l1", 2), ("star", 2), ("ring", 4)])
def test_graphs_that_mix_well_take_few_rounds_of_mixing(file, rounds):
    raw = tomllib.loads((TOPOLOGIES / f"{file}.toml").read_text())
    raw["algorithm"] = {"method": "proximal-tracking", "start": raw["algorithm"]["start"]}
    network = begun(StackedNetwork, make_instance(raw))
    taken = 0
    while network.array("iteration")[0] == 0:
        network.advance()
        taken += 1
    assert taken == rounds


def random_tree(d, seed):
    rng = np.random.default_rng(seed)
    return [(int(rng.integers(i)), i) for i in range(1, d)]


def in_own_planes(d, seed):
    """Samples of each agent in a plane of its own, agents of sizes over a factor of 1000."""
    rng = np.random.default_rng(seed)
    planes = (np.linalg.qr(rng.standard_normal((12, 3)))[0][:, :2].T for _ in range(d))
    sizes = rng.permutation(np.geomspace(1, 1000, d))
    return [size * rng.standard_normal((12, 2)) @ plane for size, plane in zip(sizes, planes, strict=True)]


@pytest.mark.parametrize(("d", "seed"), [(24, 1), (32, 2), (32, 3), (100, 1)])
def test_very_unequal_agents_on_trees_converge(d, seed):
    """Where eigenvalues of W crowd, mixing must neither multiply rounding, nor be taken for a divergence."""
    settings = {"method": "proximal-tracking", "graph": random_tree(d, seed), "mu": 1e-3, "max_rounds": 20_000}
    facts = thanos_peer.fit(in_own_planes(d, seed), 2, **settings).facts
    assert facts["has_converged"]
    assert facts["residual"] < 1e-9
