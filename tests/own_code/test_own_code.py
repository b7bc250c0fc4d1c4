"""Objectives and regularizers of one's own: run where that is allowed; what they do wrong is one line."""

import json
import sys

import numpy as np
import pytest
from cli.commands import call
from own_code.classes import raw_with, write

from thanos_peer.algorithm import reference
from thanos_peer.algorithm.contradictions import gradient_contradiction, prox_contradiction
from thanos_peer.algorithm.stiefel import polar
from thanos_peer.errors import OwnCodeError
from thanos_peer.preparation.own import Own
from thanos_peer.problem import build, share_of
from thanos_peer.rules import share_of_regularizer
from thanos_peer.simulate import AgentNetwork, StackedNetwork
from thanos_peer.topology import load
from thanos_peer.topology.data import samples_of


def allowed(directory, raw):
    module, file = write(directory, raw)
    return load(file, allowed_code=[str(module)])


@pytest.mark.parametrize(
    "words", [["simulate"], ["run"], ["verify"], ["chaos"], ["start", "--id", "0", "--topology"]]
)
def test_code_that_is_not_allowed_is_named_and_not_imported(words, tmp_path, monkeypatch):
    module, file = write(tmp_path, raw_with())
    monkeypatch.chdir(tmp_path)
    result = call(*words, file, code=3)
    assert result.stderr.startswith(f'Error: {file}: problem.objective = "mine:Quartic" is Python code')
    assert "--allow-code mine" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not module.with_name("imported").exists()
    assert list(tmp_path.glob("runs*")) == []


def test_another_module_being_allowed_is_not_enough(tmp_path):
    module, file = write(tmp_path, raw_with())
    with pytest.raises(OwnCodeError, match="--allow-code mine"):
        build(load(file, allowed_code=["other", "mine.other", str(tmp_path / "other.py"), str(tmp_path)]))
    assert not module.with_name("imported").exists()


@pytest.mark.parametrize("words", [["topology", "check"], ["status", "--timeout", "0.1"]])
def test_what_only_looks_at_a_file_imports_nothing(words, tmp_path, monkeypatch):
    module, file = write(tmp_path, raw_with())
    monkeypatch.setenv("THANOS_PEER_ALLOW_CODE", str(module))
    call(*words, file, code=6 if words[0] == "status" else 0)
    assert not module.with_name("imported").exists()


def test_an_agent_minimises_its_own_samples_with_the_options_of_the_file(tmp_path):
    topology = allowed(tmp_path, raw_with(objective_options={"power": 6}))
    instance = build(topology)
    X = np.linalg.qr(np.random.default_rng(3).standard_normal((6, 2)))[0]
    for local, samples in zip(instance.local_problems, samples_of(topology, range(4)), strict=True):
        assert local.f.value(X) == -((samples @ X) ** 6).sum() / 6
        np.testing.assert_array_equal(local.f.gradient(X), -samples.T @ (samples @ X) ** 5)


def test_each_agent_has_its_share_of_a_regularizer(tmp_path):
    raw = raw_with(regularizer="mine:Ridge", mu=0.8, regularizer_options={"factor": 3.0})
    g = share_of_regularizer(allowed(tmp_path, raw))
    X = np.ones((6, 2))
    assert g.value(X) == pytest.approx(0.2 * 3 * 12 / 2)
    np.testing.assert_allclose(g.prox(X, 0.5), X / 1.3)
    np.testing.assert_allclose(g.prox(np.array([X, 2 * X]), 0.5), np.array([X, 2 * X]) / 1.3)
    beyond = 2 * np.sqrt(2)  # ||X||_F, twice that of the manifold
    assert g.lipschitz(6, 2) == pytest.approx(0.2 * 3 * beyond, rel=1e-3)  # its slope there; it says nothing
    raw["problem"]["regularizer"] = "mine:Steep"
    (tmp_path / "other").mkdir()
    steep = share_of_regularizer(allowed(tmp_path / "other", raw))
    assert steep.lipschitz(6, 2) == 3.0
    np.testing.assert_allclose(steep.prox_derivative(X, 0.5, 2 * X), 2 * X / 1.3)
    assert not hasattr(g, "prox_derivative")


def test_a_class_that_changes_its_options_changes_a_copy(tmp_path):
    raw = raw_with(regularizer="mine:Consuming", mu=0.8, regularizer_options={"factors": [1.0, 3.0]})
    topology = allowed(tmp_path, raw)
    for _ in range(2):
        assert share_of_regularizer(topology).value(np.ones((6, 2))) == pytest.approx(0.2 * 3 * 12 / 2)
    assert topology.problem.regularizer_options == {"factors": [1.0, 3.0]}


