"""What a network finds before it minimises, and after: as if one had all the samples."""

import itertools
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from networks import found_bits, make_instance, make_topology, raw_topology
from uneven import FOUND, LEADING, PREPARED, leading, random_samples, raw_with_parts, split, standardised

from thanos_peer.agent import Agent
from thanos_peer.algorithm.measures import certificate
from thanos_peer.algorithm.methods import METHODS, MIXING
from thanos_peer.algorithm.stiefel import infeasibility, orthonormal_basis, polar
from thanos_peer.algorithm.subgradient import Subgradient
from thanos_peer.deploy.containers import memory_of
from thanos_peer.errors import ConfigError, DataFileError, OwnCodeError
from thanos_peer.phases import Found
from thanos_peer.problem import Instance, build, share_of
from thanos_peer.simulate import AgentNetwork, StackedNetwork, measure
from thanos_peer.storage.summary import explained
from thanos_peer.topology import load

N = 5
PLAIN = {"kind": "random", "seed": 1}


def instance_of(directory, parts, family="ring", *, change=None, **options):
    raw = raw_with_parts(directory, parts, family, **options)
    if change is not None:
        change(raw)
    return make_instance(raw, file=directory / "net.toml")


def network_of(*arguments, **options):
    return AgentNetwork(instance_of(*arguments, **options))


def run(network):
    """To the end; for every phase the rounds that it took."""
    rounds = []
    while not network.is_done:
        phases = [(agent.phase, agent.k) for agent in network.agents]
        assert len(set(phases)) == 1  # all are in the same one
        rounds.append(phases[0][0])
        network.advance()
        assert network.agents[0].k == len(rounds)
    return {name: len(list(group)) for name, group in itertools.groupby(rounds)}


def some_parts(sizes, n=N):
    return np.split(random_samples(sum(sizes), n), np.cumsum(sizes)[:-1])


SIZES = {
    "ring": (3, 500, 40, 7, 12, 90),
    "path": (500, 40, 7, 12, 90, 3),
    "star": (3, 500, 40, 7, 12, 90),
    "complete": (9, 8, 700),
    "grid": (1, 1, 1, 300, 2, 1, 1, 4, 5),
}


HEIGHTS = {"ring": 3, "path": 3, "star": 1, "complete": 1, "grid": 2}  # of the lowest spanning trees


def assert_all_found_the_same(network):
    """To the last bit, but for what each has of its own."""
    first, *others = (
        found_bits(replace(agent.found, final=None, X=None, sparse=None)) for agent in network.agents
    )
    assert all(other == first for other in others)


@pytest.mark.parametrize("family", SIZES)
def test_mean_and_scale_are_those_of_all_samples_however_uneven_the_parts(tmp_path, family):
    parts = some_parts(SIZES[family])
    network = network_of(tmp_path, parts, family, data=PREPARED | {"overall": "raw"}, start=PLAIN, max_rounds=5)
    rounds, rows = run(network), np.concatenate(parts)
    up_and_down = 2 * HEIGHTS[family]
    sums = dict.fromkeys(["mean", "spread", "size", "consensus", "verdict"], up_and_down)
    assert rounds == sums | {"thanos": 5}
    assert_all_found_the_same(network)
    found = network.found
    assert found.count == len(rows)
    assert found.mean == pytest.approx(rows.mean(axis=0), rel=1e-12)
    assert np.sqrt(found.variance) == pytest.approx(rows.std(axis=0), rel=1e-10)


