"""Frames that have arrived and are not decoded yet."""

from collections.abc import Iterator

from thanos_peer.block import AgentId
from thanos_peer.protocol.hearing import Arrived
from thanos_peer.protocol.wire import Codec


class HeldFrames:
    """Holds frames until they are decoded, many at once.

    Three lists rather than one of triples: a frame costs no object of its own.
    """

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        # When each of them arrived.
        self._arrivals: list[float] = []
        # The peer whose key each of them came with; None if there are no keys.
        self._keys: list[AgentId | None] = []

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, frames: list[bytes], keys: list[AgentId | None], now: float) -> None:
        """Hold frames that arrive now."""
        self._frames += frames
        self._keys += keys
        self._arrivals += [now] * len(frames)

    def take(self, codec: Codec) -> Iterator[Arrived]:
        """All frames, decoded; they are held no longer."""
        frames, arrivals, keys = self._frames, self._arrivals, self._keys
        self._frames, self._arrivals, self._keys = [], [], []
        return map(Arrived, codec.decode_all(frames), map(len, frames), arrivals, keys)
