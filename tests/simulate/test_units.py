"""The unit of f + g decides nothing: not what has converged, nor how long that takes."""

from pathlib import Path

import numpy as np
import pytest
import tomlkit
from cli.commands import call
from networks import make_instance
from uneven import raw_with_parts

from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.convergence import CHECK
from thanos_peer.errors import DataFileError, DivergenceError, OwnCodeError
from thanos_peer.problem import build
from thanos_peer.simulate import AgentNetwork, StackedNetwork
from thanos_peer.topology import load

EXAMPLE = Path(__file__).parents[2] / "examples"
RANDOM = {"kind": "random", "seed": 3}
FILES = {"kind": "files"}
N, P = 5, 2
MODULE = """
import numpy as np

class Mine:
    def __init__(self, samples, unit=1.0, kind="pca"):
        self.A, self.unit, self.kind, self.calls = samples, unit, kind, 0

    def value(self, X):
        at = self.A @ X
        return self.unit * (np.abs(at).sum() if self.kind == "kinks" else -(at**2).sum() / 2)

    def gradient(self, X):
        at = self.A @ X
        if self.kind == "kinks":
            return self.unit * self.A.T @ np.sign(at)
        self.calls += 1
        is_wrong = self.kind == "wrong" or (self.kind == "wrong later" and self.calls > 10)
        return self.unit * (1 if is_wrong else -1) * self.A.T @ at
"""


def parts(unit=1.0):
    rng = np.random.default_rng(0)
    return [unit * rng.standard_normal((20, N)) for _ in range(3)]


def run(raw, tmp_path, engine=StackedNetwork, allowed=()):
    (tmp_path / "net.toml").write_text(tomlkit.dumps(raw), encoding="utf-8")
    network = engine(build(load(tmp_path / "net.toml", allowed_code=allowed)))
    while not network.is_done:
        network.advance()
    return network


def run_own(tmp_path, unit, kind="pca", mu=0.1, **algorithm):
    """Sparse PCA, or nearly, as an objective of one's own."""
    module = tmp_path / "units_of_ones_own.py"
    module.write_text(MODULE, encoding="utf-8")
    raw = raw_with_parts(tmp_path, parts(), "path", data=FILES, start=RANDOM, method="auto", mu=mu * unit)
    raw["problem"] |= {"objective": f"{module.stem}:Mine", "objective_options": {"unit": unit, "kind": kind}}
    raw["algorithm"] = {"method": "auto", "start": RANDOM} | algorithm
    return run(raw, tmp_path, allowed=(str(module),))


def test_the_shipped_example_converges_by_the_exact_method_and_is_told_so(tmp_path):
    file, code = EXAMPLE / "dual_pca.toml", EXAMPLE / "dual_pca.py"
    out = call("simulate", file, "--allow-code", code, "--method", "auto", "-q", "--out", tmp_path / "run").stdout
    assert "of the non-smooth problem, relative to the largest gradient" in out
    assert "converged: residual" in out
    assert "not converged" not in out
    assert ", tolerance 1e-10;" in out


@pytest.mark.parametrize("mu", [0.0, 0.1])
def test_an_objective_in_another_unit_takes_the_same_rounds_to_the_same_answer(tmp_path, mu):
    small, plain, large = (run_own(tmp_path, unit, mu=mu) for unit in (1e-8, 1.0, 1e8))
    assert small.has_converged
    assert plain.has_converged
    assert large.has_converged
    assert plain.k == pytest.approx(small.k, rel=0.1) == pytest.approx(large.k, rel=0.1)
    assert np.abs(small.X - plain.X).max() < 1e-7
    assert np.abs(large.X - plain.X).max() < 1e-7
    assert float(small.found.residual) == pytest.approx(float(large.found.residual), abs=1e-10)


@pytest.mark.parametrize("unit", [1e-8, 1e8])
def test_a_gradient_of_the_wrong_sign_is_refused_or_not_called_converged(tmp_path, unit):
    with pytest.raises(OwnCodeError, match="gradient contradicts"):
        run_own(tmp_path, unit, "wrong")
    network = run_own(tmp_path, unit, "wrong later")
    assert network.has_converged is False
    assert network.convergence.words.endswith(CHECK)


@pytest.mark.parametrize("unit", [1e-11, 1.0])
def test_an_objective_with_kinks_is_not_called_converged_where_no_step_holds(tmp_path, unit):
    network = run_own(tmp_path, unit, "kinks", mu=0.0, max_rounds=1000)
    assert network.has_converged is False
    assert float(network.found.residual) > 1e-3