@pytest.mark.parametrize("family", ["ring", "path", "star"])
@pytest.mark.parametrize("overall", ["auto", "raw"])
@pytest.mark.parametrize(("kind", "accuracy"), [(FOUND, 1e-6), (LEADING, 1e-10)], ids=["destiny", "leading"])
def test_the_start_is_made_of_the_leading_singular_vectors_of_all_samples(
    tmp_path, family, overall, kind, accuracy
):
    parts = some_parts((3, 200, 40, 7))
    data = PREPARED | {"overall": overall}
    network = network_of(tmp_path, parts, family, data=data, start=kind, max_rounds=5)
    rounds = run(network)
    if kind == FOUND:
        # The phase has come to its end by itself.
        assert 10 < rounds["subspace"] < 10000
    else:
        # Blocks of p vectors are found until all n are known.
        assert rounds["leading"] <= -(-N // 2) * rounds["mean"]
    assert network.phases_cut_short == ()
    assert_all_found_the_same(network)
    vectors, sizes = leading(standardised(parts), 2)
    start, found = network.found.start, network.found
    assert np.linalg.norm(start - vectors @ (vectors.T @ start), 2) < accuracy
    signs = np.sign(np.sum(start * vectors, axis=0))
    assert np.abs(start - signs * vectors).max() < accuracy
    assert found.values == pytest.approx(sizes[:2], rel=accuracy / 100 + 1e-11)
    assert float(found.size) == found.values[0]
    assert np.abs(start.T @ start - np.eye(2)).max() < 1e-12


@pytest.mark.parametrize("factor", [1e-5, 1e4])
def test_the_start_is_as_precise_and_takes_as_many_rounds_for_data_of_any_size(tmp_path, factor):
    rows = np.random.default_rng(2).standard_normal((90, N)) * [5, 4, 1, 1, 1]
    rounds = {}
    for overall in ("auto", "raw"):
        parts, data = np.split(factor * rows, [20, 50]), {"kind": "files", "overall": overall}
        network = network_of(tmp_path, parts, data=data, max_rounds=2, mu=0.0)
        rounds[overall] = run(network)["subspace"]
        assert network.phases_cut_short == ()
        vectors, _ = leading(rows, 2)
        for agent in network.agents:
            start = agent.found.start
            assert np.linalg.norm(start - vectors @ (vectors.T @ start), 2) < 1e-7
    assert rounds["raw"] == pytest.approx(rounds["auto"], abs=3)  # the same numbers, rounded differently


EQUAL = np.repeat(np.eye(N)[:3], 4, axis=0)  # three directions that matter the same
FEW = np.random.default_rng(5).standard_normal((3, N))  # fewer samples than components


@pytest.mark.parametrize(("rows", "p"), [(EQUAL, 2), (EQUAL, 3), (EQUAL, 4), (FEW, 4), (FEW, 5)])
@pytest.mark.parametrize("exchange", ["float64", "float32"])
@pytest.mark.parametrize("kind", [FOUND, LEADING], ids=["destiny", "leading"])
def test_agents_start_from_one_x_where_the_data_leaves_a_choice(tmp_path, rows, p, exchange, kind):
    """Of equal eigenvalues, and of those that are zero, rounding must not choose the vectors."""
    turned = rows @ np.linalg.qr(np.random.default_rng(4).standard_normal((N, N)))[0]
    parts = np.split(turned, len(rows))
    start = FOUND | {"tolerance": 1e-5} if (exchange, kind) == ("float32", FOUND) else kind
    network = network_of(
        tmp_path,
        parts,
        p=p,
        data={"kind": "files", "overall": "auto"},
        start=start,
        max_rounds=5,
        change=lambda raw: raw["algorithm"].update(exchange=exchange),
    )
    run(network)
    assert network.phases_cut_short == ()
    assert_all_found_the_same(network)
    captured = np.sum((turned @ network.found.start) ** 2)
    assert captured == pytest.approx(leading(turned, p)[1][:p].sum(), rel=1e-6 if kind == FOUND else 1e-12)


def test_fewer_synthetic_samples_than_components_may_be_started_from_too():
    raw = raw_topology("path", 3, n=6, p=5, samples=5, max_rounds=5)
    raw["problem"]["data"]["samples"] = 3
    raw["algorithm"]["start"] = {"kind": "destiny", "seed": 3}
    instance = make_instance(raw)
    assert np.abs(instance.start.T @ instance.start - np.eye(5)).max() < 1e-12
    assert instance.pooled.value(instance.start) == pytest.approx(-instance.pooled.variance() / 2)
    network = AgentNetwork(instance)
    run(network)
    assert network.phases_cut_short == ()


def test_synthetic_samples_may_be_started_from_in_the_same_way(tmp_path):
    raw = raw_topology("ring", 4, n=6, p=2, samples=40, max_rounds=5, tolerance=0.0)
    by_svd = make_instance(raw).start
    raw["algorithm"]["start"] = {"kind": "destiny", "seed": 3}
    network = AgentNetwork(make_instance(raw, file=tmp_path / "net.toml"))
    assert list(run(network)) == ["size", "subspace", "rotation", "thanos"]
    for agent in network.agents:
        start = agent.found.start
        assert np.linalg.norm(start - by_svd @ (by_svd.T @ start), 2) < 1e-6


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("overall", ["auto", "raw"])
def test_what_is_minimised_is_the_problem_of_the_samples_prepared_in_one_place(tmp_path, center, scale, overall):
    rng = np.random.default_rng(5)
    parts = [0.5 + rng.standard_normal((m, N)) * 0.5 ** np.arange(N) for m in (20, 3, 30)]
    data = {"kind": "files", "center": center, "scale": scale, "overall": overall}
    network = network_of(tmp_path, parts, data=data, start=LEADING, max_rounds=30, mu=0.01)
    phases = list(run(network))
    prepares = ["mean", "spread"] if center or scale else []
    assert phases == [*prepares, "size", "leading", "thanos", "consensus", "verdict"]
    rows = np.concatenate(parts)
    rows = (rows - rows.mean(axis=0) * center) / (rows.std(axis=0) if scale else 1.0)
    size = np.linalg.norm(rows, 2) ** 2
    rows = rows / np.sqrt(size) if overall == "auto" else rows
    assert_all_found_the_same(network)
    found = network.found
    X = polar(network.X.mean(axis=0))
    assert found.explained == pytest.approx(np.sum((rows @ X) ** 2, axis=0) / np.sum(rows**2), rel=1e-10)
    objective = 0.01 * np.abs(X).sum() - np.sum((rows @ X) ** 2) / 2
    assert float(found.objective) == pytest.approx(objective, rel=1e-10)
    sparse = np.linalg.qr(network.sparse.mean(axis=0))[0]
    assert found.sparse_explained == pytest.approx(np.sum((rows @ sparse) ** 2) / np.sum(rows**2), rel=1e-10)


def test_beta_and_first_step_follow_from_the_size_of_all_samples(tmp_path):
    parts = some_parts((20, 3, 30))
    raw = raw_with_parts(tmp_path, parts, data=PREPARED | {"overall": "raw"})
    instance = make_instance(raw, file=tmp_path / "net.toml")
    size = np.linalg.norm(standardised(parts), 2) ** 2
    of_g = 0.1 * np.sqrt(2 * N)  # how fast mu ||X||_1 can grow
    assert instance.parameters.beta == pytest.approx((size + of_g) / 3)
    assert instance.parameters.step.first == pytest.approx(0.1 / size)
    raw["problem"]["data"]["overall"] = "auto"
    instance = make_instance(raw, file=tmp_path / "net.toml")
    assert instance.parameters.beta == pytest.approx((1 + of_g) / 3)
    assert instance.parameters.step.first == pytest.approx(0.1)
    network = AgentNetwork(instance)
    while network.is_preparing:
        network.advance()
    assert network.eta == pytest.approx(0.1)


def test_without_a_start_to_find_the_size_is_an_upper_bound(tmp_path):
    parts = some_parts((20, 3, 30))
    network = network_of(tmp_path, parts, data=PREPARED | {"overall": "raw"}, start=PLAIN)
    assert list(run(network)) == ["mean", "spread", "size", "thanos", "consensus", "verdict"]
    size = np.linalg.norm(standardised(parts), 2) ** 2
    assert all(size <= float(agent.found.size) <= 3 * size for agent in network.agents)


@pytest.mark.parametrize(
    ("start", "norm", "accuracy"), [(PLAIN, "fro", 1e-12), (FOUND, 2, 1e-7), (LEADING, 2, 1e-12)]
)
def test_what_all_samples_are_divided_by_does_not_depend_on_who_has_which(tmp_path, start, norm, accuracy):
    rows = np.concatenate(some_parts((20, 3, 30)))
    # Rows that are alike lie beside each other: then shares differ, and their norms with them.
    rows = rows[np.argsort(rows @ rows[0])]
    found = []
    for cuts in ([2, 50], [26, 52], [17, 35]):
        network = network_of(tmp_path, np.split(rows, cuts), max_rounds=5, start=start)
        run(network)
        found += [float(agent.found.overall) for agent in network.agents]
    assert found == pytest.approx([np.linalg.norm(standardised([rows]), norm)] * 9, rel=accuracy)


def test_beta_and_first_step_suit_samples_divided_by_their_frobenius_norm(tmp_path):
    parts = some_parts((20, 3, 30))
    instance = instance_of(tmp_path, parts, start=PLAIN)
    size = instance.pooled.lipschitz()
    assert instance.pooled.variance() == pytest.approx(1)
    bound = 3 * instance.parameters.beta - 0.1 * np.sqrt(2 * N)
    assert size <= bound <= 3 * size
    assert instance.parameters.step.first == pytest.approx(0.1 / bound)


def test_an_agent_alone_prepares_its_samples_in_a_round_for_each_sum(tmp_path):
    parts = some_parts((40,))
    network = network_of(tmp_path, parts, "path", start=LEADING, max_rounds=7)
    assert run(network) == {
        "mean": 1,
        "spread": 1,
        "size": 1,
        "leading": 3,
        "thanos": 7,
        "consensus": 1,
        "verdict": 1,
    }
    found, rows = network.found, parts[0]
    assert found.mean == pytest.approx(rows.mean(axis=0), rel=1e-12)
    assert np.sqrt(found.variance) == pytest.approx(rows.std(axis=0), rel=1e-12)
    Z = standardised(parts)
    vectors, _ = leading(Z, 2)
    assert np.linalg.norm(found.start - vectors @ (vectors.T @ found.start), 2) < 1e-12
    X = polar(found.X)
    assert found.explained == pytest.approx(np.sum((Z @ X) ** 2, axis=0) / np.sum(Z**2))
    assert network.k == 7


def test_as_many_components_as_features_explain_everything(tmp_path):
    network = network_of(tmp_path, some_parts((20, 9), n=3), "path", p=3, max_rounds=5)
    run(network)
    for agent in network.agents:
        assert agent.found.explained.sum() == pytest.approx(1)
        assert np.abs(agent.found.start.T @ agent.found.start - np.eye(3)).max() < 1e-12


CONSTANT = (
    r"^feature 'b' is the same in all samples of all peers, up to .* of its mean, and cannot be scaled: leave"
)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e6, 1e-300])
def test_a_column_that_is_constant_over_all_peers_cannot_be_scaled(tmp_path, value):
    parts = some_parts((20, 3, 30))
    for part in parts:
        part[:, 1] = value
    with pytest.raises(DataFileError, match=CONSTANT):
        network_of(tmp_path, parts, names="abcde")
    # At one peer alone the column is not constant: that is enough.
    parts[1][0, 1] = value + 1
    network = network_of(tmp_path, parts, names="abcde")
    run(network)
    assert all(agent.found.variance[1] > 0 for agent in network.agents)


