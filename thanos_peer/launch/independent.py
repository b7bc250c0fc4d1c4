"""A judge of answers that shares no code with the rest of the package: numpy, and the definitions.

The problem: minimise -tr(X'CX)/2 + mu r(X) over X of (n, p) with X'X = I, where C = AA' of all samples together.
X is stationary if there are a subgradient s of mu r at X and a symmetric S with -CX + s + XS = 0. The residual is
the least norm of that sum over all s and S, divided by ||A||_2^2, or by the usual size of an entry of s if that is
larger. That size is mu for l1, mu/sqrt(p) for rows, and mu sqrt(groups/(np)) for groups:

    l1      s is mu sign(x) where an entry x of X is not 0, and anything in [-mu, mu] where it is
    l21     the same with rows x: mu x/||x|| where a row is not 0, and anything of norm mu at most where it is;
            or with groups of rows, where some are named
    none    s = 0

It is an upper bound however early its minimisation ends: a small residual is never an error of the judge.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Matrix: TypeAlias = NDArray[np.float64]
Groups: TypeAlias = Sequence[Sequence[int]]

# Steps of Newton's method, at most; it rarely takes more than 20.
_STEPS = 300
_HALVINGS = 40


@dataclass(frozen=True)
class Worth:
    """What an answer is worth.

    Attributes:
        feasibility: ||X'X - I||_F.
        objective: Of the orthonormal matrix nearest to X, divided by ||A||_2^2.
        residual: The distance from stationarity, relative to ||A||_2^2 or to mu: see above.
    """

    feasibility: float
    objective: float
    residual: float


def filled(rows: Matrix) -> Matrix:
    """All samples together, (m, n), with the mean of what is there wherever a value is missing."""
    return np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows)


def prepared(parts: Sequence[Matrix], *, center: bool, scale: bool) -> Matrix:
    """All samples together, a column per sample, (n, m), centered and scaled by their own mean and deviation."""
    rows = np.concatenate(parts)
    moved = rows - rows.mean(axis=0) if center else rows
    return (moved / rows.std(axis=0) if scale else moved).T


def worth_of(A: Matrix, X: Matrix, regularizer: str, mu: float, groups: Groups = ()) -> Worth:
    """What X of (n, p) is worth for samples A of (n, m), already divided by whatever mu refers to.

    The groups of rows are those of "group-l21"; a row in none of them is a group of its own.
    """
    size = float(np.linalg.norm(A, 2)) ** 2
    C, weight = A @ A.T / size, mu / size
    entry = 0.0
    if regularizer != "none":
        entry = weight * float(np.sqrt(len(_places(X, regularizer, groups)) / X.size))
    U, _, Vt = np.linalg.svd(X, full_matrices=False)
    nearest = U @ Vt
    value = -float(np.sum(nearest * (C @ nearest))) / 2
    return Worth(
        feasibility=float(np.linalg.norm(X.T @ X - np.eye(X.shape[1]))),
        objective=value + weight * regularizer_value(nearest, regularizer, groups),
        residual=stationarity(C, X, regularizer, weight, groups) / max(1.0, entry),
    )


def regularizer_value(X: Matrix, regularizer: str, groups: Groups = ()) -> float:
    """r(X): the sum of the norms of its groups."""
    if regularizer == "none":
        return 0.0
    return float(np.linalg.norm(_taken(X, _places(X, regularizer, groups)), axis=1).sum())


def stationarity(C: Matrix, X: Matrix, regularizer: str, mu: float, groups: Groups = ()) -> float:
    """The least ||-CX + s + XS||_F over subgradients s of mu r at X and symmetric S.

    For a given S the best s is known: where it is free, it takes away from V = -CX + XS what it can, up to a norm
    of mu in each group. What is left is a convex function of the p(p + 1)/2 entries of S alone. Newton's method
    with halved steps minimises it.
    """
    weight = 0.0 if regularizer == "none" else mu
    places = _places(X, regularizer, groups)
    basis = np.stack([_taken(each, places) for each in _products_with_symmetric(X)], axis=2)
    parts = _taken(X, places)
    lengths = np.linalg.norm(parts, axis=1, keepdims=True)
    is_free = lengths == 0
    fixed = weight * parts / np.where(is_free, 1.0, lengths)
    offset = _taken(-C @ X, places) + fixed
    distance = _Distance(offset, basis, is_free[:, 0], weight)
    flat = basis.reshape(offset.size, -1)
    start: Matrix = np.linalg.lstsq(flat, -offset.ravel(), rcond=None)[0].astype(np.float64)
    return _least(distance, start)


def _places(X: Matrix, regularizer: str, groups: Groups) -> NDArray[np.intp]:
    """What is zero or not as a whole, a row each: where its entries are in X, row by row, or X.size for none."""
    entries = np.arange(X.size).reshape(X.shape)
    if regularizer not in ("l21", "group-l21"):
        return entries.reshape(-1, 1)
    named = [list(group) for group in groups]
    alone = [[row] for row in range(len(X)) if not any(row in group for group in named)]
    places = np.full((len(named) + len(alone), max(map(len, [*named, *alone])) * X.shape[1]), X.size)
    for number, group in enumerate([*named, *alone]):
        places[number, : len(group) * X.shape[1]] = entries[group].ravel()
    return places


def _taken(E: Matrix, places: NDArray[np.intp]) -> Matrix:
    """The entries of E at these places, and 0 where there is none."""
    return np.append(E, 0.0)[places]


def _products_with_symmetric(X: Matrix) -> list[Matrix]:
    """XS for each S of an orthonormal basis of the symmetric matrices, p(p + 1)/2 of them."""
    p = X.shape[1]
    products = []
    for a in range(p):
        for b in range(a, p):
            S = np.zeros((p, p))
            S[a, b] = S[b, a] = 1.0 if a == b else np.sqrt(0.5)
            products.append(X @ S)
    return products


@dataclass(frozen=True, eq=False)
class _Distance:
    """Half the squared norm of what the best s leaves of V = offset + sum_k y_k basis_k, as a function of y.

    Attributes:
        offset: V for y = 0, (groups, size).
        basis: What V changes by, (groups, size, q).
        is_free: Where s is not given by X, (groups,).
        mu: The most that s can take away there.
    """

    offset: Matrix
    basis: Matrix
    is_free: NDArray[np.bool_]
    mu: float

    def left(self, y: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        """What is left of V, and V, (groups, size) both; and the share that is left of each group, (groups,)."""
        V = self.offset + self.basis @ y
        lengths = np.linalg.norm(V, axis=1)
        with np.errstate(over="ignore"):
            taken = np.minimum(1.0, self.mu / np.maximum(lengths, np.finfo(np.float64).tiny))
        share = np.where(self.is_free, 1.0 - taken, 1.0)
        return share[:, None] * V, V, share

    def value(self, y: Matrix) -> float:
        """Half the squared norm."""
        return float(np.square(self.left(y)[0]).sum()) / 2

    def derivatives(self, y: Matrix) -> tuple[Matrix, Matrix]:
        """The gradient, (q,), and the Hessian, (q, q), where there is one; else one of its limits."""
        rest, V, share = self.left(y)
        flat = self.basis.reshape(-1, len(y))
        # mu/||v||, where mu does not take all of v.
        bent = np.where(self.is_free & (share > 0), 1.0 - share, 0.0)
        units = V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        along = np.einsum("gk,gkq->gq", units, self.basis)
        straight = flat.T @ (np.repeat(share, V.shape[1])[:, None] * flat)
        return flat.T @ rest.ravel(), straight + along.T @ (bent[:, None] * along)


def _least(distance: _Distance, y: Matrix) -> float:
    """The least norm of what is left, from y."""
    value, floor = distance.value(y), 1e-31 * (1 + float(np.square(distance.offset).sum()))
    for _ in range(_STEPS):
        gradient, hessian = distance.derivatives(y)
        slope = float(np.linalg.norm(gradient))
        damping = max(1e-3 * min(slope, 1.0), 1e-15)
        step = -np.linalg.solve(hessian + damping * np.eye(len(y)), gradient)
        for halving in range(_HALVINGS):
            tried = y + 0.5**halving * step
            after = distance.value(tried)
            if after <= value + 1e-4 * 0.5**halving * float(gradient @ step):
                break
        else:
            break  # no further within rounding
        is_last = after > (1 - 1e-9) * value or after < floor
        y, value = tried, after
        if is_last:
            break
    return float(np.sqrt(2 * value))
