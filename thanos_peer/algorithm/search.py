"""The exact method on one machine that has the whole of f: a search that can be left off and gone on with."""

from dataclasses import dataclass, fields, replace
from typing import TypeVar

from thanos_peer.algorithm import accelerated
from thanos_peer.algorithm.accelerated import AcceleratedState
from thanos_peer.algorithm.objectives import Objective
from thanos_peer.algorithm.regularizers import Regularizer
from thanos_peer.block import Matrix

MOST = 200_000  # evaluations
_PATIENCE = ((1e-12, 100), (1e-9, 10_000), (float("inf"), 20_000))  # residual below, evaluations without a better


@dataclass(frozen=True)
class Search(AcceleratedState):
    """Where it is, and the best so far.

    Attributes:
        best: The Z with the least residual, (n, p).
        least: That residual.
        best_at: After how many evaluations there was that one.
    """

    best: Matrix
    least: Matrix
    best_at: Matrix


AnySearch = TypeVar("AnySearch", bound=Search)


def begin(X0: Matrix, lipschitz: float | None = None) -> Search:
    """Before the first evaluation; for the arguments see `accelerated.start`."""
    state = accelerated.start(X0, lipschitz)
    return Search(**arrays_of(state), best=state.Z, least=state.residual, best_at=state.iterations)


def go_on(search: AnySearch, f: Objective, g: Regularizer, tolerance: float, evaluations: int = MOST) -> AnySearch:
    """Search with so many more evaluations, or until it is over.

    Args:
        search: Where it is.
        f: The sum of all f_i.
        g: The sum of all g_i.
        tolerance: The residual to reach.
        evaluations: How many at the most.
    """
    for _ in range(evaluations):
        if is_over(search, tolerance):
            break
        told = accelerated.tell(search, f.gradient(search.Y), f.value(search.Y), g)
        search = replace(search, **arrays_of(told))
        if search.residual < search.least:
            search = replace(search, best=search.Z, least=search.residual, best_at=search.iterations)
    return search


def is_over(search: Search, tolerance: float) -> bool:
    """Whether it is at the tolerance, or has used all evaluations, or has long stopped getting better."""
    patience = next(most for below, most in _PATIENCE if search.least <= below)
    is_late = search.iterations >= MOST or search.iterations - search.best_at > patience
    return bool(search.least <= tolerance or is_late)


def answer(search: Search) -> tuple[Matrix, Matrix]:
    """The best answer, as `accelerated.answer` gives it: look at its residual, `least`."""
    return accelerated.answer(replace(search, Z=search.best))


def arrays_of(state: AcceleratedState) -> dict[str, Matrix]:
    """The arrays of the method itself, by name."""
    return {field.name: getattr(state, field.name) for field in fields(AcceleratedState)}
