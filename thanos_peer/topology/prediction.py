"""What the methods by sums are going to send: `auto` goes by it, and `topology check` prints it.

Whole numbers alone, and comparisons of numbers that stand in the file: all peers come to the same.
"""

from thanos_peer.algorithm.gram import Gram
from thanos_peer.algorithm.leading import Leading
from thanos_peer.algorithm.methods import SUMMING
from thanos_peer.algorithm.regularizers import REGULARIZERS
from thanos_peer.algorithm.solving import Solving
from thanos_peer.samples import LARGEST_SIDE
from thanos_peer.topology.sections import Algorithm, LeadingStart, Problem, SyntheticData

MOST_DIGITS = 16
OF_A_GAP = 5  # digits of the residual with which the objective is within 1e-8: the gap is about its square


def typical_sums(name: str, problem: Problem, algorithm: Algorithm, digits: int) -> int:
    """How many sums the method typically takes to a residual of so many digits, without those before it."""
    data = problem.data
    is_unit = data.scale == "unit" if isinstance(data, SyntheticData) else data.overall == "auto"
    kind = REGULARIZERS.get(problem.regularizer)
    is_known = is_unit and problem.objective is None and kind is not None and kind.has_typical_sums
    mu = (problem.mu or 0.0) if is_known else None
    return SUMMING[name].typical_sums(problem.p, mu, digits, algorithm.restarts)


def digits_of(algorithm: Algorithm) -> int:
    """How many digits of the residual a method by sums is asked for."""
    tolerance = Solving.default_tolerance if algorithm.tolerance is None else algorithm.tolerance
    return next((digits for digits in range(1, MOST_DIGITS) if tolerance >= float(f"1e-{digits}")), MOST_DIGITS)


def typical_payload(name: str, problem: Problem, algorithm: Algorithm, digits: int) -> int:
    """Bytes over an edge of the tree, of the method and of its start, which other methods may not need."""
    n, p, is_pca = problem.n, problem.p, problem.objective is None
    layout = SUMMING[name].layout(n, p, is_pca=is_pca)
    own = layout.payload(typical_sums(name, problem, algorithm, digits))
    if SUMMING[name].finds_start or not isinstance(algorithm.start, LeadingStart):
        return own
    return own + Leading.layout(n, p).payload(Leading.typical_sums(n, p))


def cheaper_method(problem: Problem, algorithm: Algorithm, digits: int) -> str:
    """Which of the two exact methods sends less, as far as is known before."""
    if problem.objective is not None or problem.n > Gram.largest_n:
        return "proximal"
    gram, proximal = (typical_payload(name, problem, algorithm, digits) for name in ("gram", "proximal"))
    return "gram" if gram <= proximal else "proximal"


def largest_n_for_gram(problem: Problem, algorithm: Algorithm, digits: int) -> int:
    """Up to which n that is `gram`, all else as it is."""
    low, high = problem.p, LARGEST_SIDE
    while low < high:
        middle = (low + high + 1) // 2
        there = problem.model_copy(update={"n": middle})
        is_gram = cheaper_method(there, algorithm, digits) == "gram"
        low, high = (middle, high) if is_gram else (low, middle - 1)
    return low
