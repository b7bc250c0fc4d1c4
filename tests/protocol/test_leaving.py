"""Leaving: no peer goes before all are done, and a word that is lost keeps none for ever."""

import pytest
from networks import make_instance

from thanos_peer.agent import Agent
from thanos_peer.errors import RunOverError, StateLostError
from thanos_peer.protocol import leaving as rules
from thanos_peer.protocol.messages import DONE, Bye
from thanos_peer.protocol.neighbor import EpochRecord, Link, LinkEvent, Neighbor
from thanos_peer.protocol.traffic import EdgeCounters


class Clock:
    now = 1000.0


@pytest.fixture
def clock():
    return Clock()


class Leaver:
    """A peer on its way out: what `Leaving` decides, at the time of a clock."""

    def __init__(self, clock, agent, neighbors, diameter, limit):
        self._clock, self._neighbors = clock, neighbors
        self._leaving = rules.Leaving(agent, neighbors, diameter, limit=limit, now=clock.now)

    def hear(self, j, bye):
        return self._leaving.hear(self._neighbors[j], bye, self._clock.now)

    def come_back(self, j, **how):
        self._leaving.come_back(self._neighbors[j], self._clock.now, **how)

    def begin(self, **how):
        self._leaving.begin(self._clock.now, **how)

    def begin_epoch(self):
        for neighbor in self._neighbors.values():
            neighbor.epoch = EpochRecord()
        self._leaving.begin_epoch()

    def __getattr__(self, name):
        known = getattr(self._leaving, name)
        at_a_time = (
            "has_grown",
            "unsure",
            "is_over",
            "is_time_to_ask",
            "is_time_to_speak",
            "describe",
            "note_tick",
        )
        return (lambda: known(self._clock.now)) if name in at_a_time else known


@pytest.fixture
def leaving(clock):
    """A function that makes those who leave on a path."""
    instance = make_instance(family="path", d=4)

    def make(agent, limit=None):
        neighbors = instance.topology.graph.neighbors[agent]
        links = {j: Link(f"tcp://there:{j}", is_up=True) for j in neighbors}
        known = {j: Neighbor(j, link, EdgeCounters()) for j, link in links.items()}
        agent = Agent(instance.topology, agent, instance.plan(agent))
        return Leaver(clock, agent, known, instance.topology.graph.diameter, limit), links

    return make


def tell(peers, i, neighbors):
    """Have a peer say what it knows, and those that learn from it say what they know."""
    for j in neighbors[i]:
        for bye in peers[i].byes():
            if peers[j].hear(i, bye):
                tell(peers, j, neighbors)


def test_no_peer_leaves_before_all_are_done_and_then_all_do(leaving):
    peers = [leaving(i)[0] for i in range(4)]
    neighbors = [[1], [0, 2], [1, 3], [2]]
    for last, i in enumerate((2, 0, 3, 1)):
        assert not any(one.are_all_done for one in peers), f"after {last}"
        peers[i].begin(is_resumed=False)
        tell(peers, i, neighbors)
    assert all(one.are_all_done and one.is_over() for one in peers)


def test_one_that_knows_that_all_are_done_gives_the_others_some_seconds_to_say_so_too(leaving, clock):
    one, _ = leaving(0)
    one.begin(is_resumed=False)
    assert one.hear(1, Bye(9, DONE, 2))
    assert one.are_all_done
    assert not one.is_over()
    assert one.unsure() == [1]
    clock.now += rules.LAST_WORD
    assert one.is_over()
    assert one.describe_end() == ""


def test_one_that_is_not_connected_just_then_gets_longer_to_hear_that_all_are_done(leaving, clock):
    one, links = leaving(0)
    one.begin(is_resumed=False)
    links[1].note(LinkEvent.DOWN, clock.now)
    one.hear(1, Bye(9, DONE, 2))
    clock.now += rules.GONE - 1
    assert not one.is_over()
    links[1].is_up = True
    assert one.is_over()
    links[1].is_up = False
    clock.now += 1
    assert one.is_over()
    assert one.are_all_done


