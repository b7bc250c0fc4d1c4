import math
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from topology.graphs import connected_graphs

from thanos_peer.topology import families
from thanos_peer.topology.graph import Graph, Tree, components, neighbor_lists

FACTORS = (1e-3, 1e-6, 1e-15)


def graph_of(d, edges):
    return Graph(d, tuple(edges))


def metropolis(d, edges):
    """I - L with the edge weights of Metropolis, from the adjacency matrix."""
    adjacency = np.zeros((d, d))
    for i, j in edges:
        adjacency[i, j] = adjacency[j, i] = 1
    degrees = adjacency.sum(axis=1)
    off_diagonal = adjacency / (1 + np.maximum.outer(degrees, degrees))
    return off_diagonal + np.diag(1 - off_diagonal.sum(axis=1))


def shortest_paths(d, edges):
    """Floyd and Warshall's."""
    hops = np.full((d, d), np.inf)
    np.fill_diagonal(hops, 0)
    for i, j in edges:
        hops[i, j] = hops[j, i] = 1
    for middle in range(d):
        hops = np.minimum(hops, hops[:, [middle]] + hops[[middle]])
    return hops


@given(connected_graphs())
def test_metropolis_weights_are_symmetric_and_doubly_stochastic(drawn):
    W = graph_of(*drawn).matrix()
    assert np.allclose(W, metropolis(*drawn), rtol=0, atol=1e-15)
    assert np.array_equal(W, W.T)
    assert np.allclose(W.sum(axis=0), 1, rtol=0, atol=1e-14)
    assert (W >= 0).all()
    assert (np.diag(W) > 0).all()


@given(connected_graphs())
def test_a_row_of_the_mixing_lists_an_agent_and_its_neighbors_in_order(drawn):
    d, edges = drawn
    graph = graph_of(d, edges)
    for i, row in enumerate(graph.mixing):
        around = [j for j in range(d) if j == i or (min(i, j), max(i, j)) in edges]
        assert [j for j, _ in row] == around
        assert graph.neighbors[i] == tuple(j for j in around if j != i)
        assert graph.degrees[i] == len(around) - 1
        assert [weight for _, weight in row] == graph.matrix()[i, around].tolist()


@given(connected_graphs())
def test_lambda_is_the_norm_of_what_mixing_leaves_of_disagreement(drawn):
    d, edges = drawn
    lambda_ = graph_of(d, edges).lambda_
    assert lambda_ == pytest.approx(np.linalg.norm(metropolis(d, edges) - 1 / d, 2), abs=1e-12)
    assert 0 <= lambda_ < 1


def test_lambda_of_explicit_weights_sees_negative_eigenvalues_too():
    W = [[0.1, 0.9], [0.9, 0.1]]
    assert Graph(2, ((0, 1),), tuple(map(tuple, W))).lambda_ == pytest.approx(0.8)


@given(connected_graphs())
def test_the_diameter_is_the_longest_shortest_path(drawn):
    assert graph_of(*drawn).diameter == shortest_paths(*drawn).max()


@given(connected_graphs(), st.data())
def test_components_are_what_can_be_reached(drawn, data):
    d, edges = drawn
    kept = [edge for edge in edges if data.draw(st.booleans())]
    is_reached = np.isfinite(shortest_paths(d, kept))
    expected = sorted({tuple(np.flatnonzero(row).tolist()) for row in is_reached})
    assert [tuple(part) for part in components(d, kept)] == expected


def test_neighbors_are_listed_in_order_whatever_the_order_of_edges():
    assert neighbor_lists(4, [(3, 0), (1, 0), (0, 2)]) == [[1, 2, 3], [0], [0], [0]]


@given(connected_graphs(), st.sampled_from(FACTORS), st.integers(0, 2**32))
def test_after_the_rounds_to_consensus_any_disagreement_has_shrunk_that_much(drawn, factor, seed):
    graph = graph_of(*drawn)
    rounds = graph.rounds_to_consensus(factor)
    values = np.random.default_rng(seed).standard_normal(graph.d)
    mixed = values - values.mean()
    for _ in range(rounds):
        mixed = graph.matrix() @ mixed
    before, after = (np.linalg.norm(at - at.mean()) for at in (values, mixed))
    assert after <= (factor * (1 + 1e-9) + 1e-15) * before


@given(connected_graphs(), st.sampled_from((1e-3, 1e-6)))
def test_one_round_less_would_not_be_enough_for_every_disagreement(drawn, factor):
    graph = graph_of(*drawn)
    assume(graph.lambda_ > 0)
    eigenvalues, vectors = np.linalg.eigh(graph.matrix() - 1 / graph.d)
    worst = vectors[:, np.argmax(np.abs(eigenvalues))]
    W = np.linalg.matrix_power(graph.matrix(), graph.rounds_to_consensus(factor) - 1)
    assert np.linalg.norm(W @ worst) > factor * (1 - 1e-6)


@pytest.mark.parametrize(("d", "rounds"), [(1, 0), (2, 1), (7, 1)])
def test_a_complete_graph_agrees_at_once(d, rounds):
    graph = Graph(d, tuple((i, j) for i, j in product(range(d), repeat=2) if i < j))
    assert graph.lambda_ == 0
    assert graph.rounds_to_consensus(1e-6) == rounds


