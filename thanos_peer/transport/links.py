"""The sockets of a peer: one it listens on, and one for each neighbor to send to.

Every message to this peer arrives at its one address (PULL); to every neighbor there is a socket of its own
(PUSH). So a host needs one open port, and either end of an edge may start first: ZeroMQ keeps trying. Nothing
here waits: what has arrived is drained in one reader callback, what cannot be queued is dropped, and the
protocol asks for it again. With keys, every link is encrypted, and each frame comes with whose key it was sent by.
Queues and what is taken at once are bounded in bytes too, so that large blocks do not fill the memory.
"""

import asyncio
import contextlib
import errno
import select
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import zmq
from zmq.utils.monitor import recv_monitor_message

from thanos_peer.block import AgentId
from thanos_peer.errors import ConfigError
from thanos_peer.protocol.neighbor import LinkEvent
from thanos_peer.topology.sockets import check_socket
from thanos_peer.transport.authenticator import Authenticator
from thanos_peer.transport.byte_counts import HEARTBEATS
from thanos_peer.transport.connections import Connections
from thanos_peer.transport.descriptors import connection_of, received
from thanos_peer.transport.inbox import Inbox
from thanos_peer.transport.keys import Credentials

# Frames per callback besides a few of each neighbor: a flood cannot keep the rounds from going on.
SPARE_AT_ONCE = 64
# Frames that a neighbor may be behind in reading; the protocol needs three.
QUEUE, SHORTEST_QUEUE = 16, 3
# Bytes of a queue, at most: there are fewer of larger frames, down to the shortest queue.
QUEUE_BYTES = 2**24
# Bytes of all frames per callback, at most, or one frame.
AT_ONCE_BYTES = 2**26
# Bytes that encryption adds to a frame, at most.
SEALED = 64
# Bytes that ZeroMQ may hold besides its queue: more than a handshake takes.
READ_AHEAD = 65536
# Milliseconds until the next try to connect: ZeroMQ doubles the first up to the second, and adds jitter.
RECONNECT_MS, RECONNECT_MAX_MS = 100, 2000
# Milliseconds between heartbeats, and without one until a link is given up. ZeroMQ's own thread sends them, even
# if a peer is deep in its numbers.
HEARTBEAT_MS, SILENCE_MS = 500, 4000
# Seconds between the kernel's own probes, and how many of them: they are there before the first heartbeat.
KEEPALIVE_S, KEEPALIVES = 1, 3
# Milliseconds for one try to connect; Linux would go on with it for two minutes, ever more seldom.
CONNECT_MS = 4000
IN_USE = (
    "the address is in use; is this peer running already, or another program? (`thanos-peer run --free-ports` "
    "takes free ports instead)"
)
# Milliseconds for ZeroMQ's handshake, with or without keys; a connection that takes longer is cut off.
HANDSHAKE_MS = 5000
# Seconds between two looks at the links.
MEND = 0.5
# Seconds without any news of a link that is down after which it is made anew.
STUCK = 10.0
# A plain number, as the enum's own would be looked up and checked for each frame.
_NOBLOCK = int(zmq.NOBLOCK)
# The method without what pyzmq wraps around it for sockets of other kinds.
_send = zmq.backend.Socket.send
_REFUSED = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_WATCHED = (
    zmq.EVENT_CONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_CONNECT_RETRIED
    | _REFUSED
)
# Systems other than Linux report only the end of both directions.
_HUNG_UP = getattr(select, "POLLRDHUP", 0)
_EVENTS: dict[int, LinkEvent] = {
    zmq.EVENT_HANDSHAKE_SUCCEEDED: LinkEvent.UP,
    zmq.EVENT_CONNECT_RETRIED: LinkEvent.RETRIED,
}


@dataclass
class _Outbox:
    """The socket to a neighbor, what watches it, whether it is connected, and when there was news of it.

    The descriptor is that of the connection; None while there is none. `received` is how many bytes have come by
    it, and when that was last seen to change.
    """

    address: str
    socket: "zmq.Socket[bytes]"
    monitor: "zmq.Socket[bytes]"
    descriptor: int | None = None
    received: tuple[int, float] = 0, 0.0
    is_up: bool = False
    heard: float = field(default_factory=time.monotonic)


