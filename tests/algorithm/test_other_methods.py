"""The field's other methods, against their formulas written anew: a dense W, and loops over agents."""

from dataclasses import asdict

import numpy as np
import pytest
from oracle import dprgd, dprgt, drgta, drsm, gradients, l1_slope, metropolis, minibatch, mixed, tangent, vrsgt

from thanos_peer.algorithm.dprgd import DPRGD
from thanos_peer.algorithm.dprgt import DPRGT
from thanos_peer.algorithm.drgta import DRGTA
from thanos_peer.algorithm.method import Sent, Setup
from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.algorithm.reference import solve
from thanos_peer.algorithm.regularizers import L1, L21, Zero
from thanos_peer.algorithm.smoothed import Smoothed
from thanos_peer.algorithm.stiefel import infeasibility, random_point
from thanos_peer.algorithm.subgradient import Subgradient
from thanos_peer.algorithm.vrsgt import VRSGT, Minibatches
from thanos_peer.topology import families

D, N, P, SEED = 6, 7, 2, 7
EDGES = [*families.ring(D), (0, 3)]
W = metropolis(D, EDGES)


class Received:
    """All agents at once: sums in increasing order of agent."""

    def __init__(self, sent):
        self._sent = sent

    def mix(self, term):
        terms = term(self._sent.X, self._sent.D, self._sent.eta[:, None, None])
        total = np.zeros_like(terms)
        for j in range(len(terms)):
            total = total + W[:, j, None, None] * terms[j]
        return total

    def mismatch(self, X):
        return np.array([ReceivedByOne(i, self._sent).mismatch(X[i]) for i in range(D)])


class ReceivedByOne:
    """Agent i alone."""

    def __init__(self, i, sent):
        self._i, self._sent = i, sent

    def mix(self, term):
        terms = term(self._sent.X, self._sent.D, self._sent.eta[:, None, None])
        total = np.zeros(terms.shape[1:])
        for j in range(len(terms)):
            total = total + W[self._i, j] * terms[j]
        return total

    def mismatch(self, X):
        neighbors = [j for j in range(D) if W[self._i, j] > 0]
        return max(np.sqrt(np.sum((self._sent.X[j] - X).ravel() ** 2)) for j in neighbors)


def samples(rng, n=N, counts=(12, 15, 9, 20, 11, 30)):
    """A_i of (n, m_i), all of them divided by ||A||_2: two directions have most of the variance."""
    scale = np.where(np.arange(n) < 2, 1.0, 0.3)[:, None]
    parts = [scale * rng.standard_normal((n, m)) for m in counts]
    return [A / np.linalg.norm(np.hstack(parts), 2) for A in parts]


def norms_of(parts):
    return [np.linalg.norm(A, 2) ** 2 for A in parts]


class Stack:
    """The f_i of all agents."""

    def __init__(self, terms):
        self._terms = terms

    def gradient(self, X):
        return np.array([f.gradient(X_i) for f, X_i in zip(self._terms, X, strict=True)])


def made(method, parts, g=Zero(), **options):  # noqa: B008
    """The method for all agents, and for each of them."""
    norms, each = norms_of(parts), [SparsePCA(A) for A in parts]
    given = {"d": D, "size": sum(norms)}
    if method is Subgradient:
        return method(Stack(each), g, **given, **options), [method(f, g, **given, **options) for f in each]
    given |= {"largest": max(norms)} | {key: options.pop(key) for key in ("sigma", "step") if key in options}

    def one(f, *agents):
        few = [Minibatches([parts[i] for i in agents], agents, SEED)] if method is VRSGT else []
        return method(Smoothed(f, g, **given), *few, **options)

    return one(Stack(each), *range(D)), [one(f, i) for i, f in enumerate(each)]


def rounds_of(method, X0, count):
    """The states of the first rounds, from a common start."""
    state = method.start(np.repeat(X0[None], D, axis=0))
    yield state
    for k in range(count):
        state = method.step(k, state, Received(method.send(state)))
        yield state


def after(method, X0, count):
    *_, last = rounds_of(method, X0, count)
    return last


