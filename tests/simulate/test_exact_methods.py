"""All methods in both engines, from whatever graph and split; and those by sums beside the reference."""

import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from networks import OPTIONS, found_bits, make_instance, make_topology, raw_topology
from uneven import FOUND, LEADING, PREPARED, random_samples, raw_with_parts, standardised

from thanos_peer.algorithm import gram, reference, search
from thanos_peer.algorithm.methods import MIXING, SUMMING
from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.algorithm.regularizers import REGULARIZERS
from thanos_peer.problem import build
from thanos_peer.simulate import AgentNetwork, EndReason, StackedNetwork, ending_of
from thanos_peer.simulate import run as measured_rounds
from thanos_peer.topology import load

SHIPPED = sorted((Path(__file__).parents[2] / "topologies").glob("*.toml"))
EXACT = tuple(SUMMING)
ROUGH = tuple(name for name, kind in REGULARIZERS.items() if not kind.is_zero)
RANDOM = {"kind": "random", "seed": 1}
ENOUGH = {"max_rounds": None, "tolerance": None}  # by default


def all_bits(network, rounds):
    """Where a network is, and all that it has; while a sum is on its way, an agent may know more than another."""
    where = (*network.phase, network.is_preparing, network.is_done, found_bits(network.found))
    if network.is_preparing or (network.phase[0] in EXACT and network.k % rounds):
        return where
    arrays = [network.array(name) for name in ("D", "H")]
    matrices = [network.X, network.sparse, network.eta, *(each for each in arrays if each is not None)]
    return *where, network.k, network.has_converged, [each.tobytes() for each in matrices]


def run_both(instance):
    """Both engines, side by side through all phases to the end; returns the agents."""
    agents, stacked, rounds = AgentNetwork(instance), StackedNetwork(instance), instance.topology.graph.tree.rounds
    assert all_bits(agents, rounds) == all_bits(stacked, rounds)
    while not agents.is_done:
        agents.advance()
        stacked.advance()
        assert all_bits(agents, rounds) == all_bits(stacked, rounds)
    assert agents.payload_sent == stacked.payload_sent > 0 or len(agents.agents) == 1
    assert agents.rounds_by_phase == stacked.rounds_by_phase
    return agents


def assert_one_exact_answer(network, objective, best):
    """All agents have one X with orthonormal columns and exact zeros, and nothing known is better."""
    assert network.has_converged
    assert network.is_done
    assert network.is_below_tolerance
    X = network.X[0]
    assert np.abs(X.T @ X - np.eye(X.shape[1])).max() < 1e-12
    for found in (network.X, network.sparse):
        assert {each.tobytes() for each in found} == {X.tobytes()}
    assert best.is_precise
    assert objective(X) == pytest.approx(objective(best.X), abs=1e-10)
    assert ((X != 0) == (np.abs(best.X) > 1e-6)).all()


@cache
def shipped(file, method, **algorithm):
    raw = tomllib.loads(file.read_text())
    raw["algorithm"] = {"method": method, "start": raw["algorithm"]["start"]} | algorithm
    return build(make_topology(raw, file=file))


@pytest.mark.parametrize("method", ["proximal", "gram", "auto"])
@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_every_shipped_topology_has_the_bits_of_both_engines_and_the_answer_of_the_reference(file, method):
    instance = shipped(file, method)
    network = run_both(instance)
    assert_one_exact_answer(network, instance.whole.value, build(load(file)).solve_reference())
    chosen = instance.topology.method
    # With few features, one matrix is less than many steps.
    assert chosen == (method if method in EXACT else "gram")
    assert list(network.rounds_by_phase) == ["size", chosen]
    if chosen == "gram":
        assert network.rounds_by_phase["gram"] == 2 * instance.topology.graph.tree.height


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_every_shipped_topology_is_solved_by_mixing_with_the_bits_of_both_engines(file):
    # A large network would take seconds here; the paper's one is run to its end over processes.
    is_large = load(file).d > 16
    instance = shipped(file, "proximal-tracking", **({"max_rounds": 30} if is_large else {}))
    network = run_both(instance)
    assert list(network.rounds_by_phase) == ["size", "proximal-tracking"]
    if is_large:
        return
    assert network.is_below_tolerance
    best = build(load(file)).solve_reference()
    for X in network.sparse:
        assert ((X != 0) == (np.abs(best.X) > 1e-6)).all()
        assert instance.whole.value(X) == pytest.approx(instance.whole.value(best.X), abs=1e-8)


