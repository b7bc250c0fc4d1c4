"""`thanos-peer features`: what the columns of a data file are called, to compare with another host."""

from pathlib import Path

import click

from thanos_peer.cli.paths import PATH
from thanos_peer.samples import Columns, digests_so_far, features_digest, named, open_table
from thanos_peer.topology import load


@click.command("features")
@click.argument("file", type=PATH)
@click.option("--topology", type=PATH, help="Whose problem.features or problem.exclude pick the columns.")
def features_command(file: Path, topology: Path | None) -> None:
    """Show the names of the features in data file FILE, and digests to compare them by.

    Neighbors whose names or order differ refuse each other, and know nothing but a digest of the other's names.
    To find the difference, run this at both hosts: the second column is a digest of all names down to that line,
    so the first line where it differs has the first difference, and no name has to be told. If the topology file
    picks columns by name, give it with --topology: peers compare those columns alone.
    """
    columns = Columns() if topology is None else load(topology, may_lack_data=True, reads_data=False).columns
    with named(str(file)), open_table(file, columns=columns) as table:
        count, names = table.columns, table.features
    if names is None:
        click.echo(f"{file} has {count} features without names: they are numbered from 0 to {count - 1}")
        return
    click.echo(f"{file} has {count} features, digest {features_digest(names)}")
    for number, (digest, name) in enumerate(zip(digests_so_far(names), names, strict=True)):
        click.echo(f"{number:>{len(str(count))}}  {digest[:8]}  {name}")
