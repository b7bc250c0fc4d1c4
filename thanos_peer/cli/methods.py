"""The option that runs a file with another method."""

import click

from thanos_peer.algorithm.methods import CHOICES, METHODS
from thanos_peer.topology import Topology
from thanos_peer.topology.text import read_toml

METHOD = click.option(
    "--method",
    type=click.Choice(CHOICES),
    help="Another method than FILE names, with its default settings.",
)


def warn_of_restarts(topology: Topology) -> None:
    """Say that the file's `restarts` are not those of the method that was asked for instead."""
    if topology.other_method is None or "restarts" in METHODS[topology.method].settings:
        return
    restarts = read_toml(topology.file)["algorithm"].get("restarts", 1)
    if restarts != 1:
        note = f"Note: {topology.method} searches from one start: algorithm.restarts = {restarts} is left out"
        click.echo(note, err=True)
