import gc
import json
import math
import re
import struct
import tracemalloc
from fractions import Fraction
from pathlib import Path

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import make_topology
from protocol.vectors import FILE, codec_of, message_of, numbers_of
from uneven import raw_with_parts

from thanos_peer.algorithm.fixed_point import EXACT
from thanos_peer.block import KEY, NOTHING, PAIR, WORD, Block, StopWord, bytes_each
from thanos_peer.errors import RemoteProtocolError
from thanos_peer.preparation import outline
from thanos_peer.protocol.messages import LARGEST_ROUND, Bye, Hello
from thanos_peer.protocol.wire import VERSION, Codec, VersionMismatchError

DIGEST = "00112233445566778899aabbccddeeff" * 2
VECTORS = json.loads(FILE.read_text(encoding="utf-8"))
N, P = 3, 2
FORMS = frozenset({("int128", (1, 4)), (EXACT.kind, (1, 1)), (WORD, (1, 3)), (NOTHING, (0, 0))})
CODEC = Codec(DIGEST, n=N, p=P, dtype="float64", forms=FORMS)

counts = st.integers(0, LARGEST_ROUND)
finite = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=32)
matrices = st.lists(finite, min_size=N * P, max_size=N * P).map(lambda x: np.array(x).reshape(N, P))
blocks = st.builds(
    Block.of,
    counts,
    matrices,
    matrices,
    st.floats(0, 1e300),
    st.builds(StopWord, counts, st.none()),
    counts,
).map(lambda block: block._replace(fallback=min(block.fallback, block.k)))
short = words.map(lambda word: word[:16])
hellos = st.builds(Hello, counts, words, counts, counts, short, words, st.booleans(), *[counts] * 4, words, words)
payloads = {
    "int128": st.binary(min_size=64, max_size=64),
    EXACT.kind: st.binary(min_size=264, max_size=264),
    WORD: st.lists(finite, min_size=3, max_size=3).map(lambda word: np.array(word).tobytes()),
    NOTHING: st.just(b""),
}
sums = st.sampled_from(sorted(FORMS)).flatmap(
    lambda form: st.builds(
        lambda block, numbers: block._replace(kind=form[0], shape=form[1], numbers=numbers),
        blocks,
        payloads[form[0]],
    )
)
messages = blocks | sums | hellos | st.builds(Bye, counts, words, counts)


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
        assert (message.kind, message.shape) in {(PAIR, (N, P)), *FORMS}
        assert len(message.numbers) == bytes_each(message.kind) * message.shape[0] * message.shape[1]
        if message.kind in (PAIR, WORD):
            assert np.isfinite(np.frombuffer(message.numbers, dtype="<f8")).all()
    return True


@settings(max_examples=6500)
@given(st.binary(max_size=400))
def test_garbage_is_refused_and_nothing_else_happens(frame):
    decode_or_refuse(frame)


junk = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary(max_size=60) | words,
    lambda inner: st.lists(inner, max_size=14) | st.dictionaries(words, inner, max_size=3),
    max_leaves=30,
)


@settings(max_examples=500)
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


BLOCK = Block.of(7, np.ones((N, P)), np.ones((N, P)), 0.5, StopWord(1, 9))
# Most blocks are like this one, which has a way of its own through the decoder.
USUAL_BLOCK = BLOCK._replace(stop=StopWord())
NAN, INF = (struct.pack("<12d", *[1.0] * 11, bad) for bad in (float("nan"), float("inf")))
HUGE = struct.pack("<12d", *[1e300] * 12)


