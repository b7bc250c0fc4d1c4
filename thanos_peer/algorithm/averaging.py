"""Averages over a network by mixing alone: Chebyshev's way, which needs the square root of the rounds.

With x^(0) an agent's numbers, x^(1) = W x^(0) and

    x^(k+1) = 2 T_k / (lambda T_(k+1)) W x^(k) - T_(k-1) / T_(k+1) x^(k-1),    T_k = cosh(k arccosh(1/lambda)),

the sum of all x stays what it is, and no disagreement is larger than 1/T_k of what it was.
"""

import math
from collections.abc import Sequence

import numpy as np

from thanos_peer.algorithm.thanos import AgentState, weighted_sum
from thanos_peer.block import Block, Matrix, stacked

LEFT_OVER = 1e-16  # of any disagreement


def rounds_needed(lambda_: float, d: int) -> int:
    """After how many rounds all agents have the average, to machine precision."""
    if d == 1:
        return 0
    if lambda_ == 0:
        return 1
    return math.ceil(math.acosh(1 / LEFT_OVER) / math.acosh(1 / lambda_))


def rounding(lambda_: float, d: int) -> float:
    """How far the average of numbers of one sign may be off after all rounds, relative to it.

    A round adds up to d numbers. The recursion passes its rounding error on with a weight that grows by the round,
    so what comes together grows with the square of the rounds. The factors are by experiment; the tests hold
    paths, rings and stars to a quarter of this.
    """
    return float(np.finfo(np.float64).eps) * (16 + d + rounds_needed(lambda_, d) ** 2 / 16)


def first_state(k: int, X: Matrix, D: Matrix) -> AgentState:
    """An agent's own numbers, in round k: two matrices of (n, p)."""
    return AgentState(k=k, X=X, D=D, H=np.concatenate([X, D]), eta=0.0)


def averaging_step(
    weights: Matrix, lambda_: float, state: AgentState, blocks: Sequence[Block], *, count: int
) -> AgentState:
    """One round, the one after `count` rounds: H is what X and D were the round before."""
    own = np.concatenate([state.X, state.D])
    mixed = weighted_sum(weights, stacked(blocks).reshape(len(blocks), *own.shape))
    if count > 0 and lambda_ > 0:
        angle = math.acosh(1 / lambda_)
        before, now, after = (math.cosh((count + step) * angle) for step in (-1, 0, 1))
        mixed = 2 * now / (lambda_ * after) * mixed - before / after * state.H
    n = len(state.X)
    return AgentState(k=state.k + 1, X=mixed[:n], D=mixed[n:], H=own, eta=0.0)