def largest_angle(X, parts):
    """The sine of the largest angle between any agent's columns and the leading left singular vectors."""
    leading = np.linalg.svd(np.hstack(parts))[0][:, : X.shape[-1]]
    return max(np.linalg.norm(X_i - leading @ (leading.T @ X_i), 2) for X_i in X)


@pytest.fixture
def rng():
    return np.random.default_rng(11)


@pytest.fixture
def parts(rng):
    return samples(rng)


@pytest.fixture
def X0(rng):
    return random_point(N, P, rng)


METHODS = [
    pytest.param(DRGTA, {}, id="drgta"),
    pytest.param(DRGTA, {"mixings": 3}, id="drgta-3"),
    pytest.param(DPRGT, {}, id="dprgt"),
    pytest.param(DPRGD, {}, id="dprgd"),
    pytest.param(Subgradient, {}, id="subgradient"),
    pytest.param(VRSGT, {"period": 4}, id="vrsgt"),
]
# Agents go by their own gradients, with steps that shrink.
UNTRACKED = (DPRGD, Subgradient)


@pytest.mark.parametrize("mixings", [1, 2, 5])
@pytest.mark.parametrize("weight", [0.0, 0.02])
def test_drgta_takes_the_steps_of_its_formulas_one_in_as_many_rounds_as_it_mixes(parts, X0, mixings, weight):
    g = L1(weight) if weight else Zero()
    method, _ = made(DRGTA, parts, g, step=1.3, pull=0.9, mixings=mixings, sigma=0.7)
    state = after(method, X0, 20 * mixings)
    X, S = drgta(parts, W, X0, 20, a=0.9, b=1.3, t=mixings, weight=weight, sigma=0.7)
    assert np.allclose(state.X, X, rtol=0, atol=1e-12)
    assert np.allclose(state.S, S, rtol=0, atol=1e-12)


@pytest.mark.parametrize("weight", [0.0, 0.02])
def test_dprgt_takes_the_steps_of_its_formulas(parts, X0, weight):
    method, _ = made(DPRGT, parts, L1(weight) if weight else Zero(), step=1.3, sigma=0.7)
    state = after(method, X0, 20)
    X, S = dprgt(parts, W, X0, 20, a=1.3, weight=weight, sigma=0.7)
    assert np.allclose(state.X, X, rtol=0, atol=1e-12)
    assert np.allclose(state.S, S, rtol=0, atol=1e-12)


@pytest.mark.parametrize("weight", [0.0, 0.02])
def test_dprgd_takes_the_steps_of_its_formula(parts, X0, weight):
    method, _ = made(DPRGD, parts, L1(weight) if weight else Zero(), step=1.3, sigma=0.7)
    X = dprgd(parts, W, X0, 20, b=1.3, weight=weight, sigma=0.7)
    assert np.allclose(after(method, X0, 20).X, X, rtol=0, atol=1e-12)


@pytest.mark.parametrize("weight", [0.0, 0.02])
def test_the_subgradient_method_takes_the_steps_of_its_formula(parts, X0, weight):
    method, _ = made(Subgradient, parts, L1(weight) if weight else Zero(), step=1.3, pull=0.9)
    X = drsm(parts, W, X0, 20, a=0.9, b=1.3, weight=weight)
    assert np.allclose(after(method, X0, 20).X, X, rtol=0, atol=1e-6 if weight else 1e-12)


@pytest.mark.parametrize("weight", [0.0, 0.02])
def test_vrsgt_takes_the_steps_of_its_formulas(parts, X0, weight):
    method, _ = made(VRSGT, parts, L1(weight) if weight else Zero(), step=0.6, beta=0.3, period=4, sigma=0.7)
    state = after(method, X0, 20)
    X, Y = vrsgt(parts, W, X0, 20, beta=0.3, eta=0.6, period=4, seed=SEED, weight=weight, sigma=0.7)
    assert np.allclose(state.X, X, rtol=0, atol=1e-12)
    assert np.allclose(state.D, Y, rtol=0, atol=1e-12)


def bits(values):
    return [np.ascontiguousarray(value).tobytes() for value in values]


