from dataclasses import replace

import numpy as np
import pytest
from oracle import H_of

from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.algorithm.regularizers import L1, Zero, envelope_gradient
from thanos_peer.algorithm.schedules import BarzilaiBorwein, ConstantSmoothing, ConstantStep, DecreasingSmoothing
from thanos_peer.algorithm.stiefel import proj, random_point, sym
from thanos_peer.algorithm.thanos import (
    AgentState,
    LocalProblem,
    Parameters,
    descent_direction,
    initial_state,
    local_residual,
    step,
)
from thanos_peer.block import Block, StopWord
from thanos_peer.errors import DivergenceError

N, P = 6, 2
WEIGHTS = np.array([0.25, 0.5, 0.25])
PARAMETERS = Parameters(beta=1.5, step=BarzilaiBorwein(0.1), smoothing=DecreasingSmoothing(1.0, 0.5))


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.fixture
def local(rng):
    return LocalProblem(4, SparsePCA(rng.standard_normal((N, 9)) / 3), L1(0.2))


def block_of(state):
    return Block.of(state.k, state.X, state.D, state.eta, StopWord())


def neighborhood(rng, local, k=3):
    """The agent's state in round k, and the blocks of that round with its own in the middle."""
    state = AgentState(k, random_point(N, P, rng), *rng.standard_normal((2, N, P)), 0.05)
    blocks = [
        Block.of(k, random_point(N, P, rng), rng.standard_normal((N, P)), eta, StopWord()) for eta in (0.1, 0.2)
    ]
    assert local.agent == 4
    return state, [blocks[0], block_of(state), blocks[1]]


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


def test_round_0_has_the_start_and_a_tracker_equal_to_the_direction_with_the_sigma_of_round_1(rng, local):
    X0 = random_point(N, P, rng)
    state = initial_state(local, PARAMETERS, X0)
    G = local.f.gradient(X0) + envelope_gradient(local.g, X0, 1.0)
    assert (state.k, state.eta) == (0, 0.1)
    assert (state.X == X0).all()
    assert (state.D == state.H).all()
    assert np.allclose(state.H, H_of(X0[None], G[None], 1.5)[0])


def test_a_round_mixes_steps_and_tracks_as_the_paper_says(rng, local):
    state, blocks = neighborhood(rng, local)
    after = step(local, PARAMETERS, WEIGHTS, state, blocks)
    X = sum(w * (block.X - block.eta * block.D) for w, block in zip(WEIGHTS, blocks, strict=True))
    G = local.f.gradient(X) + envelope_gradient(local.g, X, 4**-0.5)
    H = H_of(X[None], G[None], 1.5)[0]
    D = sum(w * block.D for w, block in zip(WEIGHTS, blocks, strict=True)) + H - state.H
    S, J = X - state.X, D - state.D
    assert after.k == 4
    assert np.allclose(after.X, X, rtol=0, atol=1e-14)
    assert np.allclose(after.H, H, rtol=0, atol=1e-12)
    assert np.allclose(after.D, D, rtol=0, atol=1e-12)
    assert after.eta == pytest.approx(abs(np.sum(S * J)) / np.sum(J * J))


def test_a_round_changes_neither_the_old_state_nor_the_blocks(rng, local):
    state, blocks = neighborhood(rng, local)
    before = [array.tobytes() for block in blocks for array in (block.X, block.D)] + [state.H.tobytes()]
    step(local, PARAMETERS, WEIGHTS, state, blocks)
    assert [array.tobytes() for block in blocks for array in (block.X, block.D)] + [state.H.tobytes()] == before


@pytest.mark.parametrize(
    "entry", [np.nan, np.inf, -np.inf, 1e200, 1e6], ids=["nan", "inf", "-inf", "1e200", "1e6"]
)
@pytest.mark.parametrize("where", ["X", "D"])
def test_a_neighbors_number_that_ruins_the_round_is_named_with_agent_round_and_step_size(rng, local, entry, where):
    state, blocks = neighborhood(rng, local)
    bad = getattr(blocks[0], where).copy()
    bad[1, 1] = entry
    blocks[0] = Block.of(3, **({"X": blocks[0].X, "D": blocks[0].D} | {where: bad}), eta=0.1, stop=StopWord())
    with pytest.raises(DivergenceError, match=r"agent 4 diverged in round 4 with step size 0\.05: ") as caught:
        step(local, PARAMETERS, WEIGHTS, state, blocks)
    assert (caught.value.agent, caught.value.k, caught.value.eta) == (4, 4, 0.05)


@pytest.mark.parametrize("entry", [np.nan, np.inf, 1e200], ids=["nan", "inf", "1e200"])
@pytest.mark.parametrize("rule", [BarzilaiBorwein(0.1), ConstantStep(0.1)])
def test_a_gradient_out_of_numbers_is_named_too(rng, local, entry, rule):
    class Broken:
        def value(self, X):
            return float(X[0, 0])

        def gradient(self, X):
            return np.full_like(X, entry)

    state, blocks = neighborhood(rng, local)
    parameters = replace(PARAMETERS, step=rule)
    with pytest.raises(DivergenceError, match="agent 9 diverged in round 4"):
        step(LocalProblem(9, Broken(), Zero()), parameters, WEIGHTS, state, blocks)


def test_a_step_much_too_long_ends_in_a_divergence_error_within_few_rounds(rng, local):
    parameters = Parameters(beta=1.0, step=ConstantStep(50.0), smoothing=ConstantSmoothing(1.0))
    state = initial_state(local, parameters, random_point(N, P, rng))

    def run_on():
        now = state
        for _ in range(20):
            now = step(local, parameters, np.ones(1), now, [block_of(now)])

    with pytest.raises(DivergenceError, match="with step size 50:"):
        run_on()


def test_an_x_of_a_few_times_its_usual_size_is_no_divergence(rng, local):
    state = AgentState(0, 5 * random_point(N, P, rng), *np.zeros((2, N, P)), 0.1)
    assert step(local, PARAMETERS, np.ones(1), state, [block_of(state)]).k == 1


def test_the_local_residual_is_the_largest_of_tracker_mismatch_and_infeasibility(rng):
    X = random_point(N, P, rng)
    unit = np.zeros((N, P))
    unit[0, 0] = 1.0
    calm = AgentState(3, X, 0 * unit, unit, 0.1)
    near, far = X + 1e-3 * unit, X - 0.25 * unit
    assert local_residual(calm, np.array([X]), agents=8) < 1e-14
    assert local_residual(calm, np.array([near, far, X]), agents=8) == pytest.approx(0.25)
    tracking = AgentState(3, X, 0.05 * unit, unit, 0.1)
    assert local_residual(tracking, np.array([far]), agents=8) == pytest.approx(8 * 0.05)
    assert local_residual(tracking, np.array([X]), agents=8, size=4.0) == pytest.approx(2 * 0.05)
    assert local_residual(tracking, np.array([far]), agents=8, size=1e9) == pytest.approx(0.25)
    stretched = AgentState(3, 2 * X, 0 * unit, unit, 0.1)
    assert local_residual(stretched, np.array([2 * X]), agents=8) == pytest.approx(3 * np.sqrt(P))


def test_an_agent_without_neighbors_has_no_mismatch(rng):
    state = AgentState(3, random_point(N, P, rng), np.zeros((N, P)), np.zeros((N, P)), 0.1)
    assert local_residual(state, np.empty((0, N, P)), agents=1) < 1e-14
