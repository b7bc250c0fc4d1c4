"""Those that speak to a peer from outside: with a key or without, in its own name or another's."""

import asyncio
import contextlib
import socket
import threading
import time

import numpy as np
import zmq
from processes import wait_until

from thanos_peer.block import Block, StopWord
from thanos_peer.peer.status import ask, local_address
from thanos_peer.protocol.messages import Hello
from thanos_peer.protocol.wire import Codec
from thanos_peer.transport.keys import read_secret, secret_directory, secret_file


def codec_of(topology):
    problem = topology.problem
    return Codec(topology.digest, n=problem.n, p=problem.p, dtype=topology.algorithm.exchange)


def hello_of(topology, agent, *, is_asking=False):
    """The frame of a sound Hello in the name of an agent."""
    problem = topology.problem
    life = int(time.time() * 1000)
    exchange = topology.algorithm.exchange
    hello = Hello(0, topology.digest, problem.n, problem.p, exchange, "1", is_asking, life, 0, 0, 0)
    return codec_of(topology).encode(agent, hello)


def block_of(topology, agent, k):
    """The frame of a sound block with numbers of no run in the name of an agent."""
    X = np.full((topology.problem.n, topology.problem.p), 0.25)
    return codec_of(topology).encode(agent, Block.of(k, X, X, 0.1, StopWord(), 0))


def pair_of(topology, agent):
    """The keys of a peer, from its secret file."""
    return read_secret(secret_file(secret_directory(topology.file), agent))


def port_of(address):
    return int(address.rsplit(":", 1)[1])


@contextlib.contextmanager
def speaking_to(topology, agent, pair=None, *, address=None, comes_back=True):
    """A socket connected to a peer, with a key or in the clear, and a monitor of its connection."""
    context = zmq.Context()
    speaker = context.socket(zmq.PUSH)
    monitor = speaker.get_monitor_socket()
    if pair is not None:
        speaker.curve_serverkey = topology.peers[agent].public_key.encode()
        speaker.curve_publickey, speaker.curve_secretkey = pair.public.encode(), pair.secret.encode()
    if not comes_back:
        speaker.reconnect_ivl = -1  # it counts only before one connects
    speaker.connect(address or topology.peers[agent].address)
    try:
        yield speaker, monitor
    finally:
        # ZeroMQ's thread holds on to the monitor while it has news that is not taken.
        while monitor.poll(0):
            monitor.recv_multipart()
        speaker.disable_monitor()
        monitor.close(linger=0)
        speaker.close(linger=0)
        context.term()


def status_of(topology, agent):
    """What a peer says of itself, as soon as it does."""

    def asked():
        (answer,) = ask([local_address(topology, agent)], timeout=5)
        return None if isinstance(answer, str) else answer.model_dump()

    return wait_until(asked, f"peer {agent} answers")


async def until(is_so, most=30.0):
    """Wait for something in a running loop."""
    end = time.monotonic() + most
    while not is_so():
        assert time.monotonic() < end, "it does not come"
        await asyncio.sleep(0.02)


class Recorder:
    """Stands before a peer, forwards one connection, and keeps what the caller says; or spoils it when told to."""

    def __init__(self, port):
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listening.getsockname()[1]}"
        self.said, self.spoils, self.is_cut = b"", False, False
        self._thread = threading.Thread(target=self._forward, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._thread.join(30)
        self._listening.close()
        assert not self._thread.is_alive()

    def _forward(self):
        self._listening.settimeout(30)
        caller, _ = self._listening.accept()
        with caller, socket.create_connection(("127.0.0.1", self._target)) as peer:
            back = threading.Thread(target=self._answer, args=(peer, caller))
            back.start()
            with contextlib.suppress(OSError):
                while chunk := caller.recv(65536):
                    self.said += chunk
                    peer.sendall(chunk[:-1] + bytes([chunk[-1] ^ self.spoils]))
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
            back.join()

    def _answer(self, peer, caller):
        with contextlib.suppress(OSError):
            while chunk := peer.recv(65536):
                caller.sendall(chunk)
        self.is_cut = True
