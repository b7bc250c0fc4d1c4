"""The best answer of the starts so far: what methods that search from several starts keep."""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from thanos_peer.algorithm.solving import rank
from thanos_peer.block import Matrix


@dataclass(frozen=True)
class Kept:
    """How far the search from several starts is, and what came of those before.

    Attributes:
        sums: How many sums are over.
        number: Which start this is.
        kept: The best answer of the starts before, (n, p).
        lowest: Its objective.
        kept_residual: Its residual.
    """

    sums: Matrix
    number: Matrix
    kept: Matrix
    lowest: Matrix
    kept_residual: Matrix


AnyKept = TypeVar("AnyKept", bound=Kept)


def nothing_kept(start: Matrix) -> dict[str, Matrix]:
    """The arrays of it before the first start, by name."""
    zero, infinite = np.zeros(()), np.array(np.inf)
    return {"sums": zero, "number": zero, "kept": start, "lowest": infinite, "kept_residual": infinite}


def with_best(state: AnyKept, sparse: Matrix, objective: float, residual: float, tolerance: float) -> AnyKept:
    """With the answer of this start, if it is the best so far."""
    before = rank(float(state.kept_residual), float(state.lowest), tolerance)
    if rank(residual, objective, tolerance) >= before:
        return state
    return replace(state, kept=sparse, lowest=np.asarray(objective), kept_residual=np.asarray(residual))
