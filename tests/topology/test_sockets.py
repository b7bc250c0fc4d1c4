"""Local sockets: nothing of the user is removed for one, and no other user can put one in its place."""

import os
import socket
import stat

import pytest
from cli.commands import call
from processes import write_topology

from thanos_peer.errors import ConfigError
from thanos_peer.topology.sockets import check_socket, path_fault

MAKE = {
    "a file": lambda path: path.write_bytes(b"mine"),
    "a symbolic link": lambda path: path.symlink_to("elsewhere"),
    "a directory": os.mkdir,
    "a pipe": os.mkfifo,
}


def topology_at(tmp_path, **places):
    """Two peers with local sockets; the first at these."""

    def change(raw):
        for peer in raw["peers"]:
            peer["address"] = f"ipc://{tmp_path}/{peer['id']}.sock"
        raw["peers"][0] |= places

    return write_topology(tmp_path / "net.toml", "path", 2, change=change, max_rounds=5)


@pytest.mark.parametrize("key", ["address", "bind"])
@pytest.mark.parametrize("kind", MAKE)
def test_a_path_with_something_else_is_a_mistake_of_the_file(tmp_path, kind, key):
    MAKE[kind](tmp_path / "x")
    topology = topology_at(tmp_path, **{key: f"ipc://{tmp_path}/x"})
    error = call("topology", "check", topology.file, code=3).stderr
    assert f"peers[0].{key} = 'ipc://" in error
    assert f": {kind} is there, which would be removed" in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("command", [("start", "--id", 0, "--topology"), ("run", "--quiet")])
def test_a_peer_does_not_remove_what_lies_at_its_address(tmp_path, command):
    (tmp_path / "authorized_keys").write_bytes(b"mine")
    topology = topology_at(tmp_path, address=f"ipc://{tmp_path}/authorized_keys")
    error = call(*command, topology.file, "--out", tmp_path / "out", code=3).stderr
    assert f"cannot listen on ipc://{tmp_path}/authorized_keys: a file is there" in error
    assert (tmp_path / "authorized_keys").read_bytes() == b"mine"


def test_a_status_socket_does_not_either(tmp_path):
    (tmp_path / "notes").write_bytes(b"mine")
    topology = topology_at(tmp_path)
    arguments = ("--id", 0, "--topology", topology.file, "--out", tmp_path / "out")
    error = call("start", *arguments, "--status", f"ipc://{tmp_path}/notes", code=3).stderr
    assert f"cannot answer status requests on ipc://{tmp_path}/notes: a file is there" in error
    assert (tmp_path / "notes").read_bytes() == b"mine"


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777, 0o702])
def test_a_directory_that_others_can_write_to_is_refused(tmp_path, mode):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    with pytest.raises(
        ConfigError, match=f"other users can write to its directory .*/open .mode {mode:04o}.; take"
    ):
        check_socket(f"ipc://{tmp_path}/open/0.sock")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_a_directory_or_a_socket_of_another_user_is_refused(tmp_path):
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 54321, -1)
    with pytest.raises(ConfigError, match="belongs to user 54321, who could replace it"):
        check_socket(f"ipc://{tmp_path}/theirs/0.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "0.sock"))
    os.chown(tmp_path / "0.sock", 54321, -1)
    assert "a socket of user 54321 is there" in path_fault(tmp_path / "0.sock")


def test_a_socket_that_a_killed_peer_has_left_behind_is_no_mistake(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "0.sock"))
    assert stat.S_ISSOCK((tmp_path / "0.sock").stat().st_mode)
    check_socket(f"ipc://{tmp_path}/0.sock")
    call("topology", "check", topology_at(tmp_path).file)


@pytest.mark.parametrize("address", ["ipc://@abstract", "tcp://127.0.0.1:1", "ipc:///nowhere/at/all"])
def test_other_addresses_are_not_looked_at(address):
    check_socket(address)
