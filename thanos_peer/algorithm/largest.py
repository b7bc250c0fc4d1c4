"""How large the largest of all agents' ||A_i||_2^2 is, by a sum: what the steps of some methods depend on.

A maximum is no sum, but the eighth root of a sum of eighth powers is too large by at most d^(1/8). The norms are
divided by the size of all samples where that is known before. Where it is not, and the samples so large or small
that the powers may have left the numbers, ||A||_F^2 stands for the maximum.
"""

import numpy as np

from thanos_peer.algorithm.faults import range_fault
from thanos_peer.algorithm.method import Setup
from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.algorithm.pooling import Layout, Sum

POWER = 8
# Eighth powers of numbers between these have all their digits.
LEAST, MOST = 1e-37, 1e37


def share_of_norms(setup: Setup) -> float:
    """This agent's part of the sum; 0 where it is beyond all numbers."""
    assert isinstance(setup.f, SparsePCA), "checked when the file was loaded"  # noqa: S101
    power = np.float64(setup.f.lipschitz() / (setup.size or 1.0)) ** POWER
    return float(power) if np.isfinite(power) else 0.0


def largest_of(setup: Setup, total: float) -> float:
    """The bound that follows from the sum."""
    bound, n = _bound(setup), setup.start.shape[0]
    if setup.size is None and not (bound / (n * setup.d) >= LEAST and bound <= MOST):
        return bound
    return float((setup.size or 1.0) * total ** (1 / POWER))


def norms_fault(setup: Setup, total: float) -> str | None:
    """What is wrong with the sum."""
    return largest_fault(setup, largest_of(setup, max(total, 0.0)))


def largest_fault(setup: Setup, largest: float) -> str | None:
    """What is wrong with the bound: ||A_i||_2^2 is from ||A_i||_F^2 / n to ||A_i||_F^2, whose sum is known."""
    bound, n = _bound(setup), setup.start.shape[0]
    return range_fault("the largest ||A_i||_2^2", largest, bound / (n * setup.d), bound * setup.d ** (1 / POWER))


def _bound(setup: Setup) -> float:
    assert setup.bound is not None, "it is for sparse PCA"  # noqa: S101
    return setup.bound


class Largest(Sum):
    """The sum by itself: all agents are told the bound."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(
            lambda: np.array([share_of_norms(setup)]),
            lambda sums: np.array([largest_of(setup, sums[0])]),
            sum_fault=lambda sums: norms_fault(setup, float(sums[0])),
            word_fault=lambda word: largest_fault(setup, float(word[0])),
        )

    @staticmethod
    def layout(n: int, p: int, d: int) -> Layout:  # noqa: ARG004
        """One number up, one down."""
        return Layout("int2112", 1, 1)
