"""One liar among the sessions that ship: what all others claim stays true, and none of them is stuck for good."""

import random
from collections import Counter

import pytest
from schedules.lies import FIELDS, NAMES, MiscountingWorld, miscounting_of
from schedules.run import NETWORKS, instance_of, run_some, world_of
from schedules.test_schedules import shipped_constants  # noqa: F401 - schedules change these
from schedules.world import WrongError

from thanos_peer.agent import Agent
from thanos_peer.block import StopWord
from thanos_peer.protocol import hearing
from thanos_peer.protocol.handshake import Handshake
from thanos_peer.protocol.stop import StopAgreement, next_word

SCHEDULES = 150
MISCOUNTED = 60
# Schedules: in one of them a broken rule must show.
MOST = 400


def test_every_promise_holds_beside_a_liar():
    counts, wrong = run_some(1, SCHEDULES, has_liar=True)
    assert not wrong
    assert counts["schedules"] == SCHEDULES
    told = {field for kind, field in FIELDS if counts[f"lie: {NAMES[kind]} {field}"]}
    assert told == {field for _, field in FIELDS}
    assert not [what for what in ("lie: nothing said", "lie: floods", "liar shut out") if not counts[what]]
    assert [what for what in counts if what.startswith("said: ")]


def test_a_seed_says_everything_of_a_liar_too():
    first, again = (world_of(7, has_liar=True, keeps_log=True) for _ in range(2))
    for world in (first, again):
        world.run()
    assert first.log == again.log


def miscounting_world(seed):
    """One of the networks that prepare samples and mask sums, with one peer that miscounts."""
    rng = random.Random(seed)
    number = rng.choice([number for number, network in enumerate(NETWORKS) if network[-1]])
    instance, data, bits = instance_of(number)
    lying = miscounting_of(rng, instance.topology.d)
    return MiscountingWorld(instance, data, bits, [], lying=lying, seed=seed, delay=0.02)


def test_lies_about_sums_words_and_keys_of_masks_end_in_errors_by_name_or_in_possible_numbers():
    counts = Counter()
    for seed in range(1, 1 + MISCOUNTED):
        world = miscounting_world(seed)
        try:
            world.run()
        except WrongError as error:
            pytest.fail(f"seed {seed}: {error}")
        counts += world.counts
    for kind in ("key", "word", "int2112", "int128"):
        assert counts[f"lie: numbers of {kind}"]
    assert counts["said: RemoteProtocolError"]
    assert counts["begun anew"] > MISCOUNTED / 4
    assert counts["wrong numbers believed"]


def believe_any_end(monkeypatch):
    def next_word_of_all(self, words, *, is_calm, k, **_):
        return next_word(words, is_calm=is_calm, k=k, diameter=self._graph.diameter)

    monkeypatch.setattr(Agent, "_check", lambda *_: None)
    monkeypatch.setattr(StopAgreement, "next_word", next_word_of_all)


def believe_any_hello_or_bye(monkeypatch):
    monkeypatch.setattr(hearing, "check", lambda *_: None)


def go_on_with_unknown_states(monkeypatch):
    monkeypatch.setattr(Handshake, "is_lost", lambda *_, **__: False)


def count_all_as_calm(monkeypatch):
    advance = Agent.advance

    def advance_calmly(self):
        advance(self)
        self.runner.stop = StopWord(self.runner.stop.streak + 1, self.runner.stop.after)

    monkeypatch.setattr(Agent, "advance", advance_calmly)


# Each with a schedule to begin with: some are found in few of them.
MUTATIONS = [
    (believe_any_end, 421),
    (believe_any_hello_or_bye, 2821),
    (go_on_with_unknown_states, 1),
    (count_all_as_calm, 1),
]


@pytest.mark.parametrize(("mutate", "first"), MUTATIONS, ids=[mutate.__name__ for mutate, _ in MUTATIONS])
def test_a_rule_against_lies_that_is_broken_is_found(mutate, first, monkeypatch):
    mutate(monkeypatch)
    for seed in range(first, first + MOST, 10):
        _, wrong = run_some(seed, 10, has_liar=True)
        # Any other error may be one of the mutation itself.
        if any(what.startswith("WrongError") for _, what in wrong):
            return
    pytest.fail(f"{MOST} schedules did not notice")
