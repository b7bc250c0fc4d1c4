"""The three messages: Hello, Block and Bye, and what each of their fields must be.

KINDS has for each kind of message its fields in the order of the wire. A new field of a Hello or a Bye is a line
of its class and a line of the table.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from thanos_peer.block import Block

HELLO, BLOCK, BYE = 1, 2, 3
# The reason in the Bye of a peer that has its result.
DONE = "done"
# The reason of a peer that has its result, but can send none of its blocks again.
SPENT = "done, and its state is gone"
# The reason of a peer that says how far around it all are done, except for some that were given up.
DONE_BUT = "done, but for some given up"
LONGEST_TEXT, LONGEST_BIRTH = 128, 32
LARGEST_ROUND = 2**53
# In an answer: no block helps, as the neighbor that asks has begun this epoch a second time.
NEVER = LARGEST_ROUND


@dataclass(frozen=True, slots=True)
class Hello:
    """I am here, in round k of this run: sent first, and again to a neighbor that the sender waits for.

    Attributes:
        k: The round that the sender is in.
        digest: Of its topology, in hex.
        n: Rows of its X.
        p: Columns.
        dtype: "float64" or "float32".
        software: The sender's version, for messages to people.
        is_asking: Whether it lacks the receiver's block k.
        life: When the sending process started, in milliseconds since 1970.
        answered: The life of the receiver that it answers; 0 if it is no answer.
        oldest: The earliest round whose block the sender could still send again; NEVER if the receiver's blocks do
            not go on from those that it has used.
        epoch: How often the network has started its tracking again.
        trouble: What keeps the sender waiting, for those that wait for it; empty if nothing does.
        features: Digests of the names of its features, in hex, or those it passes on; empty if it knows of none.
        birth: Names the beginning of this epoch, by a life of the sender, that its state follows from.
    """

    k: int
    digest: str
    n: int
    p: int
    dtype: str
    software: str
    is_asking: bool
    life: int = 0
    answered: int = 0
    oldest: int = 0
    epoch: int = 0
    trouble: str = ""
    features: str = ""
    birth: str = ""


@dataclass(frozen=True, slots=True)
class Bye:
    """My last round is k: sent when done or stopped.

    Attributes:
        k: The round that the sender is in.
        reason: DONE, SPENT or DONE_BUT, or why it leaves early.
        radius: Up to which distance from the sender all are done; 0 if it leaves early.
    """

    k: int
    reason: str
    radius: int = 0

    @property
    def is_done(self) -> bool:
        """Whether the sender has its result."""
        return self.reason in {DONE, SPENT, DONE_BUT}


Message: TypeAlias = Hello | Block | Bye


def is_count(value: Any) -> bool:
    """Whether it is a whole number from 0 to the largest round."""
    return type(value) is int and 0 <= value <= LARGEST_ROUND


def _is_pair(value: Any) -> bool:
    return type(value) is tuple and len(value) == 2 and all(map(is_count, value))


def is_text(value: Any, most: int) -> bool:
    """Whether it is a text of printable ASCII, with at most so many characters."""
    return isinstance(value, str) and len(value) <= most and value.isascii() and value.isprintable()


class _Rule(NamedTuple):
    """What a field must be: in words, and as a check."""

    words: str
    is_kept_by: Callable[[Any], bool]


class _Kind(NamedTuple):
    """A kind of message: its name in errors, and the fields that follow the first five, in order."""

    name: str
    fields: dict[str, _Rule]


def _text(most: int) -> _Rule:
    return _Rule(f"a text of at most {most} printable ASCII characters", lambda value: is_text(value, most))


_COUNT = _Rule("a whole number from 0 to 2^53", is_count)
_COUNT_OR_NIL = _Rule(f"nil or {_COUNT.words}", lambda value: value is None or is_count(value))
_STEP_SIZE = _Rule(
    "a finite step size >= 0, of 64 bits", lambda value: type(value) is float and 0 <= value < math.inf
)
_YES_OR_NO = _Rule("true or false", lambda value: type(value) is bool)
_SHAPE = _Rule("two whole numbers from 0 to 2^53", _is_pair)
_BYTES = _Rule("bytes", lambda value: type(value) is bytes)

KINDS: Final[dict[int, _Kind]] = {
    HELLO: _Kind(
        "hello",
        {
            "n": _COUNT,
            "p": _COUNT,
            "dtype": _text(16),
            "digest": _text(64),
            "software": _text(32),
            "is_asking": _YES_OR_NO,
            "life": _COUNT,
            "answered": _COUNT,
            "oldest": _COUNT,
            "epoch": _COUNT,
            "trouble": _text(LONGEST_TEXT),
            "features": _text(64),
            "birth": _text(LONGEST_BIRTH),
        },
    ),
    BLOCK: _Kind(
        "block",
        {
            "eta": _STEP_SIZE,
            "streak": _COUNT,
            "after": _COUNT_OR_NIL,
            "fallback": _COUNT,
            "dtype": _text(16),
            "shape": _SHAPE,
            "numbers": _BYTES,
            "birth": _text(LONGEST_BIRTH),
        },
    ),
    BYE: _Kind("bye", {"reason": _text(64), "radius": _COUNT}),
}


def mistake_in(kind: int, body: tuple[Any, ...]) -> str | None:
    """What is wrong with the fields of a message, if anything. No value is shown: it may be of any size."""
    name, expected = KINDS[kind]
    if len(body) != len(expected):
        return f"has {len(body)} fields in a {name} instead of {len(expected)}"
    for (field, rule), value in zip(expected.items(), body, strict=True):
        if not rule.is_kept_by(value):
            return f"has a {name} whose {field} is not {rule.words}"
    return None
