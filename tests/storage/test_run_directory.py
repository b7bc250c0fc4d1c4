import csv
import json
import platform
import sys
from pathlib import Path

import numpy as np
import pytest
import tomlkit
from uneven import raw_with_parts

from thanos_peer import __version__
from thanos_peer.errors import ConfigError
from thanos_peer.problem import build
from thanos_peer.simulate import StackedNetwork, run
from thanos_peer.storage.run_directory import RunDirectory, cells_of
from thanos_peer.storage.summary import summarize
from thanos_peer.topology import families, load
from thanos_peer.topology.editing import with_public_keys
from thanos_peer.topology.render import Draft, render
from thanos_peer.transport.keys import make_keys, public_keys

ROUNDS, D, N, P, MU, SIGMA = 40, 12, 8, 2, 0.2, 0.5


class Finished:
    """A short run that has been written to a directory."""

    def __init__(self, base, regularizer):
        file = base / "net.toml"
        file.write_text(
            render(
                Draft(
                    *("ring-12", D, families.ring(D), "A test."),
                    n=N,
                    p=P,
                    regularizer=regularizer,
                    mu=MU,
                    samples=60,
                    seed=5,
                    sigma=SIGMA,
                    max_rounds=ROUNDS,
                    tolerance=0.0,
                )
            )
        )
        self.path, self.topology = base / "out" / "run", load(file)
        self.instance = build(self.topology)
        self.network, self.reference = StackedNetwork(self.instance), self.instance.solve_reference()
        with RunDirectory(self.path, self.topology, engine="stacked") as directory:
            self.rows = []
            for row in run(self.network, self.instance, reference=self.reference, every=3):
                self.rows.append(row)
                directory.append(row)
            self.summary = summarize(self.network, self.instance, row, seconds=1.5, reference=self.reference)
            directory.finish(self.network, self.instance, self.summary)

    def json(self, name):
        return json.loads((self.path / name).read_text())


@pytest.fixture(scope="module", params=["l1", "l21"])
def finished(request, tmp_path_factory):
    return Finished(tmp_path_factory.mktemp("results"), request.param)


def prox(regularizer, X):
    """Written anew: shrink entries, or rows."""
    threshold = SIGMA * MU / D
    if regularizer == "l1":
        return np.sign(X) * np.maximum(np.abs(X) - threshold, 0)
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    return X * np.maximum(lengths - threshold, 0) / lengths


def test_a_run_directory_holds_these_files_and_no_others(finished):
    found = {str(path.relative_to(finished.path)) for path in finished.path.rglob("*") if path.is_file()}
    peers = {f"peers/{i:02}.{end}" for i in range(D) for end in ("npz", "csv", "json")}
    assert found == {"run.json", "topology.toml", "history.csv", "summary.json", "summary.txt", *peers}


def test_the_topology_file_is_kept_as_it_was(finished):
    assert (finished.path / "topology.toml").read_bytes() == finished.topology.file.read_bytes()
    assert load(finished.path / "topology.toml").digest == finished.topology.digest


@pytest.mark.parametrize("has_keys", [False, True])
def test_data_files_beside_the_topology_are_found_from_its_copy(tmp_path, has_keys):
    """So that peers of a run that was killed can be started again with it."""
    (tmp_path / "net.toml").write_text(tomlkit.dumps(raw_with_parts(tmp_path, [np.eye(3)[:2]] * 2, "path")))
    topology = load(tmp_path / "net.toml")
    if has_keys:
        topology = with_public_keys(topology, topology.file, public_keys(make_keys(topology)))
    with RunDirectory(tmp_path / "out" / "run", topology, engine="network") as directory:
        copy = load(directory.path / "topology.toml")
    assert (copy.digest, copy.has_keys) == (topology.digest, has_keys)
    assert [copy.data_file(i).resolve() for i in range(2)] == [(tmp_path / f"{i}.csv").resolve() for i in range(2)]


