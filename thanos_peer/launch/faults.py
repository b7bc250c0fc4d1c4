"""What goes wrong on purpose: its kinds, and schedules of it that follow from a seed."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from thanos_peer.block import AgentId
from thanos_peer.errors import ConfigError

# What each kind does to its victims, and for how long where that can be chosen.
_WORDS: Final[Mapping[str, str]] = {
    "kill": "kill -9 of {whom}",
    "storm": "kill -9 of {whom}, and twice more while it starts",
    "kill-saving": "kill -9 of {whom} while it saves",
    "freeze": "freeze {whom} for {seconds:.1f} s",
    "cut": "close each connection to {whom} for {seconds:.1f} s",
    "refuse": "close all connections to {whom}, and refuse others for {seconds:.1f} s",
    "reset": "reset all connections to {whom}",
    "stall": "let nothing to {whom} or back through open connections for {seconds:.1f} s",
    "deaf": "let nothing to {whom} through open connections for {seconds:.1f} s",
    "mute": "let no answer of {whom} back through open connections for {seconds:.1f} s",
    "half-open": "close the far ends of all connections to {whom}, and its own ends after {seconds:.1f} s",
    "delay": "delay all that is sent to {whom} by 20 ms for {seconds:.1f} s",
    "lose-bytes": "lose a byte of 10% of the pieces that are sent to {whom} for {seconds:.1f} s",
    "drop": "drop 30% of the messages to {whom} for {seconds:.1f} s",
    "duplicate": "duplicate 30% of the messages to {whom} for {seconds:.1f} s",
}
KINDS: Final = tuple(_WORDS)
KILLS: Final = ("kill", "storm", "kill-saving")
# Encrypted messages cannot be told apart.
IN_THE_CLEAR_ONLY: Final = ("drop", "duplicate")
# Without keys, TCP's own checksums are all that could find a lost byte.
WITH_KEYS_ONLY: Final = ("lose-bytes",)
# Rounds that a run may get further, besides the diameter, before the launcher sees where it is.
SPARE = 6


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        k: When the run reaches this round, counted through all its phases.
        kind: One of KINDS.
        victims: To whom.
        seconds: For how long.
    """

    k: int
    kind: str
    victims: tuple[AgentId, ...]
    seconds: float

    def describe(self) -> str:
        """In words."""
        return _WORDS[self.kind].format(whom=", ".join(map(str, self.victims)), seconds=self.seconds)


def kinds_for(wanted: Sequence[str], *, in_the_clear: bool) -> tuple[str, ...]:
    """The kinds to draw from: those wanted, or all that there are.

    Raises:
        ConfigError: One of those wanted needs keys, or none.
    """
    without = WITH_KEYS_ONLY if in_the_clear else IN_THE_CLEAR_ONLY
    for kind in wanted:
        if kind in without:
            remedy = "leave out --in-the-clear" if in_the_clear else "add --in-the-clear"
            what = "needs keys" if in_the_clear else "tells messages apart, which keys hide"
            raise ConfigError(f"--only {kind}: this kind of fault {what}; {remedy}, or choose another kind")
    return tuple(wanted) or tuple(kind for kind in KINDS if kind not in without)


def latest_round(rounds: int, diameter: int) -> int:
    """The last round in which a fault can strike a run of so many rounds for sure."""
    return max(0, rounds - diameter - SPARE)


def draw_faults(count: int, kinds: Sequence[str], *, d: int, latest: int, seed: int) -> list[Fault]:
    """A schedule of faults, spread over the rounds up to the latest, in order."""
    rng = random.Random(seed)  # noqa: S311 - it must be repeatable, not secret
    when = sorted(rng.randint(0, latest) for _ in range(count))
    faults = []
    for number, k in enumerate(when):
        kind = kinds[number % len(kinds)]
        several = rng.choice((1, 1, 2, 3)) if kind == "kill" else 1
        victims = tuple(sorted(rng.sample(range(d), min(several, d))))
        faults.append(Fault(k, kind, victims, seconds=rng.uniform(0.2, 5.0)))
    return faults
