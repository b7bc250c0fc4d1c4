"""The exact method on one machine that has the whole of f: a search that can be left off and gone on with."""

from dataclasses import dataclass, fields, replace
from typing import TypeVar

from thanos_peer.algorithm import accelerated
from thanos_peer.algorithm.accelerated import AcceleratedState
from thanos_peer.algorithm.objectives import Objective
from thanos_peer.algorithm.regularizers import Regularizer
from thanos_peer.block import Matrix

MOST = 200_000  # evaluations


@dataclass(frozen=True)
class Search(AcceleratedState):
    """Where it is, and the best so far.

    Attributes:
        best: The Z with the least residual, (n, p).
    """

    best: Matrix


AnySearch = TypeVar("AnySearch", bound=Search)


def begin(X0: Matrix, lipschitz: float | None = None) -> Search:
    """Before the first evaluation; for the arguments see `accelerated.start`."""
    state = accelerated.start(X0, lipschitz)
    return Search(**arrays_of(state), best=state.Z)


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
        is_best = told.least_at == told.iterations
        search = replace(search, **arrays_of(told), best=told.Z if is_best else search.best)
    return search


def is_over(search: Search, tolerance: float) -> bool:
    """Whether it is at the tolerance, or has used all evaluations, or has long stopped getting better."""
    return bool(search.iterations >= MOST) or accelerated.is_over(search, tolerance)


def answer(search: Search) -> tuple[Matrix, Matrix]:
    """The best answer, as `accelerated.answer` gives it: look at its residual, `least`."""
    return accelerated.answer(replace(search, Z=search.best))


def arrays_of(state: AcceleratedState, kind: type[AcceleratedState] = AcceleratedState) -> dict[str, Matrix]:
    """The arrays of the method itself, by name; or all those of a kind of state."""
    return {field.name: getattr(state, field.name) for field in fields(kind)}
