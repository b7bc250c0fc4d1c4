"""Both networks against `oracle.py`, which shares no code with them.

With Barzilai-Borwein steps, two runs that differ by one rounding are 1e-12 apart after some twenty rounds and
unrelated after a hundred: the steps are a chaotic sequence (`test_one_ulp_...` shows it on the oracle alone). So
those runs are compared in two halves that leave nothing out: given the step sizes, all X and D agree to 1e-12 in
all rounds; and each step size is the short Barzilai-Borwein step of the X and D that the network itself reached.
"""

from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
from networks import make_instance, raw_topology
from oracle import Oracle, OracleRound, dprgd, dprgt, drgta, drsm, metropolis, run_oracle, vrsgt

from thanos_peer.simulate import AgentNetwork, StackedNetwork

ROUNDS = 200
MU, BETA = 0.2, 0.2
# Agents and samples of each family: from Gram matrices for all agents to A(A'X) for all, and a mixture on the
# grid.
GRAPHS = {
    "ring": (8, 80),
    "star": (6, 45),
    "grid": (9, 31),
    "erdos-renyi": (8, 90),
    "path": (5, 12),
}
REGULARIZERS = ("l1", "l21")
STEPS = {"constant": {"rule": "constant", "eta": 0.5}, "bb": {"rule": "bb", "first": 0.1}}
SMOOTHINGS = {
    "constant": {"rule": "constant", "sigma": 5.0},
    "decreasing": {"rule": "decreasing", "sigma0": 10.0, "exponent": 1 / 3},
}
# Each method is given samples, W, start and iterations, and what follows from the data.
OTHER_METHODS = {
    "drgta": lambda given, known, smooth: drgta(*given, a=1, b=known["step"], t=1, **smooth)[0],
    "drgta, 3 mixings": lambda given, known, smooth: drgta(*given, a=1, b=known["step"], t=3, **smooth)[0],
    "dprgt": lambda given, known, smooth: dprgt(*given, a=known["step"], **smooth)[0],
    "dprgd": lambda given, known, smooth: dprgd(*given, b=known["step"], **smooth),
    "vrsgt": lambda given, known, smooth: vrsgt(
        *given, beta=known["beta"], eta=known["step"], period=10, seed=1, **smooth
    )[0],
    "subgradient": lambda given, known, smooth: drsm(*given, a=1, b=known["first"], weight=smooth["weight"]),
}
NETWORKS = (AgentNetwork, StackedNetwork)
every_combination = pytest.mark.parametrize(
    ("family", "regularizer", "smoothing"), list(product(GRAPHS, REGULARIZERS, SMOOTHINGS))
)


def both_sides(family, regularizer, step, smoothing, **broken):
    """The same problem, for the package and for the oracle."""
    d, samples = GRAPHS[family]
    raw = raw_topology(family, d, n=8, p=3, samples=samples, regularizer=regularizer, mu=MU, tolerance=0.0)
    raw["algorithm"] |= {"beta": BETA, "step": STEPS[step], "smoothing": SMOOTHINGS[smoothing]}
    instance = make_instance(raw)
    oracle = Oracle(
        [local.f.A for local in instance.local_problems],
        raw["edges"],
        mu=MU,
        regularizer=regularizer,
        beta=BETA,
        step=tuple(STEPS[step].values()),
        smoothing=tuple(SMOOTHINGS[smoothing].values()),
        **broken,
    )
    return instance, oracle


@cache
def run_network(network_class, family, regularizer, step, smoothing):
    network = network_class(both_sides(family, regularizer, step, smoothing)[0])
    history = [round_of(network)]
    for _ in range(ROUNDS):
        network.advance()
        history.append(round_of(network))
    return history


def round_of(network):
    return OracleRound(network.X, network.array("D"), network.array("H"), network.eta)


