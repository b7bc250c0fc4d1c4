"""One agent of THANOS: its state, and the round that takes it to the next.

Invariants:
1. Sums over neighbors run in increasing order of id, never in order of arrival: the bits depend on the
   blocks alone.
2. H is kept in the state and never computed again: so sum_i D_i = sum_i H_i in every round, whatever sigma
   does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thanos_peer.algorithm.objectives import Objective
from thanos_peer.algorithm.regularizers import Regularizer, envelope_gradient
from thanos_peer.algorithm.schedules import Smoothing, StepRule
from thanos_peer.algorithm.stiefel import identity, infeasibility, inner, norm, sym, transpose
from thanos_peer.block import AgentId, Block, Matrix, stacked
from thanos_peer.errors import DivergenceError

LARGEST_SQUARE = 1e76  # of ||D||_F, so that float32 can carry D as well
BLOW_UP = 100.0  # ||X||_F may be this many times sqrt(p), its value on the manifold; nothing returns from there


@dataclass(frozen=True)
class Parameters:
    """What all agents have in common: the penalty beta, the step rule, the smoothing rule."""

    beta: float
    step: StepRule
    smoothing: Smoothing


@dataclass(frozen=True, slots=True)
class AgentState:
    """All that an agent carries from round to round; X, D and H are (n, p)."""

    k: int
    X: Matrix
    D: Matrix
    H: Matrix
    eta: float


@dataclass(frozen=True)
class LocalProblem:
    """What agent `agent` minimises: f_i + g_i, its share of (1)."""

    agent: AgentId
    f: Objective
    g: Regularizer


def descent_direction(X: Matrix, G: Matrix, beta: float) -> Matrix:
    """H = beta X (X'X - I) + G (3I - X'X)/2 - X sym(X'G), with the two products from the left taken at once."""
    gram, eye = transpose(X) @ X, identity(X.shape[-1])
    return X @ (beta * (gram - eye) - sym(transpose(X) @ G)) + G @ ((3 * eye - gram) / 2)  # (6)


def initial_state(local: LocalProblem, parameters: Parameters, X0: Matrix, k: int = 0) -> AgentState:
    """The first round, k: the common start, and D = H.

    Raises:
        DivergenceError: The data are so large that H is not finite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        H = _direction(local, parameters, k, X0)
        eta = parameters.step.first
        is_sound = has_sound_numbers(X0, H, np.asarray(eta))
    if not is_sound:
        raise divergence(local.agent, k, X0, H, eta)
    return AgentState(k=k, X=X0, D=H, H=H, eta=eta)


def step(
    local: LocalProblem, parameters: Parameters, weights: Matrix, state: AgentState, blocks: Sequence[Block]
) -> AgentState:
    """One round: from the blocks of round k, its own among them, to the state of round k + 1.

    Args:
        local: What the agent minimises.
        parameters: What all agents have in common.
        weights: W_ij for the agents j of `blocks`, in the same order.
        state: The state of round k.
        blocks: The blocks of round k, in increasing order of agent.

    Raises:
        DivergenceError: The new X or D is not finite, or X has blown up.
    """
    etas = np.array([block.eta for block in blocks])
    pairs = stacked(blocks)
    Xs, Ds = pairs[:, 0], pairs[:, 1]
    with np.errstate(over="ignore", invalid="ignore"):  # caught below, with a name and a round
        X = weighted_sum(weights, Xs - etas[:, None, None] * Ds)  # (5)
        H = _direction(local, parameters, state.k + 1, X)  # (6)
        D = weighted_sum(weights, Ds) + (H - state.H)  # (7)
        eta = parameters.step.eta(X - state.X, D - state.D)
        is_sound = has_sound_numbers(X, D, eta)
    if not is_sound:
        raise divergence(local.agent, state.k + 1, X, D, state.eta)
    return AgentState(k=state.k + 1, X=X, D=D, H=H, eta=float(eta))


def local_residual(state: AgentState, others: Matrix, agents: int, size: float = 1.0) -> float:
    """How far agent i is from done, as it alone can tell: the largest of three numbers.

    d ||D_i||_F, which is ||sum_j H_j||_F once trackers agree; the largest ||X_i - X_j||_F over its neighbors;
    and ||X_i'X_i - I||_F.

    Args:
        state: The agent's state in some round.
        others: The X of the same round of its neighbors, (neighbors, n, p).
        agents: d.
        size: What gradients are measured by: D grows with the objective, the other two do not.
    """
    mismatch = float(np.max(norm(others - state.X), initial=0.0))
    return max(agents * float(norm(state.D)) / size, mismatch, float(infeasibility(state.X)))


def has_sound_numbers(X: Matrix, D: Matrix, eta: Matrix) -> NDArray[np.bool_]:
    """Whether all is finite and X has not blown up: a truth value, or (d,) of them for stacks.

    To be asked where numpy is told to keep quiet about overflow and NaN.
    """
    is_bounded = norm(X) <= BLOW_UP * math.sqrt(X.shape[-1])  # which a NaN is not
    return np.asarray(is_bounded & (inner(D, D) <= LARGEST_SQUARE) & np.isfinite(eta))


def divergence(agent: AgentId, k: int, X: Matrix, D: Matrix, eta: float) -> DivergenceError:
    """The error to raise when an agent's X and D of round k, reached with step size eta, are not sound."""
    with np.errstate(over="ignore", invalid="ignore"):
        what = f"||X||_F = {float(norm(X)):.3g}, ||D||_F = {float(norm(D)):.3g}"
    return DivergenceError(agent=agent, k=k, eta=eta, what=what)


def _direction(local: LocalProblem, parameters: Parameters, k: int, X: Matrix) -> Matrix:
    sigma = parameters.smoothing.sigma(k)
    G = local.f.gradient(X) + envelope_gradient(local.g, X, sigma)
    return descent_direction(X, G, parameters.beta)


def weighted_sum(weights: Matrix, terms: Matrix) -> Matrix:
    """sum_j w_j Y_j, added one after the other from zero: (n, p)."""
    total: Matrix = np.add.reduce(weights[:, None, None] * terms, axis=0, initial=0.0)
    return total
