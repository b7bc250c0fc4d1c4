"""What methods are predicted to send, against what they send."""

import csv
from pathlib import Path

import numpy as np
import pytest
from cli.commands import call

from thanos_peer.algorithm.methods import METHODS
from thanos_peer.problem import build
from thanos_peer.simulate import StackedNetwork
from thanos_peer.topology import load
from thanos_peer.topology.prediction import OF_A_GAP, crossing, outlook_of, typical_payload

SHIPPED = Path(__file__).parents[2] / "topologies"
SIZES = (20, 100, 400)


def bytes_to_a_gap(directory, file):
    """By method and n, what `compare` has measured."""
    sizes = ",".join(map(str, SIZES))
    words = ("--methods", "gram,proximal", "--sweep", f"problem.n={sizes}", "--seeds", 1, "--quiet")
    call("compare", file, *words, "--out", directory / "out")
    with (directory / "out" / "runs.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    return {(row["method"], int(row["problem.n"])): int(row["payload_1e-8"]) for row in rows}


def test_the_gram_matrix_is_cheaper_up_to_about_as_many_features_as_predicted(tmp_path):
    file = tmp_path / "net.toml"
    draft = ("--p", 3, "--mu", 0.1, "--seed", 2, "--samples", 1200)
    call("topology", "new", "erdos-renyi", "-d", 8, *draft, "-o", file)
    topology, sent = load(file), bytes_to_a_gap(tmp_path, file)
    edges = topology.d - 1
    size = edges * 2 * (264 + 8)
    for n in SIZES:
        problem = topology.problem.model_copy(update={"n": n})
        payload = edges * typical_payload("gram", problem, topology.algorithm, OF_A_GAP)
        assert sent["gram", n] == size + payload
    ratios = [np.log(sent["gram", n] / sent["proximal", n]) for n in SIZES]
    assert ratios[0] < 0 < ratios[-1]
    measured = np.exp(np.interp(0.0, ratios, np.log(SIZES)))
    few, many, predicted = crossing(topology.problem, topology.algorithm, OF_A_GAP)
    assert (few, many) == ("gram", "proximal")
    assert 1 / 1.5 < measured / predicted < 1.5


@pytest.mark.parametrize("name", ["small", "star", "grid"])
def test_tracking_takes_as_many_rounds_an_iteration_as_predicted_and_about_as_many_iterations(name):
    topology = load(SHIPPED / f"{name}.toml", method="proximal-tracking")
    network = StackedNetwork(build(topology))
    while not network.is_done:
        network.advance()
    expected = METHODS[topology.method].expected(outlook_of(topology))
    used = network.rounds_by_phase["proximal-tracking"]
    assert f" iterations of {used // int(network.array('iteration')[0])} rounds" in expected.words
    assert 1 / 2 < used / expected.rounds < 2
