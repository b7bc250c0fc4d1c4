import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thanos_peer.block import NOTHING, Block, StopWord
from thanos_peer.errors import LocalProtocolError, RemoteProtocolError
from thanos_peer.protocol.exchange import Exchange

NEIGHBORS = (1, 5, 8)
ME = 4


def block(agent, k, **changes):
    """What an agent says in round k, made anew each time."""
    X = np.array([[agent + k / 10], [1.0]])
    fields = {"k": k, "X": X, "D": -X, "eta": 0.5 + agent, "stop": StopWord(streak=k)}
    return Block.of(**(fields | changes))


def exchange_in_round(k, neighbors=NEIGHBORS):
    exchange = Exchange(ME, neighbors, k)
    exchange.publish(block(ME, k))
    return exchange


def fill(exchange):
    for neighbor in exchange.missing():
        exchange.receive(neighbor, block(neighbor, exchange.k))


def senders(blocks):
    return [int(said.X[0, 0]) for said in blocks]


def test_a_round_is_taken_in_increasing_order_of_agent_its_own_block_among_it():
    exchange = exchange_in_round(0)
    for neighbor in (8, 1, 5):
        exchange.receive(neighbor, block(neighbor, 0))
    taken = exchange.blocks()
    assert senders(taken) == [1, 4, 5, 8]
    assert {said.k for said in taken} == {0}


def test_taking_a_round_moves_on_to_the_next():
    exchange = exchange_in_round(7)
    fill(exchange)
    exchange.go_on()
    assert exchange.k == 8
    assert exchange.missing() == NEIGHBORS
    assert not exchange.is_complete()


def test_it_says_whom_it_misses_until_none_is_missing():
    exchange = exchange_in_round(3)
    seen = [exchange.missing()]
    for neighbor in (5, 8, 1):
        assert not exchange.is_complete()
        exchange.receive(neighbor, block(neighbor, 3))
        seen.append(exchange.missing())
    assert seen == [(1, 5, 8), (1, 8), (1,), ()]
    assert exchange.is_complete()


def test_a_block_of_the_next_round_is_kept_until_its_time():
    exchange = exchange_in_round(0)
    exchange.receive(5, block(5, 1))
    assert exchange.missing() == NEIGHBORS
    fill(exchange)
    assert {said.k for said in exchange.blocks()} == {0}
    exchange.go_on()
    assert exchange.missing() == (1, 8)
    exchange.publish(block(ME, 1))
    fill(exchange)
    assert {said.k for said in exchange.blocks()} == {1}


def test_a_neighbor_two_rounds_ahead_is_at_fault():
    with pytest.raises(RemoteProtocolError, match="neighbor 5, round 2: more than one round ahead of 0") as caught:
        exchange_in_round(0).receive(5, block(5, 2))
    assert (caught.value.neighbor, caught.value.k) == (5, 2)


def test_a_neighbor_is_two_rounds_ahead_even_if_its_next_round_is_here():
    exchange = exchange_in_round(3)
    exchange.receive(5, block(5, 3))
    exchange.receive(5, block(5, 4))
    with pytest.raises(RemoteProtocolError, match="more than one round ahead of 3"):
        exchange.receive(5, block(5, 5))


@pytest.mark.parametrize("sender", [ME, 0, 9, -1])
def test_who_is_no_neighbor_is_not_heard(sender):
    exchange = exchange_in_round(0)
    with pytest.raises(RemoteProtocolError, match=f"neighbor {sender}, round 0: not a neighbor of agent 4"):
        exchange.receive(sender, block(sender, 0))
    assert exchange.missing() == NEIGHBORS


@pytest.mark.parametrize("k", [0, 1, 4])
def test_a_block_from_the_past_is_ignored_whatever_it_says(k):
    exchange = exchange_in_round(5)
    exchange.receive(5, block(5, k, eta=9.0))
    assert exchange.missing() == NEIGHBORS
    fill(exchange)
    assert [said.k for said in exchange.blocks()] == [5] * 4


