"""Agent by agent: what a network of peers computes, without the network."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from thanos_peer.agent import Agent
from thanos_peer.block import Matrix
from thanos_peer.convergence import have_all, starts_of
from thanos_peer.phases import Answer, Found
from thanos_peer.preparation import Account, account_of
from thanos_peer.problem import Instance


class Snapshot(Protocol):
    """All agents in the same round."""

    @property
    def k(self) -> int:
        """The round."""

    @property
    def X(self) -> Matrix:
        """All X_i, (d, n, p)."""

    @property
    def eta(self) -> Matrix:
        """All step sizes, (d,); 0 for methods that send none."""

    @property
    def overall(self) -> float | None:
        """What the agents divide all samples by, as they have found it; None for nothing."""

    @property
    def account(self) -> Account:
        """What helps to choose mu and p, as far as it is known."""


class Ended(Protocol):
    """What tells why a run ended, and after how many rounds."""

    @property
    def k(self) -> int:
        """The last round of the phase that minimises."""

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
    def is_below_tolerance(self) -> bool:
        """Whether the main phase has reached its tolerance, as the method measures it."""

    @property
    def starts(self) -> int | None:
        """From how many starts it was searched; None where it is not counted."""

    @property
    def has_converged(self) -> bool | None:
        """Whether the answer is certified to be as good as was asked for; None where nothing is certified."""


class Network(Snapshot, Ended, Protocol):
    """All agents of a topology, and the way to their next round."""

    @property
    def is_preparing(self) -> bool:
        """Whether the phase that minimises has yet to begin; before that there is no X."""

    @property
    def phase(self) -> tuple[str, int]:
        """Which phase all agents are in, and how many rounds of it are behind them."""

    @property
    def is_in_main_phase(self) -> bool:
        """Whether they minimise."""

    @property
    def sparse(self) -> Matrix:
        """All X_i with exact zeros, (d, n, p)."""

    @property
    def found(self) -> Found:
        """What the first agent has found."""

    @property
    def payload_sent(self) -> int:
        """The bytes that all agents have sent so far, without the frames around them."""

    def array(self, name: str) -> Matrix | None:
        """An array of all agents' states in the main phase, (d, ...); None if they have none of this name."""

    def advance(self) -> None:
        """One round of all agents."""


class AgentNetwork:
    """Real agents, each with its own state and exchange, and a delivery of every block to every neighbor."""

    def __init__(self, instance: Instance) -> None:
        self._topology = instance.topology
        self.agents = [Agent(instance.topology, i, instance.plan(i)) for i in range(instance.topology.d)]
        # A round and its answers, once they were asked for.
        self._known: tuple[int, list[Answer]] = -1, []

    @property
    def is_preparing(self) -> bool:
        """Whether the main phase has yet to begin."""
        return self.agents[0].runner.is_preparing

    @property
    def phase(self) -> tuple[str, int]:
        """Which phase all agents are in, and how many rounds of it are behind them."""
        return self.agents[0].runner.phase.name, self.agents[0].runner.round

    @property
    def is_in_main_phase(self) -> bool:
        """Whether they minimise."""
        return self.agents[0].runner.is_in_main_phase

    @property
    def rounds_by_phase(self) -> Mapping[str, int]:
        """How many rounds there were in each phase that has begun."""
        return self.agents[0].runner.rounds_by_phase

    @property
    def payload_sent(self) -> int:
        """What all agents have sent."""
        return self.agents[0].runner.payload_sent

    @property
    def phases_cut_short(self) -> tuple[str, ...]:
        """The phases before the main one that ended at their maximum of rounds."""
        return self.agents[0].runner.phases_cut_short

    @property
    def k(self) -> int:
        """The round, counted from the beginning of the main phase."""
        return self.agents[0].runner.main_round

    @property
    def X(self) -> Matrix:
        """All X_i."""
        return np.array([answer.X for answer in self._answers()])

    @property
    def sparse(self) -> Matrix:
        """All of them with exact zeros."""
        return np.array([answer.sparse for answer in self._answers()])

    @property
    def eta(self) -> Matrix:
        """All step sizes."""
        return np.array([answer.eta for answer in self._answers()])

    def array(self, name: str) -> Matrix | None:
        """An array of all agents' states."""
        arrays = [answer.arrays[name] for answer in self._answers() if name in answer.arrays]
        return np.array(arrays) if len(arrays) == len(self.agents) else None

    @property
    def overall(self) -> float | None:
        """What the agents divide all samples by."""
        return self.agents[0].runner.overall

    @property
    def found(self) -> Found:
        """What the first has found."""
        return self.agents[0].found

    @property
    def account(self) -> Account:
        """What helps to choose mu and p."""
        return account_of(self._topology, self.found)

    def _answers(self) -> list[Answer]:
        k = self.agents[0].k
        if self._known[0] != k:
            answers = [agent.runner.answer() for agent in self.agents]
            self._known = k, [answer for answer in answers if answer is not None]
        return self._known[1]

    @property
    def is_done(self) -> bool:
        """Whether this round is the last; agents agree on that by themselves."""
        return all(agent.is_done for agent in self.agents)

    @property
    def is_below_tolerance(self) -> bool:
        """Whether the main phase has reached its tolerance."""
        return all(agent.runner.is_below_tolerance for agent in self.agents)

    @property
    def starts(self) -> int | None:
        """From how many starts it was searched, as the root told all."""
        return starts_of(self.agents[0].found)

    @property
    def has_converged(self) -> bool | None:
        """Whether all agents say so."""
        return have_all([agent.convergence.has_converged for agent in self.agents])

    def advance(self) -> None:
        """All send their blocks to their neighbors, then all take a step."""
        for agent in self.agents:
            block = agent.block
            for neighbor in agent.neighbors:
                self.agents[neighbor].receive(agent.id, block.as_told_to(neighbor))
        for agent in self.agents:
            agent.advance()