@pytest.mark.parametrize(("method", "options"), METHODS)
@pytest.mark.parametrize("g", [L1(0.02), L21(0.02)], ids=["l1", "l21"])
@pytest.mark.parametrize(("n", "p"), [(1, 1), (9, 1), (3, 3), (N, P), (33, 5), (64, 16)])
def test_an_agent_alone_has_the_same_bits_as_in_the_stack(rng, method, options, g, n, p):
    parts, start = samples(rng, n), random_point(n, p, rng)
    whole, alone = made(method, parts, g, **options)
    state, states = whole.start(np.repeat(start[None], D, axis=0)), [each.start(start) for each in alone]
    for k in range(8):
        sent, received = whole.send(state), Received(whole.send(state))
        residual, answer = whole.residual(k, state, received), whole.answer(k, state)
        for i, (one, own) in enumerate(zip(alone, states, strict=True)):
            heard = ReceivedByOne(i, sent)
            assert bits(asdict(own).values()) == bits(value[i] for value in asdict(state).values())
            assert bits(one.send(own)) == bits(value[i] for value in sent)
            assert bits([one.residual(k, own, heard)]) == bits([residual[i]])
            assert bits(one.answer(k, own)) == bits(value[i] for value in answer)
            states[i] = one.step(k, own, heard)
        state = whole.step(k, state, received)


@pytest.mark.parametrize(("method", "options"), METHODS)
def test_a_state_is_of_the_type_it_says_and_of_float64_arrays_alone(parts, X0, method, options):
    whole, _ = made(method, parts, **options)
    for state in rounds_of(whole, X0, 2):
        assert type(state) is whole.state_type
        assert {value.dtype for value in asdict(state).values()} == {np.dtype(np.float64)}
        assert {value.shape[0] for value in asdict(state).values()} == {D}


@pytest.mark.parametrize("method", [DRGTA, DPRGT], ids=["drgta", "dprgt"])
def test_gradient_tracking_converges_linearly_to_the_leading_subspace(parts, X0, method):
    whole, _ = made(method, parts)
    states = list(rounds_of(whole, X0, 400))
    early, middle, late = (largest_angle(states[k].X, parts) for k in (100, 250, 400))
    assert late < 1e-10
    assert np.log(middle / early) == pytest.approx(np.log(late / middle), rel=0.1)
    assert infeasibility(states[-1].X).max() < 1e-14
    assert whole.residual(400, states[-1], Received(whole.send(states[-1]))).max() < 1e-10


@pytest.mark.parametrize("method", [DRGTA, DPRGT], ids=["drgta", "dprgt"])
def test_the_trackers_add_up_to_the_gradients_in_every_round(parts, X0, method):
    whole, _ = made(method, parts, step=1.3)
    for state in rounds_of(whole, X0, 30):
        total = np.sum(gradients(parts, state.X), axis=0)
        assert np.allclose(state.S.sum(axis=0), total, rtol=0, atol=1e-13)


@pytest.mark.parametrize(("method", "options"), [each for each in METHODS if each.values[0] not in UNTRACKED])
def test_gradients_and_disagreement_shrink_at_least_as_fast_as_one_over_k(parts, X0, method, options):
    """What the papers prove: the least ||mean gradient||^2 + disagreement^2 of K iterations is at most C / K."""
    whole, _ = made(method, parts, **options)
    steps = options.get("mixings", 1)

    def squares(state):
        means = np.mean(gradients(parts, state.X), axis=0)
        return np.sum(means**2) + np.sum((state.X - state.X.mean(axis=0)) ** 2)

    found = np.minimum.accumulate([squares(state) for state in list(rounds_of(whole, X0, 200 * steps))[::steps]])
    # The largest of these products can serve as C.
    products = found[20::10] * np.arange(20, 201, 10)
    assert (np.diff(products) < 0).all()