@pytest.mark.parametrize("k", [3, 4])
def test_a_repetition_is_ignored(k):
    exchange = exchange_in_round(3)
    first = block(5, k)
    exchange.receive(5, first)
    exchange.receive(5, block(5, k))
    exchange.receive(5, first)
    fill(exchange)
    assert senders(exchange.blocks()) == [1, 4, 5, 8]


@pytest.mark.parametrize("k", [3, 4])
@pytest.mark.parametrize(
    "change",
    [
        {"X": np.array([[5.0], [np.nextafter(1, 2)]])},
        {"D": np.array([[0.0], [-1.0]])},
        {"eta": 5.5 + 1e-15},
        {"stop": StopWord(streak=1)},
        {"stop": StopWord(streak=3, after=9)},
    ],
    ids=["X", "D", "eta", "streak", "after"],
)
def test_a_repetition_that_says_something_else_is_the_neighbors_fault(k, change):
    exchange = exchange_in_round(3)
    exchange.receive(5, block(5, k))
    with pytest.raises(RemoteProtocolError, match=f"neighbor 5, round {k}: a second block that differs"):
        exchange.receive(5, block(5, k, **change))


def test_the_first_block_stands_after_a_contradiction():
    exchange = exchange_in_round(0)
    fill(exchange)
    with pytest.raises(RemoteProtocolError):
        exchange.receive(5, block(5, 0, eta=9.0))
    assert [said.eta for said in exchange.blocks()] == [1.5, 4.5, 5.5, 8.5]


@pytest.mark.parametrize(
    "change", [{"kind": "word"}, {"shape": (1, 4)}, {"numbers": bytes(32)}], ids=["kind", "shape", "numbers"]
)
def test_another_kind_or_shape_of_the_same_length_is_something_else(change):
    exchange = exchange_in_round(3)
    exchange.receive(5, block(5, 3))
    with pytest.raises(RemoteProtocolError, match="neighbor 5, round 3: a second block that differs"):
        exchange.receive(5, block(5, 3)._replace(**change))


def test_for_whom_numbers_are_is_no_part_of_what_is_said():
    assert block(5, 0)._replace(to=(1, 2)).has_same_bits(block(5, 0))


def test_only_those_whom_numbers_are_for_hear_them():
    said = block(ME, 3)._replace(kind="int128", shape=(1, 2), to=(1, 8))
    assert said.as_told_to(1) is said
    for_others = said.as_told_to(5)
    assert (for_others.kind, for_others.shape, for_others.numbers) == (NOTHING, (0, 0), b"")
    assert (for_others.k, for_others.eta, for_others.stop) == (said.k, said.eta, said.stop)
    assert block(ME, 3).as_told_to(5) == block(ME, 3)


def test_what_came_early_and_turns_out_to_be_wrong_can_be_refused_and_said_again():
    exchange = exchange_in_round(0)
    exchange.receive(5, block(5, 1))
    exchange.receive(8, block(8, 1))
    fill(exchange)
    exchange.go_on()
    exchange.publish(block(ME, 1))
    asked = []

    def is_wrong(sender, said):
        asked.append((sender, said.k))
        return sender == 5

    exchange.refuse(is_wrong)
    assert sorted(asked) == [(ME, 1), (5, 1), (8, 1)]
    assert exchange.missing() == (1, 5)
    # The first block is forgotten, so this one is no contradiction.
    assert exchange.receive(5, block(5, 1, eta=2.0))
    fill(exchange)
    assert [said.eta for said in exchange.blocks()] == [1.5, 4.5, 2.0, 8.5]


def test_a_zero_of_the_other_sign_is_something_else():
    zero = block(5, 0, X=np.zeros((2, 1)))
    assert not zero.has_same_bits(block(5, 0, X=-np.zeros((2, 1))))
    assert zero.has_same_bits(block(5, 0, X=np.zeros((2, 1))))


@pytest.mark.parametrize("k", [2, 4])
def test_publishing_another_round_is_our_own_fault(k):
    with pytest.raises(LocalProtocolError, match=f"agent 4 publishes round {k} in round 3"):
        Exchange(ME, NEIGHBORS, 3).publish(block(ME, k))


