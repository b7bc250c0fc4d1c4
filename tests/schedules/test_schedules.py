"""The sessions that ship, under a clock of their own: whatever happens, the same bits, and nobody is stuck."""

import pytest
from schedules.run import replay, run_some, world_of

from thanos_peer.agent import Agent
from thanos_peer.convergence import Convergence
from thanos_peer.protocol.conduct import Conduct
from thanos_peer.protocol.exchange import Exchange
from thanos_peer.protocol.handshake import Handshake
from thanos_peer.protocol.leaving import Leaving
from thanos_peer.protocol.saving import Saving
from thanos_peer.protocol.waiting import Waiting

SCHEDULES = 40
MOST = 400  # schedules: in one of them a broken rule must show


def test_every_promise_holds_in_schedules_of_faults():
    counts, wrong = run_some(1, SCHEDULES)
    assert not wrong
    assert counts["schedules"] == SCHEDULES
    assert (
        min(counts[kind] for kind in ("kill", "power_cut", "stop", "freeze", "cut", "duplicate", "lose_disk")) > 0
    )


def test_a_seed_says_everything():
    first, again = world_of(7, keeps_log=True), world_of(7, keeps_log=True)
    for world in (first, again):
        world.run()
    assert first.log == again.log
    assert (first.now, first.counts) == (again.now, again.counts)


def test_a_schedule_can_be_replayed(capsys):
    replay(7)
    assert capsys.readouterr().out.endswith("all is well\n")


def test_the_log_is_shown_of_a_schedule_that_ends_with_any_error(capsys, monkeypatch):
    monkeypatch.setattr(Leaving, "is_over", lambda *_: 1 / 0)
    replay(7)
    assert "FAULT" in (shown := capsys.readouterr().out)
    assert shown.endswith("ZeroDivisionError: division by zero\n\n")


def forget_what_was_sent(monkeypatch):
    publish = Exchange.publish

    def publish_and_forget(self, block):
        publish(self, block)
        for k in [k for k in self._said if k < block.k - 1]:
            del self._said[k]

    monkeypatch.setattr(Exchange, "publish", publish_and_forget)
    monkeypatch.setattr(Exchange, "oldest", property(lambda self: min(self._said)))


def overlook_lost_state(monkeypatch):
    monkeypatch.setattr(Handshake, "is_lost", lambda *_: False)


def leave_at_once(monkeypatch):
    monkeypatch.setattr(Leaving, "is_over", lambda *_: True)


def never_ask_again(monkeypatch):
    monkeypatch.setattr(Waiting, "is_time_to_ask", lambda *_: False)


def name_the_latest_checkpoint(monkeypatch):
    end = Saving.end

    def end_too_well(self, memory):
        end(self, memory)
        self._agent.fallback = self.latest

    monkeypatch.setattr(Saving, "end", end_too_well)


def shut_out_for_one_mistake(monkeypatch):
    monkeypatch.setattr(Conduct, "refuse", lambda *_, **__: 1.0)


def call_it_converged(monkeypatch):
    monkeypatch.setattr(Agent, "convergence", property(lambda _: Convergence("converged", has_converged=True)))


MUTATIONS = [
    forget_what_was_sent,
    overlook_lost_state,
    leave_at_once,
    never_ask_again,
    name_the_latest_checkpoint,
    shut_out_for_one_mistake,
    call_it_converged,
]


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_a_broken_rule_is_found(mutate, monkeypatch):
    mutate(monkeypatch)
    for first in range(1, MOST, 10):
        _, wrong = run_some(first, 10)
        if wrong:
            return
    pytest.fail(f"{MOST} schedules did not notice")
