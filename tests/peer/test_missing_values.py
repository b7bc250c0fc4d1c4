"""Peers as processes whose files have ids, texts, columns in any order, and gaps."""

import csv

import numpy as np
import pytest
from processes import (
    PATIENCE,
    assert_same_bits,
    ended_afterwards,
    exact,
    said,
    start_peer,
    wait_until,
    write_topology,
)

from thanos_peer import load_result
from thanos_peer.launch.claims import check_claims

NAMES = ["age", "bmi", "pulse", "height", "weight"]
ORDERS = [["id", *NAMES], [*NAMES[::-1], "ward", "id"], ["pulse", "id", "age", "weight", "ward", "bmi", "height"]]


def parts_with_gaps(share):
    rng = np.random.default_rng(8)
    rows = rng.standard_normal((90, 5)) @ rng.standard_normal((5, 5)) + [40, 25, 70, 170, 80]
    rows[rng.random(rows.shape) < share] = np.nan
    return np.split(rows, [20, 23])


def topology_of(directory, parts, **data):
    def change(raw):
        exact("proximal")(raw)
        del raw["problem"]["n"]
        raw["problem"]["features"] = NAMES
        raw["problem"]["data"] = {"kind": "files", "center": True, "scale": True, "missing": "mean"} | data
        for peer, order, part in zip(raw["peers"], ORDERS, parts, strict=True):
            peer["data"] = f"{peer['id']}.csv"
            with (directory / peer["data"]).open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(order)
                for row in part.tolist():
                    numbers = {name: "" if np.isnan(x) else repr(x) for name, x in zip(NAMES, row, strict=True)}
                    cells = {"id": "P7", "ward": 'B, "west"'} | numbers
                    writer.writerow([cells[name] for name in order])

    return write_topology(directory / "net.toml", "path", 3, n=5, change=change)


def test_peers_fill_what_is_missing_and_one_that_is_killed_fills_the_same(tmp_path):
    parts = parts_with_gaps(0.05)
    topology, out = topology_of(tmp_path, parts), tmp_path / "out"
    first, killed = (start_peer(topology, i, out) for i in (0, 1))
    with ended_afterwards(first):
        with ended_afterwards(killed):
            wait_until(lambda: "phase mean begins" in said(out, 1), "peer 1 sums, and lacks peer 2")
            killed.kill()
            killed.wait(PATIENCE)
        others = [start_peer(topology, i, out) for i in (1, 2)]
        with ended_afterwards(*others):
            assert [peer.wait(PATIENCE) for peer in (first, *others)] == [0] * 3
    assert_same_bits(out, topology)
    checked = check_claims(topology, out)
    assert checked.false == []
    rows = np.concatenate(parts)
    filled = np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows)
    for i in range(3):
        result = load_result(out, peer=i)
        assert result.facts["missing"] == np.isnan(rows).sum(axis=0).tolist()
        assert result.mean_ == pytest.approx(filled.mean(axis=0), rel=1e-12)
        assert result.scale_ == pytest.approx(filled.std(axis=0), rel=1e-10)
        assert result.feature_names_in_.tolist() == NAMES


def test_a_feature_of_which_too_much_is_missing_ends_all_peers_by_name(tmp_path):
    parts = parts_with_gaps(0.02)
    parts[2][:60, 3] = np.nan
    topology, out = topology_of(tmp_path, parts, max_missing=0.25), tmp_path / "out"
    peers = [start_peer(topology, i, out) for i in range(3)]
    with ended_afterwards(*peers):
        assert [peer.wait(PATIENCE) for peer in peers] == [3] * 3
    missing = int(np.isnan(np.concatenate(parts))[:, 3].sum())
    for i in range(3):
        assert f"of feature 'height', {missing} of 90 ({missing / 90:.1%}). At most 25.0% may be" in said(out, i)
        assert "Traceback" not in said(out, i)
