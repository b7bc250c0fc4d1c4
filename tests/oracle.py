"""THANOS a second time, straight from the paper's equations: all agents stacked, a dense W, numpy only.

Then the methods that it is compared with, agent by agent. It shares no code with the package on purpose, and
prefers the papers' notation to speed.
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
        """Round 0, in which all agents stand at X0."""
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


def polar_of(Y: np.ndarray) -> np.ndarray:
    """Y (Y'Y)^(-1/2), the nearest matrix with orthonormal columns."""
    values, vectors = np.linalg.eigh(Y.T @ Y)
    return Y @ vectors @ np.diag(values**-0.5) @ vectors.T


def tangent(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """What Y is in the tangent space at X."""
    return Y - X @ (X.T @ Y + Y.T @ X) / 2


def l1_slope(X: np.ndarray, weight: float, sigma: float) -> np.ndarray:
    """The gradient of the Moreau envelope of weight * ||X||_1."""
    return np.clip(X / sigma, -weight, weight)


def gradients(A_parts: Sequence[np.ndarray], X: Sequence[np.ndarray], weight=0.0, sigma=1.0) -> list[np.ndarray]:
    """All agents' Riemannian gradients of f_i + the envelope of weight * ||X||_1."""
    return [tangent(X_i, -A @ A.T @ X_i + l1_slope(X_i, weight, sigma)) for A, X_i in zip(A_parts, X, strict=True)]


def mixed(W: np.ndarray, X: Sequence[np.ndarray]) -> list[np.ndarray]:
    """sum_j W_ij X_j for all i."""
    return [sum(w * X_j for w, X_j in zip(row, X, strict=True)) for row in W]


def drgta(A_parts, W, X0, iterations, *, a, b, t, weight=0.0, sigma=1.0) -> tuple[np.ndarray, np.ndarray]:
    """All X and S of DRGTA after some iterations of t mixings each."""
    V, X = np.linalg.matrix_power(W, t), [X0] * len(A_parts)
    G = S = gradients(A_parts, X, weight, sigma)
    for _ in range(iterations):
        pulls = [tangent(X_i, mean - X_i) for X_i, mean in zip(X, mixed(V, X), strict=True)]
        X = [polar_of(X_i + a * pull - b * tangent(X_i, S_i)) for X_i, pull, S_i in zip(X, pulls, S, strict=True)]
        before, G = G, gradients(A_parts, X, weight, sigma)
        S = [mean + new - old for mean, new, old in zip(mixed(V, S), G, before, strict=True)]
    return np.array(X), np.array(S)


def dprgt(A_parts, W, X0, iterations, *, a, weight=0.0, sigma=1.0) -> tuple[np.ndarray, np.ndarray]:
    """All X and S of DPRGT."""
    X = [X0] * len(A_parts)
    G = S = gradients(A_parts, X, weight, sigma)
    for _ in range(iterations):
        X = [polar_of(mean - a * tangent(*own)) for mean, *own in zip(mixed(W, X), X, S, strict=True)]
        before, G = G, gradients(A_parts, X, weight, sigma)
        S = [mean + new - old for mean, new, old in zip(mixed(W, S), G, before, strict=True)]
    return np.array(X), np.array(S)


def dprgd(A_parts, W, X0, iterations, *, b, weight=0.0, sigma=1.0) -> np.ndarray:
    """All X of DPRGD with steps b / sqrt(k + 1)."""
    X = [X0] * len(A_parts)
    for k in range(iterations):
        G = gradients(A_parts, X, weight, sigma)
        X = [polar_of(mean - b / np.sqrt(k + 1) * own) for mean, own in zip(mixed(W, X), G, strict=True)]
    return np.array(X)


def drsm(A_parts, W, X0, iterations, *, a, b, weight) -> np.ndarray:
    """All X of the Riemannian subgradient method with steps b / sqrt(k + 1)."""
    X = [X0] * len(A_parts)
    for k in range(iterations):
        slopes = [-A @ A.T @ X_i + weight * np.sign(X_i) for A, X_i in zip(A_parts, X, strict=True)]
        X = [
            polar_of(X_i + a * tangent(X_i, mean - X_i) - b / np.sqrt(k + 1) * tangent(X_i, slope))
            for X_i, mean, slope in zip(X, mixed(W, X), slopes, strict=True)
        ]
    return np.array(X)


def minibatch(seed: int, agent: int, k: int, m: int) -> np.ndarray:
    """Which ceil(sqrt(m)) of m samples an agent draws in round k."""
    numbers = np.random.PCG64(np.random.SeedSequence((seed, agent, k))).random_raw(int(np.ceil(np.sqrt(m))))
    return np.array([int(number) % m for number in numbers])


def vrsgt(
    A_parts, W, X0, rounds, *, beta, eta, period, seed, is_reduced=True, weight=0.0, sigma=1.0
) -> tuple[np.ndarray, np.ndarray]:
    """All X and D of VRSGT; without reduction the gradient is that of the few samples, in every round."""
    X = np.array([X0] * len(A_parts))
    G = [-A @ A.T @ X0 for A in A_parts]
    H = D = H_of(X, np.array(G) + l1_slope(X, weight, sigma), beta)
    for k in range(1, rounds + 1):
        before, X = X, np.array(mixed(W, X - eta * D))
        for i, A in enumerate(A_parts):
            few = A[:, minibatch(seed, i, k, A.shape[1])]
            estimate = -A.shape[1] / few.shape[1] * few @ few.T
            G[i] = G[i] + estimate @ (X[i] - before[i]) if is_reduced else estimate @ X[i]
            if k % period == 0:
                G[i] = -A @ A.T @ X[i]
        H_before, H = H, H_of(X, np.array(G) + l1_slope(X, weight, sigma), beta)
        D = np.array(mixed(W, D)) + H - H_before
    return X, D
