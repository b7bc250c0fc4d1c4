"""What is said of an answer: converged only where that is certified, and else why not and what to do."""

import numpy as np
import pytest
from networks import make_instance, make_topology, raw_topology
from uneven import LEADING, PREPARED, random_samples, raw_with_parts

from thanos_peer.convergence import SEARCHED, STATIONARY, have_all, judge
from thanos_peer.errors import DivergenceError
from thanos_peer.fitting import fit
from thanos_peer.simulate import AgentNetwork, StackedNetwork, measure
from thanos_peer.storage.summary import summarize

SMOOTHING = 'what is left is the smoothing: take method = "auto"'
MORE = 'raise max_rounds, or take method = "auto"'
EXACT = 'exchange = "float32" reaches about 1e-05: take "float64"'
SMALLER = 'take a smaller tolerance, or method = "auto"'
FEWER = "take fewer components, or a smaller tolerance"
STUCK = "it does not fall any further: take a larger tolerance, or another start"


def judged(
    residual,
    *,
    is_below=True,
    weakest=None,
    method="thanos",
    tolerance=1e-4,
    starts=None,
    is_shared=True,
    rounds=3000,
    **algorithm,
):
    raw = raw_topology(method=method, tolerance=tolerance)
    raw["algorithm"].update(algorithm)
    topology = make_topology(raw)
    given = {"is_below_tolerance": is_below, "rounds": rounds, "starts": starts, "is_shared": is_shared}
    return judge(topology, residual, weakest, **given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"residual": 3e-3}, f"residual 3.0e-03 above tolerance 0.0001 after 3000 rounds; {SMOOTHING}"),
        (
            {"residual": 3e-3, "is_below": False},
            f"residual 3.0e-03 above tolerance 0.0001 after 3000 rounds; {MORE}",
        ),
        (
            {"residual": 3e-3, "is_below": False, "method": "gram", "rounds": 4},
            f"residual 3.0e-03 above tolerance 0.0001 after 4 rounds; {STUCK}",
        ),
        (
            {"residual": 3e-3, "is_below": False, "method": "gram"},
            f"residual 3.0e-03 above tolerance 0.0001 after 3000 rounds; {SEARCHED}",
        ),
        (
            {"residual": 1.01e-4, "is_below": False, "method": "drgta"},
            f"residual 1.0e-04 above tolerance 0.0001 after 3000 rounds; {SMOOTHING}",
        ),
        (
            {"residual": 3e-3, "is_below": False, "method": "proximal", "max_rounds": 3001},
            "residual 3.0e-03 above tolerance 0.0001 after 3000 rounds; raise max_rounds",
        ),
        (
            {"residual": 3e-3, "is_below": False, "method": "proximal"},
            f"residual 3.0e-03 above tolerance 0.0001 after 3000 rounds; {STUCK}",
        ),
        (
            {"residual": 3e-3, "method": "proximal-tracking"},
            f"residual 3.0e-03 above tolerance 0.0001 after 3000 rounds; {SMALLER}",
        ),
        (
            {"residual": 3e-5, "is_below": False, "is_shared": False},
            f"residual 3.0e-05 within tolerance 0.0001, but the peers' own rule not met after 3000 rounds; {MORE}",
        ),
        (
            {"residual": 3e-5, "is_below": False, "method": "gram", "rounds": 4},
            "residual 3.0e-05 within tolerance 0.0001, but the peers' own rule not met after 4 rounds; " + STUCK,
        ),
        ({"residual": None, "is_below": False}, f"tolerance 0.0001 not reached after 3000 rounds; {MORE}"),
        (
            {"residual": 9e-5, "weakest": 1e-6, "method": "proximal"},
            "residual 9.0e-05, but its weakest component is worth 1.0e-06 and is not determined; " + FEWER,
        ),
        (
            {"residual": 9e-11, "weakest": 1e-11, "method": "gram"},
            "residual 9.0e-11, but its weakest component is worth 1.0e-11 and is not determined; " + FEWER,
        ),
        (
            {"residual": 1e-13, "weakest": 0.0, "method": "gram"},
            "residual 1.0e-13, but its weakest component is worth 0.0e+00 and is not determined; " + FEWER,
        ),
        (
            {"residual": 1.1, "tolerance": 2.0},
            f"residual 1.1e+00 above 1, the size of the problem itself; {SMOOTHING}",
        ),
        (
            {"residual": 1.4, "is_below": False},
            'residual 1.4e+00 above tolerance 0.0001 after 3000 rounds; take method = "auto"',
        ),
        (
            {"residual": 9e-5, "weakest": 1e-6, "is_below": False},
            f"residual 9.0e-05, but its weakest component is worth 1.0e-06 and is not determined; {MORE}",
        ),
        (
            {"residual": 3e-5, "is_below": False, "tolerance": 1e-6, "exchange": "float32"},
            f"residual 3.0e-05 above tolerance 1e-06 after 3000 rounds; {EXACT}",
        ),
        (
            {"residual": 3e-3, "is_below": False, "tolerance": 1e-6, "exchange": "float32"},
            f"residual 3.0e-03 above tolerance 1e-06 after 3000 rounds; {EXACT}; {MORE}",
        ),
        (
            {"residual": 3e-3, "is_below": False, "tolerance": 1e-6, "exchange": "float32", "method": "drgta"},
            f"residual 3.0e-03 above tolerance 1e-06 after 3000 rounds; {EXACT}; {SMOOTHING}",
        ),
        (
            {"residual": None, "is_below": False, "tolerance": 1e-6, "exchange": "float32"},
            f"tolerance 1e-06 not reached after 3000 rounds; {EXACT}; {MORE}",
        ),
    ],
)
def test_what_has_not_converged_is_said_with_the_residual_the_tolerance_and_what_to_do(given, said):
    assert judged(**given) == (f"not converged: {said}", False)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"residual": 1e-4}, "residual 1.0e-04, tolerance 0.0001"),
        ({"residual": 9e-9, "weakest": 1e-8}, "residual 9.0e-09, tolerance 0.0001"),
        ({"residual": 9e-5, "weakest": 1e-4}, "residual 9.0e-05, tolerance 0.0001"),
        ({"residual": 9e-5, "is_shared": False}, "residual 9.0e-05, tolerance 0.0001"),
        (
            {"residual": 3e-5, "is_below": False},
            "residual 3.0e-05, tolerance 0.0001; the peers' own rule was not met after 3000 rounds",
        ),
    ],
)
def test_what_has_converged_is_stationary_and_no_more_is_claimed(given, said):
    assert judged(**given) == (f"converged: {said}; {STATIONARY}", True)
    assert STATIONARY == "stationary, not necessarily the global minimum"


