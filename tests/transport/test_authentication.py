"""Who may speak to a peer: its neighbors by their keys, and no others, over real sockets."""

import contextlib
import signal
import socket
import time

import msgpack
import pytest
import zmq
from processes import (
    assert_same_bits,
    ended_afterwards,
    environment_with,
    give_keys,
    own_name,
    said,
    start_peer,
    wait_until,
    write_topology,
)
from strangers import (
    Recorder,
    block_of,
    hello_of,
    pair_of,
    port_of,
    speaking_to,
    status_of,
)
from zmq.utils.monitor import recv_monitor_message

from thanos_peer.protocol.wire import VERSION
from thanos_peer.topology.editing import with_public_keys
from thanos_peer.transport.keys import (
    make_keys,
    new_pair,
    public_keys,
    secret_directory,
    secret_file,
    write_secret,
    write_secrets,
)

REFUSALS = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_DISCONNECTED
)


ALL_IS_SAID = "from thanos_peer.protocol import conversation\nconversation.NOTICES_APART = 0\n"
SLOW_ROUNDS = """
import time
from thanos_peer.agent import Agent
advance = Agent.advance
Agent.advance = lambda agent: (time.sleep(0.01), advance(agent))[1]
"""


@contextlib.contextmanager
def listening(tmp_path, env=None):
    """Peer 0 of a ring of five, with keys, waiting for its neighbors 1 and 4."""
    topology = write_topology(tmp_path / "net.toml", "ring", 5, has_keys=True, name=own_name("listener"))
    process = start_peer(topology, 0, tmp_path / "run", env=env)
    with ended_afterwards(process):
        wait_until(lambda: "listening" in said(tmp_path / "run", 0), "it listens")
        yield topology
        assert process.poll() is None, said(tmp_path / "run", 0)


@pytest.fixture
def listener(tmp_path):
    with listening(tmp_path) as topology:
        yield topology


@pytest.fixture
def talker(tmp_path):
    """The same, but it says everything that it has to say, however often."""
    with listening(tmp_path, environment_with(ALL_IS_SAID, tmp_path / "all")) as topology:
        yield topology


def heard(topology):
    """How many messages peer 0 has taken from each neighbor."""
    return {int(j): edge["messages_received"] for j, edge in status_of(topology, 0)["edges"].items()}


def wait_for_refusals(monitor, count=2):
    """Wait until a connection has been refused some times."""
    refused, until = 0, time.monotonic() + 30
    while refused < count:
        assert monitor.poll(1000) or time.monotonic() < until
        assert time.monotonic() < until, "it was not refused"
        while monitor.poll(0):
            event = recv_monitor_message(monitor)["event"]
            assert event != zmq.EVENT_HANDSHAKE_SUCCEEDED
            refused += bool(event & REFUSALS)


def test_a_neighbor_with_its_key_is_heard(listener):
    with speaking_to(listener, 0, pair_of(listener, 1)) as (speaker, _):
        speaker.send(hello_of(listener, 1))
        wait_until(lambda: heard(listener) == {1: 1, 4: 0}, "the hello is taken", 30)
    assert status_of(listener, 0)["rejected"] == 0


def test_a_strangers_key_is_not_let_in(listener, tmp_path):
    with speaking_to(listener, 0, new_pair()) as (speaker, monitor):
        speaker.send(hello_of(listener, 1))
        wait_for_refusals(monitor, 4)
    assert heard(listener) == {1: 0, 4: 0}
    wait_until(lambda: status_of(listener, 0)["strangers"] >= 2, "it is counted", 30)
    assert "a key that is no neighbor's, from '127.0.0.1'" in said(tmp_path / "run", 0)


def test_a_key_that_is_no_neighbors_is_named_beside_other_strangers(listener, tmp_path):
    with speaking_to(listener, 0, comes_back=False) as (_, monitor):
        wait_for_refusals(monitor, 1)
    wait_until(lambda: "ended before a handshake" in said(tmp_path / "run", 0), "the first is named", 30)
    with speaking_to(listener, 0, new_pair()) as (_, monitor):
        wait_for_refusals(monitor, 1)
        wait_until(lambda: "a key that is no neighbor's" in said(tmp_path / "run", 0), "so is the second", 8)


def test_a_peer_of_the_same_topology_that_is_no_neighbor_is_not_let_in(listener):
    with speaking_to(listener, 0, pair_of(listener, 2)) as (speaker, monitor):
        speaker.send(hello_of(listener, 2))
        speaker.send(hello_of(listener, 1))
        wait_for_refusals(monitor)
    assert heard(listener) == {1: 0, 4: 0}
    assert status_of(listener, 0)["rejected"] == 0


