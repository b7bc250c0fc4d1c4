"""Whether answers are right: random problems on random graphs, judged by code apart from the package.

python benchmarks/answers.py --method proximal [--method gram] [--problems 240] [--seed 1] [--only graph=ring]
    [--csv FILE]

Prints Markdown: a table by method, tables by graph, data, n, p, regularizer and mu, and every failure with the
command that repeats it. random_problems.py draws problems, thanos_peer/launch/independent.py judges
answers. A method fails if

    it diverges, raises, takes too long, or does not converge
    it claims to have converged, and an agent's residual, infeasibility or distance from the first is above 1e-6
    (or the tolerance it aimed at, if that is larger)
    agents differ in what is zero
    the residual that the agents certify is less than half of the one judged here
    an agent's own X, which need not be the answer, is off the manifold, ||X'X - I||_F > 0.1

A gap is the objective less the best one that any of the methods asked here has found, in units of ||A||_2^2. It
is no failure: there may be several stationary points.
"""

import csv
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, fields, replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, TypeAlias

import click
import numpy as np
import tomlkit
from random_problems import REAL, Problem, draw

import thanos_peer
from thanos_peer.errors import DivergenceError
from thanos_peer.launch.independent import Matrix, Worth, prepared, worth_of
from thanos_peer.problem import build
from thanos_peer.simulate import StackedNetwork
from thanos_peer.topology import load
from thanos_peer.topology.variants import settings_of

METHODS = ("proximal", "gram", "proximal-tracking", "thanos", "auto")
WRONG, GOOD = 1e-6, 1e-8  # residuals
UNDERSTATED = 2.0  # times what is certified
ROUNDING = 1e-12  # residuals below are not compared
OFF = 0.1  # from the manifold
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
N_BINS, P_BINS = (10, 20, 50, 100, 200), (1, 3, 6, 10)


# ---------------------------------------------------------------------- the package, asked in one place


@dataclass(frozen=True, eq=False)
class Answer:
    """What a method says.

    Attributes:
        sparse: The sparse loadings of every agent that tells them, (agents, n, p).
        has_converged: Whether they claim to be done.
        overall: What they divided all samples by; None for their 2-norm.
        rounds: Of all phases.
        messages: Of all agents together, if known.
        payload: Bytes of all agents together, if known.
        tolerance: What they aimed at.
        certified: The residual that they say they have, if they say so.
        drift: ||X'X - I||_F of the agents' own X, the largest.
    """

    sparse: Matrix
    has_converged: bool
    overall: float | None
    rounds: int
    messages: int | None
    payload: int | None
    tolerance: float = 0.0
    certified: float | None = None
    drift: float = 0.0


def solve(problem: Problem, method: str) -> Answer:
    """Ask the package: of tables by files, of other samples by arrays; nothing is set that has a default."""
    if problem.data in REAL:
        with TemporaryDirectory() as directory:
            return _solved_from_files(problem, method, Path(directory))
    settings: dict[str, Any] = {"regularizer": problem.regularizer, "mu": problem.mu, "method": method}
    settings |= {"graph": problem.edges, "center": problem.center, "scale": problem.scale}
    result = thanos_peer.fit(problem.samples(), problem.p, **settings)
    facts, own, of_all = result.facts, result.all_components_, result.all_sparse_components_
    assert own is not None and of_all is not None, "all agents ran here"  # noqa: S101, PT018
    return Answer(
        sparse=of_all.swapaxes(1, 2),
        has_converged=bool(facts["has_converged"]),
        overall=facts.get("overall"),
        rounds=sum(facts["rounds_by_phase"].values()),
        messages=facts.get("messages"),
        payload=facts.get("payload_bytes"),
        tolerance=facts["tolerance"],
        certified=facts["residual"],
        drift=drift_of(own.swapaxes(1, 2)),
    )


def drift_of(Xs: Matrix) -> float:
    """How far the worst agent's X is from the manifold; of (agents, n, p)."""
    return max(float(np.linalg.norm(X.T @ X - np.eye(X.shape[1]))) for X in Xs)


