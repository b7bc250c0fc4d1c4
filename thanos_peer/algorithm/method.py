"""What a method that mixes is: how it starts, what it sends, how it steps, and how it judges itself.

A method is written once, for arrays (..., n, p): one agent has (n, p), and a network in one process (d, n, p). Its
state is a frozen dataclass of named float64 arrays. It never asks how many agents it serves: `Received` mixes for
it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import numpy as np

from thanos_peer.algorithm.pooling import Layout, Pooled
from thanos_peer.algorithm.regularizers import Regularizer
from thanos_peer.algorithm.schedules import Parameters
from thanos_peer.algorithm.traits import Traits
from thanos_peer.block import AgentId, Matrix

Term: TypeAlias = Callable[[Matrix, Matrix, Matrix], Matrix]


class Sent(NamedTuple):
    """What an agent tells its neighbors in a round: two matrices (..., n, p) and a step size (...)."""

    X: Matrix
    D: Matrix
    eta: Matrix


class Received(Protocol):
    """What was sent in a round by an agent's neighbors and by itself; or that of all agents at once."""

    def mix(self, term: Term) -> Matrix:
        """sum_j W_ij term(X_j, D_j, eta_j), added in increasing order of j: (..., n, p).

        The term gets what several agents have sent, with eta as (agents, 1, 1), and works on each by itself.
        """

    def mismatch(self, X: Matrix) -> Matrix:
        """The largest ||X_j - X||_F over neighbors j, (...)."""

    def largest_eta(self) -> Matrix:
        """The largest eta_j, that of the agent itself included, (...)."""


class Smooth(Protocol):
    """The smooth part of the agents' problems."""

    def gradient(self, X: Matrix) -> Matrix:
        """The gradient of f_i at X_i, (..., n, p)."""

    def value(self, X: Matrix) -> Matrix | float:
        """f_i(X_i), (...)."""


@dataclass(frozen=True)
class Setup:
    """What a method is made of.

    Attributes:
        f: The f_i of one agent, or of all at once.
        g: The g_i, which all agents have in common.
        whole: The sum of all g_i.
        d: How many agents there are.
        start: Where to begin, (..., n, p).
        parameters: Of THANOS.
        size: ||A||_2^2 of all samples, or a bound of it; None for objectives that are not PCA.
        lipschitz: A bound of the Lipschitz constant of the whole gradient, where objectives that are not PCA know
            one; else 0.
        bound: A number that no entry of a gradient on the manifold exceeds; None where that is not known.
        measure: What gradients are measured by, to be compared with a tolerance.
        tolerance: Below which residual the method is done.
        most: The largest number of iterations.
        finds_start: Whether to begin at the leading singular vectors, found by the method itself; `start` is in
            general position then, and gives the signs.
        divides: Whether to divide all samples by ||A||_2 as well.
        agreed: What the agents have found by the method's own `preparation`.
        spectrum: Finds the distinct eigenvalues of W other than 1.
        diameter: Of the graph.
        restarts: From how many starts to search; the best answer is kept.
        restart: The start number 1, 2, ...; number 0 is `start`.
        mixings: How often to mix for each step.
        agents: Which agents these are, in the order of `f` and `start`: one, or all.
        samples: What each of them has, (n, m_i), as it is minimised with; empty unless the method `needs_samples`.
        seed: Of what a method draws. With the agent and the round it decides every draw: then an agent that starts
            again, and all agents in one process, draw the same.
    """

    f: Smooth
    g: Regularizer
    whole: Regularizer
    d: int
    start: Matrix
    parameters: Callable[[], Parameters]
    size: float | None = None
    lipschitz: float = 0.0
    bound: float | None = None
    measure: float = 1.0
    tolerance: float = 0.0
    most: int = 1
    finds_start: bool = False
    divides: bool = False
    agreed: Matrix | None = None
    spectrum: Callable[[], Matrix] = lambda: np.empty(0)
    diameter: int = 0
    restarts: int = 1
    restart: Callable[[int], Matrix] = lambda number: np.empty(0)  # noqa: ARG005
    mixings: int = 1
    agents: tuple[AgentId, ...] = ()
    samples: tuple[Matrix, ...] = ()
    seed: int = 0


class Preparation(Pooled, Protocol):
    """A sum over all agents that a method needs before it starts; the word is `Setup.agreed` then."""

    def __init__(self, setup: Setup) -> None:
        """For an agent that has found this."""

    @staticmethod
    def layout(n: int, p: int, d: int) -> Layout:
        """What is sent."""


State = TypeVar("State")


class Method(Traits, Protocol[State]):
    """The rounds of one method, a class of the table. k counts them from 0.

    Attributes:
        preparation: The sum that comes before, or None.
    """

    preparation: ClassVar[type[Preparation] | None] = None

    @classmethod
    def make(cls, setup: Setup) -> Self:
        """For one agent, or for all at once."""

    @property
    def state_type(self) -> type[State]:
        """The dataclass of its states."""

    def start(self, X: Matrix) -> State:
        """The state of round 0, from the common start of (..., n, p)."""

    def send(self, state: State) -> Sent:
        """What neighbors are to hear of it."""

    def step(self, k: int, state: State, received: Received) -> State:
        """The state of round k + 1, from that of round k and what was sent in it."""

    def residual(self, k: int, state: State, received: Received) -> Matrix:
        """How far from done, as an agent alone can tell, (...): comparable to the tolerance."""

    def answer(self, k: int, state: State) -> tuple[Matrix, Matrix]:
        """X, and X with exact zeros, (..., n, p) both."""
