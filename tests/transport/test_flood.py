"""Strangers in numbers, and a neighbor that says too much: bounded, and the rounds go on with the same bits."""

import asyncio
import contextlib
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zmq
from processes import (
    assert_same_bits,
    ended_afterwards,
    environment_with,
    own_name,
    said,
    start_peer,
    wait_until,
    write_topology,
)
from strangers import block_of, codec_of, hello_of, pair_of, port_of, speaking_to, status_of, until
from zmq.utils.monitor import recv_monitor_message

from thanos_peer.transport import connections
from thanos_peer.transport import links as links_module
from thanos_peer.transport.connections import MOST_LINKS, MOST_STRANGERS, STRANGERS_BYTES
from thanos_peer.transport.descriptors import descriptor_of
from thanos_peer.transport.keys import credentials_of
from thanos_peer.transport.links import HANDSHAKE_MS, QUEUE, QUEUE_BYTES, SEALED, SHORTEST_QUEUE, Links, queue_for

ROOT = Path(__file__).parents[2]
# A whole greeting of ZMTP 3.1 with CURVE; what should follow it is a HELLO.
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)
BEGUN = GREETING[:11]  # fits any mechanism
# Without this, a slow machine might cut off the first of a crowd before the last is there.
NO_HURRY = "from thanos_peer.transport import links\nlinks.HANDSHAKE_MS = 600_000\n"


def open_files(process):
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


def usual_files(process):
    """How many files a process has open, once that has not changed for a second."""
    counts = []

    def is_settled():
        counts.append(open_files(process))
        return len(counts) >= 50 and len(set(counts[-50:])) == 1

    wait_until(is_settled, "its links are open")
    return counts[-1]


@contextlib.contextmanager
def running(topology, out):
    """All peers, listening; in the end all have to be done, with the bits of one process."""
    processes = [start_peer(topology, agent, out) for agent in range(topology.d)]
    try:
        wait_until(lambda: all("listening" in said(out, agent) for agent in range(topology.d)), "all listen")
        yield processes
        assert [process.wait(180) for process in processes] == [0] * topology.d
    finally:
        with ended_afterwards(*processes):
            pass
    assert_same_bits(out, topology)


def connect_silently(stack, address, count, words=GREETING, source="127.0.0.1"):
    """Connect, say a few words, and wait."""
    place = ("127.0.0.1", port_of(address))
    crowd = []
    for _ in range(count):
        crowd.append(stack.enter_context(socket.create_connection(place, 10, source_address=(source, 0))))
        with contextlib.suppress(ConnectionError, TimeoutError):
            crowd[-1].sendall(words)
    return crowd


@pytest.mark.parametrize("has_keys", [True, False], ids=["keys", "in the clear"])
def test_connections_that_say_nothing_are_limited_and_the_run_goes_on(tmp_path, has_keys):
    topology = write_topology(tmp_path / "net.toml", "ring", 4, has_keys=has_keys, max_rounds=2000)
    address, out = topology.peers[0].address, tmp_path / "run"
    with running(topology, out) as processes, contextlib.ExitStack() as stack:
        # Stopped, so that the run is not over before all are there.
        processes[2].send_signal(signal.SIGSTOP)
        usual = usual_files(processes[0])
        connect_silently(stack, address, 4 * MOST_STRANGERS, GREETING if has_keys else BEGUN)
        wait_until(lambda: open_files(processes[0]) <= usual + MOST_STRANGERS + 4, "the others are cut off", 30)
        assert f"more than {MOST_STRANGERS} say nothing, most of them from 127.0.0.1" in said(out, 0)
        processes[1].send_signal(signal.SIGKILL)
        processes[1].wait()
        connect_silently(stack, address, MOST_STRANGERS, BEGUN)
        # In spite of the crowd, a neighbor gets in.
        processes[1] = start_peer(topology, 1, out)
        processes[2].send_signal(signal.SIGCONT)


def test_a_handshake_that_stalls_is_cut_off(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 2, has_keys=True)
    process, out, address = start_peer(topology, 0, tmp_path / "run"), tmp_path / "run", topology.peers[0].address
    with ended_afterwards(process), contextlib.ExitStack() as stack:
        wait_until(lambda: "listening" in said(out, 0), "it listens")
        usual, began = usual_files(process), time.monotonic()
        for connection in connect_silently(stack, address, 100):
            connection.settimeout(60)
            with contextlib.suppress(ConnectionError):
                read_to_the_end(connection)
            assert time.monotonic() - began > 0.9 * HANDSHAKE_MS / 1000  # it is let wait
        wait_until(lambda: open_files(process) <= usual + 2, "they are forgotten", 30)


def read_to_the_end(connection):
    while connection.recv(64):
        pass


