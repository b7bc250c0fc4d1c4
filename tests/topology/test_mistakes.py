import contextlib
import struct
from math import inf, nan
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from networks import raw_topology
from topology.graphs import GONE, put
from zmq.utils import z85
from zmq.utils.z85 import Z85CHARS

from thanos_peer.algorithm.methods import MIXING, SUMMING
from thanos_peer.algorithm.schedules import SMALLEST_SIGMA
from thanos_peer.algorithm.thanos import Thanos
from thanos_peer.errors import TopologyError
from thanos_peer.topology import parse
from thanos_peer.topology.sections import IN_THE_CLEAR, UNION_TAGS, PeerSection, check_key, is_local

FILE = Path("nets/ring.toml")
THIRDS = [[1 / 3] * 3 for _ in range(3)]
BRANCHES = {
    "algorithm.step.eta": {"rule": "constant", "eta": 0.1},
    "algorithm.step.first": {"rule": "bb", "first": 0.1},
    "algorithm.smoothing.sigma": {"rule": "constant", "sigma": 0.1},
    "algorithm.smoothing.sigma0": {"rule": "decreasing", "sigma0": 0.1},
    "algorithm.smoothing.exponent": {"rule": "decreasing", "exponent": 0.1},
    "algorithm.start.seed": {"kind": "random", "seed": 1},
    "algorithm.start.tolerance": {"kind": "destiny", "seed": 1, "tolerance": 0.1},
    "algorithm.start.max_rounds": {"kind": "destiny", "seed": 1, "max_rounds": 1},
}
SIGMAS = ["algorithm.smoothing.sigma", "algorithm.smoothing.sigma0"]
POSITIVE = ["algorithm.beta", *(key for key in BRANCHES if not key.endswith(("seed", "max_rounds")))]
OR_AUTO = ["algorithm.beta", "algorithm.step.first"]
NOT_NEGATIVE = ["problem.mu", "algorithm.tolerance"]
AT_LEAST_ONE = [
    "problem.n",
    "problem.p",
    "problem.data.samples",
    "algorithm.max_rounds",
    "algorithm.start.max_rounds",
]
COUNTED_FROM_ZERO = ["problem.data.seed", "algorithm.start.seed", "peers[3].id"]


def raw_for(key):
    """A sound file that has the key."""
    raw = raw_topology()
    if key in BRANCHES:
        put(raw, key.rpartition(".")[0], dict(BRANCHES[key]))
    return raw


def raw_of_files():
    """A network that prepares its data files and finds its start; the files are not there."""
    raw = put(raw_topology(), "problem.data", {"kind": "files"})
    return put(raw, "algorithm.start", {"kind": "destiny", "seed": 1})


def refusal(raw):
    with pytest.raises(TopologyError) as caught:
        parse(raw, file=FILE)
    return str(caught.value)


def only_mistake(raw):
    (line,) = refusal(raw).split("\n")
    assert line.startswith(f"{FILE}: ")
    return line.removeprefix(f"{FILE}: ")


def assert_refused(raw, key, value, allowed):
    line = only_mistake(put(raw, key, value))
    assert line.startswith(f"{key} = {value!a}: ")
    assert allowed in line


JUNK = st.recursive(
    st.integers() | st.floats() | st.booleans() | st.text(max_size=3) | st.sampled_from([*UNION_TAGS]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["kind", "rule", "id", "data", "x"]), inner, max_size=3)
    ),
)


@pytest.mark.parametrize("key", [*POSITIVE, *NOT_NEGATIVE, *AT_LEAST_ONE, *COUNTED_FROM_ZERO])
def test_the_files_that_the_mistakes_are_put_into_are_sound(key):
    assert parse(raw_for(key), file=FILE).d == 5


@pytest.mark.parametrize("value", [0, 0.0, -1.0])
@pytest.mark.parametrize("key", [key for key in POSITIVE if key not in SIGMAS])
def test_beta_and_steps_must_be_positive(key, value):
    assert_refused(raw_for(key), key, value, "must be greater than 0")


@pytest.mark.parametrize("value", [0, -1.0, 5e-324, 0.99 * SMALLEST_SIGMA])
@pytest.mark.parametrize("key", SIGMAS)
def test_sigma_must_leave_some_digits(key, value):
    assert_refused(raw_for(key), key, value, "must be greater than or equal to 0.00000001")
    assert parse(put(raw_for(key), key, SMALLEST_SIGMA), file=FILE).d == 5


@pytest.mark.parametrize("key", NOT_NEGATIVE)
def test_mu_and_tolerance_must_not_be_negative(key):
    assert_refused(raw_for(key), key, -0.1, "must be greater than or equal to 0")


