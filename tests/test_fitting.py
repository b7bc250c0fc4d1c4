"""`thanos_peer.fit`: the network in one call."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tomlkit
from frames import Frame
from sklearn.decomposition import PCA

import thanos_peer
from thanos_peer.errors import ConfigError, DataFileError
from thanos_peer.launch import independent
from thanos_peer.problem import build
from thanos_peer.simulate import AgentNetwork
from thanos_peer.topology import load

SPREAD = np.array([5.0, 3.0, 2.0, 0.3, 0.3, 0.3])


def make_samples(parts=4, seed=3):
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    return np.array_split(4.0 + rng.standard_normal((90, 6)) * SPREAD @ turn, parts)


@pytest.mark.parametrize(
    ("method", "tolerance"), [("auto", None), ("proximal", None), ("destiny", 1e-8), ("thanos", 1e-8)]
)
def test_without_a_regularizer_it_is_pca_of_all_samples(method, tolerance):
    samples = make_samples()
    result = thanos_peer.fit(samples, 2, regularizer="none", method=method, tolerance=tolerance)
    pca = PCA(2).fit(np.vstack(samples))
    assert result.facts["has_converged"]
    assert result.facts["method"] == ("gram" if method == "auto" else method)
    assert result.facts["residual"] < (2e-10 if tolerance is None else 1e-6)
    rough = 1.0 if tolerance is None else 1e6
    np.testing.assert_allclose(result.mean_, pca.mean_, rtol=1e-12)
    np.testing.assert_allclose(result.explained_variance_ratio_, pca.explained_variance_ratio_, rtol=1e-11 * rough)
    np.testing.assert_allclose(np.abs(result.components_ @ pca.components_.T), np.eye(2), atol=1e-10 * rough)
    new = np.random.default_rng(8).standard_normal((7, 6))
    np.testing.assert_allclose(np.abs(result.transform(new)), np.abs(pca.transform(new)), atol=1e-8 * rough)


@pytest.mark.parametrize("method", ["gram", "proximal-tracking", "thanos"])
def test_residual_and_verdict_are_of_the_components_that_are_judged(method):
    samples = make_samples()
    result = thanos_peer.fit(samples, 2, mu=0.1, method=method)
    A = independent.prepared(samples, center=True, scale=False) / result.facts["overall"]
    worth = independent.worth_of(A, result.judged_components_.T, "l1", 0.1)
    assert worth.residual == pytest.approx(result.facts["residual"], rel=1e-3, abs=1e-12)
    assert worth.objective == pytest.approx(result.facts["judged_objective"], rel=1e-9)
    assert result.judged_components_.tobytes() == result.sparse_components_.tobytes()
    # Methods that mix leave dense loadings beside them.
    is_same = result.components_.tobytes() == result.judged_components_.tobytes()
    assert is_same == (method == "gram")


@pytest.mark.parametrize("method", ["gram", "proximal", "thanos"])
def test_a_weight_makes_loadings_zero_and_names_are_kept(method):
    names = [f"gene {i}" for i in range(6)]
    given = {"feature_names": names, "method": method}
    result = thanos_peer.fit(make_samples(), 2, mu=0.2, scale=True, max_rounds=400, **given)
    assert result.sparse_components_.shape == (2, 6)
    assert 2 <= np.count_nonzero(result.sparse_components_) < 12
    assert result.feature_names_in_.tolist() == names
    rows = np.vstack(make_samples())
    assert result.facts["samples"] == len(rows)
    assert result.facts["overall"] == pytest.approx(
        np.linalg.norm((rows - rows.mean(axis=0)) / rows.std(axis=0), 2)
    )
    assert result.common_components_ == pytest.approx(result.components_, abs=1e-2)
    assert result.all_components_.shape == result.all_sparse_components_.shape == (4, 2, 6)
    assert result.all_components_[0].tobytes() == result.components_.tobytes()
    supports = {(each != 0).tobytes() for each in result.all_sparse_components_}
    if method != "thanos":
        assert supports == {(result.components_ != 0).tobytes()}
        assert {each.tobytes() for each in result.all_sparse_components_} == {result.components_.tobytes()}
    np.testing.assert_allclose(result.scale_, rows.std(axis=0))
    Z, S = (rows - rows.mean(axis=0)) / rows.std(axis=0), result.sparse_components_.T
    explained = np.sum((Z @ S @ np.linalg.pinv(S)) ** 2) / np.sum(Z**2)
    assert result.facts["sparse_explained_variance"] == pytest.approx(explained, rel=1e-6)


@pytest.mark.parametrize("method", ["auto", "gram", "proximal", "proximal-tracking", "thanos"])
def test_a_weight_of_groups_makes_whole_groups_zero(method):
    groups = [[0, 1], [2, 4], [3, 5]]
    given = {"regularizer": "group-l21", "regularizer_options": {"groups": groups}, "method": method}
    result = thanos_peer.fit(make_samples(), 1, mu=0.3, scale=True, **given)
    assert result.facts["has_converged"] or method == "thanos"
    zeros = [(result.sparse_components_[:, group] == 0).mean() for group in groups]
    assert sorted(zeros) in ([0.0, 0.0, 1.0], [0.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("method", "kind"), [("thanos", "random"), ("thanos", "destiny"), ("proximal", "leading"), ("auto", "leading")]
)
def test_it_has_the_bits_of_the_same_network_with_files(tmp_path, method, kind):
    samples = make_samples(3)
    given = {"method": method, "start": kind, "max_rounds": 40, "tolerance": 1e-4}
    result = thanos_peer.fit(samples, 2, mu=0.1, graph="path", seed=4, **given)
    problem = {"n": 6, "p": 2, "regularizer": "l1", "mu": 0.1}
    problem["data"] = {"kind": "files", "center": True, "overall": "auto"}
    algorithm = {"method": method, "max_rounds": 40, "tolerance": 1e-4, "start": {"kind": kind, "seed": 4}}
    if method == "thanos":
        algorithm |= {"beta": "auto", "smoothing": {"rule": "decreasing"}, "step": {"rule": "bb", "first": "auto"}}
    peers = [{"id": i, "address": f"ipc://{i}", "data": f"{i}.npy"} for i in range(3)]
    raw = {"name": "fit", "edges": [[0, 1], [1, 2]], "problem": problem, "algorithm": algorithm, "peers": peers}
    (tmp_path / "net.toml").write_text(tomlkit.dumps(raw), encoding="utf-8")
    for i, rows in enumerate(samples):
        np.save(tmp_path / f"{i}.npy", rows)
    network = AgentNetwork(build(load(tmp_path / "net.toml")))
    while not network.is_done:
        network.advance()
    assert result.components_.T.tobytes() == network.X[0].tobytes()
    assert result.sparse_components_.T.tobytes() == network.sparse[0].tobytes()
    assert result.facts["round"] == network.k
    assert result.facts["payload_bytes"] == network.payload_sent


@pytest.mark.parametrize("graph", ["complete", [(0, 1), (1, 2), (1, 3)]])
def test_any_graph_finds_the_same(graph):
    found = [
        thanos_peer.fit(make_samples(), 2, graph=each, method="proximal").components_ for each in ("ring", graph)
    ]
    # Sums do not depend on the way that they take through the graph.
    np.testing.assert_array_equal(*found)


def test_thanos_does_not_wander_where_one_agent_has_most_samples():
    rows = np.random.default_rng(0).standard_normal((320, 10)) * np.linspace(3, 0.3, 10)
    parts = [rows[:256], *np.array_split(rows[256:], 7)]
    result = thanos_peer.fit(parts, 2, regularizer="none", method="thanos", graph="path")
    assert result.facts["has_converged"]
    assert result.facts["round"] < 1000
    assert result.facts["feasibility"] < 1e-4


def test_one_agent_is_a_network_too():
    result = thanos_peer.fit(make_samples(1), 2, regularizer="none")
    pca = PCA(2).fit(make_samples(1)[0])
    np.testing.assert_allclose(result.explained_variance_ratio_, pca.explained_variance_ratio_, rtol=1e-5)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("method", ["gram", "proximal"])
def test_fewer_samples_than_components_are_explained_altogether(center, method):
    samples = np.random.default_rng(2).standard_normal((2, 1, 5))
    result = thanos_peer.fit(list(samples), 3, regularizer="none", center=center, method=method)
    assert result.facts["has_converged"]
    assert result.explained_variance_ratio_.sum() == pytest.approx(1)


@pytest.mark.parametrize("mu", [[0.05, 0.3, 0.1], np.array([0.3, 0.1, 0.05]), (0.1, 0.05, 0.3)])
def test_several_weights_make_a_path_with_a_table_and_an_answer_for_each(mu):
    result = thanos_peer.fit(make_samples(), 2, mu=mu, scale=True, choose={"nonzeros": 7})
    assert result.path_mu_.tolist() == [row["mu"] for row in result.path_] == [0.3, 0.1, 0.05]
    chosen = next(row for row in result.path_ if row["is_chosen"])
    assert sum(chosen["nonzeros"]) <= 7 < sum(result.path_[-1]["nonzeros"])
    assert result.facts["mu"] == chosen["mu"]
    assert result.facts["choice"] == "chosen: the answer that explains most with at most 7 non-zeros"
    for j, weight in enumerate([0.3, 0.1, 0.05]):
        one, alone = result.at(weight), thanos_peer.fit(make_samples(), 2, mu=weight, scale=True)
        assert one.sparse_components_.tobytes() == result.path_components_[j].tobytes()
        assert result.path_[j]["objective"] <= alone.facts["objective"] + 1e-12
        np.testing.assert_array_equal(one.components_, one.sparse_components_)
    assert result.at(chosen["mu"]).components_.tobytes() == result.components_.tobytes()
    with pytest.raises(ConfigError, match=r"the result has no answer for mu = 0.2: there are 0.3, 0.1, 0.05"):
        result.at(0.2)
    with pytest.raises(ConfigError, match=r"the result has no answer for mu = 0.1: it has one answer alone"):
        thanos_peer.fit(make_samples(), 2, mu=0.1).at(0.1)


def test_a_path_that_the_network_finds_ends_with_single_features_at_its_largest_weight():
    result = thanos_peer.fit(make_samples(), 2, mu={"path": 4}, scale=True)
    assert result.path_[0]["nonzeros"] == [1, 1]
    assert len(result.path_) == 4
    assert sum(row["is_chosen"] for row in result.path_) == 1


def test_arrays_may_come_one_after_the_other():
    found = [thanos_peer.fit(samples, 1, max_rounds=4) for samples in (make_samples(), iter(make_samples()))]
    assert found[0].components_.tobytes() == found[1].components_.tobytes()


def test_samples_are_left_as_they_are():
    samples = make_samples()
    before = [each.copy() for each in samples]
    thanos_peer.fit(samples, 1, max_rounds=4)
    for each, earlier in zip(samples, before, strict=True):
        np.testing.assert_array_equal(each, earlier)


@pytest.mark.parametrize(
    ("samples", "settings", "said"),
    [
        ([], {}, "samples must be a list of arrays, one for each agent"),
        (np.zeros((4, 6)), {}, "samples must be a list of arrays, one for each agent"),
        (Frame(np.ones((4, 2)), ["a", "b"]), {}, "samples must be a list of arrays, one for each agent"),
        ({0: np.zeros((4, 6))}, {}, "samples must be a list of arrays, one for each agent"),
        (7, {}, "samples must be a list of arrays, one for each agent"),
        ([np.ones((4, 6)), np.ones((4, 5))], {}, r"samples\[1\] has shape \(4, 5\); must be \(samples, 6\)"),
        ([np.ones(4)], {}, r"samples\[0\] has shape \(4,\)"),
        ([[["a", "b"]]], {}, r"samples\[0\] has entries of type <U1; must be real numbers"),
        ([[[1.0, np.nan]]], {}, r"samples\[0\] has nan in row 0, column 1"),
        ([[[1.0], [1.0, 2.0]]], {}, "samples"),
        (make_samples(), {"n_components": 7}, "problem.p = 7: must be at most n = 6"),
        (make_samples(), {"graph": "web"}, 'graph = "web": must be one of ring, path'),
        (make_samples(), {"graph": [(0, 1)]}, "the graph is not connected"),
        (make_samples(), {"method": "magic"}, "algorithm.method = 'magic': must be one of auto, proximal, gram"),
        *(
            (
                make_samples(),
                {"graph": graph},
                r"graph must be the name of a family, or pairs of agents: \[\(0, 1\)",
            )
            for graph in ([(0, 1, 2)], [(0, "x")], [(0, 1.5)], [3], 3)
        ),
        (make_samples(), {"mu": [0.1]}, r"problem.mu = \[0.1\]: must be a valid number, or a list of 2 to 32"),
        (make_samples(), {"mu": [0.2, 0.1], "choose": {"zeros": 3}}, "problem.choose.zeros = 3: unknown key"),
        (make_samples(), {"mu": -1.0}, "problem.mu = -1.0: must be greater than or equal to 0"),
        (make_samples(), {"feature_names": ["a"]}, r"samples\[0\] has shape \(23, 6\); must be \(samples, 1\)"),
        (
            make_samples(),
            {"feature_names": list("abcdea")},
            "feature_names has the name 'a' in columns 1 and 6; names are unique",
        ),
        (
            [Frame(np.ones((4, 2)), ["a", "a"])],
            {},
            r"samples\[0\] has the name 'a' in columns 1 and 2; names are unique",
        ),
    ],
)
def test_what_cannot_be_used_is_said(samples, settings, said):
    with pytest.raises(ConfigError, match=said):
        thanos_peer.fit(samples, **({"n_components": 2} | settings))


def test_the_example_prints_both():
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "examples/fit.py"], cwd=root, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.count("explained_variance_ratio_ [0.") == 2
    dense, sparse = (
        [int(count) for count in counts.split()]
        for counts in re.findall(r"non-zero loadings +\[([\d ]+)\]", done.stdout)
    )
    assert dense == [30, 30, 30]
    assert sum(sparse) < 60
    assert "(569, 3) in place of (569, 3)" in done.stdout


def test_frames_with_their_columns_in_another_order_are_refused():
    rng = np.random.default_rng(1)
    frames = [Frame(rng.standard_normal((9, 2)), names) for names in (["a", "b"], ["b", "a"])]
    with pytest.raises(DataFileError, match=r"samples\[1\]"):
        thanos_peer.fit(frames, 1, graph="path")


def test_columns_that_are_merely_numbered_are_no_names():
    rows = np.random.default_rng(1).standard_normal((9, 2))
    result = thanos_peer.fit([Frame(rows, range(2)), rows], 1, graph="path", max_rounds=5)
    assert result.feature_names_in_ is None


@pytest.mark.parametrize("method", ["auto", "gram", "proximal"])
def test_it_searches_from_several_starts(method):
    parts = np.array_split(np.random.default_rng(3).standard_normal((30, 5)), 3)
    result = thanos_peer.fit(parts, 2, method=method, restarts=4)
    assert "; the best of 4 starts" in result.facts["verdict"]


def test_methods_that_search_from_one_start_refuse_restarts():
    parts = np.array_split(np.random.default_rng(3).standard_normal((30, 5)), 3)
    with pytest.raises(ConfigError, match=r"algorithm\.restarts: leave it out"):
        thanos_peer.fit(parts, 2, method="proximal-tracking", restarts=4)


def samples_with_gaps(share=0.05):
    rng, samples = np.random.default_rng(4), make_samples()
    for part in samples:
        part[rng.random(part.shape) < share] = np.nan
    return samples


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("method", ["auto", "proximal"])
def test_missing_values_become_the_mean_of_all_that_is_there(center, method):
    samples = samples_with_gaps()
    rows = np.vstack(samples)
    filled = np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows)
    settings = {"center": center, "scale": True, "method": method}
    result = thanos_peer.fit(samples, 2, missing="mean", **settings)
    expected = thanos_peer.fit(np.array_split(filled, 4), 2, **settings)
    np.testing.assert_allclose(result.components_, expected.components_, atol=1e-8)
    np.testing.assert_allclose(result.fill_, np.nanmean(rows, axis=0), rtol=1e-12)
    assert result.facts["missing"] == np.isnan(rows).sum(axis=0).tolist()
    assert (result.mean_ is None) == (not center)
    np.testing.assert_allclose(
        result.transform(samples[1]), expected.transform(filled[23:46]), rtol=1e-6, atol=1e-8
    )
    assert expected.fill_ is None
    assert expected.facts["missing"] is None
    with pytest.raises(DataFileError, match=r"^samples has nan in row"):
        expected.transform(samples[1])


def test_a_masked_entry_is_a_missing_value():
    samples = samples_with_gaps()
    masked = [np.ma.masked_invalid(part) for part in samples]
    for part in masked:
        part.data[part.mask] = 1e9
    one, other = (thanos_peer.fit(each, 2, missing="mean") for each in (samples, masked))
    assert one.components_.tobytes() == other.components_.tobytes()
    assert one.transform(samples[2]).tobytes() == other.transform(masked[2]).tobytes()
    with pytest.raises(
        DataFileError, match=r"^samples\[0\] has \d+ masked entries, the first at \[\d+, \d+\]; fill"
    ):
        thanos_peer.fit(masked, 2)
    rows = [list(part) for part in masked]
    assert isinstance(rows[0][0], np.ma.MaskedArray)
    with pytest.raises(DataFileError, match=r"^samples\[0\] has \d+ masked entries"):
        thanos_peer.fit(rows, 2)
    complete = [np.ma.array(part) for part in make_samples()]
    plain = thanos_peer.fit(make_samples(), 2)
    assert thanos_peer.fit(complete, 2).components_.tobytes() == plain.components_.tobytes()
    with pytest.raises(DataFileError, match="masked entries"):
        plain.transform(masked[0])


def test_whole_numbers_may_be_masked_too():
    rng = np.random.default_rng(2)
    whole = [np.ma.array(rng.integers(0, 9, (20, 4)), mask=rng.random((20, 4)) < 0.1) for _ in range(2)]
    result = thanos_peer.fit(whole, 2, missing="mean")
    assert sum(result.facts["missing"]) == sum(part.mask.sum() for part in whole)


def test_too_much_that_is_missing_is_refused():
    samples = make_samples()
    for part in samples[:3]:
        part[:, 2] = np.nan
    with pytest.raises(
        DataFileError, match=r"of feature 2 \(counted from 0\), 68 of 90 \(75\.6%\)\. At most 50\.0%"
    ):
        thanos_peer.fit(samples, 2, missing="mean")
    thanos_peer.fit(samples, 2, missing="mean", max_missing=np.float32(0.76))
    with pytest.raises(ConfigError, match=r"problem\.data\.max_missing = 0\.7: leave it out"):
        thanos_peer.fit(make_samples(), 2, max_missing=0.7)


def test_numbers_of_numpy_are_numbers():
    settings = {"regularizer": "group-l21", "method": "proximal"}
    plain = {"mu": 0.125, "seed": 3, "max_rounds": 90, "tolerance": 0.5, "restarts": 2, "center": True}
    groups = np.array([[0, 1], [2, 3]])
    same = {
        "mu": np.float32(0.125),
        "seed": np.int8(3),
        "max_rounds": np.uint16(90),
        "tolerance": np.float64(0.5),
        "restarts": np.array(2),
        "center": np.bool_(True),  # noqa: FBT003
    }
    one = thanos_peer.fit(make_samples(), 2, regularizer_options={"groups": groups.tolist()}, **settings, **plain)
    other = thanos_peer.fit(
        make_samples(),
        np.int64(2),
        regularizer_options={"groups": [list(each) for each in groups]},
        **settings,
        **same,
    )
    assert one.components_.tobytes() == other.components_.tobytes()
    for wrong in (2.0, np.float64(2.0), "2", True):
        with pytest.raises(ConfigError, match=r"problem\.p"):
            thanos_peer.fit(make_samples(), wrong)