def queue_for(largest_frame: int) -> int:
    """How many frames may wait for a neighbor, or of it: what the protocol needs, and more if they are small."""
    return max(SHORTEST_QUEUE, min(QUEUE, QUEUE_BYTES // largest_frame))


@dataclass(frozen=True)
class FrameLimits:
    """What bounds the frames of one peer.

    Attributes:
        largest: Bytes of a frame on its way.
        queue: How many may wait for a neighbor, or of it.
        most_at_once: How many are handed over in one callback.
    """

    largest: int
    queue: int
    most_at_once: int

    @classmethod
    def of(cls, largest_frame: int, neighbors: int, *, is_sealed: bool) -> "FrameLimits":
        """For frames of at most this size before encryption, and so many neighbors."""
        at_once = min(SPARE_AT_ONCE + 4 * neighbors, AT_ONCE_BYTES // largest_frame)
        return cls(largest_frame + SEALED * is_sealed, queue_for(largest_frame), max(1, at_once))


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
        neighbors: Where each neighbor listens, and where this peer is said to.
        largest_frame: ZeroMQ closes a connection that sends a larger message.
        on_frames: Called with what has arrived, one frame or more, and whose key each came with.
        on_link: Called when something happens to the connection to a neighbor.
        credentials: The keys that this peer and its neighbors know each other by; None speaks in the clear.
    """

    def __init__(
        self,
        bind: str,
        neighbors: Mapping[AgentId, str],
        *,
        largest_frame: int,
        on_frames: Callable[[list[bytes], list[AgentId | None]], None],
        on_link: Callable[[AgentId, LinkEvent], None] = lambda neighbor, event: None,  # noqa: ARG005
        credentials: Credentials | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context()
        self._on_frames, self._on_link, self._credentials = on_frames, on_link, credentials
        self._limits = FrameLimits.of(largest_frame, len(neighbors), is_sealed=credentials is not None)
        self._authenticator: Authenticator | None = None
        self._inbox: Inbox | None = None
        self._mending: asyncio.TimerHandle | None = None
        self._pull: zmq.Socket[bytes] = self._context.socket(zmq.PULL)
        self._connections = Connections(
            self._pull,
            neighbors,
            has_keys=credentials is not None,
            most_unread=(self._limits.queue + 2) * (self._limits.largest + SEALED) + READ_AHEAD,
        )
        self._outboxes: dict[AgentId, _Outbox] = {}
        try:
            self._listen(bind)
            for j, address in neighbors.items():
                self._connect(j, address)
        except BaseException:
            self.close(linger=0)
            raise
        self._mending = self._loop.call_later(MEND, self._mend)

    def _listen(self, bind: str) -> None:
        self._limit(self._pull, bind)
        _beat(self._pull)
        # A full queue may abort the process; `inbox.py` has the limits instead.
        self._pull.setsockopt(zmq.RCVHWM, 0)
        if self._credentials is not None:
            self._authenticator = Authenticator(self._context, self._pull, self._credentials, self._connections)
        _check_path(bind)
        _bind(self._pull, bind)
        self._inbox = Inbox(
            self._pull,
            self._connections,
            self._authenticator,
            most_at_once=self._limits.most_at_once,
            queue=self._limits.queue,
            on_waiting=self._drain_if_open,
        )
        self._loop.add_reader(self._pull.fileno(), self.drain)
        # The descriptor becomes readable again only after a read that found nothing.
        self._loop.call_soon(self._drain_if_open)

    def _connect(self, j: AgentId, address: str) -> None:
        outbox: zmq.Socket[bytes] = self._context.socket(zmq.PUSH)
        outbox.setsockopt(zmq.SNDHWM, self._limits.queue)
        # What the other end says is never read; it sends no heartbeats of its own, so a full queue does no harm.
        outbox.setsockopt(zmq.RCVHWM, 1)
        self._limit(outbox, address)
        _keep_alive(outbox)
        if self._credentials is not None:
            outbox.curve_serverkey = self._credentials.public_key(j).encode()
            outbox.curve_publickey = self._credentials.pair.public.encode()
            outbox.curve_secretkey = self._credentials.pair.secret.encode()
        outbox.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        outbox.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
        # After this time, the next try looks up the name anew.
        outbox.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_MS)
        monitor = outbox.get_monitor_socket(_WATCHED)
        self._outboxes[j] = _Outbox(address, outbox, monitor)
        self._loop.add_reader(monitor.fileno(), self._watch, j)
        # This descriptor, too, becomes readable again only after a read that found nothing.
        self._watch(j)
        outbox.connect(address)

    def _limit(self, link: "zmq.Socket[bytes]", address: str) -> None:
        """What holds for every socket, before anything is read."""
        link.setsockopt(zmq.MAXMSGSIZE, self._limits.largest)
        link.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        link.setsockopt(zmq.IPV6, "[" in address)

    @property
    def strangers(self) -> int:
        """How many connections did not get in."""
        return self._connections.refusals.count

    def send(self, neighbors: Iterable[AgentId], frame: bytes) -> list[AgentId]:
        """Queue a frame for some neighbors; returns those whose queue is full, for whom it is dropped."""
        outboxes, full = self._outboxes, []
        for j in neighbors:
            try:
                _send(outboxes[j].socket, frame, _NOBLOCK)
            except zmq.Again:
                full.append(j)
        return full

    def is_up(self, j: AgentId) -> bool:
        """Whether a neighbor is connected."""
        return self._outboxes[j].is_up

    def disconnect(self, j: AgentId) -> None:
        """Close the socket to one of them."""
        self._close(self._outboxes.pop(j), linger=0)

    def pause(self, j: AgentId, seconds: float) -> None:
        """Close the connections of a neighbor, and let it in again later; only keys tell which they are."""
        if self._authenticator is not None:
            self._connections.pause(j, seconds)

    def _close(self, outbox: _Outbox, *, linger: float) -> None:
        outbox.socket.disable_monitor()
        self._loop.remove_reader(outbox.monitor.fileno())
        outbox.monitor.close(linger=0)
        outbox.socket.close(linger=int(linger * 1000))

    def drain(self) -> None:
        """Hand over what has arrived."""
        if self._inbox is None:
            return
        frames: list[bytes] = []
        speakers: list[AgentId | None] = []
        if not self._inbox.take(frames, speakers):
            self._loop.call_soon(self._drain_if_open)
        if frames:
            self._on_frames(frames, speakers or [None] * len(frames))

    def _drain_if_open(self) -> None:
        if not self._pull.closed:
            self.drain()

    def _watch(self, j: AgentId) -> None:
        """Pass on what became of the connection to a neighbor."""
        outbox = self._outboxes[j]
        while outbox.monitor.poll(0):
            news = recv_monitor_message(outbox.monitor, zmq.NOBLOCK)
            number, outbox.heard = news["event"], time.monotonic()
            if number == zmq.EVENT_CONNECTED:
                outbox.descriptor, outbox.received = news["value"], (0, outbox.heard)
                continue
            event = _EVENTS.get(number, LinkEvent.REFUSED if number & _REFUSED else LinkEvent.DOWN)
            if event in (LinkEvent.UP, LinkEvent.DOWN):
                outbox.is_up = event is LinkEvent.UP
            if event is LinkEvent.DOWN:
                outbox.descriptor = None
            self._on_link(j, event)

    def _mend(self) -> None:
        """Make those links anew that ZeroMQ has given up, or does not know to be broken.

        It gives up a link if the other end does not keep to ZMTP. It does not see the end of a connection whose
        other end has sent messages, though it should only receive, nor that it sends parts of one without end, nor
        that it has frozen before its first heartbeat.
        """
        now = time.monotonic()
        self._mending = self._loop.call_later(MEND, self._mend)
        for j, outbox in list(self._outboxes.items()):
            self._watch(j)
            is_broken = outbox.is_up and (_has_hung_up(outbox) or not _sends_heartbeats(outbox, now))
            if is_broken:
                self._on_link(j, LinkEvent.DOWN)
            if is_broken or (not outbox.is_up and now - outbox.heard > STUCK):
                self._close(outbox, linger=0)
                self._connect(j, outbox.address)

    def close(self, *, linger: float) -> None:
        """Close all sockets; frames still queued for a neighbor get `linger` seconds to leave."""
        if self._mending is not None:
            self._mending.cancel()
        for outbox in self._outboxes.values():
            self._close(outbox, linger=linger)
        if not self._pull.closed:
            self._loop.remove_reader(self._pull.fileno())
            if self._inbox is not None:
                self._inbox.close()
            self._connections.close()
            self._pull.close(linger=0)
            if self._authenticator is not None:
                self._authenticator.close()
        self._context.term()


def _beat(link: "zmq.Socket[bytes]") -> None:
    """Notice a cable that is cut, or a frozen process, at both ends of the connections to a listening socket.

    It sends heartbeats, and closes a connection without answers. The other end closes one without heartbeats.
    """
    link.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    link.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENCE_MS)
    link.setsockopt(zmq.HEARTBEAT_TTL, SILENCE_MS)


def _keep_alive(link: "zmq.Socket[bytes]") -> None:
    """Notice a cable that is cut before the other end has sent its first heartbeat."""
    link.setsockopt(zmq.TCP_KEEPALIVE, 1)
    link.setsockopt(zmq.TCP_KEEPALIVE_IDLE, KEEPALIVE_S)
    link.setsockopt(zmq.TCP_KEEPALIVE_INTVL, KEEPALIVE_S)
    link.setsockopt(zmq.TCP_KEEPALIVE_CNT, KEEPALIVES)
    link.setsockopt(zmq.TCP_MAXRT, SILENCE_MS)


def _has_hung_up(outbox: _Outbox) -> bool:
    """Whether the other end has closed the connection, or the connection is gone."""
    if outbox.descriptor is None:
        return False
    ends = select.poll()
    ends.register(outbox.descriptor, _HUNG_UP)
    return bool(ends.poll(0))


def _sends_heartbeats(outbox: _Outbox, now: float) -> bool:
    """Whether heartbeats have come lately, and nothing else; true where the system does not count what comes."""
    count, since = outbox.received
    with (
        contextlib.suppress(OSError),
        connection_of(-1 if outbox.descriptor is None else outbox.descriptor) as link,
    ):
        latest = received(link)
        if latest != count:
            outbox.received = latest, now
        is_silent = latest == count > 0 and now - since > SILENCE_MS / 1000
        return not is_silent and latest <= READ_AHEAD + HEARTBEATS * (now - outbox.heard)
    return True


def check_can_listen(address: str) -> None:
    """See that a socket could listen at an address now.

    Raises:
        ConfigError: It could not.
    """
    _check_path(address)
    # Listening at a path would leave it behind.
    if not address.startswith("ipc://"):
        with zmq.Context() as context, context.socket(zmq.PULL) as probe:
            probe.setsockopt(zmq.IPV6, "[" in address)
            _bind(probe, address)


def _check_path(address: str) -> None:
    if is_taken(address):
        raise ConfigError(f"cannot listen on {address}: {IN_USE}")
    check_socket(address)


def _bind(pull: "zmq.Socket[bytes]", address: str) -> None:
    try:
        pull.bind(address)
    except zmq.ZMQError as error:
        raise ConfigError(f"cannot listen on {address}: {_explain(address, error)}") from error


def is_taken(address: str) -> bool:
    """Whether a process listens on an ipc address: ZeroMQ would take over its path."""
    if not address.startswith("ipc://"):
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(address.removeprefix("ipc://"))
        except OSError:
            # There is no such path, or a killed process has left it behind.
            return False
    return True


def _explain(address: str, error: zmq.ZMQError) -> str:
    name = unresolved_host(address)
    if name is not None:
        return f"the name {name} does not resolve"
    if error.errno == errno.EADDRINUSE:
        return IN_USE
    if error.errno in (errno.EADDRNOTAVAIL, errno.ENODEV):
        return "this host has no such address; listen elsewhere with --bind, for instance tcp://0.0.0.0:PORT"
    return str(error.strerror or error)
