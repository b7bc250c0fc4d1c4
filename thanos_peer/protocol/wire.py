"""The three messages, and how they stand on the wire: docs/protocol.md has it byte by byte.

A frame is one msgpack array. Its first five elements are the same in every message:

    version, kind, run, sender, round

What follows is in the table KINDS: for each kind of message its fields in order, and what each must be. A new
field of a Hello or a Bye is a line of its class and a line of the table.

Whatever arrives is either decoded into a message that obeys every rule below, or is a RemoteProtocolError;
nothing else can happen. Limits come before decoding, decoding before looking at fields.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import msgpack
import numpy as np

from thanos_peer.block import FLOAT64, PAIR, WORD, AgentId, Block, StopWord, bytes_each
from thanos_peer.errors import RemoteProtocolError

VERSION: Final = 3
HELLO, BLOCK, BYE = 1, 2, 3
# The reason in the Bye of a peer that has its result.
DONE = "done"
# The reason of a peer that has its result, but can say none of its blocks again.
SPENT = "done, and its state is gone"
# The reason of a peer that says how far around it all are done, except for some that were given up.
DONE_BUT = "done, but for some given up"
RUN_BYTES = 16
# Bytes that a message needs besides those of X and D, at most.
OVERHEAD = 512
LONGEST_TEXT, LONGEST_BIRTH = 128, 32
LARGEST_ROUND = 2**53
# In an answer: no block can be said again that helps, as the asker has begun this epoch a second time.
NEVER = LARGEST_ROUND
# Bytes of a frame above which its arrays are counted: each byte could be an array, which costs 64 bytes.
SMALL = 65536
MOST_ARRAYS = 16
# Bytes of blocks that are copied to be checked together.
TOGETHER = 2**18
DTYPES: dict[str, np.dtype[Any]] = {"float64": FLOAT64, "float32": np.dtype("<f4")}


@dataclass(frozen=True, slots=True)
class Hello:
    """I am here, in round k of this run: said first, and again to a neighbor that is being waited for.

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
        oldest: The earliest round whose block the sender could still say again; NEVER if the receiver's blocks do
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
    """My last round is k: said when done or stopped.

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
Said: TypeAlias = tuple[AgentId, Message]
_NOTHING = StopWord()  # what most blocks say
# Makes a named tuple without looking names up, as its own constructor does first.
_new_tuple = tuple.__new__


class VersionMismatchError(RemoteProtocolError):
    """A frame of another protocol version."""

    def __init__(self, *, neighbor: AgentId | None, theirs: int) -> None:
        self.theirs = theirs
        super().__init__(
            neighbor=neighbor, k=None, what=f"speaks protocol version {theirs}, this peer speaks {VERSION}"
        )


class Codec:
    """Encodes and decodes the messages of one run.

    Args:
        digest: Of the topology, in hex; it and the epoch name the run in every frame.
        n: Rows of X and D.
        p: Columns.
        dtype: What X and D are sent as: "float64", which is exact, or "float32".
        epoch: How often the network has started its tracking again.
        forms: What else blocks may carry: kinds and shapes.
    """

    def __init__(
        self,
        digest: str,
        *,
        n: int,
        p: int,
        dtype: str,
        epoch: int = 0,
        forms: Iterable[tuple[str, tuple[int, int]]] = (),
    ) -> None:
        self._run, self._first_run = run_of(digest, epoch), run_of(digest, 0)
        self._shape, self._name, self._dtype = (n, p), dtype, DTYPES[dtype]
        self._is_exact = self._dtype == FLOAT64
        payload = 2 * n * p * self._dtype.itemsize
        self._usual = VERSION, BLOCK, self._run, 0, None, self._name, self._shape, payload
        self._forms = {(self._name, self._shape): payload} | {
            (kind, (rows, columns)): bytes_each(kind) * rows * columns
            for kind, (rows, columns) in forms
            if kind != PAIR
        }
        largest = max(self._forms.values())
        self._together = max(1, TOGETHER // largest)
        self._largest_bin = max(largest, RUN_BYTES)
        self.largest_frame = largest + OVERHEAD
        self._packer = msgpack.Packer(autoreset=True)

    def encode(self, sender: AgentId, message: Message) -> bytes:
        """A message as one frame."""
        match message:
            case Block():
                stop, numbers, is_pair = message.stop, message.numbers, message.kind == PAIR
                if is_pair and not self._is_exact:
                    numbers = _recast(numbers, FLOAT64, self._dtype)
                name = self._name if is_pair else message.kind
                body = [
                    message.eta, stop.streak, stop.after, message.fallback, name, message.shape, numbers,
                    message.birth,
                ]  # fmt: skip
                kind = BLOCK
            case _:
                kind = HELLO if isinstance(message, Hello) else BYE
                body = [getattr(message, name) for name in KINDS[kind].fields]
        packed: bytes = self._packer.pack([VERSION, kind, self._run, sender, message.k, *body])
        return packed

    def decode(self, frame: bytes) -> Said:
        """Who says what.

        Raises:
            RemoteProtocolError: The frame is not a sound message of this run.
        """
        said = self.decode_all([frame])[0]
        if isinstance(said, RemoteProtocolError):
            raise said
        return said

    def decode_all(self, frames: Sequence[bytes]) -> list[Said | RemoteProtocolError]:
        """Who says what in each frame, or what is wrong with it.

        The numbers of small blocks are looked at together: numpy's price is per call.
        """
        results: list[Said | RemoteProtocolError] = []
        payloads: list[bytes] = []
        for frame in frames:
            try:
                fields = self._unpack(frame)
                said = self._usual_block(fields) or self._message(fields)
                results.append(said)
                if fields[1] == BLOCK and fields[9] == self._name:
                    payloads.append(fields[11])
                elif fields[1] == BLOCK and fields[9] == WORD:
                    results[-1] = _refuse_unless_finite(said)
            except RemoteProtocolError as error:
                # A traceback would hold on to the frame and to all that is in it.
                results.append(error.with_traceback(None))
        at_once = self._together
        if not all(self._are_finite(payloads[i : i + at_once]) for i in range(0, len(payloads), at_once)):
            results = [self._refuse_if_not_finite(said) for said in results]
        return results if self._is_exact else [self._widen(said) for said in results]

    def _are_finite(self, payloads: Sequence[bytes]) -> bool:
        return bool(np.isfinite(np.frombuffer(b"".join(payloads), dtype=self._dtype)).all())

    def _refuse_if_not_finite(self, said: Said | RemoteProtocolError) -> Said | RemoteProtocolError:
        if not isinstance(said, tuple) or not isinstance(block := said[1], Block) or block.kind != PAIR:
            return said
        if self._are_finite([block.numbers]):
            return said
        return RemoteProtocolError(neighbor=said[0], k=block.k, what="has an X or D with NaN or Inf")

    def _widen(self, said: Said | RemoteProtocolError) -> Said | RemoteProtocolError:
        """Give a block the precision that is reckoned with."""
        if isinstance(said, tuple) and isinstance(block := said[1], Block) and block.kind == PAIR:
            return said[0], block._replace(numbers=_recast(block.numbers, self._dtype, FLOAT64))
        return said

    def _unpack(self, frame: bytes) -> tuple[Any, ...]:
        if len(frame) > self.largest_frame:
            raise _unknown_sender(f"a frame of {len(frame)} bytes; at most {self.largest_frame} are allowed")
        try:
            fields = msgpack.unpackb(
                frame,
                use_list=False,
                max_str_len=LONGEST_TEXT,
                max_bin_len=self._largest_bin,
                max_array_len=32,
                max_map_len=0,
                max_ext_len=0,
                list_hook=None if len(frame) <= SMALL else _array_counter(),
            )
        except (ValueError, msgpack.UnpackException) as error:
            # The cause itself is not kept: it holds all that was read.
            what = f"not a msgpack message: {type(error).__name__}"
        else:
            if isinstance(fields, tuple) and len(fields) >= 5:
                return fields
            what = "not an array of at least five elements"
        raise _unknown_sender(what)

    def _usual_block(self, fields: tuple[Any, ...]) -> Said | None:
        """A sound block of an agent that is not calm and knows of no end: mostly it is one, so in one look."""
        if len(fields) != 13:
            return None
        version, kind, run, sender, k, eta, streak, after, fallback, dtype, shape, payload, birth = fields
        if (
            type(version) is type(kind) is type(sender) is type(k) is type(streak) is type(fallback) is int
            and type(eta) is float
            and type(payload) is bytes
            and (version, kind, run, streak, after, dtype, shape, len(payload)) == self._usual
            and type(shape[0]) is type(shape[1]) is int
            and 0 <= sender <= LARGEST_ROUND
            and 0 <= fallback <= k <= LARGEST_ROUND
            and 0 <= eta < math.inf
            and _is_text(birth, LONGEST_BIRTH)
        ):
            return sender, _new_tuple(Block, (k, payload, self._shape, eta, _NOTHING, fallback, PAIR, None, birth))
        return None

    def _message(self, fields: tuple[Any, ...]) -> Said:
        """Whatever else it is, looked at field by field."""
        kind = self._check(fields)
        _, _, _, sender, k, *body = fields
        if kind == BLOCK:
            eta, streak, after, fallback, name, shape, payload, birth = body
            stop, what = StopWord(streak, after), PAIR if name == self._name else name
            return sender, Block(k, payload, shape, eta, stop, fallback, what, birth=birth)
        named = dict(zip(KINDS[kind].fields, body, strict=True))
        return sender, Hello(k, **named) if kind == HELLO else Bye(k, **named)

    def _check(self, fields: tuple[Any, ...]) -> int:
        """Field by field, to say what is wrong; returns the kind of message if nothing is."""
        kind: int
        version, kind, run, sender, k = fields[:5]
        if not (_is_count(version) and _is_count(kind) and _is_count(sender) and _is_count(k)):
            raise _unknown_sender("a header whose numbers are not whole and non-negative")
        if type(run) is not bytes or len(run) != RUN_BYTES:
            raise _unknown_sender(f"a header whose run is not {RUN_BYTES} bytes")
        if version != VERSION:
            raise VersionMismatchError(neighbor=sender, theirs=version)
        if kind not in KINDS:
            raise _claim(fields, f"has an unknown kind of message, {kind}")
        # A Hello of another run is for the handshake, which names the difference.
        if run != self._run and kind != HELLO and not self._is_spent(fields):
            raise _claim(fields, "belongs to another run")
        _check_fields(fields)
        if kind == BLOCK:
            self._check_block(fields)
        return kind

    def _is_spent(self, fields: tuple[Any, ...]) -> bool:
        """Whether a peer says that it is done and has no state: it is in no epoch, and names the first."""
        return fields[1] == BYE and fields[2] == self._first_run and fields[5:6] == (SPENT,)

    def _check_block(self, fields: tuple[Any, ...]) -> None:
        """What the fields of a block must be to each other, and to the run."""
        _, _, _, _, k, _, _, after, fallback, dtype, shape, payload, _ = fields
        if after is not None and after <= k:
            raise _claim(fields, f"announces round {after} as the last, which is past")
        if fallback > k:
            raise _claim(fields, "has a fallback that is not a round up to its own")
        if (size := self._forms.get((dtype, shape))) is None:
            agreed = ", ".join(f"{kind} of {shape}" for kind, shape in self._forms)
            raise _claim(fields, f"has {dtype!a} of shape {shape!a}; agreed are {agreed}")
        if len(payload) != size:
            raise _claim(fields, f"has numbers that are not {size} bytes")


def run_of(digest: str, epoch: int) -> bytes:
    """What names a run in every frame: the first bytes of its digest, after the first epoch hashed with it."""
    raw = bytes.fromhex(digest)
    return (raw if epoch == 0 else hashlib.sha256(raw + epoch.to_bytes(8, "little")).digest())[:RUN_BYTES]


def _refuse_unless_finite(said: Said) -> Said | RemoteProtocolError:
    sender, message = said
    if isinstance(message, Block) and not np.isfinite(np.frombuffer(message.numbers, dtype=FLOAT64)).all():
        return RemoteProtocolError(neighbor=sender, k=message.k, what="has a word with NaN or Inf")
    return said


def _recast(numbers: bytes, before: "np.dtype[Any]", after: "np.dtype[Any]") -> bytes:
    return np.frombuffer(numbers, dtype=before).astype(after).tobytes()


def _array_counter() -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """What msgpack calls with every array of a frame that it has read; ends the reading after so many."""
    left = iter(range(MOST_ARRAYS))

    def count(array: tuple[Any, ...]) -> tuple[Any, ...]:
        if next(left, None) is None:
            raise ValueError("more arrays than any message has")
        return array

    return count


def _unknown_sender(what: str) -> RemoteProtocolError:
    return RemoteProtocolError(neighbor=None, k=None, what=what)


def _claim(fields: tuple[Any, ...], what: str) -> RemoteProtocolError:
    """What is wrong with a frame whose header is sound."""
    return RemoteProtocolError(neighbor=fields[3], k=fields[4], what=what)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_ROUND


def _is_pair(value: Any) -> bool:
    return type(value) is tuple and len(value) == 2 and all(map(_is_count, value))


def _is_text(value: Any, most: int) -> bool:
    return isinstance(value, str) and len(value) <= most and value.isascii() and value.isprintable()


def _check_fields(fields: tuple[Any, ...]) -> None:
    """One by one, as the table of their kind has them. No value is shown: it may be of any size."""
    (name, expected), body = KINDS[fields[1]], fields[5:]
    if len(body) != len(expected):
        raise _claim(fields, f"has {len(body)} fields in a {name} instead of {len(expected)}")
    for (field, rule), value in zip(expected.items(), body, strict=True):
        if not rule.is_kept_by(value):
            raise _claim(fields, f"has a {name} whose {field} is not {rule.words}")


class _Rule(NamedTuple):
    """What a field must be: in words, and as a check."""

    words: str
    is_kept_by: Callable[[Any], bool]


class _Kind(NamedTuple):
    """A kind of message: its name in errors, and the fields that follow the first five, in order."""

    name: str
    fields: dict[str, _Rule]


def _text(most: int) -> _Rule:
    return _Rule(f"a text of at most {most} printable ASCII characters", lambda value: _is_text(value, most))


_COUNT = _Rule("a whole number from 0 to 2^53", _is_count)
_COUNT_OR_NIL = _Rule(f"nil or {_COUNT.words}", lambda value: value is None or _is_count(value))
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
