"""What an honest neighbor can say: for each field of each message, and at each moment.

`wire` checks what a message must be by itself. Here it is compared with what the receiver knows: its own round,
what it has said before, how often it was calm. A message that breaks a rule is refused, and counted. An honest
neighbor breaks none, whatever others have told it. The tables below have rows of docs/protocol.md, and tests make
every violation from them. Which announcements of a last round are believed, `stop` says.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from thanos_peer.block import AgentId, Block
from thanos_peer.errors import RemoteProtocolError
from thanos_peer.protocol.messages import DONE, NEVER, SPENT, Bye, Hello

# Epochs: a peer believes one neighbor that names an epoch so far ahead, as it may have been away for any number of
# them; and so many more for each time that it says so. Two of these words are at least EPOCHS_APART seconds apart,
# as are two epochs. So a liar needs 2^21 of them to use up all epochs that a message can name, and a peer that was
# away meanwhile follows its only neighbor, even if that was told of one by each.
EPOCHS_AHEAD = 2**32


@dataclass(frozen=True, slots=True)
class BlockView:
    """What a peer knows when a block of its own round arrives.

    Attributes:
        k: Its round.
        r: Rounds of this phase that are behind it.
        ends_by_agreement: Whether the peers agree on the last round of this phase.
        diameter: Of the graph.
    """

    k: int
    r: int
    ends_by_agreement: bool
    diameter: int


@dataclass(frozen=True, slots=True)
class TalkView:
    """What a peer knows when a Hello or a Bye of its own epoch or a later one arrives.

    Attributes:
        k: Its round.
        epoch: Its epoch, or the later one that it has lost its state of.
        own_epoch: The epoch of its state.
        words_ahead: How often the sender has named a later one than that, EPOCHS_APART seconds apart.
        diameter: Of the graph.
        is_done: Whether this was its last round.
        may_be_behind: Whether it has started again, or not begun: so its neighbors may be far ahead.
        has_gone_on: Whether this life has taken a step, and no earlier one had the result.
        has_heard: Whether it has heard a block of the sender in this epoch.
        is_in_last_phase: Whether its run can end with the phase that it is in.
        radius: How far around it all are done, as it has said; None if it has said nothing.
        epochs: The latest epochs that its other neighbors have named.
    """

    k: int
    epoch: int
    own_epoch: int
    words_ahead: int
    diameter: int
    is_done: bool
    may_be_behind: bool
    has_gone_on: bool
    has_heard: bool
    is_in_last_phase: bool
    radius: int | None
    epochs: tuple[int, ...]


class Rule(NamedTuple):
    """What an honest neighbor can say in a field, as docs/protocol.md names it: in words, and as a check."""

    field: str
    words: str
    is_kept: Callable[[Any, Any], bool]


def check(
    rules: Mapping[str, Rule], view: BlockView | TalkView, sender: AgentId, message: Block | Hello | Bye
) -> None:
    """Raise RemoteProtocolError if a message breaks a rule, the first one in words."""
    for name, rule in rules.items():
        if not rule.is_kept(view, message):
            raise RemoteProtocolError(neighbor=sender, k=message.k, what=f"its {name} is not {rule.words}")


# ---------------------------------------------------------------------- blocks


def _has_streak(view: BlockView, block: Block) -> bool:
    """A streak is 0 when a phase begins, and grows by one in a round.

    An honest one is at most one more than this peer's a round ago, too. But after a lie to one of them two honest
    neighbors may differ in that, and would refuse each other for ever; and a larger one changes nothing, as the
    least streak counts.
    """
    if not view.ends_by_agreement:
        return block.stop.streak == 0
    return block.stop.streak <= min(view.r, view.diameter + 1)


def _has_after(view: BlockView, block: Block) -> bool:
    """An announcement is diameter + 1 rounds ahead when it is made."""
    after = block.stop.after
    if not view.ends_by_agreement or view.r == 0:
        return after is None
    return after is None or after <= view.k + view.diameter + 1


BLOCK_RULES: Final[dict[str, Rule]] = {
    "streak": Rule(
        "streak",
        "0 where the last round is known, or at most as many as rounds of the phase and diameter + 1",
        _has_streak,
    ),
    "announced last round": Rule(
        "after", "nil where the last round is known, or at most diameter + 1 ahead", _has_after
    ),
}

# ---------------------------------------------------------------------- hellos


def _is_near(view: TalkView, message: Hello | Bye) -> bool:
    return message.k <= view.k + 1 or view.may_be_behind


def _names_epoch(view: TalkView, hello: Hello) -> bool:
    """However often one lies, there is always a next epoch."""
    return hello.epoch <= max((view.own_epoch, *view.epochs)) + EPOCHS_AHEAD * max(1, view.words_ahead)


HELLO_RULES: Final[dict[str, Rule]] = {
    "epoch": Rule(
        "epoch",
        f"at most {EPOCHS_AHEAD} later than any other that is known, for each time that it is said",
        _names_epoch,
    ),
    "round": Rule(
        "round",
        "at most one ahead of this peer in its epoch",
        lambda view, hello: hello.epoch != view.epoch or _is_near(view, hello),
    ),
    "oldest": Rule(
        "oldest",
        "at most its own round or 1, or in an answer 2^53",
        lambda _, hello: hello.oldest <= max(hello.k, 1) or (hello.answered > 0 and hello.oldest == NEVER),
    ),
}

# ---------------------------------------------------------------------- byes


def _ends_with_us(view: TalkView, bye: Bye) -> bool:
    """All end with the same round, and none sends a block of it: so none is past a neighbor's last round."""
    if not bye.is_done or bye.reason == SPENT:
        return True
    if view.is_done:
        return bye.k == view.k
    can_end = view.is_in_last_phase or bye.k > view.k + 1
    return view.k <= bye.k and _is_near(view, bye) and can_end


def _has_radius(view: TalkView, bye: Bye) -> bool:
    """It is one more than the least around it, this peer included; what an earlier life has said is not known."""
    if bye.reason != DONE or not view.has_gone_on:
        return bye.radius <= view.diameter + 1
    return bye.radius <= min(1 + (-1 if view.radius is None else view.radius), view.diameter + 1)


BYE_RULES: Final[dict[str, Rule]] = {
    "round": Rule(
        "round", "the last one of this peer, or for one that is not done yet a later one", _ends_with_us
    ),
    "radius": Rule("radius", "at most one more than what this peer has said", _has_radius),
    "reason": Rule(
        "reason",
        "one by which its blocks are gone, while this peer goes on with them",
        lambda view, bye: bye.reason != SPENT or view.is_done or not (view.has_gone_on and view.has_heard),
    ),
}
