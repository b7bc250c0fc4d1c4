"""How many bytes have come by each connection, as the kernel counts them, and which sends no whole message.

ZeroMQ shows nothing of a message before its last part.
"""

import socket

from thanos_peer.transport.descriptors import received

# Bytes a second that ZeroMQ itself says by a connection, at most.
HEARTBEATS = 256


class ByteCounts:
    """Counts the bytes of connections.

    Args:
        most_unread: Bytes that may have come by a connection and not been taken, besides what the kernel holds.

    Attributes:
        suspects: Connections that have once sent more. Their frames are looked at: one that comes clears them.
    """

    def __init__(self, most_unread: int) -> None:
        self.most_unread = most_unread
        self.suspects: set[int] = set()
        # Sockets on ZeroMQ's own descriptors: looked at, and never closed.
        self._handles: dict[int, socket.socket] = {}
        self._counts: dict[int, int] = {}
        # How many bytes had come, and when, at the last time that all was well.
        self._marks: dict[int, tuple[int, float]] = {}
        # Local connections: the kernel does not count their bytes.
        self._uncounted: set[int] = set()

    def is_counted(self, descriptor: int) -> bool:
        """Whether the kernel counts its bytes, as far as is known."""
        return descriptor not in self._uncounted

    def latest(self, descriptor: int) -> int:
        """How many bytes had come when it was last looked at; 0 if it was not."""
        return self._counts.get(descriptor, 0)

    def sends_too_much(self, descriptor: int, now: float) -> bool:
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
        if more <= self.most_unread:
            return False
        try:
            in_kernel = connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        except OSError:  # it has gone just now
            return False
        if more <= self.most_unread + in_kernel:
            return False
        if descriptor in self.suspects:
            return True
        self.suspects.add(descriptor)
        self._marks[descriptor] = count, now
        return False

    def forget(self, descriptor: int) -> None:
        """A connection is gone; its number may come again."""
        if (handle := self._handles.pop(descriptor, None)) is not None:
            handle.detach()
        self._counts.pop(descriptor, None)
        self._marks.pop(descriptor, None)
        self.suspects.discard(descriptor)
        self._uncounted.discard(descriptor)

    def close(self) -> None:
        """Let go of ZeroMQ's descriptors."""
        for handle in self._handles.values():
            handle.detach()
        self._handles.clear()
