"""`thanos-peer keys`: the pairs by which peers know each other."""

import os
from pathlib import Path

import click

from thanos_peer.cli.paths import PATH
from thanos_peer.errors import ConfigError
from thanos_peer.topology import load
from thanos_peer.transport.key_change import change_keys
from thanos_peer.transport.keys import make_keys, new_pair, read_secret, secret_directory, write_secret


@click.group("keys")
def keys_group() -> None:
    """Make the keys by which peers know each other."""


@keys_group.command("new")
@click.argument("file", type=PATH)
@click.option("--all", "for_all", is_flag=True, help="FILE is a topology: make keys for all its peers at once.")
@click.option(
    "--replace",
    is_flag=True,
    help="With --all: change the keys that are there already; all, or if anything fails none.",
)
def new_keys_command(file: Path, for_all: bool, replace: bool) -> None:
    """Make a new pair: the secret goes into FILE, the public key is printed.

    Run it on the peer's own host, where the secret stays; FILE is new, and only you can read it. Put the
    line that is printed under the peer's id in the topology file, and give that file to all peers. `start` looks
    for the secret of peer 3 of ring.toml in ring.keys/3.secret, or where --secret-key says.

    With --all, for experiments: FILE is a topology file; the secrets of all its peers go into a directory beside
    it, and their public keys into the file itself, whose comments stay.

    \b
    Examples:
      thanos-peer keys new ring.keys/3.secret
      thanos-peer keys new --all ring.toml
    """
    if for_all:
        _make_all(file, replaces=replace)
        return
    if replace:
        raise ConfigError("--replace goes with --all; a single secret is never overwritten, name another file")
    pair = new_pair()
    write_secret(file, pair)
    click.echo(f'public_key = "{pair.public}"')


def _make_all(file: Path, *, replaces: bool) -> None:
    # What a link leads to is changed, not the link.
    file = Path(os.path.realpath(file))
    topology = load(file, data_of=())
    if topology.has_keys and not replaces:
        raise ConfigError(f"{file} has public keys already; --replace makes new ones for all peers")
    change_keys(topology, make_keys(topology), replaces=replaces)
    click.echo(f"{topology.d} public keys are in {file}, their secrets in {secret_directory(file)}/")


@keys_group.command("show")
@click.argument("file", type=PATH)
def show_command(file: Path) -> None:
    """Print the public key of the secret in FILE."""
    click.echo(f'public_key = "{read_secret(file).public}"')
