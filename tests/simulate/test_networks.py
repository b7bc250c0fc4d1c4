import numpy as np
import pytest
from networks import make_instance, raw_topology
from uneven import instance_of, some_parts

from thanos_peer.agent import Agent
from thanos_peer.algorithm.regularizers import REGULARIZERS
from thanos_peer.errors import DivergenceError
from thanos_peer.problem import build
from thanos_peer.simulate import AgentNetwork, EndReason, StackedNetwork, ending_of, measure, run
from thanos_peer.topology import families, parse

ENGINES = [AgentNetwork, StackedNetwork]
ARRAYS = ("X", "D", "H", "eta")
FAMILIES = ("ring", "star", "grid", "torus", "tree", "complete", "erdos-renyi", "geometric")


def raw_of(family, d, regularizer, **overrides):
    """Thanos with this regularizer, or destiny."""
    raw = raw_topology(family, d, regularizer="none" if regularizer == "destiny" else regularizer, **overrides)
    if regularizer == "destiny":
        raw["algorithm"]["method"] = "destiny"
        del raw["algorithm"]["smoothing"]
    return raw


def bits(network):
    return {name: network.array(name).tobytes() for name in ARRAYS}


def assert_same_run(instance):
    """Both engines, side by side to the end; returns one of them."""
    agents, stacked = AgentNetwork(instance), StackedNetwork(instance)
    assert bits(agents) == bits(stacked)
    while not stacked.is_done:
        assert not agents.is_done
        agents.advance()
        stacked.advance()
        assert bits(agents) == bits(stacked)
    assert agents.is_done
    assert agents.k == stacked.k
    assert agents.is_below_tolerance == stacked.is_below_tolerance
    assert agents.has_converged == stacked.has_converged
    return agents


def finished(instance, engine=StackedNetwork):
    network = engine(instance)
    while not network.is_done:
        network.advance()
    return network


@pytest.mark.parametrize("regularizer", [*REGULARIZERS, "destiny"])
@pytest.mark.parametrize("family", FAMILIES)
def test_both_engines_give_the_same_bits_for_all_rounds(family, regularizer):
    instance = make_instance(raw_of(family, 9, regularizer, max_rounds=30, tolerance=0.0))
    assert assert_same_run(instance).k == 30


@pytest.mark.parametrize("regularizer", ["l1", "l21", "destiny"])
@pytest.mark.parametrize("family", ["ring", "star", "erdos-renyi"])
def test_both_engines_stop_after_the_same_round_with_the_same_bits(family, regularizer):
    raw = raw_of(family, 6, regularizer, max_rounds=3000, tolerance=1e-2)
    raw["algorithm"]["start"] = {"kind": "random", "seed": 3}
    network = assert_same_run(make_instance(raw))
    assert network.is_below_tolerance
    assert network.k < 3000


@pytest.mark.parametrize(("n", "p"), [(1, 1), (5, 1), (4, 4), (17, 5)])
def test_both_engines_give_the_same_bits_for_all_shapes(n, p):
    for samples in (20, 200):
        assert_same_run(make_instance(family="star", n=n, p=p, samples=samples, max_rounds=15, tolerance=0.0))


@pytest.mark.parametrize("step", [{"rule": "constant", "eta": 0.2}, {"rule": "bb", "first": 0.01}])
def test_both_engines_give_the_same_bits_for_all_step_rules(step):
    raw = raw_topology(max_rounds=15, tolerance=0.0)
    raw["algorithm"]["step"] = step
    assert_same_run(make_instance(raw))


@pytest.mark.parametrize("tolerance", [0.0, 0.05])
def test_both_engines_give_the_same_bits_when_blocks_are_rounded_on_their_way(tolerance):
    raw = raw_topology("star", 6, max_rounds=300, tolerance=tolerance)
    exact = finished(make_instance(raw))
    raw["algorithm"]["exchange"] = "float32"
    rounded = assert_same_run(make_instance(raw))
    assert rounded.is_below_tolerance == (tolerance > 0)
    assert rounded.X.tobytes() != exact.X.tobytes()


def test_both_engines_give_the_same_bits_with_explicit_weights():
    raw = raw_topology("path", 3, max_rounds=30, tolerance=0.0)
    raw["weights"] = [[0.75, 0.25, 0], [0.25, 0.25, 0.5], [0, 0.5, 0.5]]
    explicit = assert_same_run(make_instance(raw))
    metropolis = finished(make_instance(family="path", d=3, max_rounds=30, tolerance=0.0))
    assert np.abs(explicit.X - metropolis.X).max() > 1e-6


