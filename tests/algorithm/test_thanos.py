from dataclasses import replace

import numpy as np
import pytest
from networks import make_instance, raw_topology
from oracle import H_of, Oracle, OracleRound

from thanos_peer.algorithm.method import Setup
from thanos_peer.algorithm.mixing import Heard
from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.algorithm.regularizers import L1, L21, Zero, envelope_gradient
from thanos_peer.algorithm.schedules import (
    BarzilaiBorwein,
    ConstantSmoothing,
    ConstantStep,
    DecreasingSmoothing,
    Parameters,
)
from thanos_peer.algorithm.stiefel import proj, random_point, sym
from thanos_peer.algorithm.thanos import Destiny, Thanos, ThanosState, descent_direction
from thanos_peer.block import Block, StopWord
from thanos_peer.errors import DivergenceError
from thanos_peer.phases import Found, Mixing
from thanos_peer.simulate import AgentNetwork, StackedNetwork
from thanos_peer.topology import families
from thanos_peer.topology.graph import Graph

N, P = 6, 2
WEIGHTS = np.array([0.25, 0.5, 0.25])
PARAMETERS = Parameters(beta=1.5, step=BarzilaiBorwein(0.1), smoothing=DecreasingSmoothing(1.0, 0.5))
ME = 4
# In a path, agent 4 has two neighbors.
GRAPH = Graph.of(6, families.make("path", 6, seed=1), None)


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.fixture
def f(rng):
    return SparsePCA(rng.standard_normal((N, 9)) / 3)


@pytest.fixture
def method(f):
    return Thanos(f, L1(0.2), 6, PARAMETERS)


def block_of(state, k=3):
    return Block.of(k, state.X, state.D, float(state.eta), StopWord())


def neighborhood(rng, k=3):
    """The agent's state in round k, and the blocks of that round with its own in the middle."""
    state = ThanosState(random_point(N, P, rng), *rng.standard_normal((2, N, P)), np.asarray(0.05))
    blocks = [
        Block.of(k, random_point(N, P, rng), rng.standard_normal((N, P)), eta, StopWord()) for eta in (0.1, 0.2)
    ]
    return state, [blocks[0], block_of(state, k), blocks[1]]


def phase_of(f, g=None, parameters=PARAMETERS, *, began=0, tolerance=0.0):
    """The rounds of agent 4 as a phase, which looks at what comes of them."""
    g = L1(0.2) if g is None else g
    setup = Setup(f=f, g=g, whole=g, d=6, start=np.eye(N, P), parameters=lambda: parameters)
    phase = Mixing(
        "thanos",
        agent=ME,
        graph=GRAPH,
        shape=(N, P),
        most=100,
        tolerance=tolerance,
        method=Thanos.make,
        prepare=lambda _: setup,
        conclude=lambda found, _arrays, _answer: found,
        advice="try a smaller step",
    )
    phase.enter(Found(), began)
    return phase


@pytest.mark.parametrize("beta", [0.1, 1.0, 30.0])
def test_on_the_manifold_the_direction_is_the_projected_gradient_whatever_beta(rng, beta):
    X, G = random_point(N, P, rng), rng.standard_normal((N, P))
    H = descent_direction(X, G, beta)
    assert np.allclose(H, proj(X, G), rtol=0, atol=1e-13)
    assert np.abs(sym(X.T @ H)).max() < 1e-13


@pytest.mark.parametrize("beta", [0.1, 1.0, 30.0])
def test_off_the_manifold_the_direction_is_the_papers_formula(rng, beta):
    X, G = rng.standard_normal((2, 5, N, P))
    assert np.allclose(descent_direction(X, G, beta), H_of(X, G, beta), rtol=1e-13, atol=1e-12)


def test_each_term_of_the_direction_has_its_coefficient():
    X, G, beta = np.array([[2.0]]), np.array([[5.0]]), 7.0
    assert descent_direction(X, G, beta).tolist() == [[7 * 2 * (4 - 1) + 5 * (3 - 4) / 2 - 2 * (2 * 5)]]


def test_a_stack_of_directions_has_the_same_bits_as_one_by_one(rng):
    X, G = rng.standard_normal((2, 5, N, P))
    alone = [descent_direction(X_i, G_i, 1.5).tobytes() for X_i, G_i in zip(X, G, strict=True)]
    assert descent_direction(X, G, 1.5).tobytes() == b"".join(alone)


