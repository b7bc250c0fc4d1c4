"""Paths over mu: each answer is stationary, the rounds are few, and the table is that of an independent judge."""

from functools import cache

import numpy as np
import pytest
from networks import OPTIONS, make_topology, with_keys
from simulate.test_exact_methods import run_both
from simulate.test_wrong_words import WORD, lie, word_with
from uneven import LEADING, raw_with_parts, real_samples, split, standardised

from thanos_peer.errors import RemoteProtocolError
from thanos_peer.launch.independent import worth_of
from thanos_peer.preparation.choice import counts_of
from thanos_peer.problem import build
from thanos_peer.simulate import StackedNetwork

ROWS, NAMES = real_samples("breast_cancer")
PARTS = split(ROWS, 4)
A = standardised(PARTS).T / np.linalg.norm(standardised(PARTS), 2)
MUS = [0.15, 0.1, 0.05, 0.02, 0.01]


@pytest.fixture(scope="module")
def network_of(tmp_path_factory):
    directory = tmp_path_factory.mktemp("parts")

    @cache
    def known(method, mu, regularizer, p, restarts, choose):
        raw = raw_with_parts(directory, PARTS, "star", names=NAMES, start=LEADING, p=p)
        raw["algorithm"] = {"method": method, "start": LEADING, "restarts": restarts}
        mu = {"path": mu} if isinstance(mu, int) else list(mu) if isinstance(mu, tuple) else mu
        problem = {"mu": mu, "regularizer": regularizer, "regularizer_options": OPTIONS.get(regularizer, {})}
        raw["problem"] |= problem | ({} if choose is None else {"choose": dict(choose)})
        network = StackedNetwork(build(make_topology(raw, file=directory / "net.toml")))
        while not network.is_done:
            network.advance()
        return network

    def network(method, mu, regularizer="l1", p=2, restarts=1, choose=None):
        return known(method, mu, regularizer, p, restarts, choose)

    return network


@pytest.mark.parametrize("regularizer", ["l1", "l21", "group-l21"])
@pytest.mark.parametrize("mu", [8, tuple(MUS)])
@pytest.mark.parametrize("method", ["gram", "proximal"])
def test_each_answer_of_a_path_is_stationary_and_its_row_is_what_it_is_worth(network_of, method, mu, regularizer):
    network = network_of(method, mu, regularizer)
    found, rows = network.found, network.account.path
    assert len(rows) == len(found.path) == (8 if mu == 8 else 5)
    assert network.has_converged
    groups = OPTIONS.get(regularizer, {}).get("groups", ())
    for row, X in zip(rows, found.path, strict=True):
        worth = worth_of(A, X, regularizer, row.mu, groups)
        assert worth.feasibility < 1e-12
        assert worth.residual < 2e-10
        assert row.residual < 1e-10
        assert row.has_converged
        assert row.objective == pytest.approx(worth.objective, abs=1e-9)
        assert row.nonzeros == np.count_nonzero(X, axis=0).tolist()
        assert row.explained == pytest.approx(np.sum((A.T @ X) ** 2) / np.sum(A**2), rel=1e-9)
        R = np.linalg.qr(A.T @ X, mode="r")
        assert row.adjusted == pytest.approx(np.diag(R) ** 2 / np.sum(A**2), rel=1e-8)
    chosen = int(found.chosen)
    assert [row.is_chosen for row in rows] == [j == chosen for j in range(len(rows))]
    assert network.X[0].tobytes() == found.path[chosen].tobytes()
    assert float(found.objective) == rows[chosen].objective
    weights = [row.mu for row in rows]
    assert weights == sorted(weights, reverse=True)
    if mu != 8:
        assert weights == MUS


