"""A bad network on one machine: stands before a peer's address, and cuts, delays, drops and duplicates.

It forwards TCP, and knows just enough of ZMTP 3 to tell messages from the rest of what ZeroMQ says: after a
greeting of 64 bytes, each frame is a byte of flags (2: its size has eight bytes, 4: it is a command), its size and
its body.
"""

import asyncio
import contextlib
import random
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Self

GREETING = 64
LONG, COMMAND = 0x02, 0x04


@dataclass
class Weather:
    """What happens to the connections to one peer, and until when (by the monotonic clock)."""

    cut_until: float = 0.0
    delay: float = 0.0
    drop: float = 0.0
    duplicate: float = 0.0
    until: float = 0.0  # of delay, drop and duplicate
    dropped: int = 0
    duplicated: int = 0
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def is_cut(self) -> bool:
        """Whether nothing gets through."""
        return time.monotonic() < self.cut_until

    def is_bad(self) -> bool:
        """Whether messages are delayed, dropped or duplicated."""
        return time.monotonic() < self.until


class Proxies:
    """One proxy before each of some ports of this machine, in a thread of their own.

    Args:
        targets: The ports to forward to.
        seed: Of the chance by which messages are dropped and duplicated.
    """

    def __init__(self, targets: Sequence[int], *, seed: int) -> None:
        self._targets, self._random = targets, random.Random(seed)  # noqa: S311 - bad weather needs no secrets
        self.weather = [Weather() for _ in targets]
        self._sockets = [socket.create_server(("127.0.0.1", 0)) for _ in targets]
        self.ports: list[int] = [listening.getsockname()[1] for listening in self._sockets]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        for number, listening in enumerate(self._sockets):
            serving = asyncio.start_server(partial(self._serve, number), sock=listening)
            asyncio.run_coroutine_threadsafe(serving, self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()
        for listening in self._sockets:
            listening.close()

    def cut(self, number: int, seconds: float) -> None:
        """Close all connections to a peer, and let nothing through for a while."""
        weather = self.weather[number]
        weather.cut_until = time.monotonic() + seconds
        self._loop.call_soon_threadsafe(self._close_all, weather)

    def worsen(
        self, number: int, seconds: float, *, delay: float = 0.0, drop: float = 0.0, duplicate: float = 0.0
    ) -> None:
        """Delay all that a peer is sent, or drop or duplicate a part of its messages, for a while."""
        weather = self.weather[number]
        weather.delay, weather.drop, weather.duplicate = delay, drop, duplicate
        weather.until = time.monotonic() + seconds

    @staticmethod
    def _close_all(weather: Weather) -> None:
        for writer in weather.writers:
            writer.transport.abort()

    async def _serve(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection until either end, or the weather, closes it."""
        weather = self.weather[number]
        weather.writers.add(writer)
        there: asyncio.StreamWriter | None = None
        try:
            if weather.is_cut():
                return
            back, there = await asyncio.open_connection("127.0.0.1", self._targets[number])
            weather.writers.add(there)
            ways = [self._forward(weather, reader, there), _copy(back, writer)]
            tasks = [asyncio.ensure_future(way) for way in ways]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        except OSError:
            pass
        finally:
            for end in (writer, there):
                if end is not None:
                    weather.writers.discard(end)
                    end.transport.abort()

    async def _forward(self, weather: Weather, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            left = GREETING
            while left:  # said piece by piece, each after an answer
                piece = await reader.read(left)
                left -= len(piece)
                if not piece:
                    return
                writer.write(piece)
            while True:
                frame = await _read_frame(reader)
                copies = 1
                if weather.is_bad():
                    if weather.delay:
                        await asyncio.sleep(weather.delay)
                    if not frame[0] & COMMAND:
                        copies = self._copies(weather)
                for _ in range(copies):
                    writer.write(frame)
                await writer.drain()

    def _copies(self, weather: Weather) -> int:
        if self._random.random() < weather.drop:
            weather.dropped += 1
            return 0
        if self._random.random() < weather.duplicate:
            weather.duplicated += 1
            return 2
        return 1


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    flags = await reader.readexactly(1)
    size = await reader.readexactly(8 if flags[0] & LONG else 1)
    return flags + size + await reader.readexactly(int.from_bytes(size, "big"))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
