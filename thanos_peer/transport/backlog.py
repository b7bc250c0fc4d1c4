"""Frames that were taken from ZeroMQ and are not handed over yet: a queue's worth of each connection."""

from collections import Counter, deque

import zmq

from thanos_peer.block import AgentId
from thanos_peer.transport.descriptors import descriptor_of

# Bytes up to which more small frames are kept than a queue's worth. Others are dropped: a neighbor repeats them.
SMALL_BYTES = 65536
FRAME_COSTS = 64  # bytes besides what it holds
MOST_DROPPED, DROPPED_BYTES = 1000, 2**24  # of one connection


class Backlog:
    """Keeps frames in their order, and counts what it drops.

    Args:
        queue: How many frames of a connection are kept.
    """

    def __init__(self, queue: int) -> None:
        self._queue = queue
        self._kept: deque[tuple[bytes, AgentId | None, int | None]] = deque()
        # Frames and bytes by connection; None stands for all that ZeroMQ does not tell.
        self._frames: Counter[int | None] = Counter()
        self._bytes: Counter[int | None] = Counter()
        self._dropped: Counter[int | None] = Counter()
        self._dropped_bytes: Counter[int | None] = Counter()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, frame: zmq.Frame, speaker: AgentId | None) -> int | None:
        """Keep a frame, or drop it; returns the connection if very much of it has been dropped by now."""
        descriptor, size = descriptor_of(frame), len(frame) + FRAME_COSTS
        if self._frames[descriptor] < self._queue or self._bytes[descriptor] + size <= SMALL_BYTES:
            self._frames[descriptor] += 1
            self._bytes[descriptor] += size
            self._kept.append((frame.bytes, speaker, descriptor))
            return None
        self._dropped[descriptor] += 1
        self._dropped_bytes[descriptor] += size
        if self._dropped[descriptor] <= MOST_DROPPED and self._dropped_bytes[descriptor] <= DROPPED_BYTES:
            return None
        del self._dropped[descriptor], self._dropped_bytes[descriptor]
        return descriptor

    def take(self, most: int, frames: list[bytes], speakers: list[AgentId | None]) -> None:
        """Append the first of them, and whose key each came with."""
        for _ in range(min(most, len(self._kept))):
            frame, speaker, descriptor = self._kept.popleft()
            self._frames[descriptor] -= 1
            self._bytes[descriptor] -= len(frame) + FRAME_COSTS
            frames.append(frame)
            speakers.append(speaker)
        if not self._kept:
            self._frames.clear()
            self._bytes.clear()

    def forgive(self) -> None:
        """Count what is dropped from zero: the queue is empty."""
        self._dropped.clear()
        self._dropped_bytes.clear()
