import math
import tomllib
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
from networks import make_topology, raw_topology
from topology.graphs import GONE, put

from thanos_peer.algorithm.thanos import Thanos
from thanos_peer.topology import families, parse
from thanos_peer.topology.graph import Tree
from thanos_peer.topology.render import Draft, render

DRAFT = Draft(name="ring-5", d=5, edges=families.ring(5), title="A test.", sigma=0.5, samples=50)


def digest(raw):
    return parse(raw, file=Path("net.toml")).digest


def base():
    return tomllib.loads(render(DRAFT))


def files():
    raw = put(base(), "problem.data", {"kind": "files"})
    put(raw, "algorithm.start", {"kind": "random", "seed": 1})
    for i in range(5):
        put(raw, f"peers[{i}].data", f"{i}.npy")
    return raw


def test_a_digest_is_64_hexadecimal_digits_and_stays_the_same():
    assert len(bytes.fromhex(digest(base()))) == 32
    assert digest(base()) == digest(base())


def test_order_and_direction_do_not_matter():
    raw = base()
    raw["peers"].reverse()
    raw["edges"] = [edge[::-1] for edge in reversed(raw["edges"])]
    assert digest(dict(reversed(raw.items()))) == digest(base())


def test_comments_and_blanks_do_not_matter():
    lines = [f"  {line.split(' #')[0]}   # other words" for line in render(DRAFT).splitlines()]
    assert digest(tomllib.loads("\n\n".join(lines))) == digest(base())


@pytest.mark.parametrize(
    "key",
    ["weights", "problem.data.scale", "algorithm.method", "algorithm.beta", "algorithm.step.first"],
)
def test_defaults_may_be_left_out(key):
    assert digest(put(base(), key, GONE)) == digest(base())


def test_defaults_of_the_decreasing_rule_and_of_the_tolerance_may_be_left_out():
    raw = put(put(base(), "algorithm.smoothing", {"rule": "decreasing"}), "algorithm.tolerance", GONE)
    full = put(base(), "algorithm.smoothing", {"rule": "decreasing", "sigma0": 1.0, "exponent": 1 / 3})
    assert digest(raw) == digest(put(full, "algorithm.tolerance", 0.0))


@pytest.mark.parametrize(
    ("key", "one", "same"),
    [
        ("problem.regularizer", "l21", "l2,1"),
        ("problem.mu", 1, 1.0),
        ("algorithm.beta", 2, 2.0),
        ("algorithm.tolerance", 0, 0.0),
        ("algorithm.smoothing.sigma", 1, 1.0),
        ("algorithm.step.first", 1, 1.0),
        ("peers[2].address", "tcp://10.0.0.1:1", "ipc:///tmp/2"),
        ("peers[2].bind", "tcp://10.0.0.1:1", "ipc:///tmp/2"),
    ],
)
def test_two_ways_to_say_the_same_have_the_same_digest(key, one, same):
    assert digest(put(base(), key, one)) == digest(put(base(), key, same))


@pytest.mark.parametrize("own", [{}, {"beta": 2.0}, {"smoothing": {"rule": "constant", "sigma": 0.5}}])
def test_a_preset_has_the_digest_of_what_it_stands_for_and_keys_beside_it_go_before(own):
    raw = base()
    rest = {key: raw["algorithm"][key] for key in ("start", "max_rounds", "tolerance")}
    smoothing = {"rule": "decreasing", "sigma0": 1.0, "exponent": 1 / 3}
    constants = {"beta": 1.0, "step": {"rule": "bb", "first": 0.1}, "smoothing": smoothing}
    by_name = digest(raw | {"algorithm": rest | {"preset": "paper"} | own})
    assert by_name == digest(raw | {"algorithm": rest | constants | own})


def test_no_mu_is_mu_zero_without_a_regularizer():
    raw = put(put(base(), "problem.regularizer", "none"), "problem.mu", 0)
    assert digest(raw) == digest(put(deepcopy(raw), "problem.mu", GONE))


@pytest.mark.parametrize("family", ["ring", "star", "erdos-renyi"])
def test_the_metropolis_matrix_written_out_has_the_same_digest(family):
    raw = raw_topology(family, 6)
    W = make_topology(deepcopy(raw)).graph.matrix()
    assert digest(put(deepcopy(raw), "weights", W.tolist())) == digest(raw)