def test_round_0_has_the_start_and_a_tracker_equal_to_the_direction_with_the_sigma_of_round_1(rng, f, method):
    X0 = random_point(N, P, rng)
    state = method.start(X0)
    G = f.gradient(X0) + envelope_gradient(L1(0.2), X0, 1.0)
    assert state.eta == 0.1
    assert state.eta.shape == ()
    assert (state.X == X0).all()
    assert (state.D == state.H).all()
    assert np.allclose(state.H, H_of(X0[None], G[None], 1.5)[0])


def test_a_round_mixes_steps_and_tracks_as_the_paper_says(rng, f, method):
    state, blocks = neighborhood(rng)
    after = method.step(3, state, Heard(WEIGHTS, blocks))
    X = sum(w * (block.X - block.eta * block.D) for w, block in zip(WEIGHTS, blocks, strict=True))
    G = f.gradient(X) + envelope_gradient(L1(0.2), X, 4**-0.5)
    H = H_of(X[None], G[None], 1.5)[0]
    D = sum(w * block.D for w, block in zip(WEIGHTS, blocks, strict=True)) + H - state.H
    S, J = X - state.X, D - state.D
    assert np.allclose(after.X, X, rtol=0, atol=1e-14)
    assert np.allclose(after.H, H, rtol=0, atol=1e-12)
    assert np.allclose(after.D, D, rtol=0, atol=1e-12)
    assert after.eta == pytest.approx(abs(np.sum(S * J)) / np.sum(J * J))


def test_what_is_sent_is_the_state_without_h(rng, method):
    state, _ = neighborhood(rng)
    sent = method.send(state)
    assert [each.tobytes() for each in sent] == [each.tobytes() for each in (state.X, state.D, state.eta)]


@pytest.mark.parametrize("k", [0, 1, 9])
def test_the_answer_is_x_and_its_prox_with_the_sigma_of_the_round(rng, method, k):
    state, _ = neighborhood(rng)
    X, sparse = method.answer(k, state)
    assert (X == state.X).all()
    threshold = 0.2 * max(k, 1) ** -0.5
    assert np.allclose(sparse, np.sign(X) * np.maximum(np.abs(X) - threshold, 0), rtol=0, atol=1e-15)


def test_a_round_changes_neither_the_old_state_nor_the_blocks(rng, method):
    state, blocks = neighborhood(rng)
    before = [array.tobytes() for block in blocks for array in (block.X, block.D)] + [state.H.tobytes()]
    method.step(3, state, Heard(WEIGHTS, blocks))
    assert [array.tobytes() for block in blocks for array in (block.X, block.D)] + [state.H.tobytes()] == before


RULES = {
    "l1": {"regularizer": "l1", "sigma": None, "step": ("bb", 0.1), "smoothing": ("decreasing", 1.0, 1 / 3)},
    "l21": {"regularizer": "l21", "sigma": 0.3, "step": ("bb", 0.1), "smoothing": ("constant", 0.3)},
    "constant": {"regularizer": "l1", "sigma": 0.3, "step": ("constant", 0.05), "smoothing": ("constant", 0.3)},
    "none": {"regularizer": "none", "sigma": 0.3, "step": ("bb", 0.1), "smoothing": ("constant", 0.3)},
}


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize(("family", "d"), [("ring", 5), ("star", 6), ("erdos-renyi", 9), ("path", 1)])
def test_one_by_one_and_all_at_once_give_the_same_bits_and_both_are_the_oracles(family, d, rules):
    rule, rounds = RULES[rules], 12
    fields = {"regularizer": rule["regularizer"], "sigma": rule["sigma"], "max_rounds": rounds, "tolerance": 0.0}
    raw = raw_topology(family, d, **fields)
    raw["algorithm"]["start"] = {"kind": "random", "seed": 5}
    if rule["step"][0] == "constant":
        raw["algorithm"]["step"] = {"rule": "constant", "eta": rule["step"][1]}
    instance = make_instance(raw)
    oracle = Oracle(
        [local.f.A for local in instance.local_problems],
        instance.topology.graph.edges,
        mu=instance.topology.problem.mu or 0.0,
        regularizer=rule["regularizer"],
        beta=instance.parameters.beta,
        step=rule["step"],
        smoothing=rule["smoothing"],
    )
    networks = AgentNetwork(instance), StackedNetwork(instance)
    expected = oracle.first(instance.start)
    for k in range(rounds + 1):
        states = [[network.X, network.array("D"), network.array("H"), network.eta] for network in networks]
        assert [each.tobytes() for each in states[0]] == [each.tobytes() for each in states[1]]
        for found, wanted in zip(states[0], expected, strict=True):
            assert np.allclose(found, wanted, rtol=1e-9, atol=1e-12)
        # The oracle goes on from these bits: otherwise rounding grows with the steps.
        expected = oracle.after(OracleRound(*states[0]), k)
        for network in networks:
            if not network.is_done:
                network.advance()
    assert [network.is_done for network in networks] == [True, True]
    assert [network.k for network in networks] == [rounds, rounds]