def test_publishing_twice_is_our_own_fault():
    with pytest.raises(LocalProtocolError, match="agent 4 publishes round 3 twice"):
        exchange_in_round(3).publish(block(ME, 3))


def test_taking_a_round_with_a_neighbor_missing_is_our_own_fault():
    exchange = exchange_in_round(3)
    for neighbor in (1, 8):
        exchange.receive(neighbor, block(neighbor, 3))
    with pytest.raises(LocalProtocolError, match="agent 4 takes round 3 before it is complete"):
        exchange.blocks()
    assert exchange.missing() == (5,)


def test_taking_a_round_before_publishing_is_our_own_fault():
    exchange = Exchange(ME, NEIGHBORS, 3)
    fill(exchange)
    assert exchange.missing() == ()
    with pytest.raises(LocalProtocolError, match="before it is complete"):
        exchange.blocks()


def test_what_was_said_in_this_round_and_the_last_can_be_said_again():
    exchange = Exchange(ME, (), 3)
    for k in (3, 4, 5):
        assert exchange.said(k) is None
        exchange.publish(block(ME, k))
        assert [at for at in range(8) if exchange.said(at) is not None] == [at for at in (k - 1, k) if at >= 3]
        exchange.go_on()
    assert exchange.said(5).has_same_bits(block(ME, 5))


def test_what_a_neighbor_may_have_to_start_again_with_can_be_said_again():
    exchange = Exchange(ME, (5, 8))
    for k in range(6):
        exchange.publish(block(ME, k))
        exchange.receive(5, block(5, k, fallback=max(0, k - 2)))
        exchange.receive(8, block(8, k, fallback=k // 3))
        exchange.go_on()
    assert exchange.fallbacks == {5: 3, 8: 1}
    assert [said.k for said in exchange.said_before(9)] == [1, 2, 3, 4, 5]
    assert exchange.oldest == 1


def test_one_that_has_started_again_knows_what_it_said_and_takes_nothing_early_for_wrong():
    exchange = Exchange(ME, (5,), 4, said=[block(ME, k) for k in (2, 3)], fallbacks={5: 2}, is_again=True)
    exchange.publish(block(ME, 4))
    assert [exchange.said(k) is not None for k in (1, 2, 3, 4, 5)] == [False, True, True, True, False]
    assert not exchange.receive(5, block(5, 9, fallback=3))
    assert exchange.missing() == (5,)
    assert exchange.fallbacks == {5: 3}
    assert exchange.receive(5, block(5, 4))


def test_an_agent_alone_needs_only_its_own_block():
    exchange = Exchange(ME, ())
    for k in range(3):
        exchange.publish(block(ME, k))
        assert [said.k for said in exchange.blocks()] == [k]
        exchange.go_on()


@given(st.sets(st.integers(0, 9).filter(lambda j: j != ME), min_size=1, max_size=5), st.integers(0, 5), st.data())
def test_any_order_and_repetition_of_deliveries_gives_the_same_blocks(neighbors, first, data):
    exchange = Exchange(ME, neighbors, first)
    all_ids = sorted((ME, *neighbors))
    for k in range(first, first + 4):
        deliverable = st.tuples(st.sampled_from(sorted(neighbors)), st.integers(first, k + 1))
        early, late = data.draw(st.lists(deliverable, max_size=6)), data.draw(st.lists(deliverable, max_size=3))
        rest = [(neighbor, k) for neighbor in data.draw(st.permutations(sorted(neighbors)))]
        exchange.publish(block(ME, k))
        for sender, said_in in (*early, *rest, *late):
            exchange.receive(sender, block(sender, said_in))
        taken = exchange.blocks()
        assert len(taken) == len(all_ids)
        assert all(said.has_same_bits(block(j, k)) for said, j in zip(taken, all_ids, strict=True))
        exchange.go_on()


def test_a_neighbor_that_never_gets_ahead_with_its_fallback_cannot_fill_the_memory():
    exchange = Exchange(0, [1], most_said=10)
    for k in range(50):
        exchange.publish(block(0, k))
        exchange.receive(1, block(1, k, fallback=0))
        exchange.go_on()
    assert [said.k for said in exchange.said_before(50)] == list(range(39, 50))