def test_a_regularizer_is_made_once_and_its_slope_is_looked_for_on_both_sides(tmp_path):
    g = share_of_regularizer(allowed(tmp_path, raw_with(regularizer="mine:OneSided", mu=0.8)))
    assert sys.modules["mine"].OneSided.made == 1
    assert hasattr(g, "prox_derivative")
    assert g.lipschitz(6, 2) == pytest.approx(0.2)


def test_a_gradient_whose_square_is_beyond_all_numbers_is_refused_in_one_line(tmp_path):
    raw = raw_with("mine:Huge")
    raw["algorithm"] = {"method": "proximal"}
    topology = allowed(tmp_path, raw)
    with pytest.raises(OwnCodeError, match=r"mine:Huge.gradient returned numbers of 1e.140 or more"):
        run_to_the_end(topology)


@pytest.mark.parametrize("problem", [{}, {"regularizer": "mine:Ridge"}, {"objective": None}])
def test_stacked_agents_have_the_bits_of_single_ones(problem, tmp_path):
    raw = raw_with(**problem)
    if raw["problem"]["objective"] is None:
        del raw["problem"]["objective"]
        raw["problem"]["regularizer"] = "mine:Ridge"
    topology = allowed(tmp_path, raw)
    networks = AgentNetwork(build(topology)), StackedNetwork(build(topology))
    for network in networks:
        while not network.is_done:
            network.advance()
    assert networks[0].X.tobytes() == networks[1].X.tobytes()
    assert networks[0].k == 30


@pytest.mark.parametrize(
    "problem",
    [
        {"mu": 0.1},
        {"mu": 0.001},
        {"regularizer": "l21", "mu": 0.01},
        {"regularizer": "mine:Ridge", "mu": 0.1},
        {"regularizer": "mine:Steep", "mu": 0.1},
    ],
    ids=lambda problem: "-".join(map(str, problem.values())),
)
def test_the_exact_method_finds_what_a_solver_with_all_samples_finds(problem, tmp_path):
    raw = raw_with(**problem)
    raw["algorithm"] = {"method": "auto", "start": {"kind": "random", "seed": 1}}
    topology = allowed(tmp_path, raw)
    assert topology.method == "proximal"
    instance = build(topology)
    networks = AgentNetwork(instance), StackedNetwork(instance)
    for network in networks:
        while not network.is_done:
            network.advance()
    agents, stacked = networks
    assert agents.X.tobytes() == stacked.X.tobytes() == 4 * agents.X[0].tobytes()
    assert agents.k == stacked.k
    assert agents.has_converged
    X, g = agents.X[0], instance.whole_regularizer
    assert np.abs(X.T @ X - np.eye(2)).max() < 1e-14
    best = reference.solve(instance.whole.f, g, instance.start, lipschitz=1.0)
    assert best.is_precise
    assert instance.whole.value(X) == pytest.approx(instance.whole.value(best.X), abs=1e-12)
    assert ((X != 0) == (np.abs(best.X) > 1e-8)).all()


def exactly(tmp_path, name, seed=1, **problem):
    raw = raw_with(name, **problem)
    raw["algorithm"] = {"method": "proximal", "start": {"kind": "random", "seed": seed}}
    return allowed(tmp_path, raw)


def run_to_the_end(topology):
    network = AgentNetwork(build(topology))
    while not network.is_done:
        network.advance()
    return network


@pytest.mark.parametrize("factor", [1.0, 1e-3, 0.0, 1e3], ids=["right", "far too small", "none", "too large"])
def test_the_exact_method_begins_with_the_bounds_of_all_agents_and_mends_a_wrong_one(tmp_path, factor):
    options = {"objective_options": {"factor": factor}} if factor else {}
    topology = exactly(tmp_path, "mine:Bounded" if factor else "mine:Quartic", mu=0.01, **options)
    network = run_to_the_end(topology)
    instance, found = build(topology), network.agents[0].runner.found
    own = [getattr(share.own.data, "lipschitz", lambda: 0.0)() for share in instance.shares]
    assert (min(own) > 0) == (factor > 0)
    assert float(found.size) == pytest.approx(sum(own), rel=1e-15)
    assert network.rounds_by_phase["size"] == topology.graph.tree.rounds
    first = instance.shares[0].prepare_main(found)
    # Residuals are in units of the gradient.
    assert (first.size, first.lipschitz) == (None, float(found.size))
    assert network.has_converged
    best = reference.solve(instance.whole.f, instance.whole_regularizer, instance.start, lipschitz=1.0)
    assert instance.whole.value(network.X[0]) == pytest.approx(instance.whole.value(best.X), abs=1e-12)


