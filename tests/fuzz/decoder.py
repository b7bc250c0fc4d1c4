"""What must hold for any bytes that a peer is sent: a sound message, or RemoteProtocolError in a short line.

The first byte of an input picks the codec, and whether the rest is the frame or how to make a long one.
"""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from thanos_peer.algorithm.fixed_point import EXACT
from thanos_peer.block import NOTHING, PAIR, WORD, Block, StopWord, bytes_each
from thanos_peer.errors import RemoteProtocolError
from thanos_peer.protocol.messages import LARGEST_ROUND, Bye, Hello
from thanos_peer.protocol.wire import Codec

DIGEST = "00112233445566778899aabbccddeeff" * 2  # that of the published vectors
SHAPES = ((2, 1, "float64"), (2, 1, "float32"), (40, 2, "float64"), (2000, 3, "float64"))
FORMS = frozenset({("int128", (1, 4)), (EXACT.kind, (1, 1)), (WORD, (1, 3)), (WORD, (1, 5)), (NOTHING, (0, 0))})
CODECS = tuple(Codec(DIGEST, n=n, p=p, dtype=dtype, forms=FORMS) for n, p, dtype in SHAPES)
# The codec whose frames are too long to be inputs.
LONG = 3
LONGEST_ERROR = 400  # characters


def block(k: int, choice: int, *, last: int | None = None, entry: float = 1.0) -> Block:
    """A Block for one of the codecs, all of whose entries are the same."""
    n, p, _ = SHAPES[choice]
    return Block.of(
        k, np.full((n, p), entry), np.full((n, p), entry), 0.5, StopWord(int(last is not None), last), min(k, 3)
    )


def summed(k: int, kind: str, count: int, numbers: bytes) -> Block:
    """A Block of a sum: numbers on their way up, a word on its way down, or nothing."""
    return Block(k, numbers, (1, count) if count else (0, 0), 0.0, StopWord(), min(k, 3), kind)


GOOD = tuple(
    codec.encode(1, Bye(7, "done") if choice == LONG else block(7, choice)) for choice, codec in enumerate(CODECS)
)


def seeds() -> dict[str, bytes]:
    """Inputs to begin from besides the corpus: whatever the codec says today, by name; bad ones are refused."""
    hello = Hello(0, DIGEST, 2, 1, "float64", "1", is_asking=True, life=2**41, oldest=3, epoch=1)
    said = {
        "good-hello-that-asks": (0, hello),
        "good-hello-in-trouble": (0, replace(hello, is_asking=False, answered=9, trouble="waits for peer 2")),
        "good-hello-with-features": (0, replace(hello, features=DIGEST)),
        "good-hello-of-another-shape": (0, replace(hello, n=5, digest="")),
        "good-block": (0, block(0, 0)),
        "good-block-with-an-end": (0, block(65536, 0, last=70000)),
        "good-block-in-float32": (1, block(5, 1)),
        "good-sum": (0, summed(9, "int128", 4, bytes(range(64)))),
        "good-sum-of-exact-numbers": (1, summed(0, EXACT.kind, 1, b"\xff" * EXACT.size)),
        "good-word": (1, summed(3, WORD, 3, np.array([1.0, -2.5, 1e300]).tobytes())),
        "good-word-of-another-length": (2, summed(3, WORD, 5, bytes(40))),
        "good-nothing": (0, summed(65536, NOTHING, 0, b"")),
        "good-bye": (0, Bye(42, "done")),
        "good-bye-with-a-number": (0, Bye(42, "SIGTERM", 1)),
        "bad-block-that-is-not-finite": (2, block(5, 2, entry=np.nan)),
        "bad-sum-of-too-few": (0, summed(9, "int128", 3, bytes(48))),
        "bad-sum-that-is-too-short": (0, summed(9, "int128", 4, bytes(63))),
        "bad-sum-of-other-numbers": (0, summed(9, "int64", 4, bytes(32))),
        "bad-word-that-is-not-finite": (2, summed(3, WORD, 3, np.array([1.0, np.inf, 0.0]).tobytes())),
        "bad-word-in-float32": (1, summed(3, WORD, 3, bytes(12))),
        "bad-nothing-with-numbers": (0, summed(3, NOTHING, 0, bytes(8))),
        "bad-pair-by-another-name": (0, block(5, 0)._replace(kind="float16")),
        "bad-bye-that-forges-a-line": (0, Bye(7, "x\nERROR: forged")),
        "bad-bye-with-escapes": (0, Bye(7, "\x1b[2J")),
        "bad-hello-that-forges-a-line": (0, replace(hello, trouble="x\nERROR: forged")),
        "bad-hello-with-long-features": (0, replace(hello, features="f" * 65)),
        "bad-hello-with-long-trouble": (0, replace(hello, trouble="t" * 129)),
    }
    return {name: bytes([choice]) + CODECS[choice].encode(1, message) for name, (choice, message) in said.items()}


