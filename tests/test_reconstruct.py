"""`benchmarks/reconstruct.py` finds what can be found of a peer's samples, and nothing where nothing can be."""

import json
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from programs import run

from thanos_peer.phases import Masking

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(BENCHMARKS))
attack = import_module("reconstruct")


def outcomes(method: str, graph: str, *, is_masked: bool) -> dict:
    """By who listens."""
    return {each.listener: each for each in attack.outcomes_of((method, is_masked, graph, 1))}


@pytest.mark.parametrize("graph", ["path", "ring"])
@pytest.mark.parametrize(("method", "largest"), [("thanos", 1e-8), ("proximal-tracking", 1e-12)])
def test_every_neighbor_finds_second_moments_in_what_trackers_say_though_sums_are_masked(graph, method, largest):
    found = outcomes(method, graph, is_masked=True)
    assert {"one of several", "all neighbors", "two peers"} <= set(found)
    assert all(each.error < largest for each in found.values())


@pytest.mark.parametrize("method", ["gram", "proximal"])
def test_who_is_told_a_sum_of_one_finds_it_and_masks_leave_nothing_but_the_sum_of_a_part(method):
    path, ring = (outcomes(method, graph, is_masked=False) for graph in ("path", "ring"))
    assert path["sole neighbor"].error < 1e-12
    assert ring["one of several"].error < 1e-12  # the parent in the tree
    path, ring = (outcomes(method, graph, is_masked=True) for graph in ("path", "ring"))
    alone = path["sole neighbor"], path["all neighbors"], ring["all neighbors"]
    assert all(each.part == 1 and each.error < 1e-12 for each in alone)
    # One part of five and one of four peers: the result, less their own, tells as much.
    for hidden in (ring["one of several"], ring["two peers"]):
        assert hidden.part > 1
        assert hidden.error == pytest.approx(hidden.guess, rel=1e-9)
    assert path["one of several"].part == 2
    assert path["one of several"].error > 0.3


def test_both_samples_of_a_peer_with_two_are_found_by_who_is_told_its_sums():
    found = outcomes(attack.TWO, "ring", is_masked=False)
    assert found["one of several"].samples < 1e-12
    hidden = outcomes(attack.TWO, "ring", is_masked=True)
    assert hidden["one of several"].samples > 0.3
    assert hidden["all neighbors"].samples < 1e-12


def test_single_samples_are_found_where_a_method_draws_some():
    found = outcomes("vrsgt", "ring", is_masked=True)
    assert found["all neighbors"].samples < 1e-6
    assert found["one of several"].error is None  # not tried


def test_a_view_has_no_blocks_that_its_members_do_not_hear():
    instance = attack.network_of("ring", "gram", attack.samples_of(1, attack.SAMPLES), is_masked=True)
    assert isinstance(instance.plan(0).phases[0], Masking)
    rounds = attack.recorded(instance)
    view = attack.View(instance, rounds, [1])
    assert view.heard == [0, 1, 2]
    with pytest.raises(StopIteration):
        view.said(rounds[0], 3)
    assert set(view.grams) == set(view.own) == {1}
    # Numbers for the parent are for the parent alone.
    tree = instance.topology.graph.tree
    told = [pair for each in rounds for pair, block in each.told.items() if block.kind.startswith("int")]
    assert told
    assert all(tree.parents[i] == j for i, j in told)


def test_what_it_prints_is_what_it_writes(tmp_path):
    file = tmp_path / "outcomes.json"
    chosen = "--seeds=2", "--workers=2", "--method=gram", "--graph=ring", f"--json={file}"
    printed = run(sys.executable, BENCHMARKS / "reconstruct.py", *chosen)
    outcomes = json.loads(file.read_text())
    assert len(outcomes) == 2 * 2 * 3
    lines = [line.split("|")[1:-1] for line in printed.splitlines()[2:]]
    rows = {tuple(cell.strip() for cell in line[:4]): [cell.strip() for cell in line[4:]] for line in lines}
    masked = [each for each in outcomes if each["is_masked"] and each["listener"] == "one of several"]
    tried, below, _, error, *_ = rows["gram", "masked", "one of several", "2 to 5"]
    assert (tried, below) == ("2 of 2", "0")
    assert error.startswith(f"{np.median([each['error'] for each in masked]):.1e} ")