def test_a_column_that_varies_little_about_a_large_mean_is_scaled_as_any_other(tmp_path):
    parts = some_parts((20, 3, 30, 5, 80, 4))
    for seed, part in enumerate(parts):
        part[:, 1] = 1.7e9 + np.random.default_rng(seed).uniform(-0.1, 0.1, len(part))  # seconds since 1970
    network = network_of(tmp_path, parts, max_rounds=5)
    run(network)
    column = np.concatenate(parts)[:, 1] - 1.7e9
    for agent in network.agents:
        assert agent.found.mean[1] - 1.7e9 == pytest.approx(column.mean(), abs=1e-5)
        assert np.sqrt(agent.found.variance[1]) == pytest.approx(column.std(), rel=1e-6)


def test_a_constant_column_is_no_mistake_where_nothing_is_scaled(tmp_path):
    parts = some_parts((20, 3, 30))
    for part in parts:
        part[:, 1] = 7.0
    network = network_of(tmp_path, parts, data=PREPARED | {"scale": False}, max_rounds=20)
    run(network)
    assert all((np.abs(agent.found.start[1]) < 1e-6).all() for agent in network.agents)


@pytest.mark.parametrize(("value", "center"), [(0.0, True), (0.0, False), (0.1, True)])
@pytest.mark.parametrize("has_size", [True, False])
def test_samples_of_which_nothing_is_left_are_refused(tmp_path, has_size, value, center):
    parts, data = [np.full((m, N), value) for m in (20, 3, 30)], {"kind": "files", "center": center}
    raw = raw_with_parts(tmp_path, parts, data=data, start=PLAIN, max_rounds=5)
    if not has_size:
        with_own_steps(raw)
    topology = make_topology(raw, file=tmp_path / "net.toml")
    with pytest.raises(DataFileError, match=r"^all samples of all peers are nothing"):
        build(topology)
    # The same as peers have it, of which none sees all samples.
    shares = tuple(share_of(topology, i) for i in range(3))
    with pytest.raises(DataFileError, match=r"^all samples of all peers are nothing"):
        run(AgentNetwork(Instance(topology, (), None, shares, Found())))


