"""Missing values become the mean over all agents, as if all samples had been filled in one place before."""

import numpy as np
import pytest
from networks import found_bits, make_instance, make_topology
from uneven import LEADING, PLAIN, N, assert_all_found_the_same, network_of, raw_with_parts, run, some_parts

from thanos_peer.agent import Agent
from thanos_peer.algorithm.pooling import WrongSumError, decide
from thanos_peer.errors import DataFileError
from thanos_peer.phases import Found
from thanos_peer.preparation.gaps import check_present, present_fault
from thanos_peer.problem import build, share_of
from thanos_peer.simulate import StackedNetwork

FILLED = {"kind": "files", "missing": "mean", "max_missing": 0.6}
NAMES = "abcde"


def parts_with_gaps(sizes, share=0.1, n=N, seed=2):
    """Random samples in which values are missing, some of each feature being there."""
    rng, parts = np.random.default_rng(seed), some_parts(sizes, n)
    for part in parts:
        part[rng.random(part.shape) < share] = np.nan
    return parts


def filled(parts):
    """All samples in one place, filled in by numpy."""
    rows = np.concatenate(parts)
    return np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows)


SPLITS = {
    "even": (40, 40, 40),
    "uneven": (3, 110, 7),
    "kept rows": (4, 3, 2),  # fewer than features at every agent
    "one sample": (1, 60, 20),
}


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("is_missing_at_one", [True, False])
def test_each_agents_share_is_that_of_the_samples_filled_in_one_place(
    tmp_path, split, center, scale, is_missing_at_one
):
    parts = parts_with_gaps(SPLITS[split])
    parts[-1][0] = 1.0  # all features are there somewhere
    if is_missing_at_one:
        parts[0][:, 3] = np.nan
    data = FILLED | {"center": center, "scale": scale}
    raw = raw_with_parts(tmp_path, parts, data=data, start=PLAIN, names=NAMES, max_rounds=3)
    instance = make_instance(raw, file=tmp_path / "net.toml")
    rows, m = filled(parts), sum(SPLITS[split])
    missing = np.isnan(np.concatenate(parts)).sum(axis=0)
    assert instance.found.count == m
    assert (m - instance.found.present).tolist() == missing.tolist()
    assert instance.found.mean == pytest.approx(np.nanmean(np.concatenate(parts), axis=0), rel=1e-12)
    rows = (rows - rows.mean(axis=0) * center) / (rows.std(axis=0) if scale else 1.0)
    gram = rows.T @ rows
    size = np.sqrt(np.outer(np.diag(gram), np.diag(gram)))
    assert np.abs(instance.pooled.whole_gram() - gram).max() <= 1e-10 * np.abs(gram).max()
    assert (np.abs(instance.pooled.whole_gram() - gram) <= 1e-9 * size).all()
    for share, size in zip(instance.shares, SPLITS[split], strict=True):
        assert (share.own.moments(instance.found).rows is None) == (size >= N)
    for local, part in zip(instance.local_problems, np.split(rows, np.cumsum(SPLITS[split])[:-1]), strict=True):
        own = part.T @ part
        found = local.f.gram if local.f.gram is not None else local.f.A @ local.f.A.T
        assert np.abs(found - own).max() <= 1e-10 * np.abs(gram).max()


@pytest.mark.parametrize(
    ("data", "phases"),
    [
        ({}, ["mean", "size"]),
        ({"center": True}, ["mean", "spread", "size"]),
        ({"center": True, "scale": True, "overall": "auto"}, ["mean", "spread", "size"]),
    ],
)
def test_agents_find_the_same_in_rounds_as_in_one_place(tmp_path, data, phases):
    parts = parts_with_gaps((20, 3, 30))
    network = network_of(tmp_path, parts, data=FILLED | data, start=LEADING, max_rounds=5, names=NAMES)
    assert list(run(network))[: len(phases)] == phases
    assert_all_found_the_same(network)
    instance = make_instance(
        raw_with_parts(tmp_path, parts, data=FILLED | data, start=LEADING, max_rounds=5, names=NAMES),
        file=tmp_path / "net.toml",
    )
    assert network.found.mean.tobytes() == instance.found.mean.tobytes()
    assert network.found.present.tobytes() == instance.found.present.tobytes()
    stacked = StackedNetwork(instance)
    while not stacked.is_done:
        stacked.advance()
    assert found_bits(stacked.found) == found_bits(network.found)


def test_a_method_that_draws_from_the_samples_has_them_filled(tmp_path):
    parts = parts_with_gaps((20, 30, 9))
    raw = raw_with_parts(tmp_path, parts, data=FILLED, start=PLAIN, names=NAMES)
    del raw["problem"]["mu"]
    raw["problem"]["regularizer"] = "none"
    raw["algorithm"] = {"method": "vrsgt", "start": PLAIN, "max_rounds": 2}
    instance = make_instance(raw, file=tmp_path / "net.toml")
    rows = np.split(filled(parts), [20, 50])
    for share, part in zip(instance.shares, rows, strict=True):
        (A,) = share.own.kept(instance.found)
        assert pytest.approx(part, rel=1e-12) == A.T


