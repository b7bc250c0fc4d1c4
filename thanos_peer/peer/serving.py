"""A peer in its event loop: with its status, its signals, and the launcher that it ends with."""

import asyncio
import importlib.util
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine

from thanos_peer.peer.peer import Peer
from thanos_peer.peer.signals import Signals
from thanos_peer.peer.status import StatusServer

log = logging.getLogger("thanos_peer")


async def serve(
    peer: Peer,
    signals: Signals,
    *,
    status_at: tuple[str, str | None],
    ends_with_stdin: bool,
    on_done: Callable[[], None],
    on_anew: Callable[[], None],
) -> None:
    """Run a peer to its end.

    Args:
        peer: What runs.
        signals: Have it end after the round.
        status_at: Where to answer status requests: on this host, and one more address if there is one.
        ends_with_stdin: Whether it ends when standard input is closed.
        on_done: Called when it has its result.
        on_anew: Called when a new epoch makes that result void.
    """
    loop = asyncio.get_running_loop()
    signals.listen(lambda number: _pass_on(loop, peer, number))
    if ends_with_stdin:
        loop.add_reader(sys.stdin.fileno(), _on_stdin, peer, signals)
    status = StatusServer(*status_at, peer.status)
    try:
        await peer.run(on_done, on_anew)
    finally:
        status.close()


def _pass_on(loop: asyncio.AbstractEventLoop, peer: Peer, number: int) -> None:
    """Have a peer end after the round; it may be in the middle of anything now."""
    name = signal.Signals(number).name
    loop.call_soon_threadsafe(log.info, "%s: finishing the round", name)
    loop.call_soon_threadsafe(peer.stop, name)


def _on_stdin(peer: Peer, signals: Signals) -> None:
    if not os.read(sys.stdin.fileno(), 1024):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        signals.note(signal.SIGTERM)
        peer.stop("its launcher is gone")


def run_loop(main: Coroutine[None, None, None], signals: Signals) -> None:
    """Run a coroutine to its end in an event loop of its own; from then on signals are only noted."""
    factory = None
    if importlib.util.find_spec("uvloop") is not None:
        import uvloop  # noqa: PLC0415 - an extra

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_decided_at_its_end(main, signals))


async def _decided_at_its_end(main: Coroutine[None, None, None], signals: Signals) -> None:
    try:
        await main
    finally:
        signals.only_note()