@pytest.mark.parametrize(("factor", "said"), [(-1.0, "must be >= 0"), (1e200, "below 1e.140")])
def test_a_bound_that_cannot_be_one_is_refused_in_one_line(tmp_path, factor, said):
    topology = exactly(tmp_path, "mine:Bounded", objective_options={"factor": factor})
    with pytest.raises(OwnCodeError, match=rf"mine:Bounded.lipschitz returned .*{said}"):
        run_to_the_end(topology)


def test_all_evaluate_at_the_start_of_the_root_though_an_agent_computes_another(tmp_path, monkeypatch):
    topology = exactly(tmp_path, "mine:Quartic", mu=0.01)
    expected, start, root = run_to_the_end(topology), Own.start, topology.graph.tree.root

    def rounded_otherwise(self, found):
        X = start(self, found)
        return X if found.start is not None or self.agent == root else polar(X + 1e-9)

    monkeypatch.setattr(Own, "start", rounded_otherwise)
    network = run_to_the_end(topology)
    assert network.X.tobytes() == expected.X.tobytes()
    assert network.k == expected.k


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mine:Raises", "mine:Raises.gradient failed: RuntimeError: no luck"),
        ("mine:Late", "mine:Late.gradient failed: RuntimeError: enough"),
        ("mine:Exits", "mine:Exits(...) failed: SystemExit: 9"),
        ("mine:Flat", "mine:Flat.gradient returned an array of shape (12,); must be (6, 2)"),
        ("mine:NotFinite", "mine:NotFinite.gradient returned numbers that are not finite"),
        ("mine:Text", "mine:Text.gradient failed: ValueError: could not convert string to float: "),
        ("mine:Writes", "mine:Writes.gradient failed: ValueError: assignment destination is read-only"),
        ("mine:NoGradient", "mine:NoGradient has no method gradient"),
        ("mine:Nothing", "mine:Nothing: there is no such class in "),
        ("mine:number", "mine:number: there is no such class in "),
        ("mine:touch", "mine:touch: there is no such class in "),
        ("mine:Path", "mine:Path: this class is defined in pathlib; name it there, and allow that"),
    ],
)
def test_what_own_code_does_wrong_is_said_in_one_line(name, said, tmp_path):
    module, file = write(tmp_path, raw_with(name))
    result = call("simulate", file, "--quiet", "--allow-code", module, "--out", tmp_path / "out", code=3)
    assert result.stderr.startswith(f"Error: {said}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["Doubled", "Shifted", "Opposite"])
def test_a_gradient_of_another_function_than_value_is_refused_in_one_line(name, tmp_path):
    module, file = write(tmp_path, raw_with(f"mine:{name}"))
    result = call("simulate", file, "--quiet", "--allow-code", module, "--out", tmp_path / "out", code=3)
    said = f"Error: mine:{name}.gradient contradicts mine:{name}.value: value changes by "
    assert result.stderr.startswith(said)
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("mu", [1e-6, 0.1, 30.0])
@pytest.mark.parametrize(
    ("name", "factor"),
    [("Lasso", 3.0), ("Lasso", 0.5), ("Lasso", 1.05), ("Lasso", 0.0), ("Still", 1.0), ("Count", 1.0)],
)
def test_a_prox_of_another_function_than_value_is_refused(name, factor, mu, tmp_path):
    options = {"regularizer_options": {"factor": factor}, "mu": mu}
    topology = allowed(tmp_path, raw_with(regularizer=f"mine:{name}", **options))
    with pytest.raises(OwnCodeError, match=rf"^mine:{name}.prox contradicts mine:{name}.value: prox\(X, "):
        build(topology)


@pytest.mark.parametrize("mu", [0.0, 1e-6, 0.1, 30.0])
@pytest.mark.parametrize("name", ["Lasso", "NotNegative", "Ridge", "Steep", "OneSided"])
def test_a_prox_that_is_that_of_value_is_not(name, mu, tmp_path):
    build(allowed(tmp_path, raw_with(regularizer=f"mine:{name}", mu=mu)))


# In single precision a shift would leave no digit.
@pytest.mark.parametrize(("dtype", "shift"), [(np.float32, 0.0), (np.float64, 0.0), (np.float64, 1e6)])
@pytest.mark.parametrize("width", [1.0, 1e-3, 1e-9])
def test_kinks_and_rounding_are_no_contradiction(width, shift, dtype):
    """A Huber loss, nearly without kinks or with sharp ones, by a class that computes in either precision."""
    samples = np.random.default_rng(2).standard_normal((30, 6)).astype(dtype)

    class Huber:
        def value(self, X):
            far = abs(samples @ X.astype(dtype))
            return float(np.where(far < width, far**2 / (2 * width), far - width / 2).mean()) + shift

        def gradient(self, X):
            Z = samples @ X.astype(dtype)
            return (samples.T @ np.clip(Z / dtype(width), -1, 1) / Z.size).astype(float)

    assert gradient_contradiction(Huber(), 6, 2) is None


def test_options_that_a_class_does_not_know_are_said_in_one_line(tmp_path):
    topology = allowed(tmp_path, raw_with(objective_options={"colour": "red"}))
    with pytest.raises(OwnCodeError, match=r"mine:Quartic\(...\) failed: TypeError: .*colour"):
        share_of(topology, 0)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import nowhere_to_be_found", "mine:Quartic cannot be imported: ModuleNotFoundError: No module named"),
        ("1 / 0", "mine:Quartic cannot be imported: ZeroDivisionError: division by zero"),
        ("def", "mine:Quartic cannot be imported: SyntaxError: "),
        ("raise SystemExit", "mine:Quartic cannot be imported: SystemExit"),
        (None, "mine:Quartic cannot be imported: FileNotFoundError: "),
    ],
)
def test_a_module_that_cannot_be_imported_is_said_in_one_line(source, said, tmp_path):
    module, file = write(tmp_path, raw_with())
    if source is None:
        module.unlink()
    else:
        module.write_text(source, encoding="utf-8")
    result = call("simulate", file, "--allow-code", module, "--out", tmp_path / "out", code=3)
    assert result.stderr.startswith(f"Error: {said}")
    assert result.stderr.count("\n") == 1