@pytest.mark.parametrize("value", [0, -2])
@pytest.mark.parametrize("key", AT_LEAST_ONE)
def test_sizes_start_at_one(key, value):
    assert_refused(raw_for(key), key, value, "must be greater than or equal to 1")


@pytest.mark.parametrize("key", COUNTED_FROM_ZERO)
def test_ids_and_seeds_start_at_zero(key):
    assert_refused(raw_for(key), key, -1, "must be greater than or equal to 0")


@pytest.mark.parametrize("key", ["problem.data.seed", "algorithm.start.seed"])
def test_seeds_fit_into_63_bits(key):
    assert_refused(raw_for(key), key, 2**63, f"must be less than {2**63}")


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("problem.n", 10**7 + 1, f"must be less than or equal to {10**7}"),
        ("problem.p", 10**30, f"must be less than or equal to {10**7}"),
        ("problem.data.samples", 10**12, f"must be less than or equal to {10**7}"),
        ("algorithm.max_rounds", 2**53 + 1, f"must be less than or equal to {2**53}"),
        ("peers[3].id", 2**31, f"must be less than {2**31}"),
    ],
)
def test_no_size_may_be_beyond_all_bounds(key, value, allowed):
    assert_refused(raw_topology(), key, value, allowed)


def test_no_matrix_may_have_more_entries_than_fit_into_memory():
    line = only_mistake(put(raw_topology(n=100), "problem.data.samples", 3 * 10**6))
    assert line == "problem.data.samples = 3000000: with n = 100, A would have more than 268,435,456 entries"
    raw = put(put(raw_topology(samples=10**4), "problem.n", 10**7), "problem.p", 27)
    assert "problem.n = 10000000: with p = 27, X would have more than 268,435,456 entries" in refusal(raw)


@pytest.mark.parametrize("value", [nan, inf, -inf])
@pytest.mark.parametrize("key", [*POSITIVE, *NOT_NEGATIVE])
def test_nan_and_infinity_are_no_numbers(key, value):
    assert_refused(raw_for(key), key, value, "must be a finite number")


@pytest.mark.parametrize("value", [True, "0.1", [0.1]])
@pytest.mark.parametrize("key", [*POSITIVE, *NOT_NEGATIVE])
def test_only_a_number_is_a_number(key, value):
    assert_refused(raw_for(key), key, value, "must be a valid number")


@pytest.mark.parametrize("value", ["Auto", "", "0.1", -1.0, 0, True, [0.1], nan])
@pytest.mark.parametrize("key", OR_AUTO)
def test_where_auto_may_stand_it_is_named_in_one_line(key, value):
    assert_refused(raw_for(key), key, value, ' or "auto"')


@pytest.mark.parametrize("key", [key for key in POSITIVE if key not in OR_AUTO])
def test_auto_stands_nowhere_else(key):
    assert_refused(raw_for(key), key, "auto", "must be a valid number")


@pytest.mark.parametrize("value", ["yes", 1, "auto", 0.0])
@pytest.mark.parametrize("key", ["problem.data.center", "problem.data.scale"])
def test_files_are_centered_and_scaled_or_not(key, value):
    assert raw_of_files()["problem"]["data"] == {"kind": "files"}
    assert f"{key} = {value!a}: must be a valid boolean" in refusal(put(raw_of_files(), key, value))


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("problem.data.overall", "unit", 'must be "auto" or "raw"'),
        ("problem.data.overall", 2.0, 'must be "auto" or "raw"'),
        ("problem.data.centre", True, 'unknown key; did you mean "center"?'),
        ("problem.data.seed", 1, "unknown key"),
        ("algorithm.start.path", "x.npy", "unknown key"),
        ("algorithm.start.seed", GONE, "is missing"),
        ("algorithm.start.tolerence", 0.1, 'unknown key; did you mean "tolerance"?'),
        ("algorithm.start", {"kind": "file"}, "algorithm.start.path: is missing"),
        (
            "algorithm.start",
            {"kind": "file", "path": ""},
            "algorithm.start.path = '': must be a path of 1 to 4096 characters",
        ),
        ("algorithm.start", {"kind": "file", "path": 5}, "algorithm.start.path = 5: must be a valid string"),
    ],
)
def test_a_mistake_in_how_files_are_prepared_and_where_to_start_is_named(key, value, allowed):
    said = refusal(put(raw_of_files(), key, value)).removeprefix(f"{FILE}: ")
    (line,) = [line.strip() for line in said.splitlines() if "peers" not in line and "mistakes" not in line]
    assert line.startswith(key)
    assert allowed in line


