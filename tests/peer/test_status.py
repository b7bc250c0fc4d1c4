"""Status over real sockets: whom a peer tells what it is doing, and what is believed of an answer."""

import contextlib
import json
import resource
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from cli.commands import call
from namespaces import need
from processes import ended_afterwards, free_ports, own_name, said, start_peer, wait_until, write_topology
from strangers import port_of, status_of

from thanos_peer.cli.status import describe_status
from thanos_peer.peer.health import answer_at, unix_name
from thanos_peer.peer.status import MOST_ANSWERS, PeerStatus, ask, local_address

NOBODY = 65534
ASK_AS = """
import os, socket, sys
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
with socket.socket(socket.AF_UNIX) as asking:
    asking.connect(chr(0) + sys.argv[2])
    print(len(asking.recv(65536)))
"""
SOUND = {
    "id": 0,
    "name": "ring",
    "round": 3,
    "phases": ["thanos"],
    "phase": "thanos",
    "phase_round": 3,
    "last_round": 9,
    "epoch": 0,
    "is_done": False,
    "waiting": [],
    "rejected": 0,
    "misbehaving": [],
    "edges": {"1": {"messages_sent": 4, "messages_received": 5}},
}


def test_a_peer_that_is_done_says_what_its_answer_is_worth():
    verdict = "not converged: residual 3.0e-03 above tolerance 0.0001 after 3000 rounds; raise max_rounds"
    known = {"is_done": True, "residual": 3e-3, "tolerance": 1e-4, "verdict": verdict}
    assert describe_status(PeerStatus.model_validate(SOUND | known)) == (
        f"peer 0 of ring: done, {verdict}; 4 messages sent, 5 received, 0 refused"
    )
    assert "3 of at most 9" in describe_status(
        PeerStatus.model_validate(SOUND | {"verdict": None, "residual": None})
    )


def test_a_neighbor_of_which_something_was_refused_is_named():
    known = {
        "id": 7,
        "refused": 812,
        "latest": "neighbor 7, round 9: more than one round ahead of 3",
        "pause": 8.0,
    }
    status = SOUND | {"rejected": 812, "misbehaving": [known | {"seconds_closed": 6.6}]}
    line = "refused 812 message(s) of peer 7, the latest from neighbor 7, round 9: more than one round ahead of 3"
    assert describe_status(PeerStatus.model_validate(status)).splitlines()[1:] == [
        f"  {line}; its connection is closed for 7 s"
    ]
    status["misbehaving"] = [known | {"seconds_closed": 0.0}]
    assert describe_status(PeerStatus.model_validate(status)).splitlines()[1:] == [f"  {line}"]


def named(tmp_path, **draft):
    """A topology whose local status has a name of its own."""
    return write_topology(tmp_path / "net.toml", "path", 2, name=own_name(tmp_path.name), **draft)


@contextlib.contextmanager
def listening(topology, out, *options, prefix=()):
    """Peer 0, waiting for the other."""
    process = start_peer(topology, 0, out, *options, prefix=prefix)
    with ended_afterwards(process):
        wait_until(lambda: "listening" in said(out, 0), "it listens")
        yield process


def test_another_user_of_the_host_is_told_nothing(tmp_path):
    need()
    topology = named(tmp_path)
    name = local_address(topology, 0).removeprefix("ipc://@")
    with listening(topology, tmp_path / "run"):
        told = [
            int(subprocess.check_output([sys.executable, "-c", ASK_AS, str(user), name], timeout=60))
            for user in (0, NOBODY)
        ]
    assert told[0] > 100
    assert told[1] == 0


def open_files(pid):
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_a_peer_without_files_to_open_goes_on_and_answers_later(tmp_path):
    port = free_ports(1)[0]
    topology, extra = named(tmp_path), f"tcp://127.0.0.1:{port}"
    with listening(topology, tmp_path / "run", "--status", extra) as process, contextlib.ExitStack() as stack:
        status_of(topology, 0)
        before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, before[1]))
        for _ in range(5):
            for place in (port, port_of(topology.peers[0].address)):
                stack.enter_context(socket.create_connection(("127.0.0.1", place), 10))
            local = stack.enter_context(socket.socket(socket.AF_UNIX))
            local.connect(unix_name(local_address(topology, 0)))
        assert all(isinstance(answer, str) for answer in ask([local_address(topology, 0), extra], timeout=1))
        assert process.poll() is None
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)
        assert status_of(topology, 0)["round"] == 0