def test_auto_takes_steps_where_the_gram_matrix_would_be_more_to_send():
    raw = raw_topology("path", 3, n=400, p=1, samples=30, method="auto")
    topology = make_topology(raw)
    assert topology.method == "proximal"
    assert topology.tolerance == 1e-10
    assert make_topology(raw_topology("path", 3, n=40, p=1, method="auto")).method == "gram"


@pytest.mark.parametrize(("n", "p", "method"), [(600, 3, "gram"), (600, 1, "proximal"), (2896, 60, "proximal")])
def test_auto_reckons_with_the_sums_for_the_start_and_with_the_largest_message(n, p, method):
    """With p = 60 the Gram matrix would be less to send, but not in one message."""
    raw = raw_topology("path", 2, n=n, p=p, samples=80, mu=0.02, method="auto", tolerance=None)
    raw["algorithm"]["start"] = LEADING
    assert make_topology(raw).method == method


@pytest.mark.parametrize("each", [1, 10, 33])
@pytest.mark.parametrize("start", [LEADING, RANDOM], ids=["leading", "random"])
def test_gram_over_several_sums_has_the_bits_of_one(monkeypatch, start, each):
    raw = raw_topology("path", 4, n=6, p=2, method="gram", mu=0.05, samples=30, **ENOUGH)
    raw["algorithm"] |= {"restarts": 3, "start": start}
    at_once = run_both(make_instance(raw))
    monkeypatch.setattr("thanos_peer.algorithm.gram.evaluations_per_sum", lambda *_: each)
    in_parts = run_both(make_instance(raw))
    assert in_parts.has_converged
    assert at_once.X.tobytes() == in_parts.X.tobytes()
    rounds = make_topology(raw).graph.tree.rounds
    sums = in_parts.rounds_by_phase["gram"] // rounds
    assert at_once.rounds_by_phase["gram"] == rounds
    assert sums > 60 // each
    word, edges = 8 * (3 + 6 * 2 + 21), 3
    assert in_parts.payload_sent - at_once.payload_sent == (sums - 1) * edges * word


def test_gram_ends_at_the_largest_number_of_rounds_and_says_that_it_has_not_converged(monkeypatch):
    monkeypatch.setattr("thanos_peer.algorithm.gram.evaluations_per_sum", lambda *_: 3)
    raw = raw_topology("path", 4, n=6, p=2, method="gram", mu=0.05, samples=30, max_rounds=9, tolerance=None)
    raw["algorithm"]["start"] = RANDOM
    network = run_both(make_instance(raw))
    assert network.rounds_by_phase["gram"] == 8  # two sums
    assert not network.has_converged
    assert ending_of(network, make_topology(raw)) is EndReason.MAX_ROUNDS


def split(rows, how, d):
    """All samples in d parts: evenly, 80/20 with the rest in ones, or each part in directions of its own."""
    if how == "even" or d == 1:
        return np.array_split(rows, d)
    if how == "80/20":
        most = 4 * len(rows) // 5
        return [rows[:most], *np.array_split(rows[most:], d - 1)]
    basis = np.linalg.qr(np.random.default_rng(1).standard_normal((rows.shape[1],) * 2))[0]
    return [
        part @ own.T @ own for part, own in zip(np.array_split(rows, d), np.array_split(basis, d), strict=True)
    ]


CASES = [
    *((method, "l1", how, 4, LEADING) for method in EXACT for how in ("even", "80/20", "subspaces")),
    *((method, "l1", how, 2, LEADING) for method in EXACT for how in ("80/20", "subspaces")),
    *((method, regularizer, "even", 1, LEADING) for method in EXACT for regularizer in ("l1", "none")),
    *((method, name, "subspaces", 5, FOUND) for method in EXACT for name in ROUGH if name != "l1"),
    *((method, "none", "80/20", 3, RANDOM) for method in EXACT),
    *((method, "none" if MIXING[method].is_for_smooth else "l1", "80/20", 4, LEADING) for method in MIXING),
    ("thanos", "l1", "subspaces", 4, FOUND),
    ("proximal-tracking", "l1", "subspaces", 4, LEADING),
    *(("proximal-tracking", name, "even", 1, LEADING) for name in ROUGH if name != "l1"),
    ("drgta", "none", "subspaces", 4, RANDOM),
]