@pytest.mark.parametrize("value", [True, "1", 1.0, [1], nan])
@pytest.mark.parametrize("key", [*AT_LEAST_ONE, *COUNTED_FROM_ZERO])
def test_only_an_integer_is_an_integer(key, value):
    assert_refused(raw_for(key), key, value, "must be a")


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("problem.p", 7, "at most n = 6"),
        ("problem.data.samples", 4, "must be at least 5, one for each peer"),
        ("peers[1].samples", 9, "leave it out: synthetic samples are dealt out evenly; it is for data files"),
        ("problem.regularizer", "l3", 'must be "l1", "l21"'),
        ("problem.regularizer", 1, ' or "none", or MODULE:CLASS'),
        ("problem.data.kind", "sql", 'must be one of "synthetic", "files"'),
        ("problem.data.scale", "log", 'must be "unit" or "raw"'),
        ("algorithm.method", "admm", "must be one of auto, proximal, gram, thanos, destiny"),
        ("algorithm.preset", "papers", 'must be "paper"'),
        ("algorithm.preset", 1, 'must be "paper"'),
        ("algorithm.exchange", "float16", 'must be "float64" or "float32"'),
        ("algorithm.start.kind", "zero", 'must be one of "svd", "random"'),
        ("algorithm.step.rule", "armijo", 'must be one of "constant", "bb"'),
        ("algorithm.smoothing.rule", "none", 'must be one of "constant", "decreasing"'),
        ("weights", "uniform", 'must be "metropolis"'),
        ("weights", 5, "must be a valid list"),
        ("name", "two words", "must be 1 to 64 letters, digits, dots, dashes and underscores"),
        ("name", "-dash", "must be 1 to 64 letters, digits, dots, dashes and underscores"),
        ("name", "n" * 65, "must be 1 to 64 letters, digits, dots, dashes and underscores"),
        ("name", "line\n", "must be 1 to 64 letters, digits, dots, dashes and underscores"),
        ("name", "", "must be 1 to 64 letters, digits, dots, dashes and underscores"),
        ("name", 5, "must be a valid string"),
        ("peers[3].address", 17000, "must be a valid string"),
        ("peers", [], "at least 1 item"),
        ("problem", 5, "must be a valid dictionary"),
        ("problem.data", [1], "must be a valid dictionary"),
        ("edges", "0-1", "must be a valid list"),
    ],
)
def test_a_value_that_is_not_allowed_is_named_with_those_that_are(key, value, allowed):
    assert_refused(raw_topology(), key, value, allowed)


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("nam", "name"),
        ("problem.regulariser", "regularizer"),
        ("problem.data.sample", "samples"),
        ("algorithm.max_round", "max_rounds"),
        ("algorithm.step.frist", "first"),
        ("algorithm.smoothing.exponet", "exponent"),
        ("algorithm.start.kin", "kind"),
        ("peers[3].adress", "address"),
    ],
)
def test_an_unknown_key_is_refused_with_the_one_that_was_meant(key, near):
    assert_refused(raw_topology(), key, 1, f'unknown key; did you mean "{near}"? (known here: ')


def test_an_unknown_key_like_no_other_is_refused_with_those_that_are_known():
    line = only_mistake(put(raw_topology(), "peers[0].zone", 1))
    assert line == f"peers[0].zone = 1: unknown key (known here: {', '.join(sorted(PeerSection.model_fields))})"


@pytest.mark.parametrize("key", ["files", "peers[0].files", "problem.synthetic", "algorithm.constant"])
def test_an_unknown_key_is_named_even_if_it_is_called_like_a_kind_or_a_rule(key):
    assert_refused(raw_topology(), key, 1, "unknown key")


@pytest.mark.parametrize(
    "key",
    [
        "name",
        "edges",
        "problem",
        "algorithm",
        "peers",
        "peers[3].id",
        "peers[3].address",
        "problem.n",
        "problem.p",
        "problem.regularizer",
        "problem.data",
        "problem.data.kind",
        "problem.data.seed",
        "problem.data.samples",
        "algorithm.start.kind",
        "algorithm.step.rule",
        "algorithm.smoothing.rule",
    ],
)
def test_a_missing_key_is_named(key):
    assert only_mistake(put(raw_topology(), key, GONE)) == f"{key}: is missing"


@pytest.mark.parametrize("key", ["algorithm.step.eta", "algorithm.smoothing.sigma", "algorithm.start.seed"])
def test_a_key_that_a_rule_or_kind_needs_is_named_when_it_is_missing(key):
    assert only_mistake(put(raw_for(key), key, GONE)) == f"{key}: is missing"


def test_missing_smoothing_is_explained():
    line = only_mistake(put(raw_topology(), "algorithm.smoothing", GONE))
    assert line.startswith("algorithm.smoothing: is missing: ")
    assert 'rule = "constant" with sigma, or rule = "decreasing" with sigma0 and exponent' in line
    assert 'or set algorithm.preset = "paper"' in line