def test_no_connection_is_let_in_without_a_key(listener, tmp_path):
    with speaking_to(listener, 0) as (speaker, monitor):
        speaker.send(hello_of(listener, 1))
        wait_for_refusals(monitor, 1)  # ZeroMQ itself gives up after one
    assert heard(listener) == {1: 0, 4: 0}
    wait_until(lambda: "1 connection(s) so far did not get in" in said(tmp_path / "run", 0), "it is said", 30)


def test_a_neighbors_key_does_not_speak_in_the_name_of_another(listener, tmp_path):
    other_version = msgpack.packb([VERSION + 1, 1, bytes.fromhex(listener.digest)[:16], 1, 0, "whatever it says"])
    with speaking_to(listener, 0, pair_of(listener, 4)) as (speaker, _):
        for frame in (
            hello_of(listener, 1),
            block_of(listener, 1, 0),
            other_version,
            b"\xc1",
            hello_of(listener, 3),
        ):
            speaker.send(frame)
        wait_until(lambda: status_of(listener, 0)["rejected"] == 5, "all are refused", 30)
        assert heard(listener) == {1: 0, 4: 0}
        speaker.send(hello_of(listener, 4))
        wait_until(lambda: heard(listener) == {1: 0, 4: 1}, "its own name is its own", 30)
    assert "neighbor 4: speaks in the name of peer 1" in said(tmp_path / "run", 0)


def test_a_recorded_connection_is_worth_nothing_later(listener):
    with Recorder(port_of(listener.peers[0].address)) as recorder:  # noqa: SIM117 - it ends with the speaker
        with speaking_to(listener, 0, pair_of(listener, 1), address=recorder.address) as (speaker, _):
            speaker.send(hello_of(listener, 1))
            wait_until(lambda: heard(listener) == {1: 1, 4: 0}, "the hello is taken", 30)
    assert len(recorder.said) > 500
    # The hello cannot be read on its way.
    assert hello_of(listener, 1)[:32] not in recorder.said
    for size in (len(recorder.said), 64, 1):  # at once, and piece by piece
        with socket.create_connection(("127.0.0.1", port_of(listener.peers[0].address)), timeout=30) as replay:
            # The listener may hang up before the end.
            with contextlib.suppress(ConnectionError):
                for start in range(0, len(recorder.said), size):
                    replay.sendall(recorder.said[start : start + size])
            with contextlib.suppress(ConnectionError):
                while replay.recv(4096):
                    pass  # until it hangs up
    assert heard(listener) == {1: 1, 4: 0}
    wait_until(lambda: status_of(listener, 0)["strangers"] >= 3, "it is counted", 30)


def test_a_single_bit_that_is_changed_on_the_way_ends_a_connection_unheard(listener):
    with Recorder(port_of(listener.peers[0].address)) as recorder:  # noqa: SIM117 - it ends with the speaker
        with speaking_to(listener, 0, pair_of(listener, 1), address=recorder.address) as (speaker, _):
            speaker.send(hello_of(listener, 1))
            wait_until(lambda: heard(listener) == {1: 1, 4: 0}, "the hello is taken", 30)
            recorder.spoils = True
            speaker.send(hello_of(listener, 1))
            wait_until(lambda: recorder.is_cut, "the peer hangs up", 30)
    assert heard(listener) == {1: 1, 4: 0}


def test_what_a_neighbor_says_cannot_forge_a_line_of_the_log(talker, tmp_path):
    forged = "1\n12:00:00 peer 0 INFO: all is well\x1b[2J\u202e"
    run = bytes.fromhex(talker.digest)[:16]
    problem = talker.problem
    hello = [VERSION, 1, run, 1, 0, problem.n, problem.p, "float64", talker.digest, "1", False, 5, 0, 0, 0, "", ""]
    frames = [
        [*hello[:9], forged, *hello[10:]],
        [*hello[:15], forged, *hello[16:]],
        [*hello[:16], forged],
        [*hello[:7], forged, *hello[8:]],
        [*hello[:8], forged, *hello[9:]],
        [VERSION, 3, run, 1, 0, forged, 0],
        [VERSION, 2, run, 1, 0, 0.1, 0, None, 0, forged, [6, 2], b""],
        [VERSION, 2, run, 1, 0, 0.1, 0, None, 0, "float64", forged, b""],
        [forged, forged, forged, forged, forged],
        forged,
    ]
    with speaking_to(talker, 0, pair_of(talker, 1)) as (speaker, _):
        for number, frame in enumerate(frames):
            speaker.send(msgpack.packb(frame))
            wait_until(
                lambda n=number: status_of(talker, 0)["rejected"] == n + 1, f"frame {number} is refused", 30
            )
    text = said(tmp_path / "run", 0)
    assert all(f"refused {number + 1} message(s) so far" in text for number in range(len(frames)))
    assert "all is well" not in text.replace("\\n", "")
    assert all(character.isprintable() for line in text.split("\n") for character in line)


