"""`thanos-peer reproduce`: the paper's figures, and whether its observations hold."""

from pathlib import Path

import click

from thanos_peer.cli.numbers import FiniteFloat
from thanos_peer.cli.progress import Progress
from thanos_peer.paper import SIGMAS, Figure, reproduce
from thanos_peer.plots import require_matplotlib

WORDS = {True: "holds", False: "DOES NOT HOLD", None: "not decided"}


@click.command("reproduce")
@click.option(
    "--figure", "figures", type=click.Choice(["l1", "l21"]), multiple=True, help="Which one.  [default: both]"
)
@click.option("--rounds", type=click.IntRange(min=1), default=3000, show_default=True)
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of the graph and of the data."
)
@click.option(
    "--sigma",
    "sigmas",
    type=FiniteFloat(min=0, min_open=True),
    multiple=True,
    help=f"A constant sigma; may be given several times.  [default: {', '.join(f'{s:g}' for s in SIGMAS)}]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs/paper"),
    show_default=True,
    help="Where the CSV, PNG and SVG files go; older ones of the same name are replaced.",
)
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
def reproduce_command(
    figures: tuple[str, ...], rounds: int, seed: int, sigmas: tuple[float, ...], out: Path, quiet: bool
) -> None:
    """Run the paper's experiments and draw its two figures.

    Sparse PCA on 32 agents, Erdos-Renyi 0.5, n = 10, 320 samples, p = 3, mu = 0.1, with l1 and with l2,1: several
    constant sigma and the schedule k^(-1/3), dist and feas against the round. The table says from the data of
    this run whether the paper's three observations hold.
    """
    require_matplotlib()
    wanted, chosen = figures or ("l1", "l21"), sorted(set(sigmas or SIGMAS))
    total = len(wanted) * (len(chosen) + 1) * (rounds + 1)
    done = []
    with Progress("reproduce", total, silent=quiet) as progress:
        for regularizer in wanted:
            figure = reproduce(
                regularizer,
                seed=seed,
                max_rounds=rounds,
                sigmas=chosen,
                on_round=lambda row: progress.show(row, rounds=1),
            )
            done.append((figure, figure.write(out)))
    for figure, paths in done:
        click.echo(table(figure, rounds))
        click.echo("  written: " + ", ".join(map(str, paths)) + "\n")


def table(figure: Figure, rounds: int) -> str:
    """What a figure shows, in words and numbers."""
    marks = sorted({k for k in (0, 100, 300, 1000, 3000, rounds) if k <= rounds})
    reference = figure.reference
    warning = "" if reference.is_precise else "  NOT below 1e-10: take the distances with care"
    lines = [
        f"{figure.regularizer}, seed {figure.seed}; residual of X* {reference.residual:.1e}{warning}",
        "  "
        + "sigma".ljust(10)
        + "".join(f"dist({k})".rjust(12) for k in marks)
        + "feas".rjust(12)
        + "half at".rjust(10),
    ]
    for trial in figure.trials:
        distances = "".join(f"{trial.distance(k):12.2e}" for k in marks)
        half = str(trial.halving_round).replace("inf", "-")
        lines.append(f"  {trial.label:10}{distances}{trial.rows[-1].feasibility:12.1e}{half:>10}")
    lines += [f"  {WORDS[v.holds]:14} {v.observation} ({v.evidence})" for v in figure.verdicts()]
    return "\n".join(lines)
