"""The leading singular vectors by exact sums."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import make_topology, raw_topology

from thanos_peer.agent import Agent
from thanos_peer.algorithm.leading import Leading
from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.algorithm.stiefel import random_point
from thanos_peer.errors import DataFileError
from thanos_peer.phases import Found, Plan, Pooling, run_sums

SIZES = st.tuples(st.integers(1, 9), st.integers(1, 9)).map(lambda pair: (max(pair), min(pair)))
SEEDS = st.integers(0, 2**32 - 1)


def phases_of(parts, start, *, family="path", bound=None):
    """The phase of every agent; what is found is put where it belongs."""
    d, (n, p) = len(parts), start.shape
    topology = make_topology(raw_topology(family, d, n=n, p=p, samples=max(d, p)))
    total = sum(float((A**2).sum()) for A in parts) if bound is None else bound
    methods = [Leading(SparsePCA(A), start, total, d) for A in parts]

    def conclude(found, word):
        return replace(found, start=methods[0].vectors(word), values=methods[0].values(word))

    def phase(i):
        return Pooling(
            "leading",
            agent=i,
            graph=topology.graph,
            layout=Leading.layout(n, p),
            most=Leading.most(n, p),
            prepare=lambda _: methods[i],
            conclude=conclude,
        )

    return topology, [phase(i) for i in range(d)]


def found_of(parts, start, **options):
    return run_sums(phases_of(parts, start, **options)[1], Found())


def split(A, d):
    return np.array_split(A, d, axis=1)


def samples_with(rng, n, values, m=20):
    """A of (n, m) whose AA' has these eigenvalues, and the eigenvectors."""
    vectors = random_point(n, n, rng)
    return vectors * np.sqrt(values) @ random_point(m, n, rng).T, vectors


@given(SIZES, SEEDS, st.integers(1, 5))
def test_the_vectors_and_values_are_those_of_all_samples(size, seed, d):
    (n, p), rng = size, np.random.default_rng(seed)
    values = np.arange(n, 0, -1.0) ** 2
    A, vectors = samples_with(rng, n, values)
    start = random_point(n, p, rng)
    found = found_of(split(A, d), start)
    assert found.values == pytest.approx(values[:p], rel=1e-11)
    assert np.abs(found.start.T @ found.start - np.eye(p)).max() < 1e-13
    signs = np.sign(np.sum(found.start * vectors[:, :p], axis=0))
    assert np.abs(found.start - signs * vectors[:, :p]).max() < 1e-9
    assert (np.sum(found.start * start, axis=0) >= 0).all()


