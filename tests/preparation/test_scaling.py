"""Means, scales and sizes that a network finds before it minimises: those of all samples in one place."""

import numpy as np
import pytest
from networks import make_instance, make_topology
from uneven import (
    FOUND,
    LEADING,
    PLAIN,
    PREPARED,
    N,
    assert_all_found_the_same,
    instance_of,
    network_of,
    raw_with_parts,
    run,
    some_parts,
    standardised,
    with_own_steps,
)

from thanos_peer.agent import Agent
from thanos_peer.algorithm.stiefel import polar
from thanos_peer.errors import DataFileError
from thanos_peer.phases import Found, run_sums
from thanos_peer.problem import Instance, build, share_of
from thanos_peer.simulate import AgentNetwork

SIZES = {
    "ring": (3, 500, 40, 7, 12, 90),
    "path": (500, 40, 7, 12, 90, 3),
    "star": (3, 500, 40, 7, 12, 90),
    "complete": (9, 8, 700),
    "grid": (1, 1, 1, 300, 2, 1, 1, 4, 5),
}


HEIGHTS = {"ring": 3, "path": 3, "star": 1, "complete": 1, "grid": 2}  # of the lowest spanning trees


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
@pytest.mark.parametrize(
    ("has_size", "method"), [(True, "thanos"), (True, "proximal-tracking"), (False, "thanos")]
)
def test_samples_of_which_nothing_is_left_are_refused(tmp_path, has_size, method, value, center):
    parts, data = [np.full((m, N), value) for m in (20, 3, 30)], {"kind": "files", "center": center}
    raw = raw_with_parts(tmp_path, parts, data=data, start=PLAIN, max_rounds=5, method=method)
    if not has_size:
        with_own_steps(raw)
    topology = make_topology(raw, file=tmp_path / "net.toml")
    with pytest.raises(DataFileError, match=r"^all samples of all peers are nothing"):
        build(topology)
    # The same as peers have it, of which none sees all samples.
    shares = tuple(share_of(topology, i) for i in range(3))
    with pytest.raises(DataFileError, match=r"^all samples of all peers are nothing"):
        run(AgentNetwork(Instance(topology, (), None, shares, Found())))


@pytest.mark.parametrize("unit", [2.0**-300, 2.0**-50, 1.0, 2.0**60])
def test_one_sum_finds_the_size_and_what_tracking_has_to_know_whatever_the_unit(tmp_path, unit):
    parts = [unit * standardised([part]) for part in some_parts((20, 9, 30))]
    data, draft = {"kind": "files"}, {"method": "proximal-tracking", "mu": 0.5 * unit**2, "tolerance": 1e-9}
    network = network_of(tmp_path, parts, "path", data=data, start=PLAIN, max_rounds=2000, **draft)
    rounds = run(network)
    assert list(rounds) == ["size", "proximal-tracking", "consensus", "verdict"]
    assert rounds["size"] == 2
    largest, bound = max(np.linalg.norm(part, 2) ** 2 for part in parts), sum((part**2).sum() for part in parts)
    M, low = network.agents[0].found.agreed[:2]
    # Where eighth powers leave the numbers, the bound takes their place.
    is_within = 2.0**-50 <= unit <= 1
    assert largest <= M / 3 * (1 + 1e-12)
    assert pytest.approx(largest, rel=0.15) == M / 3 if is_within else bound == M / 3
    assert M / 3 <= low <= M
    assert all(agent.found.residual <= 1e-9 for agent in network.agents)


@pytest.mark.parametrize("method", ["thanos", "proximal-tracking"])
def test_samples_whose_gradients_would_be_too_large_are_refused_by_all(tmp_path, method):
    parts = [np.full((4, N), 1e76) for _ in range(4)]
    raw = raw_with_parts(tmp_path, parts, data={"kind": "files"}, start=PLAIN, method=method)
    topology = make_topology(raw, file=tmp_path / "net.toml")
    plans = [share_of(topology, i).plan() for i in range(4)]
    assert [plan.phases[0].name for plan in plans] == ["size"] * 4
    with pytest.raises(DataFileError, match=r"^all samples together are too large .* so that it is below 1e\+150"):
        run_sums([plan.phases[0] for plan in plans], Found())


@pytest.mark.parametrize("m", [1, 9])
def test_samples_whose_squares_are_too_large_together_are_refused(tmp_path, m):
    parts = [np.full((m, N), 1e154 / np.sqrt(m)) for _ in range(4)]
    topology = make_topology(raw_with_parts(tmp_path, parts, data={"kind": "files"}), file=tmp_path / "net.toml")
    with pytest.raises(DataFileError, match=r"^the samples of peer 0 are too large: in phase size"):
        build(topology)
    with pytest.raises(DataFileError, match=r"^the samples of peer 1 are too large: in phase size"):
        Agent(topology, 1, share_of(topology, 1).plan())
