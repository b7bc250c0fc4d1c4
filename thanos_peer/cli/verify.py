"""`thanos-peer verify`: whether a network of processes has the bits of one process."""

import os
import sys
from pathlib import Path

import click

from thanos_peer.block import AgentId
from thanos_peer.cli.methods import METHOD, warn_of_restarts
from thanos_peer.cli.paths import PATH
from thanos_peer.cli.policy import POLICY, check_all_peers, site_policy
from thanos_peer.cli.run import GIVE_UP, Launch, run_network
from thanos_peer.cli.simulate import Interrupt, default_directory
from thanos_peer.cli.start import ALLOW_CODE
from thanos_peer.errors import ConfigError
from thanos_peer.problem import Instance, build
from thanos_peer.simulate import AgentNetwork, measure
from thanos_peer.storage.outcome import NetworkOutcome, load_outcome
from thanos_peer.storage.run_directory import RunDirectory
from thanos_peer.storage.summary import summarize
from thanos_peer.topology import Topology, load

DIFFERENT_BITS = 7


@click.command("verify")
@click.argument("file", type=PATH)
@click.option("--out", type=PATH, help="Run directory.  [default: runs/NAME-TIME]")
@click.option(
    "--results",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Run nothing: compare what the peers of an earlier run have left in this directory.",
)
@GIVE_UP
@METHOD
@POLICY
@ALLOW_CODE
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
def verify_command(
    file: Path,
    out: Path | None,
    results: Path | None,
    give_up: float | None,
    method: str | None,
    policy: Path | None,
    allowed_code: tuple[str, ...],
    quiet: bool,
) -> None:
    """Run topology FILE over the network and in one process, and compare the bits.

    The peers get free ports; those without keys in FILE get new ones, and sum without masks. Exit code 0 if the
    results of every peer (X, the sparse X, and D of methods that have one) agree to the last bit and all stopped
    after the same round, 7 if not. With --results, what other hosts or containers have computed is compared
    instead: that needs the data files of all peers here, as FILE names them. Rules of this site hold as with
    `run`; with --results nothing is sent, and they are not looked at.
    """
    if results is not None:
        _check_all_data_is_here(load(file, data_of=()))
    topology = load(file, allowed_code=allowed_code, method=method)
    if results is None:
        check_all_peers(topology, site_policy(policy))
    warn_of_restarts(topology)
    instance = build(topology)
    if results is not None:
        outcome = load_outcome(results, topology)
        row = measure(outcome, instance, None)
        click.echo(summarize(outcome, instance, row, seconds=outcome.seconds).in_words())
        compare_bits(finished_in_one_process(instance), topology, results)
        return
    launch = Launch(topology, instance, False, True, 10, give_up, "power", quiet, policy)  # noqa: FBT003
    interrupt = Interrupt(out := out or default_directory(topology.name))
    interrupt.listen()
    with RunDirectory(out, topology, engine="network", samples=instance.samples) as directory:
        directory.write_summary(run_network(launch, directory, interrupt))
    # The comparison below does not look whether it is asked to end.
    interrupt.stop_listening()
    if interrupt.is_asked:
        sys.exit(interrupt.exit_code)
    compare_bits(finished_in_one_process(instance), topology, directory.path)


def _check_all_data_is_here(topology: Topology) -> None:
    """One process needs what each peer had: no sense in a line for each file that is not here."""
    if topology.problem.data.kind != "files":
        return
    absent = [i for i, peer in enumerate(topology.peers) if not _is_readable(topology, peer.data)]
    if absent:
        first = topology.peers[absent[0]].data or "which the file does not name"
        raise ConfigError(
            f"--results: the bits of one process need the data of all peers, and that of {len(absent)} of "
            f"{topology.d} cannot be read here, first that of peer {absent[0]} ({first}); where data stays "
            "private, the peers' own numbers are in their .json files"
        )


def _is_readable(topology: Topology, data: str | None) -> bool:
    return data is not None and os.access(topology.directory / data, os.R_OK)


def finished_in_one_process(instance: Instance) -> AgentNetwork:
    """The same network without processes, after its last round."""
    network = AgentNetwork(instance)
    while not network.is_done:
        network.advance()
    return network


def compare_bits(network: AgentNetwork, topology: Topology, path: Path) -> None:
    """Say whether a network run has the bits of one process; exit with code 7 if not."""
    outcome = load_outcome(path, topology)
    differing = [i for i in range(topology.d) if not _has_same_bits(outcome, network, i)]
    if differing or set(outcome.rounds) != {network.k}:
        click.echo(
            f"DIFFERENT: peers {differing} of {topology.d} differ; the network stopped after rounds "
            f"{sorted(set(outcome.rounds))}, one process after {network.k}; see {path}/"
        )
        sys.exit(DIFFERENT_BITS)
    click.echo(f"same bits: the results of {topology.d} peers, all after round {network.k}; see {path}/")


def _has_same_bits(outcome: NetworkOutcome, network: AgentNetwork, i: AgentId) -> bool:
    answer = network.agents[i].runner.answer()
    assert answer is not None, "it is done"  # noqa: S101
    pairs = [(outcome.X[i], answer.X), (outcome.sparse[i], answer.sparse)]
    tracked = answer.arrays.get("D")
    if outcome.D is not None and tracked is not None:
        pairs.append((outcome.D[i], tracked))
    path, other_path = network.agents[i].found.path, outcome.paths[i]
    if path is not None and other_path is not None:
        pairs.append((other_path, path))
    has_all = (outcome.D is None) == (tracked is None) and (path is None) == (other_path is None)
    return has_all and all(one.tobytes() == other.tobytes() for one, other in pairs)
