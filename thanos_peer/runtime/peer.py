"""One peer: an agent, its links, and a clock. Publish, wait, take, step.

All of a round happens in the reader callback of `Links`: a frame is decoded, the agent hears it, and when it was
the last one missing the agent advances and its new block goes out. There is no future per message. A timer ticks
beside it: it says Hello again to whoever is missing, says aloud for whom it waits, and gives up when told to.

Handshake: a neighbor is sent blocks only once its Hello has arrived and agrees with ours in protocol version,
topology digest, shape and precision. So nobody finishes round 0 with a stranger.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from thanos_peer import __version__
from thanos_peer.agent import Agent
from thanos_peer.algorithm.thanos import AgentState
from thanos_peer.block import AgentId, Block
from thanos_peer.errors import HandshakeError, NeighborLostError, RemoteProtocolError, ThanosPeerError
from thanos_peer.protocol.wire import VERSION, Bye, Codec, Hello, Message, VersionMismatchError
from thanos_peer.runtime.links import Links, unresolved_host
from thanos_peer.topology import Topology

log = logging.getLogger("thanos_peer")

TICK = 0.1
ASK_FIRST, ASK_MOST = 0.2, 2.0  # seconds of waiting after which a missing neighbor is asked, at first and at most
NOTICE_FIRST, NOTICE_MOST = 3.0, 60.0  # and after which the waiting is said aloud
LINGER = 2.0  # seconds that the last words get to leave
NOTICES_OF_REJECTS = 10.0  # seconds between lines about frames that were refused


@dataclass(frozen=True)
class Patience:
    """How long to wait.

    Attributes:
        give_up: Seconds without a missing neighbor's block after which to end; None waits for ever.
        farewell: Seconds to stay, when done, for neighbors that are not.
    """

    give_up: float | None = None
    farewell: float = 30.0


@dataclass
class EdgeCounters:
    """What went over one edge."""

    messages_sent: int = 0
    bytes_sent: int = 0
    messages_received: int = 0
    bytes_received: int = 0
    seconds_waited: float = 0.0
    dropped: int = 0


@dataclass
class _Waiting:
    """Since when somebody is missing, and what has been done about it."""

    since: float
    next_ask: float = ASK_FIRST
    next_notice: float = NOTICE_FIRST
    asks: int = field(default=0)


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
        self._left: dict[AgentId, Bye] = {}
        self._frames: dict[int, bytes] = {}
        self._waiting = _Waiting(time.monotonic())
        self._heard_at: dict[AgentId, float] = {}
        self.counters = {j: EdgeCounters() for j in agent.neighbors}
        self.rejected = 0
        self._rejects_noticed = -NOTICES_OF_REJECTS
        self._stop_reason: str | None = None
        self._first_step: tuple[float, float] | None = None  # when, and how much CPU had been used by then
        self._links: Links
        self._ended: asyncio.Future[None]

    async def run(self) -> None:
        """Run to the end: the last round, a request to stop, or an error.

        Raises:
            ThanosPeerError: The address cannot be used, neighbors do not agree, one is lost, or a step diverges.
        """
        self._ended = asyncio.get_running_loop().create_future()
        addresses = {j: self._topology.peers[j].address for j in self.agent.neighbors}
        self._links = Links(
            self._bind, addresses, largest_frame=self._codec.largest_frame, on_frame=self._on_frame
        )
        asyncio.get_running_loop().set_exception_handler(self._on_unforeseen)
        ticking = asyncio.create_task(self._tick())
        try:
            log.info("listening on %s, round %d", self._bind, self.agent.state.k)
            self._on_round(self.agent.state)
            self._say_hello(self.agent.neighbors, is_asking=True)
            self._advance()
            await asyncio.wait({self._ended, ticking}, return_when=asyncio.FIRST_COMPLETED)
            if ticking.done():
                ticking.result()  # it ends only with an error
            self._ended.result()
            await self._say_bye("done" if self.agent.is_done else self._stop_reason or "stopped")
        except ThanosPeerError as error:
            self._broadcast_bye(type(error).__name__)
            raise
        finally:
            ticking.cancel()
            self._links.close(linger=LINGER)

    def stop(self, reason: str) -> None:
        """Ask it to end after the round it is in."""
        self._stop_reason = reason
        self._end()

    @property
    def was_stopped(self) -> bool:
        """Whether it was asked to end and did so before its last round."""
        return self._stop_reason is not None and not self.agent.is_done

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
        self._heard_at[sender] = now
        match message:
            case Block():
                if sender not in self._greeted:
                    raise RemoteProtocolError(neighbor=sender, k=message.k, what="sent a block before its hello")
                if message.k == self.agent.state.k:
                    counters.seconds_waited += now - self._waiting.since
                self.agent.receive(sender, message)
                if self.agent.is_ready:
                    self._advance()
            case Hello():
                self._hear_hello(sender, message)
            case Bye():
                self._left[sender] = message
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
            self._greeted.add(sender)
            log.debug("peer %d says hello from round %d", sender, hello.k)
        if sender in self._left and self._left[sender].k < self.agent.last_round:
            del self._left[sender]  # it had left early, and is back; a Bye of the last round is final
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
        self._waiting = _Waiting(time.monotonic())
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
        while self.agent.is_done and (behind := self._behind()):
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

    def _behind(self) -> list[AgentId]:
        """The neighbors that have not said that they are done."""
        last = self.agent.state.k
        return [j for j in self.agent.neighbors if j not in self._left or self._left[j].k < last]

    # ------------------------------------------------------------------ waiting

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            self._links.drain()
            missing = self.agent.missing()
            if missing and not self.agent.is_done and not self._ended.done():
                await self._wait_for(missing)

    async def _wait_for(self, missing: tuple[AgentId, ...]) -> None:
        waiting = self._waiting
        waited = time.monotonic() - waiting.since
        if waited >= waiting.next_ask:
            self._say_hello(missing, is_asking=True)
            waiting.next_ask = waited + min(ASK_FIRST * 2**waiting.asks, ASK_MOST)
            waiting.asks += 1
        if waited >= waiting.next_notice:
            waiting.next_notice = waited + min(2 * waited, NOTICE_MOST)
            await self._look_up_names(missing)
            for line in self.waits():
                log.warning("%s", line)
        if self._patience.give_up is not None and waited >= self._patience.give_up:
            await self._look_up_names(missing)
            lines = "; ".join(self.waits())
            self._end(NeighborLostError(f"gave up after {self._patience.give_up:g} s: {lines}"))

    async def _look_up_names(self, neighbors: tuple[AgentId, ...]) -> None:
        """Find out, beside the loop, whether it is the name that keeps a neighbor from being connected."""
        for state in (self._links.states[j] for j in neighbors):
            if not state.was_up:
                look_up = asyncio.get_running_loop().run_in_executor(None, unresolved_host, state.address)
                state.unresolved = await look_up

    def waits(self) -> list[str]:
        """For whom it waits now, a line each."""
        return [] if self.agent.is_done else [self._describe_wait(j) for j in self.agent.missing()]

    def _describe_wait(self, j: AgentId) -> str:
        """For whom it waits, where, since when, and what is known of the connection."""
        now, address = time.monotonic(), self._topology.peers[j].address
        link = self._links.states[j].describe(now)
        heard = self._heard_at.get(j)
        silence = "never heard" if heard is None else f"last heard {now - heard:.0f} s ago"
        left = f", it left in round {self._left[j].k} ({self._left[j].reason})" if j in self._left else ""
        return (
            f"waiting {now - self._waiting.since:.0f} s in round {self.agent.state.k} for peer {j} at {address}: "
            f"{link}, {silence}{left}"
        )

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
            "waiting": self.waits(),
            "stepping": self._stepping(),
            "rejected": self.rejected,
            "edges": {str(j): asdict(counters) for j, counters in self.counters.items()},
        }
