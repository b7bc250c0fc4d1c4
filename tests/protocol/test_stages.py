"""Every input of a session in every stage: where it leads, and whether anything is to be done."""

import inspect
import re
from dataclasses import replace

import pytest
from networks import make_instance, raw_topology

from thanos_peer.agent import Agent
from thanos_peer.errors import CheckpointError, LocalProtocolError
from thanos_peer.peer.peer import terms_of
from thanos_peer.protocol import stages
from thanos_peer.protocol.conversation import Options
from thanos_peer.protocol.hearing import Arrived
from thanos_peer.protocol.neighbor import LinkEvent
from thanos_peer.protocol.outputs import LookUp
from thanos_peer.protocol.session import Session
from thanos_peer.protocol.stages import TRANSITIONS, Stage
from thanos_peer.simulate import AgentNetwork

ADDRESSES = {0: "tcp://host-0:1", 1: "tcp://host-1:1"}
# When a session that waits alone has begun to look up the hosts of its neighbors.
WAITED = 5.0
# The stage that each input leads to, with + if there are outputs; - if the input is an error of ours.
TABLE = """
              running   lost      saving    proving   staying   failing   ended
start         running+  -         -         -         -         -         -
receive       running+  lost+     saving+   proving+  staying+  failing+  ended
link_changed  running   lost      saving    proving   staying   failing   ended
looked_up     running+  lost+     saving    proving   staying   failing   ended
advance       running   lost      saving    proving   staying   failing   ended
tick          running+  lost+     saving+   staying+  staying+  failing+  ended
saved         running   lost      ended+    proving   staying   failing   ended
save_failed   ended+    ended+    ended+    ended+    staying+  failing   ended
epoch_failed  ended+    ended+    ended+    ended+    ended+    failing   ended
stop          saving+   ended+    saving    proving   ended+    failing   ended
fail          ended+    ended+    ended+    ended+    ended+    failing   ended
"""


def rows_of(table):
    """The cells by input and stage."""
    names, *rows = (line.split() for line in table.strip().splitlines())
    return [(what, Stage(name), cell) for what, *cells in rows for name, cell in zip(names, cells, strict=True)]


def sessions():
    """Two sessions that have not heard each other, whose agents have begun."""
    instance = make_instance(raw_topology("path", 2, max_rounds=5, tolerance=0.0))
    agents = [Agent(instance.topology, i, instance.plan(i)) for i in (0, 1)]
    return [session_of(instance, agent) for agent in agents]


def session_of(instance, agent):
    agent.fallback = agent.k
    return Session(agent, terms_of(instance.topology), ADDRESSES, Options(), 0.0)


def hello_of(other, **fields):
    return replace(other.talk.handshake.hello(is_asking=True), **fields)


def hear(session, hello, now):
    return session.receive([Arrived((1, hello), 1, now, 1)], 0, now)


def waiting():
    """A session that has begun to look up the host of its neighbor, and that neighbor."""
    session, other = sessions()
    session.start(0.0)
    assert any(isinstance(output, LookUp) for output in session.tick(WAITED))
    return session, other


def lost():
    session, other = waiting()
    life = session.talk.handshake.terms.life
    hear(session, hello_of(other, k=3, oldest=3, answered=life), WAITED)
    return session, other


def saving():
    session, other = waiting()
    session.stop("SIGTERM", WAITED)
    return session, other


def proving():
    """A session that was done in an earlier life."""
    instance = make_instance(raw_topology("path", 2, max_rounds=5, tolerance=0.0))
    network = AgentNetwork(instance)
    while not network.is_done:
        network.advance()
    session, other = (session_of(instance, agent) for agent in network.agents)
    session.start(WAITED)
    session.saved(session.talk.agent.memory(), WAITED)
    return session, other


def staying():
    session, other = proving()
    session.tick(WAITED + 2.0)
    return session, other


