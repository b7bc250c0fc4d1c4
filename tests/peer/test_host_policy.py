"""Rules of a host, in /etc/thanos-peer/policy.toml: no command line and no variable leads past them."""

import json
import os
import re
import subprocess

import pytest
from cli.commands import call
from namespaces import own_etc
from peer.sites import files_topology, listening, policy_in
from processes import command, write_topology

from thanos_peer.storage.peer_files import PeerFiles

HOST_FILE = "/etc/thanos-peer/policy.toml"
MADE_KEYS = "the keys that peers of one machine get for one run are without masks; give the file keys of its own"


@pytest.fixture
def host(tmp_path):
    """Where /etc/thanos-peer is, and a function that runs thanos-peer as on a host with that."""
    etc, prefix = own_etc(tmp_path)
    directory = etc / "thanos-peer"
    directory.mkdir(mode=0o755)

    def run(*arguments, code, **variables):
        """What it says on stderr."""
        done = subprocess.run(
            [*prefix, *command(*arguments)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=os.environ | {name: str(value) for name, value in variables.items()},
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    return directory, run


def words_of_start(topology, agent, out, *options):
    words = ["start", "--id", agent, "--topology", topology.file, "--out", out, "--give-up-after", 1]
    return [*words, *options]


def test_rules_of_the_host_hold_beside_all_that_are_named(tmp_path, host):
    (directory, run), topology = host, files_topology(tmp_path, "path")
    (directory / "policy.toml").write_text("no_sole_neighbor = true\n", encoding="utf-8")
    named, in_environment = policy_in(tmp_path, "encryption = true\n"), tmp_path / "more.toml"
    in_environment.write_text("least_coalition = 3\n", encoding="utf-8")
    words = words_of_start(topology, 0, tmp_path / "run", "--policy", named)
    with listening(topology, 0) as connections:
        said = run(*words, code=3, THANOS_PEER_POLICY=in_environment)
        assert connections() == 0
    assert f"{HOST_FILE} and {in_environment} do not let peer 0 take part" in said
    assert re.findall(r"^  (\w+) = ", said, re.MULTILINE) == ["no_sole_neighbor", "least_coalition"]
    # The strictest of what all ask is what was agreed.
    (tmp_path / "alone").mkdir()
    one = files_topology(tmp_path / "alone", "path", (5,))
    (directory / "policy.toml").write_text("least_samples = 2\nlargest_share = 1.0\n", encoding="utf-8")
    policy_in(tmp_path, "least_samples = 4\n")
    in_environment.write_text("least_samples = 3\nno_cut_vertex = true\n", encoding="utf-8")
    run(*words_of_start(one, 0, tmp_path / "one", "--policy", named), code=0, THANOS_PEER_POLICY=in_environment)
    facts = json.loads(PeerFiles(tmp_path / "one", one, 0).facts.read_text(encoding="utf-8"))
    assert facts["policy"] == {"least_samples": 4, "largest_share": 1.0, "no_cut_vertex": True}


UNSOUND = {
    "chown {user} {file}": "policy.toml belongs to user 4711; it must be root's or your own",
    "chown {user} {directory}": "/etc/thanos-peer belongs to user 4711",
    "chmod 664 {file}": "policy.toml has mode 0664, so other users can change it: chmod go-w /etc/thanos-peer",
    "chmod 646 {file}": "policy.toml has mode 0646",
    "chmod 777 {directory}": "/etc/thanos-peer has mode 0777",
    "ln -sf /nowhere/at/all {file}": "policy.toml leads nowhere",
    "rm -r {directory} && ln -s /nowhere/at/all {directory}": "policy.toml leads nowhere",
    "ln -sfn loop {directory}/loop && ln -sf loop {file}": "policy.toml cannot be looked at",
    "echo no_rule = 1 >{file}": "no_rule = 1: unknown key",
}


@pytest.mark.parametrize("change", UNSOUND)
def test_rules_that_another_user_could_have_changed_are_an_error_and_not_left_out(tmp_path, host, change):
    (directory, run), topology = host, files_topology(tmp_path, sizes=(5, 6, 7))
    file = directory / "policy.toml"
    file.write_text("encryption = true\n", encoding="utf-8")
    file.chmod(0o644)
    subprocess.run(["sh", "-c", change.format(file=file, directory=directory, user=4711)], check=True)
    with listening(topology, 0) as connections:
        said = run(*words_of_start(topology, 0, tmp_path / "run"), code=3)
        assert connections() == 0
    assert UNSOUND[change] in said


def test_what_runs_all_peers_here_keeps_the_rules_of_the_host(tmp_path, host):
    (directory, run), topology = host, write_topology(tmp_path / "net.toml", d=3, max_rounds=4)
    (directory / "policy.toml").write_text("masked_sums = true\nencryption = true\n", encoding="utf-8")
    for name in ("run", "verify", "chaos"):
        said = (
            run(name, topology.file, "--out", tmp_path / name, "--method", "gram", code=3)
            if name != "chaos"
            else run(name, topology.file, "--out", tmp_path / name, code=3)
        )
        assert f"{HOST_FILE} does not let peer 0 take part" in said
        assert not (tmp_path / name).exists()
    said = run("run", topology.file, "--out", tmp_path / "run", "--method", "gram", code=3)
    assert f"masked_sums = true: sums are not masked, as {MADE_KEYS}" in said


@pytest.mark.parametrize("name", ["run", "verify", "chaos"])
def test_rules_that_are_named_hold_for_all_peers_of_one_machine(tmp_path, monkeypatch, name):
    topology = write_topology(tmp_path / "net.toml", d=3, max_rounds=4)
    monkeypatch.setenv("THANOS_PEER_POLICY", str(policy_in(tmp_path, "no_cut_vertex = true")))
    other = tmp_path / "other.toml"
    other.write_text("least_coalition = 2", encoding="utf-8")
    words = [name, topology.file, "--out", tmp_path / name, "--policy", other]
    said = call(*words, code=3).stderr
    assert f"{tmp_path / 'site.toml'} and {other} do not let peer 0 take part" in said
    assert "each neighbor alone can work out its own numbers" in said
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["run", "verify", "chaos"])
def test_peers_of_one_machine_count_their_samples_and_say_what_was_agreed(tmp_path, monkeypatch, name):
    topology = files_topology(tmp_path, sizes=(5, 6, 7), has_keys=False)
    monkeypatch.setenv("THANOS_PEER_POLICY", str(policy_in(tmp_path, "encryption = true")))
    other = tmp_path / "other.toml"
    words = [name, topology.file, "--policy", other, *(["--faults", 0] if name == "chaos" else [])]
    other.write_text("least_samples = 6", encoding="utf-8")
    assert "least_samples = 6: this site has 5" in call(*words, "--out", tmp_path / "refused", code=3).stderr
    other.write_text("least_samples = 5", encoding="utf-8")
    call(*words, "--out", tmp_path / name)
    for i in range(topology.d):
        facts = json.loads(PeerFiles(tmp_path / name, topology, i).facts.read_text(encoding="utf-8"))
        assert facts["policy"] == {"encryption": True, "least_samples": 5}
