"""Patience: asking and speaking at growing intervals, for as long as it takes."""

import itertools

import pytest
from networks import make_instance

from thanos_peer.agent import Agent
from thanos_peer.protocol.wire import Bye
from thanos_peer.runtime import waiting
from thanos_peer.runtime.links import LinkState


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set."""

    class Clock:
        now = 1000.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(waiting, "time", clock)
    return clock


@pytest.fixture
def patient(clock):  # noqa: ARG001 - the clock has to stand first
    instance = make_instance(family="path", d=2)
    agent = Agent(instance.topology, instance.local_problems[0], instance.parameters, instance.start)
    return waiting.Waiting(agent, {1: LinkState("tcp://there:1")})


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
    patient.hear(1, 5, clock.now)
    patient.leave(1, Bye(5, "SIGTERM"))
    clock.now += 2
    (line,) = patient.lines()
    assert line.endswith("last heard 2 s ago, in round 5, it left in round 5 (SIGTERM)")


def test_whoever_left_early_may_come_back_but_a_last_bye_is_final(patient):
    assert patient.behind() == [1]
    patient.leave(1, Bye(3, "SIGTERM"))
    patient.come_back(1)
    assert patient.behind() == [1]
    patient.leave(1, Bye(10**6, "done"))
    patient.come_back(1)
    assert patient.behind() == []
