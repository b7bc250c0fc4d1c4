"""The option that names rules of this site, besides those of the host and of the environment."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from thanos_peer.cli.paths import PATH
from thanos_peer.preparation import outline
from thanos_peer.topology import Topology
from thanos_peer.topology.policy import SitePolicy
from thanos_peer.topology.policy_files import HOST_FILE, VARIABLE, policy_of_site, read_policy

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


POLICY_OF_PEERS = click.option(
    "--policy",
    type=PATH,
    help=f"A file with rules that every peer keeps: each has it as its {HOST_FILE}.",
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
    if makes_keys and not topology.has_keys:
        algorithm = topology.algorithm.model_copy(update={"masks": False})
        _check_each(_with_made_keys(topology, algorithm=algorithm, unencrypted=None), policy, UNMASKED)
    else:
        _check_each(topology, policy)


def check_deployed(topology: Topology, policy: Path | None, *, makes_keys: bool) -> None:
    """Refuse to write what would start peers that break these rules; peers without keys get some, and mask.

    Raises:
        TopologyError: The file holds no rules, with all its mistakes.
        PolicyError: A peer would break one.
    """
    if policy is None:
        return
    shown = _with_made_keys(topology) if makes_keys and not topology.has_keys else topology
    _check_each(shown, SitePolicy({policy: read_policy(policy)}))


def _check_each(topology: Topology, policy: SitePolicy, unmasked: str = "") -> None:
    mixing = outline(topology).mixing
    for agent in range(topology.d):
        policy.check(topology, agent, mixing=mixing, unmasked=unmasked)


def _with_made_keys(topology: Topology, **changes: Any) -> Topology:
    """As it will run: real keys are written when all else has been looked at."""
    content = topology.content
    peers = [peer.model_copy(update={"public_key": "made for this run"}) for peer in content.peers]
    return replace(topology, content=content.model_copy(update={"peers": peers} | changes))
