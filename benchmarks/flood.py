"""What a flood costs: eight peers with keys, and a second process that attacks one of them.

python benchmarks/flood.py [--peers 8] [--rounds 1500] [--repeats 2]

Kinds: `garbage` (bytes that are no ZMTP), `connections` (opened and closed), `half-open` (a CURVE handshake begun
with its greeting, and left there), `strangers` (whole CURVE handshakes with an unknown key), `wrong
rounds` (sound blocks of far rounds, by a real neighbor's key, until that is shut out; then the run waits for the
real neighbor, until it is let in again) and `parts` (one message without end, by the same key). Runs with and
without a flood take turns in one sitting. Printed are the speed of the network beside no flood, how many
connections and messages the peer that is attacked has refused in a run, its CPU time from the first round on, its
largest resident memory, and whether the bits are the same. The attacker has a core's worth of this machine too,
which the peers then lack.
"""

import contextlib
import json
import multiprocessing
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import numpy as np
import zmq
from flatness import resident_kib
from peers import Figure, Processes, figure_of, prepared, start_all, topology_with, wait_for_all

from thanos_peer.block import Block, StopWord
from thanos_peer.protocol.wire import Codec
from thanos_peer.storage.peer_files import PeerFiles
from thanos_peer.topology import Topology, load
from thanos_peer.transport.keys import KeyPair, new_pair, read_secret, secret_directory, secret_file

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

VICTIM = 0
PAUSE = 0.1
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)  # of ZMTP 3.1, whole
# Parts of a message that is as good as endless.
PARTS = 100_000
AT_ONCE = 500  # connections that are held open


def place_of(topology: Topology) -> tuple[str, int]:
    """Where the victim listens."""
    return "127.0.0.1", int(topology.peers[VICTIM].address.rsplit(":", 1)[1])


def connect(topology: Topology, words: bytes, held: int) -> Iterator[int]:
    """Connect, say something, and hold some connections open."""
    open_ones: list[socket.socket] = []
    while True:
        try:
            connection = socket.create_connection(place_of(topology), timeout=1)
        except OSError:
            # The victim does not listen yet, or no longer.
            yield 0
            continue
        open_ones.append(connection)
        with contextlib.suppress(OSError):
            connection.sendall(words)
        if len(open_ones) > held:
            open_ones.pop(0).close()
        yield 1


def link_to(topology: Topology, pair: KeyPair, context: "zmq.Context[zmq.Socket[bytes]]") -> "zmq.Socket[bytes]":
    """A link to the victim, with any key."""
    link = context.socket(zmq.PUSH)
    link.curve_serverkey = str(topology.peers[VICTIM].public_key).encode()
    link.curve_publickey, link.curve_secretkey = pair.public.encode(), pair.secret.encode()
    link.sndtimeo, link.linger = 100, 0
    link.reconnect_ivl = 10  # soon after the victim listens
    return link


def speak(topology: Topology, pair: KeyPair, frame: bytes) -> Iterator[int]:
    """Send a frame again and again, over a new link each time."""
    context = zmq.Context()
    while True:
        link = link_to(topology, pair, context)
        link.connect(topology.peers[VICTIM].address)
        with contextlib.suppress(zmq.Again):
            link.send(frame)
            yield 1
        time.sleep(0.002)
        link.close()


def speak_until_shut_out(topology: Topology, pair: KeyPair, frame: bytes) -> Iterator[int]:
    """Send a frame again and again over one link, until the victim closes it."""
    context = zmq.Context()
    link = link_to(topology, pair, context)
    monitor = link.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    link.connect(topology.peers[VICTIM].address)
    while not monitor.poll(0):
        try:
            link.send(frame)
            yield 1
        except zmq.Again:
            yield 0
    link.close()


def speak_in_parts(topology: Topology, pair: KeyPair, part: bytes) -> Iterator[int]:
    """Send messages of very many parts, one after the other; the parts are one piece of memory here."""
    context, frame = zmq.Context(), zmq.Frame(part)
    link = link_to(topology, pair, context)
    link.sndhwm = 1
    link.connect(topology.peers[VICTIM].address)
    while True:
        sent = 0
        with contextlib.suppress(zmq.Again):
            for _ in range(PARTS):
                link.send(frame, zmq.SNDMORE, copy=False)
                sent += 1
            link.send(b"")
        yield sent