def test_an_unknown_preset_is_the_only_mistake_of_a_file_that_leaves_the_rest_to_it():
    raw = put(put(raw_topology(), "algorithm.smoothing", GONE), "algorithm.preset", "papers")
    assert only_mistake(raw) == "algorithm.preset = 'papers': must be \"paper\""


@pytest.mark.parametrize("method", ["auto", "gram", "proximal-tracking", "destiny"])
def test_a_preset_is_refused_with_a_method_that_it_is_not_for(method):
    raw = put(raw_topology(regularizer="none"), "algorithm", {"method": method, "preset": "paper"})
    allowed = f'is for method = "thanos": leave it out when method = "{method}"'
    assert only_mistake(raw) == f"algorithm.preset = 'paper': {allowed}"


@pytest.mark.parametrize("regularizer", ["l1", "l21", "l2,1"])
def test_a_regularizer_needs_mu(regularizer):
    line = only_mistake(put(put(raw_topology(), "problem.regularizer", regularizer), "problem.mu", GONE))
    assert line.startswith("problem.mu: is missing: ")
    assert f'"{regularizer}" needs its weight, a number >= 0' in line


def test_no_regularizer_takes_no_mu():
    raw = put(raw_topology(), "problem.regularizer", "none")
    assert only_mistake(raw) == 'problem.mu = 0.1: leave it out when regularizer = "none"'


def test_destiny_takes_no_regularizer():
    raw = put(put(raw_topology(), "algorithm.method", "destiny"), "algorithm.smoothing", GONE)
    assert only_mistake(raw) == (
        "algorithm.method = 'destiny': must be another with regularizer = \"l1\": destiny is for problems without"
    )


def test_destiny_takes_no_smoothing():
    raw = put(raw_topology(regularizer="none"), "algorithm.method", "destiny")
    assert only_mistake(raw) == 'algorithm.smoothing: leave it out when method = "destiny"'


@pytest.mark.parametrize("method", ["auto", "gram", "proximal"])
@pytest.mark.parametrize(("family", "needed"), [("path", 4), ("star", 2)])
def test_a_method_by_sums_is_given_the_rounds_of_one_at_least(method, family, needed):
    raw = raw_topology(family, 5, method="auto")
    raw["algorithm"] |= {"method": method, "max_rounds": needed}
    parse(raw, file=FILE)
    raw["algorithm"]["max_rounds"] -= 1
    assert only_mistake(raw) == (
        f"algorithm.max_rounds = {needed - 1}: must be at least {needed}, the rounds of one sum over this network"
        f', with method = "{method}"'
    )


def test_an_svd_start_needs_data_that_every_peer_can_make():
    raw = put(raw_topology(), "problem.data", {"kind": "files"})
    for i in range(5):
        put(raw, f"peers[{i}].data", f"{i}.npy")
    first, *lines = refusal(raw).splitlines()
    assert first == f"{FILE}: 6 mistakes"
    assert lines[0].startswith("  algorithm.start.kind = 'svd': ")
    assert 'must be "leading", "destiny", "random" or "file"' in lines[0]
    assert all(f"peers[{i}].data = '{i}.npy': " in lines[1 + i] for i in range(5))


def test_an_svd_start_needs_at_least_p_samples():
    raw = raw_topology("path", 2, n=6, p=3, samples=2)
    line = only_mistake(raw)
    assert line.startswith("problem.data.samples = 2: ")
    assert "p = 3" in line


def test_an_id_that_is_taken_is_refused():
    line = only_mistake(put(raw_topology(), "peers[3].id", 1))
    assert line == "peers[3].id = 1: peers[1] has this id already; ids are unique"


def test_ids_that_do_not_run_from_zero_are_refused():
    assert_refused(raw_topology(), "peers[0].id", 5, "5 peers have the ids 0 to 4")


def test_an_address_that_is_taken_is_refused():
    allowed = "peers[1] has this address already; every peer needs its own"
    assert_refused(raw_topology(), "peers[3].address", "tcp://127.0.0.1:17001", allowed)


