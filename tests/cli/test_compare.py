import csv
import json
import re
import signal
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from cli.commands import call, start
from processes import exact, write_topology

from thanos_peer.algorithm.central import CENTRAL

SMALL = Path(__file__).parents[2] / "topologies" / "small.toml"
IMPATIENT = (
    "-c",
    "import thanos_peer.cli.progress as p; p.QUIET_SECONDS = 0.0; from thanos_peer.cli import main; main()",
)


def rows_of(directory, name="runs.csv"):
    with (directory / name).open(newline="") as file:
        return list(csv.DictReader(file))


def without_seconds(text):
    """Tables say how long it took; that is the one thing that differs from run to run."""
    return [
        line.rpartition("|")[0].rpartition("|")[0] if line.count("|") == 8 else line for line in text.splitlines()
    ]


def pixels_of(png):
    """The bytes of all rows of a PNG file, as numpy sees them."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", png[16:24])
    data, at = b"", 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + length]
        at += 12 + length
    return width, height, np.frombuffer(zlib.decompress(data), dtype=np.uint8)


def test_the_exact_methods_beside_thanos_and_the_centralised_ones(tmp_path):
    out = tmp_path / "out"
    options = ("--methods", "gram,proximal,thanos", "--seeds", 2, "--central", "--max-rounds", 200, "--out", out)
    result = call("compare", SMALL, *options)
    assert result.stdout == (out / "table.md").read_text() + f"\nwritten to {out}/\n"
    rows = rows_of(out)
    assert len(rows) == 2 * (3 + len(CENTRAL))
    for row in rows:
        if row["method"] in ("gram", "proximal"):
            assert (row["ending"], row["has_same_zeros"]) == ("at the best stationary point", "True")
            assert float(row["gap"]) < 1e-10
            assert float(row["residual"]) < 1e-9
            assert int(row["rounds_1e-8"]) <= int(row["rounds"])
        # Two rounds find the size, two take the one sum.
        if row["method"] == "gram":
            assert (row["rounds_1e-8"], row["messages_1e-8"]) == ("4", "16")
            assert row["payload_1e-8"] == row["payload"]
        if row["method"] == "thanos":
            assert (row["ending"], row["rounds_1e-8"]) == ("not stationary", "never")
        assert (row["payload"] == "") == (row["central"] == "True")
    assert {row["method"] for row in rows if row["central"] == "True"} == set(CENTRAL)
    assert [row["method"] for row in rows_of(out, "table.csv")][:3] == ["gram", "proximal", "thanos"]
    width, height, pixels = pixels_of((out / "figure.png").read_bytes())
    assert min(width, height) > 500
    assert np.mean(pixels != np.bincount(pixels).argmax()) > 0.02  # something is drawn


def test_the_table_is_that_of_simulate(tmp_path):
    call("simulate", SMALL, "--reference", "--quiet", "--out", tmp_path / "run")
    call("compare", SMALL, "--methods", "thanos", "--seeds", 1, "--out", tmp_path / "out")
    (row,) = rows_of(tmp_path / "out")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert float(row["objective"]) == pytest.approx(summary["objective"], rel=1e-14)
    assert float(row["gap"]) == pytest.approx(summary["gap"], rel=1e-9)  # ||A||_2 is 1 there
    assert float(row["residual"]) == pytest.approx(summary["residual"], rel=1e-9)
    assert int(row["rounds"]) == summary["rounds"]
    assert int(row["payload"]) == summary["payload_bytes"]
    with (tmp_path / "run" / "history.csv").open(newline="") as file:
        first = next(int(line["round"]) for line in csv.DictReader(file) if float(line["gap"]) <= 1e-2)
    assert int(row["rounds_1e-2"]) == first


def test_peers_of_their_own_have_the_gaps_of_one_process(new, tmp_path):
    file = new("ring", "--peers", 4, "--rounds", 40, "--tolerance", 0)
    options = ("--methods", "proximal,thanos", "--seeds", 1, "--quiet")
    here, there = tmp_path / "here", tmp_path / "there"
    call("compare", file, *options, "--out", here)
    call("compare", file, *options, "--processes", "--out", there)
    names = sorted(path.name for path in (here / "runs").iterdir())
    assert names == sorted(path.name for path in (there / "runs").iterdir())
    for name in names:
        one, other = (json.loads((out / "runs" / name).read_text()) for out in (here, there))
        for record in (one, other):
            record.pop("seconds", None)
            record.get("curve", {}).pop("seconds", None)
        assert one == other
    assert not (there / "running").exists()


def test_an_interrupted_comparison_goes_on_and_comes_to_the_same_table(tmp_path):
    out, again = tmp_path / "out", tmp_path / "again"
    options = ("--methods", "gram,proximal,subgradient", "--seeds", 2, "--max-rounds", 3000)
    process = start("compare", SMALL, *options, "--out", out, script=IMPATIENT)
    for line in process.stderr:
        if re.match(r"compare [3-9]/6 ", line):
            break
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (130, "")
    assert "Traceback" not in stderr
    (kept,) = re.findall(r"interrupted: (\d) of 6 runs are finished and kept in (?:\S+); the same command", stderr)
    finished = {path: path.stat().st_mtime_ns for path in (out / "runs").glob("[!r]*.json")}
    assert len(finished) == int(kept) >= 3
    assert not (out / "table.md").exists()
    gone_on = call("compare", SMALL, *options, "--out", out)
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    afresh = call("compare", SMALL, *options, "--out", again)
    assert without_seconds(gone_on.stdout)[:-1] == without_seconds(afresh.stdout)[:-1]


def test_more_seeds_and_methods_join_what_is_there(tmp_path):
    call("compare", SMALL, "--methods", "gram", "--seeds", 1, "--out", tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "runs").iterdir()}
    call("compare", SMALL, "--methods", "gram,proximal", "--seeds", 2, "--out", tmp_path / "out")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(rows_of(tmp_path / "out")) == 4


def test_a_sweep_has_a_line_for_each_value_and_its_failures_are_counted(tmp_path):
    steps = '{rule="constant",eta=0.1},{rule="constant",eta=1e6}'
    options = ("--methods", "gram,thanos", "--seeds", 2, "--max-rounds", 60, "--sweep", f"algorithm.step={steps}")
    result = call("compare", SMALL, *options, "--out", tmp_path / "out")
    assert "algorithm.step is no setting of gram, which runs without it" in result.stderr
    assert [(row["failed"], row["endings"]) for row in rows_of(tmp_path / "out", "table.csv")] == [
        ("0", "2 at the best stationary point"),
        ("2", "2 not stationary"),
        ("2", "2 diverged"),
    ]
    assert "with step size 1e+06" in result.stdout
    assert "(seed 1, 2)" in result.stdout


def test_a_problem_may_be_swept_too_and_each_has_its_own_best(tmp_path):
    options = ("--methods", "gram,proximal", "--seeds", 1, "--sweep", "problem.n=6,12")
    call("compare", SMALL, *options, "--out", tmp_path / "out")
    rows = rows_of(tmp_path / "out")
    assert [(row["problem.n"], row["method"]) for row in rows] == [
        ("6", "gram"),
        ("6", "proximal"),
        ("12", "gram"),
        ("12", "proximal"),
    ]
    assert all(float(row["gap"]) < 1e-10 for row in rows)
    assert int(rows[0]["payload_1e-8"]) < int(rows[2]["payload_1e-8"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--max-rounds", 5), "another --max-rounds: none there, 5 here"),
        (("--processes",), "another --processes: false there, true here"),
        (("--sweep", "problem.mu=0.2"), 'another --sweep: none there, {"problem.mu": [0.2]} here'),
    ],
)
def test_a_directory_of_other_settings_is_refused_by_name(tmp_path, options, words):
    usual = ("--methods", "gram", "--seeds", 1, "--out", tmp_path / "out")
    call("compare", SMALL, *usual)
    assert words in call("compare", SMALL, *usual, *options, code=3).stderr


def test_a_directory_of_another_problem_is_refused_by_name(new, tmp_path):
    call("compare", SMALL, "--methods", "gram", "--seeds", 1, "--out", tmp_path / "out")
    other = new("ring", "--peers", 3)
    error = call("compare", other, "--methods", "gram", "--seeds", 1, "--out", tmp_path / "out", code=3).stderr
    assert f"{tmp_path / 'out'} holds a comparison with another topology: small there, ring-3 here" in error


def test_a_directory_of_something_else_is_refused(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    assert "holds something else" in call("compare", SMALL, "--out", tmp_path, code=3).stderr


def test_a_damaged_record_is_refused_by_name(tmp_path):
    usual = ("--methods", "gram", "--seeds", 1, "--out", tmp_path / "out")
    call("compare", SMALL, *usual)
    (file,) = (tmp_path / "out" / "runs").glob("gram-*")
    file.write_text(file.read_text()[:50])
    assert f"{file} is damaged" in call("compare", SMALL, *usual, code=3).stderr
    file.write_text("{}")
    assert f"{file} is not what this comparison has written" in call("compare", SMALL, *usual, code=3).stderr


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--methods", "gramm"), 2, "'gramm' is not one of auto, proximal, gram"),
        (("--methods", "slpg"), 2, "it is centralised, give --central"),
        (("--methods", ","), 2, "name at least one method"),
        (("--methods", "destiny"), 3, "destiny is for problems without"),
        (("--sweep", "algorithm.beta"), 2, "is not KEY=VALUE,VALUE"),
        (("--sweep", "problem.mu=1", "--sweep", "problem.mu=2"), 2, "is given twice"),
        (("--sweep", "algorithm.betta=1"), 3, 'did you mean "beta"'),
        (("--sweep", "problem.mu=many"), 3, "problem.mu = 'many': must be a valid number"),
        (("--seeds", "0"), 2, "0 is not in the range"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(tmp_path, options, code, words):
    error = call("compare", SMALL, "--out", tmp_path / "out", *options, code=code).stderr
    assert words in " ".join(error.split())
    assert not (tmp_path / "out").exists()


def test_a_path_over_mu_is_refused_before_anything_runs(tmp_path):
    def change(raw):
        exact("auto")(raw)
        raw["problem"]["mu"] = [0.2, 0.1]

    file = write_topology(tmp_path / "net.toml", change=change).file
    error = call("compare", file, "--methods", "gram", "--out", tmp_path / "out", code=3).stderr
    assert f"{file}: problem.mu has several values, and methods are compared on one" in " ".join(error.split())
    assert not (tmp_path / "out").exists()
    options = ("--methods", "gram", "--seeds", 1, "--out", tmp_path / "one", "--sweep", "problem.mu=0.2")
    assert "gram problem.mu=0.2" in call("compare", file, *options).stdout


def test_without_matplotlib_there_are_tables_and_a_word(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = call("compare", SMALL, "--methods", "gram", "--seeds", 1, "--out", tmp_path / "out")
    assert "no figure: pictures need matplotlib: pip install" in result.stderr
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("compare.json", "runs", "runs.csv", "table.csv", "table.md"),
    }