def _solved_from_files(problem: Problem, method: str, directory: Path) -> Answer:
    """The same by a topology file, with a CSV file for each agent."""
    peers = [{"id": i, "address": f"ipc://{i}", "data": f"{i}.csv"} for i in range(problem.d)]
    for peer, part in zip(peers, problem.samples(), strict=True):
        with (directory / str(peer["data"])).open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows(part.tolist())
    data = {"kind": "files", "center": problem.center, "scale": problem.scale, "overall": "auto"}
    weight = {} if problem.regularizer == "none" else {"mu": problem.mu}
    raw = {
        "name": "answers",
        "edges": [list(edge) for edge in problem.edges],
        "problem": {"n": problem.n, "p": problem.p, "regularizer": problem.regularizer, "data": data} | weight,
        "algorithm": {"method": method, "start": {"kind": "leading", "seed": 1}} | settings_of(method),
        "peers": peers,
    }
    file = directory / "network.toml"
    file.write_text(tomlkit.dumps(raw), encoding="utf-8")
    topology = load(file)
    network = StackedNetwork(build(topology))
    while not network.is_done:
        network.advance()
    rounds = sum(network.rounds_by_phase.values())
    return Answer(
        sparse=network.sparse,
        has_converged=bool(network.has_converged),
        overall=network.overall,
        rounds=rounds,
        messages=rounds * topology.messages_per_round,
        payload=network.payload_sent,
        tolerance=topology.tolerance,
        certified=None if network.found.residual is None else float(network.found.residual),
        drift=drift_of(network.X),
    )


# ---------------------------------------------------------------------- one problem


@dataclass(frozen=True)
class Outcome:
    """What came of one problem with one method.

    Attributes:
        problem: Which problem.
        method: Which method.
        ending: "converged", "not converged", "diverged", "error" or "out of time".
        seconds: Of the processor.
        words: What was raised.
        residual: Of the worst agent, as judged.
        feasibility: ||X'X - I||_F of the worst agent.
        objective: Of the first agent, in units of ||A||_2^2.
        apart: The largest distance of an agent's answer from the first one's.
        has_one_support: Whether all agents have the same zeros.
        nonzeros: How many entries of the first answer are not zero.
        divisor: What samples were divided by, in units of their 2-norm.
        rounds: Of all phases.
        messages: Of all agents together, if known.
        payload: Bytes of all agents together, if known.
        gap: The objective beside the best one of all methods.
        claim: What "converged" claims: the tolerance, or 1e-6 if that is larger.
        certified: The residual that the agents say they have, if they say so.
        drift: ||X'X - I||_F of their own X, the largest.
    """

    problem: Problem
    method: str
    ending: str
    seconds: float
    words: str = ""
    residual: float | None = None
    feasibility: float | None = None
    objective: float | None = None
    apart: float | None = None
    has_one_support: bool | None = None
    nonzeros: int | None = None
    divisor: float | None = None
    rounds: int | None = None
    messages: int | None = None
    payload: int | None = None
    gap: float | None = None
    claim: float = WRONG
    certified: float | None = None
    drift: float | None = None

    @property
    def is_flattered(self) -> bool:
        """Whether the agents certify less than there is."""
        return self.understatement > UNDERSTATED

    @property
    def understatement(self) -> float:
        """The judged residual by the certified one; 1 where that is rounding, or of another point.

        Agents certify an answer that is on the manifold; else the nearest point to it.
        """
        if self.certified is None or self.residual is None or self.residual <= ROUNDING:
            return 1.0
        if not _worst(self.feasibility) <= WRONG:
            return 1.0
        return self.residual / max(self.certified, np.finfo(np.float64).tiny)

    @property
    def is_off(self) -> bool:
        """Whether an agent's own X is far from the manifold."""
        return self.drift is not None and not self.drift <= OFF

    @property
    def is_wrong(self) -> bool:
        """Whether it claims what is not so."""
        return self.ending == "converged" and not _worst(self.residual, self.feasibility, self.apart) <= self.claim

    @property
    def is_good(self) -> bool:
        """Whether the answer is right to many digits, whatever it claims."""
        return self.residual is not None and _worst(self.residual, self.feasibility) < GOOD

    @property
    def failure(self) -> str:
        """What is to be mended; empty if nothing."""
        if self.ending != "converged":
            return f"{self.ending}: {self.words or self._figures}"
        if self.is_wrong:
            return f"converged, but wrong: {self._figures}"
        if self.is_flattered:
            return f"certified {self.certified:.1e}: {self._figures}"
        if self.is_off:
            return f"off the manifold: {self._figures}"
        return "" if self.has_one_support else f"agents differ in what is zero: {self._figures}"

    @property
    def _figures(self) -> str:
        figures = {"residual": self.residual, "feasibility": self.feasibility, "apart": self.apart}
        figures |= {"certified": self.certified, "drift": self.drift}
        shown = ", ".join(f"{name} {figure:.1e}" for name, figure in figures.items() if figure is not None)
        return f"{shown}, {self.rounds} rounds"


