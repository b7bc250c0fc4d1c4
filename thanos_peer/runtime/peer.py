"""One peer: an agent, its links, and a clock. Publish, wait, take, step.

All of a round happens in the reader callback of `Links`: a frame is decoded, the agent hears it, and when it was
the last one missing the agent advances and its new block goes out. There is no future per message. A timer ticks
beside it: it says Hello again to whoever is missing, says aloud for whom it waits, and gives up when told to.

Handshake: a neighbor is sent blocks only once its Hello has arrived and agrees with ours in protocol version,
topology digest, shape and precision. So nobody finishes round 0 with a stranger.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from thanos_peer import __version__
from thanos_peer.agent import Agent
from thanos_peer.algorithm.thanos import AgentState
from thanos_peer.block import AgentId, Block
from thanos_peer.errors import HandshakeError, NeighborLostError, RemoteProtocolError, ThanosPeerError
from thanos_peer.protocol.wire import VERSION, Bye, Codec, Hello, Message, VersionMismatchError
from thanos_peer.runtime.links import Links
from thanos_peer.runtime.waiting import ASK_MOST, Patience, Waiting
from thanos_peer.topology import Topology

log = logging.getLogger("thanos_peer")

TICK = 0.1
LINGER = 2.0  # seconds that the last words get to leave
LOOK_UP = 1.0  # seconds that a name server may take
NOTICES_OF_REJECTS = 10.0  # seconds between lines about frames that were refused


@dataclass
class EdgeCounters:
    """What went over one edge."""

    messages_sent: int = 0
    bytes_sent: int = 0
    messages_received: int = 0
    bytes_received: int = 0
    seconds_waited: float = 0.0
    dropped: int = 0


class Peer:
    """Runs one agent over the network.

    Args:
        topology: What all agree on.
        agent: The agent, in whatever round it is.
        bind: Where to listen.
        on_round: Called with the state of every round, round 0 included.
        patience: How long to wait.
    """

    def __init__(
        self,
        topology: Topology,
        agent: Agent,
        *,
        bind: str,
        on_round: Callable[[AgentState], None],
        patience: Patience,
    ) -> None:
        problem = topology.problem
        self._topology, self.agent, self._bind, self._on_round = topology, agent, bind, on_round
        self._patience = patience
        self._codec = Codec(topology.digest, n=problem.n, p=problem.p, dtype=topology.algorithm.exchange)
        self._greeted: set[AgentId] = set()
        self._frames: dict[int, bytes] = {}
        self.counters = {j: EdgeCounters() for j in agent.neighbors}
        self.rejected = 0
        self._rejects_noticed = -NOTICES_OF_REJECTS
        self._stop_reason: str | None = None
        self._first_step: tuple[float, float] | None = None  # when, and how much CPU had been used by then
        self._links: Links
        self._waiting: Waiting
        self._ended: asyncio.Future[None]

    async def run(self, on_done: Callable[[], None]) -> None:
        """Run to the end: the last round, a request to stop, or an error.

        Args:
            on_done: Called when the last round is reached, before it is said to the neighbors.

        Raises:
            ThanosPeerError: The address cannot be used, neighbors do not agree, one is lost, or a step diverges.
        """
        self._ended = asyncio.get_running_loop().create_future()
        addresses = {j: self._topology.peers[j].address for j in self.agent.neighbors}
        self._links = Links(
            self._bind, addresses, largest_frame=self._codec.largest_frame, on_frame=self._on_frame
        )
        self._waiting = Waiting(self.agent, self._links.states)
        asyncio.get_running_loop().set_exception_handler(self._on_unforeseen)
        ticking = asyncio.create_task(self._tick())
        last_words: str | None = "an unforeseen error"
        try:
            log.info("listening on %s, round %d", self._bind, self.agent.state.k)
            self._on_round(self.agent.state)
            self._say_hello(self.agent.neighbors, is_asking=True)
            self._advance()
            await asyncio.wait({self._ended, ticking}, return_when=asyncio.FIRST_COMPLETED)
            if ticking.done():
                ticking.result()  # it ends only with an error
            self._ended.result()
            if self.agent.is_done:
                on_done()
            await self._say_bye("done" if self.agent.is_done else self._stop_reason or "stopped")
            last_words = None
        except ThanosPeerError as error:
            last_words = type(error).__name__
            raise
        finally:
            if last_words is not None:
                self._broadcast_bye(last_words)
            ticking.cancel()
            self._links.close(linger=LINGER)

    def stop(self, reason: str) -> None:
        """Ask it to end after the round it is in."""
        self._stop_reason = reason
        self._end()

    # ------------------------------------------------------------------ hearing

    def _on_frame(self, frame: bytes) -> None:
        try:
            sender, message = self._codec.decode(frame)
            self._hear(sender, message, len(frame))
        except VersionMismatchError as error:
            if error.neighbor in self.counters and error.neighbor not in self._greeted:
                self._refuse(error.neighbor, f"protocol version: {VERSION} here, {error.theirs} there")
            else:
                self._reject(error)
        except RemoteProtocolError as error:
            self._reject(error)
        except ThanosPeerError as error:
            self._end(error)

    def _hear(self, sender: AgentId, message: Message, size: int) -> None:
        counters = self.counters.get(sender)
        if counters is None:
            raise RemoteProtocolError(neighbor=sender, k=message.k, what="is no neighbor of this peer")
        counters.messages_received += 1
        counters.bytes_received += size
        now = time.monotonic()
        self._waiting.hear(sender, message.k, now)
        match message:
            case Block():
                if sender not in self._greeted:
                    raise RemoteProtocolError(neighbor=sender, k=message.k, what="sent a block before its hello")
                if self.agent.is_missing(sender, message.k):
                    counters.seconds_waited += now - self._waiting.since
                self.agent.receive(sender, message)
                if self.agent.is_ready:
                    self._advance()
            case Hello():
                self._hear_hello(sender, message)
            case Bye():
                self._waiting.leave(sender, message)
                if message.k < self.agent.last_round:
                    log.warning("peer %d left in round %d: %s", sender, message.k, message.reason)

    def _hear_hello(self, sender: AgentId, hello: Hello) -> None:
        difference = self._difference(hello)
        if difference is not None and sender in self._greeted:
            raise RemoteProtocolError(neighbor=sender, k=hello.k, what=f"a hello that differs in {difference}")
        if difference is not None:
            self._refuse(sender, difference)
            return
        if sender not in self._greeted:
            if hello.k > self.agent.state.k + 1:
                self._end(
                    HandshakeError(
                        f"peer {sender} is in round {hello.k}, this peer in round {self.agent.state.k}: "
                        "a run cannot be joined in the middle, nor again after a restart; stop and start all peers"
                    )
                )
                return
            self._greeted.add(sender)
            log.debug("peer %d says hello from round %d", sender, hello.k)
        self._waiting.come_back(sender)
        if hello.is_asking:  # rare, so everything it may lack: who we are, our block, and whether we are done
            self._say_hello([sender])
            wanted = self.agent.said(hello.k)
            if wanted is not None:
                self._send(sender, self._frame_of(wanted))
            if self.agent.is_done:
                self._send(sender, self._codec.encode(self.agent.id, Bye(self.agent.state.k, "done")))

    def _difference(self, hello: Hello) -> str | None:
        ours = self._hello(is_asking=False)
        for name, mine, theirs in (
            ("shape (n, p)", (ours.n, ours.p), (hello.n, hello.p)),
            ("precision", ours.dtype, hello.dtype),
            ("topology digest", ours.digest, hello.digest),
        ):
            if mine != theirs:
                return f"{name}: {mine} here, {theirs} there"
        return None

    def _refuse(self, sender: AgentId, difference: str) -> None:
        """Tell the other side who we are, so that it refuses us too, and end."""
        self._say_hello([sender])
        self._end(
            HandshakeError(
                f"peer {self.agent.id} ({self._bind}) and peer {sender} ({self._topology.peers[sender].address}) "
                f"cannot run together; they differ in {difference}; give both the same topology file and version"
            )
        )

    def _reject(self, error: RemoteProtocolError) -> None:
        """Count what was refused, and say so now and then."""
        self.rejected += 1
        now = time.monotonic()
        if now - self._rejects_noticed >= NOTICES_OF_REJECTS:
            self._rejects_noticed = now
            log.warning("refused %d message(s) so far; the latest from %s", self.rejected, error)

    # ------------------------------------------------------------------ stepping and speaking

    def _advance(self) -> None:
        """Step if the round is complete."""
        if self.agent.is_ready and not self.agent.is_done and not self._ended.done():
            self._step()

    def _step(self) -> None:
        """Go to the next round, and tell the neighbors."""
        agent = self.agent
        agent.advance()
        self._on_round(agent.state)
        self._waiting.begin_round()
        if self._first_step is None:
            self._first_step = self._waiting.since, time.process_time()
        if agent.is_done:
            self._end()
            return
        frame = self._frame_of(agent.block())
        for j in agent.neighbors:
            self._send(j, frame)
        if agent.is_ready:  # all neighbors are a round ahead: the clock and the signals get their turn first
            asyncio.get_running_loop().call_soon(self._advance)

    def _frame_of(self, block: Block) -> bytes:
        """A block as a frame, encoded once for all neighbors."""
        frame = self._frames.get(block.k)
        if frame is None:
            frame = self._codec.encode(self.agent.id, block)
            self._frames = {k: old for k, old in self._frames.items() if k == block.k - 1} | {block.k: frame}
        return frame

    def _hello(self, *, is_asking: bool) -> Hello:
        problem, exchange = self._topology.problem, self._topology.algorithm.exchange
        digest, k = self._topology.digest, self.agent.state.k
        return Hello(k, digest, problem.n, problem.p, exchange, __version__, is_asking)

    def _say_hello(self, neighbors: tuple[AgentId, ...] | list[AgentId], *, is_asking: bool = False) -> None:
        frame = self._codec.encode(self.agent.id, self._hello(is_asking=is_asking))
        for j in neighbors:
            self._send(j, frame)

    def _send(self, neighbor: AgentId, frame: bytes) -> None:
        counters = self.counters[neighbor]
        if self._links.send(neighbor, frame):
            counters.messages_sent += 1
            counters.bytes_sent += len(frame)
        else:
            counters.dropped += 1

    def _end(self, error: BaseException | None = None) -> None:
        if not self._ended.done():
            if error is None:
                self._ended.set_result(None)
            else:
                self._ended.set_exception(error)

    def _on_unforeseen(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error in a callback ends the peer: nothing may hang because somebody forgot a case."""
        error = context.get("exception")
        if error is None:
            loop.default_exception_handler(context)
        else:
            self._end(error)

    async def _say_bye(self, reason: str) -> None:
        """Tell all neighbors that this was the last round, and stay until they are done too."""
        self._broadcast_bye(reason)
        began = asked = time.monotonic()
        while self.agent.is_done and self._stop_reason is None and (behind := self._waiting.behind()):
            now = time.monotonic()
            if now - began >= self._patience.farewell:
                log.warning("done, and left before hearing that peers %s are", ", ".join(map(str, behind)))
                return
            if now - asked >= ASK_MOST / 2:
                asked = now
                self._say_hello(behind, is_asking=True)
            await asyncio.sleep(TICK / 2)

    def _broadcast_bye(self, reason: str) -> None:
        frame = self._codec.encode(self.agent.id, Bye(self.agent.state.k, reason))
        for j in self.agent.neighbors:
            self._send(j, frame)

    # ------------------------------------------------------------------ waiting

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            self._links.drain()
            if self.agent.missing() and not self.agent.is_done and not self._ended.done():
                await self._wait()

    async def _wait(self) -> None:
        """Ask whoever is missing, say it aloud, or give up: whatever is due."""
        waiting, give_up = self._waiting, self._patience.give_up
        if waiting.is_time_to_ask():
            self._say_hello(self.agent.missing(), is_asking=True)
        if waiting.is_time_to_speak():
            await self._look_up_names()
            for line in waiting.lines():
                log.warning("%s", line)
        if give_up is not None and waiting.seconds >= give_up:
            await self._look_up_names()
            if lines := waiting.lines():
                self._end(NeighborLostError(f"gave up after {give_up:g} s: {'; '.join(lines)}"))

    async def _look_up_names(self) -> None:
        """Look up the names of whoever is missing, but let no slow resolver keep the clock from ticking."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._waiting.look_up_names(), LOOK_UP)

    def _stepping(self) -> dict[str, float]:
        """Rounds since the first, and the time and CPU they took."""
        if self._first_step is None:
            return {"rounds": 0, "seconds": 0.0, "cpu_seconds": 0.0}
        began, cpu = self._first_step
        return {
            "rounds": self.agent.state.k - 1,
            "seconds": self._waiting.since - began,
            "cpu_seconds": time.process_time() - cpu,
        }

    def status(self) -> dict[str, Any]:
        """What it is doing, for `thanos-peer status`."""
        agent = self.agent
        return {
            "id": agent.id,
            "name": self._topology.name,
            "digest": self._topology.digest,
            "version": __version__,
            "round": agent.state.k,
            "last_round": agent.last_round,
            "is_done": agent.is_done,
            "has_converged": agent.has_converged,
            "eta": agent.state.eta,
            "waiting": self._waiting.lines(),
            "stepping": self._stepping(),
            "rejected": self.rejected,
            "edges": {str(j): asdict(counters) for j, counters in self.counters.items()},
        }
