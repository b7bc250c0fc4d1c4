import tomllib
from pathlib import Path

import pytest

from thanos_peer.algorithm.schedules import SMALLEST_SIGMA
from thanos_peer.topology import families, parse
from thanos_peer.topology.render import Draft, render


def parsed(draft):
    return parse(tomllib.loads(render(draft)), file=Path("net.toml"))


@pytest.mark.parametrize("d", [1, 2, 4, 12])
@pytest.mark.parametrize("family", families.FAMILIES)
def test_what_is_written_is_read_back(family, d):
    edges = families.make(family, d, seed=7, radius=0.6, columns=d if d < 4 else None)
    topology = parsed(Draft(name=f"{family}-{d}", d=d, edges=edges, title="A test."))
    assert topology.name == f"{family}-{d}"
    assert topology.d == d
    assert topology.graph.edges == tuple(sorted((min(edge), max(edge)) for edge in edges))
    assert topology.graph.explicit_weights is None
    assert [peer.id for peer in topology.peers] == list(range(d))
    assert [peer.address for peer in topology.peers] == [f"tcp://127.0.0.1:{17000 + i}" for i in range(d)]


@pytest.mark.parametrize("number", [1e-7, 0.1, 1 / 3, 2.0, 1e22, 5e-324])
def test_numbers_are_read_back_to_the_last_bit(number):
    sigma = max(number, SMALLEST_SIGMA)
    topology = parsed(
        Draft(name="x", d=2, edges=[(0, 1)], title="A test.", mu=number, sigma=sigma, tolerance=number)
    )
    assert topology.problem.mu == number
    assert topology.algorithm.smoothing.sigma == sigma
    assert topology.algorithm.tolerance == number


@pytest.mark.parametrize(
    ("options", "path", "value"),
    [
        ({"n": 7}, ("problem", "n"), 7),
        ({"p": 1}, ("problem", "p"), 1),
        ({"regularizer": "l21"}, ("problem", "regularizer"), "l21"),
        ({"regularizer": "none"}, ("problem", "mu"), None),
        ({"regularizer": "l21", "mu": 0.7}, ("problem", "mu"), 0.7),
        ({"samples": 41}, ("problem", "data", "samples"), 41),
        ({"seed": 2**63 - 1}, ("problem", "data", "seed"), 2**63 - 1),
        ({"sigma": 0.01}, ("algorithm", "smoothing", "sigma"), 0.01),
        ({"preset": "paper"}, ("algorithm", "preset"), "paper"),
        ({"preset": "paper"}, ("algorithm", "step", "first"), 0.1),
        ({"preset": "paper", "sigma": 0.01}, ("algorithm", "smoothing", "sigma"), 0.01),
        ({"sigma": None}, ("algorithm", "smoothing", "exponent"), 1 / 3),
        ({"max_rounds": 12}, ("algorithm", "max_rounds"), 12),
        ({"tolerance": 0.0}, ("algorithm", "tolerance"), 0.0),
    ],
)
def test_an_option_is_read_back_where_it_belongs(options, path, value):
    found = parsed(Draft(name="x", d=3, edges=families.path(3), title="A test.", **options))
    for part in path:
        found = getattr(found, part)
    assert found == value


def test_peers_get_the_host_and_consecutive_ports():
    topology = parsed(
        Draft(name="x", d=2, edges=[(0, 1)], title="A test.", host="peers.example.org", first_port=9000)
    )
    assert [peer.address for peer in topology.peers] == [f"tcp://peers.example.org:900{i}" for i in range(2)]


def test_the_title_is_the_first_comment():
    assert render(Draft(name="x", d=1, edges=[], title="Ours.")).startswith("# Ours.\n")