@pytest.mark.parametrize("g", [L1(0.2), L21(0.2), Zero()])
@pytest.mark.parametrize("step", [BarzilaiBorwein(0.1), ConstantStep(0.1)])
def test_a_stack_starts_steps_sends_and_answers_with_the_bits_of_its_agents(rng, g, step):
    terms = [SparsePCA(rng.standard_normal((N, 9)) / 3) for _ in range(3)]
    parameters = replace(PARAMETERS, step=step)

    class All:
        """The f_i of three agents, and what each hears: itself alone."""

        def __init__(self, sent=None):
            self.sent = sent

        def gradient(self, X):
            return np.array([f.gradient(X_i) for f, X_i in zip(terms, X, strict=True)])

        def mix(self, term):
            return term(self.sent.X, self.sent.D, self.sent.eta[:, None, None])

        def mismatch(self, X):
            return np.zeros(len(X))

    stack, alone = Thanos(All(), g, 3, parameters), [Thanos(f, g, 3, parameters) for f in terms]
    X = np.array([random_point(N, P, rng) for _ in range(3)])
    state, states = stack.start(X), [each.start(X_i) for each, X_i in zip(alone, X, strict=True)]
    for k in range(5):
        heard = [Heard(np.ones(1), [block_of(each, k)]) for each in states]
        together = All(stack.send(state))
        residuals = [each.residual(k, own, by) for each, own, by in zip(alone, states, heard, strict=True)]
        assert stack.residual(k, state, together).tolist() == [float(each) for each in residuals]
        for i, (found, sparse) in enumerate(each.answer(k, own) for each, own in zip(alone, states, strict=True)):
            assert stack.answer(k, state)[0][i].tobytes() == found.tobytes()
            assert stack.answer(k, state)[1][i].tobytes() == sparse.tobytes()
        states = [each.step(k, own, by) for each, own, by in zip(alone, states, heard, strict=True)]
        state = stack.step(k, state, together)
        for name in ("X", "D", "H", "eta"):
            assert getattr(state, name).tobytes() == b"".join(getattr(own, name).tobytes() for own in states)


def test_destiny_is_thanos_without_a_regularizer(rng, f):
    parameters = replace(PARAMETERS, smoothing=ConstantSmoothing(1.0))
    state, blocks = neighborhood(rng)
    steps = [kind(f, Zero(), 6, parameters).step(3, state, Heard(WEIGHTS, blocks)) for kind in (Thanos, Destiny)]
    assert steps[0].X.tobytes() == steps[1].X.tobytes()
    assert steps[0].D.tobytes() == steps[1].D.tobytes()
    assert (Thanos.is_for_smooth, Destiny.is_for_smooth) == (False, True)
    assert Thanos.settings - Destiny.settings == {"smoothing"}
    X, sparse = Destiny(f, Zero(), 6, parameters).answer(3, state)
    assert X.tobytes() == sparse.tobytes()


@pytest.mark.parametrize(
    "entry", [np.nan, np.inf, -np.inf, 1e200, 1e6], ids=["nan", "inf", "-inf", "1e200", "1e6"]
)
@pytest.mark.parametrize("where", ["X", "D"])
@pytest.mark.parametrize("began", [0, 100])
def test_a_neighbors_number_that_ruins_the_round_is_named_with_agent_round_and_step_size(
    rng, f, entry, where, began
):
    state, blocks = neighborhood(rng)
    bad = getattr(blocks[0], where).copy()
    bad[1, 1] = entry
    blocks[0] = Block.of(3, **({"X": blocks[0].X, "D": blocks[0].D} | {where: bad}), eta=0.1, stop=StopWord())
    with pytest.raises(
        DivergenceError, match=rf"agent 4 diverged in round {began + 4} with step size 0\.05: "
    ) as caught:
        phase_of(f, began=began).advance(3, state, blocks)
    assert (caught.value.agent, caught.value.k, caught.value.eta) == (4, began + 4, 0.05)


