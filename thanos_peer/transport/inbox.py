"""Taking frames from a peer's PULL socket, within bounds, and also while the peer computes.

libzmq 4.3.5 ends the whole process if a connection breaks while its queue is full (`!_io_error`, see
docs/decisions/transport.md). So its queue has no limit, and the limits are here. Rules:

1. A callback hands over `most_at_once` frames at most. If there are more, all are taken from ZeroMQ, and a queue's
   worth of each connection is kept for the next callbacks. The rest is dropped: the protocol asks for it again.
2. A connection by which very much is dropped before the queue is empty again is closed.
3. A thread does the same while the event loop is held up by a long step. One lock guards the socket and the
   records of its connections.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable

import zmq

from thanos_peer.block import AgentId
from thanos_peer.transport.authenticator import Authenticator
from thanos_peer.transport.backlog import Backlog
from thanos_peer.transport.connections import Connections

# Frames that are taken in one go, at most.
MOST_SHED = 4096
# Seconds without a callback after which the thread takes frames.
STAND_IN = 0.05
# A plain number, as the enum's own would be looked up and checked for each frame.
_NOBLOCK = int(zmq.NOBLOCK)
# The method without what pyzmq wraps around it for sockets of other kinds.
_receive = zmq.backend.Socket.recv


class Inbox:
    """Takes frames from a bound socket; use it inside a running event loop.

    Args:
        socket: The PULL socket.
        connections: Those of the socket.
        authenticator: Knows whose key a frame came with; None without keys.
        most_at_once: How many frames are handed over at a time.
        queue: How many frames of a connection are kept.
        on_waiting: Called in the event loop after the thread has taken frames.
    """

    def __init__(
        self,
        socket: "zmq.Socket[bytes]",
        connections: Connections,
        authenticator: Authenticator | None,
        *,
        most_at_once: int,
        queue: int,
        on_waiting: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket, self._connections, self._authenticator = socket, connections, authenticator
        self._most_at_once, self._on_waiting = most_at_once, on_waiting
        self._lock, self._backlog = connections.lock, Backlog(queue)
        self._callbacks = 0
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._stand_in, name="inbox", daemon=True)
        self._thread.start()

    def take(self, frames: list[bytes], speakers: list[AgentId | None]) -> bool:
        """Append what has arrived, and whose key each frame came with, if there are keys; whether that is all."""
        self._callbacks += 1
        with self._lock:
            if self._backlog:
                self._backlog.take(self._most_at_once, frames, speakers)
                self._shed()
                return False
            try:
                if self._authenticator is None and self._connections.is_quiet:
                    self._take_quickly(frames)
                else:
                    self._take_with_care(frames, speakers)
            except zmq.Again:
                self._backlog.forgive()
                return True
            self._shed()
        return False

    def _take_quickly(self, frames: list[bytes]) -> None:
        """Take what is there, quicker than as frames that know by which connection they came.

        A part of a larger message is taken for a message.
        """
        socket = self._socket
        for _ in range(self._most_at_once):
            # A loop, as frames that came before an error stay.
            frames.append(_receive(socket, _NOBLOCK))  # noqa: PERF401

    def _take_with_care(self, frames: list[bytes], speakers: list[AgentId | None]) -> None:
        """Take what is there, and note the sender and the connection of each frame."""
        for _ in range(self._most_at_once):
            frame, speaker = self._receive_with_speaker()
            if self._connections.may_be_heard(frame, speaker):
                frames.append(frame.bytes)
                speakers.append(speaker)

    def _receive_with_speaker(self) -> tuple[zmq.Frame, AgentId | None]:
        # Not copied, so that the frame keeps its properties.
        frame = self._socket.recv(_NOBLOCK, False)  # noqa: FBT003
        return frame, None if self._authenticator is None else self._authenticator.speaker_of(frame)

    def _shed(self) -> bool:
        """Take all that waits in ZeroMQ, and keep or drop it; whether there was anything."""
        taken = 0
        with contextlib.suppress(zmq.Again):
            for taken in range(MOST_SHED):  # noqa: B007 - how many there were
                frame, speaker = self._receive_with_speaker()
                if self._connections.may_be_heard(frame, speaker):
                    descriptor = self._backlog.keep(frame, speaker)
                    if descriptor is not None and self._connections.has(descriptor):  # else it is closed already
                        self._connections.disconnect(descriptor, "it sends more than this peer can take")
        return taken > 0

    def _stand_in(self) -> None:
        """Take frames while the event loop does not, and look after the connections."""
        seen = -1
        while not self._is_closed.wait(STAND_IN):
            if self._callbacks != seen:
                seen = self._callbacks
                continue
            with self._lock:
                has_taken = self._shed()
                self._connections.look()
            if has_taken:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._on_waiting)

    def close(self) -> None:
        """Stop the thread, before the socket is closed."""
        self._is_closed.set()
        self._thread.join()
