"""The three messages, and how they stand on the wire: docs/protocol.md has it byte by byte.

A frame is one msgpack array. Its first five elements are the same in every message:

    version, kind, run, sender, round

Then, for a Hello: n, p, dtype, digest of the topology, software version, and whether it asks for blocks;
for a Block: eta, streak, last round or nil, dtype, [n, p], X and D; for a Bye: why.

Whatever arrives is either decoded into a message that obeys every rule below, or is a RemoteProtocolError;
nothing else can happen. Limits come before decoding, decoding before looking at fields.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgpack
import numpy as np

from thanos_peer.block import AgentId, Block, Matrix, StopWord
from thanos_peer.errors import RemoteProtocolError

VERSION: Final = 1
HELLO, BLOCK, BYE = 1, 2, 3
RUN_BYTES = 16
OVERHEAD = 512  # no message needs more than this besides the bytes of X and D
LARGEST_ROUND = 2**53
DTYPES: dict[str, np.dtype[Any]] = {"float64": np.dtype("<f8"), "float32": np.dtype("<f4")}


@dataclass(frozen=True, slots=True)
class Hello:
    """I am here, in round k of this run: said first, and again to whoever is being waited for.

    Attributes:
        k: The round that the sender is in.
        digest: Of its topology, in hex.
        n: Rows of its X.
        p: Columns.
        dtype: "float64" or "float32".
        software: The sender's version, for messages to people.
        is_asking: Whether it lacks the receiver's block k.
    """

    k: int
    digest: str
    n: int
    p: int
    dtype: str
    software: str
    is_asking: bool


@dataclass(frozen=True, slots=True)
class Bye:
    """I am leaving, and my last round is k: said when done or stopped."""

    k: int
    reason: str


Message: TypeAlias = Hello | Block | Bye


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
        digest: Of the topology, in hex; its first 16 bytes name the run in every frame.
        n: Rows of X and D.
        p: Columns.
        dtype: What X and D are sent as: "float64", which is exact, or "float32".
    """

    def __init__(self, digest: str, *, n: int, p: int, dtype: str) -> None:
        self._run = bytes.fromhex(digest)[:RUN_BYTES]
        self._shape, self._name, self._dtype = (n, p), dtype, DTYPES[dtype]
        self._payload = 2 * n * p * self._dtype.itemsize
        self.largest_frame = self._payload + OVERHEAD
        self._packer = msgpack.Packer(autoreset=True)

    def encode(self, sender: AgentId, message: Message) -> bytes:
        """A message as one frame."""
        match message:
            case Block():
                stop = message.stop
                body = [
                    message.eta, stop.streak, stop.after, self._name, list(self._shape),
                    np.array((message.X, message.D), dtype=self._dtype).tobytes(),
                ]  # fmt: skip
                kind = BLOCK
            case Hello():
                kind = HELLO
                body = [message.n, message.p, message.dtype, message.digest, message.software, message.is_asking]
            case Bye():
                kind, body = BYE, [message.reason]
        packed: bytes = self._packer.pack([VERSION, kind, self._run, sender, message.k, *body])
        return packed

    def decode(self, frame: bytes) -> tuple[AgentId, Message]:
        """Who says what.

        Raises:
            RemoteProtocolError: The frame is not a sound message of this run.
        """
        fields = self._unpack(frame)
        version, kind, run, sender, k = self._header(fields)
        if version != VERSION:
            raise VersionMismatchError(neighbor=sender, theirs=version)
        claim = _Claim(sender, k)
        if kind == HELLO:  # of whatever run: a difference is for the handshake to name
            return sender, _hello(claim, fields[5:])
        if run != self._run:
            raise claim.error("belongs to another run")
        if kind == BLOCK:
            return sender, self._block(claim, fields[5:])
        if kind == BYE:
            return sender, _bye(claim, fields[5:])
        raise claim.error(f"has an unknown kind of message, {kind}")

    def _unpack(self, frame: bytes) -> list[Any]:
        if len(frame) > self.largest_frame:
            raise _nobody(f"a frame of {len(frame)} bytes; at most {self.largest_frame} are allowed")
        try:
            fields = msgpack.unpackb(
                frame,
                raw=False,
                max_str_len=128,
                max_bin_len=max(self._payload, RUN_BYTES),
                max_array_len=16,
                max_map_len=0,
                max_ext_len=0,
            )
        except (ValueError, msgpack.UnpackException) as error:
            raise _nobody(f"not a msgpack message: {type(error).__name__}") from error
        if not isinstance(fields, list) or len(fields) < 5:
            raise _nobody("not an array of at least five elements")
        return fields

    @staticmethod
    def _header(fields: list[Any]) -> tuple[int, int, bytes, AgentId, int]:
        version, kind, run, sender, k = fields[:5]
        if not (_is_count(version) and _is_count(kind) and _is_count(sender) and _is_count(k)):
            raise _nobody("a header whose numbers are not whole and non-negative")
        if not isinstance(run, bytes) or len(run) != RUN_BYTES:
            raise _nobody(f"a header whose run is not {RUN_BYTES} bytes")
        return version, kind, run, sender, k

    def _block(self, claim: "_Claim", body: list[Any]) -> Block:
        if len(body) != 6:
            raise claim.error(f"has {len(body)} fields in a block instead of 6")
        eta, streak, after, dtype, shape, payload = body
        if not isinstance(eta, float) or not 0 <= eta < np.inf:
            raise claim.error("has a step size that is not a finite number >= 0")
        if not _is_count(streak) or not (after is None or _is_count(after)):
            raise claim.error("has stop fields that are not whole and non-negative")
        if after is not None and after <= claim.k:
            raise claim.error(f"announces round {after} as the last, which is past")
        if dtype != self._name or shape != list(self._shape):
            raise claim.error(f"has {dtype!a} of shape {shape!a}; agreed are {self._name} of {list(self._shape)}")
        X, D = self._matrices(claim, payload)
        return Block(claim.k, X, D, eta, StopWord(streak, after))

    def _matrices(self, claim: "_Claim", raw: Any) -> Matrix:
        if not isinstance(raw, bytes) or len(raw) != self._payload:
            raise claim.error(f"has an X and D that are not {self._payload} bytes")
        numbers = np.frombuffer(raw, dtype=self._dtype)
        if not np.isfinite(numbers).all():
            raise claim.error("has an X or D with NaN or Inf")
        return numbers.reshape(2, *self._shape).astype(np.float64, copy=False)