def test_between_its_steps_drgta_mixes_and_keeps_everything_else(parts, X0):
    whole, _ = made(DRGTA, parts, mixings=3)
    states = list(rounds_of(whole, X0, 7))
    for first in (0, 3):
        start, one, two = states[first : first + 3]
        assert start.X.tobytes() == start.Y.tobytes() == one.X.tobytes() == two.X.tobytes()
        assert start.S.tobytes() == start.T.tobytes() == one.S.tobytes() == two.S.tobytes()
        assert np.allclose(two.Y, mixed(W @ W, start.X), rtol=0, atol=1e-14)
        assert np.allclose(two.T.sum(axis=0), start.S.sum(axis=0), rtol=0, atol=1e-14)
        residuals = [
            whole.residual(first + k, each, Received(whole.send(each))).tobytes()
            for k, each in enumerate((start, one, two))
        ]
        assert len(set(residuals)) == 1
    assert states[3].X.tobytes() != states[2].X.tobytes()


def test_more_mixings_let_drgta_take_a_step_with_which_it_otherwise_runs_in_a_circle(parts, X0):
    step = 0.6 / max(norms_of(parts))
    twice, once = (made(DRGTA, parts, step=step, mixings=mixings)[0] for mixings in (2, 1))
    assert largest_angle(after(twice, X0, 600).X, parts) < 1e-10
    assert largest_angle(after(once, X0, 600).X, parts) > 1e-2


@pytest.mark.parametrize("method", [DRGTA, DPRGT, VRSGT], ids=["drgta", "dprgt", "vrsgt"])
def test_one_agent_with_most_of_the_samples_does_not_upset_the_default_step(rng, X0, method):
    parts = samples(rng, counts=(10, 10, 10, 200, 10, 10))
    whole, _ = made(method, parts)
    assert largest_angle(after(whole, X0, 600).X, parts) < 1e-10


@pytest.mark.parametrize("method", [DRGTA, DPRGT, VRSGT], ids=["drgta", "dprgt", "vrsgt"])
def test_with_a_regularizer_they_stop_at_the_smoothed_problems_answer(parts, X0, method):
    g, sigma = L1(0.05 / D), 2.0
    whole, _ = made(method, parts, g, sigma=sigma)
    state = after(whole, X0, 750)
    X, A = state.X.mean(axis=0), np.hstack(parts)
    slope = tangent(X, -A @ A.T @ X + D * l1_slope(X, g.weight, sigma))
    assert np.linalg.norm(slope) < 1e-10
    assert np.abs(state.X - X).max() < 1e-10
    assert np.array_equal(whole.answer(750, state)[1], g.prox(state.X, sigma))


@pytest.mark.parametrize(
    ("method", "options"), [(DPRGD, {"step": 3.0}), (Subgradient, {})], ids=["dprgd", "drsgd"]
)
def test_without_trackers_agents_come_closer_only_as_fast_as_steps_shrink(parts, X0, method, options):
    whole, _ = made(method, parts, **options)
    states = list(rounds_of(whole, X0, 4000))
    measures = (
        lambda k: np.abs(states[k].X - states[k].X.mean(axis=0)).max(),
        lambda k: largest_angle(states[k].X, parts),
        lambda k: whole.residual(k, states[k], Received(whole.send(states[k]))).max(),
    )
    for measure in measures:
        assert measure(4000) == pytest.approx(measure(1000) / 2, rel=0.05)  # b_k falls to a half
    assert largest_angle(states[4000].X, parts) > 1e-3


def test_the_subgradient_method_comes_close_to_the_centralised_answer_and_finds_its_zeros(parts):
    A, mu = np.hstack(parts), 0.1
    start = np.linalg.svd(A)[0][:, :P]
    whole, _ = made(Subgradient, parts, L1(mu / D))
    best = solve(SparsePCA(A), L1(mu), start, lipschitz=1.0)

    def gap(X):
        values = [-np.sum((A.T @ X_i) ** 2) / 2 + mu * np.abs(X_i).sum() for X_i in X]
        return max(values) - (SparsePCA(A).value(best.X) + L1(mu).value(best.X))

    states = list(rounds_of(whole, start, 3200))
    first, early, late = (gap(states[k].X) for k in (0, 200, 3200))
    assert best.is_precise
    assert 0 < late < early / 3 < first / 30
    assert np.array_equal(whole.answer(3200, states[-1])[1] == 0, np.repeat(best.X[None] == 0, D, axis=0))


