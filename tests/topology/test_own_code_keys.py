"""What a topology file may say of code of one's own."""

import pytest
import tomlkit
from networks import make_topology, raw_topology
from own_code.classes import raw_with

from thanos_peer.algorithm.methods import METHODS
from thanos_peer.errors import TopologyError
from thanos_peer.preparation import outline
from thanos_peer.topology import load


def refusal(raw):
    with pytest.raises(TopologyError) as caught:
        make_topology(raw)
    return str(caught.value)


@pytest.mark.parametrize("key", ["objective", "regularizer"])
@pytest.mark.parametrize(
    "name",
    ["os:system; x", "../mine:A", "mine:A.b", "mine:", ":A", "1a:B", "m\u00efne:A", f"{'m' * 200}:A", "a:b\n"],
)
def test_only_plain_names_are_names_of_classes(key, name):
    raw = raw_with()
    raw["problem"][key] = name
    assert f"problem.{key} = " in refusal(raw)
    assert "must be MODULE:CLASS, of letters, digits and underscores" in refusal(raw)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"a": [[[1]]]}, "a must be true or false, a finite number"),
        ({"a": [1, {"b": 1}]}, "or a list of these, or of such lists"),
        ({"a": [float("inf")]}, "a must be true or false"),
        ({"a": {"b": 1}}, "a must be true or false"),
        ({"a": float("nan")}, "a must be true or false"),
        ({"a": 2**53}, "a must be true or false"),
        ({"a": "x" * 4097}, "a must be true or false"),
        ({"a b": 1}, '"a b" is no name of an option'),
        ({f"a{i}": i for i in range(65)}, "must be at most 64 options"),
        (5, "must be a valid dictionary"),
    ],
)
def test_options_are_few_plain_values(options, said):
    text = refusal(raw_with(objective_options=options))
    assert "problem.objective_options" in text
    assert said in text


def test_options_go_with_code():
    raw = raw_topology()
    raw["problem"] |= {"objective_options": {"a": 1}, "regularizer_options": {"b": 2}}
    text = refusal(raw)
    assert "problem.objective_options = {'a': 1}: leave it out without objective" in text
    assert "problem.regularizer_options = {'b': 2}: leave it out with regularizer = \"l1\"" in text


def test_what_follows_from_the_samples_of_pca_is_refused_with_another_objective():
    raw = raw_with()
    raw["problem"]["data"] = {"kind": "files", "center": True, "scale": True, "overall": "auto"}
    raw["algorithm"] |= {"beta": "auto", "step": {"rule": "bb", "first": "auto"}}
    raw["algorithm"]["start"] = {"kind": "destiny", "seed": 1}
    text = refusal(raw)
    for key in ("problem.data.center", "problem.data.scale", "problem.data.overall"):
        assert f"{key} = " in text
    assert "algorithm.beta = 'auto': is for sparse PCA" in text
    assert "algorithm.step.first = 'auto': is for sparse PCA" in text
    assert 'algorithm.start.kind = \'destiny\': must be "random" or "file"' in text


def test_with_an_objective_of_ones_own_no_step_follows_from_the_samples():
    raw = raw_with()
    assert [phase.name for phase in outline(make_topology(raw)).phases] == ["thanos"]
    del raw["algorithm"]["step"]
    assert "algorithm.step: is missing: " in refusal(raw)
    assert len(refusal(raw).splitlines()) == 1


@pytest.mark.parametrize("method", ["proximal", "auto"])
def test_the_exact_method_needs_to_know_nothing_of_an_objective_of_ones_own(method):
    raw = raw_with()
    raw["algorithm"] = {"method": method, "start": {"kind": "random", "seed": 1}}
    topology = make_topology(raw)
    assert topology.method == "proximal"
    assert [phase.name for phase in outline(topology).phases] == ["size", "proximal"]


@pytest.mark.parametrize(
    "name", [name for name, method in METHODS.items() if method.is_for_pca or method.needs_samples]
)
def test_methods_for_sparse_pca_and_those_that_draw_from_its_samples_are_refused_in_one_line(name):
    raw = raw_with()
    raw["algorithm"] = {"method": name, "start": {"kind": "random", "seed": 1}}
    (line,) = refusal(raw).splitlines()
    others = ", ".join(sorted(other for other, method in METHODS.items() if not method.is_for_pca))
    assert (
        f"algorithm.method = '{name}': must be \"auto\", or one of {others}, with an objective of your own" in line
    )
    assert "proximal, subgradient, thanos" in others


def test_the_digest_covers_names_and_options():
    files = [
        raw_with(),
        raw_with("mine:Other"),
        raw_with(objective_options={"power": 4}),
        raw_with(objective_options={"power": 6}),
        raw_with(objective_options={"power": [6, [7, "x"]]}),
        raw_with(regularizer="mine:Ridge"),
        raw_with(regularizer="mine:Ridge", regularizer_options={"factor": 2.0}),
    ]
    assert len({make_topology(raw).digest for raw in files}) == len(files)
    assert make_topology(raw_with(objective_options={})).digest == make_topology(raw_with()).digest


def test_with_an_objective_of_ones_own_the_start_is_random_unless_the_file_names_another():
    raw = raw_with()
    raw["algorithm"] = {"method": "auto"}
    start = make_topology(raw).algorithm.start
    assert (start.kind, start.seed) == ("random", 1)
    raw["algorithm"]["start"] = {"kind": "random", "seed": 5}
    assert make_topology(raw).algorithm.start.seed == 5


def test_another_method_asks_for_its_beta_and_step_in_the_file(tmp_path):
    """Not to leave out what the file does not say."""
    raw = raw_with()
    raw["algorithm"] = {"method": "proximal"}
    file = tmp_path / "net.toml"
    file.write_text(tomlkit.dumps(raw), encoding="utf-8")
    with pytest.raises(TopologyError) as caught:
        load(file, method="thanos")
    assert [mistake.key for mistake in caught.value.mistakes] == ["algorithm.beta", "algorithm.step.first"]
    for mistake in caught.value.mistakes:
        assert 'write numbers for beta and step beside method = "thanos" in the file' in str(mistake)