def test_a_crowd_from_one_address_does_not_cut_off_who_comes_from_another(tmp_path, monkeypatch):
    # No connection is cut off for being slow.
    monkeypatch.setattr(links_module, "HANDSHAKE_MS", 600_000)
    topology = write_topology(tmp_path / "net.toml", "path", 2, has_keys=True)
    address = topology.peers[0].address

    async def main():
        credentials = credentials_of(topology, 0, None)
        links = Links(address, {}, largest_frame=1000, on_frames=lambda *_: None, credentials=credentials)
        with contextlib.ExitStack() as stack:
            alone = await asyncio.to_thread(connect_silently, stack, address, 1)
            assert await asyncio.to_thread(alone[0].recv, 1)
            await asyncio.to_thread(connect_silently, stack, address, MOST_STRANGERS + 20, source="127.0.0.2")
            for _ in range(600):
                await asyncio.sleep(0.05)
                # The connection from before the crowd may stay, and is not among these.
                if links.strangers == 21:
                    break
            assert links.strangers == 21
            alone[0].settimeout(0.1)
            # There is nothing more to hear, but the connection is not cut off.
            with pytest.raises(TimeoutError):
                await asyncio.to_thread(read_to_the_end, alone[0])
        links.close(linger=0)

    asyncio.run(main())


def test_garbage_in_many_connections_does_not_disturb_a_run(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "ring", 4, has_keys=True, max_rounds=1500)
    with running(topology, tmp_path / "run") as processes, contextlib.ExitStack() as stack:
        # Stopped, so that the run is not over before all are there.
        processes[0].send_signal(signal.SIGSTOP)
        usual = usual_files(processes[2])
        connect_silently(stack, topology.peers[2].address, 300, b"GET / HTTP/1.1\r\n\r\n" * 100)
        wait_until(lambda: open_files(processes[2]) <= usual + 4, "they are thrown out", 30)
        processes[0].send_signal(signal.SIGCONT)
    assert "did not get in; the latest: it ended before a handshake" in said(tmp_path / "run", 2)
    assert said(tmp_path / "run", 2).count("\n") < 30


def test_after_blocks_of_wrong_rounds_and_questions_without_end_a_run_goes_on(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "ring", 4, has_keys=True, max_rounds=1500)
    out, frames = (
        tmp_path / "run",
        [block_of(topology, 3, 10**6), hello_of(topology, 3, is_asking=True), b"\xc1" * 90],
    )
    with running(topology, out) as processes:
        # Stopped, so that the run is not over before it is flooded.
        processes[2].send_signal(signal.SIGSTOP)
        with speaking_to(topology, 0, pair_of(topology, 3)) as (flood, _):
            # The real neighbor, whose key it is, is shut out as well.
            def is_shut_out():
                with contextlib.suppress(zmq.Again):
                    for number in range(3000):
                        flood.send(frames[number % 3], zmq.NOBLOCK)
                return "its connection is closed for 1 s" in said(out, 0)

            wait_until(is_shut_out, "it is shut out")
        processes[2].send_signal(signal.SIGCONT)
    assert "refused 1 message(s) so far" in said(out, 0)
    assert said(out, 0).count("\n") < 30


def test_a_neighbor_has_a_few_connections_and_no_more(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 2, has_keys=True, name=own_name("few"))
    out, pair = tmp_path / "run", pair_of(topology, 1)
    process = start_peer(topology, 0, out)
    with ended_afterwards(process), contextlib.ExitStack() as stack:
        wait_until(lambda: "listening" in said(out, 0), "it listens")
        usual = usual_files(process)
        for number in range(1, 5 * MOST_LINKS + 1):
            speaker, _ = stack.enter_context(speaking_to(topology, 0, pair, comes_back=False))
            speaker.send(hello_of(topology, 1))
            wait_until(lambda n=number: messages_from(topology, 1) == n, "it is heard", 30)
            if number == MOST_LINKS:
                assert open_files(process) >= usual + MOST_LINKS  # a few are there
        wait_until(lambda: open_files(process) <= usual + MOST_LINKS + 1, "more are cut off", 30)


def messages_from(topology, neighbor):
    """How many messages peer 0 has taken from a neighbor."""
    return status_of(topology, 0)["edges"][str(neighbor)]["messages_received"]


