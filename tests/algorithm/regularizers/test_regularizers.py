import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from oracle import prox_l1, prox_l21

from thanos_peer.algorithm.regularizers import L1, L21, REGULARIZERS, GroupL21, Zero, envelope, envelope_gradient

examples = settings(max_examples=60, deadline=None)
entries = st.floats(-4, 4)
shapes = array_shapes(min_dims=2, max_dims=2, max_side=5)
weights = st.just(0.0) | st.floats(1e-3, 2)
sigmas = st.floats(0.05, 10)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def groups_of(draw, n):
    """Some of the features in groups, in any order."""
    number_of = draw(st.lists(st.integers(-1, 2), min_size=n, max_size=n).filter(lambda each: max(each) >= 0))
    groups = [[i for i in draw(st.permutations(range(n))) if number_of[i] == number] for number in range(3)]
    return {"groups": [group for group in groups if group]}


# For each regularizer that has options, a strategy for them, given the number of features.
OPTIONS = {"group-l21": groups_of}


@st.composite
def regularizers(draw, n, *, name=None, weight=weights):
    """One of the table, for n features."""
    name = draw(st.sampled_from(list(REGULARIZERS))) if name is None else name
    options = draw(OPTIONS[name](n)) if name in OPTIONS else {}
    return REGULARIZERS[name].make(draw(weight), options, n=n)


@st.composite
def cases(draw, *, count=1, **given):
    """A regularizer and matrices of one shape; entries repeat and are zero often enough to meet the kinks."""
    shape = draw(shapes)
    g = draw(regularizers(shape[0], **given))
    return g, *(draw(arrays(np.float64, shape, elements=entries)) for _ in range(count))


def prox_objective(g, X, sigma, Y):
    """What (2) minimises over Y."""
    return g.value(Y) + np.linalg.norm(Y - X) ** 2 / (2 * sigma)


def other_prox(g, X, sigma):
    match g:
        case L1(weight):
            return prox_l1(X, sigma * weight)
        case GroupL21(weight, group_of):
            numbers, Y = np.array(group_of), X.copy()
            for number in set(group_of):
                Y[numbers == number] = prox_l21(X[numbers == number].reshape(1, -1), sigma * weight).reshape(
                    -1, X.shape[1]
                )
            return Y
        case L21(weight):
            return prox_l21(X, sigma * weight)
        case Zero():
            return X
        case _:
            raise AssertionError(f"no other formula for {g}")


@examples
@given(cases(), sigmas, seeds)
def test_prox_minimises_the_objective_of_the_envelope(case, sigma, seed):
    g, X = case
    rng = np.random.default_rng(seed)
    Y = g.prox(X, sigma)
    least = prox_objective(g, X, sigma, Y)
    for size in (1e-3, 1e-1, 10):
        move = size * rng.standard_normal(X.shape)
        # Strong convexity shows a near miss, too.
        growth = np.linalg.norm(move) ** 2 / (2 * sigma)
        assert prox_objective(g, X, sigma, Y + move) >= least + growth - 1e-11 * (1 + least + growth)


@examples
@given(cases(), sigmas)
def test_prox_is_what_the_other_closed_form_gives(case, sigma):
    g, X = case
    assert np.abs(g.prox(X, sigma) - other_prox(g, X, sigma)).max() < 1e-14


@examples
@given(cases(count=2), sigmas)
def test_prox_is_nonexpansive(case, sigma):
    g, X, Y = case
    assert np.linalg.norm(g.prox(X, sigma) - g.prox(Y, sigma)) <= np.linalg.norm(X - Y) + 1e-13


@examples
@given(cases(), sigmas)
def test_the_envelope_lies_below_g_by_at_most_half_sigma_l_squared(case, sigma):
    g, X = case
    below, L = envelope(g, X, sigma), g.lipschitz(*X.shape)
    assert below <= g.value(X) + 1e-12
    assert g.value(X) <= below + sigma * L**2 / 2 + 1e-12


@examples
@given(cases(), sigmas)
def test_the_envelope_is_the_objective_at_the_prox(case, sigma):
    g, X = case
    assert envelope(g, X, sigma) == pytest.approx(prox_objective(g, X, sigma, other_prox(g, X, sigma)), abs=1e-12)


@examples
@given(cases(), sigmas)
def test_the_gradient_of_the_envelope_agrees_with_finite_differences(case, sigma):
    g, X = case
    gradient, h = envelope_gradient(g, X, sigma), 1e-5
    for place in np.ndindex(X.shape):
        step = np.zeros_like(X)
        step[place] = h
        slope = (envelope(g, X + step, sigma) - envelope(g, X - step, sigma)) / (2 * h)
        assert abs(slope - gradient[place]) <= h / sigma + 1e-8


@examples
@given(cases(count=2), sigmas)
def test_the_gradient_of_the_envelope_is_bounded_by_l_and_lipschitz_with_one_over_sigma(case, sigma):
    g, X, Y = case
    at_X, at_Y = envelope_gradient(g, X, sigma), envelope_gradient(g, Y, sigma)
    assert np.linalg.norm(at_X) <= g.lipschitz(*X.shape) + 1e-12
    assert np.linalg.norm(at_X - at_Y) <= np.linalg.norm(X - Y) / sigma + 1e-12


@examples
@given(cases(count=2))
def test_g_is_lipschitz_with_its_constant(case):
    g, X, Y = case
    assert abs(g.value(X) - g.value(Y)) <= g.lipschitz(*X.shape) * np.linalg.norm(X - Y) + 1e-12


