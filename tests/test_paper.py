import csv
import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from thanos_peer.algorithm.measures import Stationarity
from thanos_peer.algorithm.reference import Reference
from thanos_peer.paper import SIGMAS, Figure, SigmaRun, paper_draft, reproduce
from thanos_peer.simulate import Row

SVG = "{http://www.w3.org/2000/svg}svg"


def row(k, distance, gradient=1e-6):
    return Row(
        round=k,
        objective=-1.0,
        feasibility=1e-3 / (k + 1),
        consensus=0.0,
        stationarity=Stationarity(gradient, 0.0, 0.0),
        sigma=1.0,
        eta_min=0.1,
        eta_max=0.2,
        distance=distance,
        aligned_distance=distance,
        gap=0.0,
    )


def trial(sigma, half_at, floor, gradient=1e-6, rounds=200):
    """At distance 1 until round half_at, and flat at the floor from there on."""
    return SigmaRun(sigma, [row(k, floor if k >= half_at else 1.0, gradient) for k in range(rounds + 1)])


def figure(*trials):
    return Figure("l1", 1, Reference(np.eye(3, 2), 1e-12, 5), trials)


def holds(*trials):
    return [verdict.holds for verdict in figure(*trials).verdicts()]


SCHEDULE = trial(None, 50, 0.01)


@pytest.mark.parametrize("seed", [1, 3, 4])
@pytest.mark.parametrize("regularizer", ["l1", "l21"])
def test_the_three_observations_of_the_paper_hold(regularizer, seed):
    seen = []
    figure = reproduce(regularizer, seed=seed, max_rounds=3000, sigmas=SIGMAS, on_round=seen.append)
    assert figure.reference.is_precise
    assert [trial.sigma for trial in figure.trials] == [10.0, 1.0, 0.1, 0.01, None]
    assert len(seen) == 5 * 3001
    assert {verdict.observation: verdict.holds for verdict in figure.verdicts()} == {
        "a smaller sigma converges more slowly": True,
        "a larger sigma ends at a larger error": True,
        "the decreasing scheme beats a small constant sigma": True,
    }
    assert figure.schedule.rows[-1].feasibility < 1e-4


def test_all_trials_of_a_figure_start_at_the_same_point():
    figure = reproduce("l1", seed=2, max_rounds=30, sigmas=(0.1, 1.0), on_round=lambda _: None)
    assert [trial.sigma for trial in figure.trials] == [1.0, 0.1, None]
    assert len({trial.distance(0) for trial in figure.trials}) == 1
    assert len({trial.final_distance for trial in figure.trials}) > 1


@pytest.mark.parametrize(
    ("halves", "expected"),
    [
        ((20, 50, 100), True),
        ((20, 17, 100), True),
        ((20, 50, math.inf), True),
        ((20, math.inf, math.inf), True),
        ((20, 15, 100), False),
        ((20, 30, 39), False),
        ((20, math.inf, 100), False),
        ((100, 50, 20), False),
        ((math.inf, math.inf, math.inf), None),
        ((math.inf, 20, 100), None),
    ],
)
def test_smaller_is_slower_is_judged_by_the_rounds_to_half_the_distance(halves, expected):
    trials = [trial(sigma, half, 0.1) for sigma, half in zip((10.0, 1.0, 0.1), halves, strict=True)]
    assert holds(*reversed(trials), SCHEDULE)[0] is expected


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        ([trial(10.0, 20, 0.1), trial(1.0, 30, 0.05)], True),
        ([trial(10.0, 20, 0.1), trial(1.0, 30, 0.05), trial(0.1, 30, 0.01)], True),
        ([trial(10.0, 20, 0.05), trial(1.0, 30, 0.1)], False),
        ([trial(10.0, 20, 0.05), trial(1.0, 30, 0.05)], False),
        ([trial(10.0, 20, 0.1), trial(1.0, 30, 0.2, gradient=1.0)], None),
        ([trial(10.0, 20, 0.1), trial(1.0, 195, 0.2)], None),
        ([trial(10.0, 20, 0.1), trial(1.0, math.inf, 0.2)], None),
        ([trial(10.0, 20, 0.1, gradient=1.0), trial(1.0, 30, 0.05, gradient=1.0)], None),
    ],
)
def test_larger_ends_worse_is_judged_among_the_trials_that_have_settled(trials, expected):
    assert holds(*trials, SCHEDULE)[1] is expected


@pytest.mark.parametrize(("floor", "expected"), [(0.02, True), (0.01, False), (0.005, False)])
def test_the_schedule_is_compared_with_the_smallest_sigma(floor, expected):
    assert holds(trial(0.1, 20, floor), trial(10.0, 20, 0.4), SCHEDULE)[2] is expected


def test_a_verdict_comes_with_its_evidence():
    evidence = [
        verdict.evidence
        for verdict in figure(trial(10.0, 20, 0.1), trial(1.0, math.inf, 0.1), SCHEDULE).verdicts()
    ]
    assert evidence == [
        "rounds to half the distance, largest sigma first: 20, never; none below 0.8 of the one before",
        "final distance where settled: 1.0e-01 (sigma 10)",
        "final distance 1.0e-02 against 1.0e+00 (sigma 1)",
    ]


@pytest.mark.parametrize("regularizer", ["l1", "l21"])
def test_a_figure_is_written_as_table_and_pictures(tmp_path, regularizer):
    drawn = Figure(regularizer, 1, Reference(np.eye(3, 2), 1e-12, 5), [trial(0.5, 20, 0.1), SCHEDULE])
    paths = drawn.write(tmp_path / "new")
    assert [path.name for path in paths] == [f"figure-{regularizer}.{end}" for end in ("csv", "png", "svg")]
    with paths[0].open(newline="") as file:
        lines = list(csv.DictReader(file))
    expected = [(one.label, row) for one in drawn.trials for row in one.rows]
    for line, (label, row) in zip(lines, expected, strict=True):
        assert (line["sigma"], int(line["round"])) == (label, row.round)
        assert float(line["dist"]) == row.distance
        assert float(line["feas"]) == row.feasibility
        assert float(line["aligned_dist"]) == row.aligned_distance
        assert float(line["gap"]) == row.gap
        assert float(line["gradient"]) == row.stationarity.gradient
    assert {line["sigma"] for line in lines} == {"0.5", "k^(-1/3)"}
    assert paths[1].read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert ET.parse(paths[2]).getroot().tag == SVG  # noqa: S314


def test_the_same_figure_is_written_as_the_same_bytes(tmp_path):
    drawn = figure(trial(0.5, 20, 0.1), SCHEDULE)
    for one, other in zip(drawn.write(tmp_path / "a"), drawn.write(tmp_path / "b"), strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_the_papers_network_has_32_agents_and_half_of_the_possible_edges():
    draft = paper_draft("l1", 1, sigma=None, max_rounds=10)
    assert (draft.d, draft.n, draft.p, draft.samples, draft.mu) == (32, 10, 3, 320, 0.1)
    assert abs(len(draft.edges) / 496 - 0.5) < 0.1
