"""What a user sees of the phases before and after the one that minimises."""

import io
import re
import sys

import numpy as np
import pytest
import tomlkit
from cli.commands import call
from cli.test_progress import Terminal
from networks import raw_topology
from processes import PATIENCE, ended_afterwards, own_name, start_peer, wait_until

from thanos_peer.cli import progress as progress_module
from thanos_peer.cli.progress import Progress
from thanos_peer.launch.ports import free_ports
from thanos_peer.topology import load


@pytest.fixture
def prepared(tmp_path):
    """A topology whose network centers, scales and finds its start by itself."""
    raw = raw_topology("ring", 4, max_rounds=20, tolerance=0.0, name=own_name("prepared"))
    raw["problem"]["data"] = {"kind": "files", "center": True, "scale": True, "overall": "auto"}
    raw["algorithm"] |= {"beta": "auto", "step": {"rule": "bb", "first": "auto"}}
    raw["algorithm"]["start"] = {"kind": "destiny", "seed": 1, "max_rounds": 1500, "tolerance": 1e-300}
    rng = np.random.default_rng(2)
    for peer, port in zip(raw["peers"], free_ports(4), strict=True):
        peer["address"] = f"tcp://127.0.0.1:{port}"
        np.save(tmp_path / f"{peer['id']}.npy", rng.standard_normal((20, 6)))
        peer["data"] = f"{peer['id']}.npy"
    file = tmp_path / "net.toml"
    file.write_text(tomlkit.dumps(raw), encoding="utf-8")
    return file


def test_check_names_the_phases_and_their_rounds(prepared):
    lines = call("topology", "check", prepared).stdout.splitlines()
    (phases,) = [line.removeprefix("phases").strip() for line in lines if line.startswith("phases")]
    assert phases == (
        "mean 4, spread 4, size 4, subspace up to 1500, rotation up to 8, thanos 20, consensus 4, verdict 4"
    )


@pytest.mark.parametrize("command", [["simulate"], ["run", "--free-ports"]])
def test_a_run_says_which_phase_it_is_in(command, prepared, tmp_path, monkeypatch):
    monkeypatch.setattr(progress_module, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr("thanos_peer.cli.run.LOOK_AT_PHASE", 0.0)
    told = call(*command, prepared, "--out", tmp_path / "out").stderr
    named = set(re.findall(r"phase (\w+), round \d+\n", told))
    assert named <= {"mean", "spread", "size", "subspace", "rotation", "consensus", "verdict"}
    assert "subspace" in named
    if command == ["simulate"]:
        assert len(named) == 7
    assert f"{command[0]} 20/20  round 20 " in told


def test_a_terminal_sees_the_phase_beside_the_bar(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(progress_module, "PHASE_SECONDS", 0.0)
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress("run", 10) as progress:
        progress.show_phase("subspace", 412)
    assert "run, phase subspace, round 412" in stream.getvalue()


def test_a_log_file_does_not_see_every_round_of_a_phase(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress("run", 10) as progress:
        for k in range(100):
            progress.show_phase("subspace", k)
    assert stream.getvalue() == ""


def test_status_says_which_phase_a_peer_is_in(prepared, tmp_path):
    topology = load(prepared)
    alone = start_peer(topology, 2, tmp_path / "out")  # it waits in its first round

    def answer():
        said = call("status", prepared, "--id", 2, "--timeout", 0.5, code=None).stdout
        return said if "peer 2 of" in said else None

    with ended_afterwards(alone):
        said = wait_until(answer, "an answer", PATIENCE)
    assert "phase mean (1 of 8), round 0 of at most 4;" in said