def test_a_neighbor_that_has_not_said_that_it_is_done_is_waited_for_even_if_it_is_gone(leaving, clock):
    one, links = leaving(1)
    one.begin(is_resumed=False)
    one.hear(0, Bye(9, DONE, 0))
    links[0].is_up = links[2].is_up = False
    clock.now += 10 * rules.GONE
    assert not one.is_over()
    assert "for peers 2 (not connected), which have not said that they are" in one.describe()
    assert "says so when it is started again" in one.describe()
    one.hear(2, Bye(9, DONE, 0))
    assert one.is_over()


def test_those_that_are_done_are_stayed_with_while_they_are_there(leaving, clock):
    one, links = leaving(1)
    one.begin(is_resumed=False)
    one.hear(0, Bye(9, DONE, 0))
    one.hear(2, Bye(9, DONE, 0))
    clock.now += 10 * rules.GONE
    assert not one.is_over()
    assert one.describe().endswith("for peers beyond 0, 2, of which not all are known to be")
    for link in links.values():
        link.note(LinkEvent.DOWN, clock.now)
    clock.now += rules.GONE - 1
    assert not one.is_over()
    clock.now += 1
    assert one.is_over()


def test_those_that_have_left_do_not_keep_those_that_are_still_there(leaving, clock):
    (one, links), (other, links_of_other) = leaving(1), leaving(2)
    for each, gone, here in ((one, 0, 2), (other, 3, 1)):
        each.begin(is_resumed=False)
        each.hear(gone, Bye(9, DONE, 0))
        each.hear(here, Bye(9, DONE, 0))
    links[0].is_up = links_of_other[3].is_up = False
    clock.now += rules.GONE
    peers, neighbors = {1: one, 2: other}, {1: [2], 2: [1]}
    for i in peers:
        tell(peers, i, neighbors)
    for each in (one, other):
        assert each.is_over()
        # Of 0 and 3 only that they are done themselves was known.
        assert not each.are_all_done


def test_those_given_up_let_others_leave_but_none_says_that_all_are_done(leaving, clock):
    made, neighbors = [leaving(i) for i in range(4)], [[1], [0, 2], [1, 3], [2]]
    peers, links = [one for one, _ in made], [theirs for _, theirs in made]
    for i in (0, 1, 2):  # 3 is not done
        peers[i].begin(is_resumed=False)
        tell(peers, i, neighbors)
    # The host of peer 2 is away for a while.
    links[1][2].note(LinkEvent.DOWN, clock.now)
    clock.now += rules.GONE
    assert peers[1].has_grown()
    tell(peers, 1, neighbors)
    for one in peers[:2]:
        assert one.is_over()
        assert not one.are_all_done
        assert one.radius < 3
        assert "the state is kept" in one.describe_end()
    assert not peers[2].is_over()


def test_one_that_comes_back_behind_is_waited_for_again(leaving, clock):
    one, _ = leaving(0)
    one.begin(is_resumed=False)
    one.hear(1, Bye(9, DONE, 2))
    one.come_back(1, is_behind=True)
    clock.now += 10 * rules.LAST_WORD
    assert not one.is_over()
    one.hear(1, Bye(9, DONE, 2))
    assert one.is_over()
    assert one.are_all_done


def test_one_that_was_done_and_seemed_behind_is_not_waited_for_once_it_is_long_gone(leaving, clock):
    one, links = leaving(0)
    one.begin(is_resumed=False)
    one.hear(1, Bye(9, DONE, 2))
    # This may be a double, or words from before it was done.
    one.come_back(1, is_behind=True)
    links[1].note(LinkEvent.DOWN, clock.now)
    clock.now += rules.FORGOTTEN - 1
    assert not one.is_over()
    clock.now += 1
    assert one.is_over()
    assert not one.are_all_done
    assert "the state is kept" in one.describe_end()


def freeze(one, clock, seconds):
    clock.now += 0.1
    one.note_tick()
    clock.now += seconds
    one.note_tick()


