"""One connection through a bad network: it forwards TCP piece by piece, as the weather lets it.

What is encrypted can be delayed, held and lose bytes. In the clear, single messages can also be dropped and
duplicated. That takes just enough of ZMTP 3 to tell them from the rest of what ZeroMQ says: after a greeting of 64
bytes, each frame is a byte of flags (2: its size has eight bytes, 4: it is a command), its size and its body.
"""

import asyncio
import contextlib
import math
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TypeAlias

GREETING = 64
LONG, COMMAND = 0x02, 0x04
LARGEST_PIECE = 2**20  # bytes
# Seconds between two looks at whether a connection may go on.
ALLOWANCE_PAUSE = 0.005

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter


@dataclass
class Weather:
    """What happens to the connections to one peer, and until when (by the monotonic clock).

    Attributes:
        cut_until: Each new connection is closed at once.
        held_in_until: Nothing gets to the peer.
        held_back_until: No answer gets back from it.
        until: Until when the four below hold.
        delay: Seconds by which each piece is late.
        loss: The share of pieces that lose a byte.
        drop: The share of messages that are dropped.
        duplicate: The share of messages that come twice.
        counts: What was done to pieces, messages and connections.
    """

    cut_until: float = 0.0
    held_in_until: float = 0.0
    held_back_until: float = 0.0
    until: float = 0.0
    delay: float = 0.0
    loss: float = 0.0
    drop: float = 0.0
    duplicate: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)

    def is_bad(self) -> bool:
        """Whether pieces or messages are delayed, lost or duplicated."""
        return time.monotonic() < self.until


@dataclass
class Allowance:
    """How many pieces each connection may bring its peer before the next allowance is given; at first any number.

    A neighbor says a block of the next round only when it has those of this one. So a piece holds the blocks of
    two rounds at most, and a run gets no further than the allowance lets it, however late the next one is.
    """

    pieces: float = math.inf
    number: int = 0

    def give(self, pieces: float) -> None:
        """Let each connection bring so many from now on."""
        self.pieces, self.number = pieces, self.number + 1


class Forwarding:
    """What is brought to one peer over one connection.

    Args:
        weather: What happens to it.
        allowance: How much it may bring.
        rng: The chance by which messages are dropped and duplicated, and bytes lost.
        in_the_clear: Whether nothing is encrypted, so that messages can be told apart.
    """

    def __init__(self, weather: Weather, allowance: Allowance, rng: random.Random, *, in_the_clear: bool) -> None:
        self._weather, self._allowance, self._random, self._in_the_clear = weather, allowance, rng, in_the_clear
        self._number, self._left = allowance.number, allowance.pieces

    async def bring(self, reader: Reader, writer: Writer) -> None:
        """Bring the peer what a neighbor says, until there is no more."""
        read = _read_frame if self._in_the_clear else _read_piece
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            if self._in_the_clear:
                await _greet(reader, writer)
            while piece := await read(reader):
                await self._allowed()
                await _until(self._weather.held_in_until)
                writer.write(await self._weathered(piece))
                await writer.drain()

    async def answer(self, reader: Reader, writer: Writer) -> None:
        """Bring back what the peer says on the same connection, until there is no more."""
        with contextlib.suppress(OSError):
            while piece := await _read_piece(reader):
                await _until(self._weather.held_back_until)
                writer.write(piece)
                await writer.drain()

    async def _allowed(self) -> None:
        while True:
            if self._number != self._allowance.number:
                self._number, self._left = self._allowance.number, self._allowance.pieces
            if self._left > 0:
                self._left -= 1
                return
            await asyncio.sleep(ALLOWANCE_PAUSE)

    async def _weathered(self, piece: bytes) -> bytes:
        """What the weather makes of a piece, or of a message in the clear."""
        weather = self._weather
        if not weather.is_bad():
            return piece
        await asyncio.sleep(weather.delay)
        if self._random.random() < weather.loss:
            weather.counts["bytes lost"] += 1
            return piece[: len(piece) // 2] + piece[len(piece) // 2 + 1 :]
        if not self._in_the_clear or piece[0] & COMMAND:
            return piece
        if self._random.random() < weather.drop:
            weather.counts["messages dropped"] += 1
            return b""
        if self._random.random() < weather.duplicate:
            weather.counts["messages duplicated"] += 1
            return 2 * piece
        return piece


async def _until(when: float) -> None:
    """Wait until a time."""
    await asyncio.sleep(max(0.0, when - time.monotonic()))


async def _greet(reader: Reader, writer: Writer) -> None:
    """Forward the greeting, which comes piece by piece, each after an answer."""
    left = GREETING
    while left:
        piece = await reader.read(left)
        if not piece:
            raise asyncio.IncompleteReadError(piece, left)
        left -= len(piece)
        writer.write(piece)


async def _read_piece(reader: Reader) -> bytes:
    return await reader.read(LARGEST_PIECE)


async def _read_frame(reader: Reader) -> bytes:
    flags = await reader.readexactly(1)
    size = await reader.readexactly(8 if flags[0] & LONG else 1)
    return flags + size + await reader.readexactly(int.from_bytes(size, "big"))