@pytest.mark.parametrize("block", [BLOCK, USUAL_BLOCK], ids=["calm", "usual"])
@pytest.mark.parametrize(
    ("place", "value", "complaint"),
    [
        (0, True, "header"),
        (0, 1.0, "header"),
        (1, 2.0, "header"),
        (2, b"x" * 16, "another run"),
        (2, b"short", "16 bytes"),
        (3, -1, "header"),
        (3, 2**60, "header"),
        (3, "4", "header"),
        (3, True, "header"),
        (4, 2.0, "header"),
        (4, 2**60, "header"),
        (1, 9, "unknown kind"),
        (5, float("nan"), "step size"),
        (5, float("inf"), "step size"),
        (5, -0.5, "step size"),
        (5, 1, "step size"),
        (6, -1, "block whose streak is not a whole number"),
        (6, False, "streak"),
        (7, "soon", "block whose after is not nil or a whole number"),
        (7, 7, "announces round 7 as the last, which is past"),
        (8, 8, "fallback that is not a round up to its own"),
        (8, -1, "fallback"),
        (8, True, "fallback"),
        (9, "float32", "agreed are float64"),
        (9, "object", "agreed are float64"),
        (10, [2, 3], r"shape \(2, 3\); agreed are float64 of \(3, 2\)"),
        (10, [3, 2, 1], "shape"),
        (10, [3.0, 2], "shape"),
        (11, b"", "not 96 bytes"),
        (11, "x" * 96, "not bytes"),
        (11, [1.0] * 12, "not bytes"),
        (11, NAN, "NaN or Inf"),
        (11, INF, "NaN or Inf"),
    ],
)
def test_a_block_with_a_wrong_field_is_refused_with_its_reason(block, place, value, complaint):
    fields = fields_of(block)
    fields[place] = value
    with pytest.raises(RemoteProtocolError, match=complaint):
        CODEC.decode(msgpack.packb(fields))