@pytest.mark.parametrize("regularizer", ["l1", "l21", "group-l21"])
def test_the_largest_useful_mu_leaves_a_feature_or_a_group_to_each_component_and_smaller_ones_more(
    network_of, regularizer
):
    network = network_of("gram", 8, regularizer)
    first, second, *_, last = (row.nonzeros for row in network.account.path)
    groups = OPTIONS.get(regularizer, {}).get("groups", ())
    assert sum(first) <= {"l1": 2, "l21": 4, "group-l21": 2 * sum(map(len, groups))}[regularizer]
    assert sum(last) > sum(first)
    assert sum(second) > sum(first) or regularizer == "group-l21"
    weights = np.array([row.mu for row in network.account.path])
    assert weights[:-1] / weights[1:] == pytest.approx(50 ** (1 / 7))


@pytest.mark.parametrize("p", [2, 4])
@pytest.mark.parametrize("method", ["gram", "proximal"])
def test_a_path_of_eight_takes_at_most_two_and_a_half_times_the_rounds_of_its_hardest_value(network_of, method, p):
    path = network_of(method, 8, p=p)
    alone = [network_of(method, row.mu, p=p) for row in path.account.path]
    assert path.k <= 2.5 * max(each.k for each in alone)
    # Nothing is worse than alone, and what the second pass has found is sometimes better.
    ahead = [
        float(each.found.objective) - row.objective for each, row in zip(alone, path.account.path, strict=True)
    ]
    assert min(ahead) >= -1e-12
    assert p == 2 or max(ahead) > 1e-4


def test_the_largest_mu_alone_has_the_bits_of_the_first_pass(network_of):
    # Its second search, from another point, is not better here.
    path, alone = network_of("proximal", (0.2, 0.15)), network_of("proximal", 0.2)
    assert path.found.path[0].tobytes() == alone.X[0].tobytes()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("method", "mu"), [("gram", {"path": 3}), ("gram", [0.02, 0.2]), ("proximal", {"path": 3})]
)
def test_agents_and_stack_have_the_same_bits_all_along_a_path(tmp_path, method, mu, masked):
    raw = raw_with_parts(tmp_path, PARTS, "path", start=LEADING, p=2)
    raw["algorithm"] = {"method": method, "start": LEADING, "tolerance": 1e-6}
    raw["problem"] |= {"mu": mu, "choose": {"variance": 0.6}}
    agents = run_both(build(make_topology(with_keys(raw) if masked else raw, file=tmp_path / "net.toml")))
    assert agents.has_converged
    assert len({agent.found.table.tobytes() for agent in agents.agents}) == 1
    assert len({agent.found.path.tobytes() for agent in agents.agents}) == 1


def test_a_path_from_several_starts_keeps_the_best_of_each(network_of):
    one, many = (network_of("proximal", (0.15, 0.1, 0.05), p=4, restarts=count) for count in (1, 3))
    assert many.starts == 3
    assert "the best of 3 starts" in many.convergence.words
    pairs = zip(one.account.path, many.account.path, strict=True)
    ahead = [alone.objective - best.objective for alone, best in pairs]
    assert min(ahead) > -1e-9
    assert max(ahead) > 1e-4


RULES = [
    (("nonzeros", 30), lambda counts, explained: (counts.sum(axis=1) <= 30, explained)),
    (("per_component", 17), lambda counts, explained: (counts.max(axis=1) <= 17, explained)),
    (("variance", 0.62), lambda counts, explained: (explained >= 0.62, -counts.sum(axis=1))),
    (("of_pca", 0.95), lambda counts, explained: (explained >= 0.95 * 0.632432, -counts.sum(axis=1))),
]


@pytest.mark.parametrize(("rule", "judged"), RULES)
@pytest.mark.parametrize("method", ["gram", "proximal"])
def test_a_rule_takes_the_best_of_what_it_allows(network_of, method, rule, judged):
    network = network_of(method, 8, choose=(rule,))
    explained = np.array([row.explained for row in network.account.path])
    is_allowed, worth = judged(counts_of(network.found.path), explained)
    assert 1 < is_allowed.sum() < 8
    assert int(network.found.chosen) == np.argmax(np.where(is_allowed, worth, -np.inf))
    assert network.account.choice.startswith("chosen: the answer that ")
    assert (
        f"at {'most' if rule[0] in ('nonzeros', 'per_component') else 'least'} {rule[1]}" in network.account.choice
    )