def largest_difference(one, other):
    return max(
        max(np.abs(a.X - b.X).max(), np.abs(a.D - b.D).max(), np.abs(a.H - b.H).max())
        for a, b in zip(one, other, strict=True)
    )


def tracking_error(history):
    """The largest entry of sum_i D_i - sum_i H_i in any round."""
    return max(np.abs(now.D.sum(axis=0) - now.H.sum(axis=0)).max() for now in history)


@every_combination
def test_constant_steps_follow_the_oracle_to_1e_12_in_every_round(family, regularizer, smoothing):
    instance, oracle = both_sides(family, regularizer, "constant", smoothing)
    expected = run_oracle(oracle, instance.start, ROUNDS)
    assert np.abs(expected[-1].X - instance.start).max() > 0.1
    for network_class in NETWORKS:
        history = run_network(network_class, family, regularizer, "constant", smoothing)
        assert largest_difference(history, expected) < 1e-12
        assert all((now.eta == STEPS["constant"]["eta"]).all() for now in history)


@every_combination
def test_bb_runs_follow_the_oracle_to_1e_12_in_every_round_given_the_step_sizes(family, regularizer, smoothing):
    instance, oracle = both_sides(family, regularizer, "bb", smoothing)
    for network_class in NETWORKS:
        history = run_network(network_class, family, regularizer, "bb", smoothing)
        expected = [oracle.first(instance.start)]
        for k, now in enumerate(history[:-1]):
            expected.append(oracle.after(expected[-1]._replace(eta=now.eta), k))
        assert np.abs(expected[-1].X - instance.start).max() > 0.1
        assert largest_difference(history, expected) < 1e-12


@every_combination
def test_every_bb_step_size_is_the_short_one_of_the_agents_own_last_move(family, regularizer, smoothing):
    for network_class in NETWORKS:
        history = run_network(network_class, family, regularizer, "bb", smoothing)
        assert (history[0].eta == STEPS["bb"]["first"]).all()
        for before, now in pairwise(history):
            S, J = now.X - before.X, now.D - before.D
            expected = np.abs(np.einsum("inp,inp->i", S, J)) / np.einsum("inp,inp->i", J, J)
            longest = np.linalg.norm(S, axis=(1, 2)) / np.linalg.norm(J, axis=(1, 2))
            assert (np.abs(now.eta - expected) < 1e-12 * longest).all()


@every_combination
def test_bb_runs_on_their_own_follow_the_oracle_to_1e_12_until_rounding_takes_over(family, regularizer, smoothing):
    instance, oracle = both_sides(family, regularizer, "bb", smoothing)
    expected = run_oracle(oracle, instance.start, 8)
    for network_class in NETWORKS:
        history = run_network(network_class, family, regularizer, "bb", smoothing)
        assert largest_difference(history[:9], expected) < 1e-12


@every_combination
def test_the_two_networks_agree_bit_by_bit(family, regularizer, smoothing):
    for step in STEPS:
        agents, stacked = (run_network(each, family, regularizer, step, smoothing) for each in NETWORKS)
        for one, other in zip(agents, stacked, strict=True):
            assert all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


def test_one_ulp_in_the_start_takes_a_bb_run_of_the_oracle_away_from_itself_but_no_run_with_constant_steps():
    moved = {}
    for step in STEPS:
        instance, oracle = both_sides("ring", "l1", step, "constant")
        nudged = instance.start.copy()
        nudged[0, 0] = np.nextafter(nudged[0, 0], 2)
        moved[step] = largest_difference(
            run_oracle(oracle, instance.start, ROUNDS), run_oracle(oracle, nudged, ROUNDS)
        )
    assert moved["constant"] < 1e-12
    assert moved["bb"] > 1e-6


@pytest.mark.parametrize("network_class", NETWORKS)
@pytest.mark.parametrize(("family", "regularizer", "step"), list(product(GRAPHS, REGULARIZERS, STEPS)))
def test_trackers_sum_to_the_directions_in_every_round_while_sigma_decreases(
    network_class, family, regularizer, step
):
    assert tracking_error(run_network(network_class, family, regularizer, step, "decreasing")) < 1e-10


