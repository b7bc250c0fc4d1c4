"""`thanos-peer run`: all peers as processes on this machine."""

import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import click

from thanos_peer.algorithm.reference import Reference
from thanos_peer.cli.methods import METHOD, warn_of_restarts
from thanos_peer.cli.numbers import FiniteFloat
from thanos_peer.cli.paths import PATH
from thanos_peer.cli.policy import POLICY, check_all_peers, site_policy
from thanos_peer.cli.progress import NetworkPace, Progress
from thanos_peer.cli.simulate import Interrupt, default_directory, solve_now_if_possible
from thanos_peer.cli.start import ALLOW_CODE, SURVIVE
from thanos_peer.launch.cluster import Cluster, ClusterSnapshot, prepare_peers
from thanos_peer.launch.ports import check_addresses, free_ports
from thanos_peer.preparation import outline
from thanos_peer.problem import Instance, build
from thanos_peer.simulate import EndReason, Row, measure
from thanos_peer.simulate.network import Snapshot
from thanos_peer.storage.outcome import has_outcome, load_outcome, mean_of_run, words_on_distance
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
# Peers in one such line.
MOST_NAMED = 8


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
    policy: Path | None = None

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


class LiveView:
    """Writes the history of a network while it runs, and shows how it goes on.

    Attributes:
        row: The latest row of the history.
    """

    def __init__(
        self, launch: Launch, topology: Topology, directory: RunDirectory, cluster: Cluster, progress: Progress
    ) -> None:
        self._launch, self._directory, self._cluster, self._progress = launch, directory, cluster, progress
        self._plan = outline(topology)
        self._looked_at, self._first_seen = time.monotonic(), 0.0
        self.row: Row | None = None

    def update(self) -> None:
        """Take in what the peers have reported since the last time."""
        if time.monotonic() - self._looked_at > LOOK_AT_PHASE and not self._launch.quiet:
            self._looked_at = time.monotonic()
            self._show_phase()
        for snapshot in self._cluster.snapshots():
            self._show(snapshot)

    def _show_phase(self) -> None:
        """Before and after the phase that minimises there is no snapshot of the peers."""
        plan = self._plan
        if len(plan.phases) > 1 and (phase := self._cluster.phase()) and phase[0] != plan.phases[plan.main].name:
            self._progress.show_phase(*phase)

    def _show(self, snapshot: ClusterSnapshot) -> None:
        shown = 0 if self.row is None else self.row.round
        self._first_seen = self._first_seen or time.monotonic() - SNAPSHOT_PAUSE
        self.row = row = measure(snapshot, self._launch.instance, self._launch.reference(snapshot))
        self._directory.append(row)
        speed = row.round / (time.monotonic() - self._first_seen)
        pace = NetworkPace(speed, self._cluster.slowest())
        self._progress.show(row, rounds=row.round - shown, network=pace)


def run_network(launch: Launch, directory: RunDirectory, interrupt: Interrupt) -> Summary:
    """Run all peers as processes to their end, with a live view and a history as they go."""
    began = time.monotonic()
    ports = free_ports(launch.topology.d) if launch.free_ports else None
    topology, secrets = prepare_peers(launch.topology, directory.path / "topology.toml", ports)
    cluster = Cluster(
        topology,
        directory.path,
        secrets,
        keep_every=launch.every,
        give_up=launch.give_up,
        survive=launch.survive,
        policy=launch.policy,
    )
    with cluster, Progress("run", outline(topology).most, silent=launch.quiet) as progress:
        interrupt.before_exit = lambda: _say_how_to_go_on(cluster)
        view = LiveView(launch, topology, directory, cluster, progress)
        _watch(cluster, view, interrupt)
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
    if outcome.is_done and (view.row is None or last.round > view.row.round):
        directory.append(last)
    return summarize(outcome, launch.instance, last, seconds=seconds, reference=reference)


def _watch(cluster: Cluster, view: LiveView, interrupt: Interrupt) -> None:
    """Until all peers have ended; an error of one ends all, and so does a signal to this process."""
    shutdown: Shutdown | None = None
    is_running = True
    while is_running:
        time.sleep(SNAPSHOT_PAUSE)
        # Looked at first, so that the last snapshots are read after all peers have ended.
        is_running = cluster.is_running
        view.update()
        if interrupt.is_asked and shutdown is None:
            shutdown = Shutdown(cluster)
        if shutdown is None:
            cluster.check()
        elif is_running and shutdown.is_over():
            break


def _say_how_to_go_on(cluster: Cluster) -> None:
    if command := cluster.command_to_go_on():
        click.echo(f"to go on from what the peers have saved, start each peer I: {command}", err=True)


_FREE_PORTS = click.option(
    "--free-ports/--ports-of-file",
    default=False,
    show_default=True,
    help="Give every peer a free port of this machine instead of the address in the file.",
)
_EVERY = click.option(
    "--every", type=click.IntRange(min=1), default=10, show_default=True, help="Rounds per line of history."
)
GIVE_UP = click.option(
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
@GIVE_UP
@SURVIVE
@METHOD
@POLICY
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
    policy: Path | None,
    allowed_code: tuple[str, ...],
    quiet: bool,
) -> None:
    """Run all peers of topology FILE as separate processes on this machine.

    Ctrl-C asks all peers to finish their round and keeps the results (exit code 130); a second one, or a minute
    later, ends them at once. If a peer fails, the others are stopped, and its exit code and the end of its log are
    reported. No peer outlives this command, even a killed one.

    Links are encrypted: peers without keys in FILE get new ones for this run, in RUN/topology.keys, and sum
    without masks: all of them are on this machine. Rules of this site hold for every peer, as with `start`: one
    that asks for masks refuses such a run. `simulate` sends nothing, and looks at no rules.
    """
    topology = load(file, allowed_code=allowed_code, method=method)
    check_all_peers(topology, site_policy(policy))
    warn_of_restarts(topology)
    if not free_ports:
        check_addresses(topology)
    instance = build(topology)
    earlier = None if beside is None else mean_of_run(beside, instance)
    if reference:
        solve_now_if_possible(instance)
    launch = Launch(topology, instance, reference, free_ports, every, give_up, survive, quiet, policy)
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