@pytest.mark.parametrize(("method", "regularizer", "how", "d", "start"), CASES)
def test_samples_split_in_any_way_give_both_engines_the_same_bits_in_every_phase(
    tmp_path, method, regularizer, how, d, start
):
    n, mu = 6, 0.05
    parts = split(random_samples(120, n), how, d)
    draft = {"method": method, "regularizer": regularizer, "mu": mu} | ENOUGH
    if method not in EXACT:
        draft |= {"max_rounds": 12, "tolerance": 0.0}
    if start == FOUND:
        start = FOUND | {"tolerance": 1e-6}
    instance = make_instance(
        raw_with_parts(tmp_path, parts, "path", data=PREPARED, start=start, **draft), file=tmp_path / "net.toml"
    )
    network = run_both(instance)
    looked = {
        "leading": [] if method == "gram" else ["leading"],
        "destiny": ["subspace", "rotation"],
        "random": [],
    }
    agreed = ["agreement"] if method in MIXING and MIXING[method].preparation is not None else []
    after = ["verdict"] if method in EXACT else ["consensus", "verdict"]
    names = ["mean", "spread", "size", *looked[start["kind"]], *agreed, method, *after]
    assert list(network.rounds_by_phase) == names
    first, *others = (
        found_bits(replace(agent.found, final=None, X=None, sparse=None)) for agent in network.agents
    )
    assert all(other == first for other in others)
    if method not in EXACT:
        return
    rows = standardised(parts)
    rows = rows / network.overall
    if start == RANDOM:
        assert np.linalg.norm(rows) == pytest.approx(1, rel=1e-12)
    if start == LEADING:
        assert np.linalg.norm(rows, 2) == pytest.approx(1, rel=1e-12)
    f, g = SparsePCA(rows.T), REGULARIZERS[regularizer].make(mu, OPTIONS.get(regularizer, {}), n=n)
    best = reference.solve(f, g, instance.start, lipschitz=f.lipschitz())
    assert_one_exact_answer(network, lambda X: f.value(X) + g.value(X), best)
    X, found = network.X[0], network.found
    assert float(found.objective) == pytest.approx(f.value(X) + g.value(X), rel=1e-12)
    assert float(found.residual) < 2e-10
    assert found.explained == pytest.approx(np.sum((rows @ X) ** 2, axis=0) / np.sum(rows**2), rel=1e-10)
    assert float(found.sparse_explained) == pytest.approx(found.explained.sum(), rel=1e-10)


def test_drgta_steps_once_in_as_many_rounds_as_its_file_has_it_mix():
    raw = raw_topology("ring", 5, method="drgta", max_rounds=13, tolerance=0.0)
    raw["algorithm"]["mixings"] = 4
    instance = make_instance(raw)
    run_both(instance)
    network, found = StackedNetwork(instance), []
    while not network.is_done:
        if not network.is_preparing:
            found.append(network.X.tobytes())
        network.advance()
    assert [k for k in range(1, len(found)) if found[k] != found[k - 1]] == [4, 8, 12]


@pytest.mark.parametrize("method", EXACT)
@pytest.mark.parametrize("regularizer", ROUGH)
def test_a_weight_that_leaves_little_leaves_exact_zeros_and_what_is_exchanged_may_be_rounded(method, regularizer):
    raw = raw_topology("star", 5, n=8, p=2, samples=60, regularizer=regularizer, mu=0.45, method=method)
    instance = make_instance(raw)
    network = run_both(instance)
    X = network.X[0]
    zeros = X == 0 if regularizer == "l1" else (X == 0).all(axis=1)
    assert 0 < zeros.sum() < zeros.size
    assert_one_exact_answer(network, instance.whole.value, instance.solve_reference())
    # With float32, too, sums are whole numbers and words are doubles.
    raw["algorithm"]["exchange"] = "float32"
    assert run_both(make_instance(raw)).X.tobytes() == network.X.tobytes()


