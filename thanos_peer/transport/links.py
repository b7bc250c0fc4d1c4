"""The sockets of a peer: one it listens on, and one for each neighbor to send to.

Every message to this peer arrives at its one address (PULL); to every neighbor there is a socket of its own
(PUSH). So a host needs one open port, and either end of an edge may start first: ZeroMQ keeps trying. Nothing
here waits: what has arrived is drained in one reader callback, what cannot be queued is dropped, and the
protocol asks for it again. With keys, every link is encrypted, and each frame comes with whose key it was sent by.
Queues and what is taken at once are bounded in bytes too, so that large blocks do not fill the memory.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import zmq

from thanos_peer.block import AgentId
from thanos_peer.protocol.neighbor import LinkEvent
from thanos_peer.transport.addresses import listen
from thanos_peer.transport.authenticator import Authenticator
from thanos_peer.transport.connections import Connections
from thanos_peer.transport.inbox import Inbox
from thanos_peer.transport.keys import Credentials
from thanos_peer.transport.outbox import READ_AHEAD, SILENCE_MS, Outbox

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
# Milliseconds between heartbeats. ZeroMQ's own thread sends them, even if a peer is deep in its numbers.
HEARTBEAT_MS = 500
# Milliseconds for ZeroMQ's handshake, with or without keys; a connection that takes longer is cut off.
HANDSHAKE_MS = 5000
# Seconds between two looks at the links.
MEND = 0.5
# A plain number, as the enum's own would be looked up and checked for each frame.
_NOBLOCK = int(zmq.NOBLOCK)
# The method without what pyzmq wraps around it for sockets of other kinds.
_send = zmq.backend.Socket.send


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


class Links:
    """The open sockets of one peer; use it inside a running event loop.

    Args:
        bind: Where to listen.
        neighbors: Where each neighbor listens, and where the file says that this peer does.
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
        self._outboxes: dict[AgentId, Outbox] = {}
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
        listen(self._pull, bind)
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
        link: zmq.Socket[bytes] = self._context.socket(zmq.PUSH)
        self._limit(link, address)
        outbox = Outbox(link, address, queue=self._limits.queue)
        if self._credentials is not None:
            outbox.encrypt(self._credentials, j)
        self._outboxes[j] = outbox
        self._loop.add_reader(outbox.monitor.fileno(), self._watch, j)
        # This descriptor, too, becomes readable again only after a read that found nothing.
        self._watch(j)
        link.connect(address)

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

    def _close(self, outbox: Outbox, *, linger: float) -> None:
        self._loop.remove_reader(outbox.monitor.fileno())
        outbox.close(linger=linger)

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
        for event in self._outboxes[j].events():
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
            is_broken = outbox.is_broken(now)
            if is_broken:
                self._on_link(j, LinkEvent.DOWN)
            if is_broken or outbox.is_stuck(now):
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
