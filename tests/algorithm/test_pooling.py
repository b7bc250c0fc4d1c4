"""Sums over the tree by real agents: bit for bit what rational arithmetic says, in as many rounds as predicted."""

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import make_topology, raw_topology
from uneven import raw_with_parts

from thanos_peer.agent import Agent
from thanos_peer.algorithm.fixed_point import EXACT, FixedPoint
from thanos_peer.algorithm.pooling import Layout, Sum
from thanos_peer.block import NOTHING, WORD, StopWord
from thanos_peer.errors import DataFileError, RemoteProtocolError
from thanos_peer.phases import Plan, Pooling, run_sums
from thanos_peer.preparation import outline
from thanos_peer.problem import build, share_of
from thanos_peer.simulate import AgentNetwork, StackedNetwork
from thanos_peer.topology import families, load

SHIPPED = sorted((Path(__file__).parents[2] / "topologies").glob("*.toml"))
SEEDS = st.integers(0, 2**32 - 1)


def random_edges(rng, d, extra):
    """A random tree and some more edges."""
    tree = {(int(rng.integers(i)), i) for i in range(1, d)}
    more = {tuple(sorted(rng.choice(d, 2, replace=False).tolist())) for _ in range(extra)} if d > 1 else set()
    return sorted(tree | more)


def topology_of(d, edges):
    return make_topology(raw_topology(d=d, edges=edges, samples=d + 1))


def spread_out(rng, shape, orders=20):
    """Numbers of both signs over so many orders of magnitude."""
    return rng.choice([-1.0, 1.0], shape) * 10.0 ** rng.uniform(-orders / 2, orders / 2, shape)


def phase_of(topology, agent, numbers, form=EXACT, decide=lambda sums: sums):
    """One sum of these numbers."""
    return Pooling(
        "total",
        agent=agent,
        graph=topology.graph,
        layout=Layout(form.kind, numbers.size, numbers.size),
        prepare=lambda _: Sum(lambda: numbers, decide, form),
        conclude=lambda found, word: replace(found, mean=word),
    )


def agents_of(topology, rows, form=EXACT):
    return [Agent(topology, i, Plan((phase_of(topology, i, row, form),), 0)) for i, row in enumerate(rows)]


def exchange(agents):
    """One round of all agents; returns what was said in it, as (sender, receiver, block)."""
    said = [(agent.id, j, agent.block.as_told_to(j)) for agent in agents for j in agent.neighbors]
    for sender, receiver, block in said:
        agents[receiver].receive(sender, block)
    for agent in agents:
        agent.advance()
    return said


def talk(agents):
    """All rounds of a sum, and what was said in each."""
    rounds = []
    while not any(agent.is_done for agent in agents):
        rounds.append(exchange(agents))
    assert all(agent.is_done for agent in agents)
    return rounds


def exact_sums(rows):
    return np.array([float(sum(map(Fraction, column))) for column in rows.T.tolist()])


def check_sum(topology, rows):
    """Agents find the exact sums in the predicted rounds, say what was predicted, and nothing else."""
    agents = agents_of(topology, rows)
    rounds, tree = talk(agents), topology.graph.tree
    assert len(rounds) == tree.rounds == max(1, 2 * tree.height)
    expected = exact_sums(rows).tobytes()
    assert [agent.found.mean.tobytes() for agent in agents] == [expected] * topology.d
    assert [agent.runner.rounds_by_phase for agent in agents] == [{"total": tree.rounds}] * topology.d
    spoken = [
        (sender, receiver, block.kind) for said in rounds for sender, receiver, block in said if block.numbers
    ]
    edges = [(i, parent) for i, parent in enumerate(tree.parents) if i != parent]
    assert sorted(spoken) == sorted([(i, j, EXACT.kind) for i, j in edges] + [(j, i, WORD) for i, j in edges])
    assert sum(len(block.numbers) for said in rounds for _, _, block in said) == agents[0].runner.payload_sent


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_sums_on_every_shipped_topology_are_those_of_rational_arithmetic_bit_for_bit(file):
    topology = load(file)
    check_sum(topology, spread_out(np.random.default_rng(topology.d), (topology.d, 5)))