def check_verdicts(instance):
    """Run to the end: all agents know what somebody knows who sees all of them. Returns it and a measure."""
    network = AgentNetwork(instance)
    run(network)
    assert_all_found_the_same(network)
    row, mean, found = measure(network, instance), network.X.mean(axis=0), network.found
    measured = instance.divided_by(network.overall)
    nearest, overall = polar(mean), network.overall or 1.0
    assert found.common == pytest.approx(mean, abs=1e-15)
    size = 1.0 if found.size is None else float(found.size) / overall**2
    (sparse,) = np.unique(network.sparse, axis=0)  # one for all
    is_sparse = bool(infeasibility(sparse) <= 1e-9)
    answer = sparse if is_sparse else nearest
    G = measured.whole.f.gradient(answer)
    if not measured.is_pca:
        size = max(np.linalg.norm(G), np.linalg.norm(measured.whole.f.gradient(measured.start)))
    known = certificate(answer, G, measured.whole_regularizer, size, is_strict=is_sparse)
    residual = known.relative if is_sparse else max(known.relative, float(infeasibility(sparse)))
    assert float(found.residual) == pytest.approx(residual, rel=1e-6, abs=1e-12)
    assert float(found.objective) == pytest.approx(row.objective, rel=1e-10)
    if instance.is_pca:
        assert found.explained.sum() == pytest.approx(explained(instance, nearest), rel=1e-10)
        by_sparse = explained(instance, orthonormal_basis(network.sparse.mean(axis=0)))
        assert float(found.sparse_explained) == pytest.approx(by_sparse, rel=1e-9, abs=1e-10)
    return network, row.stationarity