class Broken:
    """An objective out of numbers."""

    def __init__(self, entry):
        self._entry = entry

    def value(self, X):
        return float(X[0, 0])

    def gradient(self, X):
        return np.full_like(X, self._entry)


@pytest.mark.parametrize("entry", [np.nan, np.inf, 1e200], ids=["nan", "inf", "1e200"])
@pytest.mark.parametrize("rule", [BarzilaiBorwein(0.1), ConstantStep(0.1)])
def test_a_gradient_out_of_numbers_is_named_too(rng, entry, rule):
    state, blocks = neighborhood(rng)
    phase = phase_of(Broken(entry), Zero(), replace(PARAMETERS, step=rule))
    with pytest.raises(DivergenceError, match="agent 4 diverged in round 4"):
        phase.advance(3, state, blocks)


@pytest.mark.parametrize("entry", [np.nan, np.inf, 1e200], ids=["nan", "inf", "1e200"])
def test_so_it_is_before_anything_is_sent(entry):
    with pytest.raises(DivergenceError, match=r"agent 4 diverged in round 7 with step size 0\.1: "):
        phase_of(Broken(entry), Zero(), began=7).start()


def test_a_step_much_too_long_ends_in_a_divergence_error_within_few_rounds(rng, f):
    parameters = Parameters(beta=1.0, step=ConstantStep(50.0), smoothing=ConstantSmoothing(1.0))
    phase = phase_of(f, parameters=parameters)
    state = phase.restart(random_point(N, P, rng))

    def run_on():
        now = state
        for r in range(20):
            now, _ = phase.advance(r, now, [block_of(now, r)] * 3)

    with pytest.raises(DivergenceError, match="with step size 50:"):
        run_on()


def test_an_x_of_a_few_times_its_usual_size_is_no_divergence(rng, f):
    state = ThanosState(5 * random_point(N, P, rng), *np.zeros((2, N, P)), np.asarray(0.1))
    after, is_calm = phase_of(f).advance(0, state, [block_of(state, 0)] * 3)
    assert np.isfinite(after.X).all()
    assert not is_calm


def test_the_residual_is_the_largest_of_tracker_mismatch_and_infeasibility(rng, f):
    X = random_point(N, P, rng)
    unit = np.zeros((N, P))
    unit[0, 0] = 1.0
    near, far = X + 1e-3 * unit, X - 0.25 * unit

    def residual(D, *heard, own=X, size=1.0):
        state = ThanosState(own, D, unit, np.asarray(0.1))
        blocks = [Block.of(3, each, 0 * unit, 0.1, StopWord()) for each in heard]
        return float(
            Thanos(f, L1(0.2), 8, PARAMETERS, size).residual(3, state, Heard(np.ones(len(heard)), blocks))
        )

    assert residual(0 * unit, X) < 1e-14
    assert residual(0 * unit, near, far, X) == pytest.approx(0.25)
    assert residual(0.05 * unit, far) == pytest.approx(8 * 0.05)
    assert residual(0.05 * unit, X, size=4.0) == pytest.approx(2 * 0.05)
    assert residual(0.05 * unit, far, size=1e9) == pytest.approx(0.25)
    assert residual(0 * unit, 2 * X, own=2 * X) == pytest.approx(3 * np.sqrt(P))


@pytest.mark.parametrize(("tolerance", "is_calm"), [(0.0, False), (1e-3, True), (1e-9, False)])
def test_an_agent_is_calm_while_its_residual_is_at_most_the_tolerance(rng, f, tolerance, is_calm):
    X = random_point(N, P, rng)
    state = ThanosState(X, np.full((N, P), 1e-5), np.zeros((N, P)), np.asarray(0.1))
    assert phase_of(f, tolerance=tolerance).advance(3, state, [block_of(state)] * 3)[1] is is_calm
