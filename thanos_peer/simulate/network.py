"""Agent by agent: what a network of peers computes, without the network."""

from typing import Protocol

import numpy as np

from thanos_peer.agent import Agent
from thanos_peer.block import Matrix
from thanos_peer.problem import Instance


class Glimpse(Protocol):
    """All agents in the same round."""

    @property
    def k(self) -> int:
        """The round."""

    @property
    def X(self) -> Matrix:
        """All X_i, (d, n, p)."""

    @property
    def eta(self) -> Matrix:
        """All step sizes, (d,)."""


class Ended(Protocol):
    """What tells why a run ended."""

    @property
    def is_done(self) -> bool:
        """Whether the last round was reached."""

    @property
    def has_converged(self) -> bool:
        """Whether the agents agreed to stop."""


class Network(Glimpse, Ended, Protocol):
    """All agents of a topology, and the way to their next round."""

    @property
    def D(self) -> Matrix:
        """All D_i, (d, n, p)."""

    @property
    def H(self) -> Matrix:
        """All H_i, (d, n, p)."""

    def advance(self) -> None:
        """One round of everybody."""


class AgentNetwork:
    """Real agents, each with its own state and exchange, and a delivery of every block to every neighbor."""

    def __init__(self, instance: Instance) -> None:
        self.agents = [
            Agent(instance.topology, local, instance.parameters, instance.start)
            for local in instance.local_problems
        ]

    @property
    def k(self) -> int:
        """The round."""
        return self.agents[0].state.k

    @property
    def X(self) -> Matrix:
        """All X_i."""
        return np.array([agent.state.X for agent in self.agents])

    @property
    def D(self) -> Matrix:
        """All D_i."""
        return np.array([agent.state.D for agent in self.agents])

    @property
    def H(self) -> Matrix:
        """All H_i."""
        return np.array([agent.state.H for agent in self.agents])

    @property
    def eta(self) -> Matrix:
        """All step sizes."""
        return np.array([agent.state.eta for agent in self.agents])

    @property
    def is_done(self) -> bool:
        """Whether this round is the last; agents agree on that by themselves."""
        return all(agent.is_done for agent in self.agents)

    @property
    def has_converged(self) -> bool:
        """Whether the agents agreed to stop."""
        return all(agent.has_converged for agent in self.agents)

    def advance(self) -> None:
        """Everybody's block to all neighbors, then everybody's step."""
        for agent in self.agents:
            block = agent.block()
            for neighbor in agent.neighbors:
                self.agents[neighbor].receive(agent.id, block)
        for agent in self.agents:
            agent.advance()
