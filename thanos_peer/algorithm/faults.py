"""What is wrong with numbers that another peer has computed: a few words, or None for nothing."""

import numpy as np

from thanos_peer.algorithm.stiefel import infeasibility
from thanos_peer.block import Matrix

# Largest relative difference between two ways to compute the same number.
ROUNDING = 1e-9
# Numbers below this have fewer digits.
TINIEST = float(np.finfo(np.float64).tiny)
# A point nearer to the manifold than this counts as on it.
FEASIBLE = 1e-9


def range_fault(what: str, number: float, least: float, most: float) -> str | None:
    """What is wrong with a number that has to be from `least` to `most`, up to rounding; None for nothing."""
    is_enough = number >= least or least - number <= ROUNDING * abs(least) + TINIEST
    is_not_more = number <= most or number - most <= ROUNDING * abs(most) + TINIEST
    is_right = is_enough and is_not_more
    return None if is_right else f"{what} is {number:.6g}, not from {least:.6g} to {most:.6g}"


def size_fault(size: float, total: float, n: int) -> str | None:
    """What is wrong with ||A||_2^2, where ||A||_F^2 is `total` and A has n rows."""
    return range_fault("||A||_2^2", size, total / n, total) or (None if size > 0 else "||A||_2^2 is not positive")


def parts_fault(what: str, parts: Matrix, total: float) -> str | None:
    """What is wrong with parts of a total: none is negative, and together they are no more."""
    least = range_fault(f"the least of {what}", float(parts.min()), -ROUNDING * total, total)
    return least or range_fault(f"the sum of {what}", float(parts.sum()), -total, total)


def orthonormal_fault(what: str, X: Matrix) -> str | None:
    """What is wrong with a matrix that has to have orthonormal columns."""
    off = float(infeasibility(X))
    return None if off <= FEASIBLE else f"{what} is {off:.3g} away from orthonormal columns"