def attack(kind: str, file: Path, has_ended: Event, count: "Synchronized[int]") -> None:
    """The second process: flood until told to stop."""
    topology = load(file)
    problem = topology.problem
    neighbor = topology.graph.neighbors[VICTIM][0]
    codec = Codec(topology.digest, n=problem.n, p=problem.p, dtype=topology.algorithm.exchange)
    X = np.full((problem.n, problem.p), 0.5)
    block = codec.encode(neighbor, Block.of(10**9, X, X, 0.1, StopWord(), 0))
    real = read_secret(secret_file(secret_directory(file), neighbor))
    floods: dict[str, Callable[[], Iterator[int]]] = {
        "garbage": lambda: connect(topology, b"\xfe" * 4096, 0),
        "connections": lambda: connect(topology, b"", 0),
        "half-open": lambda: connect(topology, GREETING, AT_ONCE),
        "strangers": lambda: speak(topology, new_pair(), block),
        "wrong rounds": lambda: speak_until_shut_out(topology, real, block),
        "parts": lambda: speak_in_parts(topology, real, bytes(codec.largest_frame)),
    }
    for number in floods[kind]():
        count.value += number
        if has_ended.is_set():
            return


KINDS = ("none", "garbage", "connections", "half-open", "strangers", "wrong rounds", "parts")


def watched(processes: Processes) -> float:
    """Wait until all peers have ended; the largest resident memory of the victim meanwhile, in MiB."""
    largest = 0
    while processes[VICTIM].poll() is None:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            largest = max(largest, resident_kib(processes[VICTIM].pid))
        time.sleep(PAUSE)
    wait_for_all(processes)
    return largest / 1024


class Flooded(NamedTuple):
    """What one run showed, and of the victim its CPU and memory, what was thrown at it per second, and refused."""

    figure: Figure
    cpu: float
    memory: float
    rate: float
    refused: int


def run(topology: Topology, place: Path, kind: str) -> Flooded:
    """Run all peers under one kind of flood."""
    here = prepared(topology, place, has_keys=True)
    has_ended, count = multiprocessing.Event(), multiprocessing.Value("q")
    began, attacker = time.monotonic(), None
    if kind != "none":
        attacker = multiprocessing.Process(target=attack, args=(kind, here.file, has_ended, count), daemon=True)
        attacker.start()
    memory = watched(start_all(here, place / "run"))
    seconds = time.monotonic() - began
    if attacker is not None:
        has_ended.set()
        attacker.join()
    facts = json.loads(PeerFiles(place / "run", here, VICTIM).facts.read_text())
    refused = facts["strangers"] + facts["rejected"]
    cpu = facts["stepping"]["cpu_seconds"]
    return Flooded(figure_of(here, place / "run"), cpu, memory, count.value / seconds, refused)


@click.command()
@click.option("--peers", "d", type=int, default=8, show_default=True)
@click.option("--rounds", type=int, default=1500, show_default=True)
@click.option("--repeats", type=int, default=2, show_default=True)
@click.option("--only", "kinds", type=click.Choice(KINDS[1:]), multiple=True, help="Only these floods.")
def main(d: int, rounds: int, repeats: int, kinds: tuple[str, ...]) -> None:
    """Print medians of interleaved runs."""
    results: dict[str, list[Flooded]] = {kind: [] for kind in ("none", *(kinds or KINDS[1:]))}
    with tempfile.TemporaryDirectory() as directory:
        topology = topology_with(Path(directory), d, rounds)
        for number in range(repeats):
            for kind, runs in results.items():
                runs.append(run(topology, Path(directory) / f"{kind}-{number}", kind))
    click.echo(f"d = {d}, {rounds} rounds, medians of {repeats} interleaved runs; peer {VICTIM} is attacked")
    columns = f"{'rounds/s':>10}{'of none':>10}{'CPU s':>8}{'resident MiB':>14}"
    click.echo(f"{'flood':14}{'a second':>10}{'refused':>10}{columns}")
    speed = {
        kind: statistics.median(each.figure.rounds_per_second for each in runs) for kind, runs in results.items()
    }
    for kind, runs in results.items():
        cpu, memory, rate, refused = (statistics.median(values) for values in list(zip(*runs, strict=True))[1:])
        beside = speed[kind] / speed["none"]
        click.echo(
            f"{kind:14}{rate:10.0f}{refused:10.0f}{speed[kind]:10.0f}{beside:9.2f}x{cpu:8.1f}{memory:14.1f}"
        )
    same = len({each.figure.bits for runs in results.values() for each in runs}) == 1
    click.echo(f"same bits: {'yes' if same else 'NO'}")


if __name__ == "__main__":
    main()
