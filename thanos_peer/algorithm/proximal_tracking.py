"""Proximal gradient tracking: the exact method without sums, for agents that only mix with their neighbors.

One iteration of agent i, with its X and Y, the tracker D of the gradient, and a momentum number t:

    eta = s / clip(lambda_max(sym(-Y'dD)), low, M)
    Z   = the tangent step from Y along d D                                     (tangent.py)
    V   = polar(Z), then T rounds with the neighbors:  X+ = polar(P(W) V),  D~ = P(W) D        (polynomial.py)
    Y+  = X+, t+ = 1                                          where <Y - X+, X+ - X> > 0: momentum starts anew
    Y+  = polar(X+ + (t - 1)/t+ (X+ - X)), t+ = (1 + sqrt(1 + 4 t^2))/2                           elsewhere
    D+  = D~ + grad f_i(Y+) - grad f_i(Y)                                       so that sum D = sum grad f always

What all agents need to know before the first iteration is found by one sum (`Agreement`): M bounds d max_i
||A_i||_2^2, low is what the step need not be longer than 1/low for, and T follows from M/low and the graph.

The guard: an agent that sees neither its objective nor its residual improve for a while says so in place of a step
size, unless it is done. Word of it is with all agents before the next such moment, when all of them mix more, V
and D in rounds of their own, and later take shorter steps.
"""

from dataclasses import dataclass, replace

import numpy as np

from thanos_peer.algorithm.accelerated import STEEPEST
from thanos_peer.algorithm.faults import FEASIBLE, ROUNDING, range_fault
from thanos_peer.algorithm.fixed_point import EXACT
from thanos_peer.algorithm.largest import largest_fault, largest_of, norms_fault, share_of_norms
from thanos_peer.algorithm.method import Method, Received, Sent, Setup
from thanos_peer.algorithm.polynomial import MOST_TIMES, STEADY, best_polynomial, factor
from thanos_peer.algorithm.pooling import Layout, Sum
from thanos_peer.algorithm.regularizers import slope
from thanos_peer.algorithm.stiefel import infeasibility, inner, norm, polar, sym, transpose
from thanos_peer.algorithm.tangent import tangent_step
from thanos_peer.algorithm.traits import Expected, Iterations, Outlook
from thanos_peer.block import Matrix

# How much T rounds shrink disagreement, in units of M/low; four times as much after each alarm.
SHRINK = 6.0
# If no eigenvalue of W but 1 is larger than this, less shrinking will do, as the guard is behind it.
QUICK = 0.9
# How much T rounds shrink disagreement then: the first number times M/low, but at least the second.
QUICK_SHRINK, LEAST_SHRINK = 2.0, 8.0
# Counts of alarms with a mixing of their own: 0, 1, 2, and 3 or more.
ALARM_LEVELS = 4
# Iterations between two looks of the guard.
WATCH = 100
# Shortest step after alarms, relative to the step that agents begin with.
SHORTEST = 1 / 8
FLOOR = 1e-10  # residuals below may be rounding
# Typical M/low of agents with similar samples.
ALIKE = 4.0

TYPICAL = Iterations(
    ((0.15, 19), (0.085, 59), (0.06, 107), (0.035, 136), (0.012, 208), (0.003, 245), (1e-9, 456), (0.0, 2)),
    in_general=130,
)