def test_vrsgts_trackers_add_up_to_its_directions_in_every_round(parts, X0):
    whole, _ = made(VRSGT, parts)
    for state in rounds_of(whole, X0, 30):
        assert np.allclose(state.D.sum(axis=0), state.H.sum(axis=0), rtol=0, atol=1e-13)


def test_vrsgt_reaches_the_exact_subspace_and_plain_minibatches_do_not(parts, X0):
    whole, _ = made(VRSGT, parts)
    eta, beta = 0.25 / max(norms_of(parts)), sum(norms_of(parts)) / D
    plain, _ = vrsgt(parts, W, X0, 400, beta=beta, eta=eta, period=10**6, seed=SEED, is_reduced=False)
    state = after(whole, X0, 400)
    assert largest_angle(state.X, parts) < 1e-10
    assert infeasibility(state.X).max() < 1e-10
    assert whole.residual(400, state, Received(whole.send(state))).max() < 1e-9
    assert largest_angle(plain, parts) > 1e-2


def test_vrsgt_goes_on_after_a_restart_with_the_bits_it_would_have_had(parts, X0):
    whole, _ = made(VRSGT, parts, period=5)
    states = list(rounds_of(whole, X0, 12))
    again, _ = made(VRSGT, parts, period=5)
    state = again.state_type(**asdict(states[7]))
    for k in range(7, 12):
        state = again.step(k, state, Received(again.send(state)))
    assert bits(asdict(state).values()) == bits(asdict(states[12]).values())


def test_draws_follow_from_seed_agent_and_round_and_are_the_same_in_every_numpy():
    def drawn(agent, seed, draw, count=50):
        return Minibatches([], [], seed).drawn(agent, draw, count).tolist()

    assert drawn(0, 7, 1) == drawn(0, 7, 1) == minibatch(7, 0, 1, 50).tolist()
    assert len({tuple(drawn(*which)) for which in ((0, 7, 1), (1, 7, 1), (0, 8, 1), (0, 7, 2))}) == 4
    assert drawn(0, 7, 1)[:3] == [25, 29, 30]
    assert [len(drawn(0, 7, 1, count)) for count in (1, 2, 4, 5, 9, 10)] == [1, 2, 2, 3, 3, 4]


def test_a_few_samples_tell_the_gradient_on_average(parts, X0):
    few, f = Minibatches(parts[:1], [0], SEED), SparsePCA(parts[0])
    mean = np.mean([few.gradient(X0, draw) for draw in range(4000)], axis=0)
    assert np.allclose(mean, f.gradient(X0), rtol=0, atol=0.05 * np.abs(f.gradient(X0)).max())


@pytest.mark.parametrize("method", [DRGTA, DPRGT, Subgradient, VRSGT])
def test_a_method_is_made_of_what_agents_have_found(parts, X0, method):
    f, agreed = SparsePCA(parts[2]), None if method is Subgradient else np.array([0.8])
    own = {"size": 2.0, "agreed": agreed, "agents": (2,), "samples": (parts[2],), "seed": SEED}
    setup = Setup(f=f, g=L1(0.1), whole=L1(0.6), d=D, start=X0, parameters=pytest.fail, **own)
    given = method.make(setup)
    if method is Subgradient:
        expected = method(f, L1(0.1), d=D, size=2.0)
    else:
        problem = Smoothed(f, L1(0.1), d=D, size=2.0, largest=0.8)
        assert problem.step == 0.25 / (0.8 + 2.0)  # sigma = 1/size
        expected = method(problem, *([Minibatches([parts[2]], [2], SEED)] if method is VRSGT else []))
    stack = np.repeat(X0[None], D, axis=0)
    heard = ReceivedByOne(2, Sent(stack, 0.1 * stack, np.ones(D)))
    one, other = (each.step(0, each.start(X0), heard) for each in (given, expected))
    assert bits(asdict(one).values()) == bits(asdict(other).values())
