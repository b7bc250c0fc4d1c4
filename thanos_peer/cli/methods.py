"""The option that runs a file with another method."""

import click

from thanos_peer.algorithm.methods import CHOICES

METHOD = click.option(
    "--method",
    type=click.Choice(CHOICES),
    help="Another method than FILE names, with its default settings.",
)