@pytest.mark.parametrize("regularizer", REGULARIZERS)
def test_an_oracle_that_recomputes_h_with_the_next_sigma_breaks_the_sum_and_leaves_the_networks(regularizer):
    instance, broken = both_sides("ring", regularizer, "constant", "decreasing", recompute_H=True)
    history = run_oracle(broken, instance.start, ROUNDS)
    assert tracking_error(history) > 1e-4
    assert (
        largest_difference(run_network(StackedNetwork, "ring", regularizer, "constant", "decreasing"), history)
        > 1e-4
    )


def test_an_oracle_that_recomputes_h_is_no_different_while_sigma_is_constant():
    instance, broken = both_sides("ring", "l1", "constant", "constant", recompute_H=True)
    history = run_oracle(broken, instance.start, ROUNDS)
    assert tracking_error(history) < 1e-10
    assert largest_difference(run_network(StackedNetwork, "ring", "l1", "constant", "constant"), history) < 1e-12


@pytest.mark.parametrize("name", OTHER_METHODS)
@pytest.mark.parametrize("regularizer", ["l1", "none"])
def test_other_methods_named_in_a_file_take_the_steps_of_their_formulas(name, regularizer):
    """With the start, the smoothing and the step that the network has found, which are found once more here."""
    method, _, several = name.partition(", ")
    mixings, d, iterations = int(several[:1] or 1), 6, 30
    raw = raw_topology("star", d, n=8, p=3, samples=90, regularizer=regularizer, mu=MU, method=method)
    raw["algorithm"] |= {"max_rounds": iterations * mixings, "tolerance": 0.0}
    raw["algorithm"] |= {"mixings": mixings} if several else {}
    instance = make_instance(raw)
    network = StackedNetwork(instance)
    while not network.is_done:
        network.advance()
    parts = [local.f.A for local in instance.local_problems]
    U, lengths, _ = np.linalg.svd(np.hstack(parts), full_matrices=False)
    start = U[:, :3] * np.sign(np.sum(U[:, :3] * instance.start, axis=0))
    size, weight = lengths[0] ** 2, MU / d if regularizer == "l1" else 0.0
    largest = np.sum([np.linalg.norm(A, 2) ** 16 for A in parts]) ** (1 / 8)
    X = OTHER_METHODS[name](
        (parts, metropolis(d, raw["edges"]), start, iterations),
        {
            "step": 0.25 / (largest + (size if weight else 0.0)),
            "first": 0.5 / (size / d + weight * np.sqrt(8)),
            "beta": size / d,
        },
        {"weight": weight, "sigma": 1 / size},
    )
    assert np.abs(X - start).max() > 1e-3
    assert np.allclose(network.X, X, rtol=0, atol=1e-6 if method == "subgradient" else 1e-10)


def test_destiny_named_in_a_file_takes_the_steps_of_its_formulas():
    raw = raw_topology("grid", 6, n=8, p=3, samples=90, method="destiny", regularizer="none", tolerance=0.0)
    raw["algorithm"] |= {"beta": BETA, "step": STEPS["constant"], "start": {"kind": "random", "seed": 1}}
    instance = make_instance(raw)
    network = StackedNetwork(instance)
    oracle = Oracle(
        [local.f.A for local in instance.local_problems],
        raw["edges"],
        mu=0.0,
        regularizer="none",
        beta=BETA,
        step=("constant", 0.5),
        smoothing=("constant", 1.0),
    )
    for expected in run_oracle(oracle, instance.start, 100):
        assert np.allclose(network.X, expected.X, rtol=0, atol=1e-12)
        assert np.allclose(network.array("D"), expected.D, rtol=0, atol=1e-12)
        network.advance()
