"""Agent by agent: what a network of peers computes, without the network."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from thanos_peer.agent import Agent
from thanos_peer.algorithm.thanos import AgentState
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

    @property
    def overall(self) -> float | None:
        """What the agents divide all samples by, as they have found it; None for nothing."""


class Ended(Protocol):
    """What tells why a run ended, and after how many rounds."""

    @property
    def rounds_by_phase(self) -> Mapping[str, int]:
        """How many rounds there were in each phase that has begun, in order."""

    @property
    def phases_cut_short(self) -> Sequence[str]:
        """The phases before the main one that ended at their maximum of rounds, not by their tolerance."""

    @property
    def is_done(self) -> bool:
        """Whether the last round was reached."""

    @property
    def has_converged(self) -> bool:
        """Whether the agents agreed to stop."""


class Network(Glimpse, Ended, Protocol):
    """All agents of a topology, and the way to their next round."""

    @property
    def is_preparing(self) -> bool:
        """Whether the phase that minimises has yet to begin; before that there is no X."""

    @property
    def phase(self) -> tuple[str, int]:
        """Which phase all agents are in, and how many rounds of it are behind them."""

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
        self.agents = [Agent(instance.topology, i, instance.plan(i)) for i in range(instance.topology.d)]

    @property
    def is_preparing(self) -> bool:
        """Whether the phase that minimises has yet to begin."""
        return self.agents[0].main_state is None

    @property
    def phase(self) -> tuple[str, int]:
        """Which phase all agents are in, and how many rounds of it are behind them."""
        return self.agents[0].phase, self.agents[0].phase_round

    @property
    def rounds_by_phase(self) -> Mapping[str, int]:
        """How many rounds there were in each phase that has begun."""
        return self.agents[0].rounds_by_phase

    @property
    def phases_cut_short(self) -> tuple[str, ...]:
        """The phases before the main one that ended at their maximum of rounds."""
        return self.agents[0].phases_cut_short

    @property
    def k(self) -> int:
        """The round, counted from the beginning of the phase that minimises."""
        return self._states()[0].k

    @property
    def X(self) -> Matrix:
        """All X_i."""
        return np.array([state.X for state in self._states()])

    @property
    def D(self) -> Matrix:
        """All D_i."""
        return np.array([state.D for state in self._states()])

    @property
    def H(self) -> Matrix:
        """All H_i."""
        return np.array([state.H for state in self._states()])

    @property
    def eta(self) -> Matrix:
        """All step sizes."""
        return np.array([state.eta for state in self._states()])

    @property
    def overall(self) -> float | None:
        """What the agents divide all samples by; they agree on it up to rounding."""
        return self.agents[0].overall

    def _states(self) -> list[AgentState]:
        states = [agent.main_state for agent in self.agents]
        return [state for state in states if state is not None]

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