def test_where_nothing_is_missing_all_has_the_bits_of_a_run_that_refuses_it(tmp_path):
    parts, found = some_parts((20, 3, 30)), []
    for missing in ("refuse", "mean"):
        data = {"kind": "files", "center": True, "scale": True, "overall": "auto", "missing": missing}
        network = network_of(tmp_path, parts, data=data, start=LEADING, max_rounds=20, names=NAMES)
        run(network)
        found.append(found_bits(network.found))
    assert found[1].pop("present") != found[0].pop("present")
    assert found[0] == found[1]


def refused(tmp_path, parts, names=NAMES, **data):
    topology = make_topology(
        raw_with_parts(tmp_path, parts, data=FILLED | data, names=names), file=tmp_path / "net.toml"
    )
    with pytest.raises(DataFileError) as caught:
        build(topology)
    for each in range(len(parts)):
        # All agents refuse it alike, from what the network has found.
        phase = share_of(topology, each).plan().phases[0]
        present, count = (~np.isnan(np.concatenate(parts))).sum(axis=0), sum(map(len, parts))
        word = np.concatenate([[count], present, np.zeros(N)])
        with pytest.raises(DataFileError) as alone:
            phase.concluded(Found(), phase.most, word)
        assert str(alone.value) == str(caught.value)
    return str(caught.value)


def test_features_of_which_too_much_is_missing_are_refused_by_name(tmp_path):
    parts = some_parts((10, 4, 6))
    parts[0][:9, 1] = np.nan
    parts[2][:4, 1] = np.nan
    what = (
        " At most 60.0% may be (problem.data.max_missing): leave such a feature out in the topology file "
        "(problem.exclude or problem.features), or raise that share; one without any value has to be left out"
    )
    too_many = "too many values are missing at all peers together: of "
    assert refused(tmp_path, parts) == f"{too_many}feature 'b', 13 of 20 (65.0%).{what}"
    nameless = refused(tmp_path, parts, names=None)
    assert nameless == f"{too_many}feature 1 (counted from 0), 13 of 20 (65.0%).{what}"
    build(make_topology(raw_with_parts(tmp_path, parts, data=FILLED | {"max_missing": 0.65}), file=tmp_path / "n"))
    for part in parts:
        part[:, 3] = np.nan
    found = refused(tmp_path, parts, max_missing=0.999)
    assert found.startswith(f"{too_many}feature 'd', 20 of 20 (100.0%). At most 99.9%")
    both = refused(tmp_path, parts)
    assert both.startswith(f"{too_many}feature 'b', 13 of 20 (65.0%); of feature 'd', 20 of 20 (100.0%).")


def test_of_many_such_features_only_some_are_named():
    with pytest.raises(
        DataFileError, match=r"of feature 4 \(counted from 0\), 9 of 9 \(100.0%\); and 3 more features"
    ):
        check_present(np.zeros(8), 9.0, 0.5, None)


@pytest.mark.parametrize(
    ("present", "fault"),
    [
        ([4.0, 7.0], None),
        ([3.0, 7.0], "the number of values of feature 0 (counted from 0) is 3, not from 4 to 10"),
        ([4.0, 9.0], "the number of values of feature 1 (counted from 0) is 9, not from 2 to 8"),
        ([4.0, 6.5], "the number of values of feature 1 (counted from 0) is 6.5, not a whole one"),
        ([4.0, np.inf], "the number of values of feature 1 (counted from 0) is inf, not from 2 to 8"),
    ],
)
def test_counts_that_no_honest_agents_can_have_are_seen(present, fault):
    # Of 10 samples in all 4 are this agent's, with 4 and 2 values.
    assert present_fault(np.array(present), 10.0, np.array([4.0, 2.0]), 4) == fault


def test_a_root_refuses_wrong_counts_and_an_agent_a_wrong_word(tmp_path):
    parts = parts_with_gaps((20, 3, 30))
    topology = make_topology(raw_with_parts(tmp_path, parts, data=FILLED, names=NAMES), file=tmp_path / "net.toml")
    pooled = share_of(topology, 0).plan().phases[0].prepare(Found())
    sums = pooled.numbers(None)
    _, word = decide(pooled, None, pooled.format.encode(sums, 3))
    assert pooled.word_fault(word) is None
    assert word[1 : N + 1].tolist() == (~np.isnan(parts[0])).sum(axis=0).tolist()
    for place, change in ((0, -1.0), (0, 0.5), (1, 30.0), (2, -1.0), (3, 0.5)):
        wrong = sums.copy()
        wrong[place] += change
        with pytest.raises(WrongSumError, match="number of"):
            decide(pooled, None, pooled.format.encode(wrong, 3))
        other = word.copy()
        other[place] += change
        assert "number of" in pooled.word_fault(other)


def test_an_agent_that_goes_on_fills_as_before(tmp_path):
    parts = parts_with_gaps((20, 3, 30))
    data = FILLED | {"center": True, "scale": True, "overall": "auto"}
    raw = raw_with_parts(tmp_path, parts, data=data, start=LEADING, names=NAMES, max_rounds=20)
    network = network_of(tmp_path, parts, data=data, start=LEADING, names=NAMES, max_rounds=20)
    topology = make_topology(raw, file=tmp_path / "net.toml")
    expected = network_of(tmp_path, parts, data=data, start=LEADING, names=NAMES, max_rounds=20)
    run(expected)
    while not network.is_done:
        network.advance()
        if network.agents[1].k in (1, 3, 6, 9, 15):
            network.agents[1] = Agent(topology, 1, share_of(topology, 1).plan(), network.agents[1].memory())
    assert found_bits(network.found) == found_bits(expected.found)
