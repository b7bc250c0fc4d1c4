"""`thanos-peer hosts`: what to copy to each host of a topology, and what to run there."""

from pathlib import Path

import click

from thanos_peer.cli.paths import PATH
from thanos_peer.cli.start import LET_PEERS_RUN
from thanos_peer.cli.words import Word
from thanos_peer.deploy.enclosures import NOTHING, enclosures_of
from thanos_peer.deploy.hosts import STEPS, instructions, systemd_unit, without_data
from thanos_peer.topology import load


@click.command("hosts")
@click.argument("file", type=PATH)
@click.option(
    "--only", "steps", type=click.Choice(list(STEPS)), multiple=True, help="Only these steps.  [default: all]"
)
@click.option(
    "--directory",
    type=Word(r"(?![~-]).+", "a path from the home directory there, or from /"),  # no shell expands ~ there
    default="thanos-peer",
    show_default=True,
    help="Where things go on each host, from the home directory there.",
)
@click.option("--systemd", is_flag=True, help="Print a systemd unit for the peers instead.")
@LET_PEERS_RUN
def hosts_command(
    file: Path, steps: tuple[str, ...], directory: str, systemd: bool, allowed_code: tuple[str, ...]
) -> None:
    """Say what to copy to each host of topology FILE, and what to run there.

    The lines are for a shell: do by hand what they say, or hand them over step by step. Data files stay where they
    are: each peer's is its own host's. A start in a file, and code that is allowed, are copied. Rules of a site
    are its host's own, in /etc/thanos-peer/policy.toml.

    \b
    Try:
      thanos-peer hosts mine.toml --only copy | sh -e
      thanos-peer hosts mine.toml --only run | sh -e
      thanos-peer hosts mine.toml --only status | sh
      thanos-peer hosts mine.toml --only fetch | sh -e
      thanos-peer verify mine.toml --results runs/NAME
    """
    topology = load(file, data_of=(), allowed_code=allowed_code)
    steps = steps or tuple(STEPS)
    needs_all = systemd or not {"copy", "run"}.isdisjoint(steps)
    enclosures = enclosures_of(topology) if needs_all else NOTHING
    if (unknown := without_data(topology)) and needs_all:
        ids = ", ".join(str(peer.id) for peer in unknown)
        click.echo(
            f"{file} does not say where the data of peer {ids} is: on its own host, start it with --data FILE",
            err=True,
        )
    if systemd:
        click.echo(systemd_unit(topology, enclosures), nl=False)
        return
    click.echo(instructions(topology, directory=directory, steps=steps, enclosures=enclosures), nl=False)
