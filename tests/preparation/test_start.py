"""The start that a network finds: the leading singular vectors of all samples."""

import numpy as np
import pytest
from networks import make_instance, raw_topology
from uneven import (
    FOUND,
    LEADING,
    PREPARED,
    N,
    assert_all_found_the_same,
    leading,
    network_of,
    run,
    some_parts,
    standardised,
)

from thanos_peer.simulate import AgentNetwork


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
