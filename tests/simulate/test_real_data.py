"""Data and problems that were not made for this project."""

from dataclasses import replace

import numpy as np
import pytest
from networks import make_instance, raw_topology
from sklearn.datasets import load_digits, load_wine
from uneven import leading, raw_with_parts, real_samples, split, standardised

from thanos_peer.algorithm.regularizers import L1
from thanos_peer.phases import Found
from thanos_peer.preparation import Share
from thanos_peer.problem import LocalProblem
from thanos_peer.simulate import AgentNetwork, EndReason, StackedNetwork, ending_of, run
from thanos_peer.topology.data import moments_of

D = 8


def prepared(load):
    """The samples in rows: constant columns dropped, the others standardised, all divided by the 2-norm."""
    samples = load().data
    samples = samples[:, samples.std(axis=0) > 0]
    samples = (samples - samples.mean(axis=0)) / samples.std(axis=0)
    return samples / np.linalg.norm(samples, 2)


def instance_with_files(directory, samples, regularizer):
    raw = raw_topology("ring", D, n=samples.shape[1], p=3, mu=0.02, regularizer=regularizer, sigma=1.0)
    raw["problem"]["data"] = {"kind": "files"}
    raw["algorithm"] |= {
        "start": {"kind": "random", "seed": 1},
        "beta": 0.125,
        "tolerance": 1e-5,
        "max_rounds": 6000,
    }
    for peer, part in zip(raw["peers"], np.array_split(samples, D), strict=True):
        peer["data"] = f"peer{peer['id']}.npy"
        np.save(directory / peer["data"], part)
    return make_instance(raw, file=directory / "network.toml")


@pytest.mark.parametrize("regularizer", ["l1", "l21"])
@pytest.mark.parametrize("load", [load_wine, load_digits])
def test_a_ring_comes_within_one_percent_of_the_centralised_objective(tmp_path, load, regularizer):
    samples = prepared(load)
    instance = instance_with_files(tmp_path, samples, regularizer)
    reference = instance.solve_reference()
    network = StackedNetwork(instance)
    *_, last = run(network, instance, reference=reference, every=10**6)
    assert reference.residual < 1e-10
    assert ending_of(network, instance.topology) is EndReason.TOLERANCE
    assert abs(last.gap) < 0.01 * abs(instance.whole.value(reference.X))
    assert last.feasibility < 1e-5
    assert last.consensus < 1e-4
    r = np.abs(reference.X).sum() if regularizer == "l1" else np.linalg.norm(reference.X, axis=1).sum()
    pooled = 0.02 * r - np.linalg.norm(samples @ reference.X) ** 2 / 2
    assert instance.whole.value(reference.X) == pytest.approx(pooled)


@pytest.mark.parametrize("name", ["wine", "breast_cancer", "digits"])
def test_a_ring_starts_from_the_leading_singular_vectors_of_all_samples_to_1e_6(tmp_path, name):
    rows, names = real_samples(name)
    parts = split(rows, D)
    raw = raw_with_parts(tmp_path, parts, "ring", names=names, p=2, max_rounds=1)
    assert "tolerance" not in raw["algorithm"]["start"]
    network = AgentNetwork(make_instance(raw, file=tmp_path / "net.toml"))
    while network.is_preparing:
        network.advance()
    vectors, _ = leading(standardised(parts), 2)
    for agent in network.agents:
        start = agent.found.start
        assert np.linalg.norm(start - vectors @ (vectors.T @ start), 2) < 1e-6
        assert np.abs(start - np.sign(np.sum(start * vectors, axis=0)) * vectors).max() < 1e-6


def test_an_agent_alone_has_the_same_problem_as_in_the_whole_network_and_reads_its_own_file_only(tmp_path):
    instance = instance_with_files(tmp_path, prepared(load_wine), "l1")
    (tmp_path / "peer3.npy").rename(tmp_path / "mine")
    for file in tmp_path.glob("*.npy"):
        file.unlink()
    (tmp_path / "mine").rename(tmp_path / "peer3.npy")
    topology = instance.topology
    alone = Share(topology, 3, moments_of(topology, 3)).prepare_main(Found())
    among_all = instance.local_problems[3]
    assert among_all.agent == 3
    assert (alone.f.gram == among_all.f.gram).all()
    assert alone.g == among_all.g == L1(0.02 / D)


class Quadratic:
    """f(X) = <X, B X>/2 - <C, X>, with B of any sign and a linear term."""

    def __init__(self, B, C):
        self.B, self.C = B, C

    def value(self, X):
        return float(np.sum(X * (self.B @ X)) / 2 - np.sum(self.C * X))

    def gradient(self, X):
        return self.B @ X - self.C


class WeightedL1:
    """g(X) = sum of weights * |X|, a weight for every row."""

    def __init__(self, weights):
        self.weights = weights[:, None]

    def value(self, X):
        return float(np.sum(self.weights * np.abs(X)))

    def prox(self, X, sigma):
        return np.sign(X) * np.maximum(np.abs(X) - sigma * self.weights, 0)

    def lipschitz(self, n, p):
        assert n == len(self.weights)
        return float(np.sqrt(p) * np.linalg.norm(self.weights))


@pytest.fixture
def own_instance():
    """A star whose agents have objectives and a regularizer that the package does not know."""
    raw = raw_topology("star", 6, n=7, p=2, sigma=0.5, tolerance=1e-4, max_rounds=4000)
    raw["algorithm"]["step"] = {"rule": "constant", "eta": 0.3}
    instance = make_instance(raw)
    rng = np.random.default_rng(4)
    own, g = [], WeightedL1(rng.uniform(0, 0.1, 7))
    for i in range(6):
        B = rng.standard_normal((7, 7))
        f = Quadratic((B + B.T) / 8, rng.standard_normal((7, 2)) / 4)
        own.append(LocalProblem(i, f, g))
    shares = tuple(Share(instance.topology, each.agent, each.f, each.g) for each in own)
    return replace(instance, local_problems=tuple(own), shares=shares)


def test_both_networks_run_a_users_own_objective_and_regularizer_to_the_same_bits(own_instance):
    agents, stacked = AgentNetwork(own_instance), StackedNetwork(own_instance)
    for _ in range(100):
        agents.advance()
        stacked.advance()
        assert agents.X.tobytes() == stacked.X.tobytes()
        assert agents.array("D").tobytes() == stacked.array("D").tobytes()
        assert agents.eta.tobytes() == stacked.eta.tobytes()


def test_a_users_own_problem_ends_at_a_stationary_point_of_the_smoothed_sum(own_instance):
    instance = own_instance
    network = AgentNetwork(instance)
    first, *_, last = run(network, instance, every=10**6)
    assert ending_of(network, instance.topology) is EndReason.TOLERANCE
    X = network.X.mean(axis=0)
    G = sum(local.f.gradient(X) + (X - local.g.prox(X, 0.5)) / 0.5 for local in instance.local_problems)
    assert np.linalg.norm(G - X @ (X.T @ G + G.T @ X) / 2) < 1e-3
    assert last.stationarity.gradient < 1e-3
    assert last.objective < first.objective - 1