@settings(max_examples=8)
@given(SEEDS, st.integers(1, 200), st.integers(0, 100))
def test_so_they_are_on_random_graphs_of_up_to_200_peers(seed, d, extra):
    rng = np.random.default_rng(seed)
    check_sum(topology_of(d, random_edges(rng, d, extra)), spread_out(rng, (d, 2)))


@pytest.mark.parametrize("family", families.FAMILIES)
@pytest.mark.parametrize("d", [1, 2, 6, 200])
def test_so_they_are_on_every_family(family, d):
    edges = families.make(family, d, seed=3, radius=0.6, columns=d if d < 4 else None)
    check_sum(topology_of(d, edges), spread_out(np.random.default_rng(d), (d, 2)))


@settings(max_examples=10)
@given(SEEDS, st.integers(1, 40), st.sampled_from([300, 600]))
def test_so_they_are_over_all_the_orders_of_magnitude_there_are(seed, d, orders):
    rng = np.random.default_rng(seed)
    check_sum(topology_of(d, random_edges(rng, d, 5)), spread_out(rng, (d, 3), orders=orders))


@settings(max_examples=10)
@given(SEEDS, st.integers(1, 60))
def test_the_tree_does_not_change_a_bit_nor_does_who_has_which_numbers(seed, d):
    rng = np.random.default_rng(seed)
    rows = spread_out(rng, (d, 3))
    found = set()
    for form in (EXACT, FixedPoint.within(np.abs(rows).max(), d)):
        for _ in range(2):
            topology = topology_of(d, random_edges(rng, d, int(rng.integers(d))))
            agents = agents_of(topology, rng.permutation(rows), form)
            talk(agents)
            found |= {(form, agent.found.mean.tobytes()) for agent in agents}
            seen = run_sums([phase_of(topology, i, row, form) for i, row in enumerate(rows)], agents[0].found)
            found.add((form, seen.mean.tobytes()))
    assert len(found) == 2


def test_only_the_root_decides_and_all_have_its_bits():
    topology = topology_of(9, families.make("grid", 9, seed=1))
    rows, asked = np.arange(18.0).reshape(9, 2), []

    def plan(i):
        def decide(sums):
            asked.append(i)
            return np.sqrt(sums) / 3

        return Plan((phase_of(topology, i, rows[i], decide=decide),), 0)

    agents = [Agent(topology, i, plan(i)) for i in range(9)]
    talk(agents)
    assert asked == [topology.graph.tree.root]
    expected = (np.sqrt(rows.sum(axis=0)) / 3).tobytes()
    assert {agent.found.mean.tobytes() for agent in agents} == {expected}


@pytest.mark.parametrize("family", ["path", "star", "grid", "erdos-renyi"])
def test_each_agent_expects_exactly_what_its_neighbors_say(family):
    topology = topology_of(12, families.make(family, 12, seed=2))
    phases = [phase_of(topology, i, np.ones(2)) for i in range(12)]
    agents = agents_of(topology, np.ones((12, 2)))
    for r, said in enumerate(talk(agents)):
        for sender, receiver, block in said:
            assert phases[receiver].expects(r, sender) == (block.kind, block.shape)
            assert (block.kind, block.shape) in phases[receiver].forms
            assert block.eta == 0.0
            assert block.stop == StopWord()


@pytest.mark.parametrize(
    ("kind", "shape", "size"),
    [
        (NOTHING, (0, 0), 0),
        (WORD, (1, 2), 16),
        (EXACT.kind, (1, 1), 264),
        ("int128", (1, 2), 32),
        ("pair", (6, 2), 192),
    ],
)
def test_what_a_neighbor_cannot_say_now_is_refused_and_it_may_say_it_right(kind, shape, size):
    topology = topology_of(3, [(0, 1), (1, 2)])
    agents = agents_of(topology, np.ones((3, 2)))
    right = agents[0].block.as_told_to(1)
    with pytest.raises(
        RemoteProtocolError, match=r"neighbor 0, round 0: .*phase total expects int2112 of \(1, 2\)"
    ):
        agents[1].receive(0, right._replace(kind=kind, shape=shape, numbers=bytes(size)))
    assert agents[1].receive(0, right)


def test_a_wrong_block_that_came_early_is_forgotten_when_its_round_comes():
    topology = topology_of(3, [(0, 1), (1, 2)])
    agents = agents_of(topology, np.ones((3, 2)))
    early = agents[2].block._replace(k=1)
    agents[1].receive(2, early)
    exchange(agents)
    assert agents[1].exchange.missing() == (0, 2)
    talk(agents)
    assert agents[1].found.mean.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("form", [EXACT, FixedPoint.within(1.0, 4)])
