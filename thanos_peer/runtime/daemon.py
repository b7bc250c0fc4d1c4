"""`thanos-peer start` from the inside: one peer, its signals, its files, its end."""

import asyncio
import contextlib
import importlib.util
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path

from thanos_peer.agent import Agent
from thanos_peer.algorithm.thanos import AgentState
from thanos_peer.block import AgentId
from thanos_peer.errors import ThanosPeerError
from thanos_peer.problem import local_problem, parameters_of, start_of
from thanos_peer.results import PeerFiles
from thanos_peer.runtime.peer import Peer
from thanos_peer.runtime.status import StatusServer, local_address
from thanos_peer.runtime.trajectory import TrajectoryWriter
from thanos_peer.runtime.waiting import Patience
from thanos_peer.topology import Topology

log = logging.getLogger("thanos_peer")


@dataclass(frozen=True)
class Options:
    """What the person at this host chose.

    Attributes:
        out: The run directory.
        bind: Where to listen; None for what the topology says.
        status: One more address to answer status requests on.
        keep_every: Keep the X of every so many rounds; 0 keeps none.
        patience: How long to wait.
        ends_with_stdin: Stop when standard input is closed: how a launcher takes its peers with it.
    """

    out: Path
    bind: str | None = None
    status: str | None = None
    keep_every: int = 0
    patience: Patience = field(default_factory=Patience)
    ends_with_stdin: bool = False


def run_peer(topology: Topology, agent_id: AgentId, options: Options) -> int:
    """Run one peer to its end, and write its results whatever the end.

    Returns:
        0, or 128 plus the number of the signal that stopped it before its last round.
    """
    files = PeerFiles(options.out, topology, agent_id)
    files.prepare()
    local, parameters = local_problem(topology, agent_id), parameters_of(topology)
    agent = Agent(topology, local, parameters, start_of(topology))
    me, began = topology.peers[agent_id], time.monotonic()
    with contextlib.ExitStack() as stack:
        on_round = _ignore
        if options.keep_every:
            on_round = stack.enter_context(TrajectoryWriter(files.trajectory, every=options.keep_every)).append
        bind = options.bind or me.bind or me.address
        peer = Peer(topology, agent, bind=bind, on_round=on_round, patience=options.patience)

        def write(ending: str) -> None:
            state = agent.state
            facts = peer.status() | {"ending": ending, "seconds": time.monotonic() - began}
            files.write(state.X, state.D, local.g.prox(state.X, parameters.smoothing.sigma(state.k)), facts)
            log.info("%s in round %d, results in %s", ending, state.k, files.result)

        try:
            number = _run_loop(_serve(topology, peer, options, on_done=lambda: write(_ending_of(agent))))
        except ThanosPeerError as error:
            if agent.state.k > 0:  # an error before the first round leaves nothing behind
                write(f"error: {error}")
            raise
        if not agent.is_done:
            write("stopped")
    return 128 + number if number is not None and not agent.is_done else 0


def _ending_of(agent: Agent) -> str:
    return "tolerance" if agent.has_converged else "max_rounds"


def _ignore(state: AgentState) -> None:
    """Keep nothing of a round."""


async def _serve(topology: Topology, peer: Peer, options: Options, *, on_done: Callable[[], None]) -> int | None:
    """Run a peer with its status and its signals; returns the signal that stopped it, if one did."""
    heard: list[int] = []
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _on_signal, peer, number, heard)
    if options.ends_with_stdin:
        loop.add_reader(sys.stdin.fileno(), _on_stdin, peer, heard)
    status = StatusServer(local_address(topology, peer.agent.id), options.status, peer.status)
    try:
        await peer.run(on_done)
    finally:
        status.close()
    return heard[0] if heard else None


def _on_signal(peer: Peer, number: int, heard: list[int]) -> None:
    """The first signal ends the run after the round; the second ends the process."""
    if heard:
        os._exit(128 + number)
    heard.append(number)
    log.info("%s: finishing the round", signal.Signals(number).name)
    peer.stop(signal.Signals(number).name)


def _on_stdin(peer: Peer, heard: list[int]) -> None:
    if not os.read(sys.stdin.fileno(), 1024):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        heard.append(signal.SIGTERM)
        peer.stop("its launcher is gone")


def _run_loop(main: Coroutine[None, None, int | None]) -> int | None:
    factory = None
    if importlib.util.find_spec("uvloop") is not None:
        import uvloop  # noqa: PLC0415 - an extra, used where it is installed

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        number: int | None = runner.run(main)
        return number
