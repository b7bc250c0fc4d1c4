"""Condition 1 of the paper: parameters for which convergence is proved.

They are far on the safe side: `thanos-peer topology check` prints them for the paper's own network, where they ask
for a beta of tens of thousands and a step below 1e-15, while the paper and this project use beta = 1 and
Barzilai-Borwein steps. Good for proofs and for comparing networks, not for choosing parameters.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What Condition 1 is written in.

    Attributes:
        d: Agents.
        p: Columns of X.
        L_f: The largest Lipschitz constant of a gradient of f_i.
        L_g: The largest Lipschitz constant of a g_i.
        M_f: The largest gradient of any f_i within `gradient_radius(d, p)` of zero.
        sigma: The smoothing parameter.
        lambda_: ||W - 11'/d||_2.
    """

    d: int
    p: int
    L_f: float
    L_g: float
    M_f: float
    sigma: float
    lambda_: float


def gradient_radius(d: int, p: int) -> float:
    """The radius of the ball on which M_f is taken."""
    return math.sqrt(7 * d * p / 6) + math.sqrt(d)


def beta_bound(c: Constants) -> float:
    """beta must be larger than this (Condition 1, i)."""
    M_g = 3 * (c.M_f + c.L_g) * (7 * c.d * c.p + 6 * c.d + 3) / 6
    return max(
        (6 + 21 * (c.M_f + c.L_g)) / 5,
        72 * (4 + 3 * M_g) / 5,
        1 / (7 * c.d * c.p + 6 * c.d),
        22 * (c.L_f + 1 / c.sigma) ** 2,
    )


def eta_bound(c: Constants, beta: float) -> float:
    """A constant step must be smaller than this (Condition 1, ii)."""
    L_r = 7 * c.d * c.p * (c.L_f + 1 / c.sigma) + 6 * c.d + 3
    return c.d * (1 - c.lambda_**2) / (48 * (L_r + (7 * c.d * c.p + 6 * c.d) * beta) ** 2)