# ------------------------------------------------------------------ whole runs


def all_peers(topology, out, env=None):
    return [start_peer(topology, agent, out, env=env) for agent in range(topology.d)]


def test_a_run_with_keys_has_the_bits_of_one_process_while_a_neighbor_lies_about_its_name(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "ring", 4, has_keys=True, max_rounds=300)
    out = tmp_path / "run"
    processes = all_peers(topology, out)
    with ended_afterwards(*processes), speaking_to(topology, 0, pair_of(topology, 3)) as (liar, _):
        for k in range(300):
            liar.send(block_of(topology, 1, k))
        assert [process.wait(120) for process in processes] == [0] * 4
    assert "neighbor 3: speaks in the name of peer 1" in said(out, 0)
    assert_same_bits(out, topology)


def test_local_sockets_are_encrypted_too(tmp_path):
    def local(raw):
        for peer in raw["peers"]:
            peer["address"] = f"ipc://{tmp_path}/{peer['id']}.sock"

    topology = write_topology(tmp_path / "net.toml", "ring", 3, change=local, has_keys=True, max_rounds=50)
    processes = [start_peer(topology, agent, tmp_path / "run") for agent in (0, 1)]
    with ended_afterwards(*processes):
        with speaking_to(topology, 0) as (speaker, monitor):
            speaker.send(hello_of(topology, 1))
            wait_for_refusals(monitor, 1)
        last = start_peer(topology, 2, tmp_path / "run")  # the run is not over before
        with ended_afterwards(last):
            assert [process.wait(120) for process in (*processes, last)] == [0] * 3
    assert_same_bits(tmp_path / "run", topology)


def stop_when_under_way(topology, out, processes):
    """Stop all peers when each has a checkpoint of a later round than the first."""
    state = out.with_name(f"{out.name}.state")

    def have_saved():
        return all(len(list(state.glob(f"{agent}-*.ckpt"))) == 2 for agent in range(topology.d))

    wait_until(have_saved, "all have saved more than once")
    for process in processes:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(60) for process in processes] == [143] * topology.d


@pytest.mark.parametrize("has_keys", [True, False], ids=["another key for one peer", "the first keys"])
def test_keys_change_between_two_lives_and_the_run_goes_on(tmp_path, has_keys):
    topology = write_topology(tmp_path / "net.toml", "path", 3, has_keys=has_keys, max_rounds=2500)
    out = tmp_path / "run"
    processes = all_peers(topology, out, environment_with(SLOW_ROUNDS, tmp_path / "slow"))
    with ended_afterwards(*processes):
        stop_when_under_way(topology, out, processes)
    if has_keys:
        keys = {agent: pair_of(topology, agent) for agent in range(3)} | {1: new_pair()}
        path = secret_file(secret_directory(topology.file), 1)
        path.unlink()
        write_secret(path, keys[1])
        topology = with_public_keys(topology, topology.file, public_keys(keys))
    else:
        topology = give_keys(topology)
    processes = all_peers(topology, out)
    with ended_afterwards(*processes):
        assert [process.wait(120) for process in processes] == [0] * 3
    assert all("going on from round" in said(out, agent) for agent in range(3))
    assert_same_bits(out, topology)


@pytest.mark.parametrize("has_keys", [True, False], ids=["an older key", "no keys"])
def test_who_has_the_new_file_waits_for_who_has_not_and_finds_him_once_he_has(tmp_path, has_keys):
    topology = write_topology(tmp_path / "net.toml", "path", 2, has_keys=has_keys, max_rounds=100)
    out, keys = tmp_path / "run", make_keys(topology)
    newer = with_public_keys(topology, tmp_path / "newer.toml", public_keys(keys))
    write_secrets(secret_directory(newer.file), keys)
    first, old = start_peer(newer, 0, out), start_peer(topology, 1, tmp_path / "old")
    with ended_afterwards(first, old):
        wait_until(lambda: "do both have the same topology file" in said(out, 0), "it says what may be wrong")
        old.send_signal(signal.SIGTERM)
        assert old.wait(30) == 143
        second = start_peer(newer, 1, out)
        with ended_afterwards(second):
            assert [process.wait(120) for process in (first, second)] == [0, 0]
    assert_same_bits(out, newer)