def _worst(*figures: float | None) -> float:
    """The largest; NaN counts as infinite."""
    return max(float(np.nan_to_num(np.inf if each is None else each, nan=np.inf)) for each in figures)


class OutOfTimeError(Exception):
    """A problem took longer than allowed."""


def attempt(
    problem: Problem, method: str, seconds: float, solver: Callable[[Problem, str], Answer] = solve
) -> Outcome:
    """Solve and judge a problem within so many seconds of the processor."""
    began = time.process_time()
    signal.signal(signal.SIGPROF, _raise_out_of_time)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        answer = solver(problem, method)
        signal.setitimer(signal.ITIMER_PROF, 0)
        return assess(problem, method, answer, time.process_time() - began)
    except OutOfTimeError:
        ending, words = "out of time", f"more than {seconds:g} s of the processor"
    except DivergenceError as error:
        ending, words = "diverged", str(error)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what came of the problem
        ending, words = "error", f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return Outcome(problem, method, ending, time.process_time() - began, " ".join(words.split()))


def _raise_out_of_time(_number: int, _frame: FrameType | None) -> None:
    raise OutOfTimeError


def assess(problem: Problem, method: str, answer: Answer, seconds: float = 0.0) -> Outcome:
    """Judge an answer."""
    first = answer.sparse[0]
    if not np.isfinite(answer.sparse).all():
        return Outcome(problem, method, "diverged", seconds, "some entries are no numbers", rounds=answer.rounds)
    A = prepared(problem.samples(), center=problem.center, scale=problem.scale)
    size = float(np.linalg.norm(A, 2))
    overall = size if answer.overall is None else answer.overall
    verdicts: list[Worth] = [worth_of(A / overall, X, problem.regularizer, problem.mu) for X in answer.sparse]
    return Outcome(
        problem,
        method,
        "converged" if answer.has_converged else "not converged",
        seconds,
        residual=max(verdict.residual for verdict in verdicts),
        feasibility=max(verdict.feasibility for verdict in verdicts),
        objective=verdicts[0].objective,
        apart=max(float(np.linalg.norm(X - first)) for X in answer.sparse),
        has_one_support=bool(((answer.sparse != 0) == (first != 0)).all()),
        nonzeros=int(np.count_nonzero(first)),
        divisor=overall / size,
        rounds=answer.rounds,
        messages=answer.messages,
        payload=answer.payload,
        claim=max(WRONG, answer.tolerance),
        certified=answer.certified,
        drift=answer.drift,
    )


# ---------------------------------------------------------------------- all problems


def run(problems: Sequence[Problem], methods: Sequence[str], seconds: float, processes: int) -> list[Outcome]:
    """Every problem with every method, some at a time, in order."""
    # Set before the processes are started, which have yet to import numpy.
    os.environ.update(ONE_THREAD)
    pairs = [(problem, method) for problem in problems for method in methods]
    outcomes: dict[tuple[int, str], Outcome] = {}
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        asked = {pool.submit(attempt, problem, method, seconds): (problem, method) for problem, method in pairs}
        for done in as_completed(asked):
            problem, method = asked[done]
            outcomes[problem.index, method] = _outcome_of(done, problem, method)
            failures = sum(bool(outcome.failure) for outcome in outcomes.values())
            said = f"\r{len(outcomes)}/{len(pairs)}, {failures} failed; last: {problem.name}, {method}"
            sys.stderr.write(f"{said:130.130}")
    sys.stderr.write("\n")
    return with_gaps([outcomes[problem.index, method] for problem, method in pairs])


