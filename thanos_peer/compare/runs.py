"""One run after the other, and what each has come to."""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from thanos_peer.algorithm.central import CENTRAL
from thanos_peer.algorithm.measures import judged
from thanos_peer.algorithm.stiefel import infeasibility, polar
from thanos_peer.block import Matrix
from thanos_peer.compare.records import DIVERGED, DONE, ERROR, Curve, Record, Yardstick
from thanos_peer.compare.trials import Trial
from thanos_peer.errors import DivergenceError, ThanosPeerError
from thanos_peer.phases import Plan
from thanos_peer.problem import Instance, build
from thanos_peer.simulate import EndReason, StackedNetwork, measure
from thanos_peer.storage.outcome import Outcome
from thanos_peer.storage.summary import summarize

CENTRAL_ITERATIONS = 3000
CENTRAL_TOLERANCE = 1e-10  # of the certified residual
# Iterations between two certificates: most iterations take less time than a certificate.
LOOK_EVERY = 20

ALL_BUT_ZERO = 1e-8  # beside columns of length 1

OnRound = Callable[[int], None]


@dataclass
class Trace:
    """The objective over the rounds of the main phase, as it comes.

    Attributes:
        judge: Whose objective it is: the same for all methods.
    """

    judge: Instance
    k: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    objective: list[float] = field(default_factory=list)

    def note(self, k: int, mean: Matrix, seconds: float) -> None:
        """A round, with the mean of all X_i after it."""
        objective = self.judge.whole.value(polar(mean))
        if not self.objective or objective != self.objective[-1]:
            self.k.append(k)
            self.seconds.append(seconds)
            self.objective.append(objective)

    def curve(self, plan: Plan, rounds: dict[str, int]) -> Curve:
        """The same with all phases before, and with what was sent until then."""
        before = plan.phases[: plan.main]
        first = sum(rounds[phase.name] for phase in before)
        sent = sum(phase.payload(rounds[phase.name]) for phase in before)
        main = plan.phases[plan.main]
        return Curve(
            [first + k for k in self.k], [sent + main.payload(k) for k in self.k], self.seconds, self.objective
        )


def yardstick(judge: Instance) -> Yardstick:
    """The reference solution of a problem, and what gaps are divided by."""
    digest = judge.topology.digest
    if not judge.is_pca:
        return Yardstick(digest, None, None, None)
    found = judge.solve_reference()
    return Yardstick(digest, judge.whole.value(found.X), found.residual, judge.pooled.lipschitz())


def attempt(run: Callable[[], Record], digest: str) -> Record:
    """A run, or how it failed, in the words of its error."""
    try:
        return run()
    except ThanosPeerError as error:
        is_divergence = error.exit_code == DivergenceError.exit_code
        return Record(digest, DIVERGED if is_divergence else ERROR, str(error))
    except np.linalg.LinAlgError as error:
        # The error is about numbers that are not finite any more.
        return Record(digest, DIVERGED, str(error))


def simulate(trial: Trial, judge: Instance, on_round: OnRound) -> Record:
    """All agents in this process; the seconds are those of their work, without the measuring."""
    instance, trace = build(trial.topology), Trace(judge)
    began = time.perf_counter()
    network = StackedNetwork(instance)
    seconds, last = time.perf_counter() - began, -1
    while True:
        if not network.is_preparing and network.k > last:
            last = network.k
            trace.note(last, network.X.mean(axis=0), seconds)
        if network.is_done:
            break
        began = time.perf_counter()
        network.advance()
        seconds += time.perf_counter() - began
        on_round(sum(network.rounds_by_phase.values()))
    return finished(network, instance, trace, seconds)


def finished(network: Outcome, instance: Instance, trace: Trace, seconds: float) -> Record:
    """What a network has come to that has reached its last round."""
    summary = summarize(network, instance, measure(network, instance), seconds=seconds)
    is_zero = network.sparse == 0
    return Record(
        instance.topology.digest,
        DONE,
        summary.ending,
        seconds,
        instance.topology.messages_per_round,
        sum(summary.rounds_by_phase.values()),
        summary.payload_bytes,
        summary.residual,
        summary.feasibility,
        summary.consensus,
        summary.nonzeros,
        summary.entries,
        bool((is_zero == is_zero[0]).all()),
        trace.curve(instance.plan(0), summary.rounds_by_phase),
    )


def centralise(trial: Trial, judge: Instance, on_round: OnRound) -> Record:
    """A method that holds all the data, from the same start; entries that are all but zero count as zero."""
    trace, most = Trace(judge), trial.topology.algorithm.max_rounds or CENTRAL_ITERATIONS
    iterates = CENTRAL[trial.contender.method](judge.whole.f, judge.whole_regularizer, judge.start)
    seconds, residual, X = 0.0, np.inf, judge.start
    for k in itertools.count():
        began = time.perf_counter()
        X = next(iterates)
        seconds += time.perf_counter() - began
        if not np.isfinite(X).all():
            return Record(trial.digest, DIVERGED, f"iteration {k} is not finite")
        trace.note(k, X, seconds)
        on_round(k)
        if k % LOOK_EVERY == 0 or k == most:
            residual = judge.residual(judged(X, polar(X)))
        if residual <= CENTRAL_TOLERANCE or k == most:
            break
    is_below = residual <= CENTRAL_TOLERANCE
    return Record(
        trial.digest,
        DONE,
        f"its residual was below {CENTRAL_TOLERANCE:g}" if is_below else EndReason.MAX_ROUNDS.value,
        seconds,
        rounds=k,
        residual=residual,
        feasibility=float(infeasibility(X)),
        nonzeros=int(np.count_nonzero(np.abs(X) > ALL_BUT_ZERO)),
        entries=X.size,
        curve=Curve(trace.k, [], trace.seconds, trace.objective),
    )