class Agreement(Sum):
    """What all agents have to know: one sum of all first gradients, and of powers of the agents' norms."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(self._own, self._agree, sum_fault=self._sum_fault, word_fault=self._word_fault)
        self._setup = setup

    @staticmethod
    def layout(n: int, p: int, d: int) -> Layout:
        """A number and a gradient up; down M, low, the roots for each level, and the mean gradient."""
        return Layout(EXACT.kind, 1 + n * p, 2 + ALARM_LEVELS * (d + 1) + n * p)

    def _own(self) -> Matrix:
        """Its share of the norms, and the gradient at the start."""
        setup = self._setup
        return np.concatenate([[share_of_norms(setup)], setup.f.gradient(setup.start).ravel()])

    def _agree(self, sums: Matrix) -> Matrix:
        """M, low and the polynomials."""
        setup, (n, p) = self._setup, self._setup.start.shape
        G = sums[1:].reshape(n, p)
        M = setup.d * largest_of(setup, sums[0])
        captured = float(np.linalg.eigvalsh(sym(-setup.start.T @ G))[-1])
        low = min(M, max(M / setup.d, (setup.bound or 0.0) / n, captured))
        spectrum = setup.spectrum()
        rows = np.zeros((ALARM_LEVELS, setup.d + 1))
        for level, row in enumerate(rows):
            roots, times = best_polynomial(spectrum, 4**level * _shrink(spectrum, M / low))
            row[:2], row[2 : 2 + len(roots)] = (times, len(roots)), roots
        return np.concatenate([[M, low], rows.ravel(), (G / setup.d).ravel()])

    def _sum_fault(self, sums: Matrix) -> str | None:
        return norms_fault(self._setup, float(sums[0])) or self._gradient_fault(sums[1:])

    def _word_fault(self, word: Matrix) -> str | None:
        """Of M, low, the roots of each level, and the mean gradient."""
        d, (M, low) = self._setup.d, word[:2].tolist()
        rows, G = np.split(word[2:], [ALARM_LEVELS * (d + 1)])
        return (
            largest_fault(self._setup, M / d)
            or range_fault("low", low, M / d, M)
            or next((fault for row in rows.reshape(ALARM_LEVELS, d + 1) if (fault := _roots_fault(row))), None)
            or self._gradient_fault(d * G)
        )

    def _gradient_fault(self, G: Matrix) -> str | None:
        bound = self._setup.bound or 0.0
        return range_fault("the largest entry of the gradient", float(np.abs(G).max()), 0.0, bound)


def _shrink(spectrum: Matrix, unequal: float) -> float:
    """How much T rounds are to shrink disagreement while nothing goes wrong, where agents are so unequal."""
    if spectrum.max(initial=0.0) > QUICK:
        return SHRINK * unequal
    return min(SHRINK * unequal, max(QUICK_SHRINK * unequal, LEAST_SHRINK))


def _roots_fault(row: Matrix) -> str | None:
    """What is wrong with a number of times, one of roots, and the roots of a polynomial in W."""
    times, count = row[:2].tolist()
    if not (count.is_integer() and 0 <= count < row.size - 1):
        return f"the number of roots is {count:g}, not a whole one below {row.size - 1}"
    if not (times.is_integer() and 1 <= times <= MOST_TIMES):
        return f"a polynomial is applied {times:g} times, not 1 to {MOST_TIMES}"
    roots = row[2 : 2 + int(count)]
    return None if ((roots >= -1 - ROUNDING) & (roots < 1)).all() else "a root is not from -1 to 1"


@dataclass(frozen=True)
class TrackingState:
    """What an agent carries; matrices are (..., n, p), numbers (...).

    Attributes:
        X: Where the last iteration ended.
        Y: Where the gradient G was taken.
        G: The gradient of f_i at Y.
        D: The tracker, as far as it is mixed.
        V: polar(Z), as far as it is mixed.
        Z: The tangent step from Y, with exact zeros.
        multiplier: Its multiplier, (..., p, p).
        t: The momentum number.
        eta: The step size.
        moved: ||Z - Y||_F / eta.
        residual: How far from done the last iteration was.
        at: How many rounds of the mixing are behind it.
        is_second: Whether D is mixed by itself after V.
        iteration: How many are behind it.
        level: How often there was an alarm.
        alarm: Whether it has heard of one since the guard last looked.
        lowest: The least objective when the guard last looked.
        least: The least residual then.
        lowest_since: The least objective since.
        least_since: The least residual since.
    """

    X: Matrix
    Y: Matrix
    G: Matrix
    D: Matrix
    V: Matrix
    Z: Matrix
    multiplier: Matrix
    t: Matrix
    eta: Matrix
    moved: Matrix
    residual: Matrix
    at: Matrix
    is_second: Matrix
    iteration: Matrix
    level: Matrix
    alarm: Matrix
    lowest: Matrix
    least: Matrix
    lowest_since: Matrix
    least_since: Matrix


class ProximalTracking(Method[TrackingState]):
    """The rounds of proximal gradient tracking."""

    state_type = TrackingState
    preparation = Agreement
    growth = STEADY
    is_for_pca = True
    default_tolerance = 1e-9
    default_rounds = 100_000

    def __init__(self, setup: Setup) -> None:
        assert setup.agreed is not None, "the sum comes before"  # noqa: S101
        self._f, self._g, self._d, word = setup.f, setup.whole, setup.d, setup.agreed
        self._M, self._low = float(word[0]), float(word[1])
        rows, mean = np.split(word[2:], [ALARM_LEVELS * (setup.d + 1)])
        self._roots = [int(row[0]) * row[2 : 2 + int(row[1])].tolist() for row in rows.reshape(ALARM_LEVELS, -1)]
        self._mean = mean.reshape(setup.start.shape[-2:])
        steepest = slope(setup.whole, *setup.start.shape[-2:])
        self._steep, self._unit = STEEPEST * steepest, max(self._low, steepest)
        self._watch, self._calm = max(WATCH, setup.diameter + 1), max(FLOOR, setup.tolerance)

    @classmethod
    def make(cls, setup: Setup) -> "ProximalTracking":
        """For agents that have found this."""
        return cls(setup)

    @classmethod
    def expected(cls, outlook: Outlook) -> Expected:
        """T rounds for each iteration, where agents have similar samples; and those in which they stop."""
        iterations = TYPICAL.expected(outlook.p, outlook.mu, outlook.digits)
        spectrum = outlook.spectrum()
        roots, times = best_polynomial(spectrum, _shrink(spectrum, min(ALIKE, outlook.d)))
        T = max(1, times * len(roots))
        rounds = iterations * T + 2 * outlook.diameter + 1
        return Expected(rounds, f"typically {iterations} iterations of {T} round{'s' * (T > 1)}")

    def start(self, X: Matrix) -> TrackingState:
        """The first tangent step: all trackers are the mean gradient."""
        shape, p = X.shape[:-2], X.shape[-1]
        zero, infinite = np.zeros(shape), np.full(shape, np.inf)
        state = TrackingState(
            X=X, Y=X, G=self._f.gradient(X), D=np.broadcast_to(self._mean, X.shape), V=X, Z=X,
            multiplier=np.zeros((*shape, p, p)), t=np.ones(shape), eta=zero, moved=infinite, residual=infinite,
            at=zero, is_second=zero, iteration=zero, level=zero, alarm=zero,
            lowest=infinite, least=infinite, lowest_since=infinite, least_since=infinite,
        )  # fmt: skip
        return self._tangent(state)

    def send(self, state: TrackingState) -> Sent:
        """V and D as far as they are mixed; and whether there is an alarm."""
        return Sent(state.V, state.D, state.alarm)

    def step(self, k: int, state: TrackingState, received: Received) -> TrackingState:  # noqa: ARG002
        """One mixing; the last one of an iteration ends it."""
        level, at, is_second = _of_all(state.level), _of_all(state.at), bool(_of_all(state.is_second))
        roots, is_apart = self._roots[min(level, ALARM_LEVELS - 1)], level > 0
        state = replace(state, alarm=np.where(received.largest_eta() > 0, 1.0, state.alarm))
        if roots:
            u = roots[at]
            if not is_second:
                V = factor(u, received.mix(lambda X, _, __: X), state.V)
                state = replace(state, V=V)
            if is_second or not is_apart:
                D = factor(u, received.mix(lambda _, D, __: D), state.D)
                state = replace(state, D=D)
        state = replace(state, at=state.at + 1)
        if at + 1 < len(roots):
            return state
        state = replace(state, at=0 * state.at)
        if not is_second:
            state = self._move(state)
            if is_apart:
                return replace(state, is_second=state.is_second + 1)
        return self._guard(self._tangent(replace(state, is_second=0 * state.is_second)))

    def _move(self, state: TrackingState) -> TrackingState:
        """From the mixed V to the next X and Y, and the tracker's share of the new gradient."""
        X = polar(state.V)
        far = (self._M / self._d) * norm(polar(state.Z) - X)
        # It is the residual at Z, which is a step further than Y.
        residual = 2 * np.maximum(state.moved / self._unit, far / self._low)
        is_anew = inner(state.Y - X, X - state.X) > 0
        t = np.where(is_anew, 1.0, (1 + np.sqrt(1 + 4 * state.t**2)) / 2)
        push = np.where(is_anew, 0.0, (state.t - 1) / t)[..., None, None]
        Y = np.where(is_anew[..., None, None], X, polar(X + push * (X - state.X)))
        G = self._f.gradient(Y)
        return replace(
            state, X=X, Y=Y, G=G, D=state.D + (G - state.G), t=t, residual=residual, iteration=state.iteration + 1
        )

    def _tangent(self, state: TrackingState) -> TrackingState:
        """Z and V."""
        Y, G = state.Y, self._d * state.D
        shorter = np.maximum(SHORTEST, 0.5 ** np.maximum(state.level - 1, 0.0))
        captured = np.linalg.eigvalsh(sym(-transpose(Y) @ G))[..., -1]
        eta = shorter / np.maximum(np.clip(captured, self._low, self._M), self._steep)
        Z, multiplier = self._tangent_steps(Y, G, eta, state.multiplier)
        objective = inner(Y, G) / 2 + self._values(Y)
        return replace(
            state,
            Z=Z,
            V=polar(Z),
            multiplier=multiplier,
            eta=eta,
            moved=norm(Z - Y) / eta,
            lowest_since=np.minimum(state.lowest_since, objective),
            least_since=np.minimum(state.least_since, state.residual),
        )

    def _tangent_steps(self, Y: Matrix, G: Matrix, eta: Matrix, multiplier: Matrix) -> tuple[Matrix, Matrix]:
        """Agent by agent: each has its own number of inner steps."""
        if Y.ndim == 2:
            found = tangent_step(self._g, Y, G, float(eta), multiplier)
            return found.Z, found.multiplier
        each = [self._tangent_steps(*one) for one in zip(Y, G, eta, multiplier, strict=True)]
        return np.array([Z for Z, _ in each]), np.array([found for _, found in each])

    def _values(self, Y: Matrix) -> Matrix:
        return np.array([self._values(each) for each in Y]) if Y.ndim > 2 else np.asarray(self._g.value(Y))

    def _guard(self, state: TrackingState) -> TrackingState:
        """Look every so often whether anything improves; act on what was heard since the last look."""
        if _of_all(state.iteration) % self._watch:
            return state
        is_better = (
            (state.lowest_since < state.lowest - 1e-12 * np.abs(state.lowest_since))
            | (state.least_since < 0.99 * state.least)
            | (state.least_since <= self._calm)
        )
        return replace(
            state,
            level=state.level + state.alarm,
            alarm=np.where(is_better | (state.alarm > 0), 0.0, 1.0),
            lowest=np.minimum(state.lowest, state.lowest_since),
            least=np.minimum(state.least, state.least_since),
            lowest_since=np.full_like(state.lowest, np.inf),
            least_since=np.full_like(state.least, np.inf),
        )

    def residual(self, k: int, state: TrackingState, received: Received) -> Matrix:  # noqa: ARG002
        """That of the last iteration."""
        return state.residual

    def answer(self, k: int, state: TrackingState) -> tuple[Matrix, Matrix]:  # noqa: ARG002
        """Z where it is on the manifold, else the nearest point; and Z."""
        is_there = (infeasibility(state.Z) <= FEASIBLE)[..., None, None]
        return np.where(is_there, state.Z, polar(state.Z)), state.Z


def _of_all(number: Matrix) -> int:
    """A number that all agents have in common: what they do next depends on it."""
    first = int(np.ravel(number)[0])
    assert (number == first).all(), "word of an alarm is with all before they act on it"  # noqa: S101
    return first