def _outcome_of(done: Future[Outcome], problem: Problem, method: str) -> Outcome:
    try:
        return done.result()
    except BrokenProcessPool:
        return Outcome(problem, method, "error", 0.0, "a process was killed, this problem's or another's")


def with_gaps(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The same, each beside the best answer to its problem that is feasible."""
    best: dict[int, float] = {}
    for outcome in outcomes:
        if outcome.objective is not None and _worst(outcome.feasibility) <= WRONG:
            index = outcome.problem.index
            best[index] = min(outcome.objective, best.get(index, np.inf))
    return [
        replace(outcome, gap=outcome.objective - best[outcome.problem.index])
        if outcome.objective is not None and outcome.problem.index in best
        else outcome
        for outcome in outcomes
    ]


# ---------------------------------------------------------------------- what is printed

COLUMNS = (
    "problems",
    "diverged",
    "error",
    "out of time",
    "not converged",
    "converged",
    "converged, but wrong",
    "zeros differ",
    "off the manifold",
    "judged by certified",
    f"residual < {GOOD:.0e}",
    "largest residual",
    "rounds, median",
    "rounds, most",
    "MB, median",
    "MB, most",
    "gap, median",
    "gap, most",
)
Key: TypeAlias = Callable[[Outcome], str]


def report(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """All tables and failures, as Markdown."""
    yield from table(outcomes, "method", lambda outcome: outcome.method)
    groups: dict[str, Key] = {
        "graph": lambda outcome: outcome.problem.graph,
        "data": lambda outcome: outcome.problem.data,
        "split": lambda outcome: outcome.problem.split,
        "n": lambda outcome: _bin(outcome.problem.n, N_BINS),
        "p": lambda outcome: _bin(outcome.problem.p, P_BINS),
        "regularizer": lambda outcome: outcome.problem.regularizer,
        "mu": lambda outcome: f"{outcome.problem.mu:g}",
    }
    for title, key in groups.items():
        yield from table(outcomes, title, key)
    failed = [outcome for outcome in outcomes if outcome.failure]
    yield f"\n## Failures: {len(failed)} of {len(outcomes)}\n"
    for outcome in failed:
        yield f"- {outcome.problem.name}, {outcome.method}: {outcome.failure}  \n  `{command_of(outcome)}`"


def command_of(outcome: Outcome) -> str:
    """What repeats one problem."""
    problem = outcome.problem
    which = f"--seed {problem.seed} --only index={problem.index}"
    return f"python benchmarks/answers.py --method {outcome.method} {which}"


def table(outcomes: Sequence[Outcome], title: str, key: Key) -> Iterator[str]:
    """A row for each group and method."""
    first = ("method",) if title == "method" else (title, "method")
    yield f"\n## By {title}\n"
    yield f"| {' | '.join((*first, *COLUMNS))} |"
    yield f"|{'---|' * len(first)}{'---:|' * len(COLUMNS)}"
    methods = list(dict.fromkeys(outcome.method for outcome in outcomes))
    for group in sorted({key(outcome) for outcome in outcomes}, key=_natural):
        for method in methods:
            chosen = [each for each in outcomes if key(each) == group and each.method == method]
            cells = (method,) if title == "method" else (group, method)
            if chosen:
                yield f"| {' | '.join((*cells, *cells_of(chosen)))} |"


def cells_of(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The figures of one row, in the order of COLUMNS."""
    yield str(len(outcomes))
    for ending in ("diverged", "error", "out of time", "not converged", "converged"):
        yield str(sum(outcome.ending == ending for outcome in outcomes))
    yield str(sum(outcome.is_wrong for outcome in outcomes))
    yield str(sum(outcome.has_one_support is False for outcome in outcomes))
    yield str(sum(outcome.is_off for outcome in outcomes))
    yield f"{max(outcome.understatement for outcome in outcomes):.2f}"
    yield f"{np.mean([outcome.is_good for outcome in outcomes]):.1%}"
    yield _figure(max, (outcome.residual for outcome in outcomes), ".1e")
    for measure in (statistics.median, max):
        yield _figure(measure, (outcome.rounds for outcome in outcomes), ",.0f")
    for measure in (statistics.median, max):
        yield _figure(measure, (each.payload / 1e6 for each in outcomes if each.payload is not None), ",.3f")
    for measure in (statistics.median, max):
        yield _figure(measure, (outcome.gap for outcome in outcomes), ".1e")


def _figure(measure: Callable[[list[float]], float], numbers: Iterable[float | None], form: str) -> str:
    known = [float(number) for number in numbers if number is not None]
    return format(measure(known), form) if known else "-"


def _bin(number: int, most: Sequence[int]) -> str:
    """The bin of a number, named by its bounds."""
    k = next(k for k, each in enumerate(most) if number <= each)
    least = most[k - 1] + 1 if k else 1
    return str(most[k]) if least == most[k] else f"{least} to {most[k]}"


def _natural(text: str) -> tuple[float, str]:
    """Numbers by size, words by letter."""
    number = text.split(" ", maxsplit=1)[0]
    return (float(number), "") if number.replace(".", "", 1).isdecimal() else (np.inf, text)


def write_csv(file: Path, outcomes: Sequence[Outcome]) -> None:
    """Everything, a line for each problem and method."""
    with file.open("w", encoding="utf-8", newline="") as stream:
        lines = [_flat(outcome) for outcome in outcomes]
        writer = csv.DictWriter(stream, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)


def _flat(outcome: Outcome) -> dict[str, Any]:
    own = {name: each for name, each in asdict(outcome).items() if name != "problem"}
    drawn = {name: getattr(outcome.problem, name) for name in filters()}
    return drawn | {"samples": sum(outcome.problem.counts)} | own


# ---------------------------------------------------------------------- the command


def filters() -> list[str]:
    """The keys of --only."""
    return [each.name for each in fields(Problem) if each.name not in {"edges", "counts"}]


def chosen_problems(seed: int, count: int, only: Sequence[str]) -> list[Problem]:
    """The first problems of a seed, as far as they are asked for."""
    wanted = dict(each.split("=", 1) for each in only if "=" in each)
    if len(wanted) < len(only) or not wanted.keys() <= set(filters()):
        raise click.BadParameter(
            f"must be KEY=VALUE, each KEY once, of {', '.join(filters())}", param_hint="--only"
        )
    indexes = [int(wanted["index"])] if wanted.get("index", "").isdecimal() else range(count)
    problems = (draw(seed, index) for index in indexes)
    return [each for each in problems if all(_shown(getattr(each, key)) == wanted[key] for key in wanted)]


def _shown(value: str | float) -> str:
    """As it is typed: 0.05, 0, ring, True."""
    return str(value) if isinstance(value, str | bool) else f"{value:g}"


@click.command()
@click.option("--method", "methods", type=click.Choice(METHODS), multiple=True, required=True)
@click.option("--problems", "count", type=click.IntRange(1), default=240, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("--only", multiple=True, metavar="KEY=VALUE", help="Only these: graph=ring, mu=0.1, index=7, ...")
@click.option("--csv", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write everything here, too.")
@click.option("--seconds", type=float, default=300, show_default=True, help="Of the processor, for each problem.")
@click.option("--processes", type=click.IntRange(1), default=2, show_default=True)
def main(
    methods: tuple[str, ...],
    count: int,
    seed: int,
    only: tuple[str, ...],
    file: Path | None,
    seconds: float,
    processes: int,
) -> None:
    """Draw problems, solve them, and print what the answers are worth."""
    problems = chosen_problems(seed, count, only)
    if not problems:
        raise click.BadParameter("no problem is like that", param_hint="--only")
    outcomes = run(problems, methods, seconds, processes)
    for line in report(outcomes):
        click.echo(line)
    if file is not None:
        write_csv(file, outcomes)


if __name__ == "__main__":
    main()