@pytest.mark.parametrize("max_rounds", [1, 7, 4000])
@pytest.mark.parametrize("sigma", [1.0, None], ids=["constant", "decreasing"])
@pytest.mark.parametrize(("regularizer", "exchange"), [("l1", "float64"), ("l21", "float64"), ("l1", "float32")])
def test_all_agents_come_to_the_verdict_of_somebody_who_sees_everything(
    tmp_path, regularizer, exchange, sigma, max_rounds
):
    options = {
        "tolerance": 1e-6,
        "max_rounds": max_rounds,
        "regularizer": regularizer,
        "sigma": sigma,
        "start": PLAIN,
        "change": lambda raw: raw["algorithm"].update(exchange=exchange),
    }
    network, known = check_verdicts(instance_of(tmp_path, some_parts([50] * 6), **options))
    # What is certified in this case is the prox gap, and no less.
    if max_rounds == 4000 and sigma is not None and exchange == "float64":
        assert all(agent.runner.is_below_tolerance for agent in network.agents)
        # With l21 no row is short, and there the envelope has the gradient of the norm.
        is_same_problem = regularizer == "l21"
        assert network.has_converged is (float(network.found.residual) <= 1e-6)  # else the verdict denies it
        # Steps are not monotone: the gradient may grow until all agents have stopped.
        assert known.gradient < 1e-5 < known.epsilon
        assert (float(network.found.residual) < 1e-5) is is_same_problem


