"""Polynomials of W that average faster than its powers: one factor is one round.

With u a root of the polynomial P, P(1) = 1, a round takes an agent's numbers x to

    x+ = (sum_j W_ij x_j - u x) / (1 - u),

which keeps the sum of all x, and multiplies the disagreement along an eigenvector of W by (v - u)/(1 - u), where v
is its eigenvalue. A round for each root applies P(W). Three choices of roots:

| roots | rounds | what is left of a disagreement |
|---|---|---|
| the distinct eigenvalues of W other than 1 | as many as there are | nothing |
| Chebyshev's, on the interval of the eigenvalues | any k | 1/cosh(k arccosh z) at most |
| the best for these eigenvalues | any k | the least possible |

Invariants:
1. The order of the roots decides about rounding: what a round rounds off is multiplied by all factors after it,
   and what it makes of a disagreement is the product of those before it. In sorted order rounding is all that is
   left.
2. Where eigenvalues crowd, as those of trees do, no order of the fewest roots is steady. Then a polynomial of
   lower degree is applied several times.
3. All agents must use the same roots, to the last bit, and as many. Eigenvalues differ in their last bits between
   processors, and then a number of rounds may differ by one. So one place computes the roots, or the handshake
   compares them.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thanos_peer.block import Matrix

# Eigenvalues that are closer than this count as one.
TIE = 1e-12
# Largest factor by which rounding and disagreement may grow on the way: to 2e-11 of what is mixed.
STEADY = 1e5
# How many times a polynomial is applied, at most.
MOST_TIMES = 8
# Exchanges of reference points, at most; a handful is usual.
_EXCHANGES = 200
# Slack for rounding, relative to the least possible value.
_WITHIN = 1 + 1e-9
# Halvings of an interval that has a root in it.
_HALVINGS = 60
# As good as zero, but with a logarithm.
_NOTHING = 1e-30


class Power(NamedTuple):
    """A polynomial, and how many times to apply it."""

    roots: tuple[float, ...]
    times: int

    @property
    def all_roots(self) -> tuple[float, ...]:
        """A root for each round."""
        return self.times * self.roots


def factor(u: float, mixed: Matrix, own: Matrix) -> Matrix:
    """What one round makes of an agent's own numbers and of the mixed ones, for the root u."""
    return (mixed - u * own) / (1 - u)


def distinct_eigenvalues(W: Matrix) -> Matrix:
    """The distinct eigenvalues of W other than the largest, which is 1, in increasing order.

    Equal ones that are told apart cost a round; different ones that are not spoil the average. So a tie is narrow.

    Raises:
        ValueError: The graph is not connected: 1 is an eigenvalue twice.
    """
    values, Q = np.linalg.eigh(W)
    # A Rayleigh correction makes some more of the last digits right.
    values = (values + (Q * (W @ Q - Q * values)).sum(axis=0))[:-1]
    if values.size and values[-1] > 1 - TIE:
        raise ValueError("W averages over a connected graph only")
    ends = [0, *(np.flatnonzero(np.diff(values) > TIE) + 1), len(values)]
    return np.array([values[first:end].mean() for first, end in pairwise(ends) if end > first])


def roots(W: Matrix) -> tuple[float, ...]:
    """The roots that average exactly: the distinct eigenvalues of W other than 1, in Leja order."""
    return leja_order(distinct_eigenvalues(W))


def chebyshev_roots(low: float, high: float, rounds: int) -> tuple[float, ...]:
    """The roots of Chebyshev's polynomial on [low, high], in Leja order."""
    angles = (2 * np.arange(rounds) + 1) * math.pi / (2 * rounds)
    return leja_order((high + low) / 2 + (high - low) / 2 * np.cos(angles))


def chebyshev_rounds(low: float, high: float, shrink: float) -> int:
    """After how many rounds Chebyshev's polynomial has divided every disagreement by `shrink`."""
    if shrink <= 1:
        return 0
    if high - low <= TIE:
        return 1
    z = (2 - high - low) / (high - low)
    return math.ceil(math.acosh(shrink) / math.acosh(z))


def best_polynomial(eigenvalues: Matrix, shrink: float) -> Power:
    """The fewest roots that divide every disagreement by `shrink`, and do not multiply rounding.

    Args:
        eigenvalues: The distinct ones of W other than 1, in increasing order.
        shrink: What to divide by, at least.
    """
    if shrink <= 1 or eigenvalues.size == 0:
        return Power((), 1)
    least = math.inf, Power((), 1)
    for times in range(1, MOST_TIMES + 1):
        each = shrink ** (1 / times)
        found = _fewest_roots(eigenvalues, each)
        orders = leja_order(found), steady_order(found, eigenvalues)
        growth, roots = min((amplification(eigenvalues, order), order) for order in orders)
        # Rounding may spoil a search for many roots, so the result is checked.
        is_enough = _shrinks(eigenvalues, found, each)
        least = min(least, (growth if is_enough else math.inf, Power(roots, times)))
        if least[0] <= STEADY:
            break
    return least[1]


def _fewest_roots(eigenvalues: Matrix, shrink: float) -> Matrix:
    few, enough = 0, min(len(eigenvalues), chebyshev_rounds(eigenvalues[0], eigenvalues[-1], shrink))
    while enough - few > 1:
        middle = (few + enough) // 2
        is_enough = _shrinks(eigenvalues, _best_roots(eigenvalues, middle), shrink)
        few, enough = (few, middle) if is_enough else (middle, enough)
    return _best_roots(eigenvalues, enough)