def test_a_module_that_is_not_there_is_said_with_what_to_do(tmp_path):
    _, file = write(tmp_path, raw_with("nowhere.at_all:Thing"))
    with pytest.raises(OwnCodeError, match=r"there is no module nowhere on Python's path; install it$"):
        build(load(file, allowed_code=["nowhere.at_all"]))


def test_an_installed_module_is_allowed_by_its_name(tmp_path):
    topology = load(write(tmp_path, raw_with("own_code.tidy:Tidy"))[1], allowed_code=["own_code.tidy"])
    assert AgentNetwork(build(topology)).agents[0].k == 0


def test_results_say_nothing_of_variance(tmp_path):
    module, file = write(tmp_path, raw_with())
    out = tmp_path / "out"
    said = call("simulate", file, "--quiet", "--allow-code", module, "--out", out).stdout
    assert "variance" not in said
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    facts = json.loads((out / "peers/0.json").read_text(encoding="utf-8"))
    assert summary["variance_explained"] is None
    assert facts["explained_variance"] is None
    assert facts["objective"] == summary["objective"]
    assert (
        "with another objective there is no reference"
        in call(
            "simulate", file, "--reference", "--allow-code", module, "--out", tmp_path / "other", code=3
        ).stderr
    )


class Shifted:
    """The sum of all |x|, and a constant; its prox takes away `factor` times as much as it should."""

    def __init__(self, constant, factor, outside=0.0):
        self.constant, self.factor, self.outside = constant, factor, outside

    def value(self, X):
        is_outside = self.outside and (X < 0).any()
        return self.outside if is_outside else 0.1 * abs(X).sum() + self.constant

    def prox(self, X, sigma):
        P = np.sign(X) * np.maximum(abs(X) - 0.1 * sigma * self.factor, 0)
        return np.maximum(P, 0) if self.outside else P


@pytest.mark.parametrize("constant", [0.0, 1.0, 10.0, 1000.0, -1000.0])
def test_a_constant_hides_no_wrong_prox(constant):
    assert prox_contradiction(Shifted(constant, 1.0), 6, 2) is None
    assert prox_contradiction(Shifted(constant, 3.0), 6, 2) is not None


@pytest.mark.parametrize("outside", [1e30, np.inf])
def test_a_constraint_is_asked_for_its_value_where_it_holds_only(outside):
    assert prox_contradiction(Shifted(0.0, 1.0, outside), 6, 2) is None
    assert prox_contradiction(Shifted(0.0, 3.0, outside), 6, 2) is not None


@pytest.mark.parametrize("sign", [-1.0, 1.0, 2.0])
def test_an_objective_need_be_known_on_the_manifold_only(sign):
    A = np.random.default_rng(4).standard_normal((30, 6))

    class Reconstruction:
        def value(self, X):
            assert np.allclose(X.T @ X, np.eye(2), atol=1e-8)
            return float(np.square(A - A @ X @ X.T).sum() / 2)

        def gradient(self, X):
            return sign * A.T @ (A @ X)

    assert (gradient_contradiction(Reconstruction(), 6, 2) is None) is (sign == -1.0)
