"""Keys on the disk and in the topology file, and where a peer may listen without them."""

import errno
import os
import shutil
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest
from cli.commands import call
from namespaces import need
from peer.test_start import one_line_error, start_and_wait
from processes import assert_same_bits, ended_afterwards, free_ports, said, start_peer, write_topology

from thanos_peer.errors import ConfigError
from thanos_peer.topology import editing, load
from thanos_peer.topology.sections import IN_THE_CLEAR
from thanos_peer.transport.keys import credentials_of, new_pair, read_secret, secret_directory, write_secret

SHIPPED = sorted(Path(__file__).parents[2].joinpath("topologies").glob("*.toml"))


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def without_keys(text):
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("public_key = "))


def test_a_new_key_is_printed_ready_to_paste_and_its_secret_is_for_the_owner_alone(tmp_path):
    path = tmp_path / "ring.keys" / "3.secret"
    printed = call("keys", "new", path).output
    public = tomllib.loads(printed)["public_key"]
    assert mode_of(path) == 0o600
    assert mode_of(path.parent) == 0o700
    assert read_secret(path).public == public
    assert read_secret(path).secret not in printed
    assert call("keys", "show", path).output == printed


def test_a_secret_is_never_overwritten(tmp_path):
    path = tmp_path / "3.secret"
    call("keys", "new", path)
    before = path.read_bytes()
    assert "exists already" in call("keys", "new", path, code=3).output
    assert "--replace goes with --all" in call("keys", "new", path, "--replace", code=3).output
    assert path.read_bytes() == before


def test_a_secret_is_not_shown_by_accident():
    pair = new_pair()
    assert pair.secret not in repr(pair)


@pytest.mark.parametrize("shipped", SHIPPED, ids=lambda path: path.stem)
def test_keys_for_all_peers_leave_the_rest_of_the_file_as_it_is(shipped, tmp_path):
    file = tmp_path / shipped.name
    shutil.copyfile(shipped, file)
    call("keys", "new", "--all", file)
    text, topology = file.read_text(encoding="utf-8"), load(file)
    assert without_keys(text) == shipped.read_text(encoding="utf-8")
    assert topology.digest == load(shipped).digest
    for peer in topology.peers:
        assert credentials_of(topology, peer.id, None).pair.public == peer.public_key
    assert len({peer.public_key for peer in topology.peers}) == topology.d
    assert {mode_of(path) for path in secret_directory(file).iterdir()} == {0o600}
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{shipped.stem}.keys", shipped.name]


def test_comments_and_other_ways_to_write_peers_are_kept(tmp_path):
    file = tmp_path / "net.toml"
    text = (
        write_topology(file, "path", 2)
        .file.read_text(encoding="utf-8")
        .replace("[[peers]]\nid = 1\n", "# the one in the north\n\n[[peers]] # by sea\nid = 1 # not 0\n")
    )
    file.write_text(text, encoding="utf-8")
    call("keys", "new", "--all", file)
    assert without_keys(file.read_text(encoding="utf-8")) == text
    inline = tmp_path / "inline.toml"
    head = text[: text.index("[[peers]]")]
    places = "tcp://127.0.0.1:17000", "tcp://127.0.0.1:17001"
    peers = ",\n".join(f'  {{ id = {i}, address = "{place}" }}' for i, place in enumerate(places))
    inline.write_text(f"peers = [\n{peers}, # both\n]\n{head}", encoding="utf-8")
    call("keys", "new", "--all", inline)
    assert "# both" in inline.read_text(encoding="utf-8")
    assert load(inline).has_keys


def test_keys_that_are_there_are_replaced_only_when_told_to(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 2, has_keys=True)
    old = topology.file.read_text(encoding="utf-8")
    assert "has public keys already" in call("keys", "new", "--all", topology.file, code=3).output
    assert topology.file.read_text(encoding="utf-8") == old
    call("keys", "new", "--all", "--replace", topology.file)
    new = load(topology.file)
    assert not {peer.public_key for peer in new.peers} & {peer.public_key for peer in topology.peers}
    assert credentials_of(new, 1, None).pair.public == new.peers[1].public_key
    with pytest.raises(ConfigError, match="does not belong to peer 1"):
        credentials_of(topology, 1, None)


