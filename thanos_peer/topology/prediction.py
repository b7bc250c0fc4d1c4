"""What methods are going to send: `auto` goes by it for those by sums, and `topology check` prints it.

Whole numbers alone, and comparisons of numbers that stand in the file: all peers come to the same.
"""

from typing import TYPE_CHECKING, NamedTuple

from thanos_peer.algorithm.leading import Leading
from thanos_peer.algorithm.methods import METHODS, SUMMING
from thanos_peer.algorithm.path import Path
from thanos_peer.algorithm.polynomial import distinct_eigenvalues
from thanos_peer.algorithm.regularizers import REGULARIZERS
from thanos_peer.algorithm.solving import Solving
from thanos_peer.algorithm.traits import Outlook
from thanos_peer.samples import LARGEST_SIDE
from thanos_peer.topology.sections import Algorithm, LeadingStart, Problem, SyntheticData

if TYPE_CHECKING:
    from thanos_peer.topology.model import Topology

MOST_DIGITS = 16
# Digits of the residual with which the objective is within 1e-8: the gap is about its square.
OF_A_GAP = 5
# About the smallest mu of a path that the network finds, where samples have 2-norm 1.
SMALLEST_OF_PATH = 0.005


def suits(problem: Problem, method: str) -> bool:
    """Whether a method is for such problems, of some size."""
    known = METHODS[method]
    is_other = known.is_for_pca and problem.objective is not None
    is_for_one = known.mixes and problem.is_path
    return not (is_other or is_for_one or (known.is_for_smooth and not problem.is_smooth))


def typical_sums(name: str, problem: Problem, algorithm: Algorithm, digits: int) -> int:
    """How many sums the method typically takes to a residual of so many digits, without those before it."""
    each = SUMMING[name].typical_sums(problem.p, known_weight(problem), digits, algorithm.restarts)
    return passes_of(problem) * each


def passes_of(problem: Problem) -> int:
    """How often the problem is searched through: a path twice."""
    return 1 + problem.is_path


def known_weight(problem: Problem) -> float | None:
    """The weight of l1, where samples have 2-norm 1; None elsewhere."""
    data, kind = problem.data, REGULARIZERS.get(problem.regularizer)
    is_unit = data.scale == "unit" if isinstance(data, SyntheticData) else data.overall == "auto"
    is_known = is_unit and problem.objective is None and kind is not None and kind.has_typical_sums
    return (problem.weights or (SMALLEST_OF_PATH,))[-1] if is_known else None


def sums_of_start(problem: Problem) -> int:
    """How many sums the phase `leading` typically takes."""
    return Leading.typical_sums(problem.n, problem.p, is_noise=isinstance(problem.data, SyntheticData))


def digits_of(algorithm: Algorithm) -> int:
    """How many digits of the residual a method by sums is asked for."""
    return digits_to(Solving.default_tolerance if algorithm.tolerance is None else algorithm.tolerance)


def digits_to(tolerance: float) -> int:
    """How many digits of the residual there are at a tolerance."""
    return next((digits for digits in range(1, MOST_DIGITS) if tolerance >= float(f"1e-{digits}")), MOST_DIGITS)


def typical_payload(name: str, problem: Problem, algorithm: Algorithm, digits: int) -> int:
    """Bytes over an edge of the tree, of the method and of its start, which other methods may not need."""
    n, p, is_pca = problem.n, problem.p, problem.objective is None
    is_path, count = problem.is_path, problem.weight_count
    layout = Path.layout(SUMMING[name], count, n, p) if is_path else SUMMING[name].layout(n, p, is_pca=is_pca)
    own = layout.payload(typical_sums(name, problem, algorithm, digits))
    if SUMMING[name].finds_start or not isinstance(algorithm.start, LeadingStart):
        return own
    return own + Leading.layout(n, p).payload(sums_of_start(problem))


def outlook_of(topology: "Topology") -> Outlook:
    """What is known of a run before it begins."""
    return Outlook(
        p=topology.problem.p,
        mu=known_weight(topology.problem),
        digits=digits_to(topology.tolerance),
        restarts=topology.algorithm.restarts,
        passes=passes_of(topology.problem),
        d=topology.d,
        rounds_of_sum=topology.graph.tree.rounds,
        diameter=topology.graph.diameter,
        spectrum=lambda: distinct_eigenvalues(topology.graph.matrix()),
    )


def cheaper_method(problem: Problem, algorithm: Algorithm, digits: int) -> str:
    """Which of the methods by sums sends less, as far as is known before; of equals the one with fewer sums."""
    able = (name for name in SUMMING if suits(problem, name) and problem.n <= SUMMING[name].largest_n)
    return min(
        able,
        key=lambda name: (
            typical_payload(name, problem, algorithm, digits),
            typical_sums(name, problem, algorithm, digits),
        ),
    )


class Crossing(NamedTuple):
    """Up to n features the method `few` sends less than any other, and with one more the method `many`."""

    few: str
    many: str
    n: int


def crossing(problem: Problem, algorithm: Algorithm, digits: int) -> Crossing:
    """Where the cheaper method changes with n, all else as it is; the least n is p."""

    def cheaper(n: int) -> str:
        return cheaper_method(problem.model_copy(update={"n": n}), algorithm, digits)

    low, high, few = problem.p, LARGEST_SIDE, cheaper(problem.p)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if cheaper(middle) == few else (low, middle - 1)
    return Crossing(few, cheaper(low + 1), low)
