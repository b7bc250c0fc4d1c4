from pathlib import Path

import numpy as np
import pytest
from networks import raw_topology
from tomlkit import dumps

from thanos_peer.algorithm.central import CENTRAL
from thanos_peer.algorithm.methods import MIXING, SUMMING
from thanos_peer.compare.trials import JUDGE, Request, contenders, judge_topology, parse_values, trials
from thanos_peer.errors import ConfigError, TopologyError
from thanos_peer.topology import load
from thanos_peer.topology.editing import anchored

SMALL = Path(__file__).parents[2] / "topologies" / "small.toml"


def request(file=SMALL, methods=("proximal",), seeds=1, sweep=None, **others):
    return Request(file, methods, seeds, sweep or {}, **others)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.3,1,3", [0.3, 1, 3]),
        ("auto,1e-3", ["auto", 1e-3]),
        ('"auto", 2', ["auto", 2]),
        ('{rule = "constant", sigma = 0.1}, {rule = "decreasing"}', [
            {"rule": "constant", "sigma": 0.1}, {"rule": "decreasing"},
        ]),
        ("true", [True]),
        ("1,1,2", [1, 2]),
    ],
)  # fmt: skip
def test_values_are_as_in_the_file_and_bare_words_are_texts(text, values):
    assert parse_values(text) == values


def test_all_methods_that_suit_the_problem_are_the_default():
    found, words = contenders(request(methods=()))
    assert [each.method for each in found] == [name for name in (*SUMMING, *MIXING) if name != "destiny"]
    (word,) = words
    assert word.startswith("destiny is left out: algorithm.method = 'destiny': must be another with regularizer")


def test_centralised_methods_are_for_sparse_pca():
    own = Path(__file__).parents[2] / "examples" / "dual_pca.toml"
    found, words = contenders(request(own, methods=("proximal",), has_central=True))
    assert [each.method for each in found] == ["proximal"]
    assert words == ["centralised methods are left out: they are for sparse PCA"]
    found, words = contenders(request(has_central=True, sweep={"algorithm.tolerance": [0.1, 0.2]}))
    assert [each.method for each in found] == ["proximal", "proximal", *CENTRAL]
    assert words == [f"algorithm.tolerance is no setting of {name}, which runs without it" for name in CENTRAL]


def test_a_grid_of_settings_and_a_word_for_those_who_lack_one():
    sweep = {"algorithm.beta": [0.3, 1], "problem.mu": [0.1, 0.2]}
    found, words = contenders(request(methods=("proximal", "thanos"), sweep=sweep))
    assert [each.label for each in found] == [
        "proximal problem.mu=0.1",
        "proximal problem.mu=0.2",
        *(f"thanos beta={beta} problem.mu={mu}" for beta in (0.3, 1) for mu in (0.1, 0.2)),
    ]
    assert words == ["algorithm.beta is no setting of proximal, which runs without it"]
    made = trials(request(methods=("proximal", "thanos"), sweep=sweep), found)
    (thanos,) = [each for each in made if each.contender.label == "thanos beta=0.3 problem.mu=0.2"]
    assert (thanos.topology.algorithm.beta, thanos.topology.problem.mu) == (0.3, 0.2)
    assert [each.problem for each in made] == sorted(each.problem for each in made)  # problem by problem


def test_synthetic_data_have_the_seeds_from_that_of_the_file_on():
    asked = request(seeds=3, methods=("proximal", "thanos"))
    made = trials(asked, contenders(asked)[0])
    assert [each.seed for each in made] == [1, 1, 2, 2, 3, 3]
    assert [each.topology.problem.data.seed for each in made] == [1, 1, 2, 2, 3, 3]
    assert len({each.digest for each in made}) == 6
    assert len({each.problem for each in made}) == 3
    judges = [judge_topology(asked, each) for each in made]
    assert {each.method for each in judges} == {JUDGE}
    assert len({each.digest for each in judges}) == 3


