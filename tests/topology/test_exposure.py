"""What the graph decides of who learns what, against brute force."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from topology.graphs import connected_graphs

from thanos_peer.topology import exposure, families
from thanos_peer.topology.graph import Graph, Tree


def graph_of(family: str, d: int) -> Graph:
    return Graph.of(d, families.make(family, d, seed=1), None)


def reach(graph: Graph, start: int, gone: set[int]) -> frozenset[int]:
    """All that can be reached, found by trying all edges again and again."""
    found = {start}
    for _ in range(graph.d):
        found |= {b for edge in graph.edges for a, b in (edge, edge[::-1]) if a in found and b not in gone}
    return frozenset(found)


@given(connected_graphs(), st.data())
def test_parts_without_a_coalition_are_what_is_still_connected(drawn, data):
    graph = Graph.of(*drawn, None)
    gone = data.draw(st.sets(st.integers(0, graph.d - 1)))
    expected = {reach(graph, i, gone) for i in range(graph.d) if i not in gone}
    parts = exposure.parts_without(graph.d, graph.edges, gone)
    assert {frozenset(part) for part in parts} == expected
    assert sum(map(len, parts)) == graph.d - len(gone)
    assert parts == tuple(sorted(tuple(sorted(part)) for part in parts))


@given(connected_graphs())
def test_cut_vertices_are_those_without_which_it_falls_apart(drawn):
    graph = Graph.of(*drawn, None)
    sizes = {i: exposure.parts_without(graph.d, graph.edges, [i]) for i in range(graph.d)}
    expected = {i: tuple(sorted(map(len, parts))) for i, parts in sizes.items() if len(parts) > 1}
    assert exposure.cut_vertices(graph) == expected


@given(connected_graphs(largest=7), st.booleans())
def test_no_smaller_coalition_learns_a_peers_own_numbers(drawn, are_masked):
    graph = Graph.of(*drawn, None)
    for agent in range(graph.d):
        others = [i for i in range(graph.d) if i != agent]
        coalitions = (set(each) for size in range(graph.d) for each in combinations(others, size))
        learnt = (each for each in coalitions if (agent,) in learnt_by(graph, each, are_masked).parts)
        assert exposure.smallest_coalition(graph, agent, are_masked=are_masked) == tuple(sorted(next(learnt)))


@given(connected_graphs(), st.booleans())
def test_peers_that_alone_learn_a_sum_over_fewer_than_all_others_are_found_nearest_first(drawn, are_masked):
    graph = Graph.of(*drawn, None)
    for agent in range(graph.d):
        parts = {
            other: next(part for part in learnt_by(graph, {other}, are_masked).parts if agent in part)
            for other in range(graph.d)
            if other != agent
        }
        expected = {other: part for other, part in parts.items() if len(part) < graph.d - 1}
        found = list(exposure.learnt_alone(graph, agent, are_masked=are_masked))
        assert dict(found) == expected
        away = [Tree.of(agent, graph.neighbors).depths[other] for other, _ in found]
        assert away == sorted(away)


def learnt_by(graph, listeners, are_masked):
    return exposure.learnt_from_sums(graph, listeners, are_masked=are_masked)


@given(connected_graphs(largest=7))
def test_with_few_more_edges_no_single_peer_learns_the_sum_of_a_part(drawn):
    graph = Graph.of(*drawn, None)
    added = exposure.edges_against_exposure(graph)
    more = Graph.of(graph.d, {*graph.edges, *added}, None)
    assert len(more.edges) == len(graph.edges) + len(added)
    if graph.d <= 2:
        assert not added
        return
    for i in range(graph.d):
        assert len(exposure.learnt_from_sums(more, [i], are_masked=True).parts) == 1
    # Each edge has two ends, and joins two of the parts that one peer divides.
    ends = len(exposure.sole_neighbors(graph))
    parts = max(map(len, exposure.cut_vertices(graph).values()), default=1)
    least = max(-(-ends // 2), parts - 1)
    if len(graph.edges) == graph.d - 1:  # a tree
        assert least <= len(added) <= least + 1
    assert least <= len(added) < graph.d


@given(connected_graphs(), st.data())
def test_a_coalition_learns_the_sums_of_parts_from_what_it_hears_and_no_other(drawn, data):
    graph = Graph.of(*drawn, None)
    listeners = data.draw(st.sets(st.integers(0, graph.d - 1), min_size=1))
    for are_masked in (False, True):
        heard = heard_by(graph, listeners, are_masked=are_masked)
        learnt = exposure.learnt_from_sums(graph, listeners, are_masked=are_masked)
        sums = [[i in part for i in range(graph.d)] for part in learnt.parts]
        sums += [np.eye(graph.d)[i] for i in listeners]
        # The combinations of what was heard in which no mask is left are those of the sums that were named.
        assert free_of_masks(heard, graph.d) == pytest.approx(projector(np.array(sums, dtype=float)), abs=1e-9)


def heard_by(graph: Graph, listeners: set[int], *, are_masked: bool) -> np.ndarray:
    """Rows over the numbers of all peers and the masks of all edges: what listeners hear and know."""
    d, edges, tree = graph.d, graph.edges, graph.tree
    said = np.hstack([np.eye(d), np.zeros((d, len(edges)))])
    for at, (i, j) in enumerate(edges):
        said[i, d + at], said[j, d + at] = (1, -1) if are_masked else (0, 0)
    known = [row for i, row in enumerate(np.eye(d, d + len(edges))) if i in listeners]
    known += [np.eye(d + len(edges))[d + at] for at, edge in enumerate(edges) if listeners & set(edge)]
    for i in sorted(range(d), key=lambda i: -tree.depths[i]):
        if i == tree.root:
            known.append(said[i])  # all are told
        else:
            known += [said[i].copy()] if tree.parents[i] in listeners else []
            said[tree.parents[i]] += said[i]
    return np.array(known)


def free_of_masks(rows: np.ndarray, d: int) -> np.ndarray:
    """The projector onto the combinations of rows in which no mask is left, as combinations of own numbers."""
    numbers, masks = rows[:, :d], rows[:, d:]
    left, values, _ = np.linalg.svd(np.hstack([masks, np.zeros((len(masks), 1))]))
    rank = int((values > 1e-9).sum())
    return projector(left[:, rank:].T @ numbers)


def projector(rows: np.ndarray) -> np.ndarray:
    _, values, right = np.linalg.svd(rows, full_matrices=False)
    basis = right[values > 1e-9]
    return basis.T @ basis


def test_sole_neighbors_are_named():
    assert exposure.sole_neighbors(graph_of("star", 4)) == {1: 0, 2: 0, 3: 0}
    assert exposure.sole_neighbors(graph_of("ring", 5)) == {}
    assert exposure.sole_neighbors(graph_of("path", 2)) == {0: 1, 1: 0}


def test_in_a_network_of_two_or_one_nothing_helps():
    for d in (1, 2):
        graph = graph_of("path", d)
        assert not exposure.edges_against_exposure(graph)
        assert not exposure.cut_vertices(graph)
        for are_masked in (False, True):
            for i in range(d):
                others = tuple(j for j in range(d) if j != i)
                assert exposure.smallest_coalition(graph, i, are_masked=are_masked) == others
                assert not list(exposure.learnt_alone(graph, i, are_masked=are_masked))


@pytest.mark.parametrize("family", ["path", "star", "tree", "complete"])
def test_a_large_graph_is_not_too_deep(family):
    d = 300 if family == "complete" else 2048
    graph = graph_of(family, d)
    cuts = exposure.cut_vertices(graph)
    expected = {"path": d - 2, "star": 1, "tree": d // 2, "complete": 0}
    assert len(cuts) == expected[family]
    assert len(exposure.edges_against_exposure(graph)) == {"path": 1, "star": d - 2, "tree": d // 4}.get(family, 0)
