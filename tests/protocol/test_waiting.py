"""Patience: asking and speaking at growing intervals, for as long as it takes."""

import functools
import itertools

import pytest
from networks import make_instance

from thanos_peer.agent import Agent
from thanos_peer.protocol import waiting
from thanos_peer.protocol.messages import Bye
from thanos_peer.protocol.neighbor import Link, Neighbor
from thanos_peer.protocol.traffic import EdgeCounters


class Clock:
    now = 1000.0


class Patient:
    """A peer that waits for its only neighbor: what `Waiting` decides, at the time of a clock."""

    def __init__(self, clock):
        instance = make_instance(family="path", d=2)
        agent = Agent(instance.topology, 0, instance.plan(0))
        self.neighbor, self._clock = Neighbor(1, Link("tcp://there:1"), EdgeCounters()), clock
        self._waiting = waiting.Waiting(agent, {1: self.neighbor}, "tcp://here:0", now=clock.now)

    def come_back(self, trouble=""):
        self.neighbor.left, self.neighbor.is_spent, self.neighbor.trouble = None, False, (0, trouble)

    @property
    def seconds(self):
        return self._clock.now - self._waiting.since

    def __getattr__(self, name):
        known = getattr(self._waiting, name)
        return functools.partial(known, self._clock.now) if callable(known) else known


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def patient(clock):
    return Patient(clock)


def test_it_asks_at_growing_intervals_and_for_days(patient, clock):
    asked = []
    for _ in range(2 * 24 * 3600 * 2):
        clock.now += 0.5
        if patient.is_time_to_ask():
            asked.append(clock.now - 1000)
    gaps = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert asked[0] == 0.5
    assert gaps == sorted(gaps)
    assert gaps[-1] == waiting.ASK_MOST


def test_it_speaks_after_seconds_and_then_less_and_less_often_but_never_stops(patient, clock):
    spoken = []
    for _ in range(3600):
        clock.now += 1
        if patient.is_time_to_speak():
            spoken.append(clock.now - 1000)
    assert spoken[0] == waiting.NOTICE_FIRST
    gaps = [later - earlier for earlier, later in itertools.pairwise(spoken)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == waiting.NOTICE_MOST


def test_a_new_round_begins_the_waiting_anew(patient, clock):
    clock.now += 100
    assert patient.is_time_to_ask()
    patient.begin_round()
    assert patient.seconds == 0
    assert not patient.is_time_to_ask()


def test_a_line_says_who_where_since_when_and_what_is_known(patient, clock):
    clock.now += 7
    assert patient.lines() == [
        "waiting 7 s in round 0 for peer 1 at tcp://there:1: never connected, 1 tries, never heard"
    ]
    patient.neighbor.heard = clock.now, 5
    patient.neighbor.left = Bye(5, "SIGTERM")
    clock.now += 2
    (line,) = patient.lines()
    known = "last heard 2 s ago, in round 5: it reaches this peer, and not the other way round"
    assert line.endswith(f"never connected, 1 tries, {known}, it left in round 5 (SIGTERM)")


def test_what_keeps_a_neighbor_waiting_is_said_and_passed_on(patient, clock):
    assert patient.trouble() == ""
    clock.now += 7
    assert patient.trouble() == "peer 1 at tcp://there:1 is not connected"
    patient.come_back("peer 7 left in round 3 (SIGTERM)")
    assert patient.trouble() == "peer 7 left in round 3 (SIGTERM)"
    (line,) = patient.lines()
    assert line.endswith("; it says that peer 7 left in round 3 (SIGTERM)")
    patient.neighbor.left = Bye(5, "x" * 64)
    assert patient.trouble().startswith("peer 1 left in round 5 (x")
    patient.come_back()
    assert patient.trouble() == "peer 1 at tcp://there:1 is not connected"
    patient.neighbor.trouble = 5, "what was said in another round"
    assert patient.trouble() == "peer 1 at tcp://there:1 is not connected"


def test_a_neighbor_that_is_shut_out_is_waited_for_aloud_and_named_before_what_it_says_of_others(patient, clock):
    patient.come_back("peer 7 left in round 3 (SIGTERM)")
    clock.now += 7
    while not patient.neighbor.conduct.refuse("neighbor 1, round 9: x", clock.now, is_proven=True):
        assert patient.trouble() == "peer 7 left in round 3 (SIGTERM)"
    assert patient.trouble() == "peer 1 sends what peer 0 refuses: 201 messages so far"
    (line,) = patient.lines()
    refused = "; refused 201 message(s), the latest from neighbor 1, round 9: x; its connection is closed for 1 s"
    assert f"never heard{refused}; it says that peer 7" in line


def test_one_that_is_done_and_has_no_state_will_never_say_what_is_missing(patient):
    patient.neighbor.is_spent = True
    assert "the run is over: done already, and " in patient.why_it_is_over(has_result=False)
    patient.come_back()  # its state has been brought back
    assert patient.why_it_is_over(has_result=False) == ""


def test_one_that_was_done_before_waits_for_none_that_is_not_connected_for_a_minute(patient, clock):
    link = patient.neighbor.link
    clock.now += waiting.FORGOTTEN - 1
    assert not patient.why_it_is_over(has_result=True)
    clock.now += 1
    assert patient.why_it_is_over(has_result=True).endswith("peers 1")
    assert not patient.why_it_is_over(has_result=False)
    link.is_up = True
    assert not patient.why_it_is_over(has_result=True)
    link.is_up, link.since = False, clock.now
    assert not patient.why_it_is_over(has_result=True)


def test_a_link_that_was_up_is_lost_and_only_one_that_never_was_may_have_the_wrong_key():
    link = Link("tcp://there:1", since=1000.0, was_up=True, retries=3)
    assert link.describe(1020.0) == "connection lost 20 s ago, 3 tries to reconnect"
    # A frozen peer looks like this: its kernel still connects.
    link.refusals = 2
    assert link.describe(1020.0) == "connection lost 20 s ago, no handshake since, 2 tries"
    link.was_up = False
    assert "is it this peer's key that stands in it?" in link.describe(1020.0)


def test_giving_up_does_not_count_the_time_in_which_this_peer_was_frozen(patient, clock):
    for _ in range(20):
        clock.now += 0.1
        patient.note_tick()
    clock.now += 3600
    patient.note_tick()
    assert patient.seconds > 3600
    assert patient.seconds_awake == pytest.approx(2 + waiting.LONGEST_TICK)
    patient.begin_round()
    clock.now += 0.5
    patient.note_tick()
    assert patient.seconds_awake == pytest.approx(0.5)
