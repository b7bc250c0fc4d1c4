import json
import struct
from pathlib import Path

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thanos_peer.block import Block, StopWord
from thanos_peer.errors import RemoteProtocolError
from thanos_peer.protocol.wire import LARGEST_ROUND, Bye, Codec, Hello, VersionMismatchError

DIGEST = "00112233445566778899aabbccddeeff" * 2
VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text(encoding="utf-8"))
N, P = 3, 2
CODEC = Codec(DIGEST, n=N, p=P, dtype="float64")

counts = st.integers(0, LARGEST_ROUND)
finite = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=32)
matrices = st.lists(finite, min_size=N * P, max_size=N * P).map(lambda x: np.array(x).reshape(N, P))
blocks = st.builds(
    Block,
    counts,
    matrices,
    matrices,
    st.floats(0, 1e300),
    st.builds(StopWord, counts, st.none()),
)
hellos = st.builds(Hello, counts, words, counts, counts, words.map(lambda w: w[:16]), words, st.booleans())
messages = blocks | hellos | st.builds(Bye, counts, words)


def is_same(one, other):
    return one.has_same_bits(other) if isinstance(one, Block) else one == other


@given(counts, messages)
def test_what_is_encoded_decodes_to_the_same(sender, message):
    decoded_sender, decoded = CODEC.decode(CODEC.encode(sender, message))
    assert decoded_sender == sender
    assert is_same(decoded, message)


@given(blocks)
def test_float32_halves_the_matrices_and_rounds_them(block):
    codec = Codec(DIGEST, n=N, p=P, dtype="float32")
    if max(abs(block.X).max(), abs(block.D).max()) > 1e38:
        return
    frame = codec.encode(0, block)
    _, decoded = codec.decode(frame)
    assert len(CODEC.encode(0, block)) - len(frame) == 2 * N * P * 4
    assert np.array_equal(decoded.X, block.X.astype(np.float32))
    assert decoded.X.dtype == np.float64


def decode_or_refuse(frame, codec=CODEC):
    """What must hold for any bytes: a message, or RemoteProtocolError."""
    try:
        sender, message = codec.decode(frame)
    except RemoteProtocolError:
        return False
    assert 0 <= sender <= LARGEST_ROUND
    assert isinstance(message, Block | Hello | Bye)
    if isinstance(message, Block):
        assert message.X.shape == message.D.shape == (N, P)
        assert np.isfinite(message.X).all()
        assert np.isfinite(message.D).all()
    return True


@settings(max_examples=4000)
@given(st.binary(max_size=400))
def test_garbage_is_refused_and_nothing_else_happens(frame):
    decode_or_refuse(frame)


junk = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary(max_size=60) | words,
    lambda inner: st.lists(inner, max_size=14) | st.dictionaries(words, inner, max_size=3),
    max_leaves=30,
)


@settings(max_examples=3000)
@given(st.lists(junk, max_size=14) | junk)
def test_well_formed_msgpack_of_any_shape_is_refused_or_sound(value):
    decode_or_refuse(msgpack.packb(value))


@settings(max_examples=3000)
@given(messages, st.data())
def test_bit_flips_and_truncations_are_refused_or_sound(message, data):
    frame = bytearray(CODEC.encode(1, message))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    decode_or_refuse(bytes(frame))
    cut = data.draw(st.integers(0, len(frame) - 1))
    assert not decode_or_refuse(CODEC.encode(1, message)[:cut])


def fields_of(message, codec=CODEC):
    return msgpack.unpackb(codec.encode(4, message))


BLOCK = Block(7, np.ones((N, P)), np.ones((N, P)), 0.5, StopWord(1, 9))
NAN, INF = (struct.pack("<12d", *[1.0] * 11, bad) for bad in (float("nan"), float("inf")))
HUGE = struct.pack("<12d", *[1e300] * 12)