def test_both_engines_give_the_same_bits_where_only_some_agents_hold_a_gram_matrix(tmp_path):
    rng, raw = np.random.default_rng(1), raw_topology("ring", 4, n=30, max_rounds=30, tolerance=0.0)
    raw["problem"]["data"] = {"kind": "files"}
    raw["algorithm"]["start"] = {"kind": "random", "seed": 1}
    for peer, samples in zip(raw["peers"], (5, 40, 1, 15), strict=True):
        peer["data"] = f"{peer['id']}.npy"
        np.save(tmp_path / peer["data"], rng.standard_normal((samples, 30)) / 10)
    instance = build(parse(raw, file=tmp_path / "net.toml"))
    assert [local.f.gram is None for local in instance.local_problems] == [True, False, True, False]
    assert_same_run(instance)


def test_both_engines_give_the_same_bits_where_no_agent_holds_a_gram_matrix():
    instance = make_instance(n=30, samples=25, max_rounds=30, tolerance=0.0)
    assert all(local.f.gram is None for local in instance.local_problems)
    assert_same_run(instance)


@pytest.mark.parametrize("tolerance", [0.0, 1e-3])
def test_an_agent_alone_runs_with_the_same_bits_in_both_engines(tolerance):
    network = assert_same_run(make_instance(d=1, samples=20, sigma=0.5, max_rounds=500, tolerance=tolerance))
    assert network.is_below_tolerance == (tolerance > 0)


@pytest.mark.parametrize(
    "edges", [families.torus(1000, 40), families.erdos_renyi(1000, 0.01, 1)], ids=["torus", "erdos-renyi"]
)
def test_a_thousand_agents_run_with_the_same_bits_in_both_engines(edges):
    assert_same_run(make_instance(d=1000, edges=edges, samples=4000, max_rounds=5, tolerance=1e-6))


@pytest.mark.parametrize(("family", "d"), [("ring", 5), ("star", 6), ("erdos-renyi", 8)])
def test_any_order_of_delivery_gives_the_same_bits(family, d):
    instance = make_instance(family=family, d=d, max_rounds=40, tolerance=0.05)
    expected = finished(instance, AgentNetwork)
    rng = np.random.default_rng(7)
    agents = [Agent(instance.topology, i, instance.plan(i)) for i in range(d)]
    on_the_way = [(agent.id, agent.block) for agent in agents]
    while not all(agent.is_done for agent in agents):
        sender, block = on_the_way[rng.integers(len(on_the_way))]
        for receiver in rng.permutation(agents[sender].neighbors):
            if block.k <= agents[receiver].k + 1:
                agents[receiver].receive(sender, block.as_told_to(receiver))
        for agent in agents:
            if not agent.is_done and not agent.exchange.missing():
                agent.advance()
                on_the_way.append((agent.id, agent.block))
                assert all(abs(agents[j].k - agent.k) <= 1 for j in agent.neighbors)
    assert {agent.k for agent in agents} == {expected.k}
    assert np.array([agent.runner.state.X for agent in agents]).tobytes() == expected.X.tobytes()


@pytest.mark.parametrize("eta", [50.0, 1e200])
def test_both_engines_report_the_same_divergence(eta):
    raw = raw_topology("path", 6, max_rounds=100, tolerance=0.0)
    raw["algorithm"]["step"] = {"rule": "constant", "eta": eta}
    errors = []
    for engine in ENGINES:
        with pytest.raises(DivergenceError) as caught:
            finished(make_instance(raw), engine)
        errors.append(caught.value)
    assert str(errors[0]) == str(errors[1])
    agent, k = errors[0].agent, errors[0].k
    assert str(errors[0]).startswith(f"agent {agent} diverged in round {k} with step size {eta:.3g}: ||X||_F = ")
    assert 0 <= agent < 6
    assert 1 <= k <= 10


def residuals_of(network):
    """What each agent can tell of itself, written anew: the tracker, its neighbors, the manifold."""
    for agent, X, D in zip(network.agents, network.X, network.array("D"), strict=True):
        farthest = max(np.linalg.norm(network.X[j] - X) for j in agent.neighbors)
        yield max(len(network.X) * np.linalg.norm(D), farthest, np.linalg.norm(X.T @ X - np.eye(X.shape[1])))


@pytest.mark.parametrize("regularizer", ["l1", "l21"])
@pytest.mark.parametrize("family", ["ring", "erdos-renyi"])
def test_a_run_that_stopped_by_itself_has_every_residual_near_the_tolerance(family, regularizer):
    tolerance = 1e-5
    instance = make_instance(
        family=family, d=6, regularizer=regularizer, sigma=1.0, max_rounds=3000, tolerance=tolerance
    )
    network = finished(instance, AgentNetwork)
    assert network.is_below_tolerance
    assert ending_of(network, instance.topology) is EndReason.TOLERANCE
    assert max(residuals_of(network)) < 10 * tolerance
    assert measure(network, instance).stationarity.gradient < 10 * tolerance