def test_many_that_ask_and_stay_do_not_use_up_files(tmp_path):
    topology, few = named(tmp_path), ("sh", "-c", 'ulimit -n 200; exec "$@"', "sh")
    with listening(topology, tmp_path / "run", prefix=few) as process, contextlib.ExitStack() as stack:
        assert "may open 200 files only" in said(tmp_path / "run", 0)
        usual = open_files(process.pid)
        for _ in range(300):
            stay = stack.enter_context(socket.socket(socket.AF_UNIX))
            stay.connect(unix_name(local_address(topology, 0)))
        assert status_of(topology, 0)["id"] == 0
        assert open_files(process.pid) <= usual + MOST_ANSWERS


def test_what_a_killed_peer_leaves_behind_does_not_hinder_the_next(tmp_path):
    topology, path = named(tmp_path), tmp_path / "status"
    for _ in range(2):
        with listening(topology, tmp_path / "run", "--status", f"ipc://{path}"):  # killed in the end
            assert path.stat().st_mode & 0o777 == 0o600
            assert "peer 0 of" in call("status", f"ipc://{path}").output
        assert path.is_socket()
        (tmp_path / "run" / "said-0.log").unlink()


def test_a_second_peer_of_the_same_id_goes_on_without_local_status(tmp_path):
    topology = named(tmp_path)
    with listening(topology, tmp_path / "run"):
        second = start_peer(topology, 0, tmp_path / "again", "--bind", f"tcp://127.0.0.1:{free_ports(1)[0]}")
        with ended_afterwards(second):
            wait_until(lambda: "no local status" in said(tmp_path / "again", 0), "it says so")


@contextlib.contextmanager
def answering(answer):
    """A program at an address of this host that says something to one that connects."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def tell():
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(answer)

        thread = threading.Thread(target=tell, daemon=True)
        thread.start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        thread.join(30)


UNSOUND = {
    "no JSON": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "no object": b"[]\n",
    "nothing": b"{}\n",
    "a text for a number": json.dumps(SOUND | {"round": "\x1b[2J"}).encode(),
    "a negative number": json.dumps(SOUND | {"rejected": -1}).encode(),
    "a phase of none": json.dumps(SOUND | {"phase": "\x1b[2Jdone"}).encode(),
    "an edge with a name": json.dumps(SOUND | {"edges": {"\x1b[2J\nall is well": {}}}).encode(),
    "nested too deep": b"[" * 1_000_000,
    "a number too long": b'{"id": ' + b"9" * 100_000 + b"}",
    "bytes that are no text": b"\xff\xfe\xfd",
}


@pytest.mark.parametrize("name", UNSOUND)
def test_an_answer_that_is_no_peers_is_one_line(name):
    with answering(UNSOUND[name]) as address:
        output = call("status", address, "--timeout", 30, code=6).output
    assert output.startswith(f"{address}: something answers there, but not as a peer of this version does (")
    assert output.count("\n") == 1
    assert output.strip("\n").isprintable()
    assert len(output) < 400


def test_what_a_peer_says_cannot_command_a_terminal():
    hostile = SOUND | {"name": "ring\x1b]0;x\x07", "waiting": ["for\u202e ever\r\n\x9b2J"], "more": "\x1b[2J"}
    with answering(json.dumps(hostile).encode()) as address:
        output = call("status", address, "--timeout", 30).output
    assert output == (
        "peer 0 of ring\\x1b]0;x\\x07: round 3 of at most 9; 4 messages sent, 5 received, 0 refused\n"
        "  for\\u202e ever\\r\\n\\x9b2J\n"
    )
    with answering(json.dumps(hostile).encode()) as address:
        line = call("status", address, "--timeout", 30, "--json").output
    assert line.isascii()
    assert line.rstrip("\n").isprintable()
    assert json.loads(line)["answer"]["more"] == "\x1b[2J"


@pytest.mark.parametrize("address", ["tcp://nowhere", "udp://127.0.0.1:1", "tcp://127.0.0.1:0", "ipc://"])
def test_what_is_no_address_is_not_asked(address):
    assert f"'{address}' is no address that can be asked" in call("status", address, code=3).output


def test_an_answer_without_end_is_not_read_to_the_end():
    with answering(b" " * 2**25) as address, pytest.raises(OSError, match="more than"):
        answer_at(address, timeout=60)
