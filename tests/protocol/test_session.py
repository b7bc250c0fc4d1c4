"""A session: what it returns for an input, by its own stages."""

import pytest
from networks import make_instance, raw_topology

from thanos_peer.agent import Agent
from thanos_peer.errors import DoubleError, LocalProtocolError
from thanos_peer.peer.peer import terms_of
from thanos_peer.protocol.conversation import Options
from thanos_peer.protocol.hearing import Arrived
from thanos_peer.protocol.neighbor import LinkEvent
from thanos_peer.protocol.outputs import Finished, Log, Save, Send
from thanos_peer.protocol.session import Session
from thanos_peer.protocol.stages import Stage

ADDRESSES = {0: "tcp://host-0:1", 1: "tcp://host-1:1"}
ROUNDS = 5


class Pair:
    """Two sessions that hear each other at once; they save at once too."""

    def __init__(self):
        instance = make_instance(raw_topology("path", 2, max_rounds=ROUNDS, tolerance=0.0))
        agents = [Agent(instance.topology, i, instance.plan(i)) for i in (0, 1)]
        for agent in agents:
            agent.fallback = agent.k
        terms = terms_of(instance.topology)
        self.sessions = [Session(agent, terms, ADDRESSES, Options(), 0.0) for agent in agents]

    def perform(self, i, outputs, now=0.0):
        """Do what a session wants, and pass on what the other wants then."""
        for output in outputs:
            match output:
                case Send((j,), message, epoch) if i != j:
                    arrived = Arrived((i, message), 1, now, i)
                    self.perform(j, self.sessions[j].receive([arrived], epoch, now), now)
                case Save(memory):
                    self.perform(i, self.sessions[i].saved(memory, now), now)

    def start(self):
        for i, session in enumerate(self.sessions):
            self.perform(i, session.start(0.0))

    def tick(self, now):
        for i, session in enumerate(self.sessions):
            self.perform(i, session.tick(now), now)

    @property
    def stages(self):
        return [session.talk.stage for session in self.sessions]


@pytest.fixture
def pair():
    return Pair()


def test_a_duplicate_with_a_slow_disk_says_nothing_after_its_end(pair):
    session, outputs = pair.sessions[0], []
    session.link_changed(0, LinkEvent.UP, 0.0)
    for now in range(9):
        outputs += session.tick(float(now))
        if now == 2:
            # This save never ends; a notice of it is due in the tick that ends the session.
            session.talk.save()
    assert session.talk.stage is Stage.ENDED
    assert isinstance(outputs[-1], Finished)
    assert isinstance(outputs[-1].error, DoubleError)
    assert Log("warning", "saving the state takes 6 s already") in outputs


def test_a_signal_after_the_end_changes_nothing(pair):
    pair.start()
    pair.tick(0.1)
    assert pair.stages == [Stage.ENDED, Stage.ENDED]
    session = pair.sessions[0]
    assert session.stop("SIGTERM", 0.2) == []
    assert session.talk.stop_reason == ""
    assert session.are_all_done  # so its state can be removed


def test_a_stage_that_does_not_follow_is_an_error_of_ours(pair):
    pair.start()
    with pytest.raises(LocalProtocolError, match="peer 0 goes from staying to lost"):
        pair.sessions[0].talk.enter(Stage.LOST)
