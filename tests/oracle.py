"""THANOS a second time, straight from the paper's equations: all agents stacked, a dense W, numpy only.

It shares no code with the package on purpose, and prefers the paper's notation to speed.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np


class OracleRound(NamedTuple):
    """All X_i, D_i and H_i of a round, (d, n, p), and the step sizes eta_i with which it is left, (d,)."""

    X: np.ndarray
    D: np.ndarray
    H: np.ndarray
    eta: np.ndarray


def metropolis(d: int, edges: Iterable[Sequence[int]]) -> np.ndarray:
    """W(i, j) = 1/(1 + max(deg_i, deg_j)) on edges, the rest of each row on the diagonal."""
    is_edge = np.zeros((d, d))
    for i, j in edges:
        is_edge[i, j] = is_edge[j, i] = 1
    degree = is_edge.sum(axis=0)
    W = is_edge / (1 + np.maximum.outer(degree, degree))
    return W + np.diag(1 - W.sum(axis=1))


def prox_l1(X: np.ndarray, threshold: float) -> np.ndarray:
    """Of threshold * ||X||_1, the sum of absolute entries (9)."""
    return np.sign(X) * np.maximum(np.abs(X) - threshold, 0)


def prox_l21(X: np.ndarray, threshold: float) -> np.ndarray:
    """Of threshold * ||X||_{2,1}, the sum of row norms (10)."""
    lengths = np.linalg.norm(X, axis=-1, keepdims=True)
    units = X / np.where(lengths == 0, 1, lengths)
    return units * np.maximum(lengths - threshold, 0)


PROX = {"l1": prox_l1, "l21": prox_l21, "none": lambda X, _: X}


def sigma_rule(smoothing: tuple) -> Callable[[int], float]:
    """("constant", sigma) or ("decreasing", sigma0, exponent)."""
    if smoothing[0] == "constant":
        return lambda _: smoothing[1]
    return lambda k: smoothing[1] / max(1, k) ** smoothing[2]


def H_of(X: np.ndarray, G: np.ndarray, beta: float) -> np.ndarray:
    """(6) term by term, agent by agent."""
    identity = np.eye(X.shape[-1])
    H = []
    for X_i, G_i in zip(X, G, strict=True):
        penalty = beta * X_i @ (X_i.T @ X_i - identity)
        sym = (X_i.T @ G_i + (X_i.T @ G_i).T) / 2
        R_i = 0.5 * G_i @ (3 * identity - X_i.T @ X_i) - X_i @ sym
        H.append(penalty + R_i)
    return np.array(H)


def short_step(S: np.ndarray, J: np.ndarray, first: float) -> np.ndarray:
    """|<S_i, J_i>| / <J_i, J_i>, and `first` where J_i = 0."""
    curvature = np.einsum("inp,inp->i", J, J)
    is_flat = curvature == 0
    return np.where(is_flat, first, np.abs(np.einsum("inp,inp->i", S, J)) / np.where(is_flat, 1, curvature))


class Oracle:
    """Agents with A_i of (n, m_i) on a graph.

    Args:
        A_parts: The A_i; there are d of them.
        edges: Of the graph on 0..d-1.
        mu: Weight of the regularizer; each agent's g_i has mu/d.
        regularizer: "l1", "l21" or "none".
        beta: Penalty parameter.
        step: ("constant", eta) or ("bb", first).
        smoothing: ("constant", sigma) or ("decreasing", sigma0, exponent).
        recompute_H: A known mistake: in (7), evaluate H^(k) once more with sigma^(k+1).
    """

    def __init__(
        self,
        A_parts: Sequence[np.ndarray],
        edges: Iterable[Sequence[int]],
        *,
        mu: float,
        regularizer: str,
        beta: float,
        step: tuple,
        smoothing: tuple,
        recompute_H: bool = False,
    ) -> None:
        self.A_parts, self.d = A_parts, len(A_parts)
        self.W = metropolis(self.d, edges)
        self.prox, self.mu, self.beta = PROX[regularizer], mu, beta
        self.step, self.sigma_at = step, sigma_rule(smoothing)
        self.recompute_H = recompute_H

    def H_at(self, X: np.ndarray, sigma: float) -> np.ndarray:
        """All H_i at X_i."""
        gradients = np.array([-A_i @ A_i.T @ X_i for A_i, X_i in zip(self.A_parts, X, strict=True)])
        return H_of(X, gradients + (X - self.prox(X, sigma * self.mu / self.d)) / sigma, self.beta)

    def first(self, X0: np.ndarray) -> OracleRound:
        """Round 0, in which everybody stands at X0."""
        X = np.stack([X0] * self.d)
        H = self.H_at(X, self.sigma_at(0))
        return OracleRound(X, H, H, np.full(self.d, self.step[1]))

    def after(self, now: OracleRound, k: int) -> OracleRound:
        """Round k + 1, from round k."""
        X = np.einsum("ij,jnp->inp", self.W, now.X - now.eta[:, None, None] * now.D)
        H = self.H_at(X, self.sigma_at(k + 1))
        H_before = self.H_at(now.X, self.sigma_at(k + 1)) if self.recompute_H else now.H
        D = np.tensordot(self.W, now.D, axes=1) + H - H_before
        eta = now.eta if self.step[0] == "constant" else short_step(X - now.X, D - now.D, self.step[1])
        return OracleRound(X, D, H, eta)


def run_oracle(oracle: Oracle, X0: np.ndarray, rounds: int) -> list[OracleRound]:
    """Rounds 0 to `rounds` from the common start X0."""
    history = [oracle.first(X0)]
    for k in range(rounds):
        history.append(oracle.after(history[-1], k))
    return history
