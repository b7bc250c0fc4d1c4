"""`thanos-peer run` and `thanos-peer verify`: all peers as processes on this machine."""

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import click

from thanos_peer.algorithm.reference import Reference
from thanos_peer.block import AgentId
from thanos_peer.cli.methods import METHOD, warn_of_restarts
from thanos_peer.cli.numbers import FiniteFloat
from thanos_peer.cli.paths import PATH
from thanos_peer.cli.progress import NetworkPace, Progress
from thanos_peer.cli.simulate import Interrupt, default_directory, solve_now_if_possible
from thanos_peer.cli.start import ALLOW_CODE, SURVIVE
from thanos_peer.errors import ConfigError
from thanos_peer.launch.cluster import Cluster, check_addresses, free_ports, prepare_peers
from thanos_peer.preparation import outline
from thanos_peer.problem import Instance, build
from thanos_peer.simulate import AgentNetwork, EndReason, measure
from thanos_peer.simulate.network import Snapshot
from thanos_peer.storage.outcome import NetworkOutcome, has_outcome, load_outcome, mean_of_run, words_on_distance
from thanos_peer.storage.run_directory import RunDirectory
from thanos_peer.storage.summary import Summary, summarize
from thanos_peer.topology import Topology, load

# Seconds between two looks at the peers.
SNAPSHOT_PAUSE = 0.1
# Seconds between two questions to a peer about its phase.
LOOK_AT_PHASE = 1.0
# Seconds that peers get after Ctrl-C to finish their round and write: disks may be slow.
GRACE = 60.0
# Seconds between two lines that name the peers that are waited for.
SAY_AGAIN = 5.0
MOST_NAMED = 8  # peers in one such line
DIFFERENT_BITS = 7


@dataclass(frozen=True)
class Launch:
    """What is to be run, and where its results go."""

    topology: Topology
    instance: Instance
    wants_reference: bool
    free_ports: bool
    every: int
    give_up: float | None
    survive: str
    quiet: bool

    def reference(self, network: Snapshot) -> Reference | None:
        """X* of the problem as the network has prepared it, if it is wanted."""
        if not self.wants_reference:
            return None
        return self.instance.divided_by(network.overall).solve_reference()