def test_one_that_was_frozen_may_have_been_given_up_and_waits_for_none_that_is_gone_for_long(leaving, clock):
    one, links = leaving(1)
    one.begin(is_resumed=False)
    one.hear(0, Bye(9, DONE, 0))
    links[0].is_up = links[2].is_up = False
    for _ in range(600):
        clock.now += 1
        one.note_tick()
    assert one.unsure() == [2]
    # Nothing happens here, but the others go on.
    freeze(one, clock, rules.FORGOTTEN)
    # The other peers get some time to be there again.
    assert one.unsure() == [0, 2]
    clock.now += rules.FORGOTTEN - 1
    assert not one.is_over()
    clock.now += 1
    assert one.is_over()
    assert not one.are_all_done
    assert "left before hearing from peers 0 (not connected), 2 (not connected)" in one.describe_end()


def test_one_that_was_frozen_waits_for_those_that_have_spoken_since(leaving, clock):
    one, links = leaving(1)
    one.begin(is_resumed=False)
    freeze(one, clock, rules.LAST_WORD)
    one.come_back(0)  # may have been said before
    clock.now += rules.LAST_WORD
    one.come_back(2)
    links[0].is_up = links[2].is_up = False
    clock.now += 10 * rules.FORGOTTEN
    assert one.unsure() == [2]
    assert not one.is_over()


def test_one_that_was_frozen_gives_its_last_words_time_to_be_heard(leaving, clock):
    one, _ = leaving(0)
    one.begin(is_resumed=False)
    one.hear(1, Bye(9, DONE, 2))
    freeze(one, clock, rules.LAST_WORD)
    assert not one.is_over()
    clock.now += rules.LAST_WORD
    assert one.is_over()


def test_one_that_was_done_before_waits_for_none_that_is_gone_for_long(leaving, clock):
    one, links = leaving(0)
    links[1].is_up = False
    one.begin(is_resumed=True)
    clock.now += rules.FORGOTTEN - 1
    assert not one.is_over()
    clock.now += 1
    assert one.is_over()
    assert not one.are_all_done
    assert "left before hearing from peers 1 (not connected)" in one.describe_end()


def test_a_limit_holds_even_if_others_are_there(leaving, clock):
    one, _ = leaving(0, limit=3.0)
    one.begin(is_resumed=False)
    assert not one.is_over()
    clock.now += 3
    assert one.is_over()


def test_one_that_left_for_want_of_its_state_is_waited_for_unless_the_run_is_over(leaving):
    one, _ = leaving(0)
    one.begin(is_resumed=False)
    assert not one.hear(1, Bye(5, StateLostError.in_short))
    assert not one.is_over()
    assert "for peers 1 (left: its state is lost)" in one.describe()
    assert one.hear(1, Bye(5, RunOverError.in_short))
    assert one.is_over()
    assert not one.are_all_done
    one.come_back(1)
    assert one.unsure() == [1]


def test_what_a_neighbor_was_done_with_is_lost_with_its_state(leaving):
    one, _ = leaving(0)
    one.hear(1, Bye(9, DONE, 2))
    one.come_back(1)
    one.begin(is_resumed=False)
    assert one.are_all_done
    one.come_back(1, is_behind=True)
    one.begin(is_resumed=False)
    assert one.radius == 0


def test_in_a_new_epoch_no_peer_is_done(leaving):
    one, _ = leaving(0)
    one.hear(1, Bye(9, DONE, 3))
    one.begin(is_resumed=False)
    one.begin_epoch()
    assert one.radius is None
    assert not one.are_all_done
    assert one.unsure() == [1]


def test_it_speaks_at_growing_intervals_and_asks_every_second(leaving, clock):
    one, _ = leaving(0)
    one.begin(is_resumed=False)
    spoken, asked = [], 0
    for _ in range(100):
        clock.now += 1
        asked += one.is_time_to_ask()
        if one.is_time_to_speak():
            spoken.append(clock.now - 1000)
    assert asked == 100
    assert spoken == [3, 6, 12, 24, 48, 96]