@pytest.mark.parametrize(
    ("place", "value", "complaint"),
    [
        (2, b"x" * 16, "another run"),
        (2, b"short", "16 bytes"),
        (3, -1, "header"),
        (3, "4", "header"),
        (3, True, "header"),
        (4, 2.0, "header"),
        (4, 2**60, "header"),
        (1, 9, "unknown kind"),
        (5, float("nan"), "step size"),
        (5, float("inf"), "step size"),
        (5, -0.5, "step size"),
        (5, 1, "step size"),
        (6, -1, "stop fields"),
        (7, "soon", "stop fields"),
        (7, 7, "announces round 7 as the last, which is past"),
        (8, "float32", "agreed are float64"),
        (8, "object", "agreed are float64"),
        (9, [2, 3], r"of \[2, 3\]|shape \[2, 3\]"),
        (9, [3, 2, 1], "shape"),
        (10, b"", "not 96 bytes"),
        (10, [1.0] * 12, "not 96 bytes"),
        (10, NAN, "NaN or Inf"),
        (10, INF, "NaN or Inf"),
    ],
)
def test_a_block_with_a_wrong_field_is_refused_with_its_reason(place, value, complaint):
    fields = fields_of(BLOCK)
    fields[place] = value
    with pytest.raises(RemoteProtocolError, match=complaint):
        CODEC.decode(msgpack.packb(fields))


def test_huge_but_finite_numbers_are_sound():
    fields = fields_of(BLOCK)
    fields[10] = HUGE
    _, block = CODEC.decode(msgpack.packb(fields))
    assert (block.X == 1e300).all()


def test_an_error_names_who_claims_to_have_sent_it_and_in_which_round():
    fields = fields_of(BLOCK)
    fields[10] = NAN
    with pytest.raises(RemoteProtocolError, match="neighbor 4, round 7: ") as caught:
        CODEC.decode(msgpack.packb(fields))
    assert (caught.value.neighbor, caught.value.k) == (4, 7)


@pytest.mark.parametrize("change", [lambda f: f[:-1], lambda f: [*f, 0], lambda f: f[:3], lambda _: 5])
@pytest.mark.parametrize(
    "message", [BLOCK, Hello(0, DIGEST, N, P, "float64", "1", is_asking=True), Bye(3, "done")]
)
def test_a_message_with_too_few_or_too_many_fields_is_refused(message, change):
    with pytest.raises(RemoteProtocolError):
        CODEC.decode(msgpack.packb(change(fields_of(message))))


def test_a_frame_beyond_the_limit_is_refused_before_it_is_looked_at():
    with pytest.raises(RemoteProtocolError, match=f"at most {CODEC.largest_frame}"):
        CODEC.decode(b"\x00" * (CODEC.largest_frame + 1))


def test_every_message_fits_the_limit():
    longest = Hello(2**53, "f" * 64, 2**53, 2**53, "x" * 16, "y" * 32, is_asking=True)
    for message in (BLOCK, longest, Bye(2**53, "z" * 64)):
        assert len(CODEC.encode(2**53, message)) <= CODEC.largest_frame


@pytest.mark.parametrize("text", ["a\nb", "\x1b[31m", "\x7f", "caf\u00e9"])
def test_text_that_could_forge_a_log_line_is_refused(text):
    fields = fields_of(Bye(1, "x"))
    fields[5] = text
    with pytest.raises(RemoteProtocolError, match="printable"):
        CODEC.decode(msgpack.packb(fields))


def test_another_version_is_named():
    fields = fields_of(BLOCK)
    fields[0] = 2
    with pytest.raises(VersionMismatchError, match="version 2, this peer speaks 1") as caught:
        CODEC.decode(msgpack.packb([*fields, "what version 2 has besides"]))
    assert (caught.value.theirs, caught.value.neighbor) == (2, 4)


def test_a_hello_of_another_run_is_decoded_so_that_the_difference_can_be_named():
    other = Codec("ff" * 32, n=9, p=9, dtype="float32")
    hello = Hello(0, "ff" * 32, 9, 9, "float32", "0.9", is_asking=True)
    assert CODEC.decode(other.encode(2, hello)) == (2, hello)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["name"])
def test_the_published_vectors_encode_and_decode(vector):
    codec = Codec(vector["digest"], n=vector["n"], p=vector["p"], dtype=vector["dtype"])
    fields = dict(vector["message"])
    kind = {"hello": Hello, "bye": Bye, "block": Block}[vector["kind"]]
    if kind is Block:
        stop = StopWord(fields.pop("streak"), fields.pop("after"))
        X, D = np.array(fields.pop("X")), np.array(fields.pop("D"))
        message = Block(fields["k"], X, D, fields["eta"], stop)
    else:
        message = kind(**fields)
    frame = bytes.fromhex(vector["frame"])
    assert codec.encode(vector["sender"], message) == frame
    sender, decoded = codec.decode(frame)
    assert sender == vector["sender"]
    assert is_same(decoded, message)
