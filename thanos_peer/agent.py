"""One agent: where the mathematics and the exchange meet. Simulated agents and network peers are both this."""

import numpy as np

from thanos_peer.algorithm.stiefel import norm
from thanos_peer.algorithm.thanos import LocalProblem, Parameters, initial_state, local_residual, step
from thanos_peer.block import AgentId, Block, Matrix, StopWord
from thanos_peer.protocol.exchange import Exchange
from thanos_peer.protocol.stop import next_word
from thanos_peer.topology import Topology


def as_sent(X: Matrix, exchange: str) -> Matrix:
    """X with the precision that it keeps on its way: float64 is exact, float32 rounds."""
    return X if exchange == "float64" else X.astype(np.float32).astype(np.float64)


class Agent:
    """An agent in its round: give it its neighbors' blocks, let it advance, pass its own block on.

    Args:
        topology: Whose edges, weights and stopping rule it follows.
        local: What it minimises.
        parameters: The rules that all agents follow.
        X0: The common start, (n, p).
    """

    def __init__(self, topology: Topology, local: LocalProblem, parameters: Parameters, X0: Matrix) -> None:
        self.id = local.agent
        self.neighbors = topology.graph.neighbors[self.id]
        self.state = initial_state(local, parameters, X0)
        self._topology, self._local, self._parameters = topology, local, parameters
        self._weights = np.array([weight for _, weight in topology.graph.mixing[self.id]])
        self._stop = StopWord()
        self._exchange = Exchange(self.id, self.neighbors)
        self._exchange.publish(self.block())

    def block(self) -> Block:
        """What its neighbors are to hear in this round, and itself too: all mix the same numbers."""
        state, exchange = self.state, self._topology.algorithm.exchange
        return Block(state.k, as_sent(state.X, exchange), as_sent(state.D, exchange), state.eta, self._stop)

    def receive(self, sender: AgentId, block: Block) -> None:
        """Hear a neighbor."""
        self._exchange.receive(sender, block)

    def said(self, k: int) -> Block | None:
        """Its own block of round k, if a neighbor may still need it."""
        return self._exchange.said(k)

    @property
    def is_ready(self) -> bool:
        """Whether it has heard all neighbors in this round, and can advance."""
        return self._exchange.is_complete()

    def is_missing(self, neighbor: AgentId, k: int) -> bool:
        """Whether the neighbor's block of round k is what it waits for."""
        return k == self.state.k and self._exchange.is_missing(neighbor)

    def missing(self) -> tuple[AgentId, ...]:
        """The neighbors it has not heard in this round."""
        return self._exchange.missing()

    @property
    def last_round(self) -> int:
        """The round after which it stops, as far as it knows by now."""
        most = self._topology.algorithm.max_rounds
        return most if self._stop.after is None else min(most, self._stop.after)

    @property
    def is_done(self) -> bool:
        """Whether its state is the result; so it is at all agents after the same round."""
        return self.state.k >= self.last_round

    @property
    def has_converged(self) -> bool:
        """Whether the network agreed to stop before the maximum number of rounds."""
        return self._stop.after is not None and self._stop.after <= self._topology.algorithm.max_rounds

    def advance(self) -> None:
        """Take the round that is complete, and step into the next."""
        blocks = self._exchange.take()
        is_calm = self._is_calm(blocks)
        self.state = step(self._local, self._parameters, self._weights, self.state, blocks)
        self._stop = next_word(
            (block.stop for block in blocks),
            is_calm=is_calm,
            k=self.state.k,
            diameter=self._topology.graph.diameter,
        )
        self._exchange.publish(self.block())

    def _is_calm(self, blocks: list[Block]) -> bool:
        tolerance, d = self._topology.algorithm.tolerance, self._topology.d
        if tolerance == 0 or d * norm(self.state.D) > tolerance:  # mostly so, and then the rest need not be known
            return False
        others = np.array([block.X for block in blocks])
        return local_residual(self.state, others, d) <= tolerance
