"""`thanos-peer transform`: a peer's loadings, applied to new samples."""

from pathlib import Path

import click

from thanos_peer.cli.numbers import FiniteFloat
from thanos_peer.cli.paths import PATH
from thanos_peer.errors import ConfigError
from thanos_peer.loadings.result import find_result, load_result
from thanos_peer.loadings.transform import transform_file


@click.command("transform")
@click.argument("result", type=PATH)
@click.argument("samples", type=PATH)
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, dir_okay=False), required=True, help="A .csv or .npy file."
)
@click.option("--peer", type=click.IntRange(min=0), help="Whose result of a run directory.  [default: the first]")
@click.option(
    "--mu", type=FiniteFloat(min=0), help="Take the answer for this mu of a path.  [default: the chosen one]"
)
@click.option("--sparse", "kind", flag_value="sparse", help="Apply the sparse loadings.")
@click.option("--dense", "kind", flag_value="dense", default="dense", help="Apply the loadings X.  [default]")
@click.option("--polar", "kind", flag_value="polar", help="Apply X moved to the nearest orthonormal loadings.")
@click.option("--force", is_flag=True, help="Replace the output if it exists.")
def transform_command(
    result: Path, samples: Path, output: Path, peer: int | None, mu: float | None, kind: str, force: bool
) -> None:
    """Apply the loadings of RESULT to the new samples in SAMPLES.

    RESULT is a run directory or the .npz file of a peer. SAMPLES is a file with a row per sample and the same
    features in the same order: .npy, .npz, .csv, .tsv, .txt or .parquet; it may be larger than the memory. If the
    run picked columns by name, so does this. A missing value is filled in if the run did so. The output has a row
    per sample and a column per component.
    """
    if output.exists() and not force:
        raise ConfigError(f"{output} exists already; choose another --output, or --force")
    file = find_result(result, peer)
    loaded = load_result(file)
    if mu is not None:
        loaded = loaded.at(mu)
    count = transform_file(loaded, samples, output, kind=kind, whose=str(file))  # type: ignore[arg-type]
    click.echo(f"{count:,} samples: {output}")
