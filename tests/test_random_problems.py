"""`benchmarks/answers.py`: the problems that it draws, and its judge, against closed forms and wrong answers."""

import csv
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from programs import run

from thanos_peer.launch import independent

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
# The benchmarks are scripts that import each other, and no package.
sys.path.append(str(BENCHMARKS))
answers, problems = (import_module(name) for name in ("answers", "random_problems"))


def is_connected(d, edges):
    reached, before = {0}, set()
    while reached != before:
        before = set(reached)
        reached |= {i for edge in edges if before & set(edge) for i in edge}
    return len(reached) == d


def drawn(data, regularizer=None, seed=1):
    """The first problem of this kind."""
    found = (problems.draw(seed, index) for index in range(1000))
    return next(each for each in found if each.data == data and regularizer in {None, each.regularizer})


def random_orthonormal(rng, n, p):
    return np.linalg.qr(rng.standard_normal((n, p)))[0]


# ---------------------------------------------------------------------- problems


@pytest.mark.parametrize("index", [2, 6, 7, 8, 9, 17])
def test_a_problem_follows_from_its_seed_and_index(index):
    problem = problems.draw(5, index)
    assert problem == problems.draw(5, index) != problems.draw(6, index)
    first, second = problem.samples(), problems.draw(5, index).samples()
    assert [part.tobytes() for part in first] == [part.tobytes() for part in second]
    assert [part.shape for part in first] == [(count, problem.n) for count in problem.counts]


@pytest.mark.parametrize("kind", problems.GRAPHS)
def test_graphs_of_every_size_are_connected_and_simple(kind):
    rng, sizes = np.random.default_rng(1), [d for d in range(3, 33) if problems.fits(kind, d)]
    assert len(sizes) >= 15
    for d in sizes:
        edges = problems.draw_graph(rng, kind, d)
        assert is_connected(d, edges)
        assert all(0 <= i < j < d for i, j in edges)
        assert len(set(edges)) == len(edges)


@pytest.mark.parametrize(
    ("kind", "degrees"),
    [
        ("3-regular", [3] * 12),
        ("ring", [2] * 12),
        ("star", [1] * 11 + [11]),
        ("complete", [11] * 12),
        ("path", [1, 1] + [2] * 10),
    ],
)
def test_degrees_are_those_of_the_kind(kind, degrees):
    edges = problems.draw_graph(np.random.default_rng(2), kind, 12)
    assert sorted(np.bincount(np.ravel(edges), minlength=12)) == degrees


def test_132_problems_have_every_graph_with_every_kind_of_samples_within_bounds():
    found = [problems.draw(3, index) for index in range(132)]
    assert {(each.graph, each.data) for each in found} == {
        (graph, data) for graph in problems.GRAPHS for data in problems.DATA
    }
    for each in found:
        assert 3 <= each.d == len(each.counts) <= 32
        assert 5 <= each.n <= 100 or each.n == 200
        assert 1 <= each.p <= min(10, each.n)
        assert min(each.counts) >= 1
    assert {each.mu for each in found} == set(problems.MUS)
    assert len({each.name for each in found}) == 132
    assert {each.n for each in found} >= {5, 200}


def test_samples_are_of_their_kind():
    few, thin, lopsided = drawn("few"), drawn("thin"), drawn("lopsided")
    assert sum(few.counts) < few.p
    assert min(thin.counts) < thin.p <= max(thin.counts)
    assert max(lopsided.counts) / sum(lopsided.counts) == pytest.approx(0.8, abs=0.01)
    sizes = [np.linalg.norm(part - part.mean(axis=0), 2) for part in drawn("subspaces").samples()]
    assert max(sizes) / min(sizes) > 100
    for kind, least, most in (("steep", 1e2, 1e4), ("close", 1.0, 1.1)):
        problem = drawn(kind)
        lengths = np.linalg.svd(independent.prepared(problem.samples(), center=problem.center, scale=False))[1]
        last = lengths[-1] if kind == "steep" else lengths[min(problem.p, problem.n - 1)]
        assert least <= lengths[0] / last * (1 + 1e-9) <= most * (1 + 1e-6)


