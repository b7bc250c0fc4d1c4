"""The README is what a new user does first: what stands there must be what happens."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from thanos_peer.cli.app import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def console_block(command):
    """The output that the README shows for a command."""
    found = re.search(rf"```console\n\$ {re.escape(command)}\n(.*?)```", README, re.DOTALL)
    assert found, f"the README shows no output of: {command}"
    return found.group(1)


def test_the_output_of_topology_check_is_the_real_one(monkeypatch):
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(app, ["topology", "check", "topologies/small.toml"])
    assert result.output == console_block("thanos-peer topology check topologies/small.toml")


def test_the_output_of_simulate_is_the_real_one_up_to_time_and_rounding(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    command = ["simulate", "topologies/small.toml", "--reference"]
    result = CliRunner().invoke(app, [*command, "--quiet", "--out", str(tmp_path / "run")])
    shown = console_block("thanos-peer " + " ".join(command)).splitlines()[:-1]
    printed = result.output.splitlines()[:-1]
    assert [re.sub(r"[-+]?\d\S*", "#", line) for line in printed] == [
        re.sub(r"[-+]?\d\S*", "#", line) for line in shown
    ]
    assert printed[1] == shown[1]
    assert printed[3] == shown[3]


def test_the_mistakes_it_shows_are_reported_that_way(tmp_path, monkeypatch):
    text = (ROOT / "topologies/small.toml").read_text(encoding="utf-8")
    text = text.replace("mu = 0.1", "mu = -0.1").replace("[0, 1], [1, 2],", "[0, 1], [2, 2],")
    monkeypatch.chdir(tmp_path)
    Path("bad.toml").write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, ["topology", "check", "bad.toml"])
    shown = console_block("thanos-peer topology check bad.toml")
    assert result.exit_code == 3
    assert result.output == shown


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_the_python_example_runs_and_converges(code):
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    last_round, _, feasibility = done.stdout.splitlines()[-1].split()
    assert 0 < int(last_round) < 3000
    assert float(feasibility) < 1e-5


def test_the_exit_codes_agree_with_the_help():
    rows = re.findall(r"^\| (\d+(?:, \d+)?) \|", README, re.MULTILINE)
    codes = {code for row in rows for code in row.split(", ")}
    help_text = CliRunner().invoke(app, ["--help"]).output
    assert codes == set(re.findall(r"\b(\d+)\s", help_text.split("Exit codes:")[1]))
