"""The leading singular vectors of all samples, by exact sums: a block Krylov method at the root of the tree.

Each sum is AA'Q for a block Q of p orthonormal columns. The root keeps all blocks and what came of them, and asks
for the residual of its best guess next. After n/p sums at the latest it knows AA' on the whole space. Mostly the
residual is down to rounding much earlier.
"""

from dataclasses import dataclass

import numpy as np

from thanos_peer.algorithm.faults import orthonormal_fault, parts_fault, size_fault
from thanos_peer.algorithm.fixed_point import FixedPoint
from thanos_peer.algorithm.method import Smooth
from thanos_peer.algorithm.pooling import Layout
from thanos_peer.algorithm.ritz import TIE, leading_vectors
from thanos_peer.algorithm.stiefel import sym
from thanos_peer.block import Matrix

# Numbers of sums, as benchmarks/typical_sums.py prints them: the mean over random problems with n of 100 and more;
# and, for noise, whose leading eigenvalues are close, the cube of the sums per n/p.
TYPICAL, CUBE_OF_NOISE = 15, 800
# Largest residual at the end, relative to the largest eigenvalue: hardly more than rounding.
ENOUGH = 1e-12


@dataclass(frozen=True)
class LeadingState:
    """What the root knows: an orthonormal basis, (n, m); AA' times it; and the block that it asked for, (n, p)."""

    basis: Matrix
    image: Matrix
    asked: Matrix


class Leading:
    """Finds the p leading eigenvectors of AA', and the eigenvalues.

    Args:
        f: This agent's f_i, sparse PCA.
        start: An orthonormal block to begin with, (n, p), in general position; also the signs are like its.
        bound: ||A||_F^2 of all samples.
        d: How many agents there are.
    """

    def __init__(self, f: Smooth, start: Matrix, bound: float, d: int) -> None:
        self._f, self._start, self._shape = f, start, start.shape
        # The bound is a rounded number itself, so twice as much is allowed.
        self._total, self.bound = bound, 2 * bound
        self.format = FixedPoint.within(self.bound, d)

    @staticmethod
    def layout(n: int, p: int) -> Layout:
        """AA'Q up; down whether this is the last word, the eigenvalues, and the vectors or the next block."""
        return Layout("int128", n * p, 1 + p + n * p)

    @staticmethod
    def most(n: int, p: int) -> int:
        """Sums, at the most."""
        return -(-n // p) + 1

    @classmethod
    def typical_sums(cls, n: int, p: int, *, is_noise: bool) -> int:
        """How many sums to expect, the same whole number on every processor; more of samples that are noise."""
        most = cls.most(n, p)
        if not is_noise:
            return min(most, TYPICAL)
        return next((sums for sums in range(1, most) if sums**3 * p >= CUBE_OF_NOISE * n), most)

    def numbers(self, word: Matrix | None) -> Matrix:
        """A_iA_i'Q."""
        Q = self._start if word is None else self.vectors(word)
        return -self._f.gradient(Q)

    def begin(self) -> LeadingState:
        """Nothing is known."""
        nothing = np.empty((self._shape[0], 0))
        return LeadingState(nothing, nothing, self._start)

    def decide(self, state: LeadingState, sums: Matrix) -> tuple[LeadingState, Matrix]:
        """The best guess by Rayleigh and Ritz; it is the answer, or its residual is the next block."""
        n, p = self._shape
        is_new = state.asked.any(axis=0)
        V = np.hstack([state.basis, state.asked[:, is_new]])
        CV = np.hstack([state.image, sums.reshape(n, p)[:, is_new]])
        _, Y = np.linalg.eigh(sym(V.T @ CV))
        top = Y[:, ::-1][:, :p]
        X = V @ top
        M = sym(X.T @ (CV @ top))
        R = CV @ top - X @ M
        vectors, values = leading_vectors(X, M, self._start, tie=TIE)
        is_last = V.shape[1] >= n or np.abs(R).max() <= ENOUGH * max(values[0], 0.0)
        asked = vectors if is_last else _orthonormal_to(V, R)
        word = np.concatenate([[float(is_last)], values, asked.ravel()])
        return LeadingState(V, CV, asked), word

    def is_last(self, word: Matrix) -> bool:
        """Whether it holds the vectors."""
        return bool(word[0])

    def has_converged(self, word: Matrix) -> bool:
        """It always comes to that."""
        return self.is_last(word)

    def sum_fault(self, sums: Matrix) -> str | None:  # noqa: ARG002
        """Nothing but the bound is known."""
        return None

    def word_fault(self, word: Matrix) -> str | None:
        """No eigenvalue is more than the sum of all; vectors are orthonormal, or none where there is no room."""
        values, Q = self.values(word), self.vectors(word)
        if word[0] not in (0.0, 1.0):
            return f"whether it is the last is {word[0]:g}, not 0 or 1"
        fault = parts_fault("the eigenvalues", values, self._total)
        if self.is_last(word):
            fault = fault or size_fault(float(values[0]), self._total, self._shape[0])
        else:
            Q = Q[:, Q.any(axis=0) | (np.arange(len(values)) == 0)]
        return fault or orthonormal_fault("the block of vectors", Q)

    def values(self, word: Matrix) -> Matrix:
        """The eigenvalues, largest first: (p,)."""
        return word[1 : 1 + self._shape[1]]

    def vectors(self, word: Matrix) -> Matrix:
        """The vectors, or the block asked for, (n, p)."""
        return word[1 + self._shape[1] :].reshape(self._shape)


def _orthonormal_to(V: Matrix, R: Matrix) -> Matrix:
    """p orthonormal columns beside V that span R as far as it goes; zero columns where there is no room for p."""
    n, p = R.shape
    room = min(p, n - V.shape[1])
    # Random columns follow, where R has not enough directions.
    others = np.random.default_rng(V.shape[1]).standard_normal((n, p))
    found = np.empty((n, 0))
    for column in np.hstack([R / (np.abs(R).max() or 1.0), others]).T:
        if found.shape[1] == room:
            break
        rest = column
        for _ in range(3):
            rest = rest - V @ (V.T @ rest)
            rest = rest - found @ (found.T @ rest)
        length = np.linalg.norm(rest)
        if length > 1e-8 * np.linalg.norm(column) and length > 1e-14:
            found = np.column_stack([found, rest / length])
    return np.hstack([found, np.zeros((n, p - found.shape[1]))])
