"""What peers claim is computed again from the data, by code that shares nothing with theirs."""

import json
import shutil

import numpy as np
import pytest
from cli.commands import call
from networks import make_topology, raw_topology
from processes import write_topology

from thanos_peer.algorithm.regularizers import REGULARIZERS
from thanos_peer.launch import independent
from thanos_peer.launch.claims import JUDGED, Data, check_claims
from thanos_peer.storage.peer_files import PeerFiles

SPREADS = [3.0, 2.0, 1.0, 1.0, 0.5, 0.3]
# Regularizers whose claims of objective, residual and convergence are not computed again.
NOT_JUDGED = set()


def test_the_judge_knows_every_regularizer_but_those_that_are_named_here():
    """It names them again, for it shares nothing with the methods."""
    assert {*JUDGED} | NOT_JUDGED == {*REGULARIZERS}
    assert not {*JUDGED} & NOT_JUDGED


@pytest.fixture(scope="module")
def files_run(tmp_path_factory):
    """A finished run on files, by real phases: simulated peers write what network peers do."""
    directory = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(1)

    def with_files(raw):
        raw["problem"]["data"] = {"kind": "files", "center": True, "scale": True, "overall": "auto"}
        raw["algorithm"] = {"method": "gram"}
        for peer in raw["peers"]:
            peer["data"] = f"{peer['id']}.npy"
            np.save(directory / peer["data"], rng.standard_normal((9, 6)) * SPREADS + 5.0)

    topology = write_topology(directory / "net.toml", "path", 3, change=with_files)
    call("simulate", topology.file, "--out", directory / "run", "--quiet")
    return topology, directory / "run"


@pytest.fixture
def run(files_run, tmp_path):
    """A copy of that, to be changed."""
    topology, path = files_run
    (tmp_path / "run" / "peers").mkdir(parents=True)
    for file in (path / "peers").iterdir():
        (tmp_path / "run" / "peers" / file.name).write_bytes(file.read_bytes())
    return topology, tmp_path / "run"


def test_what_honest_peers_say_is_true(run):
    checked = check_claims(*run)
    assert checked.false == []
    assert checked.count >= 11 * 3
    assert checked.left_out == ""


@pytest.fixture(scope="module")
def path_run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("path")

    def change(raw):
        with_path_of_mu(raw)
        for i, peer in enumerate(raw["peers"]):
            np.save(directory / f"{i}.npy", np.random.default_rng(i).standard_normal((30, 6)) * np.arange(1, 7))
            peer["data"] = f"{i}.npy"

    topology = write_topology(directory / "net.toml", "path", 3, change=change)
    call("simulate", topology.file, "--out", directory / "run", "--quiet")
    return topology, directory / "run"


def with_path_of_mu(raw):
    raw["problem"] |= {"n": 6, "p": 2, "mu": [0.3, 0.1, 0.03], "choose": {"nonzeros": 6}}
    raw["problem"]["data"] = {"kind": "files", "center": True, "overall": "auto"}
    raw["algorithm"] = {"method": "proximal", "start": {"kind": "leading"}}


def test_what_honest_peers_say_of_a_path_is_true_and_a_row_that_is_not_is_found(path_run, tmp_path):
    topology, path = path_run
    checked = check_claims(topology, path)
    assert checked.false == []
    assert checked.count >= 3 * (11 + 3 * 5)
    for name, wrong in (("objective", 0.0), ("explained", 0.99), ("adjusted", [0.5, 0.5]), ("nonzeros", [1, 1])):
        other = tmp_path / name
        shutil.copytree(path, other)
        facts = json.loads((other / "peers" / "1.json").read_text())
        facts["path"][2][name] = wrong
        (other / "peers" / "1.json").write_text(json.dumps(facts))
        (false,) = check_claims(topology, other).false
        assert (false.peer, false.name.split("[")[0]) == (1, f"path, mu = 0.03: {name}")
    other = tmp_path / "mu"
    shutil.copytree(path, other)
    facts = json.loads((other / "peers" / "2.json").read_text())
    (other / "peers" / "2.json").write_text(json.dumps(facts | {"mu": 0.2}))
    assert {claim.name for claim in check_claims(topology, other).false} >= {"mu", "objective"}


def tamper(path, topology, **changes):
    files = PeerFiles(path, topology, 1)
    arrays, facts = dict(np.load(files.result)), json.loads(files.facts.read_text())
    for name, change in changes.items():
        where = arrays if name in arrays else facts
        where[name] = change(where[name])
    np.savez(files.result, **arrays)
    files.facts.write_text(json.dumps(facts))


def turned(X):
    """With orthonormal columns as before, but elsewhere."""
    return np.roll(X, 1, axis=0)


