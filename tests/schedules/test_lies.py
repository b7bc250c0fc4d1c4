"""One liar among the sessions that ship: what all others claim stays true, and none of them is stuck for good."""

import pytest
from schedules.lies import FIELDS, NAMES
from schedules.run import run_some, world_of
from schedules.test_schedules import shipped_constants  # noqa: F401 - schedules change these

from thanos_peer.agent import Agent
from thanos_peer.block import StopWord
from thanos_peer.protocol import hearing
from thanos_peer.protocol.epochs import Epochs
from thanos_peer.protocol.handshake import Handshake

SCHEDULES = 150
# Schedules: in one of them a broken rule must show.
MOST = 400


def test_every_promise_holds_beside_a_liar():
    counts, wrong = run_some(1, SCHEDULES, has_liar=True)
    assert not wrong
    assert counts["schedules"] == SCHEDULES
    assert not [each for each in FIELDS if not counts[f"lie: {NAMES[each[0]]} {each[1]}"]]
    assert not [what for what in ("lie: nothing said", "lie: floods", "liar shut out") if not counts[what]]
    assert [what for what in counts if what.startswith("said: ")]


def test_a_seed_says_everything_of_a_liar_too():
    first, again = (world_of(7, has_liar=True, keeps_log=True) for _ in range(2))
    for world in (first, again):
        world.run()
    assert first.log == again.log


def never_doubt_a_loss(monkeypatch):
    monkeypatch.setattr(Epochs, "doubt_loss", lambda _: None)


def let_phases_end_anywhere(monkeypatch):
    monkeypatch.setattr(Epochs, "ends_otherwise", lambda _: False)


def believe_any_end(monkeypatch):
    monkeypatch.setattr(Agent, "_check", lambda *_: None)
    monkeypatch.setattr(Agent, "_was_calm", lambda *_: True)
    monkeypatch.setattr(Agent, "_believed", lambda _, sender, block: block.stop)  # noqa: ARG005


def believe_any_hello_or_bye(monkeypatch):
    monkeypatch.setattr(hearing, "check", lambda *_: None)


def remember_names_for_ever(monkeypatch):
    monkeypatch.setattr(Handshake, "forget_features_of", lambda *_: None)


def go_on_with_unknown_states(monkeypatch):
    monkeypatch.setattr(Handshake, "is_lost", lambda *_, **__: False)


def count_everybody_as_calm(monkeypatch):
    advance = Agent.advance

    def advance_calmly(self):
        advance(self)
        self.runner.stop = StopWord(self.runner.stop.streak + 1, self.runner.stop.after)

    monkeypatch.setattr(Agent, "advance", advance_calmly)


MUTATIONS = [
    never_doubt_a_loss,
    let_phases_end_anywhere,
    believe_any_end,
    believe_any_hello_or_bye,
    remember_names_for_ever,
    go_on_with_unknown_states,
    count_everybody_as_calm,
]


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_a_rule_against_lies_that_is_broken_is_found(mutate, monkeypatch):
    mutate(monkeypatch)
    for first in range(1, MOST, 10):
        _, wrong = run_some(first, 10, has_liar=True)
        # Any other error may be one of the mutation itself.
        if any(what.startswith("WrongError") for _, what in wrong):
            return
    pytest.fail(f"{MOST} schedules did not notice")