@dataclass(frozen=True, slots=True)
class _Claim:
    """Who a frame says it is from, and in which round."""

    sender: AgentId
    k: int

    def error(self, what: str) -> RemoteProtocolError:
        return RemoteProtocolError(neighbor=self.sender, k=self.k, what=what)


def _nobody(what: str) -> RemoteProtocolError:
    return RemoteProtocolError(neighbor=None, k=None, what=what)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_ROUND


def _is_text(value: Any, most: int) -> bool:
    return isinstance(value, str) and len(value) <= most and value.isascii() and value.isprintable()


def _hello(claim: _Claim, body: list[Any]) -> Hello:
    if len(body) != 6:
        raise claim.error(f"has {len(body)} fields in a hello instead of 6")
    n, p, dtype, digest, software, is_asking = body
    if not (_is_count(n) and _is_count(p) and isinstance(is_asking, bool)):
        raise claim.error("has a hello with fields of the wrong type")
    if not (_is_text(dtype, 16) and _is_text(digest, 64) and _is_text(software, 32)):
        raise claim.error("has a hello with texts that are too long or not printable")
    return Hello(claim.k, digest, n, p, dtype, software, is_asking)


def _bye(claim: _Claim, body: list[Any]) -> Bye:
    if len(body) != 1 or not _is_text(body[0], 64):
        raise claim.error("has a bye without a printable reason of at most 64 characters")
    return Bye(claim.k, body[0])
