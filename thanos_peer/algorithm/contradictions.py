"""Whether the methods of an objective or a regularizer contradict each other: a few words, or None if they do not.

A residual is made of what they say, and is small at a wrong answer where they are wrong. A look at a few points,
drawn from a seed, finds another function's gradient or prox. It cannot find an error elsewhere, or a tiny one.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np

from thanos_peer.algorithm.objectives import Objective
from thanos_peer.algorithm.regularizers import Regularizer
from thanos_peer.algorithm.stiefel import inner, norm, polar, proj, random_point
from thanos_peer.block import Matrix

SEED = 14
# Half of a difference's length, relative to X: where one is too short for rounding, or too long for kinks and
# curvature, another is not.
LENGTHS = (1e-4, 1e-6, 1e-3, 1e-5, 1e-2)
# Relative difference that is no contradiction: values may come from single precision.
SLOPE_TOLERANCE = 1e-2
# The same for prox, which may come from iterations.
PROX_TOLERANCE = 1e-3
# Of a value, which may come from single precision.
ROUNDING = 1e-6
# A sigma for which prox is the nearest point where g is finite; a length that is none.
TINY = 1e-12
# Multiples of X of 2-norm 1 that prox is asked at.
MULTIPLES = (0.0, 1.0, -2.0)
# Values of sigma, in units in which X is about as large as what prox takes away.
SIGMAS = (0.03, 0.3, 1.0)


def gradient_contradiction(f: Objective, n: int, p: int) -> str | None:
    """Along two curves on the manifold, whether f changes as its gradient says: beyond it f need not be known."""
    rng = np.random.default_rng(SEED)
    X = random_point(n, p, rng)
    G = f.gradient(X)
    for _ in range(2):
        V = proj(X, rng.standard_normal((n, p)))
        V *= np.sqrt(p) / max(float(norm(V)), TINY)
        said, seen = float(inner(G, V)), list(_slopes(f, X, V))
        small = 1e-6 * float(norm(G)) * np.sqrt(p)
        if not any(_agree(said, slope, small + rounding) for slope, rounding in seen):
            return f"value changes by {seen[0][0]:.3g} along a direction where gradient says {said:.3g}"
    return None


def _agree(said: float, slope: float, small: float) -> bool:
    return abs(said - slope) <= SLOPE_TOLERANCE * max(abs(said), abs(slope)) + small


def _slopes(f: Objective, X: Matrix, V: Matrix) -> Iterator[tuple[float, float]]:
    """Difference quotients of f along the curve in direction V, each with what rounding may do to it."""
    for h in LENGTHS:
        after, before = f.value(polar(X + h * V)), f.value(polar(X - h * V))
        yield (after - before) / (2 * h), 1e-14 * (abs(after) + abs(before)) / (2 * h)


def prox_contradiction(g: Regularizer, n: int, p: int) -> str | None:
    """Whether (X - P)/sigma is a subgradient of g at P = prox(X, sigma).

    Then g(Y) >= g(P) + <(X - P)/sigma, Y - P> at every Y. Those looked at are what prox returns elsewhere, that of
    X = 0 among them: so a constraint is not asked for its value beyond what it allows.
    """
    X = random_point(n, p, np.random.default_rng(SEED))
    change = abs(g.value(g.prox(X, TINY)) - g.value(g.prox(0.0 * X, TINY)))
    unit = p / change if change > 0 else 1.0
    asked = [(a * X, t * unit) for a, t in product(MULTIPLES, SIGMAS)]
    answers = [g.prox(X, sigma) for X, sigma in asked]
    values = [g.value(P) for P in answers]
    for (X, sigma), P, at_P in zip(asked, answers, values, strict=True):
        for Y, at_Y in zip(answers, values, strict=True):
            rise = float(inner(X - P, Y - P)) / sigma
            size = abs(at_P - at_Y) + float(norm(X - P) * norm(Y - P)) / sigma
            slack = PROX_TOLERANCE * size + ROUNDING * (abs(at_P) + abs(at_Y))
            if at_Y < at_P + rise - slack:
                return (
                    f"prox(X, {sigma:.3g}) is not where value plus the squared distance to X is least: value is "
                    f"{at_Y:.3g} at a point where it would be at least {at_P + rise:.3g}"
                )
    return None
