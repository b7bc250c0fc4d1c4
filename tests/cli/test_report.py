import sys

import pytest
from cli.commands import call


@pytest.fixture
def run(new, tmp_path):
    call("simulate", new("ring", "--rounds", 5), "--out", tmp_path / "run", "--quiet")
    return tmp_path / "run"


def test_the_report_lies_in_the_run_directory_or_where_it_is_wanted_with_the_same_bytes(run, tmp_path):
    page, elsewhere = run / "report" / "report.html", tmp_path / "deep" / "there"
    shown = call("report", run).stdout
    assert shown.startswith(f"written: {page}, and as pictures objective.png, feasibility.png, ")
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    call("report", run, "--out", elsewhere)
    names = sorted(path.name for path in elsewhere.iterdir())
    assert names == sorted(path.name for path in page.parent.iterdir())
    assert all((elsewhere / name).read_bytes() == (page.parent / name).read_bytes() for name in names)


@pytest.mark.parametrize("what", ["nowhere", "net.toml", ""])
def test_what_is_no_run_is_exit_code_3_in_one_line(new, tmp_path, what):
    new("ring")
    result = call("report", tmp_path / what, code=3)
    assert result.stdout == ""
    assert result.stderr.startswith(f"Error: {tmp_path / what} ")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / what / "report").exists()


def test_a_damaged_topology_is_exit_code_3(run):
    (run / "topology.toml").write_text("name = ")
    assert "is not TOML" in call("report", run, code=3).stderr


def test_a_report_that_cannot_be_written_is_exit_code_3(run, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "objective.png").symlink_to("/dev/full")
    result = call("report", run, "--out", tmp_path / "full", code=3)
    assert result.stderr == (
        f"Error: {tmp_path / 'full' / 'objective.png'} cannot be written: No space left on device; "
        "choose another directory with --out\n"
    )
    assert not (tmp_path / "full" / "report.html").exists()
    assert (
        "net.toml/x: Not a directory" in call("report", run, "--out", tmp_path / "net.toml" / "x", code=3).stderr
    )
    assert "is a file" in call("report", run, "--out", tmp_path / "net.toml", code=2).stderr


def test_without_matplotlib_the_extra_is_named_and_nothing_is_made(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install '.[plots]' in a checkout" in call("report", run, code=3).stderr
    assert not (run / "report").exists()
