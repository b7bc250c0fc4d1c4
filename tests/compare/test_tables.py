import csv
import io
import math

import numpy as np
import pytest
from compare.runs_by_hand import record, result, trial, wandering

from thanos_peer.compare.figure import common_curves, draw
from thanos_peer.compare.gaps import JudgedRun
from thanos_peer.compare.records import DIVERGED, Record
from thanos_peer.compare.tables import SPREADS, markdown, runs_csv, spread, table_csv
from thanos_peer.errors import ConfigError

GOOD = [
    result([-0.5, -1.0], seed=1),
    result([-0.5, -0.5, -0.9999, -1.0], seed=2),
    result([-0.5, -0.5, -1.0], seed=3),
]


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize(
    ("name", "spread"),
    [
        ("rounds_1e-2", ["30", "20", "30"]),
        ("rounds_1e-8", ["30", "20", "40"]),
        ("messages_1e-8", ["240", "160", "320"]),
        ("payload_1e-8", ["3000", "2000", "4000"]),
        ("seconds_1e-8", ["0.3", "0.2", "0.4"]),
        ("residual", ["1e-12"] * 3),
    ],
)
def test_medians_and_spread_over_seeds(name, spread):
    (row,) = rows_of(table_csv(GOOD))
    assert (row["method"], row["seeds"], row["failed"], row["endings"]) == (
        "proximal",
        "3",
        "0",
        "3 at the best stationary point",
    )
    assert [row[f"{name}_{which}"] for which in SPREADS] == spread


def test_who_never_gets_there_counts_as_infinite():
    (row,) = rows_of(table_csv([GOOD[0], GOOD[1], JudgedRun(trial(seed=3), wandering().record, -1.0, 2.0)]))
    assert [row[f"rounds_1e-2_{which}"] for which in SPREADS] == ["30", "20", "never"]
    assert row["failed"] == "1"
    assert row["endings"] == "2 at the best stationary point, 1 not stationary"


def test_a_row_per_run_with_a_column_for_each_setting_that_is_swept():
    failed = JudgedRun(
        trial("thanos", **{"algorithm.beta": 0.3}), Record("digest", DIVERGED, "agent 3"), -1.0, 2.0
    )
    first, second = rows_of(runs_csv([GOOD[0], failed]))
    assert (first["method"], first["algorithm.beta"], first["seed"]) == ("proximal", "", "1")
    assert (first["nonzeros"], first["has_same_zeros"], first["ending"]) == (
        "5",
        "True",
        "at the best stationary point",
    )
    assert (first["rounds_1e-2"], first["payload_1e-2"], first["messages_1e-2"]) == ("20", "2000", "160")
    assert (second["algorithm.beta"], second["ending"], second["words"]) == ("0.3", "diverged", "agent 3")
    assert (second["gap"], second["rounds"], second["rounds_1e-2"]) == ("", "", "never")


def test_the_table_for_people():
    lines = markdown([*GOOD, wandering(), wandering(seed=2)], ["head"]).splitlines()
    assert lines[0] == "head"
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert cells[2] == [
        *("proximal", "1e-2", "3 of 3", "30 (20 to 30)", "240 (160 to 240)"),
        *("3,000 (2,000 to 3,000)", "0.3 (0.2 to 0.3)"),
    ]
    assert cells[5] == ["thanos", "1e-2", "0 of 2", "never", "never", "never", "never"]
    assert cells[-2:] == [
        ["proximal", "3 at the best stationary point", "0", "1.0e-12", "0", "5", "3 of 3"],
        ["thanos", "2 not stationary", "5.0e-02", "1.0e-03", "0", "5", "0 of 2"],
    ]
    assert lines[-1] == "- thanos, not stationary: too few rounds (seed 1, 2)"


def test_the_rule_for_all_endings_stands_above_them_with_those_that_solve_a_smoothed_problem():
    text = markdown([*GOOD, wandering()], ["head"])
    rule = "not stationary if the residual, of the problem itself, is above 1e-6, whatever tolerance the method"
    assert rule in text
    assert "if the final gap is above 1e-8 and above 100 times the residual, " in text
    assert "may stop by their own rule where they are not stationary: thanos.\n" in text
    assert "smoothed" not in markdown(GOOD, ["head"])


def test_unknown_numbers_are_left_out_of_a_spread():
    assert spread([3.0, math.nan, 1.0]) == (2.0, 1.0, 3.0)
    assert all(map(math.isnan, spread([math.nan])))


FAILED = JudgedRun(trial("thanos"), Record("digest", DIVERGED, "agent 3"), -1.0, 2.0)
ALONE = JudgedRun(trial("slpg", is_central=True), record([-0.9, -1.0], payload=None), -1.0, 2.0)


@pytest.mark.parametrize("found", [GOOD, [FAILED, ALONE], [result([-1.0])], [*GOOD, FAILED, wandering()]])
def test_whatever_there_is_is_drawn(found):
    assert draw(found, "title").startswith(b"\x89PNG")


def test_nothing_is_drawn_of_failures_alone():
    with pytest.raises(ConfigError, match="every run has failed"):
        draw([FAILED], "title")


def test_curves_stay_where_they_are_until_their_next_point_and_after_their_end():
    places = [np.array([0.0, 10.0, 100.0, 100.0]), np.array([2.0, 50.0, 60.0])]
    at, gaps = common_curves(places, [np.array([3.0, 2.0, 1.0]), np.array([5.0, 4.0])])
    assert (at[0], at[-1]) == (10.0, 100.0)
    assert gaps[0] == pytest.approx(np.where(at < 100, 2.0, 1.0))
    assert gaps[1] == pytest.approx(np.where(at < 50, 5.0, 4.0))
