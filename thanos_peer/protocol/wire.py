"""How messages stand on the wire: docs/protocol.md has it byte by byte.

A frame is one msgpack array. Its first five elements are the same in every message:

    version, kind, run, sender, round

What follows is in the table KINDS of `protocol/messages.py`.

A frame is either decoded into a message that obeys every rule there and here, or is a RemoteProtocolError; nothing
else can happen. Limits come before decoding, decoding before looking at fields.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import msgpack
import numpy as np

from thanos_peer.block import FLOAT64, PAIR, WORD, AgentId, Block, StopWord, bytes_each
from thanos_peer.errors import RemoteProtocolError
from thanos_peer.protocol.messages import (
    BLOCK,
    BYE,
    HELLO,
    KINDS,
    LARGEST_ROUND,
    LONGEST_BIRTH,
    LONGEST_TEXT,
    SPENT,
    Bye,
    Hello,
    Message,
    is_count,
    is_text,
    mistake_in,
)

VERSION: Final = 3
RUN_BYTES = 16
# Bytes that a message needs besides those of X and D, at most.
OVERHEAD = 512
# Bytes of a frame above which its arrays are counted: each byte could be an array, which costs 64 bytes.
SMALL = 65536
MOST_ARRAYS = 16
# Bytes of blocks that are copied to be checked together.
TOGETHER = 2**18
DTYPES: dict[str, np.dtype[Any]] = {"float64": FLOAT64, "float32": np.dtype("<f4")}

# Who sent a message, and the message.
Decoded: TypeAlias = tuple[AgentId, Message]
# What most blocks say of stopping.
_NOTHING = StopWord()
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

    def decode(self, frame: bytes) -> Decoded:
        """Decode one frame: who sent it, and its message.

        Raises:
            RemoteProtocolError: The frame is not a sound message of this run.
        """
        decoded = self.decode_all([frame])[0]
        if isinstance(decoded, RemoteProtocolError):
            raise decoded
        return decoded

    def decode_all(self, frames: Sequence[bytes]) -> list[Decoded | RemoteProtocolError]:
        """Decode frames: the sender and the message of each, or what is wrong with it.

        The numbers of small blocks are looked at together: numpy's price is per call.
        """
        results: list[Decoded | RemoteProtocolError] = []
        payloads: list[bytes] = []
        for frame in frames:
            try:
                fields = self._unpack(frame)
                decoded = self._usual_block(fields) or self._message(fields)
                results.append(decoded)
                if fields[1] == BLOCK and fields[9] == self._name:
                    payloads.append(fields[11])
                elif fields[1] == BLOCK and fields[9] == WORD:
                    results[-1] = _refuse_unless_finite(decoded)
            except RemoteProtocolError as error:
                # A traceback would hold on to the frame and to all that is in it.
                results.append(error.with_traceback(None))
        at_once = self._together
        if not all(self._are_finite(payloads[i : i + at_once]) for i in range(0, len(payloads), at_once)):
            results = [self._refuse_if_not_finite(decoded) for decoded in results]
        return results if self._is_exact else [self._widen(decoded) for decoded in results]

    def _are_finite(self, payloads: Sequence[bytes]) -> bool:
        return bool(np.isfinite(np.frombuffer(b"".join(payloads), dtype=self._dtype)).all())

    def _refuse_if_not_finite(self, decoded: Decoded | RemoteProtocolError) -> Decoded | RemoteProtocolError:
        if not isinstance(decoded, tuple) or not isinstance(block := decoded[1], Block) or block.kind != PAIR:
            return decoded
        if self._are_finite([block.numbers]):
            return decoded
        return RemoteProtocolError(neighbor=decoded[0], k=block.k, what="has an X or D with NaN or Inf")

    def _widen(self, decoded: Decoded | RemoteProtocolError) -> Decoded | RemoteProtocolError:
        """Give a block the precision of the computation."""
        if isinstance(decoded, tuple) and isinstance(block := decoded[1], Block) and block.kind == PAIR:
            return decoded[0], block._replace(numbers=_recast(block.numbers, self._dtype, FLOAT64))
        return decoded

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

    def _usual_block(self, fields: tuple[Any, ...]) -> Decoded | None:
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
            and is_text(birth, LONGEST_BIRTH)
        ):
            return sender, _new_tuple(Block, (k, payload, self._shape, eta, _NOTHING, fallback, PAIR, None, birth))
        return None

    def _message(self, fields: tuple[Any, ...]) -> Decoded:
        """Any message, checked field by field."""
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
        if not (is_count(version) and is_count(kind) and is_count(sender) and is_count(k)):
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
        if what := mistake_in(kind, fields[5:]):
            raise _claim(fields, what)
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


def _refuse_unless_finite(decoded: Decoded) -> Decoded | RemoteProtocolError:
    sender, message = decoded
    if isinstance(message, Block) and not np.isfinite(np.frombuffer(message.numbers, dtype=FLOAT64)).all():
        return RemoteProtocolError(neighbor=sender, k=message.k, what="has a word with NaN or Inf")
    return decoded


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
