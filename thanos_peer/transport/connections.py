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
import struct
import threading
import time
from collections.abc import Collection

import zmq

from thanos_peer.block import AgentId
from thanos_peer.transport.byte_counts import ByteCounts
from thanos_peer.transport.descriptors import address_of, cut, descriptor_of
from thanos_peer.transport.open_connections import OpenConnections, oldest_of_most
from thanos_peer.transport.refusals import Refusals

MOST_STRANGERS = 256
MOST_LINKS = 4
MOST_AT_ONCE = 64
MOST_NEWS = 10_000  # more than ZeroMQ's queue holds
# Seconds between two looks at how many bytes have come.
LOOK = 0.1
# Bytes that strangers may have said together; or, if that is more, as many as SHARES neighbors may.
STRANGERS_BYTES, SHARES = 2**26, 8
# Seconds until all connections are closed, at the most: a busy host may not run ZeroMQ's thread for a while.
CLOSING = 5.0
_NOBLOCK = int(zmq.NOBLOCK)
_WATCHED = int(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)


class Connections:
    """Watches over an inbox that is not bound yet; use it inside a running event loop.

    Args:
        inbox: Whose connections they are.
        known: Who may speak: the neighbors, and the peer itself.
        has_keys: Whether it is known who speaks.
        most_unread: Bytes that may have come by a connection and not been taken, besides what the kernel holds.

    Attributes:
        lock: Guards all this, and the inbox: a thread may act for the event loop.
        refusals: The connections that did not get in.
    """

    def __init__(
        self, inbox: "zmq.Socket[bytes]", known: Collection[AgentId], *, has_keys: bool, most_unread: int
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.lock = threading.RLock()
        self._inbox, self._counts, self.refusals = inbox, ByteCounts(most_unread), Refusals()
        self._open = OpenConnections(MOST_LINKS if has_keys else MOST_LINKS * len(known))
        # Connections that are to be looked at next.
        self._unchecked: list[int] = []
        self._is_in_parts = False
        # The senders that may not speak, and until when.
        self._paused: dict[AgentId | None, float] = {}
        self._news = inbox.get_monitor_socket(_WATCHED)
        self._loop.add_reader(self._news.fileno(), self._watch)
        # The descriptor becomes readable again only after a read that found nothing.
        self._loop.call_soon(self._watch)
        self._looking = self._loop.call_later(LOOK, self._look_again)

    @property
    def is_quiet(self) -> bool:
        """Whether there is no connection whose frames have to be noted."""
        return not (self._open.strangers or self._counts.suspects or self._is_in_parts)

    def has(self, descriptor: int) -> bool:
        """Whether a connection is open, as far as is known."""
        return descriptor in self._open

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
        for descriptor in self._open.of(speaker):
            self._close_quietly(descriptor)

    def may_be_heard(self, frame: zmq.Frame, speaker: AgentId | None) -> bool:
        """Note by which connection a frame has come; whether it is a whole message of a known sender."""
        was_in_parts, self._is_in_parts = self._is_in_parts, frame.more
        if frame.more or was_in_parts:
            if not was_in_parts and (descriptor := descriptor_of(frame)) is not None:
                self.disconnect(descriptor, "it sent a message of several parts")
            return False
        must_note = self._open.strangers or self._counts.suspects
        if must_note and (descriptor := descriptor_of(frame)) is not None:
            self._counts.suspects.discard(descriptor)
            if (one_too_many := self._open.hear(descriptor, speaker)) is not None:
                self._close_quietly(one_too_many)
        if self._paused and self.is_paused(speaker):
            self._disconnect_all_of(speaker)
            return False
        return True

    def _watch(self) -> None:
        """Follow connections that open and close."""
        if not self._news.closed and self._take_news():
            self._loop.call_soon(self._watch)

    def _take_news(self) -> bool:
        """Note connections that have opened or closed; whether there may be more events."""
        with self.lock, contextlib.suppress(zmq.Again):
            for _ in range(MOST_AT_ONCE):
                event, value = _unpack(self._news.recv_multipart(_NOBLOCK))
                if event == zmq.EVENT_ACCEPTED:
                    self._accept(value)
                elif event == zmq.EVENT_DISCONNECTED:
                    why = self.refusals.take_latest()
                    if value in self._open.strangers:
                        self.refusals.note(*why)
                    self._forget(value)
            return True
        return False

    def _accept(self, descriptor: int) -> None:
        self._forget(descriptor)
        strangers = self._open.strangers
        strangers[descriptor] = address_of(descriptor)
        if len(strangers) > MOST_STRANGERS:
            address = strangers[oldest := oldest_of_most(strangers)]
            self._close_quietly(oldest)
            self.refusals.note(
                f"more than {MOST_STRANGERS} say nothing", f"most of them from {address or 'somewhere'}"
            )

    def _forget(self, descriptor: int) -> None:
        self._open.forget(descriptor)
        self._counts.forget(descriptor)

    def _cut(self, descriptor: int) -> None:
        cut(descriptor, self._inbox.getsockopt_string(zmq.LAST_ENDPOINT))

    def _close_quietly(self, descriptor: int) -> None:
        self._forget(descriptor)
        self._cut(descriptor)

    def _look_again(self) -> None:
        self._looking = self._loop.call_later(LOOK, self._look_again)
        with self.lock:
            self.look()

    def look(self) -> None:
        """Close connections that send more and more, and no whole message; the caller holds the lock."""
        self._take_news()
        if not self._unchecked:
            self._unchecked = [each for each in self._open if self._counts.is_counted(each)]
        batch, self._unchecked = self._unchecked[:MOST_AT_ONCE], self._unchecked[MOST_AT_ONCE:]
        now = time.monotonic()
        for descriptor in batch:
            if self._counts.sends_too_much(descriptor, now):
                self.disconnect(descriptor, "it goes on and on without a whole message")
        if self._open.strangers:
            self._disconnect_largest()

    def _disconnect_largest(self) -> None:
        """Close strangers' connections until what they have sent together is little enough."""
        counts = sorted((self._counts.latest(descriptor), descriptor) for descriptor in self._open.strangers)
        total = sum(count for count, _ in counts)
        most = max(STRANGERS_BYTES, SHARES * self._counts.most_unread)
        while total > most and counts:
            count, largest = counts.pop()
            total -= count
            self.disconnect(largest, "strangers say very much and no whole message")

    def disconnect(self, descriptor: int, why: str) -> None:
        """Close a connection, and say why; the caller holds the lock."""
        address = self._open.address(descriptor)
        self._close_quietly(descriptor)
        self.refusals.note(why, f"from {address or 'somewhere'}")

    def close(self) -> None:
        """Stop watching, before the inbox is closed.

        ZeroMQ's thread would wait without end to hand over events that are not taken, so the queue is emptied
        before it is told to stop. All connections are closed before the inbox is: a heartbeat must not meet one
        that breaks while its queue is taken down, see docs/decisions/transport.md.
        """
        self._looking.cancel()
        self._close_all()
        self._counts.close()
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
        left = set(self._open)
        for descriptor in left:
            self._cut(descriptor)
        end = time.monotonic() + CLOSING
        while left and self._news.poll(max(0, int(1000 * (end - time.monotonic())))):
            event, value = _unpack(self._news.recv_multipart(_NOBLOCK))
            if event == zmq.EVENT_DISCONNECTED:
                left.discard(value)
            elif event == zmq.EVENT_ACCEPTED:
                self._cut(value)


def _unpack(news: list[bytes]) -> tuple[int, int]:
    """What has happened, and to which descriptor."""
    event, value = struct.unpack("=HI", news[0])
    return event, value
