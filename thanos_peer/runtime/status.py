"""What a running peer is doing, asked of the peer itself.

Every peer answers on a socket that only its own host reaches, named after the run and its id, and on another
address if it is told one. Any request is answered with one JSON object; nothing can be changed this way.
"""

import asyncio
import contextlib
import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from thanos_peer.block import AgentId
from thanos_peer.errors import ConfigError
from thanos_peer.topology import Topology

log = logging.getLogger("thanos_peer")

LARGEST_REQUEST = 64


def local_address(topology: Topology, agent: AgentId) -> str:
    """Where a peer on this host answers."""
    name = f"thanos-peer-{topology.digest[:16]}-{agent}"
    return f"ipc://@{name}" if sys.platform == "linux" else f"ipc://{tempfile.gettempdir()}/{name}"


class StatusServer:
    """Answers on some addresses until it is closed; use it inside a running event loop.

    Args:
        local: The address on this host. If it is taken, another peer of the same run and id is here; that is
            said, and this one goes on without.
        extra: One more address, or None.
        status: Gives the answer.
    """

    def __init__(self, local: str, extra: str | None, status: Callable[[], dict[str, Any]]) -> None:
        self._status = status
        self._context = zmq.Context()
        self._sockets: list[zmq.Socket[bytes]] = []
        try:
            self._listen(local)
        except zmq.ZMQError:
            log.warning("no local status: %s is taken by a peer of the same run and id on this host", local)
        if extra is not None:
            try:
                self._listen(extra)
            except zmq.ZMQError as error:
                self.close()
                raise ConfigError(f"cannot answer status requests on {extra}: {error.strerror}") from error

    def _listen(self, address: str) -> None:
        socket: zmq.Socket[bytes] = self._context.socket(zmq.REP)
        socket.setsockopt(zmq.MAXMSGSIZE, LARGEST_REQUEST)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IPV6, "[" in address)
        try:
            socket.bind(address)
        except zmq.ZMQError:
            socket.close()
            raise
        self._sockets.append(socket)
        loop = asyncio.get_running_loop()
        loop.add_reader(socket.fileno(), self._answer, socket)
        loop.call_soon(self._answer, socket)  # the descriptor speaks up only after a read that found nothing

    def _answer(self, socket: "zmq.Socket[bytes]") -> None:
        with contextlib.suppress(zmq.Again):
            while not socket.closed:
                socket.recv_multipart(zmq.NOBLOCK)
                socket.send(json.dumps(self._status()).encode(), zmq.NOBLOCK)

    def close(self) -> None:
        """Stop answering."""
        for socket in self._sockets:
            asyncio.get_running_loop().remove_reader(socket.fileno())
            socket.close()
        self._context.term()


def ask(addresses: Sequence[str], *, timeout: float) -> list[dict[str, Any] | None]:
    """Ask the peers at some addresses, all at once; None for those that do not answer in time."""
    context = zmq.Context()
    sockets: list[zmq.Socket[bytes]] = []
    try:
        for address in addresses:
            socket: zmq.Socket[bytes] = context.socket(zmq.REQ)
            sockets.append(socket)
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.IPV6, "[" in address)
            try:
                socket.connect(address)
            except zmq.ZMQError as error:
                raise ConfigError(f"{address} is no address that can be asked: {error.strerror}") from error
            socket.send(b"status")
        until = time.monotonic() + timeout
        return [_receive(socket, until) for socket in sockets]
    finally:
        for socket in sockets:
            socket.close()
        context.term()


def _receive(socket: "zmq.Socket[bytes]", until: float) -> dict[str, Any] | None:
    if not socket.poll(max(0, int((until - time.monotonic()) * 1000))):
        return None
    try:
        answer = json.loads(socket.recv())
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None
