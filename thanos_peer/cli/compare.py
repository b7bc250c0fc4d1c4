"""`thanos-peer compare`: methods side by side on the same problem, network and start."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from thanos_peer.algorithm.central import CENTRAL
from thanos_peer.algorithm.methods import CHOICES
from thanos_peer.cli.paths import PATH
from thanos_peer.cli.progress import Progress
from thanos_peer.cli.start import ALLOW_CODE
from thanos_peer.compare.comparison import Comparison
from thanos_peer.compare.trials import Request, contenders, parse_values
from thanos_peer.topology import load

INTERRUPTED = 130


def _methods(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[str, ...]:  # noqa: ARG001
    """Names between commas."""
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    for name in names:
        if name not in CHOICES:
            hint = "; it is centralised, give --central" if name in CENTRAL else ""
            raise click.BadParameter(f"{name!r} is not one of {', '.join(CHOICES)}{hint}.")
    if text is not None and not names:
        raise click.BadParameter("name at least one method.")
    return names


def _sweep(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, list[Any]]:  # noqa: ARG001
    """Dotted keys and their values."""
    found = {}
    for text in texts:
        key, _, values = (part.strip() for part in text.partition("="))
        if not key or not values:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE,VALUE, as in algorithm.beta=0.3,1,3.")
        if key in found:
            raise click.BadParameter(f"{key} is given twice; name all its values at once.")
        found[key] = parse_values(values)
    return found


@click.command("compare")
@click.argument("file", type=PATH)
@click.option(
    "--methods",
    callback=_methods,
    metavar="LIST",
    help=f"Between commas: {', '.join(CHOICES)}.  [default: all that suit the problem]",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="How many: of synthetic data (problem.data.seed, and the next ones); with data files of the start "
    "(algorithm.start.seed), of which only a random start depends much.",
)
@click.option("--central", is_flag=True, help=f"Also centralised methods: {', '.join(CENTRAL)}.")
@click.option(
    "--sweep",
    callback=_sweep,
    multiple=True,
    metavar="KEY=VALUES",
    help="Try several values of a key, as in algorithm.beta=0.3,1,3; given several times, all combinations. "
    "Values are as in the file, and a method without this setting runs without it.",
)
@click.option(
    "--max-rounds",
    type=click.IntRange(min=1),
    help="Of every method, and iterations of centralised ones.  [default: as FILE or the method has it]",
)
@click.option("--processes", is_flag=True, help="Every peer a process, as `run` does it, not all in this one.")
@click.option("--out", type=PATH, help="Directory.  [default: runs/compare-NAME]")
@ALLOW_CODE
@click.option("--quiet", "-q", is_flag=True, help="No progress, only the table.")
def compare_command(
    file: Path,
    methods: tuple[str, ...],
    seeds: int,
    central: bool,
    sweep: dict[str, list[Any]],
    max_rounds: int | None,
    processes: bool,
    out: Path | None,
    allowed_code: tuple[str, ...],
    quiet: bool,
) -> None:
    """Compare methods on the problem, network and start of topology FILE.

    For each method: rounds, messages, payload bytes and seconds until the gap is below 1e-2, 1e-4 and 1e-8, phases
    of preparation included; then the final gap, the certified residual, feasibility, the support, and what failed.
    The gap is the objective at the nearest point of the manifold to the mean of all X_i, less the best one known,
    divided by ||A||_2^2. The best one known is of a centralised reference from the same start, or of the end of a
    run. A run whose residual is above 1e-6 is not stationary, whatever tolerance its method goes by. A run whose
    residual is small but not its gap has ended at another stationary point: the table says so.

    Written to the directory: table.md (also printed), table.csv with medians and spread over seeds, runs.csv with
    a row per run, and figure.png (with the extra `plots`). Every finished run is kept there: after Ctrl-C (exit
    code 130) the same command goes on, also with more seeds or other methods.
    """
    topology = load(file, allowed_code=allowed_code)
    request = Request(file, methods, seeds, sweep, central, max_rounds, allowed_code)
    found, words = contenders(request)
    for each in words:
        click.echo(each, err=True)
    out = out or Path("runs") / f"compare-{topology.name}"
    comparison = Comparison(request, found, out, over_processes=processes)
    try:
        _run_all(comparison, quiet=quiet)
    except KeyboardInterrupt:
        finished = sum(map(comparison.is_finished, comparison.trials))
        click.echo(
            f"interrupted: {finished} of {len(comparison.trials)} runs are finished and kept in {out}/; the same "
            "command goes on",
            err=True,
        )
        sys.exit(INTERRUPTED)
    text = comparison.write(comparison.results(), lambda line: click.echo(line, err=True))
    click.echo(f"{text}\nwritten to {out}/")


def _run_all(comparison: Comparison, *, quiet: bool) -> None:
    total = len(comparison.trials)
    with Progress("compare", total, silent=quiet) as progress:
        for number, trial in enumerate(comparison.trials):
            if not comparison.is_finished(trial):
                show = partial(_show, progress, f"{number}/{total}", f"{trial.contender.label}, seed {trial.seed}")
                show()
                comparison.run(trial, show)
            progress.step()


def _show(progress: Progress, done: str, what: str, k: int = 0) -> None:
    progress.show_words(done, f"{what}, round {k}")