def largest_mib(process):
    """The most memory that a process has ever had resident."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())[1]) / 1024


@pytest.mark.parametrize("has_keys", [True, False], ids=["keys", "in the clear"])
def test_a_message_of_parts_without_end_does_not_fill_the_memory(tmp_path, has_keys):
    topology = write_topology(
        tmp_path / "net.toml", "path", 2, has_keys=has_keys, n=4000, p=12, samples=24, max_rounds=5
    )
    out, part = tmp_path / "run", zmq.Frame(bytes(codec_of(topology).largest_frame))
    processes = [start_peer(topology, 0, out)]
    with ended_afterwards(processes[0]):
        wait_until(lambda: "listening" in said(out, 0), "it listens")
        usual = largest_mib(processes[0])
        with speaking_to(topology, 0, pair_of(topology, 1) if has_keys else None) as (flood, _):
            flood.sndtimeo = 60_000
            # These are 4 GB, of which the sender keeps the part only once.
            for _ in range(5000):
                flood.send(part, zmq.SNDMORE, copy=False)
            # ZeroMQ sends nothing before the last part, and then all of it as fast as the line is.
            flood.send(b"")
            wait_until(lambda: "whole message, from" in said(out, 0), "it is cut off")  # by one rule or the other
        # The limit is half of what was sent, as a busy machine looks late.
        assert largest_mib(processes[0]) < usual + 2000
        processes.append(start_peer(topology, 1, out))
        with ended_afterwards(processes[1]):
            assert [process.wait(120) for process in processes] == [0, 0]


@pytest.mark.parametrize("has_keys", [True, False], ids=["keys", "in the clear"])
def test_messages_of_several_parts_are_not_heard(tmp_path, has_keys):
    topology = write_topology(tmp_path / "net.toml", "path", 2, has_keys=has_keys, name=own_name("parts"))
    process, out = start_peer(topology, 0, tmp_path / "run"), tmp_path / "run"
    with ended_afterwards(process):
        wait_until(lambda: "listening" in said(out, 0), "it listens")
        with speaking_to(topology, 0, pair_of(topology, 1) if has_keys else None) as (speaker, _):
            # In the clear, parts that come by a connection which is not noted yet are taken for messages.
            def is_refused():
                speaker.send_multipart([b"a part of something"] * 3)
                return "it sent a message of several parts" in said(out, 0)

            wait_until(is_refused, "it is refused", 30)
            assert messages_from(topology, 1) == 0

            def is_heard():
                # The hello may still go to the connection that is being cut off.
                speaker.send(hello_of(topology, 1))
                return messages_from(topology, 1) > 0

            wait_until(is_heard, "a whole one is, by another connection, which is as good as any", 30)


def test_in_the_clear_parts_by_a_known_connection_are_heard_as_messages_until_a_stranger_comes(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 2, name=own_name("known"))
    address, unused, heard = topology.peers[0].address, f"ipc://{tmp_path}/unused", []

    async def main():
        links = Links(address, {1: unused}, largest_frame=1000, on_frames=lambda frames, _: heard.extend(frames))
        connections = links._connections  # noqa: SLF001 - when it has noted who came, no other is told
        with speaking_to(topology, 0) as (speaker, _):
            speaker.send(b"whole")
            await until(lambda: connections.is_quiet and heard == [b"whole"])
            speaker.send_multipart([b"one", b"two"])
            await until(lambda: heard == [b"whole", b"one", b"two"])
            with speaking_to(topology, 0):
                await until(lambda: not connections.is_quiet)
                speaker.send_multipart([b"three", b"four"])
                await until(lambda: links.strangers == 1)
        links.close(linger=0)

    asyncio.run(main())
    assert heard == [b"whole", b"one", b"two"]


@pytest.mark.parametrize("has_keys", [True, False], ids=["keys", "in the clear"])
def test_a_frame_beyond_the_limit_ends_its_connection_before_it_is_read(tmp_path, has_keys):
    topology = write_topology(tmp_path / "net.toml", "path", 2, has_keys=has_keys)
    largest, heard = 10_000, []

    async def main():
        links = Links(
            topology.peers[0].address,
            {},
            largest_frame=largest,
            on_frames=lambda frames, _: heard.extend(map(len, frames)),
            credentials=credentials_of(topology, 0, None),
        )
        with speaking_to(topology, 0, pair_of(topology, 1) if has_keys else None) as (speaker, monitor):
            speaker.sndtimeo = 10_000
            for size in (largest, largest + SEALED + 1):
                await asyncio.to_thread(speaker.send, bytes(size))
            for _ in range(600):
                # The message may still go to the connection that is ended.
                await asyncio.to_thread(speaker.send, b"x")
                await asyncio.sleep(0.05)
                if 1 in heard:
                    break
            events = [recv_monitor_message(monitor)["event"] for _ in iter(lambda: monitor.poll(0), 0)]
        links.close(linger=0)
        return events

    events = asyncio.run(main())
    assert [heard[0], *set(heard[1:])] == [largest, 1]
    assert zmq.EVENT_DISCONNECTED in events


def test_eight_peers_have_the_same_bits_and_little_memory_while_a_second_process_floods_one():
    kinds = ["garbage", "connections", "wrong rounds"]
    command = [
        sys.executable,
        ROOT / "benchmarks" / "flood.py",
        "--peers",
        "8",
        "--rounds",
        "40",
        "--repeats",
        "1",
    ]
    for kind in kinds:
        command += ["--only", kind]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
    rows = {
        row[0]: row[1:] for row in re.findall(r"(?m)^(.+?) +\d+ +(\d+) +\d+ +[\d.]+x +[\d.]+ +([\d.]+)$", printed)
    }
    assert list(rows) == ["none", *kinds]
    for kind in kinds:
        refused, memory = map(float, rows[kind])
        assert refused > 0, printed
        assert memory < float(rows["none"][1]) + 100, printed
    assert printed.endswith("same bits: yes\n")


def test_strangers_together_may_say_so_much_before_a_handshake_and_no_more(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 2, has_keys=True, n=2000, p=12, samples=24)
    out, frame = tmp_path / "run", codec_of(topology).largest_frame
    process = start_peer(topology, 0, out, env=environment_with(NO_HURRY, tmp_path / "no-hurry"))
    # A command without its last byte.
    begun = GREETING + b"\x06" + frame.to_bytes(8) + bytes(frame - 1)
    with ended_afterwards(process), contextlib.ExitStack() as stack:
        wait_until(lambda: "listening" in said(out, 0), "it listens")
        usual = largest_mib(process)
        connect_silently(stack, topology.peers[0].address, STRANGERS_BYTES // frame + 50, begun)
        wait_until(lambda: "strangers say very much" in said(out, 0), "they are too much")
        assert largest_mib(process) < usual + 2 * STRANGERS_BYTES / 2**20


def test_strangers_are_cut_off_until_they_have_said_little_enough(tmp_path, monkeypatch):
    monkeypatch.setattr(connections, "STRANGERS_BYTES", 2**20)
    monkeypatch.setattr(connections, "SHARES", 0)
    # No connection is cut off for being slow.
    monkeypatch.setattr(links_module, "HANDSHAKE_MS", 600_000)
    topology = write_topology(tmp_path / "net.toml", "path", 2, has_keys=True)
    part, size = GREETING + b"\x06" + (2**16).to_bytes(8) + bytes(2**16 - 1), 2**16

    async def main():
        address = topology.peers[0].address
        credentials = credentials_of(topology, 0, None)
        links = Links(address, {}, largest_frame=size, on_frames=lambda *_: None, credentials=credentials)
        with contextlib.ExitStack() as stack:
            crowd = await asyncio.to_thread(connect_silently, stack, address, 100, part)
            for _ in range(600):
                await asyncio.sleep(0.1)
                if len(crowd) - links.strangers <= 2**20 // size:
                    break
            left = len(crowd) - links.strangers
        links.close(linger=0)
        return left

    assert 0 < asyncio.run(main()) <= 2**20 // size


def test_who_speaks_an_older_zmtp_in_the_clear_is_heard_and_has_no_more_rights(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 2, name=own_name("older"))
    process, out = start_peer(topology, 0, tmp_path / "run"), tmp_path / "run"
    with ended_afterwards(process), contextlib.ExitStack() as stack:
        wait_until(lambda: "listening" in said(out, 0), "it listens")
        # ZMTP 2.0, a PUSH socket, no identity.
        push = b"\xff" + bytes(7) + b"\x01\x7f\x01\x08" + bytes(2)
        connect_silently(stack, topology.peers[0].address, 3, push + b"\x00\x01x" + b"\x01\x01y\x00\x01z")
        wait_until(lambda: status_of(topology, 0)["rejected"] == 3, "what is no part is heard", 30)
        assert process.poll() is None


@pytest.mark.parametrize("said", ["abc", "", "9" * 30, "9" * 5000, "-1"])
def test_a_descriptor_that_ZeroMQ_has_only_been_told_may_be_anything(said):
    assert descriptor_of({"__fd": said}) is None
    assert descriptor_of({"__fd": "12"}) == 12


def test_fewer_large_blocks_wait_but_as_many_as_the_protocol_needs(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 2, n=3000, p=120, samples=120, max_rounds=3)
    frame = codec_of(topology).largest_frame
    assert (queue_for(1000), queue_for(frame), queue_for(2**40)) == (QUEUE, SHORTEST_QUEUE, SHORTEST_QUEUE)
    assert queue_for(2**21) * 2**21 == QUEUE_BYTES
    processes = [start_peer(topology, agent, tmp_path / "run") for agent in range(2)]
    with ended_afterwards(*processes):
        assert [process.wait(120) for process in processes] == [0, 0]
