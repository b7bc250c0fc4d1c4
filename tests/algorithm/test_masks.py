"""Masks: they hide what is sent, and no sum tells that they were there."""

import hashlib
import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from topology.graphs import connected_graphs

from thanos_peer.algorithm.fixed_point import EXACT, FixedPoint
from thanos_peer.algorithm.masks import SECRET_BYTES, UNTOLD, Masks, secret_of_edge, told_with

NARROW = FixedPoint(128, -60)


def masks_of(d, edges, rng, phase="gram"):
    """Of all agents of a graph."""
    secrets = {edge: rng.bytes(SECRET_BYTES) for edge in edges}
    return [
        Masks(i, {j: secrets[min(i, j), max(i, j)] for j in range(d) if {(i, j), (j, i)} & set(edges)}, phase)
        for i in range(d)
    ]


@given(connected_graphs(), st.integers(0, 2**32 - 1), st.sampled_from([NARROW, EXACT]), st.integers(0, 3))
def test_masks_on_any_graph_cancel_in_the_sum_and_hide_what_is_sent(graph, seed, form, number):
    (d, edges), rng = graph, np.random.default_rng(seed)
    plain = [form.encode(rng.standard_normal(5), d) for _ in range(d)]
    hidden = [
        each.hide(form, own, number, UNTOLD) for each, own in zip(masks_of(d, edges, rng), plain, strict=True)
    ]
    assert form.total(hidden[0], hidden[1:]) == form.total(plain[0], plain[1:])
    if d > 1:
        assert all(one != other for one, other in zip(hidden, plain, strict=True))


@given(st.integers(0, 2**32 - 1))
def test_a_part_without_a_coalition_shows_its_own_sum_only_if_its_masks_to_the_others_are_known(seed):
    # A path 0 - 1 - 2 - 3: peer 0 knows its edge to 1, and nothing else.
    rng = np.random.default_rng(seed)
    masks = masks_of(4, [(0, 1), (1, 2), (2, 3)], rng)
    plain = [NARROW.encode(rng.standard_normal(3), 4) for _ in range(4)]
    hidden = [each.hide(NARROW, own, 0, UNTOLD) for each, own in zip(masks, plain, strict=True)]
    known = masks[0].stream(1, 0, UNTOLD, len(plain[1]))
    others = NARROW.total(hidden[1], [known, hidden[2], hidden[3]])
    assert others == NARROW.total(plain[1], plain[2:])
    for part in ([1], [2], [3], [1, 2], [2, 3], [1, 3]):
        seen = NARROW.total(bytes(len(known)), [known] * (1 in part) + [hidden[i] for i in part])
        assert seen != NARROW.total(bytes(len(known)), [plain[i] for i in part])


def test_no_two_sums_phases_words_or_edges_have_the_same_stream_and_both_ends_have():
    sets = [masks_of(3, [(0, 1), (1, 2)], np.random.default_rng(1), phase) for phase in ("gram", "gram1", "")]
    after = [UNTOLD, told_with(UNTOLD, bytes(8)), told_with(told_with(UNTOLD, bytes(8)), bytes(8))]
    streams = [
        masks[1].stream(neighbor, number, told, 64)
        for number in range(100)
        for masks in sets
        for neighbor in (0, 2)
        for told in after
    ]
    assert len(set(streams)) == 100 * 3 * 2 * 3
    for told in after:
        assert sets[0][0].stream(1, 7, told, 64) == sets[0][1].stream(0, 7, told, 64)
    # A longer sum begins with the same bytes: numbers of another length are another phase, or another sum.
    assert sets[0][0].stream(1, 7, UNTOLD, 128)[:64] == sets[0][0].stream(1, 7, UNTOLD, 64)


def test_all_that_an_edge_is_made_of_decides_about_its_secret():
    product, run, one, other = (bytes([number] * 32) for number in range(4))
    secret = secret_of_edge(run, {0: one, 1: other}, product)
    assert secret_of_edge(run, {1: other, 0: one}, product) == secret
    others = [
        secret_of_edge(other, {0: one, 1: other}, product),  # of another run
        secret_of_edge(run, {0: one, 1: other}, one),  # of another product
        secret_of_edge(run, {0: other, 1: one}, product),  # of the keys the other way round
        *(secret_of_edge(run, {0: one, 1: key}, product) for key in (one, run)),
        *(secret_of_edge(run, {i: one, j: other}, product) for i, j in ((0, 2), (1, 2), (0, 256))),
    ]
    assert len({secret, *others}) == 9


def test_without_secrets_nothing_is_masked():
    plain = NARROW.encode(np.ones(3), 2)
    assert Masks(0, {}, "gram").hide(NARROW, plain, 0, UNTOLD) is plain


def test_secrets_and_streams_are_those_of_the_protocol_byte_by_byte():
    """Made from docs/protocol.md with nothing of ours: BLAKE2b, and ChaCha20 as in RFC 8439."""
    run, product, low, high = (bytes([number] * 32) for number in range(4))
    content = b"thanos-peer masks, secret of an edge" + run + _little(3) + _little(11) + product + low + high
    secret = hashlib.blake2b(content, digest_size=32).digest()
    assert secret_of_edge(run, {11: high, 3: low}, product) == secret
    word = struct.pack("<3d", 1.0, -0.0, 0.1)
    told = hashlib.blake2b(bytes(32) + word, digest_size=32).digest()
    assert told_with(UNTOLD, word) == told
    key = hashlib.blake2b(told + _little(5) + b"proximal", digest_size=32, key=secret).digest()
    stream = b"".join(chacha20_block(key, number) for number in range(4))
    assert Masks(3, {11: secret}, "proximal").stream(11, 5, told, 200) == stream[:200]


def _little(number):
    return number.to_bytes(8, "little")


def chacha20_block(key, counter, nonce=b"LibsodiumDRG"):
    """64 bytes, as RFC 8439 has them in section 2.3."""

    def quarter(a, b, c, d):
        for into, of, turned, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[into] = (x[into] + x[of]) % 2**32
            mixed = x[turned] ^ x[into]
            x[turned] = (mixed << by | mixed >> (32 - by)) % 2**32

    begun = list(struct.unpack("<16I", b"expand 32-byte k" + key + struct.pack("<I", counter) + nonce))
    x = list(begun)
    for _ in range(10):
        for each in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)):
            quarter(*each)
        for each in ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
            quarter(*each)
    return struct.pack("<16I", *((one + other) % 2**32 for one, other in zip(x, begun, strict=True)))