@pytest.fixture
def disk(disk_of):
    """A disk of some pages."""
    return disk_of("256k")


def contents(directory):
    """All files below a directory."""
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def assert_unchanged(topology, before, said):
    """Nothing was lost or left over by a change of keys that failed, and the old keys work."""
    assert contents(topology.directory) == before
    now = load(topology.file)
    assert now.content == topology.content
    for peer in now.peers:
        assert credentials_of(now, peer.id, None).pair.public == peer.public_key
    assert said.startswith(f"Error: the keys of {topology.file} stay as they are: ")
    assert said.count("\n") == 1


def test_keys_stay_as_they_are_if_the_topology_cannot_be_changed(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 3, has_keys=True)
    # The changed file would be written here.
    (tmp_path / ".net.toml.new").mkdir()
    before = contents(tmp_path)
    said = call("keys", "new", "--all", "--replace", topology.file, code=3).output
    assert_unchanged(topology, before, said)
    (tmp_path / ".net.toml.new").rmdir()
    call("keys", "new", "--all", "--replace", topology.file)
    assert sorted(path.name for path in (tmp_path / "net.keys").iterdir()) == [f"{i}.secret" for i in range(3)]


def test_the_first_keys_leave_nothing_behind_if_the_topology_cannot_be_changed(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 3)
    (tmp_path / ".net.toml.new").mkdir()
    before = sorted(tmp_path.rglob("*"))
    call("keys", "new", "--all", topology.file, code=3)
    assert sorted(tmp_path.rglob("*")) == before


def test_keys_change_or_stay_as_they_are_wherever_the_disk_is_full(disk):
    topology = write_topology(disk / "net.toml", "path", 3, has_keys=True)
    outcomes = []
    # Pages that are left of the disk.
    for pages in range(12):
        before = contents(disk)
        room = os.statvfs(disk)
        (disk / "full").write_bytes(bytes((room.f_bavail - pages) * room.f_frsize))
        done = call("keys", "new", "--all", "--replace", topology.file, code=None)
        (disk / "full").unlink()
        outcomes.append(done.exit_code)
        if done.exit_code == 0:
            break
        assert "No space left on device" in done.output
        assert_unchanged(topology, before, done.output)
    assert len(outcomes) > 3
    assert outcomes == [3] * (len(outcomes) - 1) + [0]
    assert credentials_of(load(topology.file), 2, None).pair.public != topology.peers[2].public_key


def test_keys_stay_as_they_are_on_a_disk_that_cannot_be_written(disk):
    topology = write_topology(disk / "net.toml", "path", 3, has_keys=True)
    before = contents(disk)
    subprocess.run(["/usr/bin/mount", "-o", "remount,ro", disk], check=True)
    said = call("keys", "new", "--all", "--replace", topology.file, code=3).output
    assert_unchanged(topology, before, said)


@pytest.mark.parametrize("has_keys", [True, False], ids=["new keys", "first keys"])
def test_keys_that_have_changed_are_not_said_to_have_stayed_if_the_last_flush_fails(
    tmp_path, monkeypatch, has_keys
):
    def fail(path):
        raise OSError(errno.EIO, "Input/output error", str(path))

    topology = write_topology(tmp_path / "net.toml", "path", 2, has_keys=has_keys)
    # The directory is flushed when the file is in its place already.
    monkeypatch.setattr(editing, "flush_directory", fail)
    said = call("keys", "new", "--all", "--replace", topology.file, code=3).output
    kept, new = secret_directory(topology.file) / ".old", load(topology.file)
    assert said.startswith(f"Error: the keys of {topology.file} have changed, but {tmp_path}: Input/output error;")
    assert said.count("\n") == 1
    assert (str(kept) in said) == kept.exists() == has_keys
    for agent in range(2):
        assert credentials_of(new, agent, None).pair.public == new.peers[agent].public_key
        assert not has_keys or read_secret(kept / f"{agent}.secret").public == topology.peers[agent].public_key


