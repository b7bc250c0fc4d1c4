"""An inbox in front of a neighbor that floods it and resets: no abort, bounded, and others are heard."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
import zmq
from processes import own_name, wait_until, write_topology
from strangers import speaking_to, until
from zmq import EVENT_DISCONNECTED
from zmq.utils.monitor import recv_monitor_message

from thanos_peer.transport.backlog import MOST_DROPPED
from thanos_peer.transport.links import Links

ROOT = Path(__file__).parents[2]


def provoked(*options):
    command = [sys.executable, ROOT / "benchmarks" / "resets.py", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)


@pytest.mark.skipif(zmq.zmq_version_info() > (4, 3, 5), reason="a later libzmq may not abort")
def test_the_same_provocations_abort_a_plain_socket_with_a_limit():
    finished = provoked("--minutes", "1", "--only", "full queue", "--only", "ping", "--limited")
    assert finished.returncode == 1
    assert "Assertion failed: !_io_error" in finished.stderr
    assert "the victim ended with -6" in finished.stderr


def test_a_reset_while_the_queue_is_full_does_not_abort_a_peer():
    finished = provoked("--provocations", "16")
    assert finished.returncode == 0, finished.stderr
    # A victim whose links stayed broken would have been provoked less often.
    counts = re.findall(r"(\d+) of ([a-z ]+)", finished.stdout)
    assert sorted(counts) == [("4", "answers"), ("4", "flood"), ("4", "full queue"), ("4", "ping")]


def test_a_flood_is_cut_off_while_the_event_loop_is_held_up_and_others_are_heard(tmp_path, caplog):
    topology = write_topology(tmp_path / "net.toml", "path", 2, name=own_name("held"))
    address, unused, heard = topology.peers[0].address, f"ipc://{tmp_path}/unused", []

    def is_cut(monitor):
        return monitor.poll(0) and recv_monitor_message(monitor)["event"] == EVENT_DISCONNECTED

    async def main():
        links = Links(address, {1: unused}, largest_frame=1000, on_frames=lambda frames, _: heard.extend(frames))
        with speaking_to(topology, 0) as (calm, _), speaking_to(topology, 0, comes_back=False) as (flood, monitor):
            flood.sndhwm = 0
            calm.send(b"first")
            await until(lambda: heard)
            for number in range(5000):
                flood.send(b"%d" % number)
            calm.send(b"second")
            wait_until(lambda: is_cut(monitor), "the flood is cut off", 30)  # nothing else runs in this thread
            calm.send(b"third")
            await until(lambda: b"third" in heard)
        links.close(linger=0)

    asyncio.run(main())
    others = [frame for frame in heard if not frame.isdigit()]
    numbers = [int(frame) for frame in heard if frame.isdigit()]
    assert others == [b"first", b"second", b"third"]
    assert numbers == sorted(set(numbers))
    assert 0 < len(numbers) < 5000 - MOST_DROPPED
    assert "it sends more than this peer can take" in caplog.text