@pytest.mark.parametrize(
    ("rule", "nearest"),
    [(("nonzeros", 1), 0), (("per_component", 3), 0), (("variance", 0.9), 4), (("of_pca", 1.0), 4)],
)
def test_where_no_answer_fulfils_a_rule_the_nearest_is_taken_and_words_say_so(network_of, rule, nearest):
    network = network_of("gram", tuple(MUS), choose=(rule,))
    assert int(network.found.chosen) == nearest
    assert network.account.choice.startswith(
        "chosen: the nearest, as none of the values of mu has an answer that "
    )


def test_plain_pca_explains_what_the_eigenvalues_say(network_of):
    values = np.linalg.svd(A, compute_uv=False) ** 2
    shares = (values / values.sum()).tolist()
    assert network_of("gram", 0.05).account.plain_pca == pytest.approx(shares[:20])
    assert network_of("proximal", 0.05).account.plain_pca == pytest.approx(shares[:2])


def test_a_path_that_is_cut_short_has_not_converged_and_keeps_what_there_is(tmp_path):
    raw = raw_with_parts(tmp_path, PARTS, "star", start=LEADING, p=2)
    raw["algorithm"] = {"method": "proximal", "start": LEADING, "max_rounds": 40}
    raw["problem"] |= {"mu": MUS}
    network = StackedNetwork(build(make_topology(raw, file=tmp_path / "net.toml")))
    while not network.is_done:
        network.advance()
    assert network.k == 40
    assert network.has_converged is False
    assert [row.has_converged for row in network.account.path] == [False] * 5
    assert "raise max_rounds" in network.convergence.words


WORDS = [
    ("gram", "gram", 0, 0.5, "how it stands is 0.5, and must be "),
    ("gram", "gram", 1, 3.0, "the pass is number 3, not 1 or 2"),
    ("gram", "gram", 2, 0.5, "of value 1 of 3 of mu, from the largest on: the number of starts is 0.5"),
    ("proximal", "proximal", 17, 0.5, "of value 2 of 3 of mu, from the largest on: "),
    ("proximal", "proximal", slice(5, 17), 0.0, "of value 1 of 3 of mu, .*the next point is 1.41 away"),
    ("gram", "verdict", -1, 0.0, "answer number 0 is chosen .counted from 0., and the rule takes "),
    ("gram", "verdict", -1, 0.5, "answer number 0.5 is chosen, and there are 3"),
    ("gram", "verdict", -1, 3.0, "answer number 3 is chosen, and there are 3"),
    ("gram", "verdict", 0, 99.0, "the largest entry of the gradient is 99, "),
    ("gram", "weights", 0, 0.0, "the largest mu is 0, not from "),
    ("gram", "weights", 0, 1e9, r"the largest mu is 1e\+09, not from "),
    ("gram", "weights", 1, 1e-9, "ratio of two values of mu is "),
]


@pytest.mark.parametrize(("method", "phase", "where", "value", "fault"), WORDS)
def test_a_word_of_a_path_that_no_honest_root_says_is_refused(tmp_path, method, phase, where, value, fault):
    parts = [np.random.default_rng(i).standard_normal((20, 6)) for i in range(4)]
    raw = raw_with_parts(tmp_path, parts, "star", start=LEADING, p=2)
    raw["algorithm"] = {"method": method, "start": LEADING}
    raw["problem"] |= {"mu": {"path": 3}, "choose": {"variance": 1.0}}
    instance = build(make_topology(raw, file=tmp_path / "net.toml"))
    with pytest.raises(RemoteProtocolError, match=rf"its word in phase {phase} cannot be: .*{fault}") as caught:
        lie(instance, phase, WORD, word_with(where, value))
    assert caught.value.neighbor == instance.topology.graph.tree.root
