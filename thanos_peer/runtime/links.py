"""The sockets of a peer: one it listens on, and one for each neighbor to send to.

Every message to this peer arrives at its one address (PULL); to every neighbor there is a socket of its own
(PUSH). So a host needs one open port, and either end of an edge may start first: ZeroMQ keeps trying. Nothing
here waits: what has arrived is drained in one reader callback, what cannot be queued is dropped, and the
protocol asks for it again.
"""

import asyncio
import errno
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import zmq
from zmq.utils.monitor import recv_monitor_message

from thanos_peer.block import AgentId
from thanos_peer.errors import ConfigError

MOST_AT_ONCE = 1000  # frames per callback, so that a flood cannot keep the clock from ticking
QUEUE = 16  # frames a neighbor may be behind in reading; the protocol needs three
RECONNECT_MS, RECONNECT_MAX_MS = 100, 2000
_WATCHED = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_CONNECT_RETRIED


@dataclass
class LinkState:
    """What is known of the connection to a neighbor."""

    address: str
    is_up: bool = False
    since: float = 0.0
    was_up: bool = False
    retries: int = 0
    unresolved: str | None = None

    def describe(self, now: float) -> str:
        """In words."""
        if self.is_up:
            return f"connected for {now - self.since:.0f} s"
        if self.was_up:
            return f"connection lost {now - self.since:.0f} s ago, {self.retries} tries to reconnect"
        if self.unresolved is not None:
            return f"the name {self.unresolved} does not resolve"
        return f"never connected, {self.retries + 1} tries"


def unresolved_host(address: str) -> str | None:
    """The host of a tcp address if it is a name that does not resolve here and now."""
    parts = urlsplit(address)
    if parts.scheme != "tcp" or parts.hostname is None:
        return None
    try:
        socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
    except OSError:
        return parts.hostname
    return None


class Links:
    """The open sockets of one peer; use it inside a running event loop.

    Args:
        bind: Where to listen.
        neighbors: Where each neighbor listens.
        largest_frame: ZeroMQ cuts off whoever sends more than this many bytes at once.
        on_frame: Called with each frame that arrives.
    """

    def __init__(
        self,
        bind: str,
        neighbors: Mapping[AgentId, str],
        *,
        largest_frame: int,
        on_frame: Callable[[bytes], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context()
        self._on_frame = on_frame
        self._monitors: dict[AgentId, zmq.Socket[bytes]] = {}
        self.states = {j: LinkState(address) for j, address in neighbors.items()}
        self._inbox: zmq.Socket[bytes] = self._context.socket(zmq.PULL)
        self._outboxes: dict[AgentId, zmq.Socket[bytes]] = {}
        try:
            self._listen(bind, largest_frame, len(neighbors))
            for j, address in neighbors.items():
                self._connect(j, address)
        except BaseException:
            self.close(linger=0)
            raise

    def _listen(self, bind: str, largest_frame: int, count: int) -> None:
        self._inbox.setsockopt(zmq.MAXMSGSIZE, largest_frame)
        self._inbox.setsockopt(zmq.RCVHWM, QUEUE * max(1, count))
        self._inbox.setsockopt(zmq.IPV6, "[" in bind)
        try:
            self._inbox.bind(bind)
        except zmq.ZMQError as error:
            raise ConfigError(f"cannot listen on {bind}: {_explain(bind, error)}") from error
        self._loop.add_reader(self._inbox.fileno(), self.drain)
        self._loop.call_soon(self._drain_if_open)  # the descriptor speaks up only after a read that found nothing

    def _connect(self, j: AgentId, address: str) -> None:
        outbox: zmq.Socket[bytes] = self._context.socket(zmq.PUSH)
        self._outboxes[j] = outbox
        outbox.setsockopt(zmq.SNDHWM, QUEUE)
        outbox.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        outbox.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
        outbox.setsockopt(zmq.IPV6, "[" in address)
        monitor = outbox.get_monitor_socket(_WATCHED)
        self._monitors[j] = monitor
        self._loop.add_reader(monitor.fileno(), self._watch, j)
        self._watch(j)  # the same holds here
        outbox.connect(address)

    def send(self, neighbor: AgentId, frame: bytes) -> bool:
        """Queue a frame for a neighbor; False if its queue is full, and the frame dropped."""
        try:
            self._outboxes[neighbor].send(frame, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def drain(self) -> None:
        """Hand over what has arrived."""
        receive, on_frame = self._inbox.recv, self._on_frame
        try:
            for _ in range(MOST_AT_ONCE):
                on_frame(receive(zmq.NOBLOCK))
        except zmq.Again:
            return
        self._loop.call_soon(self._drain_if_open)

    def _drain_if_open(self) -> None:
        if not self._inbox.closed:
            self.drain()

    def _watch(self, j: AgentId) -> None:
        """Note what became of the connection to a neighbor."""
        state, monitor = self.states[j], self._monitors[j]
        while monitor.poll(0):
            event = recv_monitor_message(monitor, zmq.NOBLOCK)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                state.is_up, state.was_up, state.since, state.retries = True, True, time.monotonic(), 0
            elif event == zmq.EVENT_CONNECT_RETRIED:
                state.retries += 1
            elif state.is_up:
                state.is_up, state.since = False, time.monotonic()

    def close(self, *, linger: float) -> None:
        """Close all sockets; frames still queued for a neighbor get `linger` seconds to leave."""
        for j, monitor in self._monitors.items():
            self._outboxes[j].disable_monitor()
            self._loop.remove_reader(monitor.fileno())
            monitor.close(linger=0)
        for outbox in self._outboxes.values():
            outbox.close(linger=int(linger * 1000))
        if not self._inbox.closed:
            self._loop.remove_reader(self._inbox.fileno())
            self._inbox.close(linger=0)
        self._context.term()


def _explain(address: str, error: zmq.ZMQError) -> str:
    name = unresolved_host(address)
    if name is not None:
        return f"the name {name} does not resolve"
    if error.errno == errno.EADDRINUSE:
        return "the address is in use; is this peer running already, or another program?"
    if error.errno in (errno.EADDRNOTAVAIL, errno.ENODEV):
        return "this host has no such address; listen elsewhere with --bind, for instance tcp://0.0.0.0:PORT"
    return str(error.strerror or error)
