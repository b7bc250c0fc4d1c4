"""Progress of a run: a moving bar on a terminal, a line now and then elsewhere."""

import shutil
import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import click

from thanos_peer.block import AgentId
from thanos_peer.simulate import Row

QUIET_SECONDS = 5.0
# Seconds between two looks at a phase, on a terminal.
PHASE_SECONDS = 0.2
BAR, SHORT_BAR = 16, 4  # columns
# Columns from which a terminal has room for a whole line with the longer bar.
WIDE = 140


class Progress:
    """Shows how far a run is; to be used as a context. Writes to stderr, so that stdout stays the result.

    Args:
        label: What is running.
        total: How many rounds there are at most.
        silent: Show nothing.
    """

    def __init__(self, label: str, total: int, *, silent: bool = False) -> None:
        self._label, self._total, self._silent = label, total, silent
        self._done, self._last_shown = 0, time.monotonic()
        self._bar: Any = None
        self._columns = BAR if shutil.get_terminal_size().columns >= WIDE else SHORT_BAR
        self._network: NetworkPace | None = None

    def __enter__(self) -> Self:
        if not self._silent and sys.stderr.isatty():
            self._bar = click.progressbar(
                length=self._total,
                label=self._label,
                file=sys.stderr,
                item_show_func=lambda row: None if row is None else self._fitting(row),
                width=self._columns,
                show_eta=False,
                update_min_steps=max(1, self._total // 500),
            ).__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.__exit__(kind, error, trace)

    def _fitting(self, row: Row) -> str:
        """A row in words, or else in short, as far as there is room for it; half a number would mislead."""
        room = shutil.get_terminal_size().columns - self._columns - len(self._label) - len("  []  100%  ") - 1
        parts = describe_row(row, self._network)
        if len("  ".join(parts)) > room:
            parts = describe_in_short(row, self._network)
        while parts and len("  ".join(parts)) > room:
            parts.pop()
        return "  ".join(parts)

    def show_phase(self, name: str, k: int) -> None:
        """Note that a phase other than the one that minimises is in its round k."""
        self.show_words("", f"phase {name}, round {k}")

    def show_words(self, done: str, words: str) -> None:
        """Note where it is, if that was not said just now; on a terminal the bar says itself how much is done."""
        wait = QUIET_SECONDS if self._bar is None else PHASE_SECONDS
        if self._silent or time.monotonic() - self._last_shown < wait:
            return
        self._last_shown = time.monotonic()
        if self._bar is None:
            click.echo(f"{self._label} {done} {words}", err=True)
        else:
            self._bar.label = f"{self._label}, {words}"
            self._bar.render_progress()
            self._bar.label = self._label

    def step(self, steps: int = 1) -> None:
        """Note that so many more of the total are done, of which there is nothing to show."""
        if self._bar is not None:
            self._bar.update(steps)

    def show(self, row: Row, *, rounds: int, network: "NetworkPace | None" = None) -> None:
        """Note that `rounds` more rounds are done, the last of which is `row`."""
        self._done += rounds
        self._network = network
        if self._bar is not None:
            self._bar.update(rounds, row)
        elif not self._silent and time.monotonic() - self._last_shown >= QUIET_SECONDS:
            self._last_shown = time.monotonic()
            said = "  ".join(describe_row(row, self._network))
            click.echo(f"{self._label} {self._done}/{self._total}  {said}", err=True)


@dataclass(frozen=True)
class NetworkPace:
    """What there is to say of peers besides their numbers: rounds per second, and whom others wait for."""

    speed: float
    slowest: AgentId | None


def describe_row(row: Row, network: NetworkPace | None = None) -> list[str]:
    """A row in a few words."""
    return [
        f"round {row.round}",
        f"feasibility {row.feasibility:.1e}",
        f"consensus {row.consensus:.1e}",
        f"objective {row.objective:.6g}",
        *([] if network is None else [f"{network.speed:.0f} rounds/s"]),
        *([] if network is None or network.slowest is None else [f"slowest peer {network.slowest}"]),
    ]


def describe_in_short(row: Row, network: NetworkPace | None = None) -> list[str]:
    """A row in the fewest."""
    return [
        f"{row.round}",
        *([] if network is None else [f"{network.speed:.0f}/s"]),
        f"feas {row.feasibility:.0e}",
        f"cons {row.consensus:.0e}",
        f"obj {row.objective:.5g}",
        *([] if network is None or network.slowest is None else [f"slow {network.slowest}"]),
    ]