@pytest.mark.parametrize("key", ["peers[3].address", "peers[3].bind"])
@pytest.mark.parametrize(
    "address",
    [
        "",
        "127.0.0.1:17000",
        "tcp://127.0.0.1",
        "tcp://127.0.0.1:",
        "tcp://127.0.0.1:0",
        "tcp://127.0.0.1:65536",
        "tcp://127.0.0.1:170000",
        "tcp://127.0.0.1:-1",
        "tcp://127.0.0.1:http",
        "tcp://127.0.0.1:17000/",
        "tcp://127.0.0.1:17000\n",
        "tcp://127.0.0.1: 17000",
        "tcp://127.0.0.1:17\u066000",
        " tcp://127.0.0.1:17000",
        "tcp://:17000",
        "tcp://*:17000",
        "tcp://my host:17000",
        "tcp://host-:17000",
        "tcp://user@host:17000",
        "tcp://ho\x00st:17000",
        "tcp://h\xf6st:17000",
        "tcp://::1:17000",
        "tcp://[::1:17000",
        "tcp://[]:17000",
        "tcp://[::g]:17000",
        "TCP://host:17000",
        "udp://host:17000",
        "http://host:17000",
        "inproc://peer",
        "ipc://",
        "ipc:///tmp/a\nb",
        "ipc:///tmp/a\x7fb",
        "ipc:///" + "a" * 100,
    ],
)
def test_a_malformed_address_is_refused(address, key):
    line = only_mistake(put(raw_topology(), key, address))
    shown = ascii(address)
    assert line.startswith(f"{key} = {shown if len(shown) <= 80 else shown[:77] + '...'}: ")
    assert "must be tcp://HOST:PORT with a port of 1 to 65535 (an IPv6 host in brackets), or ipc://PATH" in line


@pytest.mark.parametrize(
    "address",
    [
        "tcp://10.0.0.7:1",
        "tcp://10.0.0.7:65535",
        "tcp://localhost:17000",
        "tcp://peer-3.lab_2.example.org:17000",
        "tcp://h:80",
        "tcp://[::1]:17000",
        "tcp://[fe80::1:2]:17000",
        "tcp://[::ffff:10.0.0.7]:17000",
        "ipc:///tmp/peer 3.sock",
        "ipc://@abstract",
    ],
)
def test_a_well_formed_address_is_accepted(address):
    topology = parse(put(raw_topology(), "peers[3].address", address), file=FILE)
    assert topology.peers[3].address == address


@pytest.mark.parametrize(
    ("edge", "allowed"),
    [
        ([0, 5], "there is no peer 5; with 5 peers an edge joins two of 0 to 4"),
        ([-1, 0], "there is no peer -1; with 5 peers an edge joins two of 0 to 4"),
        ([2, 2], "a self-loop; an edge joins two different peers"),
        ([1, 2], "the same edge as edges[1]; list each once, in either direction"),
        ([2, 1], "the same edge as edges[1]; list each once, in either direction"),
    ],
)
def test_an_edge_joins_two_different_known_peers_once(edge, allowed):
    raw = raw_topology()
    raw["edges"].append(edge)
    assert only_mistake(raw) == f"edges[5] = {edge}: {allowed}"


@pytest.mark.parametrize(
    ("edge", "key", "value", "allowed"),
    [
        ([1], "edges[5]", [1], "at least 2 items"),
        ([], "edges[5]", [], "at least 2 items"),
        ([1, 2, 3], "edges[5]", [1, 2, 3], "at most 2 items"),
        ("0-1", "edges[5]", "0-1", "must be a valid list"),
        (3, "edges[5]", 3, "must be a valid list"),
        ([0, "2"], "edges[5][1]", "2", "must be a valid integer"),
        ([True, 2], "edges[5][0]", True, "must be a valid integer"),
        ([0, 2.0], "edges[5][1]", 2.0, "must be a valid integer"),
    ],
)
def test_a_malformed_edge_is_refused(edge, key, value, allowed):
    raw = raw_topology()
    raw["edges"].append(edge)
    line = only_mistake(raw)
    assert line.startswith(f"{key} = {value!a}: ")
    assert allowed in line


@pytest.mark.parametrize(
    ("d", "edges", "parts"),
    [
        (5, [[0, 1], [2, 3]], "3 components {0, 1}, {2, 3}, {4}"),
        (4, [[3, 1], [2, 0]], "2 components {0, 2}, {1, 3}"),
        (3, [], "3 components {0}, {1}, {2}"),
        (13, [[i, i + 1] for i in range(11)], "2 components {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ... 12 peers}, {12}"),
        (9, [], "9 components {0}, {1}, {2}, {3}, {4}, {5}, ...;"),
    ],
)
def test_a_graph_that_is_not_connected_is_refused_with_its_components(d, edges, parts):
    line = only_mistake(put(raw_topology(d=d), "edges", edges))
    assert line.startswith("edges: the graph is not connected: ")
    assert parts in line


def test_an_edge_that_is_refused_connects_nothing():
    lines = refusal(put(raw_topology(d=3), "edges", [[0, 1], [1, 3]])).split("\n")
    assert lines[0] == f"{FILE}: 2 mistakes"
    assert lines[1].startswith("  edges[1] = [1, 3]: there is no peer 3")
    assert "2 components {0, 1}, {2}" in lines[2]


