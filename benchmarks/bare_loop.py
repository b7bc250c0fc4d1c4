"""The least that a process per agent could do over ZeroMQ, to compare with: what the transport itself costs.

python benchmarks/bare_loop.py TOPOLOGY ROUNDS

The same sockets, frames of the same size and the same step as a peer's, in one loop that drains, in processes that
are forked from one, as those of `thanos-peer run` are; but no handshake, no check of anything that arrives, no
repair of anything lost, no signals, no saving, no status. Each prints a line: its id, seconds and CPU seconds of
the rounds, the first left out, and X in hex.
"""

import asyncio
import json
import os
import signal
import sys
import time

import msgpack
import uvloop
import zmq

from thanos_peer.block import Block, StopWord
from thanos_peer.phases import Found
from thanos_peer.problem import share_of
from thanos_peer.topology import Topology, load

MOST_SECONDS = 600


class Loop:
    """One agent."""

    def __init__(self, topology: Topology, me: int, rounds: int) -> None:
        self.phase, self.me, self.rounds, self.k = share_of(topology, me).plan().phases[0], me, rounds, 0
        self.phase.enter(Found(), 0)
        self.state = self.phase.start()
        self.context = context = zmq.Context()
        self.inbox = context.socket(zmq.PULL)
        self.inbox.bind(topology.peers[me].address)
        self.outboxes = [context.socket(zmq.PUSH) for _ in topology.graph.neighbors[me]]
        for outbox, j in zip(self.outboxes, topology.graph.neighbors[me], strict=True):
            outbox.connect(topology.peers[j].address)
        self.here: dict[int, Block] = {}
        self.ahead: dict[int, Block] = {}
        self.frames: list[bytes] = []
        self.began = self.cpu = 0.0

    def run(self) -> None:
        """All rounds."""
        loop = uvloop.new_event_loop()
        loop.add_reader(self.inbox.fileno(), self.drain, loop)
        loop.call_soon(self.drain, loop)
        self.speak()
        loop.run_forever()
        loop.remove_reader(self.inbox.fileno())
        seconds, cpu = time.perf_counter() - self.began, time.process_time() - self.cpu
        said = {"id": self.me, "seconds": seconds, "cpu_seconds": cpu, "X": self.state.X.tobytes().hex()}
        # Written in one go, so that lines do not mix.
        os.write(1, json.dumps(said).encode() + b"\n")
        for link in (*self.outboxes, self.inbox):
            link.close()
        self.context.term()  # once all is said

    def speak(self) -> None:
        """Send the block of this round to all neighbors."""
        block = Block.of(self.k, self.state.X, self.state.D, self.state.eta, StopWord())
        self.here[self.me] = block
        frame = msgpack.packb([1, 2, bytes(16), self.me, block.k, block.eta, 0, None, 0, "float64", *block[1:3]])
        for outbox in self.outboxes:
            outbox.send(frame)

    def drain(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hear what has arrived, once it is enough, and step."""
        try:
            while True:
                self.frames.append(self.inbox.recv(zmq.NOBLOCK))
        except zmq.Again:
            pass
        if len(self.frames) + len(self.here) <= len(self.outboxes):
            return
        for frame in self.frames:
            _, _, _, j, k, eta, *_, numbers, shape = msgpack.unpackb(frame, use_list=False)
            (self.here if k == self.k else self.ahead)[j] = Block(k, numbers, shape, eta, StopWord())
        self.frames = []
        while len(self.here) > len(self.outboxes):
            blocks = [self.here[j] for j in sorted(self.here)]
            self.state, _ = self.phase.advance(self.k, self.state, blocks)
            self.k += 1
            self.here, self.ahead = self.ahead, {}
            if self.k == 1:
                self.began, self.cpu = time.perf_counter(), time.process_time()
            if self.k == self.rounds:
                loop.stop()
                return
            self.speak()


def main() -> None:
    """Fork a process for each agent, and wait for all."""
    topology, rounds = load(sys.argv[1]), int(sys.argv[2])
    agents: set[int] = set()
    for me in range(topology.d):
        agent = os.fork()
        if agent == 0:
            signal.alarm(MOST_SECONDS)
            Loop(topology, me, rounds).run()
            return
        agents.add(agent)
    while agents:
        agent, status = os.wait()
        agents.remove(agent)
        if status:  # the others would wait for ever
            for other in agents:
                os.kill(other, signal.SIGKILL)
            sys.exit(1)


main()
