import contextlib
import csv
import resource

import numpy as np
import pytest
from cli.commands import call
from samples.tables import write_table

from thanos_peer.loadings import Findings, write_loadings
from thanos_peer.preparation import Account, PathRow
from thanos_peer.samples import table

N, P = 5, 2
X = np.linalg.qr(np.random.default_rng(1).standard_normal((N, P)))[0]
SPARSE = np.where(np.abs(X) > 0.3, X, 0.0)
SAMPLES = np.random.default_rng(2).standard_normal((53, N))
NAMES = tuple("abcde")
MEAN, SCALE = np.arange(5.0), np.arange(1.0, 6.0)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr(table, "CHUNK_ROWS", 10)


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "run"
    (path / "peers").mkdir(parents=True)
    findings = Findings(features=NAMES, mean=MEAN, scale=SCALE)
    write_loadings(path / "peers" / "0.npz", X, X, SPARSE, findings)
    write_loadings(path / "peers" / "1.npz", -X, X, SPARSE, findings)
    return path


def scores_in(path):
    if path.suffix == ".npy":
        return np.load(path, allow_pickle=False)
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["component_1", "component_2"]
    return np.array(rows, dtype=float)


@pytest.mark.parametrize("output", ["scores.csv", "scores.npy"])
@pytest.mark.parametrize("source", ["x.npy", "x.npz", "x.csv"])
@pytest.mark.parametrize(
    ("options", "loadings"),
    [([], X), (["--dense"], X), (["--sparse"], SPARSE), (["--polar"], X), (["--peer", 1], -X)],
)
def test_the_components_are_those_of_numpy(tmp_path, run, source, output, options, loadings):
    samples = write_table(tmp_path / source, SAMPLES, features=NAMES)
    shown = call("transform", run, samples, "-o", tmp_path / output, *options).stdout
    assert shown == f"53 samples: {tmp_path / output}\n"
    found = scores_in(tmp_path / output)
    assert found.shape == (53, P)
    assert np.allclose(found, (SAMPLES - MEAN) / SCALE @ loadings, rtol=0, atol=1e-14)


def test_csv_and_npy_hold_the_same_bits(tmp_path, run):
    samples = write_table(tmp_path / "x.csv", SAMPLES, features=NAMES)
    for output in ("scores.csv", "scores.npy"):
        call("transform", run / "peers" / "0.npz", samples, "-o", tmp_path / output)
    assert scores_in(tmp_path / "scores.csv").tobytes() == scores_in(tmp_path / "scores.npy").tobytes()


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ("acbde", "has the same features in another order: column 2 is 'c'; must be 'b', as in "),
        ("abcdx", "has other features: column 5 is 'x'; must be 'e', as in "),
        ("abcd", "has 4 columns; must have 5, as in "),
        ("abcdefg", "has 7 columns; must have 5, as in "),
    ],
)
def test_other_features_are_refused_with_the_first_difference(tmp_path, run, features, message):
    rows = np.hstack([SAMPLES, SAMPLES])[:, : len(features)]
    samples = write_table(tmp_path / "x.csv", rows, features=tuple(features))
    result = call("transform", run, samples, "-o", tmp_path / "scores.csv", code=3)
    besides = {4: ": it lacks 'e'", 7: ": it has besides 'f', 'g'"}.get(len(features), "")
    assert result.stderr == f"Error: {samples} {message}{run / 'peers' / '0.npz'}{besides}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "x.csv"]


def test_a_mistake_deep_in_the_samples_leaves_nothing_behind(tmp_path, run):
    samples = write_table(tmp_path / "x.csv", SAMPLES, features=NAMES)
    samples.write_text(samples.read_text() + "1,2,NA,4,5\n")
    result = call("transform", run, samples, "-o", tmp_path / "scores.npy", code=3)
    assert f"{samples} has a missing value ('NA') in line 55, column 3 'c'" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "x.csv"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "x.npy", "-o", "scores.txt"], "scores.txt: must end in .csv or .npy"),
        (["run", "gone.npy", "-o", "scores.csv"], "gone.npy cannot be read: No such file or directory"),
        (["gone", "x.npy", "-o", "scores.csv"], "gone cannot be read: No such file or directory"),
        (["x.npy", "x.npy", "-o", "scores.csv"], "x.npy is not a plain numeric .npz file: "),
        (["run", "x.npy", "-o", "x.npy"], "x.npy exists already; choose another --output, or --force"),
        (["run", "x.npy", "-o", "scores.csv", "--peer", "7"], "holds no result of peer 7; there are 0 to 1"),
        (
            ["run", "x.npy", "-o", "gone/scores.csv"],
            "gone/scores.csv cannot be written: No such file or directory",
        ),
    ],
)
def test_what_cannot_be_done_is_one_line_with_code_3(tmp_path, run, monkeypatch, arguments, message):
    assert run.exists()
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "x.npy", SAMPLES)
    result = call("transform", *arguments, code=3)
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("facts", [b"[" * 100_000, b'{"a":' * 100_000, b"[]", b"\xff"])
def test_facts_that_are_damaged_are_not_needed(tmp_path, run, facts):
    samples = write_table(tmp_path / "x.npy", SAMPLES)
    (run / "peers/0.json").write_bytes(facts)
    call("transform", run, samples, "-o", tmp_path / "scores.csv")
    assert scores_in(tmp_path / "scores.csv").shape == (53, P)


