"""`thanos-peer hosts`: what it prints is done to the letter, on hosts that share nothing but what it copies."""

import configparser
import contextlib
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from claims import little_memory, npy_header, zipped
from cli.commands import call
from namespaces import connected_hosts, ip, need
from own_code.classes import MODULE
from processes import assert_same_bits, simulated, wait_until, write_topology
from programs import run

from thanos_peer.storage.peer_files import PeerFiles

# The number of the host that ssh is called on.
OFFICE = 4
CLIENT = """\
User root
IdentityFile {place}/key
IdentitiesOnly yes
BatchMode yes
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
ConnectionAttempts 3
"""
SERVER = """\
ListenAddress {address}
HostKey {place}/key
AuthorizedKeysFile {place}/key.pub
PidFile none
PermitRootLogin yes
PasswordAuthentication no
StrictModes no
UsePAM no
MaxStartups 100
Subsystem sftp /usr/lib/openssh/sftp-server -d {home}
ForceCommand cd {home} && PATH={path} && export PATH && exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""


@pytest.fixture
def lan():
    with connected_hosts(5) as lan:
        yield lan
        for name in lan.names:
            end_all_on(name)


def end_all_on(name):
    """Kill whatever runs on a host, and wait until it is gone, its open ports too."""
    for pid in ip("netns", "pids", name).split():
        with contextlib.suppress(ProcessLookupError):  # it may have ended since
            os.kill(int(pid), signal.SIGKILL)
    wait_until(lambda: not ip("netns", "pids", name).split(), f"nothing runs on {name}")


@pytest.fixture
def office(tmp_path, lan, monkeypatch):
    """A directory to work in, whence ssh and scp lead to hosts with a home directory each."""
    need("ssh", "scp", "sshd", "ssh-keygen")
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key")
    Path("/run/sshd").mkdir(exist_ok=True)
    path = f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    for number in range(OFFICE):
        serve(lan, number, tmp_path, path)
    (tmp_path / "client").write_text(CLIENT.format(place=tmp_path), encoding="utf-8")
    (tmp_path / "bin").mkdir()
    for name in ("ssh", "scp"):
        there = f"exec {' '.join(lan.on(OFFICE))} {shutil.which(name)} -F {tmp_path}/client"
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\n{there} $MORE_FOR_{name} "$@"\n', encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    (tmp_path / "office").mkdir()
    monkeypatch.chdir(tmp_path / "office")
    return tmp_path / "office"


def home_of(lan, number, place):
    return place / "homes" / lan.address_of(number)


def serve(lan, number, place, path):
    """Have a host answer to ssh; commands have this PATH there."""
    home = home_of(lan, number, place)
    home.mkdir(parents=True, exist_ok=True)
    config = place / f"sshd-{number}"
    config.write_text(
        SERVER.format(address=lan.address_of(number), place=place, home=home, path=path), encoding="utf-8"
    )
    run(*lan.on(number), shutil.which("sshd"), "-f", config, "-E", place / f"sshd-{number}.log")


def do(*arguments):
    """Hand what is printed to a shell, as the help says."""
    done = by_shell(call(*arguments).stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def by_shell(text):
    return subprocess.run(["sh", "-e"], input=text, capture_output=True, text=True, check=False, timeout=120)


def test_following_the_instructions_to_the_letter_gives_the_bits_of_one_process(office, lan):
    topology = write_topology(
        Path("net.toml"), "ring", 4, change=lan.each_on_its_own_host, max_rounds=2000, tolerance=1e-3
    )
    do("hosts", "net.toml", "--only", "copy")
    for number in range(4):
        copied = [path.name for path in home_of(lan, number, office.parent).rglob("*") if path.is_file()]
        assert sorted(copied) == [f"{number}.secret", "net.toml"]
    do("hosts", "net.toml", "--only", "run")
    for number in range(4):
        there = home_of(lan, number, office.parent) / "thanos-peer/runs/ring-4"
        result = PeerFiles(there, topology, number)
        wait_until(lambda file=result.facts: file.exists(), f"the result of peer {number}")
    do("hosts", "net.toml", "--only", "fetch")
    fetched = sorted(path.name for path in Path("runs/ring-4/peers").iterdir())
    assert fetched == sorted(f"{i}.{kind}" for i in range(4) for kind in ("csv", "json", "npz"))
    assert_same_bits(Path("runs/ring-4"), topology)
    verdict = call("verify", "net.toml", "--results", "runs/ring-4").stdout
    assert f"same bits: the results of 4 peers, all after round {simulated(topology).k}" in verdict


def test_code_and_a_start_are_copied_and_used(office, lan):
    def change(raw):
        lan.each_on_its_own_host(raw)
        raw["problem"]["regularizer"] = "mine:Ridge"
        raw["algorithm"]["start"] = {"kind": "file", "path": "starts/begin here.npy"}

    Path("starts").mkdir()
    np.save("starts/begin here.npy", np.eye(6, 2))
    Path("code").mkdir()
    Path("code/mine.py").write_text(MODULE, encoding="utf-8")
    topology = write_topology(Path("net.toml"), "path", 2, change=change)
    assert "is Python code that peers would run" in call("hosts", "net.toml", code=3).stderr
    allowed = ("--allow-code", "code/mine.py")
    do("hosts", "net.toml", *allowed, "--only", "copy", "--only", "run")
    for number in range(2):
        there = home_of(lan, number, office.parent) / "thanos-peer/runs/path-2"
        wait_until(PeerFiles(there, topology, number).facts.exists, f"the result of peer {number}")
    do("hosts", "net.toml", "--only", "fetch")
    verdict = call("verify", "net.toml", "--results", "runs/path-2", *allowed).stdout
    assert "same bits: the results of 2 peers, all after round 60" in verdict


# The protocols of scp: since OpenSSH 9, and before.
@pytest.mark.parametrize("protocol", ["-s", "-O"])
def test_names_with_spaces_and_colons_are_copied_run_and_fetched(office, lan, monkeypatch, protocol):
    def change(raw):
        lan.each_on_its_own_host(raw)
        raw["algorithm"]["start"] = {"kind": "file", "path": "its: starts/begin $HOME.npy"}

    monkeypatch.setenv("MORE_FOR_scp", protocol)
    Path("its: starts").mkdir()
    np.save("its: starts/begin $HOME.npy", np.eye(6, 2))
    topology = write_topology(Path("net:a.toml"), "path", 2, change=change)
    to = ("--directory", "my peers/it's *here*")
    do("hosts", "net:a.toml", *to, "--only", "copy", "--only", "run")
    for number in range(2):
        there = home_of(lan, number, office.parent) / "my peers/it's *here*"
        assert stat.S_IMODE((there / f"net:a.keys/{number}.secret").stat().st_mode) == 0o600
        wait_until(PeerFiles(there / "runs/path-2", topology, number).facts.exists, f"peer {number} is done")
    do("hosts", "net:a.toml", *to, "--only", "fetch")
    assert_same_bits(Path("runs/path-2"), topology)


def test_results_that_are_here_already_stay_if_they_cannot_be_fetched(tmp_path, monkeypatch):
    write_topology(tmp_path / "net.toml", "path", 2, change=on_hosts("north.example", "south.example"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").write_text("#!/bin/sh\necho half; exit 255\n", encoding="ascii")
    (tmp_path / "bin/ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    here = Path("runs/path-2/peers")
    here.mkdir(parents=True)
    (here / "0.npz").write_text("whole", encoding="ascii")
    lines = call("hosts", "net.toml", "--directory", "my peers", "--only", "fetch").stdout
    assert by_shell(lines).returncode != 0
    subprocess.run(["sh"], input=lines, capture_output=True, text=True, check=False, timeout=60)  # no -e
    assert {path.name: path.read_text(encoding="ascii") for path in here.iterdir()} == {"0.npz": "whole"}


@pytest.mark.parametrize("directory", ["~/peers", "~ann/peers", "-p", ""])
def test_a_directory_that_no_shell_there_would_understand_is_refused(tmp_path, directory):
    write_topology(tmp_path / "net.toml", "path", 2, change=on_hosts("north.example", "south.example"))
    error = call("hosts", tmp_path / "net.toml", f"--directory={directory}", code=2).stderr
    assert f"{directory!r} is not a path from the home directory there, or from /" in error


@pytest.mark.parametrize("protocol", ["-s", "-O"])
def test_a_name_with_a_colon_is_no_host(office, lan, monkeypatch, protocol):
    monkeypatch.setenv("MORE_FOR_scp", protocol)
    write_topology(Path("net:a.toml"), "path", 2, change=lan.each_on_its_own_host)
    do("hosts", "net:a.toml", "--only", "copy")
    for number in range(2):
        there = home_of(lan, number, office.parent) / "thanos-peer"
        assert (there / "net:a.toml").read_bytes() == Path("net:a.toml").read_bytes()
        assert (there / f"net:a.keys/{number}.secret").exists()


def test_a_host_without_the_command_is_named_before_anything_runs(office, lan):
    write_topology(Path("net.toml"), "path", 2, change=lan.each_on_its_own_host)
    do("hosts", "net.toml", "--only", "copy")
    home = home_of(lan, 1, office.parent)
    end_all_on(lan.names[1])
    serve(lan, 1, office.parent, "/usr/bin:/bin")
    done = by_shell(call("hosts", "net.toml", "--only", "run").stdout)
    assert done.returncode == 127
    assert f"{lan.address_of(1)}: no thanos-peer on the PATH that ssh gives a command there" in done.stderr
    assert not (home / "thanos-peer/1.log").exists()


def test_a_peer_whose_data_only_its_host_knows_is_left_to_it_aloud(tmp_path):
    def change(raw):
        on_hosts("north.example", "south.example")(raw)
        give_files(raw)

    (tmp_path / "private").mkdir()
    for agent in range(2):
        np.save(tmp_path / f"private/{agent}.npy", np.ones((3, 6)))
    file = write_topology(tmp_path / "net.toml", "path", 2, change=change).file
    text = file.read_text(encoding="utf-8").replace('data = "private/1.npy"\n', "")
    file.write_text(text, encoding="utf-8")
    shown = call("hosts", file)
    assert f"{file} does not say where the data of peer 1 is" in shown.stderr
    (line,) = [line for line in shown.stdout.splitlines() if "--id 1 --topology" in line]
    assert line == "#   thanos-peer start --id 1 --topology net.toml --data FILE"
    assert "systemctl edit thanos-peer@1 there" in call("hosts", file, "--systemd").stdout
    assert "peer 1" not in call("hosts", file, "--only", "fetch").stderr


def test_verdict_on_results_of_private_data_says_what_it_lacks_in_one_line(tmp_path):
    (tmp_path / "private").mkdir()
    for agent in range(2):
        np.save(tmp_path / f"private/{agent}.npy", np.random.default_rng(agent).standard_normal((9, 6)))
    topology = write_topology(tmp_path / "net.toml", "path", 2, change=give_files)
    call("run", topology.file, "--out", tmp_path / "run", "--quiet")
    results = ("--results", tmp_path / "run")
    assert "same bits" in call("verify", topology.file, *results).stdout
    (tmp_path / "private/1.npy").unlink()
    error = call("verify", topology.file, *results, code=3).stderr
    assert "need the data of all peers, and that of 1 of 2 cannot be read here" in error
    assert "first that of peer 1 (private/1.npy)" in error
    assert len(error.splitlines()) == 1


def test_the_status_of_a_peer_on_another_host_is_asked_there(office, lan):  # noqa: ARG001
    write_topology(Path("net.toml"), "path", 2, change=lan.each_on_its_own_host, max_rounds=10**9, tolerance=0.0)
    do("hosts", "net.toml", "--only", "copy", "--only", "run")
    asked = call("hosts", "net.toml", "--only", "status").stdout

    def answers():
        done = subprocess.run(["sh", "-e"], input=asked, capture_output=True, text=True, check=False, timeout=60)
        return done.returncode == 0 and done.stdout

    said = wait_until(answers, "both peers answer")
    assert "peer 0 of path-2: round " in said
    assert "peer 1 of path-2: round " in said


def test_results_that_differ_in_a_bit_are_told_apart(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 2)
    network = simulated(topology)
    call("run", topology.file, "--out", tmp_path / "run", "--quiet")
    call("verify", topology.file, "--results", tmp_path / "run")
    files = PeerFiles(tmp_path / "run", topology, 1)
    X = network.X[1].copy()
    X[0, 0] += 2**-50
    files.write(X, network.array("D")[1], X)
    assert (
        "DIFFERENT: peers [1] of 2" in call("verify", topology.file, "--results", tmp_path / "run", code=7).stdout
    )
    for file, content, what in (
        (files.result, zipped(X=npy_header(10**6, 10**6)), "is not a plain numeric .npz file: it claims an array"),
        (files.result, zipped(X=npy_header(1, 1) + bytes(8)), "is no result of this topology: X, sparse"),
        (files.facts, b"[", "is not what a peer says of its run: "),
        (files.facts, b'{"round": 1}', "is not what a peer says of its run: "),
    ):
        file.write_bytes(content)
        with little_memory():
            said = call("verify", topology.file, "--results", tmp_path / "run", code=3).output
        assert said.startswith(f"Error: {file} {what}")
        assert said.count("\n") == 1


def give_files(raw):
    raw["problem"]["data"] = {"kind": "files"}
    raw["algorithm"]["start"] = {"kind": "random", "seed": 1}
    for peer in raw["peers"]:
        peer["data"] = f"private/{peer['id']}.npy"


def on_hosts(*hosts):
    def change(raw):
        for peer, host in zip(raw["peers"], hosts, strict=True):
            peer["address"] = f"tcp://{host}:17000"

    return change


def test_several_peers_of_one_host_are_told_together(tmp_path):
    def change(raw):
        for peer in raw["peers"]:
            peer["address"] = f"tcp://{'north' if peer['id'] < 2 else 'south'}.example:1700{peer['id']}"

    write_topology(tmp_path / "net.toml", "path", 3, change=change)
    shown = call("hosts", tmp_path / "net.toml").stdout
    assert "# == north.example: peer 0 on port 17000, 1 on port 17001\n" in shown
    assert "# == south.example: peer 2 on port 17002\n" in shown
    assert shown.count("scp -p ") == 3  # secrets
    assert shown.count("scp ") == 3 + 2 + 3 * 3


def test_a_secret_goes_to_its_own_host_only_and_data_to_none(tmp_path):
    def change(raw):
        on_hosts("north.example", "[fd00::2]")(raw)
        give_files(raw)

    (tmp_path / "private").mkdir()
    for agent in range(2):
        np.save(tmp_path / f"private/{agent}.npy", np.ones((3, 6)))
    write_topology(tmp_path / "net.toml", "path", 2, change=change)
    shutil.rmtree(tmp_path / "private")  # not needed here
    north, south = call("hosts", tmp_path / "net.toml").stdout.split("# == ")[1:]
    assert f"scp -p {tmp_path}/net.keys/0.secret north.example:thanos-peer/net.keys/\n" in north
    assert f"scp -p {tmp_path}/net.keys/1.secret '[fd00::2]:thanos-peer/net.keys/'\n" in south
    assert "1.secret" not in north
    assert "0.secret" not in south
    assert "# the data of peer 0 is its own: it must be there already, as thanos-peer/private/0.npy\n" in north
    assert "scp private" not in north + south


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:17000", "tcp://localhost:17000", "tcp://[::1]:17000", "ipc://x"]
)
def test_an_address_that_no_other_host_reaches_is_refused(tmp_path, address):
    def change(raw):
        raw["peers"][1]["address"] = address
        raw["peers"][0]["address"] = "tcp://north.example:17000"

    write_topology(tmp_path / "net.toml", "path", 2, change=change)
    error = call("hosts", tmp_path / "net.toml", code=3).stderr
    assert f"peer 1 is at {address}, which no other host can reach" in error


def test_the_systemd_unit_is_one_for_all_peers(tmp_path):
    write_topology(tmp_path / "net.toml", "path", 2, change=on_hosts("north.example", "south.example"))
    text = call("hosts", tmp_path / "net.toml", "--systemd").stdout
    unit = parsed(text)
    start = unit["Service"]["ExecStart"].split()
    assert start[1:] == [
        *("start", "--id", "%i", "--topology", "/etc/thanos-peer/net.toml"),
        *("--out", "/var/lib/thanos-peer/path-2"),
    ]
    assert unit["Service"]["Restart"] == "on-failure"
    assert unit["Service"]["SuccessExitStatus"] == "143"  # of `systemctl stop`
    assert unit["Service"]["RestartPreventExitStatus"].split() == ["2", "3", "4", "5", "8"]
    assert unit["Unit"]["StartLimitBurst"] == "50"


ANY_NAMES = ["my net.toml", "100%q.toml", 'a "b" \\ $HOME 5%.toml', "it's.toml"]


@pytest.mark.parametrize("name", ["net.toml", *ANY_NAMES])
def test_systemd_has_nothing_to_say_against_the_unit(tmp_path, name):
    need("systemd-analyze", is_root=False)
    write_topology(tmp_path / name, "path", 2, change=on_hosts("north.example", "south.example"))
    text = call("hosts", tmp_path / name, "--systemd").stdout.replace("/usr/local/bin/thanos-peer", "/bin/true")
    assert complaints(tmp_path, text) == ""
    assert "Restrat" in complaints(tmp_path, text.replace("Restart=", "Restrat="))


@pytest.mark.parametrize("name", ANY_NAMES)
def test_a_file_of_any_name_is_one_word_of_the_systemd_unit(tmp_path, name):
    write_topology(tmp_path / name, "path", 2, change=on_hosts("north.example", "south.example"))
    text = call("hosts", tmp_path / name, "--systemd").stdout
    # There is nothing else in it that systemd would replace.
    meant = {"%i": "3", "%%": "%", "$$": "$"}
    command = re.sub(r"[%$].", lambda found: meant[found.group()], parsed(text)["Service"]["ExecStart"])
    words = shlex.split(command)
    assert words[1:6] == ["start", "--id", "3", "--topology", f"/etc/thanos-peer/{name}"]
    assert words[6:] == ["--out", "/var/lib/thanos-peer/path-2"]


def parsed(unit):
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str
    parser.read_string(unit)
    return parser


def complaints(directory, unit):
    """What systemd itself says of a unit."""
    file = directory / "thanos-peer@3.service"
    file.write_text(unit, encoding="ascii")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", file], capture_output=True, text=True, check=False, timeout=60
    )
    return "\n".join(line for line in done.stderr.splitlines() if "thanos-peer" in line)