@pytest.mark.parametrize("d", [1, 2, 7])
def test_the_answer_has_the_same_bits_on_every_graph_and_for_every_order_of_the_agents(tmp_path, d):
    parts = split(random_samples(90, 5), "80/20", d)
    found = set()
    for family in ("path", "star", "complete"):
        for own in (parts, parts[::-1]):
            raw = raw_with_parts(tmp_path, own, family, start=LEADING, method="proximal", **ENOUGH)
            network = StackedNetwork(make_instance(raw, file=tmp_path / "net.toml"))
            while not network.is_done:
                network.advance()
            found |= {each.tobytes() for each in network.X}
    assert len(found) == 1


@pytest.mark.parametrize("tolerance", [0.0, 1e-16])
@pytest.mark.parametrize("method", ["gram", "proximal"])
def test_where_nothing_falls_any_further_it_ends_and_says_so(method, tolerance):
    raw = raw_topology(
        "path", 3, n=8, p=2, samples=60, mu=0.02, method=method, max_rounds=9999, tolerance=tolerance
    )
    network = run_both(make_instance(raw))
    assert network.k < 9999
    assert ending_of(network, make_topology(raw)) is EndReason.STUCK
    assert EndReason.STUCK.value == "the residual did not fall any further"


def test_where_the_search_has_used_its_evaluations_it_says_that_instead(monkeypatch):
    monkeypatch.setattr(search, "MOST", 60)
    monkeypatch.setattr(gram, "MOST", 60)
    # So few operations in a sum that an evaluation is all of it.
    monkeypatch.setattr(gram, "WORK", 1)
    raw = raw_topology("path", 3, n=8, p=2, samples=60, mu=0.02, method="gram", max_rounds=9999, tolerance=1e-30)
    network = StackedNetwork(make_instance(raw))
    while not network.is_done:
        network.advance()
    assert network.rounds_by_phase["gram"] == 2 * 60
    assert ending_of(network, make_topology(raw)) is EndReason.SEARCHED
    assert "; its search of at most 200,000 evaluations from each start is over: " in network.convergence.words


@pytest.mark.parametrize("method", EXACT)
def test_with_too_little_time_it_says_that_it_has_not_converged(method):
    raw = raw_topology("path", 3, n=8, p=2, samples=60, mu=0.02, method=method, max_rounds=5, tolerance=1e-30)
    instance = make_instance(raw)
    network = run_both(instance)
    assert not network.has_converged
    assert ending_of(network, instance.topology) is (EndReason.STUCK if method == "gram" else EndReason.MAX_ROUNDS)
    assert network.rounds_by_phase[method] == (4 if method == "proximal" else 2)  # whole sums of two rounds each
    assert np.abs(np.swapaxes(network.X, 1, 2) @ network.X - np.eye(2)).max() < 1e-12
    assert len({X.tobytes() for X in network.X}) == 1


def test_a_history_of_an_exact_method_tells_of_falling_residuals_and_of_no_sigma():
    instance = make_instance(raw_topology("ring", 4, n=8, p=2, samples=60, mu=0.3, method="proximal"))
    reference_ = instance.solve_reference()
    rows = list(measured_rounds(StackedNetwork(instance), instance, reference=reference_))
    assert {row.sigma for row in rows} == {None}
    assert {(row.eta_min, row.eta_max, row.consensus) for row in rows} == {(0.0, 0.0, 0.0)}
    assert rows[0].stationarity.gradient > 1e-3
    assert rows[-1].stationarity.epsilon < 1e-9
    assert abs(rows[-1].gap) < 1e-10
    assert rows[-1].aligned_distance < 1e-6


@pytest.mark.parametrize(
    ("regularizer", "beta", "stays"), [("l1", "auto", True), ("l21", "auto", True), ("l1", 1 / 6, False)]
)
def test_thanos_with_beta_auto_stays_near_the_manifold_where_the_weight_is_large(regularizer, beta, stays):
    """A beta that follows from the samples alone, ||A||_2^2 / d, does not."""
    raw = raw_topology("ring", 6, n=60, p=5, samples=120, regularizer=regularizer, mu=0.5, max_rounds=200)
    raw["algorithm"] |= {"beta": beta, "tolerance": 0.0, "start": RANDOM}
    instance = make_instance(raw)
    *_, last = measured_rounds(StackedNetwork(instance), instance, every=200)
    assert (last.feasibility < 1e-2) is stays
    assert (last.feasibility < 1) is stays