@pytest.mark.parametrize(
    ("changes", "false"),
    [
        ({"samples": lambda m: m - 3}, {"samples"}),
        ({"mean": lambda mean: mean * [1, 1.0001, 1, 1, 1, 1]}, {"mean[1]"}),
        ({"scale": lambda scale: scale * [1, 1, 1.0001, 1, 1, 1]}, {"scale[2]"}),
        ({"overall": lambda overall: overall / 10}, {"overall", "objective", "residual", "has_converged"}),
        ({"objective": lambda f: f - 1e-4}, {"objective"}),
        ({"explained_variance": lambda share: share + 1e-5}, {"explained_variance"}),
        ({"sparse_explained_variance": lambda share: share + 1e-5}, {"sparse_explained_variance"}),
        ({"feasibility": lambda off: off + 1e-3}, {"feasibility"}),
        ({"nonzeros": lambda counts: [1, *counts[1:]]}, {"nonzeros[0]"}),
        ({"nonzero_rows": lambda count: count + 1}, {"nonzero_rows"}),
        ({"sparse": turned}, {"residual", "has_converged", "sparse_explained_variance"}),
        ({"sparse": lambda X: 1.01 * X}, {"has_converged"}),
        ({"residual": lambda _: None}, {"has_converged"}),
    ],
    ids=lambda changes: next(iter(changes)) if isinstance(changes, dict) else "",
)
def test_a_false_claim_is_named_with_the_peer_and_both_numbers(run, changes, false):
    topology, path = run
    tamper(path, topology, **changes)
    found = check_claims(topology, path).false
    assert {claim.name for claim in found} == false
    assert {claim.peer for claim in found} == {1}
    for claim in found:
        assert f"peer 1: {claim.name}: claimed {claim.claimed}, the data say {claim.computed}" == str(claim)


def test_the_common_loadings_are_the_mean_of_all(run):
    topology, path = run
    tamper(path, topology, X=turned)
    assert {(claim.peer, claim.name.partition("[")[0]) for claim in check_claims(topology, path).false} == {
        (0, "common"),
        (1, "common"),
        (2, "common"),
    }


def test_groups_of_rows_are_judged_as_one_long_row_each():
    """As l2,1 on matrices where the rows of each group lie side by side."""
    rng = np.random.default_rng(2)
    A = rng.standard_normal((6, 9))
    X = np.linalg.qr(rng.standard_normal((6, 2)))[0]
    X[[0, 3]] = 0.0
    X = np.linalg.qr(X)[0]
    alone = independent.stationarity(A @ A.T, X, "l21", 0.3)
    assert independent.stationarity(A @ A.T, X, "group-l21", 0.3, [[i] for i in range(6)]) == pytest.approx(alone)
    assert independent.regularizer_value(X, "group-l21", [[0, 3], [1, 4, 5]]) == pytest.approx(
        np.linalg.norm(X[[1, 4, 5]]) + np.linalg.norm(X[2])
    )
    # s = mu x/||x|| over a whole group that is not zero: with p = 1 and x in one group, X spans s
    x = np.array([[0.6], [0.8]])
    assert independent.stationarity(np.zeros((2, 2)), x, "group-l21", 0.3, [[0, 1]]) == pytest.approx(0, abs=1e-12)
    assert independent.stationarity(np.zeros((2, 2)), x, "l21", 0.3) > 0.01


@pytest.mark.parametrize(
    ("singular_values", "most"),
    [
        ([1, 0.1, 1e-5, 0], 1e-10),
        ([1, 0.1, 0, 0], 1e-2),
        ([1, 0.1, 1e-8, 0], 1e-2),
    ],
    ids=["worth little", "beyond the rank", "rounding"],
)
def test_no_residual_above_what_the_weakest_component_is_worth_has_converged(singular_values, most):
    rng = np.random.default_rng(4)
    U, V = (np.linalg.qr(rng.standard_normal((k, 4)))[0] for k in (9, 6))
    rows = U * singular_values @ V.T
    data = Data(make_topology(raw_topology(mu=0.0, tolerance=1.0)), [rows])
    assert data.most_residual(V[:, :3], 1.0) == pytest.approx(most)


def test_what_peers_say_of_missing_values_is_computed_again(tmp_path):
    rng = np.random.default_rng(1)

    def with_gaps(raw):
        raw["problem"] |= {"exclude": ["id"], "data": {"kind": "files", "scale": True, "missing": "mean"}}
        raw["algorithm"] = {"method": "gram"}
        for peer in raw["peers"]:
            peer["data"] = f"{peer['id']}.csv"
            rows = rng.standard_normal((30, 6)) * SPREADS + 5.0
            cells = np.where(rng.random(rows.shape) < 0.1, "NA", rows.astype(str)).tolist()
            lines = [",".join(["x", *line]) for line in cells]
            (tmp_path / peer["data"]).write_text("\n".join(["id,a,b,c,d,e,f", *lines]) + "\n")

    topology = write_topology(tmp_path / "net.toml", "path", 3, change=with_gaps)
    call("simulate", topology.file, "--out", tmp_path / "run", "--quiet")
    checked = check_claims(topology, tmp_path / "run")
    assert checked.false == []
    path = tmp_path / "run" / "peers" / "1.json"
    facts = json.loads(path.read_text())
    assert len(facts["missing"]) == 6
    facts["missing"][2] += 1
    path.write_text(json.dumps(facts))
    (false,) = check_claims(topology, tmp_path / "run").false
    assert (false.peer, false.name) == (1, "missing[2]")
    arrays = dict(np.load(tmp_path / "run" / "peers" / "2.npz"))
    assert "mean" not in arrays
    arrays["fill"][4] += 1e-3
    np.savez(tmp_path / "run" / "peers" / "2.npz", **arrays)
    assert [(false.peer, false.name) for false in check_claims(topology, tmp_path / "run").false] == [
        (1, "missing[2]"),
        (2, "fill[4]"),
    ]