def failing():
    session, other = waiting()
    session.link_changed(0, LinkEvent.UP, WAITED)
    session.tick(WAITED)  # from now on it is unclear who is there
    session.fail(ValueError("first"), WAITED)
    return session, other


def ended():
    session, other = waiting()
    session.fail(ValueError("first"), WAITED)
    return session, other


MAKE = {
    Stage.RUNNING: waiting,
    Stage.LOST: lost,
    Stage.SAVING: saving,
    Stage.PROVING: proving,
    Stage.STAYING: staying,
    Stage.FAILING: failing,
    Stage.ENDED: ended,
}
NOW = WAITED + 4.0
GIVE = {
    "start": lambda session, _: session.start(NOW),
    "receive": lambda session, other: hear(session, hello_of(other), NOW),
    "link_changed": lambda session, _: session.link_changed(1, LinkEvent.UP, NOW) or [],
    "looked_up": lambda session, _: session.looked_up({1: "host-1"}, NOW),
    "advance": lambda session, _: session.advance(NOW),
    "tick": lambda session, _: session.tick(NOW),
    "saved": lambda session, _: session.saved(session.talk.agent.memory(), NOW),
    "save_failed": lambda session, _: session.save_failed(CheckpointError("no space"), NOW),
    "epoch_failed": lambda session, _: session.epoch_failed(CheckpointError("no space"), NOW),
    "stop": lambda session, _: session.stop("SIGINT", NOW),
    "fail": lambda session, _: session.fail(ValueError("second"), NOW),
}


@pytest.mark.parametrize(("what", "stage", "cell"), rows_of(TABLE))
def test_an_input_leads_where_the_table_says(what, stage, cell):
    session, other = MAKE[stage]()
    assert session.talk.stage is stage
    if cell == "-":
        with pytest.raises(LocalProtocolError, match=f"peer 0 starts while {stage.value}"):
            GIVE[what](session, other)
        return
    outputs = GIVE[what](session, other)
    found = session.talk.stage.value + "+" * bool(outputs)
    assert (found, outputs) == (cell, outputs)


def test_the_tables_have_every_input():
    named = {
        name
        for name, method in inspect.getmembers(Session, inspect.isfunction)
        if not name.startswith("_") and "now" in inspect.signature(method).parameters
    } - {"misbehaving"}
    assert set(GIVE) == named
    assert {what for what, _, _ in rows_of(TABLE)} == named
    rows = stages.__doc__.split("each input of a session does")[1].split("A session starts")[0]
    assert set(re.findall(r"^ {4}([a-z_]+)", rows, re.MULTILINE)) - {"input"} == named


def test_the_table_of_stages_has_every_transition():
    rows = stages.__doc__.split("leads to\n")[1].split("\n\n")[0].splitlines()
    assert len(rows) == len(Stage)
    for row in rows:
        name, after = row.split()[0], re.search(r"[A-Z]+(, [A-Z]+)*$", row)
        leads_to = set() if name == "ENDED" else {Stage[each] for each in after[0].split(", ")}
        assert leads_to == TRANSITIONS[Stage[name]], name


@pytest.mark.parametrize("stage", list(Stage))
def test_a_request_to_stop_is_noted_until_the_end(stage):
    session, _ = MAKE[stage]()
    session.stop("SIGINT", NOW)
    assert (session.talk.stop_reason == "SIGINT") is (stage is not Stage.ENDED)


@pytest.mark.parametrize("stage", list(Stage))
def test_what_happens_to_a_connection_and_a_checkpoint_is_noted_to_the_end(stage):
    session, _ = MAKE[stage]()
    count = session.talk.saving.count
    session.link_changed(1, LinkEvent.UP, NOW)
    session.looked_up({1: "host-1"}, NOW)
    session.saved(session.talk.agent.memory(), NOW)
    link = session.talk.neighbors[1].link
    assert link.is_up
    assert link.unresolved == "host-1"
    assert session.talk.saving.count == count + 1