@pytest.mark.parametrize("g", [L1(0.7), L21(0.7), GroupL21(0.7, (0, 0, 1, 1, 2, 2)), Zero()])
def test_no_smaller_lipschitz_constant_would_do(g):
    ones = np.ones((6, 4))
    assert g.value(ones) == pytest.approx(g.lipschitz(6, 4) * np.linalg.norm(ones))


def test_values_are_the_weighted_norms():
    X = np.array([[3.0, -4.0], [0.0, 0.0], [-5.0, 12.0]])
    assert L1(2.0).value(X) == 2 * 24
    assert L21(2.0).value(X) == 2 * (5 + 13)
    assert GroupL21(2.0, (0, 1, 0)).value(X) == pytest.approx(2 * np.sqrt(5**2 + 13**2))
    assert GroupL21(2.0, (1, 0, 2)).value(X) == L21(2.0).value(X)
    assert Zero().value(X) == 0


def test_l1_moves_entries_by_the_threshold_and_makes_exact_zeros_below_it():
    X = np.array([[0.5, -0.5, 0.25], [-0.125, 1.0, -3.0]])
    assert L1(0.5).prox(X, 0.5).tolist() == [[0.25, -0.25, 0.0], [0.0, 0.75, -2.75]]


def test_l21_shortens_rows_by_the_threshold_and_makes_exact_zero_rows_below_it():
    X = np.array([[3.0, 4.0], [0.3, -0.4], [0.0, 0.0], [-0.6, 0.8]])
    Y = L21(2.0).prox(X, 0.5)
    assert Y[0] == pytest.approx([2.4, 3.2])
    assert (Y[1:3] == 0).all()
    # The norm of this row rounds to the threshold.
    assert np.abs(Y[3]).max() < 1e-15


def test_group_l21_shortens_groups_by_the_threshold_and_makes_exact_zero_groups_below_it():
    X = np.array([[3.0, 0.0], [0.3, -0.4], [0.0, 4.0], [0.6, 0.3]])
    Y = GroupL21(2.0, (0, 1, 0, 1)).prox(X, 0.5)
    assert Y[[0, 2]] == pytest.approx(0.8 * X[[0, 2]])
    assert (Y[[1, 3]] == 0).all()


@examples
@given(cases(name="group-l21"), sigmas, seeds)
def test_the_derivative_of_prox_of_groups_agrees_with_finite_differences(case, sigma, seed):
    g, X = case
    V, h = np.random.default_rng(seed).standard_normal(X.shape), 1e-6
    # Far from the kink, where a group is as long as the threshold.
    lengths = [np.linalg.norm(X[np.array(g.group_of) == number]) for number in set(g.group_of)]
    assume(all(abs(length - sigma * g.weight) > 1e-2 for length in lengths))
    quotient = (g.prox(X + h * V, sigma) - g.prox(X - h * V, sigma)) / (2 * h)
    assert np.abs(g.prox_derivative(X, sigma, V) - quotient).max() < 1e-6


@examples
@given(st.sampled_from(["l1", "l21"]).flatmap(lambda name: cases(name=name, weight=st.floats(1e-3, 2))), sigmas)
def test_entries_or_rows_are_zero_just_when_they_are_not_above_the_threshold(case, sigma):
    g, X = case
    sizes = np.abs(X) if isinstance(g, L1) else np.linalg.norm(X, axis=1, keepdims=True) * np.ones_like(X)
    Y, threshold = g.prox(X, sigma), sigma * g.weight
    assert (Y[sizes < threshold * (1 - 1e-12)] == 0).all()
    assert (Y[(sizes > threshold * (1 + 1e-12)) & (np.abs(X) > 1e-200)] != 0).all()


@pytest.mark.parametrize("X", [np.zeros((3, 2)), np.array([[0.0, 0.0], [1.0, -2.0]]), np.full((2, 2), 1e-200)])
@pytest.mark.parametrize("g", [L1(0.0), L21(0.0), Zero()])
def test_weight_zero_leaves_x_alone_even_where_rows_are_zero(g, X):
    assert (g.prox(X, 0.5) == X).all()
    assert (envelope_gradient(g, X, 0.5) == 0).all()
    assert envelope(g, X, 0.5) == 0


@pytest.mark.parametrize("g", [L1(0.3), L21(0.3)])
@pytest.mark.parametrize("size", [0.0, 1e-300, 1e-200, 1e-20])
def test_rows_of_zeros_and_of_almost_zeros_have_prox_zero(g, size):
    X = np.array([[size, -size], [2.0, 1.0]])
    Y = g.prox(X, 1.0)
    assert (Y[0] == 0).all()
    assert np.isfinite(Y).all()
    assert envelope_gradient(g, X, 1.0)[0].tolist() == [size, -size]


@examples
@given(cases(), st.integers(1, 4), sigmas, seeds)
def test_a_stack_gets_the_same_bits_as_its_matrices_one_by_one(case, d, sigma, seed):
    g, X = case
    stack = np.random.default_rng(seed).standard_normal((d, *X.shape))
    for apply in (
        lambda Y: g.prox(Y, sigma),
        lambda Y: envelope_gradient(g, Y, sigma),
        lambda Y: g.prox_derivative(Y, sigma, Y + 1),
        lambda Y: g.nearest_subgradient(Y * (Y > 0), Y),
    ):
        assert apply(stack).tobytes() == b"".join(apply(each).tobytes() for each in stack)
