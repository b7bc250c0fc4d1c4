"""The option that names rules of this site, besides those of the host and of the environment."""

import os
from dataclasses import replace
from pathlib import Path

import click

from thanos_peer.cli.paths import PATH
from thanos_peer.preparation import outline
from thanos_peer.topology import Topology
from thanos_peer.topology.policy import SitePolicy
from thanos_peer.topology.policy_files import HOST_FILE, VARIABLE, policy_of_site

UNMASKED = (
    "the keys that peers of one machine get for one run are without masks; give the file keys of its own "
    "(`thanos-peer keys new --all`)"
)

# No `envvar`: click would take one of the two, and both hold.
POLICY = click.option(
    "--policy",
    type=PATH,
    help=f"A file with rules of this site; a run that breaks one never hears of it. Rules in {HOST_FILE} and in "
    f"the file that {VARIABLE} names hold besides.",
)


def site_policy(named: Path | None) -> SitePolicy:
    """All rules that hold here."""
    in_environment = os.environ.get(VARIABLE)
    files = ([Path(in_environment)] if in_environment else []) + ([] if named is None else [named])
    return policy_of_site(files)


def check_all_peers(topology: Topology, policy: SitePolicy, *, makes_keys: bool = True) -> None:
    """Refuse to run all peers of a topology on this machine if one of them would break a rule of this site.

    Raises:
        PolicyError: It would.
    """
    is_made = makes_keys and not topology.has_keys
    shown, unmasked = (_with_made_keys(topology), UNMASKED) if is_made else (topology, "")
    mixing = outline(shown).mixing
    for agent in range(topology.d):
        policy.check(shown, agent, mixing=mixing, unmasked=unmasked)


def _with_made_keys(topology: Topology) -> Topology:
    """As it will run: `prepare_peers` writes real keys, when all else has been looked at."""
    content = topology.content
    peers = [peer.model_copy(update={"public_key": "made for this run"}) for peer in content.peers]
    algorithm = content.algorithm.model_copy(update={"masks": False})
    changed = {"peers": peers, "algorithm": algorithm, "unencrypted": None}
    return replace(topology, content=content.model_copy(update=changed))
