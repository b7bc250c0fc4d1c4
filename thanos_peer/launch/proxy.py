"""A bad network on one machine: a proxy before each peer's address does to its connections what cables do."""

import asyncio
import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from thanos_peer.launch.forwarding import LARGEST_PIECE, Allowance, Forwarding, Weather, Writer

# SO_LINGER: whether a connection is closed by a reset.
_RESET, _NO_RESET = struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)


class Proxies:
    """One proxy before each of some ports of this machine, in a thread of their own.

    Args:
        targets: The ports to forward to.
        ports: The ports to listen at.
        seed: Of the chance by which messages are dropped and duplicated, and bytes lost.
        in_the_clear: Whether nothing is encrypted, so that messages can be told apart.

    Attributes:
        targets: As given.
        ports: As given.
        weather: What happens to the connections to each peer.
        allowance: How much each connection may bring.
    """

    def __init__(self, targets: Sequence[int], ports: Sequence[int], *, seed: int, in_the_clear: bool) -> None:
        self.targets, self.ports, self._in_the_clear = targets, ports, in_the_clear
        self._random = random.Random(seed)  # noqa: S311 - bad weather needs no secrets
        self.weather, self.allowance = [Weather() for _ in targets], Allowance()
        self._listening: list[socket.socket | None] = [None for _ in targets]
        # The open connections to each peer: the neighbor's end, and the peer's end.
        self._links: list[set[tuple[Writer, Writer]]] = [set() for _ in targets]
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        for number in range(len(self.targets)):
            self._listen(number)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        for number in range(len(self.targets)):
            self._stop_listening(number)
        # Let all tasks begin: only then they know what they have to close.
        await asyncio.sleep(0)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # until what was aborted is closed

    def counts(self) -> Counter[str]:
        """What was done to pieces, messages and connections to all peers."""
        return sum((weather.counts for weather in self.weather), Counter[str]())

    def reset(self, number: int) -> None:
        """Reset all connections to a peer; they may come again at once."""
        self._loop.call_soon_threadsafe(partial(self._close_all, number, resets=True))

    def cut(self, number: int, seconds: float) -> None:
        """Close all connections to a peer, and each new one for a while."""
        self.weather[number].cut_until = time.monotonic() + seconds
        self._loop.call_soon_threadsafe(self._close_all, number)

    def refuse(self, number: int, seconds: float) -> None:
        """Close all connections to a peer, and let nothing listen at its address for a while."""
        self._begin(self._refuse(number, seconds))

    def hold(self, number: int, seconds: float, *, way_in: bool, way_back: bool) -> None:
        """Leave all connections to a peer open, and let nothing through on one way or both, for a while."""
        weather, until = self.weather[number], time.monotonic() + seconds
        if way_in:
            weather.held_in_until = until
        if way_back:
            weather.held_back_until = until

    def half_open(self, number: int, seconds: float) -> None:
        """Close the neighbors' ends of all connections to a peer; its own ends stay for a while, silent."""
        self._begin(self._half_open(number, seconds))

    def worsen(
        self,
        number: int,
        seconds: float,
        *,
        delay: float = 0.0,
        loss: float = 0.0,
        drop: float = 0.0,
        duplicate: float = 0.0,
    ) -> None:
        """Delay all that a peer is sent, have it lose bytes, or drop or duplicate a part of it, for a while."""
        weather = self.weather[number]
        weather.delay, weather.loss, weather.drop, weather.duplicate = delay, loss, drop, duplicate
        weather.until = time.monotonic() + seconds

    def _begin(self, what: Coroutine[Any, Any, None]) -> None:
        """Have something done in the thread."""
        self._loop.call_soon_threadsafe(self._keep, what)

    def _keep(self, what: Coroutine[Any, Any, None]) -> None:
        """Have something done; its task is kept, or it could be collected."""
        task = self._loop.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _close_all(self, number: int, *, resets: bool = False) -> None:
        linger = _RESET if resets else _NO_RESET
        self.weather[number].counts["connections broken"] += len(self._links[number])
        for ends in self._links[number]:
            for end in ends:
                with contextlib.suppress(OSError):  # it may be closed already
                    end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                end.transport.abort()

    async def _refuse(self, number: int, seconds: float) -> None:
        is_listening = self._stop_listening(number)
        self._close_all(number)
        # If nothing listens, another call refuses connections already, until it is over.
        if is_listening:
            await asyncio.sleep(seconds)
            self._listen(number)

    async def _half_open(self, number: int, seconds: float) -> None:
        links, self._links[number] = self._links[number], set()
        self.weather[number].counts["connections broken"] += len(links)
        for neighbors_end, _ in links:
            neighbors_end.transport.abort()
        try:
            await asyncio.sleep(seconds)
        finally:
            for _, own_end in links:
                own_end.transport.abort()

    def _listen(self, number: int) -> None:
        listening = socket.create_server(("127.0.0.1", self.ports[number]))
        listening.settimeout(0)
        self._listening[number] = listening
        self._loop.add_reader(listening, self._accept, number, listening)

    def _stop_listening(self, number: int) -> bool:
        """Whether it did listen."""
        listening, self._listening[number] = self._listening[number], None
        if listening is not None:
            self._loop.remove_reader(listening)
            listening.close()
        return listening is not None

    def _accept(self, number: int, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it has gone again
            connection, _ = listening.accept()
            connection.settimeout(0)
            self._keep(self._serve(number, connection))

    async def _serve(self, number: int, connection: socket.socket) -> None:
        """Forward one connection until either end, or the weather, closes it."""
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:  # the peer may be down
            stack.callback(connection.close)
            reader, writer = await asyncio.open_connection(sock=connection, limit=LARGEST_PIECE)
            stack.callback(writer.transport.abort)
            if time.monotonic() < self.weather[number].cut_until:
                self.weather[number].counts["connections refused"] += 1
                return
            back, there = await asyncio.open_connection("127.0.0.1", self.targets[number])
            self._links[number].add((writer, there))
            stack.callback(self._leave, number, (writer, there))
            forwarding = Forwarding(
                self.weather[number], self.allowance, self._random, in_the_clear=self._in_the_clear
            )
            await _first_of(forwarding.bring(reader, there), forwarding.answer(back, writer))

    def _leave(self, number: int, link: tuple[Writer, Writer]) -> None:
        """Close the peer's end, unless it is to stay open."""
        if link in self._links[number]:
            self._links[number].discard(link)
            link[1].transport.abort()


async def _first_of(*ways: Coroutine[Any, Any, None]) -> None:
    """Until the first of them has ended; the others are ended then."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