def test_run_json_says_what_ran(finished):
    described = finished.json("run.json")
    assert described["name"] == "ring-12"
    assert described["digest"] == finished.topology.digest
    assert described["topology"] == str(finished.topology.file.resolve())
    assert described["data"] == {"kind": "synthetic", "seed": 5, "samples": 60, "scale": "unit"}
    assert described["start"] == {"kind": "svd"}
    assert described["engine"] == "stacked"
    assert described["command"] == sys.argv
    assert described["started"].endswith("Z")
    assert described["versions"] == {
        "thanos-peer": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "platform": platform.platform(),
    }


def test_the_history_reads_back_to_the_same_numbers(finished):
    with (finished.path / "history.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["round"] for line in lines] == [str(k) for k in (*range(0, ROUNDS, 3), ROUNDS)]
    read = [{name: float(cell) if cell else None for name, cell in line.items()} for line in lines]
    assert read[:-1] == [cells_of(row) for row in finished.rows[:-1]]
    # A method that smooths knows it at the end.
    assert cells_of(finished.rows[-1])["residual"] is None
    assert read[-1] == cells_of(finished.rows[-1]) | {"residual": finished.summary.residual}


def test_the_history_grows_line_by_line(tmp_path, finished):
    history = tmp_path / "run" / "history.csv"
    with RunDirectory(tmp_path / "run", finished.topology, engine="agents") as directory:
        for count, row in enumerate(finished.rows, start=2):
            directory.append(row)
            assert len(history.read_text().splitlines()) == count
            assert history.read_text().endswith("\n")


def test_what_is_not_known_is_left_empty_in_the_history(tmp_path, finished):
    with RunDirectory(tmp_path / "run", finished.topology, engine="agents") as directory:
        directory.append(next(run(StackedNetwork(finished.instance), finished.instance)))
    with (tmp_path / "run" / "history.csv").open(newline="") as file:
        (line,) = csv.DictReader(file)
    assert {name for name, cell in line.items() if not cell} == {"residual", "distance", "aligned_distance", "gap"}


def test_every_peer_has_its_x_its_d_and_the_sparse_prox_of_x(finished):
    regularizer = finished.topology.problem.regularizer
    for i in range(D):
        with np.load(finished.path / "peers" / f"{i:02}.npz", allow_pickle=False) as saved:
            assert set(saved.files) == {
                "X",
                "D",
                "sparse",
                "polar",
                "support",
                "common",
                "explained_variance_ratio",
            }
            assert saved["X"].tobytes() == finished.network.X[i].tobytes()
            assert saved["D"].tobytes() == finished.network.array("D")[i].tobytes()
            assert np.allclose(saved["sparse"], prox(regularizer, saved["X"]), rtol=0, atol=1e-15)
            assert saved["sparse"].shape == (N, P)
            assert saved["common"] == pytest.approx(finished.network.X.mean(axis=0), abs=1e-15)


def test_every_peer_has_its_share_of_the_summary_in_numbers(finished):
    A = finished.instance.pooled.A
    mean = finished.network.X.mean(axis=0)
    U, _, Vt = np.linalg.svd(mean, full_matrices=False)
    shares = ((A.T @ (U @ Vt)) ** 2).sum(axis=0) / (A**2).sum()
    common = np.mean([prox(finished.topology.problem.regularizer, X) for X in finished.network.X], axis=0)
    kept = np.linalg.norm(common @ np.linalg.pinv(common) @ A) ** 2 / np.linalg.norm(A) ** 2
    for i, X in enumerate(finished.network.X):
        facts = finished.json(f"peers/{i:02}.json")
        assert facts["explained_variance_ratio"] == pytest.approx(shares)
        assert facts["explained_variance"] == pytest.approx(shares.sum())
        assert facts["feasibility"] == pytest.approx(np.linalg.norm(X.T @ X - np.eye(P)))
        sparse = prox(finished.topology.problem.regularizer, X)
        assert facts["sparse_explained_variance"] == pytest.approx(kept)
        assert facts["nonzeros"] == (sparse != 0).sum(axis=0).tolist()
        assert facts["nonzero_rows"] == (sparse != 0).any(axis=1).sum()
        assert facts["objective"] == finished.summary.objective
        assert facts["residual"] == finished.summary.residual
        assert facts["has_converged"] is None
        assert (facts["id"], facts["round"], facts["is_done"]) == (i, ROUNDS, True)
        assert facts["messages_sent"] == ROUNDS * 2  # neighbors


def residual_of(X, A, regularizer):
    """Of an X without zeros, written anew: the smaller of two.

    ||proj(G + S)||_F / ||A||_2^2 for the one subgradient S of mu r at X; and 2 ||Z - X||_F, with Z the least
    <G, Z> + mu r(Z) + ||A||_2^2 ||Z - X||_F^2 / 2 over tangent Z - X, by ascent along their multipliers.
    """
    size = np.linalg.norm(A, 2) ** 2
    G, multiplier = -A @ (A.T @ X), np.zeros((P, P))
    for _ in range(20000):
        Y = X - (G + X @ multiplier) / size
        if regularizer == "l1":
            Z = np.sign(Y) * np.maximum(np.abs(Y) - MU / size, 0)
        else:
            lengths = np.linalg.norm(Y, axis=1, keepdims=True)
            Z = Y * np.maximum(lengths - MU / size, 0) / lengths
        tangency = X.T @ (Z - X)
        multiplier += size * (tangency + tangency.T) / 2
    H = G + MU * (np.sign(X) if regularizer == "l1" else X / np.linalg.norm(X, axis=1, keepdims=True))
    return min(np.linalg.norm(H - X @ (X.T @ H + H.T @ X) / 2) / size, 2 * np.linalg.norm(Z - X))


def test_the_summary_in_numbers_can_be_checked(finished):
    summary, mean = finished.json("summary.json"), finished.network.X.mean(axis=0)
    A = finished.instance.pooled.A
    U, _, Vt = np.linalg.svd(mean, full_matrices=False)
    sparse = np.mean([prox(finished.topology.problem.regularizer, X) for X in finished.network.X], axis=0)
    projector = sparse @ np.linalg.pinv(sparse)
    assert summary["variance_explained"] == pytest.approx(np.sum((A.T @ U @ Vt) ** 2) / np.sum(A**2))
    assert summary["sparse_variance_explained"] == pytest.approx(np.trace(projector @ A @ A.T) / np.sum(A**2))
    assert summary["nonzeros"] == np.sum(np.abs(sparse) > 0)
    assert summary["nonzero_rows"] == np.sum(np.abs(sparse).max(axis=1) > 0)
    assert (summary["entries"], summary["rows"]) == (N * P, N)
    assert summary["messages"] == ROUNDS * 2 * D
    assert summary["payload_bytes"] == ROUNDS * 2 * D * (2 * N * P * 8)
    assert (summary["rounds"], summary["agents"], summary["seconds"]) == (ROUNDS, D, 1.5)
    assert summary["digest"] == finished.topology.digest
    assert summary["ending"] == "the maximum number of rounds was reached"
    assert summary["sigma"] == SIGMA
    assert summary["residual"] == pytest.approx(residual_of(U @ Vt, A, finished.topology.problem.regularizer))
    assert (summary["tolerance"], summary["has_converged"]) == (0.0, None)
    assert summary["reference_residual"] == finished.reference.residual
    last = finished.rows[-1]
    for name in ("objective", "feasibility", "consensus", "distance", "aligned_distance", "gap"):
        assert summary[name] == getattr(last, name)
    assert summary["judged_objective"] == pytest.approx(summary["objective"], rel=1e-12)
    assert summary["epsilon"] == max(vars(last.stationarity).values())


def test_the_summary_in_words_has_the_same_numbers(finished):
    text, summary = (finished.path / "summary.txt").read_text(), finished.summary
    assert text == summary.in_words() + "\n"
    for shown in (
        f"ring-12: 12 agents, {ROUNDS} rounds in 1.5 s; the maximum number of rounds was reached.",
        f"objective           {summary.objective:.9g}",
        f"{summary.variance_explained:.2%} (sparse: {summary.sparse_variance_explained:.2%})",
        f"{summary.nonzeros} of {N * P}, in {summary.nonzero_rows} of {N} rows",
        "960 messages, 245,760 bytes in them",
        f"residual            {summary.residual:.2e} of the non-smooth problem, relative to ||A||^2\n",
        f"verdict             not judged: no tolerance was set; residual {summary.residual:.1e}\n",
        f"distance to X*      {summary.distance:.3e}",
    ):
        assert shown in text


def test_a_method_without_smoothing_leaves_no_d_and_no_sigma_and_says_that_it_has_converged(tmp_path):
    (tmp_path / "net.toml").write_text(
        render(Draft("x", 3, [(0, 1), (1, 2)], "A test.", n=N, p=P, mu=MU, samples=60, method="proximal"))
    )
    topology = load(tmp_path / "net.toml")
    instance = build(topology)
    network = StackedNetwork(instance)
    with RunDirectory(tmp_path / "run", topology, engine="stacked") as directory:
        for row in run(network, instance):
            directory.append(row)
        summary = summarize(network, instance, row, seconds=1.5)
        directory.finish(network, instance, summary)
    with np.load(tmp_path / "run" / "peers" / "2.npz", allow_pickle=False) as saved:
        assert "D" not in saved.files
        assert saved["X"].tobytes() == saved["sparse"].tobytes() == network.X[2].tobytes()
    facts = json.loads((tmp_path / "run" / "peers" / "2.json").read_text())
    assert facts["residual"] == summary.residual < 1e-9
    *_, last = csv.DictReader((tmp_path / "run" / "history.csv").read_text().splitlines())
    assert float(last["residual"]) == pytest.approx(summary.residual, rel=1e-6)
    assert last["tolerance"] == "1e-10"
    assert facts["has_converged"] is True
    assert (summary.sigma, summary.tolerance, summary.has_converged) == (None, 1e-10, True)
    X, A = network.X[0], instance.pooled.A
    assert residual_of(X, A, "l1") < 1e-9
    assert summary.nonzeros == np.count_nonzero(X)
    assert summary.payload_bytes == network.payload_sent
    assert summary.messages == 4 * sum(network.rounds_by_phase.values())
    words = (tmp_path / "run" / "summary.txt").read_text()
    assert summary.verdict == facts["verdict"]
    verdict = f"converged: residual {summary.residual:.1e}, tolerance 1e-10"
    assert f" {verdict}; stationary, not necessarily the global minimum\n" in words
    assert (
        f"rounds by phase     size 2, leading {network.rounds_by_phase['leading']}, proximal {network.k}" in words
    )


def test_a_run_that_has_settled_on_the_smoothed_problem_has_not_converged(tmp_path):
    draft = Draft("x", 3, [(0, 1), (1, 2)], "A test.", n=N, p=P, mu=MU, samples=60, sigma=SIGMA, tolerance=1e-4)
    (tmp_path / "net.toml").write_text(render(draft))
    instance = build(load(tmp_path / "net.toml"))
    network = StackedNetwork(instance)
    *_, last = run(network, instance, every=10**6)
    summary = summarize(network, instance, last, seconds=0.0)
    assert summary.ending == "every agent met the stopping rule of the method"
    assert summary.residual > 1e-4
    assert not summary.has_converged
    assert summary.verdict == (
        f"not converged: residual {summary.residual:.1e} above tolerance 0.0001 after {network.k} rounds; "
        'what is left is the smoothing: take method = "auto"'
    )
    # With synthetic data the agents themselves certify nothing.
    assert network.has_converged is None


def test_the_summary_warns_of_an_imprecise_reference(finished):
    words = [
        type(finished.summary)(**(vars(finished.summary) | {"reference_residual": residual})).in_words()
        for residual in (None, 9e-11, 2e-10)
    ]
    assert ["reference X*" in text for text in words] == [False, True, True]
    assert ["NOT below 1e-10" in text for text in words] == [False, False, True]


@pytest.mark.parametrize("regularizer", ["l1", "l21"])
def test_a_weight_that_leaves_nothing_explains_nothing(tmp_path, regularizer):
    file = tmp_path / "net.toml"
    draft = Draft("x", 2, [(0, 1)], "A test.", regularizer=regularizer, mu=100.0, sigma=1.0, max_rounds=1)
    file.write_text(render(draft))
    instance = build(load(file))
    network = StackedNetwork(instance)
    summary = summarize(network, instance, next(run(network, instance)), seconds=0.0)
    assert (summary.nonzeros, summary.nonzero_rows, summary.sparse_variance_explained) == (0, 0, 0)


@pytest.mark.parametrize(("beta", "is_off"), [("1.0", True), ('"auto"', False)])
def test_of_an_x_that_has_left_the_manifold_that_is_said_and_no_variance(tmp_path, beta, is_off):
    draft = Draft("x", 4, [(0, 1), (1, 2), (2, 3)], "A test.", n=7, p=2, mu=100.0, samples=40, max_rounds=100)
    (tmp_path / "net.toml").write_text(render(draft).replace("beta = 1.0", f"beta = {beta}"))
    instance = build(load(tmp_path / "net.toml"))
    network = StackedNetwork(instance)
    *_, last = run(network, instance)
    summary = summarize(network, instance, last, seconds=0.0)
    assert (summary.feasibility > 1) == (summary.variance_explained is None) == is_off
    words = summary.in_words()
    assert ("variance explained  unknown (sparse: 0.00%)\n" in words) == is_off
    assert ("X is off the manifold, and its objective is of the nearest point there" in words) == is_off


@pytest.mark.parametrize(("mu", "is_better"), [(0.1, False), (0.2, True)])
def test_an_answer_that_is_better_than_the_reference_says_so(tmp_path, mu, is_better):
    draft = Draft("x", 3, [(0, 1), (1, 2)], "A test.", n=5, p=2, mu=mu, samples=60, method="gram")
    text = render(draft).replace('{ kind = "leading" }', '{ kind = "random", seed = 1 }\nrestarts = 8')
    (tmp_path / "net.toml").write_text(text)
    instance = build(load(tmp_path / "net.toml"))
    network, reference = StackedNetwork(instance), instance.solve_reference()
    *_, last = run(network, instance, reference=reference)
    summary = summarize(network, instance, last, seconds=0.0, reference=reference)
    assert (summary.gap < -0.1) == is_better
    assert summary.in_words().endswith(" (better than X*, which is not the global minimum)") == is_better


@pytest.mark.parametrize(("mu", "single"), [(1e-3, 0), (2.0, 2)])
def test_components_of_a_single_feature_are_counted_with_a_word_on_mu(tmp_path, mu, single):
    draft = Draft("x", 3, [(0, 1), (1, 2)], "A test.", n=6, p=2, mu=mu, samples=60, method="gram")
    (tmp_path / "net.toml").write_text(render(draft))
    instance = build(load(tmp_path / "net.toml"))
    network = StackedNetwork(instance)
    *_, last = run(network, instance)
    words = summarize(network, instance, last, seconds=0.0).in_words()
    assert (network.sparse[0] != 0).sum(axis=0).tolist().count(1) == single
    assert ("; 2 of 2 components with a single feature: mu may be too large\n" in words) == bool(single)
    assert ("mu may be" in words) == bool(single)


def test_a_directory_that_holds_something_is_refused(tmp_path, finished):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"exists already; choose another directory with --out, or remove it"):
        RunDirectory(tmp_path, finished.topology, engine="agents")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_in_the_way_is_refused(tmp_path, finished):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        RunDirectory(tmp_path / "run", finished.topology, engine="agents")
    assert (tmp_path / "run").read_text() == "mine"


def test_an_empty_directory_is_used(tmp_path, finished):
    with RunDirectory(tmp_path, finished.topology, engine="agents") as directory:
        assert directory.path == Path(tmp_path)
    assert (tmp_path / "run.json").is_file()
