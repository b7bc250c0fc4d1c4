"""problem.features, problem.exclude and problem.data.missing: what is refused, and what the digest knows of it."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from networks import raw_topology
from topology.graphs import put

from thanos_peer.errors import TopologyError
from thanos_peer.samples import Columns
from thanos_peer.topology import parse
from thanos_peer.topology.data import features_of, moments_of, samples_of

FILE = Path("net.toml")
NAMES = ["a", "b", "c", "d"]
HEADERS = ["id,a,b,c,d", "d,id,c,a,b", "id,c,b,a,d"]


def raw_of_files(problem=None, data=None, objective=None):
    raw = put(raw_topology("path", 3, n=4, p=2), "problem.data", {"kind": "files"} | (data or {}))
    raw["problem"] |= problem or {}
    raw["algorithm"] = {"method": "auto"}
    if objective is not None:
        raw["problem"]["objective"] = objective
    for i in range(3):
        put(raw, f"peers[{i}].data", f"{i}.csv")
    return raw


def mistakes_of(raw, file=FILE, **options):
    with pytest.raises(TopologyError) as caught:
        parse(raw, file=file, **options)
    return str(caught.value).removeprefix(f"{file}: ")


def topology_of(*arguments):
    return parse(raw_of_files(*arguments), file=FILE, reads_data=False)


@pytest.fixture
def directory(tmp_path):
    """Three files with an id, and the others in any order."""
    for i, header in enumerate(HEADERS):
        names = header.split(",")
        rows = [
            [f"P{i}{r}" if name == "id" else str(100 * i + 10 * r + ord(name)) for name in names] for r in range(6)
        ]
        lines = [header, *map(",".join, rows)]
        (tmp_path / f"{i}.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


SYNTHETIC = 'leave it out, or set problem.data.kind = "files": only files have columns with names'


@pytest.mark.parametrize(
    ("problem", "data", "message"),
    [
        (
            {"features": NAMES, "exclude": ["id"]},
            {},
            "problem.exclude: leave it out beside problem.features: a column that is not named there is not read",
        ),
        (
            {"features": NAMES[:3]},
            {},
            "problem.features: names 3 features, and problem.n = 4: mend one of them, or leave out problem.n",
        ),
        ({"features": ["a", "b", "c", ""]}, {}, "problem.features: has an empty name: a feature has one"),
        ({"features": list("abca")}, {}, "'a']: must name each column once; \"a\" is there twice"),
        ({"exclude": ["x" * 201]}, {}, "must be names of at most 200 printable characters; entry 0 is none"),
        ({"exclude": ["id\n"]}, {}, "must be names of at most 200 printable characters; entry 0 is none"),
        ({"exclude": "id"}, {}, "problem.exclude = 'id': must be a valid list"),
        ({"exclude": [1]}, {}, "problem.exclude[0] = 1: must be a valid string"),
        ({"features": []}, {}, "problem.features = []: "),
        ({}, {"missing": "median"}, 'problem.data.missing = \'median\': must be "refuse" or "mean"'),
        (
            {},
            {"max_missing": 0.2},
            'problem.data.max_missing = 0.2: leave it out, or set problem.data.missing = "mean": else no value',
        ),
        ({}, {"missing": "mean", "max_missing": 0.0}, "problem.data.max_missing = 0.0: must be greater than 0"),
        ({}, {"missing": "mean", "max_missing": 1}, "problem.data.max_missing = 1: must be less than 1"),
        ({}, {"missing": "mean", "max_missing": -0.5}, "must be greater than 0"),
        ({}, {"missing": "mean", "max_missing": float("nan")}, "must be a finite number"),
        ({}, {"missing": "mean", "max_missing": True}, "must be a valid number"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(problem, data, message):
    assert message in mistakes_of(raw_of_files(problem, data), reads_data=False)


@pytest.mark.parametrize("key", ["features", "exclude"])
def test_synthetic_samples_have_no_columns_to_pick(key):
    raw = raw_topology(n=4)
    raw["problem"][key] = NAMES
    assert mistakes_of(raw) == f"problem.{key}: {SYNTHETIC}"
    raw = put(raw_topology(), "problem.data.missing", "mean")
    assert "problem.data.missing = 'mean': unknown key" in mistakes_of(raw)


def test_missing_values_are_filled_for_sparse_pca_only():
    raw = raw_of_files(data={"missing": "mean"}, objective="own:F")
    assert "problem.data.missing = 'mean': is for sparse PCA: leave it out" in mistakes_of(raw, reads_data=False)


def test_with_a_list_of_features_n_may_be_left_out():
    raw = raw_of_files({"features": NAMES})
    said = parse(raw, file=FILE, reads_data=False)
    del raw["problem"]["n"]
    left_out = parse(raw, file=FILE, reads_data=False)
    assert left_out.problem.n == 4
    assert left_out.digest == said.digest
    raw["problem"]["features"] = "abcd"
    assert "problem.n: is missing" in mistakes_of(raw, reads_data=False)


def test_the_digest_knows_which_columns_and_what_becomes_of_missing_values():
    digests = {
        topology_of(*each).digest
        for each in [
            (),
            ({"features": NAMES},),
            ({"features": NAMES[::-1]},),
            ({"exclude": ["id"]},),
            ({"exclude": ["id", "name"]},),
            ({}, {"missing": "mean"}),
            ({}, {"missing": "mean", "max_missing": 0.2}),
        ]
    }
    assert len(digests) == 7
    assert topology_of({}, {"missing": "refuse"}).digest == topology_of().digest
    half = topology_of({}, {"missing": "mean", "max_missing": 0.5})
    assert half.digest == topology_of({}, {"missing": "mean"}).digest


def test_a_file_that_asks_for_neither_has_the_digest_that_it_always_had():
    assert topology_of().digest == "698af3b6d16c9c9dbe90d0787d062641d4b653fa55c2e7368e2599cf3b3746b8"


@pytest.mark.parametrize(
    ("problem", "order"),
    [({"features": list("cdab")}, ["cdab"] * 3), ({"exclude": ["id"]}, ["abcd", "dcab", "cbad"])],
)
def test_all_that_reads_the_files_picks_the_columns(directory, problem, order):
    topology = parse(raw_of_files(problem), file=directory / "net.toml", reads_data=False)
    assert topology.columns == Columns(
        features=tuple(problem["features"]) if "features" in problem else None,
        exclude=tuple(problem.get("exclude", ())),
    )
    for i, names in enumerate(order):
        expected = np.array([[100 * i + 10 * r + ord(name) for name in names] for r in range(6)], float)
        assert features_of(topology, i) == tuple(names)
        assert np.array_equal(samples_of(topology, [i])[0], expected)
        assert moments_of(topology, i).mean == pytest.approx(expected.mean(axis=0))


def test_columns_in_any_order_are_sound_where_they_are_named(directory):
    raw = raw_of_files({"features": list("cdab")})
    assert parse(raw, file=directory / "net.toml").problem.n == 4
    found = mistakes_of(raw_of_files({"exclude": ["id"]}), directory / "net.toml")
    assert "1.csv of peer 1 has the same features in another order: column 1 is 'd'; must be 'a'" in found


def test_a_column_too_many_or_too_few_is_named_not_counted(directory):
    file, raw = directory / "net.toml", raw_of_files({"exclude": ["id"]})
    (directory / "1.csv").write_text("id,a,b,extra,c,d\nP,1,2,3,4,5\n")
    (directory / "2.csv").write_text("id,a,c,d\nP,1,2,3\n")
    found = mistakes_of(raw, file)
    as_in = f"as in {directory / '0.csv'} of peer 0"
    assert f"1.csv of peer 1 has 5 columns; must have 4, {as_in}: it has besides 'extra'" in found
    assert f"2.csv of peer 2 has 3 columns; must have 4, {as_in}: it lacks 'b'" in found
    (alone,) = mistakes_of(raw, file, data_of=[1]).splitlines()
    assert alone.endswith(
        "has 5 columns that are not left out; must have n = 4, one per feature: 'a', 'b', 'extra', 'c', 'd'"
    )
    found = mistakes_of(raw_of_files({"features": list("abcd")}), file)
    assert "2.csv of peer 2 has no column 'b', as in problem.features" in found


def test_gaps_are_a_mistake_unless_they_are_filled(directory):
    (directory / "0.csv").write_text("id,a,b,c,d\nP,1,,3,4\nQ,1,2,3,NA\n")
    problem = {"features": list("abcd")}
    found = mistakes_of(raw_of_files(problem), directory / "net.toml")
    assert "0.csv of peer 0 has a missing value ('') in line 2, column 3 'b'; fill it in" in found
    topology = parse(raw_of_files(problem, {"missing": "mean"}), file=directory / "net.toml")
    assert np.isnan(samples_of(topology, [0])[0]).tolist() == [[False, True, False, False], [False] * 3 + [True]]


def test_all_ways_to_say_it_are_known_to_be_unsound_before_a_file_is_read(directory):
    """A list with a mistake picks nothing: the files are not spoken of."""
    for key, value in itertools.product(["features", "exclude"], [["a", "a"], "a", [1]]):
        assert "peers[" not in mistakes_of(raw_of_files({key: value}), directory / "net.toml")