@pytest.mark.parametrize(
    ("rows", "shape"),
    [
        ([], "0 rows of [] entries"),
        (THIRDS[:2], "2 rows of [3] entries"),
        ([row[:2] for row in THIRDS], "3 rows of [2] entries"),
        ([[1.0], *THIRDS[1:]], "3 rows of [1, 3] entries"),
    ],
)
def test_weights_of_the_wrong_shape_are_refused(rows, shape):
    raw = put(raw_topology("complete", 3), "weights", rows)
    assert only_mistake(raw) == f"weights: must be 3 rows of 3 entries, one per peer; here are {shape}"


@pytest.mark.parametrize(
    ("i", "j", "value", "line"),
    [
        (0, 1, nan, "weights[0][1] = nan: must be a finite number"),
        (0, 1, -inf, "weights[0][1] = -inf: must be a finite number"),
        (0, 1, True, "weights[0][1] = True: must be a valid number"),
        (0, 1, "1/3", "weights[0][1] = '1/3': must be a valid number"),
    ],
)
def test_a_weight_is_a_finite_number(i, j, value, line):
    rows = [list(row) for row in THIRDS]
    rows[i][j] = value
    assert only_mistake(put(raw_topology("complete", 3), "weights", rows)) == line


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (
            [[0.5, 0.5, 0], [0.4, 0.2, 0.4], [0, 0.4, 0.6]],
            "weights[0][1] = 0.5: must equal the weight of the same edge in the other direction (symmetric)",
        ),
        ([[0.5, 0.5, 0], [0.5, -0.1, 0.6], [0, 0.6, 0.4]], "weights[1][1] = -0.1: must be >= 0"),
        (
            [[0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.4]],
            "weights[2]: the row sums to 0.9; every row must sum to 1",
        ),
    ],
)
def test_weights_are_symmetric_and_stochastic(rows, line):
    assert only_mistake(put(raw_topology("path", 3), "weights", rows)) == line


def test_a_weight_without_an_edge_is_refused_in_both_directions():
    lines = refusal(put(raw_topology("path", 3), "weights", THIRDS)).split("\n")[1:]
    assert lines == [
        f"  weights[{i}][{j}] = {1 / 3}: must be 0: there is no such edge" for i, j in ((0, 2), (2, 0))
    ]


@pytest.mark.parametrize("rows", [[[0, 1], [1, 0]], [[1, 0], [0, 1]]])
def test_weights_that_never_reach_consensus_are_refused(rows):
    line = only_mistake(put(raw_topology("path", 2), "weights", rows))
    assert line.startswith("weights: lambda = ||W - 11'/d||_2 is 1, so mixing never reaches consensus; ")
    assert "give the diagonal some weight and every edge more than 0" in line


def test_sound_explicit_weights_are_accepted():
    rows = [[0.75, 0.25, 0], [0.25, 0.25, 0.5], [0, 0.5, 0.5]]
    topology = parse(put(raw_topology("path", 3), "weights", rows), file=FILE)
    assert np.array_equal(topology.graph.matrix(), rows)


def test_all_mistakes_of_all_sections_are_reported_together():
    raw = raw_topology()
    for key, value in {
        "nam": "x",
        "problem.p": 7,
        "problem.mu": -1.0,
        "algorithm.beta": -1.0,
        "peers[2].address": "tcp://127.0.0.1:17001",
        "edges[4]": [3, 3],
        "weights": "uniform",
    }.items():
        put(raw, key, value)
    first, *lines = refusal(raw).split("\n")
    assert first == f"{FILE}: 7 mistakes"
    assert {line.split(" = ")[0].strip() for line in lines} == {
        "nam",
        "problem.p",
        "problem.mu",
        "algorithm.beta",
        "peers[2].address",
        "edges[4]",
        "weights",
    }


def test_the_mistakes_can_be_read_one_by_one_from_the_error():
    with pytest.raises(TopologyError) as caught:
        parse(put(put(raw_topology(), "problem.p", 7), "algorithm.beta", -1.0), file=FILE)
    assert caught.value.file == str(FILE)
    assert {(mistake.key, mistake.value) for mistake in caught.value.mistakes} == {
        ("problem.p", 7),
        ("algorithm.beta", -1.0),
    }


KEYS = [
    *("name", "weights", "edges", "edges[1]", "edges[1][0]", "problem", "algorithm", "peers", "peers[3]", "extra"),
    *("peers[3].id", "peers[3].address", "peers[3].data", "problem.n", "problem.p", "problem.regularizer"),
    *("problem.mu", "problem.data", "problem.data.kind", "problem.data.samples", "algorithm.method"),
    *("algorithm.start", "algorithm.start.kind", "algorithm.step", "algorithm.smoothing"),
]


