import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thanos_peer.errors import ConfigError
from thanos_peer.topology import families
from thanos_peer.topology.graph import Graph, components

RANDOM = ("erdos-renyi", "geometric")


def degrees_of(d, edges):
    ends = Counter(end for edge in edges for end in edge)
    return sorted(ends[i] for i in range(d))


@pytest.mark.parametrize("d", [1, 2, 3, 4, 6, 9, 12, 20])
@pytest.mark.parametrize("family", families.FAMILIES)
def test_every_family_gives_a_connected_graph_without_loops_and_doubles(family, d):
    edges = families.make(family, d, seed=4, radius=0.6, columns=d if family == "torus" and d < 4 else None)
    assert len(components(d, edges)) == 1
    assert all(0 <= i < j < d for i, j in edges)
    assert len(set(edges)) == len(edges)


@pytest.mark.parametrize(
    ("family", "d", "degrees"),
    [
        ("ring", 1, [0]),
        ("ring", 2, [1, 1]),
        ("ring", 3, [2] * 3),
        ("ring", 8, [2] * 8),
        ("path", 1, [0]),
        ("path", 2, [1, 1]),
        ("path", 8, [1, 1, *[2] * 6]),
        ("star", 1, [0]),
        ("star", 3, [1, 1, 2]),
        ("star", 8, [*[1] * 7, 7]),
        ("complete", 3, [2] * 3),
        ("complete", 8, [7] * 8),
        ("tree", 3, [1, 1, 2]),
        ("tree", 7, [1, 1, 1, 1, 2, 3, 3]),
        ("grid", 3, [1, 1, 2]),
        ("grid", 9, [2, 2, 2, 2, 3, 3, 3, 3, 4]),
        ("torus", 9, [4] * 9),
        ("torus", 4, [2] * 4),
    ],
)
def test_a_family_has_its_degrees(family, d, degrees):
    assert degrees_of(d, families.make(family, d, seed=1)) == degrees


@pytest.mark.parametrize(
    ("family", "d", "columns", "count"),
    [
        ("grid", 12, None, 17),
        ("grid", 12, 12, 11),
        ("grid", 12, 1, 11),
        ("grid", 12, 20, 11),
        ("grid", 7, 3, 8),
        ("torus", 12, None, 24),
        ("torus", 12, 12, 12),
        ("torus", 12, 1, 12),
        ("torus", 12, 2, 18),
        ("torus", 1000, 40, 2000),
    ],
)
def test_a_grid_has_the_columns_that_were_asked_for(family, d, columns, count):
    assert len(families.make(family, d, seed=1, columns=columns)) == count


def test_a_short_last_row_of_a_grid_hangs_on_the_row_above():
    assert families.grid(7, 3) == [(0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (3, 6), (4, 5)]


def test_the_rows_and_columns_of_a_torus_close():
    assert {(0, 3), (0, 8), (3, 11), (8, 11)} <= set(families.torus(12, 4))
    assert Graph(100, tuple(families.torus(100))).diameter == 10
    assert Graph(100, tuple(families.grid(100))).diameter == 18


@pytest.mark.parametrize(("d", "columns"), [(12, 5), (3, 2), (12, 24)])
def test_a_torus_needs_full_rows(d, columns):
    with pytest.raises(ConfigError, match=f"a torus of {d} peers has no {columns} columns; --columns must divide"):
        families.torus(d, columns)


@pytest.mark.parametrize("family", RANDOM)
def test_random_families_depend_on_the_seed_alone(family):
    one, again, other = (families.make(family, 16, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one != other


@pytest.mark.parametrize("family", sorted(set(families.FAMILIES) - {*RANDOM}))
def test_the_other_families_do_not_depend_on_the_seed(family):
    assert families.make(family, 12, seed=1) == families.make(family, 12, seed=2)


@given(st.integers(0, 2**32), st.integers(2, 20))
def test_a_certain_edge_joins_all_agents(seed, d):
    assert families.erdos_renyi(d, 1.0, seed) == families.complete(d)
    assert families.geometric(d, math.sqrt(2), seed) == families.complete(d)


def test_erdos_renyi_joins_about_as_many_pairs_as_it_is_told_to():
    shares = [len(families.erdos_renyi(32, 0.5, seed)) / 496 for seed in range(20)]
    assert abs(np.mean(shares) - 0.5) < 0.02


def test_a_wider_sight_of_a_geometric_graph_only_adds_edges():
    near, far = (set(families.geometric(20, radius, 3)) for radius in (0.6, 0.9))
    assert near < far


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("family", RANDOM)
def test_random_families_of_one_or_two_peers_are_the_only_connected_graph(family, d):
    assert families.make(family, d, seed=1) == families.path(d)


def test_a_hopeless_probability_is_refused(monkeypatch):
    monkeypatch.setattr(families, "MOST_DRAWS", 20)
    with pytest.raises(ConfigError, match="none of 20 draws on 30 peers was connected; choose a larger --prob"):
        families.erdos_renyi(30, 0.001, 1)
    with pytest.raises(ConfigError, match="choose a larger --radius"):
        families.geometric(30, 0.001, 1)
