"""Limits on connections to a peer: how many, and how many bytes each may send without a whole message.

ZeroMQ limits neither. Its monitor tells the descriptor of each connection that it accepts, and a frame tells the
one that it came by. Rules, with keys and without:

1. A connection without a message so far is a stranger, even with a neighbor's key: ZeroMQ asks about keys without
   telling the descriptor. There are MOST_STRANGERS at most. One more, and the oldest of the address that has the
   most is closed: a flood closes its own connections first.
2. Each neighbor has at most MOST_LINKS connections that have sent a message. One more, and one of its own is
   closed. Without keys the owner is unknown, so the limit is MOST_LINKS for each neighbor, all together.
3. A message is one frame. ZeroMQ would keep the parts of a larger one until the last has come, and its limits
   count whole messages only. So a connection is closed that has sent more bytes than its queue and the kernel's
   buffer hold, and no whole message among them; or that ends a message of several parts. Without keys the latter
   holds only while there are strangers or suspects: other parts are taken for messages, and do no more harm.
4. A neighbor may be paused: its connections are closed, and a new one is refused by its key, or closed as soon
   as it says something. What it has sent before is not heard any more.
5. Nothing here waits, and no callback does more than MOST_AT_ONCE things, so that a flood cannot stop the rounds.
   What it has not looked at yet fills ZeroMQ's queue of news, and then ZeroMQ stops accepting.
"""

import asyncio
import contextlib
import logging
import os
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator

import zmq

from thanos_peer.block import AgentId

log = logging.getLogger("thanos_peer")

MOST_STRANGERS = 256
MOST_LINKS = 4
MOST_AT_ONCE = 64
MOST_NEWS = 10_000  # more than ZeroMQ's queue holds
# Seconds between two log lines about strangers that are wrong in the same way.
NOTICES = 10.0
# Seconds between two looks at how many bytes have come.
LOOK = 0.1
# Bytes that strangers may have said together; or, if that is more, as many as SHARES neighbors may.
STRANGERS_BYTES, SHARES = 2**26, 8
# Bytes a second that ZeroMQ itself says by a connection, at most.
HEARTBEATS = 256
# Seconds until all connections are closed, at the most: a busy host may not run ZeroMQ's thread for a while.
CLOSING = 5.0
NO_HANDSHAKE = "it ended before a handshake"
BYTES_RECEIVED = struct.Struct("=128xQ")  # in Linux's struct tcp_info
_NOBLOCK = int(zmq.NOBLOCK)
# Linux alone has this option.
_TCP_INFO = getattr(socket, "TCP_INFO", -1)
_WATCHED = int(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)

# Connections: descriptors and addresses, in order of arrival.
Group = dict[int, str]


