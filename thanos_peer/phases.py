"""The parts of a run: rounds that average, and rounds that minimise.

A run goes through its phases one after the other. All agents leave a phase after the same round, because it has a
number of rounds that follows from the topology, or by the stop that they reach together; so nobody has to say that
a new one begins. Rounds are counted through: the exchange and the wire know of the round alone, and each agent
knows from it and from its own past which phase it is in. What a phase has found is there for those that follow.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np

from thanos_peer.algorithm.averaging import averaging_step, first_state, rounds_needed
from thanos_peer.algorithm.schedules import LaterSmoothing
from thanos_peer.algorithm.stiefel import norm
from thanos_peer.algorithm.thanos import AgentState, LocalProblem, Parameters, initial_state, local_residual, step
from thanos_peer.block import Block, Matrix, stacked
from thanos_peer.topology.graph import Graph

Findings: TypeAlias = Mapping[str, Matrix]  # what an agent has found so far, by name


class Phase(Protocol):
    """Some rounds of one agent. `enter` comes first, whether it begins or goes on after a restart."""

    @property
    def name(self) -> str:
        """In one word."""

    @property
    def most(self) -> int:
        """The largest number of rounds."""

    def enter(self, findings: Findings, began: int) -> None:
        """Get ready, with what earlier phases have found; the phase begins with round `began`."""

    def start(self) -> AgentState:
        """The state of its first round."""

    def step(self, weights: Matrix, state: AgentState, blocks: Sequence[Block]) -> AgentState:
        """The state of the next round."""

    def is_calm(self, state: AgentState, blocks: Sequence[Block]) -> bool:
        """Whether this agent could end here."""

    def conclude(self, state: AgentState) -> Findings:
        """What it has found, from the state of its last round."""


class Averaging:
    """All agents find the average of their own numbers, to machine precision.

    Args:
        name: What for.
        graph: Over which edges.
        own: From earlier findings to this agent's numbers, two matrices of (n, p).
        conclude: From earlier findings and the two averages to new findings.
    """

    def __init__(
        self,
        name: str,
        graph: Graph,
        own: Callable[[Findings], tuple[Matrix, Matrix]],
        conclude: Callable[[Findings, Matrix, Matrix], Findings],
    ) -> None:
        self.name, self._graph, self.own, self.conclude_from = name, graph, own, conclude
        self.most = rounds_needed(graph.lambda_, graph.d)
        self._findings: Findings = {}
        self._began = 0

    def enter(self, findings: Findings, began: int) -> None:
        """Note where it begins."""
        self._findings, self._began = findings, began

    def start(self) -> AgentState:
        """This agent's own numbers; `Agent` looks whether they can be said."""
        with np.errstate(over="ignore", invalid="ignore"):
            return first_state(self._began, *self.own(self._findings))

    def step(self, weights: Matrix, state: AgentState, blocks: Sequence[Block]) -> AgentState:
        """Mix."""
        with np.errstate(over="ignore", invalid="ignore"):
            return averaging_step(weights, self._graph.lambda_, state, blocks, count=state.k - self._began)

    def is_calm(self, state: AgentState, blocks: Sequence[Block]) -> bool:  # noqa: ARG002
        """Never: the number of rounds is known."""
        return False

    def conclude(self, state: AgentState) -> Findings:
        """What follows from the averages."""
        return self.conclude_from(self._findings, state.X, state.D)


@dataclass(frozen=True)
class Minimisation:
    """What a minimising phase needs: problem, rules, where to begin, and what gradients are measured by."""

    local: LocalProblem
    parameters: Parameters
    start: Matrix
    size: float = 1.0


@dataclass(frozen=True)
class Minimised:
    """What came out of a minimising phase: its last state, after how many rounds, and X with exact zeros."""

    state: AgentState
    rounds: int
    sparse: Matrix


class Minimising:
    """All agents minimise together: rounds of THANOS, or of DESTINY.

    Args:
        name: Which.
        d: How many agents there are.
        most: The largest number of rounds.
        tolerance: Below which residual an agent could end; 0 for never.
        prepare: From earlier findings to what is minimised, and how.
        conclude: From what came out to findings.
    """

    def __init__(
        self,
        name: str,
        *,
        d: int,
        most: int,
        tolerance: float,
        prepare: Callable[[Findings], Minimisation],
        conclude: Callable[["Minimised"], Findings],
    ) -> None:
        self.name, self.most = name, most
        self._d, self._tolerance, self._prepare, self._conclude = d, tolerance, prepare, conclude
        self._findings: Findings = {}
        self._began = 0
        self._now: Minimisation

    def enter(self, findings: Findings, began: int) -> None:
        """Make the problem."""
        self._findings, self._began = findings, began
        now = self._prepare(findings)
        if began:
            smoothing = LaterSmoothing(now.parameters.smoothing, began)
            now = replace(now, parameters=replace(now.parameters, smoothing=smoothing))
        self._now = now

    def start(self) -> AgentState:
        """The common start, and D = H."""
        return self.restart(self._now.start)

    def restart(self, X: Matrix) -> AgentState:
        """Begin at another X."""
        return initial_state(self._now.local, self._now.parameters, X, self._began)

    def step(self, weights: Matrix, state: AgentState, blocks: Sequence[Block]) -> AgentState:
        """One round of THANOS."""
        return step(self._now.local, self._now.parameters, weights, state, blocks)

    def is_calm(self, state: AgentState, blocks: Sequence[Block]) -> bool:
        """Whether the residual is not above the tolerance."""
        size = self._now.size
        if self._tolerance == 0 or self._d * norm(state.D) / size > self._tolerance:  # mostly so, and enough then
            return False
        return local_residual(state, stacked(blocks)[:, 0], self._d, size) <= self._tolerance

    def conclude(self, state: AgentState) -> Findings:
        """What follows from the last state."""
        return self._conclude(Minimised(state, state.k - self._began, self.sparse(state)))

    def sparse(self, state: AgentState) -> Matrix:
        """X with exact zeros: the prox of this agent's regularizer."""
        return self._now.local.g.prox(state.X, self._now.parameters.smoothing.sigma(state.k))
