import csv
import json
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from cli.commands import call, start
from processes import exact, write_topology

from thanos_peer.cli import progress, simulate
from thanos_peer.topology import load

PATIENCE = 60.0


@pytest.fixture
def new(new):
    return lambda *options: new("ring", *options)


def wait_for(condition, process):
    """Until the condition holds, as long as the process lives."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def count_lines(path):
    return len(path.read_text().splitlines()) if path.exists() else 0


def peers_of(run):
    return {path.name: path.read_bytes() for path in sorted((run / "peers").iterdir())}


def test_the_summary_on_stdout_is_the_one_in_the_directory(new, tmp_path):
    result = call("simulate", new("--rounds", 30), "--out", tmp_path / "run")
    words = (tmp_path / "run" / "summary.txt").read_text()
    assert result.stdout == f"{words}  written to          {tmp_path / 'run'}/\n"
    assert result.stderr == ""
    assert "reference X*" not in words


def test_the_reference_adds_the_distance_to_it(new, tmp_path):
    result = call("simulate", new("--rounds", 30), "--out", tmp_path / "run", "--reference")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["reference_residual"] < 1e-10
    assert f"distance to X*      {summary['distance']:.3e}" in result.stdout


def test_a_run_that_meets_its_tolerance_says_so(new, tmp_path):
    call("simulate", new("--tolerance", 0.05), "--out", tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["ending"] == "every agent met the stopping rule of the method"
    assert summary["rounds"] < 3000


def test_both_engines_write_the_same_peers(new, tmp_path):
    file = new("--tolerance", 0.05)
    for engine in ("agents", "stacked", "auto"):
        call("simulate", file, "--out", tmp_path / engine, "--engine", engine)
    assert peers_of(tmp_path / "agents") == peers_of(tmp_path / "stacked") == peers_of(tmp_path / "auto")
    histories = [(tmp_path / engine / "history.csv").read_text() for engine in ("agents", "stacked")]
    assert histories[0] == histories[1]


@pytest.mark.parametrize(("d", "engine"), [(64, "agents"), (65, "stacked")])
def test_large_networks_are_stacked_by_themselves(new, tmp_path, d, engine):
    call("simulate", new("-d", d, "--rounds", 1), "--out", tmp_path / "run")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["engine"] == engine


def test_the_history_has_a_line_for_every_so_many_rounds(new, tmp_path):
    call("simulate", new("--rounds", 10), "--out", tmp_path / "run", "--every", 4)
    with (tmp_path / "run" / "history.csv").open(newline="") as file:
        assert [line["round"] for line in csv.DictReader(file)] == ["0", "4", "8", "10"]


def test_without_an_out_the_run_goes_below_runs(new, tmp_path, monkeypatch):
    file = new("--rounds", 1)
    monkeypatch.chdir(tmp_path)
    for _ in range(3):
        call("simulate", file)
    runs = list(Path("runs").iterdir())
    assert len(runs) == 3
    assert all(run.name.startswith("ring-8-") and (run / "summary.json").is_file() for run in runs)


def test_progress_goes_to_stderr_and_quiet_keeps_it_away(new, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    file = new("--rounds", 5)
    loud = call("simulate", file, "--out", tmp_path / "loud")
    quiet = call("simulate", file, "--out", tmp_path / "quiet", "--quiet")
    assert [line.split("  ")[0] for line in loud.stderr.splitlines()] == [f"simulate {k}/5" for k in range(6)]
    assert quiet.stderr == ""
    assert loud.stdout.split(" rounds")[0] == quiet.stdout.split(" rounds")[0]
    assert "simulate" not in loud.stdout


@pytest.mark.parametrize("blocked", ["full", "file"])
def test_an_existing_directory_is_refused(new, tmp_path, blocked):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("")
    (tmp_path / "file").write_text("")
    result = call("simulate", new("--rounds", 1), "--out", tmp_path / blocked, code=3)
    assert f"Error: {tmp_path / blocked} exists already; choose another directory with --out" in result.stderr
    assert result.stdout == ""
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]


def test_a_directory_that_cannot_be_made_is_refused(new):
    file = new("--rounds", 1)
    result = call("simulate", file, "--out", file / "below" / "run", code=3)
    assert "Not a directory" in result.stderr


@pytest.mark.parametrize("engine", ["agents", "stacked"])
def test_divergence_is_exit_code_4_and_says_who_when_and_with_which_step(new, tmp_path, engine):
    file = new("--rounds", 100)
    file.write_text(file.read_text().replace('{ rule = "bb", first = 0.1 }', '{ rule = "constant", eta = 50.0 }'))
    result = call("simulate", file, "--out", tmp_path / "run", "--engine", engine, code=4)
    assert result.stdout == ""
    assert result.stderr.startswith("Error: agent ")
    assert " diverged in round " in result.stderr
    assert " with step size 50: " in result.stderr
    assert count_lines(tmp_path / "run" / "history.csv") >= 2


def test_a_process_of_its_own_ends_with_the_same_exit_codes(new, tmp_path):
    good = new("--rounds", 3)
    bad = tmp_path / "bad.toml"
    bad.write_text(good.read_text().replace("p = 2 ", "p = 7 "))
    wild = tmp_path / "wild.toml"
    wild.write_text(
        good.read_text()
        .replace('{ rule = "bb", first = 0.1 }', '{ rule = "constant", eta = 50.0 }')
        .replace("max_rounds = 3", "max_rounds = 300")
    )
    for arguments, code in (
        (["simulate", good, "--out", tmp_path / "a"], 0),
        (["simulate"], 2),
        (["simulate", bad], 3),
        (["simulate", good, "--out", tmp_path / "a"], 3),
        (["simulate", wild, "--out", tmp_path / "b"], 4),
    ):
        process = start(*arguments)
        stdout, stderr = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, stderr
        assert "Traceback" not in stderr
        assert bool(stdout) == (code == 0)
        assert bool(stderr) == (code != 0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_keeps_its_results(new, tmp_path, number, code):
    file, run = new("--rounds", 10**8, "--tolerance", 0), tmp_path / "run"
    process = start("simulate", file, "--out", run)
    wait_for(lambda: count_lines(run / "history.csv") > 5, process)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, stderr
    assert "Traceback" not in stderr
    assert "it was interrupted" in stdout
    summary = json.loads((run / "summary.json").read_text())
    assert summary["ending"] == "it was interrupted"
    with (run / "history.csv").open(newline="") as history:
        assert [int(line["round"]) for line in csv.DictReader(history)] == list(range(summary["rounds"] + 1))
    assert len(peers_of(run)) == 3 * load(file).d  # npz, csv and json
    with np.load(run / "peers" / "0.npz", allow_pickle=False) as saved:
        assert np.isfinite(saved["X"]).all()


def test_a_second_interrupt_leaves_at_once():
    interrupt = simulate.Interrupt(Path("there"))
    interrupt.listen()
    signal.raise_signal(signal.SIGINT)
    assert interrupt.is_asked
    with pytest.raises(SystemExit) as caught:
        signal.raise_signal(signal.SIGINT)
    assert caught.value.code == 130


@pytest.mark.parametrize(("method", "is_said"), [("proximal-tracking", True), ("proximal", False)])
def test_restarts_that_another_method_leaves_out_are_said(new, tmp_path, method, is_said):
    file = new("--method", "gram", "--rounds", 40)
    file.write_text(file.read_text().replace('method = "gram"', 'method = "gram"\nrestarts = 5'))
    result = call("simulate", file, "--quiet", "--method", method, "--out", tmp_path / "run")
    said = "Note: proximal-tracking searches from one start: algorithm.restarts = 5 is left out\n"
    assert result.stderr == (said if is_said else "")


@pytest.mark.parametrize("method", ["gram", "proximal", "proximal-tracking", "thanos"])
def test_the_largest_weight_runs_without_a_warning(new, tmp_path, method):
    file = new("--mu", "1e100", "--method", method, "--rounds", 40)
    assert call("simulate", file, "--quiet", "--out", tmp_path / "run").stderr == ""


def test_a_larger_weight_is_refused(new, tmp_path):
    file = new("--method", "gram")
    file.write_text(re.sub(r"^mu = \S+", "mu = 1e155", file.read_text(), flags=re.MULTILINE))
    result = call("simulate", file, "--quiet", "--out", tmp_path / "run", code=3)
    assert result.stderr == f"Error: {file}: problem.mu = 1e+155: must be at most 1e+100\n"


@pytest.mark.parametrize("command", ["simulate", "run"])
def test_a_reference_for_several_values_of_mu_is_refused(tmp_path, command):
    def change(raw):
        exact("gram")(raw)
        raw["problem"]["mu"] = [0.2, 0.1]

    topology = write_topology(tmp_path / "net.toml", change=change)
    result = call(command, topology.file, "--reference", "--out", tmp_path / "run", code=3)
    assert result.stderr == (
        f"Error: --reference: {topology.file} has several values of mu, each with an X* of its own; write one "
        "value there\n"
    )
    assert not (tmp_path / "run").exists()


def test_the_summary_of_a_path_has_its_table_and_the_chosen_row(tmp_path):
    def change(raw):
        exact("gram")(raw)
        raw["problem"] |= {"mu": {"path": 3}, "choose": {"nonzeros": 9}}

    topology = write_topology(tmp_path / "net.toml", change=change)
    shown = call("simulate", topology.file, "--quiet", "--out", tmp_path / "run").stdout
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    (chosen,) = [row for row in summary["path"] if row["is_chosen"]]
    assert summary["mu"] == chosen["mu"]
    assert summary["nonzeros"] == sum(chosen["nonzeros"]) <= 9
    assert summary["objective"] == pytest.approx(chosen["objective"], abs=1e-9)
    assert "  path over mu        chosen: the answer that explains most with at most 9 non-zeros\n" in shown
    assert shown.count(" mu = ") == 3
    (marked,) = [line for line in shown.splitlines() if line.startswith("  > mu = ")]
    assert f"{sum(chosen['nonzeros'])} non-zeros" in marked
    assert marked.endswith(f"variance {chosen['explained']:7.2%}  converged")
    together = sum(summary["plain_pca_explained_variance_ratio"][:2])
    assert f", 2: {together:.0%}, " in shown
    tables = {file.read_bytes() for file in (tmp_path / "run" / "peers").glob("*.path.csv")}
    assert len(tables) == 1
    lines = tables.pop().decode().splitlines()
    assert lines[0].startswith("mu,nonzeros,nonzeros_1,nonzeros_2,explained,adjusted_1,adjusted_2,")
    assert [float(line.split(",")[0]) for line in lines[1:]] == [row["mu"] for row in summary["path"]]