def test_a_secret_that_does_not_fit_on_the_disk_is_not_left_half_written(disk):
    room, path = os.statvfs(disk), disk / "3.secret"
    (disk / "full").write_bytes(bytes(room.f_bavail * room.f_frsize))
    assert "No space left on device" in call("keys", "new", path, code=3).output
    assert not path.exists()
    (disk / "full").unlink()
    call("keys", "new", path)


def test_secrets_from_before_a_change_that_was_cut_off_are_not_lost(keyed, tmp_path):
    kept = tmp_path / "net.keys" / ".old"
    kept.mkdir()
    (tmp_path / "net.keys" / "0.secret").rename(kept / "0.secret")
    said = call("keys", "new", "--all", "--replace", keyed.file, code=3).output
    assert f"{kept} holds secrets from before a change that was cut off" in said
    assert read_secret(kept / "0.secret").public == keyed.peers[0].public_key


@pytest.fixture
def keyed(tmp_path):
    return write_topology(tmp_path / "net.toml", "path", 2, has_keys=True)


def refusal(topology, tmp_path, *options, agent=0):
    done = start_and_wait("--id", agent, "--topology", topology.file, "--out", tmp_path / "run", *options)
    assert not (tmp_path / "run").exists()
    return one_line_error(done, 3)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o777], ids=oct)
def test_a_secret_that_others_can_reach_is_refused(keyed, tmp_path, mode):
    path = tmp_path / "net.keys" / "0.secret"
    path.chmod(mode)
    error = refusal(keyed, tmp_path)
    assert f"{path} (mode {mode:04o})" in error
    assert "chmod 600" in error


def test_a_secret_of_another_user_is_refused(keyed, tmp_path):
    need()
    path = tmp_path / "net.keys" / "0.secret"
    os.chown(path, 65534, 65534)
    assert f"the secret key {path} belongs to user 65534" in refusal(keyed, tmp_path)


def test_a_secret_that_is_missing_is_refused(keyed, tmp_path):
    (tmp_path / "net.keys" / "0.secret").unlink()
    error = refusal(keyed, tmp_path)
    assert f"{tmp_path}/net.keys/0.secret cannot be read: No such file" in error
    assert "--secret-key" in error


def test_the_secret_of_another_peer_is_refused(keyed, tmp_path):
    error = refusal(keyed, tmp_path, "--secret-key", tmp_path / "net.keys" / "1.secret")
    assert "1.secret does not belong to peer 0" in error
    assert str(keyed.peers[0].public_key) in error


GARBAGE = {
    "empty": b"",
    "comments": b"# only\n# words\n",
    "two": f"{new_pair().secret}\n{new_pair().secret}\n".encode(),
    "short": b"abc\n",
    "not Z85": b"\xff" * 40,
    "beyond 2^32": b"#" * 40,
    "endless": b"0" * 10**6,
}


@pytest.mark.parametrize("name", GARBAGE)
def test_a_file_that_holds_no_secret_is_refused_and_not_shown(keyed, tmp_path, name):
    path = tmp_path / "wrong.secret"
    path.write_bytes(GARBAGE[name])
    path.chmod(0o600)
    error = refusal(keyed, tmp_path, "--secret-key", path)
    assert f"{path} is no secret key" in error
    assert not GARBAGE[name] or GARBAGE[name].split()[0].decode("latin-1") not in error or name == "comments"


def test_a_secret_that_is_no_ordinary_file_is_refused_without_waiting(keyed, tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path, 0o600)
    assert "no ordinary file" in refusal(keyed, tmp_path, "--secret-key", path)


def test_a_secret_for_a_topology_without_keys_is_refused(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 2)
    write_secret(tmp_path / "a.secret", new_pair())
    error = refusal(topology, tmp_path, "--secret-key", tmp_path / "a.secret")
    assert "have no public keys" in error


def test_the_secret_may_be_named_in_the_environment(keyed, tmp_path):
    done = start_and_wait(
        "--id",
        0,
        "--topology",
        keyed.file,
        "--out",
        tmp_path / "run",
        THANOS_PEER_SECRET_KEY="/nowhere/0.secret",  # noqa: S106 - a path
    )
    assert "/nowhere/0.secret cannot be read" in one_line_error(done, 3)


