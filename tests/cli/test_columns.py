"""Columns and missing values on the command line: from files with ids and gaps to the scores of new samples."""

import csv
import json

import numpy as np
import pytest
import tomlkit
from cli.commands import call
from networks import raw_topology
from topology.graphs import put

from thanos_peer import load_result
from thanos_peer.samples import features_digest

NAMES = ["age", "bmi", "pulse", "height"]
ORDERS = [
    ["id", "age", "bmi", "pulse", "height"],
    ["height", "ward", "bmi", "pulse", "id", "age"],
    ["pulse", "id", "height", "age", "bmi", "note"],
]
TEXT = {"id": "P1", "ward": "B, west", "note": 'says "no"'}


def write(path, order, rows):
    """Rows of the four features as a file with its own columns in its own order."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(order)
        for row in rows.tolist():
            cells = TEXT | {name: "" if np.isnan(x) else repr(x) for name, x in zip(NAMES, row, strict=True)}
            writer.writerow([cells[name] for name in order])


@pytest.fixture
def samples():
    rng = np.random.default_rng(6)
    rows = rng.standard_normal((60, 4)) * [1, 5, 9, 2] + [40, 25, 70, 170]
    rows[rng.random(rows.shape) < 0.1] = np.nan
    return rows


@pytest.fixture
def topology(tmp_path, samples):
    raw = put(raw_topology("path", 3, n=4, p=2), "problem.features", NAMES)
    del raw["problem"]["n"]
    put(raw, "problem.data", {"kind": "files", "center": True, "scale": True, "missing": "mean"})
    raw["algorithm"] = {"method": "auto"}
    for i, (order, rows) in enumerate(zip(ORDERS, np.split(samples, [10, 35]), strict=True)):
        put(raw, f"peers[{i}].data", f"{i}.csv")
        write(tmp_path / f"{i}.csv", order, rows)
    (tmp_path / "net.toml").write_text(tomlkit.dumps(raw))
    return tmp_path / "net.toml"


def test_new_samples_are_picked_and_filled_as_those_of_the_run_were(topology, samples, tmp_path):
    assert "problem                 n = 4, p = 2" in call("topology", "check", topology).stdout
    call("simulate", topology, "--out", tmp_path / "run", "--quiet")
    result, mean = load_result(tmp_path / "run"), np.nanmean(samples, axis=0)
    filled = np.where(np.isnan(samples), mean, samples)
    assert result.feature_names_in_.tolist() == NAMES
    assert result.mean_ == pytest.approx(mean, rel=1e-12)
    assert result.scale_ == pytest.approx(filled.std(axis=0), rel=1e-10)
    for i in range(3):
        facts = json.loads((tmp_path / "run" / "peers" / f"{i}.json").read_text())
        assert facts["missing"] == np.isnan(samples).sum(axis=0).tolist()
        assert facts["picks_columns"] is True
    call("transform", tmp_path / "run", tmp_path / "1.csv", "-o", tmp_path / "scores.npy")
    expected = (filled[10:35] - mean) / filled.std(axis=0) @ result.components_.T
    assert np.load(tmp_path / "scores.npy") == pytest.approx(expected, rel=1e-9, abs=1e-12)
    write(tmp_path / "new.csv", ["id", "age", "bmi", "height"], samples[:3])
    refused = call("transform", tmp_path / "run", tmp_path / "new.csv", "-o", tmp_path / "new.npy", code=3).output
    assert "new.csv has no column 'pulse'" in refused
    assert not (tmp_path / "new.npy").exists()


def test_a_run_that_fills_nothing_and_picks_nothing_refuses_gaps_and_another_order(topology, samples, tmp_path):
    raw = tomlkit.loads(topology.read_text()).unwrap()
    del raw["problem"]["features"]
    raw["problem"] |= {"n": 4, "data": {"kind": "files", "center": True}}
    rows = np.nan_to_num(samples, nan=1.0)
    for i, part in enumerate(np.split(rows, 3)):
        write(tmp_path / f"{i}.csv", NAMES, part)
    topology.write_text(tomlkit.dumps(raw))
    call("simulate", topology, "--out", tmp_path / "run", "--quiet")
    facts = json.loads((tmp_path / "run" / "peers" / "0.json").read_text())
    assert (facts["missing"], facts["picks_columns"]) == (None, False)
    write(tmp_path / "gaps.csv", NAMES, samples)
    refused = call("transform", tmp_path / "run", tmp_path / "gaps.csv", "-o", tmp_path / "x.npy", code=3).output
    assert "has a missing value ('')" in refused
    write(tmp_path / "order.csv", NAMES[::-1], rows)
    refused = call("transform", tmp_path / "run", tmp_path / "order.csv", "-o", tmp_path / "x.npy", code=3).output
    assert "has the same features in another order" in refused
    write(tmp_path / "more.csv", ORDERS[0], rows)
    refused = call("transform", tmp_path / "run", tmp_path / "more.csv", "-o", tmp_path / "x.npy", code=3).output
    assert "more.csv has 5 columns; must have 4, as in " in refused
    assert "it has besides 'id'" in refused


def test_features_shows_what_peers_compare(topology, tmp_path):
    for i, order in enumerate(ORDERS):
        whole = call("features", tmp_path / f"{i}.csv").stdout.splitlines()
        assert [line.split()[-1] for line in whole[1:]] == order
        assert features_digest(order) in whole[0]
        picked = call("features", tmp_path / f"{i}.csv", "--topology", topology).stdout.splitlines()
        assert [line.split()[-1] for line in picked[1:]] == NAMES
        assert features_digest(NAMES) in picked[0]


def test_a_run_says_of_itself_what_it_did_and_one_without_gaps_may_be_beside_an_older_one(topology, tmp_path):
    call("simulate", topology, "--out", tmp_path / "run", "--quiet")
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert told["data"]["missing"] == "mean"
    assert told["features"] == NAMES
    del told["data"]["missing"]
    (tmp_path / "run" / "run.json").write_text(json.dumps(told))
    beside = "--quiet", "--free-ports", "--beside", tmp_path / "run"
    refused = call("run", topology, "--out", tmp_path / "other", *beside, code=3).output
    assert "problem.data.missing is 'refuse' there" in refused