SUMS = {
    "up": Block(7, bytes(range(64)), (1, 4), 0.0, StopWord(), 2, "int128", birth="cd" * 16),
    "exact": Block(7, b"\xff" * 264, (1, 1), 0.0, StopWord(), 2, EXACT.kind),
    "down": Block(7, struct.pack("<3d", 1.0, -2.5, 1e300), (1, 3), 0.0, StopWord(), 2, WORD),
    "nothing": Block(7, b"", (0, 0), 0.0, StopWord(), 2, NOTHING),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_block_of_a_sum_carries_its_kind_its_shape_and_its_bytes_as_they_are(name):
    block = SUMS[name]
    fields = fields_of(block)
    assert fields[9:] == [block.kind, list(block.shape), block.numbers, block.birth]
    for codec in (CODEC, Codec(DIGEST, n=N, p=P, dtype="float32", forms=FORMS)):  # which rounds X and D alone
        sender, decoded = codec.decode(codec.encode(4, block))
        assert (sender, decoded) == (4, block)


@pytest.mark.parametrize(
    ("name", "place", "value", "complaint"),
    [
        ("up", 9, "int64", "has 'int64' of shape"),
        ("up", 9, EXACT.kind, r"has 'int2112' of shape \(1, 4\); agreed are .*int2112 of \(1, 1\)"),
        ("up", 9, PAIR, "has 'pair' of shape"),
        ("up", 10, [1, 3], "agreed are"),
        ("up", 10, [4, 1], "agreed are"),
        ("up", 10, [1, True], "shape is not two whole numbers"),
        ("up", 11, bytes(63), "not 64 bytes"),
        ("up", 11, bytes(65), "not 64 bytes"),
        ("up", 11, "x" * 64, "not bytes"),
        ("exact", 11, bytes(263), "not 264 bytes"),
        ("down", 9, "float64", "agreed are"),
        ("down", 10, [3, 1], "agreed are"),
        ("down", 11, bytes(16), "not 24 bytes"),
        ("down", 11, struct.pack("<3d", 1, 2, float("nan")), "neighbor 4, round 7: has a word with NaN or Inf"),
        ("down", 11, struct.pack("<3d", float("-inf"), 2, 3), "has a word with NaN or Inf"),
        ("nothing", 10, [0, 1], "agreed are"),
        ("nothing", 10, [1, 4], "agreed are"),
        ("nothing", 11, b"\x00", "not 0 bytes"),
        ("nothing", 11, None, "not bytes"),
        ("nothing", 5, -1.0, "step size"),
        ("nothing", 8, 8, "fallback"),
        ("nothing", 2, b"x" * 16, "another run"),
    ],
)
def test_a_block_of_a_sum_with_a_wrong_field_is_refused_with_its_reason(name, place, value, complaint):
    fields = fields_of(SUMS[name])
    fields[place] = value
    with pytest.raises(RemoteProtocolError, match=complaint):
        CODEC.decode(msgpack.packb(fields))


@pytest.mark.parametrize("name", SUMS)
def test_a_run_without_sums_takes_no_block_of_one(name):
    codec = Codec(DIGEST, n=20, p=P, dtype="float64")  # whose own blocks are larger
    kind = SUMS[name].kind
    with pytest.raises(RemoteProtocolError, match=rf"'{kind}' of shape .* agreed are float64 of \(20, 2\)$"):
        codec.decode(codec.encode(4, SUMS[name]))


@pytest.mark.parametrize(("n", "largest"), [(1, 264), (40, 1280)])
def test_the_longest_frame_follows_from_the_largest_form(n, largest):
    codec = Codec(DIGEST, n=n, p=P, dtype="float64", forms=FORMS)
    assert codec.largest_frame == largest + 512
    assert Codec(DIGEST, n=n, p=P, dtype="float64").largest_frame == 32 * n + 512


def test_what_is_not_finite_in_one_block_harms_no_other_of_another_kind():
    good = [CODEC.encode(1, block) for block in (USUAL_BLOCK, *SUMS.values())]
    fields = {name: fields_of(block) for name, block in {"pair": USUAL_BLOCK, "word": SUMS["down"]}.items()}
    fields["pair"][11], fields["word"][11] = NAN, struct.pack("<3d", 1, 2, float("nan"))
    bad = [msgpack.packb(each) for each in fields.values()]
    results = CODEC.decode_all([*good, *bad, *good])
    assert [isinstance(result, RemoteProtocolError) for result in results] == [False] * 5 + [True] * 2 + [
        False
    ] * 5
    assert [said[1] for said in results[1:5]] == list(SUMS.values())


def test_the_forms_of_a_real_run_are_heard_and_a_refusal_stays_a_line(tmp_path):
    parts = [np.random.default_rng(i).standard_normal((5, 4)) for i in range(3)]
    raw = raw_with_parts(tmp_path, parts, start={"kind": "leading"})
    plan = outline(make_topology(raw, file=tmp_path / "net.toml"))
    codec = Codec(DIGEST, n=4, p=2, dtype="float64", forms=plan.forms)
    assert len(plan.forms) > 10
    for kind, shape in plan.forms:
        numbers = bytes(bytes_each(kind) * shape[0] * shape[1])
        block = Block(7, numbers, shape, 0.5, StopWord(1), 2, kind)
        assert codec.decode(codec.encode(1, block)) == (1, block)
    fields = fields_of(SUMS["up"])
    fields[10] = [1, 2**53]
    with pytest.raises(RemoteProtocolError) as caught:
        codec.decode(msgpack.packb(fields))
    assert len(str(caught.value)) < 600
    assert str(caught.value).isprintable()


def test_huge_but_finite_numbers_are_sound():
    fields = fields_of(BLOCK)
    fields[11] = HUGE
    _, block = CODEC.decode(msgpack.packb(fields))
    assert (block.X == 1e300).all()


def test_an_error_names_who_claims_to_have_sent_it_and_in_which_round():
    fields = fields_of(BLOCK)
    fields[11] = NAN
    with pytest.raises(RemoteProtocolError, match="neighbor 4, round 7: ") as caught:
        CODEC.decode(msgpack.packb(fields))
    assert (caught.value.neighbor, caught.value.k) == (4, 7)


@pytest.mark.parametrize("change", [lambda f: f[:-1], lambda f: [*f, 0], lambda f: f[:3], lambda _: 5])
@pytest.mark.parametrize(
    "message", [BLOCK, Hello(0, DIGEST, N, P, "float64", "1", is_asking=True), Bye(3, "done", 2)]
)
def test_a_message_with_too_few_or_too_many_fields_is_refused(message, change):
    with pytest.raises(RemoteProtocolError):
        CODEC.decode(msgpack.packb(change(fields_of(message))))


def test_a_frame_beyond_the_limit_is_refused_before_it_is_looked_at():
    with pytest.raises(RemoteProtocolError, match=f"at most {CODEC.largest_frame}"):
        CODEC.decode(b"\x00" * (CODEC.largest_frame + 1))


def test_every_message_fits_the_limit():
    longest = Hello(2**53, "f" * 64, 2**53, 2**53, "x" * 16, "y" * 32, True, *[2**53] * 4, "z" * 128, "f" * 64)  # noqa: FBT003
    for message in (BLOCK, longest, Bye(2**53, "z" * 64, 2**53)):
        assert len(CODEC.encode(2**53, message)) <= CODEC.largest_frame


LARGE = Codec(DIGEST, n=10_000, p=10, dtype="float64")  # frames of 1.6 MB


def refusal(frame, codec):
    """What is said of a frame that has to be refused: one short line; and at what cost in memory."""
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError) as caught:
            codec.decode(frame)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    line = str(caught.value)
    assert len(line) < 300
    assert line.isascii()
    assert line.isprintable()
    return line, most