def test_a_tolerance_stops_the_run_only_after_all_agents_met_it():
    tolerance = 1e-4
    instance = make_instance(d=6, sigma=1.0, max_rounds=3000, tolerance=tolerance)
    network, graph = AgentNetwork(instance), instance.topology.graph
    calm_rounds = set()
    while not network.is_done:
        if max(residuals_of(network)) <= tolerance:
            calm_rounds.add(network.k)
        network.advance()
    assert network.k - 2 * (graph.diameter + 1) in calm_rounds


def test_without_a_tolerance_all_rounds_are_run():
    instance = make_instance(max_rounds=60, tolerance=0.0)
    network = finished(instance)
    assert network.k == 60
    assert not network.is_below_tolerance
    assert ending_of(network, instance.topology) is EndReason.MAX_ROUNDS


@pytest.mark.parametrize("family", ["ring", "erdos-renyi"])
def test_destiny_finds_the_leading_subspace_from_a_random_start(family):
    raw = raw_of(family, 8, "destiny", n=10, p=3, samples=160, max_rounds=4000, tolerance=1e-8)
    raw["algorithm"] |= {"beta": 1 / 8, "start": {"kind": "random", "seed": 1}}
    instance = make_instance(raw)
    network = finished(instance)
    assert network.is_below_tolerance
    leading = np.linalg.svd(instance.pooled.A)[0][:, :3]
    for X in network.X:
        Q = np.linalg.qr(X)[0]
        assert np.linalg.norm(Q - leading @ (leading.T @ Q), 2) < 1e-6


@pytest.mark.parametrize(
    ("every", "rounds"), [(1, [*range(11)]), (4, [0, 4, 8, 10]), (5, [0, 5, 10]), (99, [0, 10])]
)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_yields_round_zero_every_so_many_and_the_last(engine, every, rounds):
    instance = make_instance(max_rounds=10, tolerance=0.0)
    rows = list(run(engine(instance), instance, every=every))
    assert [row.round for row in rows] == rounds


def test_a_run_asked_to_stop_finishes_its_round():
    instance = make_instance(max_rounds=10, tolerance=0.0)
    network = StackedNetwork(instance)
    rows = list(run(network, instance, should_stop=lambda: network.k >= 4))
    assert [row.round for row in rows] == [0, 1, 2, 3, 4]
    assert ending_of(network, instance.topology) is EndReason.INTERRUPTED


def test_a_row_measures_what_it_says():
    instance = make_instance(max_rounds=10, tolerance=0.0, mu=0.3)
    network = finished(instance)
    reference = instance.solve_reference()
    row = measure(network, instance, reference)
    X, A = network.X, instance.pooled.A
    mean = X.mean(axis=0)
    U, _, Vt = np.linalg.svd(mean, full_matrices=False)

    def objective(Y):
        return -np.sum((A.T @ Y) ** 2) / 2 + 0.3 * np.abs(Y).sum()

    assert row.round == 10
    assert row.objective == pytest.approx(objective(U @ Vt))
    assert row.gap == pytest.approx(objective(U @ Vt) - objective(reference.X), abs=1e-12)
    assert row.feasibility == pytest.approx(np.mean([np.linalg.norm(x.T @ x - np.eye(2)) for x in X]))
    assert row.consensus == pytest.approx(max(np.linalg.norm(x - mean) for x in X))
    assert row.distance == pytest.approx(np.mean([np.linalg.norm(x - reference.X) for x in X]))
    assert row.aligned_distance <= np.linalg.norm(mean - reference.X) + 1e-12
    assert row.sigma == pytest.approx(10 ** (-1 / 3))
    assert (row.eta_min, row.eta_max) == (network.eta.min(), network.eta.max())


def test_without_a_reference_a_row_has_no_distances():
    instance = make_instance(max_rounds=1)
    row = measure(StackedNetwork(instance), instance)
    assert (row.distance, row.aligned_distance, row.gap) == (None, None, None)


def test_the_stacked_agents_have_the_same_sparse_answer(tmp_path):
    instance = instance_of(tmp_path, some_parts((20, 3, 30)), mu=0.3, max_rounds=40)
    one, stacked = AgentNetwork(instance), StackedNetwork(instance)
    for network in (one, stacked):
        while not network.is_done:
            network.advance()
    assert one.sparse.tobytes() == stacked.sparse.tobytes()
