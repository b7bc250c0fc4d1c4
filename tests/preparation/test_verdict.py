"""What the agents say of their answer: the same as one who holds all the samples."""

import sys
from pathlib import Path

import numpy as np
import pytest
from uneven import (
    FOUND,
    PLAIN,
    N,
    assert_all_found_the_same,
    instance_of,
    network_of,
    random_samples,
    run,
    some_parts,
    split,
)

from thanos_peer.algorithm.measures import certificate
from thanos_peer.algorithm.stiefel import infeasibility, orthonormal_basis, polar
from thanos_peer.problem import build
from thanos_peer.simulate import AgentNetwork, measure
from thanos_peer.storage.summary import explained
from thanos_peer.topology import load


def check_verdicts(instance):
    """Run to the end: all agents know what one knows that sees all of them. Returns it and a measure."""
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
def test_all_agents_come_to_the_verdict_of_one_that_sees_everything(
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
    assert tuple(phase.name for phase in network.agents[0].runner.phases) == ("destiny", "consensus", "verdict")
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


def test_as_many_components_as_features_explain_everything(tmp_path):
    network = network_of(tmp_path, some_parts((20, 9), n=3), "path", p=3, max_rounds=5)
    run(network)
    for agent in network.agents:
        assert agent.found.explained.sum() == pytest.approx(1)
        assert np.abs(agent.found.start.T @ agent.found.start - np.eye(3)).max() < 1e-12
