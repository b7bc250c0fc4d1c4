"""Averages by mixing: what all agents have together stays what it is, and each comes to have it."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from topology.graphs import connected_graphs

from thanos_peer.algorithm.averaging import averaging_step, first_state, rounding, rounds_needed
from thanos_peer.block import Block, StopWord
from thanos_peer.topology import families
from thanos_peer.topology.graph import Graph

SHAPE = (3, 2)
SEEDS = st.integers(0, 2**32 - 1)


def numbers_of(seed, d):
    """Some numbers for every agent, of very different sizes: two matrices each."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((d, 2, *SHAPE)) * 10.0 ** rng.uniform(-6, 6, (1, 1, *SHAPE))


def average(graph, numbers, *, began=0, rounds=None):
    """All states after some rounds, as many as needed where nothing is said."""
    states = [first_state(began, *own) for own in numbers]
    for count in range(rounds_needed(graph.lambda_, graph.d) if rounds is None else rounds):
        blocks = [Block.of(state.k, state.X, state.D, state.eta, StopWord(), 0) for state in states]
        states = [
            averaging_step(
                np.array([weight for _, weight in graph.mixing[i]]),
                graph.lambda_,
                states[i],
                [blocks[j] for j, _ in graph.mixing[i]],
                count=count,
            )
            for i in range(graph.d)
        ]
    return states


def values_of(states):
    return np.array([[state.X, state.D] for state in states])


@given(graph=connected_graphs(), seed=SEEDS)
def test_after_as_many_rounds_as_needed_all_have_the_average_to_1e_12(graph, seed):
    d, edges = graph
    numbers = numbers_of(seed, d)
    found = values_of(average(Graph.of(d, edges, None), numbers))
    size = np.abs(numbers).max(axis=0)
    assert (np.abs(found - numbers.mean(axis=0)) <= 1e-12 * size).all()


@given(graph=connected_graphs(), seed=SEEDS, rounds=st.integers(0, 40))
def test_the_sum_of_all_is_the_same_after_any_number_of_rounds(graph, seed, rounds):
    d, edges = graph
    numbers = numbers_of(seed, d)
    found = values_of(average(Graph.of(d, edges, None), numbers, rounds=rounds))
    size = np.abs(numbers).max(axis=0)
    assert (np.abs(found.sum(axis=0) - numbers.sum(axis=0)) <= 1e-12 * d * size).all()


@given(graph=connected_graphs(), seed=SEEDS, rounds=st.integers(1, 40))
def test_no_disagreement_is_larger_than_chebyshev_allows(graph, seed, rounds):
    d, edges = graph
    graph = Graph.of(d, edges, None)
    assume(graph.lambda_ > 1e-8)
    numbers = numbers_of(seed, d)
    found = values_of(average(graph, numbers, rounds=rounds))
    left = np.linalg.norm(found - numbers.mean(axis=0), axis=0)
    first = np.linalg.norm(numbers - numbers.mean(axis=0), axis=0)
    bound = 1 / np.cosh(rounds * np.arccosh(1 / graph.lambda_))
    assert (left <= bound * first + 1e-12 * np.abs(numbers).max(axis=0)).all()


@given(graph=connected_graphs(), seed=SEEDS, began=st.integers(0, 2**40))
def test_the_bits_do_not_depend_on_the_round_it_begins_with(graph, seed, began):
    d, edges = graph
    numbers = numbers_of(seed, d)
    early, late = (average(Graph.of(d, edges, None), numbers, began=k, rounds=12) for k in (0, began))
    assert values_of(early).tobytes() == values_of(late).tobytes()
    assert {state.k for state in late} == {began + 12}


@pytest.mark.parametrize(("family", "fewer"), [("path", 16), ("ring", 8)])
def test_many_agents_in_a_row_need_far_fewer_rounds_than_plain_mixing(family, fewer):
    graph = Graph.of(30, families.make(family, 30, seed=1), None)
    plain = np.log(1e-16) / np.log(graph.lambda_)
    assert rounds_needed(graph.lambda_, graph.d) < plain / fewer


def test_an_agent_alone_needs_no_round_and_a_complete_graph_one():
    assert rounds_needed(0.0, 1) == 0
    complete = Graph.of(6, families.make("complete", 6, seed=1), None)
    assert rounds_needed(complete.lambda_, complete.d) == 1
    numbers = numbers_of(3, 6)
    found = values_of(average(complete, numbers))
    assert (np.abs(found - numbers.mean(axis=0)) <= 1e-12 * np.abs(numbers).max(axis=0)).all()


@pytest.mark.parametrize(
    ("family", "d"), [("path", 2), ("path", 40), ("ring", 60), ("star", 60), ("complete", 150)]
)
def test_a_number_that_all_share_is_found_up_to_rounding_however_unequal_their_weights(family, d):
    graph, rng = Graph.of(d, families.make(family, d, seed=1), None), np.random.default_rng(d)
    weights, shared = np.floor(10.0 ** rng.uniform(0, 6, (d, *SHAPE))), rng.uniform(1, 10, SHAPE)
    weights[:, 0] = 3.0
    weights[d // 3, 0] = 1e6
    found = values_of(average(graph, np.stack([weights * shared, weights], axis=1)))
    off = np.abs(found[:, 0] / found[:, 1] - shared) / shared
    assert off.max() <= rounding(graph.lambda_, d) / 4 < 1e-10