@pytest.mark.parametrize(
    "opening", [b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9"], ids=["array", "map", "str", "bin", "ext"]
)
@pytest.mark.parametrize("place", range(12))
def test_a_huge_declared_length_is_refused_at_no_cost(opening, place):
    before = msgpack.packb([*fields_of(BLOCK)[:place], None])[:-1]
    _, most = refusal(before + opening + b"\xff\xff\xff\xff" + b"\x01" * 40, CODEC)
    assert most < 100_000


@pytest.mark.parametrize("place", range(12))
@pytest.mark.parametrize("depth", [20, 900, 990, 1010, 1022, 1500])
def test_nesting_of_any_depth_is_refused_in_every_field(place, depth):
    codec = Codec(DIGEST, n=100, p=2, dtype="float64")
    fields = [msgpack.packb(field) for field in fields_of(BLOCK, Codec(DIGEST, n=N, p=P, dtype="float64"))]
    fields[place] = b"\x91" * depth + b"\x00"
    refusal(b"\x9c" + b"".join(fields), codec)


@pytest.mark.parametrize(
    "unit",
    [b"\xdc\x00\x10" + b"\x80" * 16, b"\x91\x90", b"\x91" * 500 + b"\x00", b"\x9f" * 500, b"\x92\x80", b"\xa0"],
    ids=["maps", "pairs", "towers", "open towers", "lists", "texts"],
)
@pytest.mark.parametrize("begin", [b"", b"\xdc\x00\x10", b"\x9f\x9f\x9f\x9f\x9f"])
def test_a_large_frame_full_of_small_things_costs_little_memory(unit, begin):
    frame = begin + unit * ((LARGE.largest_frame - len(begin)) // len(unit))
    _, most = refusal(frame, LARGE)
    assert most < 2 * len(frame)  # msgpack copies what follows a message


def test_a_tree_of_arrays_in_a_large_frame_costs_little_memory():
    tree = b"\x80"
    for _ in range(4):
        tree = b"\xdc\x00\x10" + tree * 16
    _, most = refusal(b"\x9d" + tree * 13, LARGE)
    assert most < 1_000_000


def test_many_refused_frames_together_cost_no_more_than_one():
    frame = b"\x9f" + (b"\x9f" + b"\x91\x91\x80" * 15) * 15
    tracemalloc.start()
    try:
        results = LARGE.decode_all([frame, frame + b"\x00"] * 500)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert all(isinstance(result, RemoteProtocolError) for result in results)
    assert most < 2_000_000


@pytest.mark.parametrize("place", [9, 10])
@pytest.mark.parametrize("value", [b"\xff" * 1_500_000, "\n" * 128, ["\x1b" * 128] * 16, [[[]]], {}])
def test_what_stands_for_precision_or_shape_is_not_repeated_unless_short(place, value):
    fields = fields_of(BLOCK)
    fields[place] = value
    line, _ = refusal(msgpack.packb(fields), LARGE)
    assert line.startswith(f"neighbor 4, round 7: has a block whose {'dtype' if place == 9 else 'shape'} is not ")


def test_a_sound_block_in_a_large_frame_is_heard():
    block = Block.of(7, np.ones((10_000, 10)), np.zeros((10_000, 10)), 0.5, StopWord(1))
    assert is_same(LARGE.decode(LARGE.encode(4, block))[1], block)


any_text = st.text(max_size=140)
LONGEST = {"dtype": 16, "digest": 64, "software": 32, "trouble": 128, "features": 64, "reason": 64}


@settings(max_examples=500)
@given(counts, st.sampled_from(list(LONGEST)), any_text)
def test_no_text_that_is_accepted_could_forge_a_log_line(k, name, text):
    message = Bye(k, text)
    if name != "reason":
        message = Hello(
            **({"k": k, "digest": "", "n": N, "p": P, "dtype": "", "software": ""} | {name: text}), is_asking=True
        )
    frame = CODEC.encode(1, message)
    if len(text) <= LONGEST[name] and text.isascii() and text.isprintable():
        assert CODEC.decode(frame) == (1, message)
    else:
        refusal(frame, CODEC)


@settings(max_examples=500)
@given(messages, st.integers(0, 16), junk)
def test_one_wrong_field_is_refused_in_one_short_printable_line_or_sound(message, place, value):
    fields = fields_of(message)
    fields[place % len(fields)] = value
    frame = msgpack.packb(fields)
    if not decode_or_refuse(frame):
        refusal(frame, CODEC)


@pytest.mark.parametrize("text", ["a\nb", "\x1b[31m", "\x7f", "caf\u00e9"])
def test_text_that_could_forge_a_log_line_is_refused(text):
    fields = fields_of(Bye(1, "x"))
    fields[5] = text
    with pytest.raises(RemoteProtocolError, match="printable"):
        CODEC.decode(msgpack.packb(fields))


@pytest.mark.parametrize("other", [2, 4])
def test_another_version_is_named(other):
    fields = fields_of(BLOCK)
    assert fields[0] == VERSION == 3
    fields[0] = other
    with pytest.raises(VersionMismatchError, match=f"version {other}, this peer speaks 3") as caught:
        CODEC.decode(msgpack.packb([*fields, "what another version has besides"]))
    assert (caught.value.theirs, caught.value.neighbor) == (other, 4)


def test_a_hello_of_another_run_is_decoded_so_that_the_difference_can_be_named():
    other = Codec("ff" * 32, n=9, p=9, dtype="float32")
    hello = Hello(0, "ff" * 32, 9, 9, "float32", "0.9", is_asking=True)
    assert CODEC.decode(other.encode(2, hello)) == (2, hello)


def test_the_published_vectors_have_every_kind_of_message_and_block():
    assert {vector["kind"] for vector in VECTORS} == {"hello", "block", "bye"}
    blocks = [vector for vector in VECTORS if vector["kind"] == "block"]
    assert {vector["message"].get("kind", PAIR) for vector in blocks} == {
        PAIR,
        "int128",
        EXACT.kind,
        WORD,
        KEY,
        NOTHING,
    }
    assert {msgpack.unpackb(bytes.fromhex(vector["frame"]))[0] for vector in VECTORS} == {VERSION}


def test_the_exponent_of_128_bits_is_the_one_that_the_document_says():
    """L = e + b + 2 - 128, where 2^(e-1) <= total < 2^e and b is the bits of d - 1, without our own code."""
    (fields,) = [vector["message"] for vector in VECTORS if "total" in vector["message"]]
    two, total = Fraction(2), Fraction(fields["total"])
    e = next(e for e in range(-1100, 1100) if two ** (e - 1) <= total < two**e)
    assert fields["exponent"] == e + len(f"{fields['peers'] - 1:b}") + 2 - 128
    whole = [math.trunc(Fraction(value) / two ** fields["exponent"]) for value in fields["values"]]
    sent = b"".join(number.to_bytes(16, "little", signed=True) for number in whole)
    assert numbers_of(fields) == sent
    document = Path(__file__).parents[2] / "docs" / "protocol.md"
    assert "L = e + b + 2 - 128" in document.read_text(encoding="utf-8")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["name"])
def test_the_published_vectors_encode_and_decode(vector):
    codec, message, frame = codec_of(vector), message_of(vector), bytes.fromhex(vector["frame"])
    assert codec.encode(vector["sender"], message) == frame
    sender, decoded = codec.decode(frame)
    assert sender == vector["sender"]
    assert is_same(decoded, message)


@settings(max_examples=200)
@given(st.lists(st.tuples(messages, st.sampled_from(["sound", "cut", "not finite"])), max_size=8))
def test_many_frames_together_say_what_each_says_alone(drawn):
    frames = []
    for message, harm in drawn:
        frame = CODEC.encode(1, message)
        if harm == "cut":
            frame = frame[:-1]
        elif harm == "not finite" and isinstance(message, Block) and message.kind in (PAIR, WORD):
            frame = frame[:-8] + np.array([np.inf]).tobytes()
        frames.append(frame)
    for frame, together in zip(frames, CODEC.decode_all(frames), strict=True):
        if isinstance(together, RemoteProtocolError):
            with pytest.raises(RemoteProtocolError, match=re.escape(str(together))):
                CODEC.decode(frame)
        else:
            sender, alone = CODEC.decode(frame)
            assert sender == together[0]
            assert is_same(alone, together[1])


@pytest.mark.parametrize("n", [10, 2000, 20_000])
def test_a_block_that_is_kept_does_not_keep_all_that_came_with_it(n):
    codec, numbers = Codec(DIGEST, n=n, p=3, dtype="float64"), np.ones((n, 3))
    frames = [codec.encode(1, Block.of(k, numbers, numbers, 0.1, StopWord(), 0)) for k in range(64)]
    tracemalloc.start()
    try:
        _, kept = codec.decode_all(frames)[-1]
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept.X.nbytes == numbers.nbytes
    assert held < 2 * numbers.nbytes + 10_000
