"""How this machine rounds, in one line: two that differ in it may come to other bits from the same samples.

Sums need no such thing, as their numbers are whole. But what a peer adds to them is of its own rounding, and where
sums are masked, a key stream must not hide two lists of numbers that differ in a bit.
"""

import hashlib
import platform
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thanos_peer import __version__

# Shapes for which libraries take different ways: they work in blocks, and small matrices have code of their own.
_SHAPES = ((3, 7), (24, 100), (96, 257))
_GOLDEN = 0.6180339887498949


def fingerprint() -> str:
    """The processor's kind, versions of this program and numpy, and a digest of what some computations come to."""
    digest = hashlib.sha256()
    for rows, columns in _SHAPES:
        for result in _results(rows, columns):
            digest.update(result.astype("<f8").tobytes())
    return f"{platform.machine()}, thanos-peer {__version__}, numpy {np.__version__}, {digest.hexdigest()[:16]}"


def _results(rows: int, columns: int) -> tuple[NDArray[Any], ...]:
    """Of products, decompositions and functions, whose last bits depend on the processor and its libraries."""
    # Rounded alike everywhere: one product, one remainder and one difference for each number.
    A = (np.arange(1.0, rows * columns + 1) * _GOLDEN % 1.0 - 0.5).reshape(rows, columns)
    C, Q = A @ A.T, A[:, :3]
    values, vectors = np.linalg.eigh(C)
    return (
        C,
        A.T @ Q,
        A @ (A.T @ Q),
        A @ A[0],
        np.array([np.sum(A), np.sum(A * A), np.linalg.norm(A), np.vdot(A, A)]),
        values,
        vectors,
        *np.linalg.qr(Q),
        *np.linalg.svd(A, full_matrices=False),
        np.linalg.solve(C + np.eye(rows), Q),
        np.exp(A),
        np.log(A + 1.0),
        (A + 1.0) ** 0.3,
        np.tanh(A),
    )