@pytest.mark.parametrize("regularizer", ["l1", "l21"])
@pytest.mark.parametrize("method", ["gram", "proximal", "proximal-tracking"])
@pytest.mark.parametrize(("unit", "mu"), [(1.0, 1e8), (1e-10, 0.1)])
def test_a_mu_beyond_all_data_ends_at_once_with_the_sparsest_matrix(tmp_path, method, regularizer, unit, mu):
    raw = raw_with_parts(tmp_path, parts(unit), "path", data=FILES, method=method, regularizer=regularizer, mu=mu)
    raw["algorithm"] = {"method": method, "start": {"kind": "leading"}}
    network = run(raw, tmp_path)
    X, sparse = network.X[0], network.sparse[0]
    assert network.has_converged
    assert network.k < 100
    assert sparse.any(axis=0).all()
    assert np.count_nonzero(sparse.any(axis=1)) == P
    # Each column has a single one, of either sign.
    assert regularizer != "l1" or np.abs(sparse).sum() == P
    assert np.linalg.norm(X.T @ X - np.eye(P)) < 1e-12
    assert np.abs(X - sparse).max() < 1e-12


def test_the_summary_of_a_steep_problem_says_what_its_residual_is_relative_to(tmp_path):
    raw = raw_with_parts(tmp_path, parts(), "path", data=FILES, method="auto", mu=1e8)
    raw["algorithm"] = {"method": "auto"}
    assert make_instance(raw, file=tmp_path / "net.toml").unit_in_words == "the slope of the regularizer"
    raw["problem"]["mu"] = 0.1
    assert make_instance(raw, file=tmp_path / "net.toml").unit_in_words == "||A||^2"


@pytest.mark.parametrize("method", ["gram", "proximal", "proximal-tracking"])
def test_samples_too_large_to_be_squared_twice_are_refused_with_their_size(tmp_path, method):
    raw = raw_with_parts(tmp_path, parts(1e100), "path", data=FILES, method=method)
    raw["algorithm"] = {"method": method, "start": {"kind": "leading"}}
    with pytest.raises(DataFileError, match=r"\|\|A\|\|_F\^2 = 3.1e\+202: scale the files of all peers down"):
        run(raw, tmp_path, AgentNetwork)


def test_a_method_without_step_or_sigma_does_not_advise_them_where_it_diverges(tmp_path):
    raw = raw_with_parts(tmp_path, parts(1e30), "path", data=FILES, method="proximal-tracking")
    raw["algorithm"] = {"method": "proximal-tracking", "start": {"kind": "leading"}}
    with pytest.raises(DivergenceError) as caught:
        run(raw, tmp_path, AgentNetwork)
    words = str(caught.value)
    assert 'problem.data.overall = "auto"' in words
    assert "step" not in words
    assert "sigma" not in words


@pytest.mark.parametrize("rounds", [1, 10])
def test_a_search_by_destiny_that_was_cut_short_finds_what_its_own_start_captures(tmp_path, rounds):
    start = {"kind": "destiny", "seed": 1, "max_rounds": rounds}
    data = FILES | {"center": True, "overall": "auto"}
    raw = raw_with_parts(
        tmp_path, [u * A for u, A in zip((1, 3, 9), parts(), strict=True)], "path", data=data, start=start
    )
    network = run(raw, tmp_path)
    rows = np.concatenate([u * A for u, A in zip((1, 3, 9), parts(), strict=True)])
    f = SparsePCA((rows - rows.mean(axis=0)).T)
    captured = f.captured(network.found.start)
    assert float(network.found.overall) ** 2 == pytest.approx(captured[0, 0], rel=1e-10)
    assert captured == pytest.approx(np.diag(np.diag(captured)), abs=1e-9 * captured[0, 0])


def test_the_exact_method_in_the_network_ends_where_rounding_lets_nothing_fall(tmp_path):
    raw = raw_with_parts(tmp_path, parts(), "path", data=FILES, method="proximal", mu=0.1)
    raw["algorithm"] = {"method": "proximal", "start": RANDOM, "tolerance": 1e-17}
    network = run(raw, tmp_path)
    assert network.k < 3000
    assert float(network.found.residual) < 1e-14
    assert network.has_converged is False
    assert "it does not fall any further: take a larger tolerance" in network.convergence.words


def test_starts_that_there_was_no_time_for_are_counted(tmp_path):
    raw = raw_with_parts(tmp_path, parts(), "path", data=FILES, method="proximal", mu=5.0)
    raw["algorithm"] = {"method": "proximal", "restarts": 1000, "max_rounds": 300}
    few = run(raw, tmp_path)
    assert 1 < few.starts < 100
    assert few.convergence.words.endswith(f"only {few.starts} of 1000 starts searched: raise max_rounds")
    raw["algorithm"] = {"method": "gram", "restarts": 3}
    assert run(raw, tmp_path).convergence.words.endswith("the best of 3 starts")
