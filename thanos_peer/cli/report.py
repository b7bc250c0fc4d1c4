"""`thanos-peer report`: how a run went, as a page and pictures."""

from pathlib import Path

import click

from thanos_peer.cli.paths import PATH
from thanos_peer.report import write_report


@click.command("report")
@click.argument("run", type=PATH)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the page and the pictures go; older ones of the same name are replaced.  [default: RUN/report]",
)
@click.option(
    "--topology",
    "file",
    type=PATH,
    help="The topology file, of a run whose peers were started one by one.  [default: RUN/topology.toml]",
)
def report_command(run: Path, out: Path | None, file: Path | None) -> None:
    """Tell how the run in directory RUN went: one HTML page, and its figures as PNG files.

    Convergence, the network with its weights, loadings, sparsity against variance, and the time waited per edge.
    The page needs no network and no script, fits a phone, and follows the reader's choice of light or dark. Of a
    run that has not ended it shows what there is, and says what is missing; of peers that were started one
    by one there is no history. Needs the extra `plots`.
    """
    page, *pictures = write_report(run, out or run / "report", file)
    click.echo(f"written: {page}, and as pictures " + ", ".join(picture.name for picture in pictures))