def _shrinks(eigenvalues: Matrix, chosen: Matrix, shrink: float) -> bool:
    return left_over(eigenvalues, chosen) <= _WITHIN / shrink


def left_over(eigenvalues: Matrix, chosen: Sequence[float] | Matrix) -> float:
    """The largest |P(v)| over the eigenvalues: what is left of a disagreement, at most."""
    return float(np.exp(_factors(eigenvalues, chosen).sum(axis=1)).max(initial=0.0))


def amplification(eigenvalues: Matrix, chosen: Sequence[float] | Matrix) -> float:
    """By how much the first factors multiply a disagreement, or the last ones what was rounded before them."""
    factors = _factors(eigenvalues, chosen)
    products = [np.cumsum(each, axis=1).max(initial=0.0) for each in (factors, factors[:, ::-1])]
    return math.exp(max(products))


def steady_order(values: Matrix, eigenvalues: Matrix) -> tuple[float, ...]:
    """Taken in turn for the front and for the back, so that neither they nor all others multiply much.

    Products do not depend on an order, so what all others multiply is known before they are ordered.
    """
    logs = np.maximum(_factors(eigenvalues, values), math.log(_NOTHING))
    whole, left = logs.sum(axis=1, keepdims=True), list(range(len(values)))
    ends: tuple[list[int], list[int]] = ([], [])
    for turn in range(len(values)):
        end = ends[turn % 2]
        taken = logs[:, end].sum(axis=1, keepdims=True) + logs[:, left]
        end.append(left.pop(int(np.argmin(np.maximum(taken, whole - taken).max(axis=0)))))
    front, back = ends
    return tuple(float(values[i]) for i in (*front, *reversed(back)))


def _factors(eigenvalues: Matrix, chosen: Sequence[float] | Matrix) -> Matrix:
    """The logarithms of |v - u|/(1 - u), a row for each eigenvalue v and a column for each root u."""
    u = np.asarray(chosen, dtype=np.float64)
    factors: Matrix = _logarithm(np.abs(eigenvalues[:, None] - u)) - np.log(1 - u)
    return factors


def leja_order(values: Matrix) -> tuple[float, ...]:
    """The smallest first, which is farthest from 1; then always the largest product of distances to those used."""
    return tuple(float(values[i]) for i in _leja_indices(values))


def _leja_indices(values: Matrix) -> list[int]:
    order: list[int] = []
    distances = -values  # largest for the smallest value
    for _ in values:
        order.append(int(np.argmax(distances)))
        to_last = _logarithm(np.abs(values - values[order[-1]]))
        distances = to_last if len(order) == 1 else distances + to_last
        distances[order] = -np.inf
    return order


def _best_roots(points: Matrix, k: int) -> Matrix:
    """The roots of the polynomial of degree k, 1 at 1, whose largest value at the points is least."""
    return points if k == len(points) else _levelled_roots(points[_best_reference(points, k)])


def _best_reference(points: Matrix, k: int) -> NDArray[np.intp]:
    """The k + 1 of the points at which that polynomial is largest (Remez).

    The polynomial that is +1 and -1 in turn at k + 1 points has k sign changes, one between each two of them, and
    so k + 1 runs of points with one sign. The largest value of each run gives the next k + 1 points, until nothing
    is larger than 1.
    """
    reference = np.sort(_leja_indices(points)[: k + 1])
    for _ in range(_EXCHANGES):
        values = _levelled(points[reference], points)
        values[reference] = _signs(k + 1)
        ends = [0, *(np.flatnonzero(np.diff(values >= 0)) + 1), len(points)]
        # Rounding may make or lose a sign: then the search ends, too.
        if np.abs(values).max() <= _WITHIN or len(ends) != k + 2:
            break
        runs = [first + int(np.argmax(np.abs(values[first:end]))) for first, end in pairwise(ends)]
        reference = np.array(runs)
    return reference


def _levelled(reference: Matrix, x: Matrix) -> Matrix:
    """The polynomial that is +1 and -1 in turn at the reference points, at each x (barycentric formula)."""
    distances = np.abs(reference[:, None] - reference) + np.eye(len(reference))
    logs = -np.log(distances).sum(axis=1)
    # The signs of the weights are left out: they alternate as the values do.
    weights = np.exp(logs - logs.max())
    with np.errstate(divide="ignore", invalid="ignore"):  # x may be a reference point
        terms = weights / (x[:, None] - reference)
        values: Matrix = terms.sum(axis=1) / (terms * _signs(len(reference))).sum(axis=1)
    return values


def _levelled_roots(reference: Matrix) -> Matrix:
    """Its roots, one between each two neighboring reference points, by halving."""
    low, high, sign = reference[:-1].copy(), reference[1:].copy(), _signs(len(reference))[:-1]
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_before = _levelled(reference, middle) * sign > 0
        low, high = np.where(is_before, middle, low), np.where(is_before, high, middle)
    return (low + high) / 2


def _signs(count: int) -> Matrix:
    """+1, -1, +1, ..."""
    return np.where(np.arange(count) % 2, -1.0, 1.0)


def _logarithm(distances: Matrix) -> Matrix:
    with np.errstate(divide="ignore"):  # a distance may be 0
        logs: Matrix = np.log(distances)
    return logs