@pytest.mark.parametrize(
    "address", ["tcp://0.0.0.0:17000", "tcp://192.0.2.1:17000", "tcp://[::]:17000", "tcp://host:1"]
)
def test_a_peer_without_keys_does_not_listen_where_others_reach_it(tmp_path, address):
    topology = write_topology(tmp_path / "net.toml", "path", 2)
    error = refusal(topology, tmp_path, "--bind", address)
    assert f"will not listen on {address} unencrypted" in error
    assert "keys new" in error
    assert IN_THE_CLEAR in error


@pytest.mark.parametrize("has_keys", [True, False])
def test_status_is_not_answered_where_others_reach_it(tmp_path, has_keys):
    topology = write_topology(tmp_path / "net.toml", "path", 2, has_keys=has_keys)
    assert "will not listen on tcp://0.0.0.0:1 unencrypted" in refusal(
        topology, tmp_path, "--status", "tcp://0.0.0.0:1"
    )


@pytest.mark.parametrize("agent", [0, 1], ids=["a neighbor", "its own"])
def test_a_peer_without_keys_does_not_send_where_others_hear_it(tmp_path, agent):
    topology = write_topology(tmp_path / "net.toml", "path", 2)
    text = topology.file.read_text(encoding="utf-8")
    topology.file.write_text(text.replace(topology.peers[1].address, "tcp://192.0.2.1:17000"), encoding="utf-8")
    bind = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    error = refusal(topology, tmp_path, "--bind", bind, agent=agent)
    assert "will not send to tcp://192.0.2.1:17000 unencrypted" in error
    assert "keys new" in error
    assert IN_THE_CLEAR in error


def test_to_speak_in_the_clear_takes_words_and_every_start_warns(tmp_path):
    port = free_ports(1)[0]

    def in_the_clear(raw):
        raw["unencrypted"] = IN_THE_CLEAR
        raw["peers"][1]["address"] = raw["peers"][1]["address"].replace("127.0.0.1", "0.0.0.0")  # noqa: S104

    topology = write_topology(tmp_path / "net.toml", "path", 2, change=in_the_clear)
    out, (loopback, everywhere) = tmp_path / "run", (peer.address for peer in topology.peers)
    status = f"tcp://0.0.0.0:{port}"
    processes = [
        start_peer(topology, 0, out, "--log-level", "error"),
        start_peer(topology, 1, out, "--status", status),
    ]
    with ended_afterwards(*processes):
        assert [process.wait(60) for process in processes] == [0, 0]
    assert said(out, 0).endswith(f"WARNING: sending to {everywhere} UNENCRYPTED: {IN_THE_CLEAR}\n")
    assert said(out, 0).count("\n") == 1
    assert f"WARNING: listening on {everywhere} and {status} UNENCRYPTED: {IN_THE_CLEAR}" in said(out, 1)
    assert loopback not in said(out, 0)
    assert_same_bits(out, topology)


def test_run_uses_the_secrets_beside_the_file_and_says_which_is_missing(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 2, has_keys=True, max_rounds=20)
    call("run", topology.file, "--out", tmp_path / "run", "--quiet")
    assert not (tmp_path / "run" / "topology.keys").exists()
    assert_same_bits(tmp_path / "run", topology)
    (tmp_path / "net.keys" / "1.secret").unlink()
    assert (
        "net.keys/1.secret cannot be read"
        in call("run", topology.file, "--out", tmp_path / "again", "--quiet", code=3).output
    )


def test_run_makes_keys_for_those_that_have_none_and_leaves_the_file_alone(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 2, max_rounds=20)
    before = topology.file.read_bytes()
    call("run", topology.file, "--out", tmp_path / "run", "--quiet")
    assert topology.file.read_bytes() == before
    assert load(tmp_path / "run" / "topology.toml").has_keys
    assert mode_of(tmp_path / "run" / "topology.keys") == 0o700
    assert_same_bits(tmp_path / "run", topology)