def try_bytes(data: bytes) -> bool:
    """Decode an input, alone and between others; returns whether it was a sound message."""
    if not data:
        return False
    return check_frame(*frame_of(data))


def frame_of(data: bytes) -> tuple[bytes, int]:
    """The frame that an input stands for, and which codec it is for."""
    choice = LONG if data[0] == 255 else data[0] % LONG
    return (lengthened(data[1:]) if choice == LONG else data[1:]), choice


def lengthened(data: bytes) -> bytes:
    """A frame that begins with some bytes, and repeats others until it is as long as allowed."""
    if len(data) < 2:
        return data
    begin, unit = data[2 : 2 + data[0]], data[2 + data[0] :] or b"\x91"
    room = CODECS[LONG].largest_frame - len(begin)
    return begin + (unit * (room // len(unit) + 1))[: max(0, room - data[1])]


def check_frame(frame: bytes, choice: int) -> bool:
    """Whether a frame is a sound message; fails if it is neither that nor refused as it should be."""
    codec, good, (n, p, dtype) = CODECS[choice], GOOD[choice], SHAPES[choice]
    before, said, after = codec.decode_all([good, frame, good])
    assert not isinstance(before, RemoteProtocolError)
    assert not isinstance(after, RemoteProtocolError)
    alone = codec.decode_all([frame])[0]
    if isinstance(said, RemoteProtocolError):
        check_line(str(said), LONGEST_ERROR)
        assert str(said) == str(alone)
        return False
    assert not isinstance(alone, RemoteProtocolError)
    check_message(*said, {(PAIR, (n, p)), *FORMS})
    if dtype == "float64":
        again = codec.encode(*said)
        assert codec.encode(*codec.decode(again)) == codec.encode(*alone) == again
    return True


def check_line(line: str, longest: int) -> None:
    """Whether a line may be logged."""
    assert len(line) <= longest, len(line)
    assert line.isascii(), ascii(line)
    assert line.isprintable(), ascii(line)


def check_message(
    sender: int, message: Hello | Block | Bye, forms: Collection[tuple[str, tuple[int, int]]]
) -> None:
    """Whether all fields of a message are what docs/protocol.md says; blocks carry one of these forms."""
    numbers, texts = [sender, message.k], []
    if isinstance(message, Block):
        rows, columns = message.shape
        assert (message.kind, message.shape) in forms
        assert len(message.numbers) == bytes_each(message.kind) * rows * columns
        if message.kind in (PAIR, WORD):
            assert np.isfinite(np.frombuffer(message.numbers, dtype="<f8")).all()
        if message.kind == PAIR:
            assert message.X.shape == message.D.shape == message.shape
            assert message.X.dtype == message.D.dtype == np.float64
        assert 0 <= message.eta < float("inf")
        assert message.fallback <= message.k
        assert message.stop.after is None or message.k < message.stop.after <= LARGEST_ROUND
        numbers += [message.stop.streak, message.fallback]
        texts = [(message.birth, 32)]
    elif isinstance(message, Hello):
        assert type(message.is_asking) is bool
        numbers += [message.n, message.p, message.life, message.answered, message.oldest, message.epoch]
        texts = [(message.dtype, 16), (message.digest, 64), (message.software, 32)]
        texts += [(message.trouble, 128), (message.features, 64), (message.birth, 32)]
    else:
        numbers += [message.radius]
        texts = [(message.reason, 64)]
    assert all(type(number) is int and 0 <= number <= LARGEST_ROUND for number in numbers)
    assert all(len(text) <= most and text.isascii() and text.isprintable() for text, most in texts)
