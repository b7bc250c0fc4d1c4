import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thanos_peer.algorithm.method import Sent
from thanos_peer.algorithm.mixing import BLOW_UP, LARGEST_SQUARE, Heard, divergence, has_sound_numbers
from thanos_peer.algorithm.stiefel import random_point
from thanos_peer.block import Block, StopWord

N, P = 5, 2


@pytest.fixture
def rng():
    return np.random.default_rng(6)


def blocks_of(rng, count):
    return [
        Block.of(3, rng.standard_normal((N, P)), rng.standard_normal((N, P)), 0.1 * i, StopWord())
        for i in range(1, count + 1)
    ]


@given(st.integers(0, 2**32 - 1), st.integers(1, 7))
def test_what_is_heard_is_added_from_zero_in_the_order_of_the_blocks_bit_for_bit(seed, count):
    rng = np.random.default_rng(seed)
    blocks, weights = blocks_of(rng, count), rng.uniform(0, 1, count)
    total = np.zeros((N, P))
    for weight, block in zip(weights, blocks, strict=True):
        total = total + weight * (block.X - block.eta * block.D)
    assert Heard(weights, blocks).mix(lambda X, D, eta: X - eta * D).tobytes() == total.tobytes()


def test_a_term_gets_all_matrices_at_once_and_step_sizes_that_fit_them(rng):
    blocks, seen = blocks_of(rng, 3), []

    def term(X, D, eta):
        seen.append((X.tobytes(), D.tobytes(), eta.shape, eta.ravel().tolist()))
        return X

    Heard(np.ones(3), blocks).mix(term)
    Xs, Ds = (b"".join(getattr(block, name).tobytes() for block in blocks) for name in "XD")
    assert seen == [(Xs, Ds, (3, 1, 1), [block.eta for block in blocks])]


def test_the_mismatch_is_the_largest_distance_to_what_is_heard(rng):
    blocks = blocks_of(rng, 4)
    X = blocks[1].X
    distances = [np.linalg.norm(block.X - X) for block in blocks]
    assert float(Heard(np.ones(4), blocks).mismatch(X)) == pytest.approx(max(distances))
    assert Heard(np.ones(1), blocks[1:2]).mismatch(X) == 0.0


def sent_of(rng, **changes):
    fields = {"X": random_point(N, P, rng), "D": rng.standard_normal((N, P)), "eta": np.asarray(0.1)}
    return Sent(**(fields | changes))


@pytest.mark.parametrize("factor", [1.0, 0.99 * BLOW_UP])
def test_ordinary_numbers_are_sound(rng, factor):
    assert has_sound_numbers(sent_of(rng, X=factor * random_point(N, P, rng)))
    edge = np.zeros((N, P))
    edge[0, 0] = 0.99 * np.sqrt(LARGEST_SQUARE)
    assert has_sound_numbers(sent_of(rng, D=edge))


@pytest.mark.parametrize("entry", [np.nan, np.inf, -np.inf, 1e39, 1e200])
@pytest.mark.parametrize("where", ["X", "D"])
def test_one_entry_out_of_all_numbers_is_enough(rng, where, entry):
    matrix = random_point(N, P, rng)
    matrix[2, 1] = entry
    with np.errstate(over="ignore", invalid="ignore"):
        assert not has_sound_numbers(sent_of(rng, **{where: matrix}))


@pytest.mark.parametrize("eta", [np.nan, np.inf])
def test_a_step_size_that_is_no_number_is_not_sound(rng, eta):
    assert not has_sound_numbers(sent_of(rng, eta=np.asarray(eta)))


def test_an_x_beyond_all_return_is_not_sound(rng):
    beyond = sent_of(rng, X=1.01 * BLOW_UP * random_point(N, P, rng))
    assert not has_sound_numbers(beyond)
    assert has_sound_numbers(beyond, growth=1.02)


def test_in_a_stack_each_agent_is_judged_by_itself(rng):
    sent = [sent_of(rng) for _ in range(4)]
    sent[1] = sent_of(rng, X=1e3 * random_point(N, P, rng))
    sent[2] = sent_of(rng, D=np.full((N, P), np.nan))
    stack = Sent(*(np.array([getattr(each, name) for each in sent]) for name in Sent._fields))
    with np.errstate(invalid="ignore"):
        assert has_sound_numbers(stack).tolist() == [True, False, False, True]


def test_a_divergence_names_agent_round_step_size_and_norms(rng):
    sent = sent_of(rng, X=np.full((N, P), np.inf), D=2 * random_point(N, P, rng))
    error = divergence(4, 17, sent, 0.05, "try less")
    assert (error.agent, error.k, error.eta) == (4, 17, 0.05)
    assert str(error).startswith("agent 4 diverged in round 17 with step size 0.05: ")
    assert f"||X||_F = inf, ||D||_F = {2 * np.sqrt(P):.3g}" in str(error)
