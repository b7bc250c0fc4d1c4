import json
import os
import shutil

import numpy as np
import pytest
from claims import little_memory, npy_header, zipped
from report.runs import edit_json, network_run, simulated_run

from thanos_peer.errors import ConfigError
from thanos_peer.report.reading import read_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return simulated_run(tmp_path_factory.mktemp("reading"))


@pytest.fixture
def run(finished, tmp_path):
    """A copy that may be spoiled."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def test_a_finished_run_is_read_as_it_was_written(run):
    found = read_run(run)
    summary = json.loads((run / "summary.json").read_text())
    assert found.summary.objective == summary["objective"]
    assert found.last_round == summary["rounds"] == 20
    assert list(found.history["round"]) == list(range(21))
    assert found.history["epsilon"][-1] == summary["epsilon"]
    assert np.isnan(found.history["distance"]).all()
    assert sorted(found.X) == [0, 1, 2, 3]
    with np.load(run / "peers" / "2.npz") as written:
        assert (found.X[2] == written["X"]).all()
        assert (found.sparse[2] == written["sparse"]).all()
    assert (found.sparse[2] != found.X[2]).any()
    assert found.facts == {}


def test_a_network_run_tells_what_went_over_its_edges(tmp_path):
    run = network_run(tmp_path, d=3)
    found = read_run(run)
    written = json.loads((run / "peers" / "1.json").read_text())
    assert sorted(found.facts) == [0, 1, 2]
    assert found.facts[1].edges[2].seconds_waited == written["edges"]["2"]["seconds_waited"]
    assert found.facts[1].edges[0].bytes_sent == written["edges"]["0"]["bytes_sent"]
    assert found.facts[1].residual == written["residual"]
    assert found.facts[1].has_converged == written["has_converged"]


def test_features_have_the_names_in_run_json_or_else_numbers_from_0(run):
    assert read_run(run).features == ["0", "1", "2", "3", "4", "5"]
    edit_json(run / "run.json", features=list("abcdef"))
    assert read_run(run).features == list("abcdef")


def test_a_run_that_was_killed_is_read_as_far_as_it_came(run):
    shutil.rmtree(run / "peers")
    (run / "summary.json").unlink()
    history = (run / "history.csv").read_bytes()
    (run / "history.csv").write_bytes(history[:-15])  # in the middle of a number
    found = read_run(run)
    assert found.summary is None
    assert found.X == {}
    assert found.last_round == 19
    assert found.history["epsilon"][-1] > 0


@pytest.mark.parametrize("kept", ["", "round,objective\n", "round,obj"])
def test_a_history_without_a_line_is_empty(run, kept):
    (run / "history.csv").write_text(kept)
    assert read_run(run).history == {}


def test_a_topology_alone_is_enough(run):
    for name in ("run.json", "summary.json", "history.csv"):
        (run / name).unlink()
    shutil.rmtree(run / "peers")
    found = read_run(run)
    assert (found.summary, found.last_round, found.history) == (None, None, {})


def test_what_is_no_run_directory_is_refused(run, tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere does not exist"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"run\.json is a file, not a run directory"):
        read_run(run / "run.json")
    with pytest.raises(ConfigError, match=r"peers has no topology\.toml, as `thanos-peer run` and"):
        read_run(run / "peers")


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("summary.json", b"{", "it is not JSON"),
        ("summary.json", b"\xff", "it is not JSON"),
        ("summary.json", b"[" * 100_000, "it is not JSON"),
        ("summary.json", b"[]", "Input should be"),
        ("summary.json", b"{}", "name: Field required"),
        ("run.json", b'{"features": [1]}', "features.0: Input should be a valid string"),
        ("run.json", b'{"command": "x"}', "command: Input should be a valid array"),
        ("history.csv", b"round,objective\n0,1\n", "it has no column feasibility"),
        ("peers/1.npz", b"", "it holds no X"),
        ("peers/1.npz", b"not a zip file", "it holds no X"),
        ("peers/1.npz", b"PK\x03\x04 broken", "it holds no X"),
        ("peers/1.npz", zipped(X=npy_header(10**6, 10**6)), "it holds no X"),
        ("peers/1.npz", zipped(X=npy_header(6, 2) + bytes(96)), "it holds no sparse"),
        ("peers/0.json", b'{"edges": {}}', "round: Field required"),
        ("peers/0.json", b'{"round": 3, "edges": {"2": {"bytes_sent": 1, "seconds_waited": 1}}}', "neighbors"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(run, name, content, complaint):
    (run / name).write_bytes(content)
    with little_memory(), pytest.raises(ConfigError) as caught:
        read_run(run)
    message = str(caught.value)
    assert message.startswith(f"{run / name} is damaged: ")
    assert complaint in message
    assert message.endswith("; mend it, or remove it to have a report on the rest")
    assert "\n" not in message


def test_a_history_that_is_a_pipe_is_named_and_not_waited_for(run):
    (run / "history.csv").unlink()
    os.mkfifo(run / "history.csv")
    with pytest.raises(ConfigError, match=r"history\.csv.*it is a pipe, not a regular file"):
        read_run(run)


@pytest.mark.parametrize("cell", ["x", "", "1,2"])
def test_a_line_of_history_that_is_no_line_of_numbers_is_named(run, cell):
    lines = (run / "history.csv").read_text().splitlines()
    lines[4] = cell + lines[4][1:]
    (run / "history.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(ConfigError, match=r"history\.csv is damaged: line 5 is not a line of numbers"):
        read_run(run)


@pytest.mark.parametrize("spoilt", ["X", "sparse"])
@pytest.mark.parametrize("wrong", [np.zeros((6, 3)), np.full((6, 2), np.nan)])
def test_an_x_of_another_shape_or_with_nan_is_refused(run, spoilt, wrong):
    np.savez(run / "peers" / "3.npz", **({"X": np.zeros((6, 2)), "sparse": np.zeros((6, 2))} | {spoilt: wrong}))
    said = rf"3\.npz is damaged: {spoilt} must hold finite numbers in the shape \(6, 2\)"
    with pytest.raises(ConfigError, match=said):
        read_run(run)


def test_as_many_names_as_features_are_wanted(run):
    edit_json(run / "run.json", features=["a", "b"])
    with pytest.raises(ConfigError, match=r"run\.json: features has 2 names; the problem has n = 6 features"):
        read_run(run)
