"""`thanos-peer run` and `thanos-peer verify`: all peers as processes on this machine."""

import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import click

from thanos_peer.algorithm.reference import Reference
from thanos_peer.block import AgentId
from thanos_peer.cli.numbers import FiniteFloat
from thanos_peer.cli.progress import Progress
from thanos_peer.cli.simulate import Interrupt, default_directory
from thanos_peer.problem import Instance, build
from thanos_peer.results import NetworkOutcome, RunDirectory, Summary, has_outcome, load_outcome, summarize
from thanos_peer.runtime.cluster import Cluster, with_free_ports
from thanos_peer.simulate import AgentNetwork, Ending, Row, measure
from thanos_peer.topology import Topology, load

LOOK = 0.1  # seconds between two looks at the peers
GRACE = 10.0  # seconds that peers get to finish their round after Ctrl-C
DIFFERENT_BITS = 7


@dataclass(frozen=True)
class Launch:
    """What is to be run, and where its results go."""

    topology: Topology
    instance: Instance
    reference: Reference | None
    free_ports: bool
    every: int
    give_up: float | None
    quiet: bool


def run_network(launch: Launch, directory: RunDirectory, interrupt: Interrupt) -> Summary:
    """Run all peers as processes to their end, with a live view and a history as they go."""
    topology, began, row = launch.topology, time.monotonic(), None
    if launch.free_ports:
        topology = with_free_ports(topology, directory.path / "topology.toml")
    with (
        Cluster(topology, directory.path, keep_every=launch.every, give_up=launch.give_up) as cluster,
        Progress("run", topology.algorithm.max_rounds, silent=launch.quiet) as progress,
    ):
        asked_at: float | None = None
        is_running = True
        while is_running:
            time.sleep(LOOK)
            is_running = cluster.is_running  # looked at before the last glimpses are read
            for glimpse in cluster.glimpses():
                shown = 0 if row is None else row.round
                row = measure(glimpse, launch.instance, launch.reference)
                directory.append(row)
                progress.show(row, rounds=row.round - shown, note=_note(cluster, row, time.monotonic() - began))
            if interrupt.is_asked and asked_at is None:
                asked_at = time.monotonic()
                cluster.stop(signal.SIGTERM)
            if asked_at is None:
                cluster.check()
            elif time.monotonic() - asked_at > GRACE:
                break
    seconds = time.monotonic() - began
    if interrupt.is_asked and not has_outcome(directory.path, topology):
        click.echo(f"stopped before every peer had begun; what there is lies in {directory.path}/", err=True)
        sys.exit(interrupt.exit_code)
    outcome = load_outcome(directory.path, topology)
    last = measure(outcome, launch.instance, launch.reference)
    if outcome.is_done and (row is None or last.round > row.round):  # not of different rounds
        directory.append(last)
    return summarize(outcome, launch.instance, last, seconds=seconds, reference=launch.reference)


def _note(cluster: Cluster, row: Row, seconds: float) -> str:
    slowest = cluster.slowest()
    behind = "" if slowest is None else f"  slowest peer {slowest}"
    return f"{row.round / seconds:.0f} rounds/s{behind}"


_FREE_PORTS = click.option(
    "--free-ports/--ports-of-file",
    default=False,
    show_default=True,
    help="Give every peer a free port of this machine instead of the address in the file.",
)
_EVERY = click.option(
    "--every", type=click.IntRange(min=1), default=10, show_default=True, help="Rounds per line of history."
)
_GIVE_UP = click.option(
    "--give-up-after",
    "give_up",
    type=FiniteFloat(min=0, min_open=True),
    metavar="SECONDS",
    help="Peers end with code 6 when a neighbor is missing for so long.  [default: never]",
)


@click.command("run")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Run directory.  [default: runs/NAME-TIME]")
@click.option(
    "--reference", is_flag=True, help="Also solve the pooled problem, and report the distance to its X*."
)
@_FREE_PORTS
@_EVERY
@_GIVE_UP
@click.option("--quiet", "-q", is_flag=True, help="No progress, only the summary.")
def run_command(
    file: Path,
    out: Path | None,
    reference: bool,
    free_ports: bool,
    every: int,
    give_up: float | None,
    quiet: bool,
) -> None:
    """Run all peers of topology FILE as separate processes on this machine.

    Ctrl-C asks all peers to finish their round and keeps the results (exit code 130). If a peer fails, the others
    are stopped, and its exit code and last words are reported. No peer outlives this command, even a killed one.
    """
    topology = load(file)
    instance = build(topology)
    solved = instance.solve_reference() if reference else None
    launch = Launch(topology, instance, solved, free_ports, every, give_up, quiet)
    interrupt = Interrupt()
    interrupt.listen()
    with RunDirectory(out or default_directory(topology.name), topology, engine="network") as directory:
        summary = run_network(launch, directory, interrupt)
        directory.write_summary(summary)
    click.echo(f"{summary.in_words()}\n  written to          {directory.path}/")
    if summary.ending == Ending.INTERRUPTED.value:
        sys.exit(interrupt.exit_code)


@click.command("verify")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Run directory.  [default: runs/NAME-TIME]")
@_GIVE_UP
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
def verify_command(file: Path, out: Path | None, give_up: float | None, quiet: bool) -> None:
    """Run topology FILE over the network and in one process, and compare the bits.

    The peers get free ports. Exit code 0 if X and D of every peer agree to the last bit and all stopped after the
    same round, 7 if not.
    """
    topology = load(file)
    instance = build(topology)
    launch = Launch(topology, instance, None, free_ports=True, every=10, give_up=give_up, quiet=quiet)
    interrupt = Interrupt()
    interrupt.listen()
    with RunDirectory(out or default_directory(topology.name), topology, engine="network") as directory:
        directory.write_summary(run_network(launch, directory, interrupt))
    if interrupt.is_asked:
        sys.exit(interrupt.exit_code)
    network = AgentNetwork(instance)
    while not network.is_done:
        network.advance()
    outcome = load_outcome(directory.path, topology)
    differing = [i for i in range(topology.d) if not _has_same_bits(outcome, network, i)]
    if differing or set(outcome.rounds) != {network.k}:
        click.echo(
            f"DIFFERENT: peers {differing} of {topology.d} differ; the network stopped after rounds "
            f"{sorted(set(outcome.rounds))}, one process after {network.k}; see {directory.path}/"
        )
        sys.exit(DIFFERENT_BITS)
    click.echo(f"same bits: X and D of {topology.d} peers, all after round {network.k}; see {directory.path}/")


def _has_same_bits(outcome: NetworkOutcome, network: AgentNetwork, i: AgentId) -> bool:
    state = network.agents[i].state
    return bool(outcome.X[i].tobytes() == state.X.tobytes() and outcome.D[i].tobytes() == state.D.tobytes())