def test_what_is_measured_is_what_the_agents_minimise_when_their_start_is_cut_short(tmp_path):
    start = FOUND | {"max_rounds": 3}
    instance = instance_of(tmp_path, some_parts((20, 3, 30, 5)), start=start, max_rounds=25)
    network, _ = check_verdicts(instance)
    assert network.phases_cut_short == ("subspace",)
    found, exact = network.overall, float(instance.found.overall)
    assert found < 0.99 * exact
    measured = instance.divided_by(found)
    assert measured.pooled.lipschitz() == pytest.approx((exact / found) ** 2)
    assert measured.solve_reference().is_precise
    assert measure(network, instance, measured.solve_reference()).gap == pytest.approx(
        measured.whole.value(polar(network.X.mean(axis=0))) - measured.whole.value(measured.solve_reference().X)
    )


@pytest.mark.parametrize(("n", "p"), [(1, 1), (2, 1), (2, 2), (5, 5)])
def test_there_is_a_verdict_on_the_smallest_and_the_fullest_matrices(tmp_path, n, p):
    parts = some_parts((20, 3, 30), n)
    network, _ = check_verdicts(instance_of(tmp_path, parts, "path", p=p, max_rounds=9, start=PLAIN))
    if p == n:
        assert network.agents[1].found.explained.sum() == pytest.approx(1, rel=1e-10)


def test_one_agent_alone_comes_to_a_verdict(tmp_path):
    check_verdicts(instance_of(tmp_path, some_parts((20,)), "path", max_rounds=9, start=PLAIN))