def test_where_data_files_lie_does_not_matter():
    moved = files()
    for i in range(5):
        put(moved, f"peers[{i}].data", f"/data/{i}.npy")
    one, other = (parse(raw, file=Path("net.toml"), data_of=()) for raw in (files(), moved))
    assert one.digest == other.digest
    assert one.digest != digest(base())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "ring-five"),
        ("edges[4]", [1, 4]),
        ("edges", [list(edge) for edge in families.complete(5)]),
        ("weights", [[0.6 if i == j else 0.2 * (abs(i - j) in (1, 4)) for j in range(5)] for i in range(5)]),
        ("problem.n", 11),
        ("problem.p", 2),
        ("problem.mu", 0.1 + 1e-16),
        ("problem.regularizer", "l21"),
        ("problem.data.seed", 2),
        ("problem.data.samples", 51),
        ("problem.data.scale", "raw"),
        ("algorithm.beta", 2.0),
        ("algorithm.max_rounds", 3001),
        ("algorithm.tolerance", 1e-7),
        ("algorithm.exchange", "float32"),
        ("algorithm.start", {"kind": "random", "seed": 1}),
        ("algorithm.step.first", 0.2),
        ("algorithm.step", {"rule": "constant", "eta": 0.1}),
        ("algorithm.smoothing.sigma", 0.25),
        ("algorithm.smoothing", {"rule": "decreasing"}),
        ("algorithm.smoothing", {"rule": "decreasing", "sigma0": 0.5}),
        ("algorithm.smoothing", {"rule": "decreasing", "exponent": 0.5}),
    ],
)
def test_whatever_changes_the_numbers_changes_the_digest(key, value):
    assert digest(put(base(), key, value)) != digest(base())


def test_all_such_changes_differ_from_each_other():
    changes = [
        put(base(), "algorithm.start", {"kind": "random", "seed": 1}),
        put(base(), "algorithm.start", {"kind": "random", "seed": 2}),
        put(base(), "algorithm.smoothing", {"rule": "decreasing"}),
        put(base(), "algorithm.smoothing", {"rule": "decreasing", "sigma0": 0.5}),
        put(put(base(), "problem.regularizer", "none"), "problem.mu", GONE),
        put(base(), "problem.mu", 0),
    ]
    assert len({digest(raw) for raw in changes}) == len(changes)


def doctored(topology, **parts):
    """The same file, whose graph has come out otherwise: as on a host with a bug of its own."""
    other = parse(base(), file=Path("net.toml"))
    assert other.digest == topology.digest
    wrong = replace(other)  # nothing worked out yet
    wrong.graph.__dict__.update(parts)
    return wrong.digest


def test_the_digest_covers_the_tree():
    topology = parse(base(), file=Path("net.toml"))
    tree = topology.graph.tree
    assert doctored(topology, tree=Tree.of(tree.root, topology.graph.neighbors)) == topology.digest
    others = {doctored(topology, tree=Tree.of(root, topology.graph.neighbors)) for root in range(5)}
    assert len(others) == 5
    changed = next(i for i in range(5) if tree.depths[i] == tree.height)
    parents = list(tree.parents)
    parents[changed] = next(j for j in topology.graph.neighbors[changed] if j != tree.parents[changed])
    assert doctored(topology, tree=replace(tree, parents=tuple(parents))) not in others


def test_the_digest_covers_every_weight_to_the_last_bit():
    topology = parse(base(), file=Path("net.toml"))
    found = {topology.digest}
    for i in range(5):
        for at, (j, weight) in enumerate(topology.graph.mixing[i]):
            rows = [list(row) for row in topology.graph.mixing]
            rows[i][at] = (j, math.nextafter(weight, 1))
            found.add(doctored(topology, mixing=rows))
    assert len(found) == 1 + 15


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        ({}, {"max_rounds": Thanos.default_rounds}),
        ({}, {"start": {"kind": "leading"}}),
        ({}, {"start": {"kind": "leading", "seed": 1}}),
        ({}, {"step": {"rule": "bb", "first": "auto"}}),
        ({}, {"tolerance": 0.0}),
        ({"method": "gram"}, {"tolerance": 1e-10}),
        ({"method": "proximal"}, {"exchange": "float64", "tolerance": 1e-10}),
        ({"method": "auto"}, {"method": "gram"}),
    ],
)
def test_what_is_left_out_is_the_same_as_the_default(left_out, said):
    raw = base()
    smoothing = {} if "method" in left_out else {"smoothing": {"rule": "decreasing"}}
    first, second = (put(deepcopy(raw), "algorithm", smoothing | left_out | more) for more in ({}, said))
    assert digest(first) == digest(second)


def test_each_method_and_each_start_has_a_digest_of_its_own():
    algorithms = [
        *({"method": method} for method in ("proximal", "gram")),
        {"method": "gram", "tolerance": 0.0},
        {"method": "gram", "start": {"kind": "leading", "seed": 2}},
        {"method": "gram", "start": {"kind": "random", "seed": 1}},
        {"method": "gram", "start": {"kind": "destiny", "seed": 1}},
        {"smoothing": {"rule": "decreasing"}},
    ]
    assert len({digest(put(base(), "algorithm", algorithm)) for algorithm in algorithms}) == len(algorithms)


def test_one_more_peer_changes_the_digest():
    assert make_topology(family="star", d=5).digest != make_topology(family="star", d=6, name="star-5").digest


def test_what_peers_say_of_the_number_of_their_samples_is_part_of_the_digest():
    raw = files()
    digests = []
    for count in (None, 9, 10):
        raw["peers"][2] = {key: each for key, each in raw["peers"][2].items() if key != "samples"}
        raw["peers"][2] |= {} if count is None else {"samples": count}
        digests.append(parse(raw, file=Path("net.toml"), data_of=()).digest)
    assert len(set(digests)) == 3
