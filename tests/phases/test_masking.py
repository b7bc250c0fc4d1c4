"""The round in which neighbors agree on masks."""

from dataclasses import replace

import pytest
from networks import make_topology, raw_topology, with_keys

from thanos_peer.block import Block, StopWord
from thanos_peer.errors import RemoteProtocolError
from thanos_peer.phases import Found, Masking, WrongStateError
from thanos_peer.topology.graph import Graph

PATH = Graph.of(3, [(0, 1), (1, 2)], None)
WRONG_KEYS = [
    bytes(32),
    (1).to_bytes(32, "little"),
    (2**255 - 20).to_bytes(32, "little"),  # minus one, modulo the prime
    (2**255 - 10).to_bytes(32, "little"),  # another name of 9, modulo the prime
    (2**255 + 9).to_bytes(32, "little"),  # another name of 9, as the highest bit is not looked at
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
]


def phases_and_states(graph=PATH):
    phases = [Masking(agent=i, graph=graph, run="ab" * 32) for i in range(3)]
    for phase in phases:
        phase.enter(Found(), 4)
    return phases, [phase.start() for phase in phases]


def block_of(phase, state):
    numbers, (kind, shape), *_ = phase.say(0, state)
    return Block(4, numbers, shape, 0.0, StopWord(), kind=kind)


def test_both_ends_of_an_edge_come_to_one_secret_and_no_two_edges_to_the_same():
    phases, states = phases_and_states()
    blocks = [block_of(*each) for each in zip(phases, states, strict=True)]
    found = []
    for i, heard in enumerate(([0, 1], [0, 1, 2], [1, 2])):
        state, is_calm = phases[i].advance(0, states[i], [blocks[j] for j in heard])
        assert not is_calm
        found.append(phases[i].conclude(1, state, is_agreed=False).secrets)
    assert found[1] == found[0] + found[2]
    assert len(found[0]) == len(found[2]) == 32
    assert found[0] != found[2]
    assert phases[0].payload(1) == 2 * 2 * 32


def test_a_life_goes_on_with_its_secret_and_a_new_beginning_draws_another():
    phases, (state, *_) = phases_and_states()
    again = phases[0].restored(phases[0].arrays(state))
    assert again == state
    assert phases[0].say(0, again) == phases[0].say(0, state)
    assert phases[0].start() != state


@pytest.mark.parametrize("theirs", WRONG_KEYS, ids=["0", "1", "-1", "order 8", "p + 9", "2^255 + 9"])
def test_a_key_that_no_honest_neighbor_draws_is_refused_by_name(theirs):
    phases, states = phases_and_states()
    blocks = [block_of(*each) for each in zip(phases[:2], states[:2], strict=True)]
    blocks[1] = blocks[1]._replace(numbers=theirs)
    with pytest.raises(RemoteProtocolError, match="its key in phase masks is none that an honest peer") as caught:
        phases[0].advance(0, states[0], blocks)
    assert (caught.value.neighbor, caught.value.k) == (1, 4)


@pytest.mark.parametrize(
    ("relayed", "by", "what"),
    [(0, 2, "that of neighbor [02], too: one of the two"), (1, 2, "this peer's own"), (1, 0, "this peer's own")],
)
def test_a_key_that_a_neighbor_passes_on_as_its_own_is_refused_by_name(relayed, by, what):
    phases, states = phases_and_states(Graph.of(3, [(0, 1), (1, 2), (0, 2)], None))
    blocks = [block_of(*each) for each in zip(phases, states, strict=True)]
    blocks[by] = blocks[relayed]
    with pytest.raises(RemoteProtocolError, match=f"its key in phase masks is {what}") as caught:
        phases[1].advance(0, states[1], blocks)
    assert caught.value.neighbor in {by, relayed} - {1}
    assert caught.value.k == 4


def test_a_key_passed_on_to_one_that_does_not_know_whose_it_is_gives_the_edges_different_secrets():
    # On the path 0 - 1 - 2, peer 1 tells peer 2 the key of peer 0: both share a product, and no secret.
    phases, states = phases_and_states()
    blocks = [block_of(*each) for each in zip(phases, states, strict=True)]
    at_two, _ = phases[2].advance(0, states[2], [blocks[0], blocks[2]])
    at_zero, _ = phases[0].advance(0, states[0], [blocks[0], blocks[2]])
    assert at_two.shared != at_zero.shared


@pytest.mark.parametrize("arrays", [{}, {"secret": b"short"}, {"secret": bytes(32), "other": b""}])
def test_a_damaged_state_is_refused(arrays):
    phases, _ = phases_and_states()
    with pytest.raises(WrongStateError, match="must have a secret of 32 bytes"):
        phases[0].restored(arrays)


def test_secrets_are_not_shown():
    assert "5e" not in repr(replace(Found(), secrets=bytes.fromhex("5e" * 32)))


def test_masks_are_on_where_there_are_keys_unless_the_file_says_no_and_need_keys():
    plain = raw_topology()
    keyed = with_keys(plain)
    assert [make_topology(raw).masks_sums for raw in (plain, keyed)] == [False, True]
    without = with_keys(plain)
    without["algorithm"] = without["algorithm"] | {"masks": False}
    told = with_keys(plain)
    told["algorithm"] = told["algorithm"] | {"masks": True}
    topologies = [make_topology(raw) for raw in (plain, keyed, told, without)]
    assert [each.masks_sums for each in topologies] == [False, True, True, False]
    assert len({each.digest for each in topologies}) == 1  # masks change no number of the result
    plain["algorithm"]["masks"] = True
    with pytest.raises(Exception, match=r"algorithm\.masks = True: needs keys"):
        make_topology(plain)
