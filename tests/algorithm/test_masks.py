"""Masks: they hide what is sent, and no sum tells that they were there."""

from itertools import chain

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from topology.graphs import connected_graphs

from thanos_peer.algorithm.fixed_point import EXACT, FixedPoint
from thanos_peer.algorithm.masks import SECRET_BYTES, Masks, shared_secret

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
    hidden = [each.hide(form, own, number) for each, own in zip(masks_of(d, edges, rng), plain, strict=True)]
    assert form.total(hidden[0], hidden[1:]) == form.total(plain[0], plain[1:])
    if d > 1:
        assert all(one != other for one, other in zip(hidden, plain, strict=True))


@given(st.integers(0, 2**32 - 1))
def test_a_part_without_a_coalition_shows_its_own_sum_only_if_its_masks_to_the_others_are_known(seed):
    # A path 0 - 1 - 2 - 3: peer 0 knows its edge to 1, and nothing else.
    rng = np.random.default_rng(seed)
    masks = masks_of(4, [(0, 1), (1, 2), (2, 3)], rng)
    plain = [NARROW.encode(rng.standard_normal(3), 4) for _ in range(4)]
    hidden = [each.hide(NARROW, own, 0) for each, own in zip(masks, plain, strict=True)]
    known = masks[0].stream(1, 0, len(plain[1]))
    others = NARROW.total(hidden[1], [known, hidden[2], hidden[3]])
    assert others == NARROW.total(plain[1], plain[2:])
    for part in ([1], [2], [3], [1, 2], [2, 3], [1, 3]):
        seen = NARROW.total(bytes(len(known)), [known] * (1 in part) + [hidden[i] for i in part])
        assert seen != NARROW.total(bytes(len(known)), [plain[i] for i in part])


def test_no_two_sums_phases_or_edges_have_the_same_stream_and_both_ends_have():
    rng = np.random.default_rng(1)
    sets = [masks_of(3, [(0, 1), (1, 2)], np.random.default_rng(1), phase) for phase in ("gram", "gram1", "")]
    streams = [
        [masks[1].stream(neighbor, number, 64) for masks in sets for neighbor in (0, 2)] for number in range(300)
    ]
    assert len(set(chain(*streams))) == 300 * 3 * 2
    assert sets[0][0].stream(1, 7, 64) == sets[0][1].stream(0, 7, 64)
    # A longer sum begins with the same bytes: numbers of another length are another phase, or another sum.
    assert sets[0][0].stream(1, 7, 128)[:64] == sets[0][0].stream(1, 7, 64)
    one, other, product = (rng.bytes(32) for _ in range(3))
    assert shared_secret(product, one, other) == shared_secret(product, other, one)
    assert shared_secret(product, one, one) != shared_secret(product, one, other)


def test_without_secrets_nothing_is_masked():
    plain = NARROW.encode(np.ones(3), 2)
    assert Masks(0, {}, "gram").hide(NARROW, plain, 0) is plain