@pytest.mark.parametrize(
    ("starts", "said"),
    [
        (None, ""),
        (7, "; the best of 7 starts"),
        (3, "; only 3 of 7 starts searched: raise max_rounds"),
    ],
)
def test_how_many_starts_were_searched_is_said(starts, said):
    words = judged(1e-5, method="proximal", restarts=7, starts=starts).words
    assert words == f"converged: residual 1.0e-05, tolerance 0.0001; {STATIONARY}{said}"


def test_what_is_not_certified_has_neither_converged_nor_not():
    assert judged(None) == (
        "not certified: every peer says that it was below tolerance 0.0001 by its own rule",
        None,
    )
    assert judged(None, tolerance=0.0) == ("not judged: no tolerance was set", None)
    assert judged(0.25, tolerance=0.0) == ("not judged: no tolerance was set; residual 2.5e-01", None)


def test_all_have_converged_only_if_each_has():
    assert have_all([True, True]) is True
    assert have_all([True, None]) is None
    assert have_all([True, None, False]) is False


def run(raw, engine=StackedNetwork, **place):
    network = engine(make_instance(raw, **place))
    while not network.is_done:
        network.advance()
    return network


@pytest.mark.parametrize("method", ["thanos", "destiny", "proximal", "proximal-tracking"])
def test_wrong_components_are_not_called_converged_where_trailing_eigenvalues_are_tiny(tmp_path, method):
    """A residual that is small beside the first eigenvalue says nothing of the vectors of the last."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((120, 20)) @ np.diag(10.0 ** -np.minimum(np.arange(20), 4))
    rows = rows @ np.linalg.qr(rng.standard_normal((20, 20)))[0]
    settings = {"method": method, "p": 4, "max_rounds": 4000, "tolerance": 1e-3}
    settings |= {"regularizer": "none"} if method == "destiny" else {"mu": 0.0}
    data = PREPARED | {"scale": False}
    raw = raw_with_parts(
        tmp_path, np.array_split(rows, 3), "path", data=data, start={"kind": "random", "seed": 2}, **settings
    )
    network = run(raw, file=tmp_path / "net.toml")
    found = np.linalg.svd(np.linalg.svd(rows - rows.mean(axis=0))[2][:4] @ network.X[0], compute_uv=False)
    assert found.min() < 0.5  # the fourth component is another
    assert network.is_below_tolerance
    assert network.found.residual < 1e-2
    assert network.has_converged is False


def rows_with(singular_values, seed=5):
    """Forty samples with these singular values."""
    rng, n = np.random.default_rng(seed), len(singular_values)
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    return np.linalg.qr(rng.standard_normal((40, n)))[0] * singular_values @ Q.T


def fitted(rows, p):
    settings = {"method": "gram", "regularizer": "none", "center": False, "scale": False, "tolerance": 1e-9}
    return fit(np.array_split(rows, 4), p, start="random", **settings)


def test_a_component_that_is_worth_less_than_the_residual_is_not_determined():
    """However little that is: its vector is in no way that of the data."""
    rows = rows_with([1, 1e-2, 1e-3, 2e-5] + 4 * [1e-5])
    result = fitted(rows, 4)
    found = np.linalg.svd(np.linalg.svd(rows)[2][:4] @ result.components_.T, compute_uv=False)
    assert found.min() < 0.5
    assert result.facts["residual"] < 1e-9
    assert result.facts["has_converged"] is False
    assert ", but its weakest component is worth " in result.facts["verdict"]
    assert f" and is not determined; {FEWER}" in result.facts["verdict"]


def test_components_beyond_the_rank_of_the_samples_are_worth_nothing_and_any_will_do():
    result = fitted(rows_with([1, 1e-2, 1e-3, 0, 0, 0, 0, 0]), 5)
    assert result.facts["has_converged"] is True


def test_components_beyond_the_rank_hide_none_that_is_not_determined():
    """Those before them count as ever."""
    facts = fitted(rows_with([1, 1e-2, 1e-3, 3e-6, 0, 0, 0, 0]), 5).facts
    assert 9e-12 < facts["residual"] < 1e-9
    assert facts["has_converged"] is False


def test_tiny_samples_without_a_size_are_not_converged_because_they_are_tiny(tmp_path):
    rows = 1e-4 * random_samples(60, 5)
    rows = 1e-4 * (rows - rows.mean(axis=0)) / rows.std(axis=0)
    raw = raw_with_parts(
        tmp_path,
        np.array_split(rows, 2),
        "path",
        data={"kind": "files"},
        start={"kind": "random", "seed": 1},
        mu=0.0,
        tolerance=1e-4,
    )
    raw["algorithm"] |= {"beta": 1.0, "step": {"rule": "bb", "first": 0.1}}
    network = run(raw, AgentNetwork, file=tmp_path / "net.toml")
    assert "size" not in network.rounds_by_phase
    assert network.is_below_tolerance
    assert network.has_converged is False


@pytest.mark.parametrize("is_certified", [False, True])
def test_what_is_certified_has_converged_before_the_methods_own_rule_is_met(tmp_path, is_certified):
    """Without data files the agents certify nothing, and each has its own answer."""
    place, parts = {"file": tmp_path / "net.toml"}, np.array_split(random_samples(60, 5), 3)
    raw = raw_with_parts(
        tmp_path, parts, "path", start=LEADING, method="proximal-tracking", tolerance=1e-3, max_rounds=1000
    )
    if not is_certified:
        raw["problem"]["data"] = {"kind": "synthetic", "samples": 30, "seed": 1}
        for peer in raw["peers"]:
            del peer["data"]
    raw["algorithm"]["max_rounds"] = run(raw, **place).k - 1
    network = run(raw, **place)
    summary = summarize(network, instance := make_instance(raw, **place), measure(network, instance), seconds=1.0)
    assert not network.is_below_tolerance
    assert network.has_converged is summary.has_converged is is_certified
    assert summary.residual < 1e-3
    assert "; the peers' own rule was not" in summary.verdict or ", but the peers' own rule not" in summary.verdict


def test_the_objective_of_the_answer_that_is_judged_stands_beside_that_of_the_mean(tmp_path):
    place, parts = {"file": tmp_path / "net.toml"}, np.array_split(random_samples(60, 5), 3)
    raw = raw_with_parts(tmp_path, parts, "path", start=LEADING, tolerance=1e-4, max_rounds=300)
    network = run(raw, **place)
    summary = summarize(network, instance := make_instance(raw, **place), measure(network, instance), seconds=1.0)
    sparse, whole = network.sparse[0], instance.divided_by(network.overall).whole
    assert np.abs(sparse.T @ sparse - np.eye(sparse.shape[1])).max() < 1e-9
    assert summary.judged_objective == pytest.approx(whole.value(sparse))
    assert abs(summary.judged_objective - summary.objective) > 1e-9
    said = f"\n  objective, judged   {summary.judged_objective:.9g}  (of X with exact zeros, "
    assert said in summary.in_words()


@pytest.mark.parametrize("first", ["auto", 0.1])
def test_steps_with_an_automatic_bound_settle_where_those_of_the_paper_diverge(tmp_path, first):
    """A path of four, each with samples in a plane of its own; plain PCA, from the solution."""
    rng = np.random.default_rng(2)
    basis = np.linalg.qr(rng.standard_normal((8, 8)))[0]
    parts = [
        rng.standard_normal((20, 2)) * 10.0 ** rng.uniform(-1, 1) @ basis[:, 2 * i : 2 * i + 2].T
        + 0.01 * rng.standard_normal((20, 8))
        for i in range(4)
    ]
    data, settings = PREPARED | {"scale": False}, {"mu": 0.0, "max_rounds": 3000, "tolerance": 1e-4}
    raw = raw_with_parts(tmp_path, parts, "path", data=data, start=LEADING, **settings)
    raw["algorithm"]["step"] = {"rule": "bb", "first": first}
    if first != "auto":
        with pytest.raises(DivergenceError, match=r'algorithm\.step.* method = "auto"'):
            run(raw, file=tmp_path / "net.toml")
        return
    network = run(raw, file=tmp_path / "net.toml")
    rows = np.concatenate(parts)
    found = np.linalg.svd(np.linalg.svd(rows - rows.mean(axis=0))[2][:2] @ network.X[0], compute_uv=False)
    assert network.has_converged
    assert found.min() > 1 - 1e-6


@pytest.mark.parametrize("kind", ["svd", "random", "leading"])
@pytest.mark.parametrize("method", ["drgta", "dprgt", "vrsgt"])
def test_what_gradient_tracking_calls_done_is_so_by_the_verdict(method, kind):
    """Where the start is not found by the network, agents know no more of ||A||_2^2 than a bound."""
    raw = raw_topology("ring", 8, n=10, p=3, samples=80, regularizer="none", mu=0.0, method=method)
    raw["algorithm"] |= {"max_rounds": 3000, "tolerance": 1e-6, "start": {"kind": kind}}
    raw["algorithm"]["start"] |= {"seed": 1} if kind == "random" else {}
    network = run(raw)
    summary = summarize(network, instance := make_instance(raw), measure(network, instance), seconds=1.0)
    assert network.is_below_tolerance
    assert summary.has_converged