def test_there_is_a_verdict_on_an_objective_of_ones_own(monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    example = Path(__file__).parents[2] / "examples"
    topology = load(example / "dual_pca.toml", allowed_code=(str(example / "dual_pca.py"),))
    network, known = check_verdicts(build(topology))
    assert network.agents[0].phases == ("destiny", "consensus", "verdict")
    assert known.epsilon < 1e-5
    assert float(network.found.residual) < 1e-5


def test_all_agents_come_to_the_same_verdict(tmp_path):
    options = {"tolerance": 1e-8, "sigma": 1.0, "mu": 0.3, "max_rounds": 4000}
    network = network_of(tmp_path, split(random_samples(300, N), 6), **options)
    run(network)
    assert all(agent.runner.is_below_tolerance for agent in network.agents)
    assert_all_found_the_same(network)
    assert [agent.runner.answer().k for agent in network.agents] == [network.k] * 6
    for agent in network.agents:
        X, sparse, threshold = agent.runner.answer().X, agent.runner.answer().sparse, 1.0 * 0.3 / 6
        assert sparse.tobytes() == network.sparse[0].tobytes()
        # The zeros are those of the prox; the other entries are not shrunk as there.
        assert np.array_equal(sparse != 0, np.abs(X) > threshold)
        assert infeasibility(sparse) < 1e-14
        assert np.linalg.norm(sparse - X) < 2 * threshold * np.sqrt(np.sum(sparse == 0))
        assert 0 < np.count_nonzero(sparse) < X.size


def test_the_stacked_agents_have_the_same_sparse_answer(tmp_path):
    instance = instance_of(tmp_path, some_parts((20, 3, 30)), mu=0.3, max_rounds=40)
    one, stacked = AgentNetwork(instance), StackedNetwork(instance)
    for network in (one, stacked):
        while not network.is_done:
            network.advance()
    assert one.sparse.tobytes() == stacked.sparse.tobytes()


OWN_STEP = {"rule": "constant", "eta": 0.1}


def test_sigma_falls_with_the_rounds_of_the_phase_that_minimises(tmp_path):
    """The same start and the same problem, with and without rounds before: the same bits."""
    parts = some_parts((20, 3, 30))
    start = {"kind": "destiny", "seed": 1, "max_rounds": 40}
    late = network_of(
        tmp_path,
        parts,
        max_rounds=25,
        start=start,
        change=lambda raw: raw["algorithm"].update(beta="auto", step=OWN_STEP),
    )
    while late.is_preparing:
        late.advance()
    assert late.agents[0].k > 40
    assert late.k == 0
    start, size = late.X[0], float(late.found.size)
    np.save(tmp_path / "x0.npy", start)
    found, beta = late.found, (1 + 0.1 * np.sqrt(2 * N)) / 3
    for i, part in enumerate(parts):
        parts[i] = (part - found.mean) / (np.sqrt(size) * np.sqrt(found.variance))
    early = network_of(
        tmp_path,
        parts,
        data={"kind": "files"},
        start={"kind": "file", "path": "x0.npy"},
        max_rounds=25,
        change=lambda raw: raw["algorithm"].update(beta=beta, step=OWN_STEP),
    )
    for _ in range(8):
        assert early.k == late.k
        assert pytest.approx(late.X, abs=1e-9) == early.X
        assert pytest.approx(late.array("D"), abs=1e-9) == early.array("D")
        early.advance()
        late.advance()


def with_own_steps(raw):
    raw["algorithm"] |= {"beta": 1.0, "step": {"rule": "bb", "first": 1e-9}}


def all_of(memory):
    """A memory as something to compare."""
    arrays = {name: np.asarray(value).tobytes() for name, value in memory.arrays.items()}
    return found_bits(memory.found), memory.k, arrays, memory.stop, memory.phase, memory.began


# The phases of each pair of start and method.
EVERY_PHASE = {
    ("destiny", "thanos"): ["mean", "spread", "size", "subspace", "rotation", "thanos", "consensus", "verdict"],
    ("leading", "proximal"): ["mean", "spread", "size", "leading", "proximal", "verdict"],
    ("leading", "gram"): ["mean", "spread", "size", "gram", "verdict"],
}


@pytest.mark.parametrize(
    ("kind", "phase", "function"),
    [
        (kind, phase, function)
        for kind, names in EVERY_PHASE.items()
        for phase in range(len(names))
        for function in ("enter", "start", "conclude")[2 * (phase == 0) :]
    ],
)
def test_where_a_phase_cannot_begin_or_end_the_agent_stays_where_it_was(
    tmp_path, monkeypatch, function, kind, phase
):
    start = FOUND | {"max_rounds": 20} if kind[0] == "destiny" else LEADING
    instance = instance_of(tmp_path, some_parts((20, 30)), "path", max_rounds=500, start=start, method=kind[1])
    plan = instance.plan(1)
    assert [each.name for each in plan.phases] == EVERY_PHASE[kind]
    network = AgentNetwork(instance)
    network.agents[1] = agent = Agent(instance.topology, 1, plan)

    def fail(*_, **__):
        raise OwnCodeError("no luck")

    monkeypatch.setattr(plan.phases[phase], function, fail)
    saved = []

    def run_on():
        while not network.is_done:
            saved.append(all_of(agent.memory()))
            network.advance()

    with pytest.raises(OwnCodeError):
        run_on()
    assert all_of(agent.memory()) == saved[-1]
    assert agent.phase == plan.phases[phase - (function != "conclude")].name
    assert not agent.is_done


def test_after_a_loss_a_run_that_only_minimises_and_judges_goes_on_from_where_it_was(tmp_path):
    parts, plain = some_parts((20, 30)), {"kind": "files"}
    network = network_of(tmp_path, parts, "path", data=plain, max_rounds=9, start=PLAIN, change=with_own_steps)
    agent, lost = (
        network.agents[0],
        network_of(tmp_path, parts, "path", data=plain, max_rounds=9, start=PLAIN, change=with_own_steps).agents[
            1
        ],
    )
    run(network)
    kept, start = agent.runner.answer().X.copy(), lost.runner.state.X.copy()
    agent.restart_tracking(1)
    # What a neighbor says in a later phase would be no X, so it is not used.
    lost.restart_tracking(1, kept)
    assert (agent.phase, agent.k, agent.runner.state.X.tobytes()) == ("thanos", 0, kept.tobytes())
    assert lost.runner.state.X.tobytes() == start.tobytes() != kept.tobytes()


def test_sums_are_as_exact_when_blocks_are_rounded_on_their_way(tmp_path):
    parts = some_parts((20, 3, 30))
    parts[1] = np.full((3, N), 1e20)  # whose squares are beyond float32
    found = []
    for exchange in ("float64", "float32"):
        raw = raw_with_parts(tmp_path, parts, "path", data=PREPARED, start=LEADING)
        raw["algorithm"]["exchange"] = exchange
        network = AgentNetwork(make_instance(raw, file=tmp_path / "net.toml"))
        while network.is_preparing:
            network.advance()
        found.append(network.found)
    for name in ("mean", "variance", "size", "start", "overall"):
        assert getattr(found[0], name).tobytes() == getattr(found[1], name).tobytes()


@pytest.mark.parametrize("m", [1, 9])
def test_samples_whose_squares_are_too_large_together_are_refused(tmp_path, m):
    parts = [np.full((m, N), 1e154 / np.sqrt(m)) for _ in range(4)]
    topology = make_topology(raw_with_parts(tmp_path, parts, data={"kind": "files"}), file=tmp_path / "net.toml")
    with pytest.raises(DataFileError, match=r"^the samples of peer 0 are too large: in phase size"):
        build(topology)
    with pytest.raises(DataFileError, match=r"^the samples of peer 1 are too large: in phase size"):
        Agent(topology, 1, share_of(topology, 1).plan())


class Drawing(Subgradient):
    """A method that needs samples, and tells what it is made of."""

    needs_samples = True
    is_for_pca = True
    setups = []  # noqa: RUF012 - filled by the engines

    @classmethod
    def make(cls, setup):
        cls.setups.append(setup)
        return super().make(setup)


@pytest.fixture
def drawing(monkeypatch):
    """The name under which files ask for it."""
    for table in (METHODS, MIXING):
        monkeypatch.setitem(table, "drgta", Drawing)
    monkeypatch.setattr(Drawing, "setups", [])
    return "drgta"


@pytest.mark.parametrize("start", [LEADING, PLAIN], ids=["leading", "random"])
def test_a_method_that_draws_is_given_prepared_samples_the_agents_ids_and_a_seed(tmp_path, drawing, start):
    """One agent its own, and the stack all of them in its own order, however many samples each has."""
    parts = some_parts((9, 3, 60))
    instance = instance_of(tmp_path, parts, "star", method=drawing, start=start | {"seed": 8}, max_rounds=2)
    alone = AgentNetwork(instance)
    run(alone)
    each, Drawing.setups[:] = list(Drawing.setups), []
    stacked = StackedNetwork(instance)
    while not stacked.is_done:
        stacked.advance()
    (together,) = Drawing.setups
    prepared = np.split(standardised(parts) / alone.overall, np.cumsum([9, 3, 60])[:-1])
    assert {setup.agents for setup in each} == {(0,), (1,), (2,)}
    assert sorted(together.agents) == [0, 1, 2]
    assert {setup.seed for setup in (*each, together)} == {8}
    for setup in (*each, together):
        assert len(setup.samples) == len(setup.agents)
        for agent, A in zip(setup.agents, setup.samples, strict=True):
            assert pytest.approx(prepared[agent].T, rel=0, abs=1e-10) == A
    for setup in each:
        (agent,), (A,) = setup.agents, setup.samples
        assert A.tobytes() == together.samples[together.agents.index(agent)].tobytes()
    without = instance_of(tmp_path, parts, "star", method="subgradient", start=start, max_rounds=2)
    assert without.shares[0].prepare_main(without.found).samples == ()


def test_the_memory_of_a_container_has_room_for_samples_that_a_method_draws_from(tmp_path, drawing):
    parts = [np.random.default_rng(i).standard_normal((3000, 40)) for i in range(2)]
    draft = {"start": LEADING, "max_rounds": 2}
    kept, summed = (
        memory_of(instance_of(tmp_path, parts, "path", method=method, **draft).topology)
        for method in (drawing, "subgradient")
    )
    assert kept - summed >= 8 * 8 * 2960 * 40 // 2**20
    topology = make_topology(raw_with_parts(tmp_path, parts, "path", method=drawing, **draft), file=tmp_path / "n")
    (tmp_path / "1.csv").unlink()
    with pytest.raises(ConfigError, match="the data of peer 1 is not here, and drgta holds all of it"):
        memory_of(topology)