def test_tables_have_no_constant_columns_where_they_are_scaled():
    assert problems.real_samples("digits", is_scaled=False).shape == (1797, 64)
    assert problems.real_samples("digits", is_scaled=True).std(axis=0).min() > 0
    A = independent.prepared(drawn("wine").samples(), center=True, scale=True)
    np.testing.assert_allclose(A.mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(A.std(axis=1), 1)


# ---------------------------------------------------------------------- the judge


def test_an_eigenvector_is_stationary_and_one_that_is_turned_is_as_far_as_trigonometry_says():
    A = np.diag([3.0, 2.0, 1.0])
    assert independent.worth_of(A, np.eye(3)[:, :1], "none", 0.0).residual == 0
    for angle in (1e-9, 1e-3, 0.7):
        X = np.array([[np.cos(angle)], [np.sin(angle)], [0.0]])
        found = independent.worth_of(A, X, "none", 0.0)
        assert found.residual == pytest.approx((9 - 4) * np.sin(angle) * np.cos(angle) / 9, rel=1e-6)
        assert found.feasibility < 1e-15
    assert found.objective == pytest.approx(-(9 * np.cos(angle) ** 2 + 4 * np.sin(angle) ** 2) / 18)


@pytest.mark.parametrize("mu", [0.0, 0.1, 0.2, 0.3])
def test_a_unit_vector_is_stationary_if_no_product_beside_it_is_above_the_weight(mu):
    C = np.array([[1.0, 0.25, -0.15], [0.25, 0.9, 0.0], [-0.15, 0.0, 0.8]])
    expected = np.hypot(max(0.25 - mu, 0), max(0.15 - mu, 0))
    assert independent.stationarity(C, np.eye(3)[:, :1], "l1", mu) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize(("regularizer", "unit"), [("l1", 1.0), ("l21", np.sqrt(0.5))])
def test_a_residual_is_relative_to_a_weight_beyond_the_samples(regularizer, unit):
    A, X = np.diag([3.0, 2.0, 1.0]), np.linalg.qr(np.ones((3, 2)) + np.eye(3, 2))[0]
    weak, strong = (independent.worth_of(A, X, regularizer, mu).residual for mu in (1e-9, 9e9))
    alone = independent.stationarity(np.zeros((3, 3)), X, regularizer, 1.0)
    assert weak == pytest.approx(independent.stationarity(A @ A.T / 9, X, regularizer, 0.0), rel=1e-6)
    assert strong == pytest.approx(alone / unit, rel=1e-6)


@pytest.mark.parametrize("mu", [0.0, 0.1, 0.25, 0.5])
def test_rows_of_zeros_take_products_up_to_a_norm(mu):
    rng = np.random.default_rng(4)
    G = rng.standard_normal((6, 6))
    C, X = 0.1 * (G + G.T), np.eye(6)[:, :2]
    expected = np.linalg.norm([max(np.linalg.norm(row) - mu, 0) for row in C[2:, :2]])
    assert independent.stationarity(C, X, "l21", mu) == pytest.approx(expected, abs=1e-14)


def alternated(C, X, regularizer, mu, steps=20_000):
    """The same distance by alternating projections: slow, and written another way."""
    is_row = regularizer == "l21"
    sizes = np.linalg.norm(X, axis=1, keepdims=True) if is_row else np.abs(X)
    on = np.broadcast_to(sizes > 0, X.shape)
    s = np.where(on, mu * X / np.where(sizes > 0, sizes, 1), 0)
    for _ in range(steps):
        R = -C @ X + s
        XS = -X @ (X.T @ R + R.T @ X) / 2
        wanted = C @ X - XS
        if is_row:
            lengths = np.linalg.norm(wanted, axis=1, keepdims=True)
            wanted = wanted * np.minimum(1, mu / np.maximum(lengths, 1e-300))
        s = np.where(on, s, np.clip(wanted, -mu, mu) if not is_row else wanted)
    return np.linalg.norm(-C @ X + s + XS)


@pytest.mark.parametrize("regularizer", ["l1", "l21"])
@pytest.mark.parametrize("seed", range(3))
def test_the_distance_is_that_of_alternating_projections(regularizer, seed):
    rng = np.random.default_rng(seed)
    n, p = 9, 3
    G = rng.standard_normal((n, n))
    C, X = G @ G.T / np.linalg.norm(G @ G.T, 2), np.zeros((n, p))
    blocks = [(slice(0, 2), 0), (slice(2, 4), 1), (slice(4, 7), 2)]
    # X has zeros in every column, and rows of zeros.
    for rows, column in blocks:
        X[rows, column] = rng.standard_normal(rows.stop - rows.start)
    X /= np.linalg.norm(X, axis=0)
    found = independent.stationarity(C, X, regularizer, 0.15)
    assert found == pytest.approx(alternated(C, X, regularizer, 0.15, 3000), rel=1e-8)


def made_subgradient(rng, regularizer, mu, n=12, p=3):
    """X with zeros, and a subgradient s with a symmetric X's, at its bound in some of the rows that are zero."""
    X, s = np.zeros((n, p)), mu * rng.uniform(-1, 1, (n, p))
    s[6:9] = mu * np.sign(s[6:9])
    if regularizer == "l21":
        X[:6] = random_orthonormal(rng, 6, p)
        s *= mu / np.maximum(np.linalg.norm(s, axis=1, keepdims=True), mu)
        s[:6] = mu * X[:6] / np.linalg.norm(X[:6], axis=1, keepdims=True)
        return X, s
    X[:6] = np.repeat(np.eye(p), 2, axis=0) * rng.choice([0.6, -0.8], (6, 1))
    X /= np.linalg.norm(X, axis=0)
    beside = mu * (np.ones((p, p)) - np.eye(p))
    s[:6] = mu * np.sign(X[:6]) + X[:6] @ beside
    return X, s


@pytest.mark.parametrize("regularizer", ["l1", "l21"])
@pytest.mark.parametrize("seed", range(5))
def test_a_made_stationary_point_is_found_stationary_to_the_last_digits(regularizer, seed):
    rng, mu = np.random.default_rng(seed), 0.2
    X, s = made_subgradient(rng, regularizer, mu)
    tangent, K = s - X @ (X.T @ s), np.diag([3.0, 2.5, 2.0])
    # CX = s + XS with S = K - X's.
    C = tangent @ X.T + X @ tangent.T + X @ K @ X.T
    assert independent.stationarity(C, X, regularizer, mu) < 1e-13
    moved = random_orthonormal(rng, *X.shape)
    assert independent.stationarity(C, moved, regularizer, mu) > 0.1
    assert independent.stationarity(C, X, regularizer, 0.9 * mu) > 0.01 * mu


def test_columns_that_are_not_orthonormal_are_said_to_be_infeasible():
    found = independent.worth_of(np.eye(4), 2 * np.eye(4)[:, :2], "l1", 0.1)
    assert found.feasibility == pytest.approx(3 * np.sqrt(2))
    assert independent.worth_of(np.eye(4), np.zeros((4, 2)), "l1", 0.1).feasibility == pytest.approx(np.sqrt(2))


# ---------------------------------------------------------------------- outcomes


def pca_of(problem, _="pca", agents=2):
    """The right answer where there is no regularizer."""
    A = independent.prepared(problem.samples(), center=problem.center, scale=problem.scale)
    X = np.linalg.svd(A, full_matrices=False)[0][:, : problem.p]
    return answers.Answer(
        np.stack([X] * agents), has_converged=True, overall=None, rounds=7, messages=3, payload=9
    )


@pytest.fixture
def problem():
    found = (problems.draw(1, index) for index in range(1000))
    return next(each for each in found if each.data == "even" and each.regularizer == "none" and each.p < each.n)


def test_a_right_answer_is_right(problem):
    outcome = answers.attempt(problem, "pca", 60, pca_of)
    assert (outcome.ending, outcome.failure, outcome.is_good) == ("converged", "", True)
    assert outcome.residual < 1e-13


def test_wrong_answers_are_called_wrong(problem):
    right, rng = pca_of(problem), np.random.default_rng(1)
    moved = np.linalg.qr(right.sparse[0] + 1e-4 * rng.standard_normal(right.sparse[0].shape))[0]
    longer, zeros = 1.001 * right.sparse, right.sparse.copy()
    zeros[1, 0, 0] = 0
    nothing = np.full_like(right.sparse, np.nan)
    said = {
        "moved": moved[None],
        "one moved": np.stack([right.sparse[0], moved]),
        "longer": longer,
        "zeros": zeros,
    }
    for sparse in said.values():
        outcome = answers.assess(problem, "pca", replace(right, sparse=sparse))
        assert outcome.is_wrong
        assert outcome.failure.startswith("converged, but wrong")
    assert answers.assess(problem, "pca", replace(right, sparse=nothing)).ending == "diverged"
    unsure = answers.assess(problem, "pca", replace(right, sparse=moved[None], has_converged=False))
    assert not unsure.is_wrong
    assert unsure.failure.startswith("not converged")


def test_x_off_the_manifold_and_a_residual_that_is_certified_too_small_are_failures(problem):
    rng = np.random.default_rng(1)
    right = pca_of(problem)
    moved = np.linalg.qr(right.sparse[0] + 1e-8 * rng.standard_normal(right.sparse[0].shape))[0]
    slightly = answers.assess(problem, "pca", replace(right, sparse=moved[None], certified=1e-10))
    assert slightly.understatement > 10
    assert slightly.failure.startswith("certified 1.0e-10: ")
    honest = answers.assess(problem, "pca", replace(right, sparse=moved[None], certified=slightly.residual))
    assert (honest.understatement, honest.failure) == (1.0, "")
    assert answers.drift_of(np.array([np.eye(4, 2), 2 * np.eye(4, 2)])) == pytest.approx(3 * np.sqrt(2))
    off = answers.assess(problem, "pca", replace(right, drift=1.0))
    assert off.failure.startswith("off the manifold: ")


def test_agents_that_differ_in_what_is_zero_are_a_failure(problem):
    right = pca_of(problem)
    sparse = right.sparse.copy()
    sparse[0, 0, 0], sparse[1, 0, 0] = 1e-12, 0
    outcome = answers.assess(replace(problem, regularizer="none"), "pca", replace(right, sparse=sparse))
    assert outcome.has_one_support is False
    assert outcome.failure


def test_samples_divided_by_another_number_are_judged_by_it():
    problem = drawn("even", "l1")
    problem = replace(problem, p=1, mu=0.5)
    answer = pca_of(problem)
    A = independent.prepared(problem.samples(), center=problem.center, scale=problem.scale)
    outcome = answers.assess(problem, "pca", replace(answer, overall=100 * np.linalg.norm(A, 2)))
    assert outcome.divisor == pytest.approx(100)
    assert outcome.residual > answers.assess(problem, "pca", answer).residual


def test_what_is_raised_and_what_takes_too_long_is_an_outcome(problem):
    def endless(*_):
        while True:
            pass

    def broken(*_):
        raise ValueError("no\nluck")

    assert answers.attempt(problem, "x", 0.1, endless).failure == "out of time: more than 0.1 s of the processor"
    assert answers.attempt(problem, "x", 60, broken).failure == "error: ValueError: no luck"


def test_the_report_counts_and_repeats_failures(problem, tmp_path):
    right = answers.assess(problem, "gram", pca_of(problem))
    worse = replace(right, method="thanos", objective=right.objective + 0.5, residual=1e-3)
    outcomes = answers.with_gaps([right, worse])
    assert [outcome.gap for outcome in outcomes] == [0, pytest.approx(0.5)]
    printed = "\n".join(answers.report(outcomes))
    assert "| gram | 1 | 0 | 0 | 0 | 0 | 1 | 0 | 0 | 0 | 1.00 | 100.0% |" in printed
    assert "| thanos | 1 | 0 | 0 | 0 | 0 | 1 | 1 | 0 | 0 | 1.00 | 0.0% |" in printed
    assert f"--method thanos --seed 1 --only index={problem.index}`" in printed
    assert answers.chosen_problems(1, 1, [f"index={problem.index}"]) == [problem]
    answers.write_csv(tmp_path / "all.csv", outcomes)
    with (tmp_path / "all.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["method"] for line in lines] == ["gram", "thanos"]
    assert float(lines[1]["residual"]) == 1e-3


def test_problems_are_chosen_by_what_they_are():
    chosen = answers.chosen_problems(1, 132, ["graph=ring", "data=wine"])
    assert [(each.graph, each.data) for each in chosen] == [("ring", "wine")]
    assert {each.mu for each in answers.chosen_problems(1, 60, ["mu=0.05"])} == {0.05}
    for wrong in ("graph", "colour=red"):
        with pytest.raises(answers.click.BadParameter):
            answers.chosen_problems(1, 10, [wrong])


# Quick problems: most kinds of samples, among them two tables.
SAMPLE = (2, 20, 24, 27, 35, 43, 65, 78, 85)


@pytest.mark.parametrize("method", ["gram", "proximal", "proximal-tracking"])
@pytest.mark.parametrize("index", SAMPLE)
def test_the_exact_methods_find_the_answer(index, method):
    outcome = answers.attempt(problems.draw(1, index), method, 60)
    assert outcome.failure == ""
    assert outcome.is_good


# On the last, a star of 30, a bound of 0.5 / ||A||_2^2 for the steps led off the manifold.
@pytest.mark.parametrize("index", [*SAMPLE, 26])
def test_thanos_stays_near_the_manifold_and_claims_what_is_so(index):
    outcome = answers.attempt(problems.draw(1, index), "thanos", 60)
    assert outcome.ending in {"converged", "not converged"}
    assert (outcome.is_wrong, outcome.is_off, outcome.is_flattered) == (False, False, False)
    assert outcome.feasibility < 1e-9
    assert outcome.has_one_support


def test_the_command_prints_a_table():
    script = BENCHMARKS / "answers.py"
    printed = run(sys.executable, script, "--method", "gram", "--only", "index=3", "--processes", 1)
    assert "## By method" in printed
    assert "\n| path | gram | 1 |" in printed
    assert "## Failures: " in printed