def check_tree(graph):
    """The tree has shortest ways from a centre, and nothing in it is left to chance."""
    tree, neighbors = graph.tree, graph.neighbors
    hops = distances(graph)
    far = [max(row) for row in hops]
    assert tree.root == far.index(min(far))
    assert tree.depths == tuple(hops[tree.root])
    assert tree.height == min(far)
    assert math.ceil(graph.diameter / 2) <= tree.height <= graph.diameter
    for i, parent in enumerate(tree.parents):
        nearer = [j for j in neighbors[i] if tree.depths[j] == tree.depths[i] - 1]
        assert parent == (min(nearer) if i != tree.root else i)
        assert tree.children(i) == tuple(j for j in range(graph.d) if j != i and tree.parents[j] == i)
    assert sum(len(tree.children(i)) for i in range(graph.d)) == graph.d - 1
    assert tree.rounds == (1 if graph.d == 1 else 2 * tree.height)


def distances(graph):
    """From each agent to each, one step at a time."""
    found = []
    for i in range(graph.d):
        row, edge = {i: 0}, {i}
        while edge:
            edge = {j for k in edge for j in graph.neighbors[k]} - row.keys()
            row |= dict.fromkeys(edge, max(row.values()) + 1)
        found.append([row[j] for j in range(graph.d)])
    return found


@given(connected_graphs())
def test_the_tree_has_the_shortest_ways_from_a_centre(drawn):
    check_tree(graph_of(*drawn))


@settings(max_examples=12)
@given(st.integers(0, 2**32), st.integers(1, 200), st.integers(0, 60))
def test_so_it_has_in_random_graphs_of_up_to_200_peers(seed, d, extra):
    rng = np.random.default_rng(seed)
    edges = {(int(rng.integers(i)), i) for i in range(1, d)}
    edges |= {tuple(sorted(rng.choice(d, 2, replace=False).tolist())) for _ in range(extra if d > 1 else 0)}
    check_tree(Graph.of(d, edges, None))


@pytest.mark.parametrize("d", [1, 2, 3, 4, 9, 60, 200])
@pytest.mark.parametrize("family", families.FAMILIES)
def test_so_it_has_in_every_family(family, d):
    edges = families.make(family, d, seed=4, radius=0.6, columns=d if family == "torus" and d < 4 else None)
    check_tree(Graph.of(d, edges, None))


@pytest.mark.parametrize(
    ("family", "d", "root", "height"),
    [
        ("path", 1, 0, 0),
        ("path", 2, 0, 1),
        ("path", 5, 2, 2),
        ("path", 6, 2, 3),
        ("ring", 6, 0, 3),
        ("star", 7, 0, 1),
        ("complete", 7, 0, 1),
        ("grid", 9, 4, 2),
    ],
)
def test_the_root_is_the_first_of_those_in_the_middle(family, d, root, height):
    tree = Graph.of(d, families.make(family, d, seed=1), None).tree
    assert (tree.root, tree.height, tree.rounds) == (root, height, max(1, 2 * height))


@given(connected_graphs(), st.data())
def test_the_tree_follows_from_the_edges_alone(drawn, data):
    d, edges = drawn
    turned = [edge[::-1] if data.draw(st.booleans()) else edge for edge in data.draw(st.permutations(edges))]
    W = graph_of(d, edges).matrix()
    lazy = (W + np.eye(d)) / 2
    assert Graph.of(d, turned, lazy.tolist()).tree == graph_of(d, edges).tree


def test_of_two_ways_the_parent_with_the_smaller_id_is_taken():
    tree = Graph.of(4, [(0, 1), (0, 2), (1, 3), (2, 3)], None).tree
    assert tree.parents == (0, 0, 0, 1)
    assert Tree.of(3, ((2, 1), (0, 3), (3, 0), (1, 2))).parents == (1, 3, 3, 3)


def test_one_agent_is_a_graph():
    graph = Graph(1, ())
    assert graph.matrix().tolist() == [[1.0]]
    assert (graph.diameter, graph.degrees, graph.neighbors) == (0, (0,), ((),))
    assert graph.tree == Tree(0, (0,), (0,))
    assert (graph.tree.rounds, graph.tree.children(0)) == (1, ())


@pytest.mark.parametrize(
    ("edges", "i", "j", "farthest"),
    [
        ([(0, 1), (1, 2), (2, 3)], 1, 0, 2),
        ([(0, 1), (1, 2), (2, 3)], 1, 2, 1),
        ([(0, 1), (1, 2), (2, 3)], 0, 1, 0),
        ([(0, 1), (1, 2), (2, 3), (0, 3)], 1, 0, 0),
        ([(0, 1), (0, 2), (0, 3)], 0, 1, 1),
        ([(0, 1), (1, 2), (0, 2), (2, 3)], 2, 0, 1),
    ],
)
def test_how_far_those_are_that_hear_of_a_neighbor_by_one_agent_only(edges, i, j, farthest):
    assert Graph(4, tuple(edges)).farthest_behind(i, j) == farthest