@given(st.dictionaries(st.sampled_from(KEYS), JUNK, min_size=1, max_size=3))
def test_whatever_stands_in_the_file_it_is_a_topology_or_a_topology_error(junk):
    raw = raw_topology()
    for key in sorted(junk, key=len, reverse=True):
        put(raw, key, junk[key])
    try:
        assert parse(raw, file=FILE).d == 5
    except TopologyError as error:
        assert all(str(mistake) in str(error) for mistake in error.mistakes)  # noqa: PT017


KEY, OTHER_KEY = "iCHN(OY@Z<1>YGe36^nY4C$A:uHli5g2maew(6@$", "SvYKBYr#?W)()W7%eS+1il)e.P.>IPT[z]GKNfRK"


def keyed():
    raw = raw_topology("path", 2)
    return put(put(raw, "peers[0].public_key", KEY), "peers[1].public_key", OTHER_KEY)


def test_keys_are_no_mistake():
    assert parse(keyed(), file=FILE).has_keys
    assert not parse(raw_topology("path", 2), file=FILE).has_keys


@pytest.mark.parametrize(
    "key", ["", KEY[:-1], KEY + "0", KEY[:-1] + "~", KEY[:-1] + " ", "#" * 40, KEY[:-1] + "é"]
)
def test_a_key_that_is_not_z85_is_refused(key):
    assert_refused(keyed(), "peers[1].public_key", key, "must be 40 Z85 characters")


@given(
    st.text(Z85CHARS.decode(), min_size=40, max_size=40)
    | st.text(max_size=45)
    | st.binary(min_size=32, max_size=32)
)
@example("%nSc0" * 8)
@example("%nSc1" * 8)
def test_a_key_is_what_zeromq_decodes_to_32_bytes(key):
    key = z85.encode(key).decode() if isinstance(key, bytes) else key
    try:
        is_key = len(z85.decode(key)) == 32
    except (KeyError, ValueError, struct.error):
        is_key = False
    with contextlib.nullcontext() if is_key else pytest.raises(ValueError, match="must be 40 Z85 characters"):
        assert check_key(key) == key


def test_either_every_peer_has_a_key_or_none_has():
    line = only_mistake(put(keyed(), "peers[0].public_key", GONE))
    assert line.startswith("peers[0].public_key: is missing: peers[1] has one")


def test_two_peers_with_one_key_are_refused():
    assert_refused(keyed(), "peers[1].public_key", KEY, "peers[0] has this key already")


def test_to_go_without_encryption_takes_the_very_words():
    raw = raw_topology("path", 2)
    assert parse(put(raw, "unencrypted", IN_THE_CLEAR), file=FILE).content.unencrypted == IN_THE_CLEAR
    for value in (True, "yes", IN_THE_CLEAR.upper()):
        assert only_mistake(put(raw, "unencrypted", value)).startswith(f"unencrypted = {value!a}: must be")


def test_keys_and_no_encryption_do_not_go_together():
    assert_refused(keyed(), "unencrypted", IN_THE_CLEAR, "leave it out")


def test_keys_are_not_part_of_the_digest():
    assert parse(keyed(), file=FILE).digest == parse(raw_topology("path", 2), file=FILE).digest


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("ipc:///tmp/0.sock", True),
        ("tcp://127.0.0.1:1", True),
        ("tcp://127.9.9.9:1", True),
        ("tcp://localhost:1", True),
        ("tcp://[::1]:1", True),
        ("tcp://0.0.0.0:1", False),
        ("tcp://[::]:1", False),
        ("tcp://10.0.0.1:1", False),
        ("tcp://localhost.example:1", False),
        ("tcp://127.0.0.1.example:1", False),
        ("tcp://host:1", False),
    ],
)
def test_only_loopback_and_local_sockets_are_local(address, expected):
    assert is_local(address) is expected


@pytest.mark.parametrize("key", ["center", "scale"])
def test_files_may_be_prepared_whatever_the_exchange_because_sums_are_exact(key):
    raw = raw_topology("ring", 3)
    raw["algorithm"] |= {"exchange": "float32", "start": {"kind": "random", "seed": 1}}
    raw["problem"]["data"] = {"kind": "files", key: True}
    assert parse(raw, file=FILE, may_lack_data=True).algorithm.exchange == "float32"


def by_sums(method, **settings):
    """A sound file for a method that reads none of these settings, and the settings."""
    raw = raw_topology()
    raw["algorithm"] = {"method": method, "max_rounds": 100} | settings
    return raw


