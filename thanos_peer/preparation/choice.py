"""Which answer of a path is the result: by a rule of the file, applied to a table that all agents have."""

from dataclasses import dataclass, replace

import numpy as np

from thanos_peer.algorithm.faults import ROUNDING
from thanos_peer.block import Matrix
from thanos_peer.convergence import of_findings
from thanos_peer.phases import Found
from thanos_peer.preparation.own import known, weights_of
from thanos_peer.topology import Topology

# The columns of `Found.table`: these, and then what each component adds to what is explained.
COLUMNS = 4
RESIDUAL, WEAKEST, OBJECTIVE, EXPLAINED = range(COLUMNS)


@dataclass(frozen=True)
class PathRow:
    """What there is to say of one answer of a path.

    Attributes:
        mu: The weight.
        nonzeros: How many entries of each component are not zero.
        explained: The share of all variance that the sparse components explain together.
        adjusted: What each adds to those before it, adjusted for what they have in common.
        objective: The value of the problem with this weight.
        residual: The certified residual.
        has_converged: Whether it has; None where nothing is judged.
        is_chosen: Whether it is the result.
    """

    mu: float
    nonzeros: list[int]
    explained: float
    adjusted: list[float]
    objective: float
    residual: float
    has_converged: bool | None
    is_chosen: bool


@dataclass(frozen=True)
class Account:
    """What helps to choose mu and p.

    Attributes:
        mu: The weight that the answer belongs to; None where there is one for all.
        path: The table of a path, from the largest mu on; empty where there is none.
        choice: By which rule the result was chosen, in words.
        plain_pca: The share of all variance that each component of plain PCA explains, as far as it is known.
    """

    mu: float | None = None
    path: tuple[PathRow, ...] = ()
    choice: str = ""
    plain_pca: tuple[float, ...] = ()

    @property
    def chosen(self) -> int | None:
        """Which answer of a path the result is, from the largest mu on; None where nothing is chosen."""
        return next((j for j, row in enumerate(self.path) if row.is_chosen), None)


class Choice:
    """The rule, and what it looks at.

    Args:
        rule: Its name, and its number.
        marks: Of each answer, positive if it has converged.
        counts: Of each, how many entries of each component are not zero, (k, p).
        of_pca: The share of all variance that plain PCA with as many components explains; None if unknown.
    """

    def __init__(self, rule: tuple[str, float], marks: Matrix, counts: Matrix, of_pca: float | None) -> None:
        self._name, self._number = rule
        self._counts = counts.max(axis=1) if self._name == "per_component" else counts.sum(axis=1)
        # Where none has converged, one that has not is chosen, and the verdict says so.
        self._usable = np.flatnonzero(marks > 0) if (marks > 0).any() else np.arange(len(marks))
        if self._name == "of_pca":
            self._number *= 1.0 if of_pca is None else of_pca

    @property
    def _is_count(self) -> bool:
        return self._name in ("nonzeros", "per_component")

    def fulfilling(self, explained: Matrix) -> list[int]:
        """The answers that the rule allows, with what each explains; those that have converged."""
        is_right = self._counts <= self._number if self._is_count else explained >= self._number
        return [int(j) for j in self._usable if is_right[j]]

    def of(self, explained: Matrix) -> int:
        """The one that is taken: the best of those allowed, or the nearest where there is none."""

        def sparsest_first(j: int) -> tuple[float, float]:
            return float(self._counts[j]), -float(explained[j])

        def best_first(j: int) -> tuple[float, float]:
            return -float(explained[j]), float(self._counts[j])

        allowed = self.fulfilling(explained)
        if allowed:
            return min(allowed, key=best_first if self._is_count else sparsest_first)
        return min(map(int, self._usable), key=sparsest_first if self._is_count else best_first)

    def fault(self, chosen: float, explained: Matrix) -> str | None:
        """Why no honest root chooses this, whose numbers may differ by rounding; None if one may."""
        if not (chosen.is_integer() and 0 <= chosen < len(explained)):
            return f"answer number {chosen:g} is chosen, and there are {len(explained)}"
        own = {self.of(explained + shift) for shift in (-ROUNDING, 0.0, ROUNDING)}
        is_tied = any(abs(explained[int(chosen)] - explained[j]) <= ROUNDING for j in own)
        if int(chosen) in self._usable and (int(chosen) in own or is_tied):
            return None
        return f"answer number {int(chosen)} is chosen (counted from 0), and the rule takes {min(own)}"


def counts_of(path: Matrix) -> Matrix:
    """How many entries of each component of each answer are not zero, (k, p)."""
    counts: Matrix = np.count_nonzero(path, axis=1)
    return counts


def share_of_pca(found: Found) -> float | None:
    """The share of all variance that plain PCA explains with as many components; None if unknown."""
    known_values, p = leading_shares(found), 0 if found.X is None else found.X.shape[1]
    return None if len(known_values) < p else float(known_values[:p].sum())


def leading_shares(found: Found) -> Matrix:
    """The share of all variance that each component of plain PCA explains, as far as it is known."""
    values = found.values if found.spectrum is None else found.spectrum
    if values is None or found.total is None:
        return np.empty(0)
    shares: Matrix = np.maximum(values, 0.0) / found.total
    return shares


def choice_of(topology: Topology, found: Found) -> Choice:
    """The rule of the file, for the answers that were found."""
    counts = counts_of(known(found.path))
    return Choice(topology.problem.rule, known(found.marks), counts, share_of_pca(found))


def account_of(topology: Topology, found: Found) -> Account:
    """What is known of all that once the run is over."""
    plain_pca = tuple(leading_shares(found).tolist())
    if found.table is None or found.chosen is None:
        return Account(plain_pca=plain_pca)
    path, words = _rows_of(topology, found), _words_on_choice(topology, found)
    return Account(path[int(found.chosen)].mu, path, words, plain_pca)


def _rows_of(topology: Topology, found: Found) -> tuple[PathRow, ...]:
    counts, marks, table = counts_of(known(found.path)), known(found.marks), known(found.table)
    return tuple(
        PathRow(
            mu=mu,
            nonzeros=counts[j].tolist(),
            explained=float(table[j, EXPLAINED]),
            adjusted=table[j, COLUMNS:].tolist(),
            objective=float(table[j, OBJECTIVE]),
            residual=float(table[j, RESIDUAL]),
            has_converged=_has_converged(topology, found, table[j], marks[j]),
            is_chosen=bool(j == known(found.chosen)),
        )
        for j, mu in enumerate(weights_of(topology, found))
    )


def _has_converged(topology: Topology, found: Found, numbers: Matrix, mark: float) -> bool | None:
    one = replace(found, residual=numbers[RESIDUAL], weakest=numbers[WEAKEST], starts=np.abs(mark))
    return of_findings(topology, one, is_below_tolerance=bool(mark > 0), rounds=0).has_converged


def _words_on_choice(topology: Topology, found: Found) -> str:
    """By which rule the result was chosen, and whether any answer fulfils it."""
    name, number = topology.problem.rule
    explained = known(found.table)[:, EXPLAINED]
    what = {
        "nonzeros": f"explains most with at most {number:g} non-zeros",
        "per_component": f"explains most with at most {number:g} non-zeros in each component",
        "variance": f"is the sparsest that explains at least {number:.4g} of all variance",
        "of_pca": f"is the sparsest that explains at least {number:.4g} of what plain PCA does",
    }[name]
    if choice_of(topology, found).fulfilling(explained):
        return f"chosen: the answer that {what}"
    return f"chosen: the nearest, as none of the values of mu has an answer that {what}"
