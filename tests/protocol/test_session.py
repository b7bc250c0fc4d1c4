"""A session: what it returns for an input, by its own stages."""

import math
from dataclasses import fields, replace

import pytest
from networks import make_instance, raw_topology, with_keys

from thanos_peer.agent import Agent
from thanos_peer.algorithm.masks import Masks
from thanos_peer.errors import DoubleError, HandshakeError, LocalProtocolError, MasksMismatchError
from thanos_peer.peer.peer import terms_of
from thanos_peer.protocol.conversation import Options
from thanos_peer.protocol.hearing import Arrived
from thanos_peer.protocol.neighbor import LinkEvent
from thanos_peer.protocol.outputs import Finished, Log, Save, Send
from thanos_peer.protocol.rounds import MISMATCH
from thanos_peer.protocol.session import Session
from thanos_peer.protocol.stages import Stage
from thanos_peer.topology import Topology
from thanos_peer.topology.graph import Tree

ADDRESSES = {0: "tcp://host-0:1", 1: "tcp://host-1:1"}
ROUNDS = 5


class Pair:
    """Two sessions that hear each other at once; they save at once too.

    Args:
        raws: The topology file of each, if it is not the same.
        options: How both behave.
    """

    def __init__(self, raws=None, options=None, doctor=lambda topology: topology):
        raws = raws or [raw_topology("path", 2, max_rounds=ROUNDS, tolerance=0.0)] * 2
        instances = [make_instance(raw) for raw in raws]
        agents = [Agent(each.topology, i, each.plan(i)) for i, each in enumerate(instances)]
        for agent in agents:
            agent.fallback = agent.k
        terms = [terms_of(instances[0].topology), terms_of(doctor(instances[1].topology))]
        self.sessions = [
            Session(agent, each, ADDRESSES, options or Options(), 0.0)
            for agent, each in zip(agents, terms, strict=True)
        ]
        self.errors, self.logged = [None, None], []

    def perform(self, i, outputs, now=0.0):
        """Do what a session wants, and pass on what the other wants then."""
        for output in outputs:
            match output:
                case Send((j,), message, epoch) if i != j:
                    arrived = Arrived((i, message), 1, now, i)
                    self.perform(j, self.sessions[j].receive([arrived], epoch, now), now)
                case Log():
                    self.logged.append(output)
                case Finished(error):
                    self.errors[i] = error
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


def derived_otherwise(**found):
    """Has a peer derive something else from the same file, as a processor that rounds otherwise might."""

    def doctor(topology):
        values = {field.name: getattr(topology, field.name) for field in fields(topology)}
        changed = {name: property(lambda _, value=value: value) for name, value in found.items()}
        return type("Otherwise", (Topology,), changed)(**values)

    return doctor


def graph_with(**found):
    def doctor(topology):
        graph = replace(topology.graph)
        graph.__dict__.update({name: find(graph) for name, find in found.items()})
        return derived_otherwise(graph=graph)(topology)

    return doctor


def with_one_bit_more(graph):
    (here, there), other = graph.mixing
    return (here, (there[0], math.nextafter(there[1], 1))), other


@pytest.mark.parametrize(
    "doctor",
    [
        derived_otherwise(method="proximal"),
        derived_otherwise(tolerance=math.nextafter(1e-10, 1)),
        derived_otherwise(max_rounds=ROUNDS + 1),
        graph_with(tree=lambda graph: Tree.of(1, graph.neighbors)),
        graph_with(mixing=with_one_bit_more),
        lambda topology: topology,
    ],
    ids=["method", "tolerance", "max_rounds", "tree", "weights", "the same"],
)
def test_peers_that_derive_what_decides_about_rounds_otherwise_refuse_each_other_by_name(doctor, request):
    raw = raw_topology("path", 2, max_rounds=ROUNDS, tolerance=1e-10, method="auto")
    pair = Pair([raw, raw], doctor=doctor)
    pair.perform(0, pair.sessions[0].start(0.0))
    if request.node.callspec.id == "the same":
        assert pair.errors == [None, None]
        return
    for error in pair.errors:
        assert isinstance(error, HandshakeError)
        assert "peer 0" in str(error)
        assert "peer 1" in str(error)
        assert "they differ in topology digest: " in str(error)
    assert [session.talk.agent.k for session in pair.sessions] == [0, 0]


def test_peers_of_which_one_masks_its_sums_refuse_each_other_by_name():
    raws = [with_keys(raw_topology("path", 2, method="gram")) for _ in range(2)]
    raws[1]["algorithm"]["masks"] = False
    pair = Pair(raws)
    pair.perform(0, pair.sessions[0].start(0.0))
    for error in pair.errors:
        assert isinstance(error, HandshakeError)
        assert "peer 0" in str(error)
        assert "peer 1" in str(error)
        assert "they differ in masks" in str(error)
    assert [session.talk.agent.k for session in pair.sessions] == [0, 0]


@pytest.mark.parametrize("restarts_tracking", [False, True])
def test_a_root_waits_aloud_for_a_new_epoch_where_masks_do_not_cancel_or_begins_it(restarts_tracking, monkeypatch):
    def hide_by_another_stream(self, form, numbers, number, told):
        said = hide(self, form, numbers, number, told)
        is_wrong = self.agent == 1 and pair.sessions[1].talk.agent.epoch == 0
        return form.total(said, [b"\x7f" * len(said)]) if is_wrong else said

    hide = Masks.hide
    monkeypatch.setattr(Masks, "hide", hide_by_another_stream)
    raw = with_keys(raw_topology("path", 2, method="gram"))
    pair = Pair([raw, raw], Options(restarts_tracking=restarts_tracking))
    pair.start()
    root = pair.sessions[0].talk
    assert (root.agent.k, root.agent.epoch, pair.errors) == (1, 0, [None, None])
    assert "masks do not cancel" in "".join(each.text for each in pair.logged if each.level == "warning")
    for second in range(int(MISMATCH) + 2):
        assert (pair.errors[0] is None) == (second <= MISMATCH or restarts_tracking)
        pair.tick(float(second))
    if not restarts_tracking:
        assert isinstance(pair.errors[0], MasksMismatchError)
        assert "--restart-tracking" in str(pair.errors[0])
        return
    assert pair.errors == [None, None]
    assert [session.talk.agent.is_done for session in pair.sessions] == [True, True]
    assert root.agent.epoch == 1