class Shutdown:
    """Asks all peers to end, and says for whom it waits; when it is over, leaving the cluster ends the others."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._began = self._said = time.monotonic()
        cluster.stop(signal.SIGTERM)

    def is_over(self) -> bool:
        """Whether the peers have had their time."""
        now, left = time.monotonic(), self._cluster.running
        if now - self._said > SAY_AGAIN and left:
            self._said = now
            names = ", ".join(map(str, left[:MOST_NAMED]))
            more = f" and {len(left) - MOST_NAMED} more" if len(left) > MOST_NAMED else ""
            click.echo(
                f"waiting for peer {names}{more} to finish the round and write its results, for {GRACE:g} s at "
                "most; Ctrl-C again ends at once",
                err=True,
            )
        return now - self._began > GRACE


def run_network(launch: Launch, directory: RunDirectory, interrupt: Interrupt) -> Summary:
    """Run all peers as processes to their end, with a live view and a history as they go."""
    topology, began, row = launch.topology, time.monotonic(), None
    ports = free_ports(topology.d) if launch.free_ports else None
    topology, secrets = prepare_peers(topology, directory.path / "topology.toml", ports)
    with (
        Cluster(
            topology,
            directory.path,
            secrets,
            keep_every=launch.every,
            give_up=launch.give_up,
            survive=launch.survive,
        ) as cluster,
        Progress("run", outline(topology).most, silent=launch.quiet) as progress,
    ):
        interrupt.last_words = lambda: _say_how_to_go_on(cluster)
        shutdown: Shutdown | None = None
        is_running, looked_at, first_seen = True, began, None
        while is_running:
            time.sleep(SNAPSHOT_PAUSE)
            # Looked at first, so that the last snapshots are read after all peers have ended.
            is_running = cluster.is_running
            if time.monotonic() - looked_at > LOOK_AT_PHASE and not launch.quiet:
                looked_at = time.monotonic()
                _show_phase(cluster, progress, topology)
            for snapshot in cluster.snapshots():
                shown = 0 if row is None else row.round
                first_seen = first_seen or time.monotonic() - SNAPSHOT_PAUSE
                row = measure(snapshot, launch.instance, launch.reference(snapshot))
                directory.append(row)
                speed = row.round / (time.monotonic() - first_seen)
                progress.show(row, rounds=row.round - shown, network=NetworkPace(speed, cluster.slowest()))
            if interrupt.is_asked and shutdown is None:
                shutdown = Shutdown(cluster)
            if shutdown is None:
                cluster.check()
            elif is_running and shutdown.is_over():
                break
    seconds = time.monotonic() - began
    if interrupt.is_asked and not has_outcome(directory.path, topology):
        click.echo(f"stopped before every peer had a result; what there is lies in {directory.path}/", err=True)
        _say_how_to_go_on(cluster)
        sys.exit(interrupt.exit_code)
    outcome = load_outcome(directory.path, topology)
    if not outcome.is_done:
        _say_how_to_go_on(cluster)
    reference = launch.reference(outcome)
    last = measure(outcome, launch.instance, reference)
    # After an interrupt the peers may have ended in different rounds: there is no row for that.
    if outcome.is_done and (row is None or last.round > row.round):
        directory.append(last)
    return summarize(outcome, launch.instance, last, seconds=seconds, reference=reference)


def _say_how_to_go_on(cluster: Cluster) -> None:
    if command := cluster.command_to_go_on():
        click.echo(f"to go on from what the peers have saved, start each peer I: {command}", err=True)


def _show_phase(cluster: Cluster, progress: Progress, topology: Topology) -> None:
    """Before and after the phase that minimises there is no snapshot of the peers."""
    plan = outline(topology)
    if len(plan.phases) > 1 and (phase := cluster.phase()) and phase[0] != plan.phases[plan.main].name:
        progress.show_phase(*phase)


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
@click.argument("file", type=PATH)
@click.option("--out", type=PATH, help="Run directory.  [default: runs/NAME-TIME]")
@click.option(
    "--reference", is_flag=True, help="Also solve the pooled problem, and report the distance to its X*."
)
@click.option(
    "--beside",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="RUN",
    help="Also report how far the answer is from that of an earlier run on the same samples, in this directory.",
)
@_FREE_PORTS
@_EVERY
@_GIVE_UP
@SURVIVE
@METHOD
@ALLOW_CODE
@click.option("--quiet", "-q", is_flag=True, help="No progress, only the summary.")
def run_command(
    file: Path,
    out: Path | None,
    reference: bool,
    beside: Path | None,
    free_ports: bool,
    every: int,
    give_up: float | None,
    survive: str,
    method: str | None,
    allowed_code: tuple[str, ...],
    quiet: bool,
) -> None:
    """Run all peers of topology FILE as separate processes on this machine.

    Ctrl-C asks all peers to finish their round and keeps the results (exit code 130); a second one, or a minute
    later, ends them at once. If a peer fails, the others are stopped, and its exit code and the end of its log are
    reported. No peer outlives this command, even a killed one.

    Links are encrypted: peers without keys in FILE get new ones for this run, in RUN/topology.keys.
    """
    topology = load(file, allowed_code=allowed_code, method=method)
    warn_of_restarts(topology)
    if not free_ports:
        check_addresses(topology)
    instance = build(topology)
    earlier = None if beside is None else mean_of_run(beside, instance)
    if reference:
        solve_now_if_possible(instance)
    launch = Launch(topology, instance, reference, free_ports, every, give_up, survive, quiet)
    interrupt = Interrupt(out := out or default_directory(topology.name))
    interrupt.listen()
    with RunDirectory(out, topology, engine="network", samples=instance.samples) as directory:
        summary = run_network(launch, directory, interrupt)
        directory.write_summary(summary)
    click.echo(f"{summary.in_words()}\n  written to          {directory.path}/")
    if beside is not None and earlier is not None:
        click.echo(words_on_distance(instance, earlier, mean_of_run(directory.path, instance), beside))
    if summary.ending == EndReason.INTERRUPTED.value:
        sys.exit(interrupt.exit_code)


@click.command("verify")
@click.argument("file", type=PATH)
@click.option("--out", type=PATH, help="Run directory.  [default: runs/NAME-TIME]")
@click.option(
    "--results",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Run nothing: compare what the peers of an earlier run have left in this directory.",
)
@_GIVE_UP
@METHOD
@ALLOW_CODE
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
def verify_command(
    file: Path,
    out: Path | None,
    results: Path | None,
    give_up: float | None,
    method: str | None,
    allowed_code: tuple[str, ...],
    quiet: bool,
) -> None:
    """Run topology FILE over the network and in one process, and compare the bits.

    The peers get free ports. Exit code 0 if the results of every peer (X, the sparse X, and D of methods
    that have one) agree to the last bit and all stopped after the same round, 7 if not. With --results, what other
    hosts or containers have computed is compared instead: that needs the data files of all peers here, as FILE
    names them.
    """
    if results is not None:
        _check_all_data_is_here(load(file, data_of=()))
    topology = load(file, allowed_code=allowed_code, method=method)
    warn_of_restarts(topology)
    instance = build(topology)
    if results is not None:
        outcome = load_outcome(results, topology)
        row = measure(outcome, instance, None)
        click.echo(summarize(outcome, instance, row, seconds=outcome.seconds).in_words())
        compare_bits(finished_in_one_process(instance), topology, results)
        return
    launch = Launch(topology, instance, False, True, 10, give_up, "power", quiet)  # noqa: FBT003
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