@given(SIZES, SEEDS)
def test_it_is_over_after_as_many_sums_as_it_may_take_at_the_most(size, seed):
    (n, p), rng = size, np.random.default_rng(seed)
    found = found_of(split(rng.standard_normal((n, 30)), 3), random_point(n, p, rng))
    (end,) = found.over
    assert end.rounds % 2 == 0
    assert 1 <= end.rounds / 2 <= Leading.most(n, p) == -(-n // p) + 1


@pytest.mark.parametrize("family", ["path", "ring", "star"])
def test_real_agents_find_the_same_bits_as_one_that_sees_all(family):
    rng = np.random.default_rng(4)
    parts, start = split(rng.standard_normal((7, 40)), 5), random_point(7, 2, rng)
    topology, phases = phases_of(parts, start, family=family)
    agents = [Agent(topology, i, Plan((phase,), 0)) for i, phase in enumerate(phases)]
    while not agents[0].is_done:
        said = [(agent.id, j, agent.block.as_told_to(j)) for agent in agents for j in agent.neighbors]
        for sender, receiver, block in said:
            agents[receiver].receive(sender, block)
        for agent in agents:
            agent.advance()
    expected = found_of(parts, start, family=family)
    assert {agent.found.start.tobytes() for agent in agents} == {expected.start.tobytes()}
    assert {agent.found.values.tobytes() for agent in agents} == {expected.values.tobytes()}
    assert {agent.found.over for agent in agents} == {expected.over}
    assert 1 < expected.over[0].rounds / topology.graph.tree.rounds <= Leading.most(7, 2)


def test_an_agent_that_goes_on_from_what_it_remembers_has_the_same_bits():
    rng = np.random.default_rng(5)
    parts, start = split(rng.standard_normal((8, 40)), 2), random_point(8, 2, rng)
    topology, phases = phases_of(parts, start)
    agents = [Agent(topology, i, Plan((phase,), 0)) for i, phase in enumerate(phases)]
    while not agents[0].is_done:
        agents = [
            Agent(topology, i, Plan((phases_of(parts, start)[1][i],), 0), agent.memory())
            for i, agent in enumerate(agents)
        ]
        for i in (0, 1):
            agents[1 - i].receive(i, agents[i].block.as_told_to(1 - i))
        for agent in agents:
            agent.advance()
    assert agents[0].found.start.tobytes() == found_of(parts, start).start.tobytes()
    assert agents[0].k > topology.graph.tree.rounds


@settings(max_examples=30)
@given(SEEDS, st.integers(1, 6))
def test_of_equal_values_the_start_chooses_the_vectors_however_samples_are_split(seed, d):
    rng = np.random.default_rng(seed)
    A, vectors = samples_with(rng, 6, np.array([4.0, 4.0, 4.0, 1.0, 1.0, 0.5]))
    start = random_point(6, 2, rng)
    one, other = (found_of(split(rows, k), start) for rows, k in ((A, 1), (A[:, ::-1], d)))
    inside = vectors[:, :3] @ (vectors[:, :3].T @ one.start)
    assert np.abs(inside - one.start).max() < 1e-9
    assert one.values == pytest.approx([4, 4], rel=1e-11)
    assert other.values == pytest.approx([4, 4], rel=1e-11)


@pytest.mark.parametrize(("rank", "p"), [(1, 1), (1, 3), (2, 3), (3, 3), (2, 5)])
def test_fewer_directions_than_components_are_filled_up_with_orthonormal_columns(rank, p):
    rng = np.random.default_rng(rank + 10 * p)
    values = np.concatenate([np.arange(rank, 0, -1.0), np.zeros(5 - rank)])
    A, vectors = samples_with(rng, 5, values)
    found = found_of(split(A, 3), random_point(5, p, rng))
    assert found.values == pytest.approx(values[:p], abs=1e-12)
    assert np.abs(found.start.T @ found.start - np.eye(p)).max() < 1e-12
    held = min(rank, p)
    assert np.abs(np.abs(np.sum(found.start[:, :held] * vectors[:, :held], axis=0)) - 1).max() < 1e-9


@pytest.mark.parametrize("factor", [1e-140, 1e-5, 1e5, 1e140])
def test_samples_of_any_size_have_the_same_vectors(factor):
    rng = np.random.default_rng(8)
    A, start = rng.standard_normal((6, 30)), random_point(6, 2, rng)
    one, other = found_of(split(A, 4), start), found_of(split(factor * A, 4), start)
    assert np.abs(one.start - other.start).max() < 1e-9
    assert other.values == pytest.approx(factor**2 * one.values, rel=1e-11)
    assert one.over == other.over


def test_a_start_that_knows_next_to_nothing_of_the_leading_vectors_finds_them():
    A = np.diag([5.0, 4.0, 3.0, 2.0, 1.0, 0.5])
    start = np.linalg.qr(np.eye(6)[:, 4:] + 1e-7 * np.random.default_rng(1).standard_normal((6, 2)))[0]
    found = found_of(split(A, 3), start)
    assert np.abs(np.abs(found.start) - np.eye(6)[:, :2]).max() < 1e-9
    assert found.values == pytest.approx([25.0, 16.0])


def test_a_bound_that_is_none_is_found_out_before_anything_is_sent():
    rng = np.random.default_rng(9)
    topology, phases = phases_of(split(rng.standard_normal((5, 30)), 3), random_point(5, 2, rng), bound=1e-9)
    with pytest.raises(DataFileError, match="the samples of peer 1 are too large: in phase leading"):
        Agent(topology, 1, Plan((phases[1],), 0))


@given(SIZES, SEEDS)
def test_words_and_numbers_are_as_long_as_the_layout_says(size, seed):
    (n, p), rng = size, np.random.default_rng(seed)
    start = random_point(n, p, rng)
    method = Leading(SparsePCA(rng.standard_normal((n, 9))), start, 1e3, 1)
    layout, state, word = Leading.layout(n, p), method.begin(), None
    for _ in range(Leading.most(n, p)):
        numbers = method.numbers(word)
        assert numbers.size == layout.up
        state, word = method.decide(state, numbers.ravel())
        assert word.shape == (layout.down,)
        if method.is_last(word):
            break
        asked = method.vectors(word)
        held = asked[:, asked.any(axis=0)]
        assert np.abs(held.T @ held - np.eye(held.shape[1])).max() < 1e-12
        assert np.abs(state.basis.T @ held).max() < 1e-12
    assert method.has_converged(word)
    assert layout.kind == method.format.kind