def test_a_number_that_is_not_finite_is_a_data_file_error_before_anything_is_sent(form, value):
    topology = topology_of(4, families.make("ring", 4, seed=1))
    with pytest.raises(DataFileError) as caught:
        Agent(topology, 2, Plan((phase_of(topology, 2, np.array([1.0, value]), form),), 0))
    assert str(caught.value).startswith("the samples of peer 2 are too large: in phase total it has a number ")
    assert f"cannot be summed, {value:.3g} is not below" in str(caught.value)


@pytest.mark.parametrize("value", [4.0, -1e300])
def test_a_number_beyond_the_format_is_a_data_file_error_too(value):
    topology = topology_of(4, families.make("ring", 4, seed=1))
    with pytest.raises(DataFileError, match="the samples of peer 2 are too large: in phase total"):
        agents_of(topology, np.array([[1.0], [1.0], [value], [1.0]]), FixedPoint.within(1.0, 4))


PREPARED = {"kind": "files", "center": True, "scale": True, "overall": "auto"}


def topology_of_parts(directory, parts):
    raw = raw_with_parts(directory, parts, data={"kind": "files"}, start={"kind": "leading"})
    return make_topology(raw, file=directory / "net.toml")


def test_a_file_with_numbers_too_large_for_sums_ends_its_peer_before_it_has_said_anything(tmp_path):
    parts = [np.random.default_rng(i).standard_normal((4, 3)) for i in range(3)]
    # Their squares are just within the limit, but not the sum of those.
    parts[1][:] = 6e153
    topology = topology_of_parts(tmp_path, parts)
    with pytest.raises(
        DataFileError, match=r"peer 1 are too large: in phase size .*, inf is not .*scale the samples"
    ):
        Agent(topology, 1, share_of(topology, 1).plan())
    assert Agent(topology, 0, share_of(topology, 0).plan()).runner.phase.name == "size"
    with pytest.raises(DataFileError, match="peer 1 are too large: in phase size"):
        build(topology)


def test_sums_beyond_double_precision_end_the_root_before_it_tells_anybody(tmp_path):
    parts = [np.full((2, 3), 5e153) for _ in range(3)]
    topology = topology_of_parts(tmp_path, parts)
    agents = [Agent(topology, i, share_of(topology, i).plan()) for i in range(3)]
    assert topology.graph.tree.root == 0
    for agent in agents[1:]:
        agents[0].receive(agent.id, agent.block.as_told_to(0))
    with pytest.raises(DataFileError, match="all samples together are too large for double precision"):
        agents[0].advance()
    with pytest.raises(DataFileError, match="all samples together are too large for double precision"):
        build(topology)


@pytest.mark.parametrize("method", ["thanos", "proximal", "gram"])
@pytest.mark.parametrize("network", [AgentNetwork, StackedNetwork])
def test_a_whole_run_takes_the_rounds_and_bytes_that_were_predicted(tmp_path, method, network):
    parts = [np.random.default_rng(i).standard_normal((6, 4)) + 5 for i in range(5)]
    raw = raw_with_parts(tmp_path, parts, "path", data=PREPARED, start={"kind": "leading"}, max_rounds=12)
    if method != "thanos":
        raw["algorithm"] = {"method": method, "max_rounds": 40, "start": {"kind": "leading"}}
    topology = make_topology(raw, file=tmp_path / "net.toml")
    running, plan = network(build(topology)), outline(topology)
    while not running.is_done:
        running.advance()
    rounds = running.rounds_by_phase
    assert list(rounds) == [phase.name for phase in plan.phases]
    for phase in plan.phases:
        assert rounds[phase.name] == phase.most or (not phase.takes_all_rounds and rounds[phase.name] < phase.most)
        assert isinstance(phase, Pooling) == (phase.name != "thanos")
        assert phase.name == "thanos" or rounds[phase.name] % topology.graph.tree.rounds == 0
    known = {phase.name for phase in plan.phases if phase.takes_all_rounds}
    assert {"mean", "spread", "size", "verdict"} <= known
    assert running.payload_sent == sum(phase.payload(rounds[phase.name]) for phase in plan.phases)
