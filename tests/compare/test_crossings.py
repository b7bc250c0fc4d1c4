"""Where the method that sends less changes with n: by numbers written down here."""

import math

import pytest
from compare.runs_by_hand import record
from networks import make_topology

from thanos_peer.compare.crossings import crossing_between, crossings
from thanos_peer.compare.gaps import JudgedRun
from thanos_peer.compare.trials import Contender, Trial
from thanos_peer.topology.prediction import OF_A_GAP, crossing


def run(method, n, rounds, seed=1, **settings):
    """A run that sends 1000 bytes in 10 rounds, and ends at the best; or never gets there."""
    contender, topology = Contender(method, {"problem.n": n, **settings}), make_topology(d=4, n=n)
    curve = record([-0.5] * 100 if rounds is None else [-0.5] * (rounds // 10 - 1) + [-1.0])
    return JudgedRun(Trial(contender, seed, topology), curve, -1.0, 2.0)


def test_lines_through_logarithms_cross_where_powers_of_n_do():
    points = [(n, float(n**2), 1000.0 * n) for n in (20, 100, 400, 5000)]
    assert crossing_between(points) == pytest.approx(1000)
    assert crossing_between(points[:3]) is None
    assert crossing_between([*points[:3], (500, math.inf, 1.0), points[3]]) == pytest.approx(1000)
    assert crossing_between([(10, 2.0, 1.0), (20, 2.0, 1.0)]) is None


def test_the_crossing_stands_beside_the_prediction_with_the_seeds_behind_each_median():
    found = [run("gram", 20, 20), run("gram", 80, 320)]
    found += [run("proximal", 20, 40, seed) for seed in (1, 2)] + [run("proximal", 20, None, 3)]
    found += [run("proximal", 80, 160)]
    (text,) = crossings(found)
    lines, topology = text.splitlines(), found[0].trial.topology
    predicted = crossing(topology.problem, topology.algorithm, OF_A_GAP).n
    assert lines[0].startswith("Bytes to a gap of 1e-8 by n; medians")
    assert lines[2:4] == [
        "- n = 20: gram 2,000 (1 of 1), proximal 4,000 (2 of 3)",
        "- n = 80: gram 32,000 (1 of 1), proximal 16,000 (1 of 1)",
    ]
    assert lines[4] == (
        f"- gram sends less up to n = {predicted} by prediction; measured: 40, {40 / predicted:.2f} of that"
    )


def test_other_settings_have_lines_of_their_own_and_a_single_n_has_none():
    found = [
        run(method, n, n, **{"problem.p": p}) for method in ("gram", "proximal") for n in (20, 80) for p in (1, 2)
    ]
    texts = crossings(found)
    assert [text.splitlines()[0].split(";")[0] for text in texts] == [
        f'Bytes to a gap of 1e-8 by n, with {{"problem.p":{p}}}' for p in (1, 2)
    ]
    assert all(text.endswith("no crossing in between") for text in texts)
    assert crossings(found[:1]) == []