class Connections:
    """Watches over an inbox that is not bound yet; use it inside a running event loop.

    Args:
        inbox: Whose connections they are.
        known: Who may speak: the neighbors, and the peer itself.
        has_keys: Whether it is known who speaks.
        most_unread: Bytes that may have come by a connection and not been taken, besides what the kernel holds.
    """

    def __init__(
        self, inbox: "zmq.Socket[bytes]", known: Collection[AgentId], *, has_keys: bool, most_unread: int
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.lock = threading.RLock()
        self._inbox, self._most_unread = inbox, most_unread
        self._strangers: Group = {}
        self._links: dict[AgentId | None, Group] = {}  # by neighbor; None without keys
        self._most_links = MOST_LINKS if has_keys else MOST_LINKS * len(known)
        # Connections that are to be looked at next.
        self._unchecked: list[int] = []
        # Sockets on ZeroMQ's own descriptors: looked at, and never closed.
        self._handles: dict[int, socket.socket] = {}
        # How many bytes have come by each connection.
        self._counts: dict[int, int] = {}
        # How many bytes had come, and when, at the last time that all was well.
        self._marks: dict[int, tuple[int, float]] = {}
        self._suspects: set[int] = set()
        # Local connections: the kernel does not count their bytes.
        self._uncounted: set[int] = set()
        self._is_in_parts = False
        # The senders that may not speak, and until when.
        self._paused: dict[AgentId | None, float] = {}
        self.refused = 0
        # What was wrong with the stranger that leaves next, and where it came from.
        self.latest = NO_HANDSHAKE, ""
        # When each kind of wrong was last logged.
        self._noticed: dict[str, float] = {}
        self._news = inbox.get_monitor_socket(_WATCHED)
        self._loop.add_reader(self._news.fileno(), self._watch)
        # The descriptor becomes readable again only after a read that found nothing.
        self._loop.call_soon(self._watch)
        self._looking = self._loop.call_later(LOOK, self._look_again)

    @property
    def is_quiet(self) -> bool:
        """Whether there is no connection whose frames have to be noted."""
        return not (self._strangers or self._suspects or self._is_in_parts)

    def has(self, descriptor: int) -> bool:
        """Whether a connection is open, as far as is known."""
        return any(descriptor in group for group in self._groups())

    def pause(self, speaker: AgentId, seconds: float) -> None:
        """Close the connections of a neighbor, and let it in again later."""
        with self.lock:
            self._paused[speaker] = time.monotonic() + seconds
            self._disconnect_all_of(speaker)

    def is_paused(self, speaker: AgentId | None) -> bool:
        """Whether a neighbor may not speak now."""
        if speaker in self._paused and time.monotonic() >= self._paused[speaker]:
            del self._paused[speaker]
        return speaker in self._paused

    def _disconnect_all_of(self, speaker: AgentId | None) -> None:
        for descriptor in [*self._links.get(speaker, ())]:
            self._forget(descriptor)
            self._cut(descriptor)

    def may_be_heard(self, frame: zmq.Frame, speaker: AgentId | None) -> bool:
        """Note by which connection a frame has come; whether it is a message, not a part, of one who may speak."""
        was_in_parts, self._is_in_parts = self._is_in_parts, frame.more
        if frame.more or was_in_parts:
            if not was_in_parts and (descriptor := descriptor_of(frame)) is not None:
                self.disconnect(descriptor, "it sent a message of several parts")
            return False
        if (self._strangers or self._suspects) and (descriptor := descriptor_of(frame)) is not None:
            self._suspects.discard(descriptor)
            if descriptor in self._strangers:
                links = self._links.setdefault(speaker, {})
                links[descriptor] = self._strangers.pop(descriptor)
                if len(links) > self._most_links:
                    self._close_one_of(links)
        if self._paused and self.is_paused(speaker):
            self._disconnect_all_of(speaker)
            return False
        return True

    def _watch(self) -> None:
        """Follow who comes and goes."""
        if not self._news.closed and self._take_news():
            self._loop.call_soon(self._watch)

    def _take_news(self) -> bool:
        """Note who has come and gone; whether there may be more news."""
        with self.lock, contextlib.suppress(zmq.Again):
            for _ in range(MOST_AT_ONCE):
                event, value = _unpack(self._news.recv_multipart(_NOBLOCK))
                if event == zmq.EVENT_ACCEPTED:
                    self._accept(value)
                elif event == zmq.EVENT_DISCONNECTED:
                    why, self.latest = self.latest, (NO_HANDSHAKE, "")
                    if value in self._strangers:
                        self._refuse(*why)
                    self._forget(value)
            return True
        return False

    def _accept(self, descriptor: int) -> None:
        self._forget(descriptor)
        self._strangers[descriptor] = _address_of(descriptor)
        if len(self._strangers) > MOST_STRANGERS:
            address = self._close_one_of(self._strangers)
            self._refuse(f"more than {MOST_STRANGERS} say nothing", f"most of them from {address or 'somewhere'}")

    def _forget(self, descriptor: int) -> None:
        for group in self._groups():
            group.pop(descriptor, None)
        if (handle := self._handles.pop(descriptor, None)) is not None:
            handle.detach()
        self._counts.pop(descriptor, None)
        self._marks.pop(descriptor, None)
        self._suspects.discard(descriptor)
        self._uncounted.discard(descriptor)

    def _groups(self) -> Iterator[Group]:
        yield self._strangers
        yield from self._links.values()

    def _look_again(self) -> None:
        self._looking = self._loop.call_later(LOOK, self._look_again)
        with self.lock:
            self.look()

    def look(self) -> None:
        """Close connections that send more and more, and no whole message; the caller holds the lock."""
        self._take_news()
        if not self._unchecked:
            self._unchecked = [each for group in self._groups() for each in group if each not in self._uncounted]
        batch, self._unchecked = self._unchecked[:MOST_AT_ONCE], self._unchecked[MOST_AT_ONCE:]
        now = time.monotonic()
        for descriptor in batch:
            if self._sends_too_much(descriptor, now):
                self.disconnect(descriptor, "it goes on and on without a whole message")
        if self._strangers:
            self._disconnect_largest()

    def _disconnect_largest(self) -> None:
        """Close strangers' connections until what they have sent together is little enough."""
        counts = sorted((self._counts.get(descriptor, 0), descriptor) for descriptor in self._strangers)
        total, most = sum(count for count, _ in counts), max(STRANGERS_BYTES, SHARES * self._most_unread)
        while total > most and counts:
            count, largest = counts.pop()
            total -= count
            self.disconnect(largest, "strangers say very much and no whole message")

    def disconnect(self, descriptor: int, why: str) -> None:
        """Close a connection, and say why; the caller holds the lock."""
        address = next((group[descriptor] for group in self._groups() if descriptor in group), "")
        self._cut(descriptor)
        self._forget(descriptor)
        self._refuse(why, f"from {address or 'somewhere'}")

    def _sends_too_much(self, descriptor: int, now: float) -> bool:
        """Whether it has been more than may wait in queues, twice: after the first time its frames are watched."""
        try:
            connection = self._handles.get(descriptor) or self._handles.setdefault(
                descriptor, socket.socket(fileno=descriptor)
            )
            count = self._counts[descriptor] = received(connection)
        except OSError:  # it is gone, or local
            self._uncounted.add(descriptor)
            return False
        before, since = self._marks.setdefault(descriptor, (0, now))
        more = count - before - HEARTBEATS * (now - since)
        if more <= self._most_unread:
            return False
        try:
            in_kernel = connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        except OSError:  # it has gone just now
            return False
        if more <= self._most_unread + in_kernel:
            return False
        if descriptor in self._suspects:
            return True
        self._suspects.add(descriptor)
        self._marks[descriptor] = count, now
        return False

    def _close_one_of(self, group: Group) -> str:
        """Close the oldest connection of the address that has the most; returns that address."""
        largest, _ = Counter(group.values()).most_common(1)[0]
        oldest = next(each for each, address in group.items() if address == largest)
        self._forget(oldest)
        self._cut(oldest)
        return largest

    def _cut(self, descriptor: int) -> None:
        """Close a connection under ZeroMQ's hands, unless the number means something else by now."""
        endpoint = self._inbox.getsockopt_string(zmq.LAST_ENDPOINT)
        with contextlib.suppress(OSError), connection_of(descriptor) as connection:
            here = connection.getsockname()
            end = f":{here[1]}" if isinstance(here, tuple) else os.fsdecode(here).lstrip("\0")
            if end and endpoint.endswith(end):
                connection.shutdown(socket.SHUT_RDWR)

    def _refuse(self, why: str, whence: str) -> None:
        """Count a connection that was refused or closed, and log it now and then; of `why` there are a few."""
        self.refused += 1
        now = time.monotonic()
        if now - self._noticed.get(why, -NOTICES) >= NOTICES:
            self._noticed[why] = now
            what = f"{why}, {whence}" if whence else why
            log.warning("%d connection(s) so far did not get in; the latest: %s", self.refused, what)

    def close(self) -> None:
        """Stop watching, before the inbox is closed.

        ZeroMQ's thread would wait for ever to tell news that are not taken, so the queue is emptied before it is
        told to stop. All connections are closed before the inbox is: a heartbeat must not meet one that breaks
        while its queue is taken down, see docs/decisions/transport.md.
        """
        self._looking.cancel()
        self._close_all()
        for handle in self._handles.values():
            handle.detach()
        self._handles.clear()
        self._loop.remove_reader(self._news.fileno())
        with contextlib.suppress(zmq.Again):
            for _ in range(MOST_NEWS):
                self._news.recv_multipart(_NOBLOCK)
        self._inbox.disable_monitor()
        self._news.close(linger=0)

    def _close_all(self) -> None:
        """Close all connections, and wait until ZeroMQ has noticed.

        The socket stays bound meanwhile: ZeroMQ would take down the queues of a listener that is unbound first.
        A neighbor that connects again at once is cut off, too, and not waited for: no heartbeat is due so early.
        """
        while self._take_news():
            pass
        left = {descriptor for group in self._groups() for descriptor in group}
        for descriptor in left:
            self._cut(descriptor)
        end = time.monotonic() + CLOSING
        while left and self._news.poll(max(0, int(1000 * (end - time.monotonic())))):
            event, value = _unpack(self._news.recv_multipart(_NOBLOCK))
            if event == zmq.EVENT_DISCONNECTED:
                left.discard(value)
            elif event == zmq.EVENT_ACCEPTED:
                self._cut(value)


def descriptor_of(frame: zmq.Frame) -> int | None:
    """By which connection a frame has come; None if ZeroMQ does not know, as with its oldest protocols.

    Where it does not, a property of that name that the sender has made up takes its place: anything.
    """
    try:
        descriptor = int(frame["__fd"])
    except (zmq.ZMQError, ValueError):
        return None
    return descriptor if 0 <= descriptor < 2**31 else None


def _unpack(news: list[bytes]) -> tuple[int, int]:
    """What has happened, and to which descriptor."""
    event, value = struct.unpack("=HI", news[0])
    return event, value


def connection_of(descriptor: int) -> socket.socket:
    """A second handle on a connection; OSError if it is gone, or no socket."""
    second = os.dup(descriptor)
    try:
        return socket.socket(fileno=second)
    except OSError:
        os.close(second)
        raise


def received(connection: socket.socket) -> int:
    """How many bytes have come by a connection; OSError where the system does not count them."""
    raw = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, BYTES_RECEIVED.size)
    return int(BYTES_RECEIVED.unpack(raw)[0]) if len(raw) == BYTES_RECEIVED.size else 0


def _address_of(descriptor: int) -> str:
    """The host at the other end; nothing if that is this host, or if it has hung up already."""
    with contextlib.suppress(OSError), connection_of(descriptor) as connection:
        name = connection.getpeername()
        return str(name[0]) if isinstance(name, tuple) else ""
    return ""
