"""`thanos-peer simulate`: a whole network in this process."""

import contextlib
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import click

from thanos_peer.cli.methods import METHOD, warn_of_restarts
from thanos_peer.cli.paths import PATH
from thanos_peer.cli.progress import Progress
from thanos_peer.cli.start import ALLOW_CODE
from thanos_peer.errors import ConfigError
from thanos_peer.preparation import outline
from thanos_peer.problem import Instance, build
from thanos_peer.simulate import AgentNetwork, EndReason, Network, StackedNetwork, measure, prepare, run
from thanos_peer.storage.run_directory import RunDirectory
from thanos_peer.storage.summary import Summary, summarize
from thanos_peer.topology import load

ENGINES: dict[str, Callable[[Instance], Network]] = {"agents": AgentNetwork, "stacked": StackedNetwork}
# Number of agents from which they are stacked; below, agent by agent is quick enough.
STACKED_FROM = 65


class Interrupt:
    """The first SIGINT or SIGTERM asks to finish the round; the second ends the process at once.

    Args:
        directory: Where the results are written.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.number: int | None = None
        # Called where the second signal ends the process.
        self.before_exit: Callable[[], None] = lambda: None

    @property
    def is_asked(self) -> bool:
        """Whether a signal has come."""
        return self.number is not None

    @property
    def exit_code(self) -> int:
        """What to end with: 0, or 128 plus the number of the signal."""
        return 0 if self.number is None else 128 + self.number

    def listen(self) -> None:
        """Take over both signals."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._hear)

    def stop_listening(self) -> None:
        """Give both signals back: Ctrl-C is a KeyboardInterrupt again."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _hear(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        # The reader may be gone, or another line is just being written.
        with contextlib.suppress(OSError, RuntimeError):
            if self.is_asked:
                click.echo(
                    f"interrupted again, ending at once; what there is lies in {self._directory}/", err=True
                )
                self.before_exit()
            else:
                click.echo(
                    "interrupted: finishing the round and writing the results; Ctrl-C again ends at once", err=True
                )
        if self.is_asked:
            sys.exit(128 + number)
        self.number = number


def default_directory(name: str) -> Path:
    """A new directory below runs/, named after the topology and the time."""
    stem = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    candidates = [stem, *(stem.with_name(f"{stem.name}-{number}") for number in range(2, 1000))]
    return next(path for path in candidates if not path.exists())


def solve_now_if_possible(instance: Instance) -> None:
    """Solve for X* before a run begins, unless the network has yet to find what it divides its samples by.

    Raises:
        ConfigError: There are several values of mu.
    """
    if instance.topology.problem.is_path:
        raise ConfigError(
            f"--reference: {instance.topology.file} has several values of mu, each with an X* of its own; write "
            "one value there"
        )
    if not instance.is_divided:
        instance.solve_reference()


@click.command("simulate")
@click.argument("file", type=PATH)
@click.option("--out", type=PATH, help="Run directory.  [default: runs/NAME-TIME]")
@click.option(
    "--reference", is_flag=True, help="Also solve the pooled problem, and report the distance to its X*."
)
@click.option(
    "--engine",
    type=click.Choice(["auto", *ENGINES]),
    default="auto",
    show_default=True,
    help=f"Agent by agent, or all agents stacked; auto stacks from {STACKED_FROM} agents on. Same bits.",
)
@click.option(
    "--every", type=click.IntRange(min=1), default=1, show_default=True, help="Rounds per line of history."
)
@METHOD
@ALLOW_CODE
@click.option("--quiet", "-q", is_flag=True, help="No progress, only the summary.")
def simulate_command(
    file: Path,
    out: Path | None,
    reference: bool,
    engine: str,
    every: int,
    method: str | None,
    allowed_code: tuple[str, ...],
    quiet: bool,
) -> None:
    """Run all agents of topology FILE in this process.

    The agents are the ones that run over the network: same state, same exchange, same order of sums. Ctrl-C
    finishes the round and keeps the results (exit code 130); a second Ctrl-C leaves at once.
    """
    topology = load(file, allowed_code=allowed_code, method=method)
    warn_of_restarts(topology)
    instance = build(topology)
    if engine == "auto":
        engine = "stacked" if topology.d >= STACKED_FROM else "agents"
    if reference:
        solve_now_if_possible(instance)
    interrupt = Interrupt(out := out or default_directory(topology.name))
    interrupt.listen()
    with RunDirectory(out, topology, engine=engine, samples=instance.samples) as directory:
        summary = _simulate(
            engine, instance, directory, interrupt, wants_reference=reference, every=every, quiet=quiet
        )
    click.echo(f"{summary.in_words()}\n  written to          {directory.path}/")
    if summary.ending == EndReason.INTERRUPTED.value:
        sys.exit(interrupt.exit_code)


def _simulate(
    engine: str,
    instance: Instance,
    directory: RunDirectory,
    interrupt: Interrupt,
    *,
    wants_reference: bool,
    every: int,
    quiet: bool,
) -> Summary:
    """All rounds of a network in this process; its history and its results."""
    began, network = time.monotonic(), ENGINES[engine](instance)
    with Progress("simulate", outline(instance.topology).most, silent=quiet) as progress:
        prepare(network, should_stop=lambda: interrupt.is_asked, on_phase=progress.show_phase)
        prepared, reference = time.monotonic(), None
        if wants_reference and not network.is_preparing:
            reference = instance.divided_by(network.overall).solve_reference()
        # Finding the reference is no part of the run.
        began += time.monotonic() - prepared
        shown = 0
        for row in run(
            network,
            instance,
            reference=reference,
            every=every,
            should_stop=lambda: interrupt.is_asked,
            on_phase=progress.show_phase,
        ):
            directory.append(row)
            progress.show(row, rounds=row.round - shown)
            shown = row.round
    if network.is_preparing:
        click.echo("interrupted before the first round of the phase that minimises: there is no result", err=True)
        sys.exit(interrupt.exit_code)
    row = measure(network, instance, reference)
    if row.round > shown:
        directory.append(row)
    summary = summarize(network, instance, row, seconds=time.monotonic() - began, reference=reference)
    directory.finish(network, instance, summary)
    return summary