@pytest.fixture
def path_run(run):
    """The same with two answers, of which the first is not the chosen one."""
    rows = [
        PathRow(mu, [2, 2], 0.5, [0.3, 0.2], -1.0, 0.0, has_converged=True, is_chosen=mu == 0.1)
        for mu in (0.2, 0.1)
    ]
    findings = Findings(features=NAMES, path=np.array([-X, X]), account=Account(0.1, tuple(rows), "chosen"))
    write_loadings(run / "peers" / "0.npz", X, X, X, findings)
    return run


@pytest.mark.parametrize(("options", "loadings"), [([], X), (["--mu", 0.1], X), (["--mu", 0.20001], -X)])
def test_another_answer_of_a_path_is_applied_by_its_mu(tmp_path, path_run, options, loadings):
    samples = write_table(tmp_path / "x.npy", SAMPLES)
    call("transform", path_run, samples, "-o", tmp_path / "scores.csv", *options)
    assert np.allclose(scores_in(tmp_path / "scores.csv"), SAMPLES @ loadings, rtol=0, atol=1e-14)


def test_an_answer_that_a_path_has_not_is_refused_with_those_that_it_has(tmp_path, path_run):
    samples = write_table(tmp_path / "x.npy", SAMPLES)
    result = call("transform", path_run, samples, "-o", tmp_path / "scores.csv", "--mu", 0.15, code=3)
    assert result.stderr == "Error: the result has no answer for mu = 0.15: there are 0.2, 0.1\n"
    result = call("transform", path_run, samples, "-o", tmp_path / "o.csv", "--mu", 0.1, "--peer", 1, code=3)
    assert "it has one answer alone" in result.stderr


@pytest.mark.parametrize("path", [np.zeros((2, N, P + 1)), np.zeros((2, N)), np.full((2, N, P), np.nan)])
def test_a_path_of_another_shape_is_refused(tmp_path, path_run, path):
    samples, file = write_table(tmp_path / "x.npy", SAMPLES), path_run / "peers" / "0.npz"
    np.savez(file, **(dict(np.load(file)) | {"path": path}))
    assert (
        "is no result of a peer: path "
        in call("transform", path_run, samples, "-o", tmp_path / "o.csv", code=3).stderr
    )


@contextlib.contextmanager
def largest_file(size):
    """No file can grow beyond so many bytes meanwhile."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("output", ["scores.csv", "scores.npy"])
def test_a_full_disk_is_one_line_with_code_3(tmp_path, run, output):
    samples = write_table(tmp_path / "x.npy", SAMPLES)
    with largest_file(50):
        result = call("transform", run, samples, "-o", tmp_path / output, code=3)
    assert result.stderr == f"Error: {tmp_path / output} cannot be written: File too large\n"
    assert not (tmp_path / output).exists()


def test_force_replaces_the_output(tmp_path, run):
    samples = write_table(tmp_path / "x.npy", SAMPLES)
    (tmp_path / "scores.csv").write_text("old")
    call("transform", run, samples, "-o", tmp_path / "scores.csv", "--force")
    assert scores_in(tmp_path / "scores.csv").shape == (53, P)


def test_a_simulated_run_on_files_with_names_can_be_applied_to_its_own_samples(tmp_path, new):
    file = new("ring", "--peers", 3, "--n", N, "--rounds", 5)
    text = file.read_text()
    data = text[text.index("[problem.data]") : text.index("[algorithm]")]
    text = text.replace(data, '[problem.data]\nkind = "files"\n\n').replace(
        '{ kind = "svd" }', '{ kind = "random", seed = 1 }'
    )
    for i in range(3):
        write_table(tmp_path / f"{i}.csv", SAMPLES[i::3] / 10, features=NAMES)
        text = text.replace(f"id = {i}\n", f'id = {i}\ndata = "{i}.csv"\n')
    file.write_text(text)
    call("simulate", file, "--out", tmp_path / "simulated")
    with np.load(tmp_path / "simulated" / "peers" / "1.npz", allow_pickle=False) as arrays:
        assert arrays["features"].tolist() == list(NAMES)
        expected = SAMPLES[1::3] / 10 @ arrays["X"]
    call("transform", tmp_path / "simulated", tmp_path / "1.csv", "--peer", 1, "-o", tmp_path / "scores.npy")
    assert np.allclose(scores_in(tmp_path / "scores.npy"), expected, rtol=0, atol=1e-14)
