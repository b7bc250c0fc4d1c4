import pytest

from thanos_peer import errors
from thanos_peer.errors import DivergenceError, Mistake, RemoteProtocolError, TopologyError


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [
        ("ConfigError", 3),
        ("TopologyError", 3),
        ("DataFileError", 3),
        ("DivergenceError", 4),
        ("ProtocolError", 5),
        ("LocalProtocolError", 5),
        ("RemoteProtocolError", 5),
        ("HandshakeError", 5),
        ("NeighborLostError", 6),
    ],
)
def test_every_error_is_in_one_tree_with_its_exit_code(kind, exit_code):
    error = getattr(errors, kind)
    assert issubclass(error, errors.ThanosPeerError)
    assert error.exit_code == exit_code


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        (Mistake("problem.p", "must be at most 6", 7), "problem.p = 7: must be at most 6"),
        (Mistake("edges", "is missing", has_value=False), "edges: is missing"),
        (Mistake("name", "no", "a\n\x1b[31mb\u202e"), r"name = 'a\n\x1b[31mb\u202e': no"),
        (Mistake("name", "no", "x" * 78), f"name = '{'x' * 78}': no"),
        (Mistake("name", "no", "x" * 79), f"name = '{'x' * 76}...: no"),
    ],
)
def test_a_mistake_shows_its_value_on_one_short_plain_line(mistake, text):
    assert str(mistake) == text


def test_a_topology_error_counts_and_lists_its_mistakes():
    one, two = Mistake("p", "no", 1), Mistake("n", "no", 2)
    assert str(TopologyError("a.toml", [one])) == "a.toml: p = 1: no"
    assert str(TopologyError("a.toml", [one, two])) == "a.toml: 2 mistakes\n  p = 1: no\n  n = 2: no"
    assert TopologyError("a.toml", [one, two]).mistakes == (one, two)


def test_a_divergence_says_who_when_with_which_step_and_what_to_try():
    error = DivergenceError(agent=3, k=17, eta=12.345678, what="||X||_F = inf", advice="try less")
    assert str(error) == "agent 3 diverged in round 17 with step size 12.3: ||X||_F = inf; try less"
    assert (error.agent, error.k, error.eta) == (3, 17, 12.345678)
    without = DivergenceError(agent=3, k=17, eta=0.0, what="||X||_F = inf", advice="try less")
    assert str(without) == "agent 3 diverged in round 17: ||X||_F = inf; try less"


@pytest.mark.parametrize(
    ("neighbor", "k", "text"),
    [(3, 17, "neighbor 3, round 17: odd"), (0, 0, "neighbor 0, round 0: odd"), (None, None, "a peer: odd")],
)
def test_a_neighbors_fault_says_who_and_when(neighbor, k, text):
    error = RemoteProtocolError(neighbor=neighbor, k=k, what="odd")
    assert str(error) == text
    assert (error.neighbor, error.k) == (neighbor, k)
