"""What a peer knows of one neighbor: one record, in one place."""

import math
from dataclasses import dataclass, field
from enum import Enum

from thanos_peer.block import AgentId
from thanos_peer.errors import RunOverError
from thanos_peer.protocol.conduct import Conduct
from thanos_peer.protocol.messages import Bye, Hello
from thanos_peer.protocol.traffic import EdgeCounters


class LinkEvent(Enum):
    """What happens to a connection."""

    UP = "the handshake succeeded"
    DOWN = "the connection was lost"
    RETRIED = "a connection was tried in vain"
    REFUSED = "the handshake failed"


@dataclass(slots=True)
class Link:
    """The connection to an address.

    Attributes:
        address: Where it leads.
        is_up: Whether it is connected.
        since: When that began, or ended.
        was_up: Whether it was ever connected.
        retries: Failed tries since.
        refusals: Failed handshakes since.
        unresolved: The host's name, if it does not resolve.
    """

    address: str
    is_up: bool = False
    since: float = 0.0
    was_up: bool = False
    retries: int = 0
    refusals: int = 0
    unresolved: str | None = None

    def note(self, event: LinkEvent, now: float) -> None:
        """Note what happened."""
        if event is LinkEvent.UP:
            self.is_up, self.was_up, self.since = True, True, now
            self.retries = self.refusals = 0
        elif event is LinkEvent.REFUSED:
            self.refusals += 1
        elif event is LinkEvent.RETRIED:
            self.retries += 1
        elif self.is_up:
            self.is_up, self.since = False, now

    def describe(self, now: float) -> str:
        """In words."""
        if self.is_up:
            return f"connected for {now - self.since:.0f} s"
        # The kernel of a frozen process still connects, but nothing more happens.
        if self.was_up:
            tries = f"{self.retries} tries to reconnect"
            if self.refusals:
                tries = f"no handshake since, {self.refusals} tries"
            return f"connection lost {now - self.since:.0f} s ago, {tries}"
        if self.refusals:
            return (
                f"no handshake, {self.refusals} tries; do both have the same topology file, and is it this peer's "
                "key that stands in it?"
            )
        if self.unresolved is not None:
            return f"the name {self.unresolved} does not resolve"
        return f"never connected, {self.retries + 1} tries"


@dataclass(slots=True)
class EpochRecord:
    """What holds for one epoch only: a new epoch begins with a new record.

    Attributes:
        round: The round that it was in when it last said Hello, while this peer is not past that.
        first_round: The round that it was in when it first did.
        answered: The epoch and round of the question that was last answered, and when.
        radius: Up to which distance from it all are done; -1 while it is not known to be done.
        reach: The same without those that it has given up.
        may_be_gone: Whether it may have left unheard, and is not known to be done.
        last_round: The last round, by its word, if it is done.
        mismatch: In which round of ours it has sent blocks of another phase, and since when; None if it has not.
        helper: Which life of it has answered that it can help this peer to where the network is; -1 if none has.
        words_ahead: How often it has named a later epoch, counted once in a while, and when it was counted last.
    """

    round: int | None = None
    first_round: int | None = None
    answered: tuple[int, int, float] | None = None
    radius: int = -1
    reach: int = -1
    may_be_gone: bool = False
    last_round: int | None = None
    mismatch: tuple[int, float] | None = None
    helper: int = -1
    words_ahead: tuple[int, float] = 0, -math.inf

    def ends_otherwise(self, k: int, before: float) -> bool:
        """Whether it is done with round k, or in another phase there and has been since before some time."""
        is_elsewhere = self.mismatch is not None and self.mismatch[0] == k and self.mismatch[1] <= before
        return self.last_round == k or is_elsewhere


@dataclass(slots=True)
class Neighbor:
    """One neighbor.

    Attributes:
        id: Which.
        link: The connection to it.
        counters: What went over the edge.
        is_greeted: Whether its Hello has arrived and agreed with ours.
        lives: The latest of its lives, in order of arrival.
        has_answered: Whether it has answered this life of ours.
        answering: Which of its lives was the last to do so; 0 if none.
        is_nameless: Whether its latest Hello had no names of features.
        question: Its latest question that is not answered yet.
        heard: When it last said something, and in which round.
        left: Its Bye, if it left before it was done, and has not come back.
        is_spent: Whether it is done and has nothing left to say again.
        trouble: What keeps it waiting, as it said in this round of ours.
        named_epoch: The latest epoch that it has named, believed or not.
        conduct: What was refused of it.
        epoch: What holds for this epoch only.
    """

    id: AgentId
    link: Link
    counters: EdgeCounters
    is_greeted: bool = False
    lives: list[int] = field(default_factory=list)
    has_answered: bool = False
    answering: int = 0
    is_nameless: bool = False
    question: Hello | None = None
    heard: tuple[float, int] | None = None
    left: Bye | None = None
    is_spent: bool = False
    trouble: tuple[int, str] = 0, ""
    named_epoch: int = 0
    conduct: Conduct = field(default_factory=Conduct)
    epoch: EpochRecord = field(default_factory=EpochRecord)

    def is_latest(self, life: int) -> bool:
        """Whether no other life of it has been heard of since this one was."""
        return life not in self.lives[:-1]

    @property
    def has_left_for_good(self) -> bool:
        """Whether it has left without a state that it could go on from."""
        return self.left is not None and self.left.reason == RunOverError.in_short

    def trouble_in(self, k: int) -> str:
        """What keeps it waiting, as it said while this peer was in round k."""
        return self.trouble[1] if self.trouble[0] == k else ""