@pytest.fixture
def with_files(tmp_path):
    """A file that names data files, which are not looked into here."""

    def make(start, overall="raw"):
        raw = raw_topology(d=3, method="proximal")
        raw["problem"]["data"] = {"kind": "files", "overall": overall}
        raw["algorithm"]["start"] = start
        for peer in raw["peers"]:
            peer["data"] = f"{peer['id']}.npy"
        (tmp_path / "net.toml").write_text(dumps(raw))
        return tmp_path / "net.toml"

    return make


def test_data_files_stay_and_the_start_has_the_seeds(with_files):
    asked = request(with_files({"kind": "random", "seed": 7}), seeds=2)
    made = trials(asked, contenders(asked)[0])
    assert [each.seed for each in made] == [7, 8]
    assert [each.topology.algorithm.start.seed for each in made] == [7, 8]


@pytest.mark.parametrize(
    ("kind", "overall", "problems"),
    [
        ("random", "raw", 1),
        ("random", "auto", 1),
        ("leading", "auto", 1),
        ("destiny", "raw", 1),
        # Each start finds a norm of its own, up to its tolerance.
        ("destiny", "auto", 3),
    ],
)
def test_runs_on_the_same_data_files_have_one_best_wherever_they_start(with_files, kind, overall, problems):
    file = with_files({"kind": kind, "seed": 7}, overall)
    for asked in request(file, seeds=3), request(file, seeds=1, sweep={"algorithm.start.seed": [7, 8, 9]}):
        assert len({each.problem for each in trials(asked, contenders(asked)[0])}) == problems


def test_starts_that_divide_by_another_norm_have_another_best(with_files):
    for overall, problems in ("raw", 1), ("auto", 2):
        file = with_files({"kind": "random", "seed": 7}, overall)
        asked = request(file, seeds=1, sweep={"algorithm.start.kind": ["random", "leading"]})
        assert len({each.problem for each in trials(asked, contenders(asked)[0])}) == problems


def test_the_default_start_has_seeds_too(with_files):
    asked = request(with_files({"kind": "leading"}), seeds=2)
    assert [each.topology.algorithm.start.seed for each in trials(asked, contenders(asked)[0])] == [1, 2]


def test_other_settings_go_along_where_a_topology_is_written_anew(with_files):
    file = with_files({"kind": "random", "seed": 7})
    topology = load(file, reads_data=False, method="thanos", settings={"algorithm.beta": 3.0, "problem.mu": 0.5})
    moved = file.with_name("moved.toml")
    moved.write_text(dumps(anchored(topology)))
    assert load(moved, reads_data=False).digest == topology.digest


@pytest.mark.parametrize(
    ("others", "error", "words"),
    [
        ({"sweep": {"algorithm.betta": [1]}}, TopologyError, 'did you mean "beta"'),
        ({"sweep": {"algorithm.beta": [-1]}}, TopologyError, "algorithm.beta = -1: must be greater than 0"),
        ({"sweep": {"problem.p": [7]}}, TopologyError, "must be at most n = 6"),
        ({"sweep": {"peers.id": [7]}}, ConfigError, "there is no such section"),
        ({"sweep": {"algorithm.beta": [1]}, "methods": ("gram",)}, ConfigError, "none of the methods"),
        ({"sweep": {"algorithm.method": ["gram"]}}, ConfigError, "--methods"),
        ({"sweep": {"algorithm.max_rounds": [1]}, "max_rounds": 3}, ConfigError, "leave out --max-rounds"),
        ({"methods": ("destiny",)}, TopologyError, "destiny is for problems without"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_runs(others, error, words):
    asked = request(**({"methods": ("thanos",)} | others))
    with pytest.raises(error, match=words):
        trials(asked, contenders(asked)[0])


def test_more_seeds_than_a_start_in_a_file_can_have_are_refused(with_files, tmp_path):
    np.save(tmp_path / "start.npy", np.eye(6, 2))
    asked = request(with_files({"kind": "file", "path": "start.npy"}), seeds=2)
    with pytest.raises(ConfigError, match="--seeds 1"):
        trials(asked, contenders(asked)[0])
