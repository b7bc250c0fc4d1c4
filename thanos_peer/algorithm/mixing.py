"""What one agent hears in a round, and how it mixes it."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from thanos_peer.algorithm.method import Sent, Term
from thanos_peer.algorithm.stiefel import inner, norm
from thanos_peer.block import AgentId, Block, Matrix, stacked
from thanos_peer.errors import DivergenceError

# Largest ||D||_F^2, so that float32 can carry D as well.
LARGEST_SQUARE = 1e76
# Largest ||X||_F, in units of sqrt(p), its value on the manifold: no run comes back from beyond.
BLOW_UP = 100.0


class Heard:
    """The blocks of an agent and its neighbors, in increasing order of id, and their weights in the same order."""

    def __init__(self, weights: Matrix, blocks: Sequence[Block]) -> None:
        pairs = stacked(blocks)
        self._weights, self._Xs, self._Ds = weights, pairs[:, 0], pairs[:, 1]
        self._etas = np.array([block.eta for block in blocks])[:, None, None]

    def mix(self, term: Term) -> Matrix:
        """The weighted sum, added one after the other from zero: (n, p)."""
        terms = term(self._Xs, self._Ds, self._etas)
        total: Matrix = np.add.reduce(self._weights[:, None, None] * terms, axis=0, initial=0.0)
        return total

    def mismatch(self, X: Matrix) -> Matrix:
        """The largest ||X_j - X||_F."""
        return np.asarray(np.max(norm(self._Xs - X), initial=0.0))

    def largest_eta(self) -> Matrix:
        """Of all blocks."""
        return np.asarray(self._etas.max())


def has_sound_numbers(sent: Sent, growth: float = 1.0) -> NDArray[np.bool_]:
    """Whether all is finite and X has not blown up: a truth value, or (d,) of them for stacks.

    To be asked where numpy is told to keep quiet about overflow and NaN.

    Args:
        sent: What an agent would send, or all of them.
        growth: By how much X may grow on the way from one point near the manifold to the next.
    """
    is_bounded = norm(sent.X) <= growth * BLOW_UP * math.sqrt(sent.X.shape[-1])  # False for NaN
    return np.asarray(is_bounded & (inner(sent.D, sent.D) <= LARGEST_SQUARE) & np.isfinite(sent.eta))


def divergence(agent: AgentId, k: int, sent: Sent, eta: float, advice: str) -> DivergenceError:
    """The error to raise when what an agent would send in round k, reached with step size eta, is not sound."""
    with np.errstate(over="ignore", invalid="ignore"):
        what = f"||X||_F = {float(norm(sent.X)):.3g}, ||D||_F = {float(norm(sent.D)):.3g}"
    return DivergenceError(agent=agent, k=k, eta=eta, what=what, advice=advice)
