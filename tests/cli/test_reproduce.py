import csv
import signal
import sys

import pytest
from cli.commands import call, start

IMPATIENT = (
    "-c",
    "import thanos_peer.cli.progress as p; p.QUIET_SECONDS = 0.0; from thanos_peer.cli import main; main()",
)


def test_a_short_reproduction_writes_table_and_pictures_and_a_verdict_on_each_observation(tmp_path):
    result = call("reproduce", "--rounds", 20, "--figure", "l1", "--out", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"figure-l1.{end}" for end in ("csv", "png", "svg")}
    with (tmp_path / "figure-l1.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 5 * 21
    lines = result.stdout.splitlines()
    assert lines[0].startswith("l1, seed 1; residual of X* ")
    assert lines[1].split() == ["sigma", "dist(0)", "dist(20)", "feas", "half", "at"]
    assert [line.split()[0] for line in lines[2:7]] == ["10", "1", "0.1", "0.01", "k^(-1/3)"]
    for line, observation in zip(
        lines[7:10],
        ("a smaller sigma converges", "a larger sigma ends", "the decreasing scheme beats"),
        strict=True,
    ):
        assert line.strip().startswith(("holds", "DOES NOT HOLD", "not decided"))
        assert observation in line
    assert str(tmp_path / "figure-l1.svg") in lines[10]
    assert result.stderr == ""


def test_both_figures_are_drawn_with_the_sigmas_that_were_asked_for(tmp_path):
    call("reproduce", "--rounds", 2, "--sigma", 0.5, "--sigma", 2, "--sigma", 0.5, "--seed", 3, "--out", tmp_path)
    for regularizer in ("l1", "l21"):
        with (tmp_path / f"figure-{regularizer}.csv").open(newline="") as file:
            lines = list(csv.DictReader(file))
        assert list(dict.fromkeys(line["sigma"] for line in lines)) == ["2", "0.5", "k^(-1/3)"]


def test_without_matplotlib_nothing_is_begun(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = call("reproduce", "--rounds", 10**8, "--out", tmp_path / "paper", code=3)
    assert "pip install '.[plots]' in a checkout" in result.stderr
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(("option", "code"), [(["--sigma", "inf"], 2), (["--seed", 2**63], 3)])
def test_a_setting_that_no_topology_may_have_is_refused(tmp_path, option, code):
    assert call("reproduce", "--rounds", 1, *option, "--out", tmp_path, code=code).stdout == ""


def test_an_interrupted_reproduction_is_exit_code_130(tmp_path):
    process = start("reproduce", "--rounds", 10**8, "--out", tmp_path, script=IMPATIENT)
    assert process.stderr.readline().startswith("reproduce 1/")
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert "Traceback" not in stderr
    assert process.returncode == 130
