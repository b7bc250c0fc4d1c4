"""Several values of mu in a topology file: what may be said, what it means, and what is refused."""

import pytest
from networks import make_topology, raw_topology
from topology.test_mistakes import only_mistake, refusal

from thanos_peer.topology.prediction import suits

MANY = [0.01 * (j + 1) for j in range(32)]
FEW = {"kind": "synthetic", "seed": 1, "samples": 5}
LEADING = {"kind": "leading", "seed": 1}


def raw_with(mu, choose=None, *, method="auto", start=LEADING, **problem):
    raw = raw_topology()
    raw["algorithm"] = {"method": method, "start": dict(start)}
    raw["problem"] |= {"mu": mu} | problem | ({} if choose is None else {"choose": choose})
    return raw


def digest(*arguments, **settings):
    return make_topology(raw_with(*arguments, **settings)).digest


def test_the_order_of_values_and_the_rule_that_holds_anyway_do_not_matter():
    assert digest([0.1, 0.3, 0.2]) == digest([0.3, 0.2, 0.1]) == digest([0.1, 0.2, 0.3], {"of_pca": 0.9})
    others = [
        digest(0.1),
        digest([0.1, 0.2]),
        digest([0.1, 0.2], {"variance": 0.9}),
        digest([0.1, 0.2], {"nonzeros": 4}),
        digest([0.1, 0.2], {"per_component": 4}),
        digest({"path": 2}),
        digest({"path": 3}),
    ]
    assert len(set(others)) == len(others)


def test_a_path_is_not_for_methods_that_mix_and_is_predicted_with_two_passes():
    path, alone = (make_topology(raw_with(mu, method="proximal")) for mu in ([0.1, 0.2], 0.1))
    assert [name for name in ("gram", "proximal", "thanos") if suits(path.problem, name)] == ["gram", "proximal"]
    assert path.problem.weights == (0.2, 0.1)
    assert make_topology(raw_with({"path": 4})).problem.weight_count == 4
    assert alone.problem.weights == (0.1,)


@pytest.mark.parametrize(
    ("raw", "mistake"),
    [
        (raw_with([0.1]), "problem.mu = [0.1]: must be a valid number, or a list of 2 to 32 distinct ones"),
        (
            raw_with([0.1, 0.1]),
            "problem.mu = [0.1, 0.1]: must be a valid number, or a list of 2 to 32 distinct ones",
        ),
        (raw_with([0.1, 0.0]), "problem.mu[1] = 0.0: must be greater than 0"),
        (raw_with([0.1, 1e101]), "problem.mu[1] = 1e+101: must be at most 1e+100"),
        (raw_with({"path": 1}), "problem.mu.path = 1: must be greater than or equal to 2"),
        (raw_with({"path": 33}), "problem.mu.path = 33: must be less than or equal to 32"),
        (raw_with({}), "problem.mu.path: is missing"),
        (raw_with({"path": 3, "to": 1}), "problem.mu.to = 1: unknown key (known here: path)"),
        (raw_with([0.1, 0.2], {"nonzeros": 0}), "problem.choose.nonzeros = 0: must be greater than or equal to 1"),
        (
            raw_with([0.1, 0.2], {"variance": 1.5}),
            "problem.choose.variance = 1.5: must be less than or equal to 1",
        ),
        (
            raw_with([0.1, 0.2], {}),
            "problem.choose = {}: must be one of nonzeros, of_pca, per_component, variance; ",
        ),
        (raw_with(0.1, {"nonzeros": 4}), "problem.choose = {'nonzeros': 4}: leave it out with one value of mu"),
        (raw_with([0.1, 0.2], method="proximal-tracking"), "thanos-peer compare --sweep problem.mu=0.1,0.05"),
        (
            raw_with({"path": 3}, {"variance": 0.5}, start={"kind": "random", "seed": 1}),
            "problem.mu = {'path': 3}: a path found by the network follows from the leading eigenvalues",
        ),
        (raw_with([0.1, 0.2], start={"kind": "random", "seed": 1}), "problem.choose: is missing: "),
        (
            raw_with([0.1, 0.2], {"of_pca": 0.5}, start={"kind": "svd"}),
            "problem.choose.of_pca = 0.5: it follows from the leading eigenvalues",
        ),
        (
            raw_with({"path": 3}, {"variance": 0.5}, regularizer="mine:Class"),
            "problem.mu = {'path': 3}: must be a list of numbers with a regularizer of your own",
        ),
        (
            raw_with(MANY, n=4_000_000, p=3, data=FEW, method="proximal"),
            "so many answers would have more than 268,435,456 entries",
        ),
    ],
)
def test_what_a_path_cannot_be_is_one_mistake(raw, mistake):
    assert mistake in only_mistake(raw)


def test_a_path_is_not_for_an_objective_of_ones_own():
    start = {"kind": "random", "seed": 1}
    raw = raw_with([0.1, 0.2], {"variance": 0.5}, method="proximal", start=start, objective="mine:Class")
    assert "problem.mu = [0.1, 0.2]: must be one number with an objective of your own" in refusal(raw)
