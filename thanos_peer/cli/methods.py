"""The option that runs a file with another method."""

import click

from thanos_peer.algorithm.methods import MIXING, SUMMING

METHOD = click.option(
    "--method",
    type=click.Choice(["auto", *SUMMING, *MIXING]),
    help="Another method than FILE names, with its default settings.",
)