SETTINGS = {
    "beta": 1.0,
    "step": {"rule": "bb", "first": 0.1},
    "smoothing": {"rule": "constant", "sigma": 0.1},
}


@pytest.mark.parametrize("key", SETTINGS)
@pytest.mark.parametrize("method", ["proximal", "gram", "auto"])
def test_a_setting_that_a_method_does_not_read_is_refused(method, key):
    assert parse(by_sums(method), file=FILE).d == 5
    line = only_mistake(by_sums(method, **{key: SETTINGS[key]}))
    assert line == f'algorithm.{key}: leave it out when method = "{method}"'


def test_all_of_them_are_named_together():
    first, *lines = refusal(by_sums("gram", **SETTINGS)).split("\n")
    assert first == f"{FILE}: 3 mistakes"
    assert lines == [f'  algorithm.{key}: leave it out when method = "gram"' for key in sorted(SETTINGS)]


@pytest.mark.parametrize("key", ["beta", "step"])
def test_destiny_reads_what_it_needs(key):
    raw = put(raw_topology(regularizer="none"), "algorithm.method", "destiny")
    del raw["algorithm"]["smoothing"]
    raw["algorithm"][key] = SETTINGS[key]
    assert parse(raw, file=FILE).method == "destiny"


def test_drgta_may_mix_several_times_for_each_step_and_others_may_not():
    assert parse(by_sums("drgta", mixings=5), file=FILE).algorithm.mixings == 5
    assert_refused(by_sums("drgta", mixings=0), "algorithm.mixings", 0, "must be greater than or equal to 1")
    line = only_mistake(by_sums("dprgt", mixings=5))
    assert line == 'algorithm.mixings: leave it out when method = "dprgt"'


def test_a_setting_that_is_unsound_by_itself_is_named_once():
    line = only_mistake(by_sums("gram", beta=-1.0))
    assert line.startswith("algorithm.beta = -1.0: must be greater than 0")


def test_a_method_that_is_none_leaves_the_settings_alone():
    line = only_mistake(by_sums("admm", **SETTINGS))
    assert line.startswith("algorithm.method = 'admm': must be one of auto, ")


def test_what_may_be_left_out_of_the_algorithm_has_defaults():
    raw = raw_topology()
    raw["algorithm"] = {"smoothing": {"rule": "decreasing"}}
    topology = parse(raw, file=FILE)
    algorithm = topology.algorithm
    assert (topology.method, algorithm.beta) == ("thanos", 1.0)
    assert (algorithm.max_rounds, topology.max_rounds) == (None, Thanos.default_rounds)
    assert algorithm.start.model_dump() == {"kind": "leading", "seed": 1}
    assert algorithm.step.model_dump() == {"rule": "bb", "first": "auto"}
    assert (algorithm.tolerance, topology.tolerance) == (None, 0.0)
    assert algorithm.exchange == "float64"


@pytest.mark.parametrize(
    ("method", "tolerance"), [("thanos", 0.0), ("destiny", 0.0), ("proximal", 1e-10), ("gram", 1e-10)]
)
def test_the_tolerance_and_the_rounds_left_out_are_those_of_the_method(method, tolerance):
    raw = raw_topology(regularizer="none")
    raw["algorithm"] = {"method": method}
    if method == "thanos":
        raw["algorithm"]["smoothing"] = {"rule": "decreasing"}
    topology = parse(raw, file=FILE)
    assert (topology.tolerance, topology.max_rounds) == (tolerance, (MIXING | SUMMING)[method].default_rounds)
    raw["algorithm"] |= {"tolerance": 1e-3, "max_rounds": 7}
    topology = parse(raw, file=FILE)
    assert (topology.tolerance, topology.max_rounds) == (1e-3, 7)


@pytest.mark.parametrize(("n", "p", "method"), [(6, 2, "gram"), (5000, 1, "proximal"), (200, 20, "gram")])
def test_auto_is_the_exact_method_that_sends_less(n, p, method):
    topology = parse(by_sums("auto") | {"problem": raw_topology(n=n, p=p, samples=50)["problem"]}, file=FILE)
    assert (topology.algorithm.method, topology.method) == ("auto", method)


def test_a_leading_start_takes_a_seed_and_nothing_else():
    raw = put(raw_topology(), "algorithm.start", {"kind": "leading", "seed": 7})
    assert parse(raw, file=FILE).algorithm.start.seed == 7
    assert_refused(raw, "algorithm.start.seed", -1, "must be greater than or equal to 0")
    assert "unknown key" in only_mistake(
        put(raw_topology(), "algorithm.start", {"kind": "leading", "tolerance": 0.1})
    )
