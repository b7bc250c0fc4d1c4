"""The socket to one neighbor: what it is set to, what becomes of its connection, and whether that is broken.

It only sends. What the other end says comes by the socket that listens.
"""

import contextlib
import select
import time
from collections.abc import Iterator

import zmq
from zmq.utils.monitor import recv_monitor_message

from thanos_peer.block import AgentId
from thanos_peer.protocol.neighbor import LinkEvent
from thanos_peer.transport.byte_counts import HEARTBEATS
from thanos_peer.transport.descriptors import connection_of, received
from thanos_peer.transport.keys import Credentials

# Bytes that ZeroMQ may hold besides its queue: more than a handshake takes.
READ_AHEAD = 65536
# Milliseconds without a heartbeat until a link is given up.
SILENCE_MS = 4000
# Seconds without any news of a link that is down after which it is made anew.
STUCK = 10.0
# Milliseconds until the next try to connect: ZeroMQ doubles the first up to the second, and adds jitter.
RECONNECT_MS, RECONNECT_MAX_MS = 100, 2000
# Milliseconds for one try to connect; Linux would go on with it for two minutes, ever more seldom.
CONNECT_MS = 4000
# Seconds between the kernel's own probes, and how many of them: they are there before the first heartbeat.
KEEPALIVE_S, KEEPALIVES = 1, 3
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
_EVENTS: dict[int, LinkEvent] = {
    zmq.EVENT_HANDSHAKE_SUCCEEDED: LinkEvent.UP,
    zmq.EVENT_CONNECT_RETRIED: LinkEvent.RETRIED,
}
# Systems other than Linux report only the end of both directions.
_HUNG_UP = getattr(select, "POLLRDHUP", 0)


class Outbox:
    """The socket to a neighbor.

    Args:
        link: A PUSH socket that does not connect yet.
        address: Where the neighbor listens.
        queue: How many frames may wait for it.

    Attributes:
        monitor: The socket by which ZeroMQ tells what becomes of the connection.
        is_up: Whether it is connected.
    """

    def __init__(self, link: "zmq.Socket[bytes]", address: str, *, queue: int) -> None:
        self.socket, self.address, self.is_up = link, address, False
        link.setsockopt(zmq.SNDHWM, queue)
        # What the other end says is never read; it sends no heartbeats of its own, so a full queue does no harm.
        link.setsockopt(zmq.RCVHWM, 1)
        _keep_alive(link)
        link.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        link.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
        # After this time, the next try looks up the name anew.
        link.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_MS)
        self.monitor = link.get_monitor_socket(_WATCHED)
        # The descriptor of the connection; None while there is none.
        self._descriptor: int | None = None
        # How many bytes have come by it, and when that was last seen to change.
        self._received = 0, 0.0
        # When there was news of the connection.
        self._heard = time.monotonic()

    def encrypt(self, credentials: Credentials, neighbor: AgentId) -> None:
        """Have the connection encrypted, and only this neighbor at its other end."""
        self.socket.curve_serverkey = credentials.public_key(neighbor).encode()
        self.socket.curve_publickey = credentials.pair.public.encode()
        self.socket.curve_secretkey = credentials.pair.secret.encode()

    def events(self) -> Iterator[LinkEvent]:
        """What has become of the connection since the last call."""
        while self.monitor.poll(0):
            news = recv_monitor_message(self.monitor, zmq.NOBLOCK)
            number, self._heard = news["event"], time.monotonic()
            if number == zmq.EVENT_CONNECTED:
                self._descriptor, self._received = news["value"], (0, self._heard)
                continue
            event = _EVENTS.get(number, LinkEvent.REFUSED if number & _REFUSED else LinkEvent.DOWN)
            if event in (LinkEvent.UP, LinkEvent.DOWN):
                self.is_up = event is LinkEvent.UP
            if event is LinkEvent.DOWN:
                self._descriptor = None
            yield event

    def is_broken(self, now: float) -> bool:
        """Whether it counts as connected, but nothing sound is at the other end."""
        return self.is_up and (self._has_hung_up() or not self._sends_heartbeats(now))

    def is_stuck(self, now: float) -> bool:
        """Whether it is down, and ZeroMQ does not try any more."""
        return not self.is_up and now - self._heard > STUCK

    def _has_hung_up(self) -> bool:
        """Whether the other end has closed the connection, or the connection is gone."""
        if self._descriptor is None:
            return False
        ends = select.poll()
        ends.register(self._descriptor, _HUNG_UP)
        return bool(ends.poll(0))

    def _sends_heartbeats(self, now: float) -> bool:
        """Whether heartbeats have come lately, and nothing else; true where the system does not count bytes."""
        count, since = self._received
        with (
            contextlib.suppress(OSError),
            connection_of(-1 if self._descriptor is None else self._descriptor) as link,
        ):
            latest = received(link)
            if latest != count:
                self._received = latest, now
            is_silent = latest == count > 0 and now - since > SILENCE_MS / 1000
            return not is_silent and latest <= READ_AHEAD + HEARTBEATS * (now - self._heard)
        return True

    def close(self, *, linger: float) -> None:
        """Close it; frames still queued get `linger` seconds to leave."""
        self.socket.disable_monitor()
        self.monitor.close(linger=0)
        self.socket.close(linger=int(linger * 1000))


def _keep_alive(link: "zmq.Socket[bytes]") -> None:
    """Notice a cable that is cut before the other end has sent its first heartbeat."""
    link.setsockopt(zmq.TCP_KEEPALIVE, 1)
    link.setsockopt(zmq.TCP_KEEPALIVE_IDLE, KEEPALIVE_S)
    link.setsockopt(zmq.TCP_KEEPALIVE_INTVL, KEEPALIVE_S)
    link.setsockopt(zmq.TCP_KEEPALIVE_CNT, KEEPALIVES)
    link.setsockopt(zmq.TCP_MAXRT, SILENCE_MS)
