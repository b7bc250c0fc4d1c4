"""Whether a neighbor can make libzmq abort a peer: fill its queue while it computes, then reset the connection.

python benchmarks/resets.py [--minutes 10 | --provocations 20] [--only KIND] [--limited]

A victim process runs `Links`, the transport of a peer, and holds up its event loop by steps of 0 to 1.3 s. This
process speaks ZMTP to it over raw sockets. Kinds: `full queue` (more frames than are taken during a step, then a
reset), `ping` (the same, and heartbeats behind the frames), `answers` (frames from the end that should only
listen, then a reset) and `flood` (frames as fast as the line takes them, until the connection is closed). Printed
are the number of each kind, the frames that the victim has taken meanwhile, and its largest resident memory. A
victim that ends is an error. With `--limited` it is a plain PULL socket with a queue of sixteen and heartbeats, as
before `inbox.py`: that shows that the provocations do abort libzmq 4.3.5.
"""

import asyncio
import contextlib
import itertools
import multiprocessing
import socket
import struct
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

import click
import numpy as np
import zmq

from thanos_peer.transport.links import Links

RNG = np.random.default_rng()
# Seconds of a step, at most: a heartbeat comes due in them.
LONGEST_STEP = 1.3
LARGEST_FRAME = 10_000
FLOOD = 2**26  # bytes, at most
# Frames: more than any limited queue holds.
ENOUGH = 2000


def command(name: bytes, body: bytes = b"") -> bytes:
    """A short ZMTP command."""
    return bytes([4, 1 + len(name) + len(body), len(name)]) + name + body


def greeting_as(kind: bytes) -> bytes:
    """A greeting of ZMTP 3.1 without keys, and the handshake of a kind of socket."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
    return greeting + command(b"READY", b"\x0bSocket-Type" + len(kind).to_bytes(4) + kind)


PUSH, PULL = greeting_as(b"PUSH"), greeting_as(b"PULL")
PING = command(b"PING", bytes(2))
FRAME = b"\0\x05hello"
LARGE_FRAME = b"\x02" + LARGEST_FRAME.to_bytes(8) + bytes(LARGEST_FRAME)
FILLS = {
    "full queue": FRAME * ENOUGH,
    "ping": (FRAME * 20 + PING) * (ENOUGH // 20),
    "answers": FRAME * ENOUGH,
    "flood": LARGE_FRAME * (FLOOD // LARGEST_FRAME),
}


def reset(connection: socket.socket) -> None:
    """End a connection at once, with a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def shake_hands(connection: socket.socket, greeting: bytes) -> None:
    """Greet, and wait until the other end has done so too; it says more than a greeting."""
    connection.settimeout(10)
    connection.sendall(greeting)
    heard = 0
    while heard <= 64 and (some := connection.recv(256)):
        heard += len(some)


def fill(connection: socket.socket, frames: bytes) -> None:
    """Send, wait a little until it is read, and reset; a victim that has hung up first is all right."""
    with contextlib.suppress(OSError):
        connection.settimeout(0.2)
        connection.sendall(frames)
    time.sleep(RNG.uniform(0.01, 0.1))
    reset(connection)


def provoke(place: tuple[str, int], server: socket.socket, kind: str) -> None:
    """One provocation of a kind."""
    if kind == "answers":
        connection, _ = server.accept()
        with contextlib.suppress(OSError):
            shake_hands(connection, PULL)
        fill(connection, FILLS[kind])
        return
    connection = socket.create_connection(place, 10)
    with contextlib.suppress(OSError):
        shake_hands(connection, PUSH)
    fill(connection, FILLS[kind])


def be_victim(port: int, liar: int, pipe: Connection) -> None:
    """Run links whose event loop is held up by steps, until told to stop."""
    taken = 0

    def count(frames: list[bytes], _: object) -> None:
        nonlocal taken
        taken += len(frames)

    async def main() -> None:
        places = (f"tcp://127.0.0.1:{port}", {1: f"tcp://127.0.0.1:{liar}"})
        links = Links(*places, largest_frame=LARGEST_FRAME, on_frames=count)
        pipe.send(None)
        while not pipe.poll():
            time.sleep(RNG.uniform(0, LONGEST_STEP))  # noqa: ASYNC251 - a step
            await asyncio.sleep(0.02)
        links.close(linger=0.5)

    asyncio.run(main())
    pipe.send(taken)


def be_limited_victim(port: int, _: int, pipe: Connection) -> None:
    """Run a socket whose input stops when its queue is full, and which writes heartbeats all the same."""
    taken, context = 0, zmq.Context()
    inbox = context.socket(zmq.PULL)
    inbox.setsockopt(zmq.RCVHWM, 16)
    inbox.setsockopt(zmq.HEARTBEAT_IVL, 500)  # milliseconds
    inbox.setsockopt(zmq.HEARTBEAT_TIMEOUT, 4000)
    inbox.bind(f"tcp://127.0.0.1:{port}")
    pipe.send(None)
    while not pipe.poll():
        time.sleep(RNG.uniform(0, LONGEST_STEP))
        with contextlib.suppress(zmq.Again):
            while True:
                inbox.recv(zmq.NOBLOCK)
                taken += 1
    pipe.send(taken)
    context.destroy(linger=0)


def largest_mib(pid: int) -> float:
    """The most memory that a process has ever had resident."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def free_port() -> int:
    """A port that no process listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@click.command()
@click.option("--minutes", type=float, default=10.0, show_default=True)
@click.option("--provocations", type=int, help="End after so many.")
@click.option("--only", "kinds", type=click.Choice(list(FILLS)), multiple=True, help="Only these kinds.")
@click.option("--limited", "is_limited", is_flag=True, help="Provoke a plain socket instead, which aborts.")
def main(minutes: float, provocations: int | None, kinds: tuple[str, ...], *, is_limited: bool) -> None:
    """Provoke a victim, and print what it has survived."""
    port, done, began = free_port(), Counter[str](), time.monotonic()
    ours, theirs = multiprocessing.Pipe()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        liar = int(server.getsockname()[1])
        be = be_limited_victim if is_limited else be_victim
        victim = multiprocessing.get_context("spawn").Process(target=be, args=(port, liar, theirs))
        victim.start()
        ours.recv()
        for kind in itertools.islice(itertools.cycle(kinds or FILLS), provocations):
            with contextlib.suppress(OSError):
                provoke(("127.0.0.1", port), server, kind)
                done[kind] += 1
            if not victim.is_alive() or time.monotonic() - began > 60 * minutes:
                break
        # A last abort may take as long as a heartbeat.
        victim.join(2 * LONGEST_STEP)
        if is_alive := victim.is_alive():
            memory = largest_mib(victim.pid or 0)
            ours.send(None)
            taken = ours.recv()
            victim.join()
    said = ", ".join(f"{count} of {kind}" for kind, count in done.items())
    seconds = time.monotonic() - began
    if not is_alive or victim.exitcode != 0:
        raise click.ClickException(f"the victim ended with {victim.exitcode} after {said}, {seconds:.0f} s")
    click.echo(f"{seconds:.0f} s: {said}; the victim took {taken} frames and goes on; {memory:.1f} MiB at most")


if __name__ == "__main__":
    main()
