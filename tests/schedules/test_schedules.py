"""The sessions that ship, under a clock of their own: whatever happens, the same bits, and no peer is stuck.

Four rules can be broken without harm, so no schedule finds it.
1. A done neighbor that is behind again need not be noted (`Leaving.come_back`): it has its result, and ends with
   that when it finds its neighbors gone; noting it has them stay and help.
2. A peer may announce that it is done before its last round is saved (`Ending.finish`): its result is on the disk
   by then. Where neither is, it is found: `announce_before_writing`.
3. Messages need not name their epoch in the run that they are of (`run_of`): a block names the birth that it
   follows from. Where that is not looked at, it is found: `hear_blocks_of_any_birth`.
4. A peer may begin an epoch before all neighbors have answered (`Handshake.yet_to_answer`): a second beginning has
   another birth, and costs one more epoch.
"""

from dataclasses import replace

import numpy as np
import pytest
from schedules.draw import KINDS
from schedules.faults import FIRST_ROUNDS, STAGES
from schedules.run import NETWORKS, PREPARED, instance_of, replay, run_some, world_of
from schedules.world import said_of

from thanos_peer.agent import Agent
from thanos_peer.algorithm.masks import SECRET_BYTES, UNTOLD, Masks
from thanos_peer.convergence import Convergence
from thanos_peer.launch.claims import PeerClaims
from thanos_peer.phases import Found, Masking, PhaseRunner, masking, phase, runner
from thanos_peer.protocol import leaving, saving
from thanos_peer.protocol.conduct import Conduct
from thanos_peer.protocol.ending import Ending
from thanos_peer.protocol.exchange import Exchange
from thanos_peer.protocol.handshake import Handshake, OwnAddress
from thanos_peer.protocol.leaving import Leaving
from thanos_peer.protocol.outputs import ResultReady
from thanos_peer.protocol.saving import Saving
from thanos_peer.protocol.stages import TRANSITIONS, Stage
from thanos_peer.protocol.waiting import Waiting
from thanos_peer.simulate import AgentNetwork

SCHEDULES = 200
# In these a peer begins an epoch, loses its disk, and begins the same epoch again; in the second one a neighbor
# uses a block of the first time just then.
BEGUN_TWICE, USED_MEANWHILE = 90182, 91828
# In this one a peer loses its disk after some neighbors have used its key, and another one gets the new key: masks
# do not cancel, until it begins a new epoch.
OTHER_KEY = 12732
# Schedules: in one of them a broken rule must show.
MOST = 400
AT_ANY_MOMENT = [
    *(f"{kind} {when}" for kind in ("kill", "stop") for when in ("in the last round", *STAGES)),
    *(f"kill {when}" for when in FIRST_ROUNDS),
]


@pytest.fixture(autouse=True)
def shipped_constants(monkeypatch):
    """Schedules change these; other tests are to find them as they were."""
    monkeypatch.setattr(saving, "INTERVAL", saving.INTERVAL)
    monkeypatch.setattr(phase, "KEPT_BYTES", phase.KEPT_BYTES)


def test_every_promise_holds_in_schedules_of_faults():
    counts, wrong = run_some(1, SCHEDULES)
    assert not wrong
    assert counts["schedules"] == SCHEDULES
    # A peer that goes on from an earlier round masks the same numbers again.
    assert counts["streams"] > SCHEDULES
    assert counts["streams used again"] > 10
    assert not [kind for kind in (*KINDS, "lose_disk", *AT_ANY_MOMENT) if not counts[kind]]
    steps = [f"{stage.value} > {then.value}" for stage, thens in TRANSITIONS.items() for then in thens]
    assert not [step for step in steps if not counts[step]]


def test_a_seed_says_everything():
    first, again = world_of(7, keeps_log=True), world_of(7, keeps_log=True)
    for world in (first, again):
        world.run()
    assert first.log == again.log
    assert (first.now, first.counts) == (again.now, again.counts)


@pytest.mark.parametrize("seed", [7, BEGUN_TWICE, USED_MEANWHILE, OTHER_KEY])
def test_a_schedule_can_be_replayed(seed, capsys):
    replay(seed)
    assert capsys.readouterr().out.endswith("all is well\n")


def test_the_log_is_shown_of_a_schedule_that_ends_with_any_error(capsys, monkeypatch):
    monkeypatch.setattr(Leaving, "is_over", lambda *_: 1 / 0)
    replay(7)
    assert "FAULT" in (shown := capsys.readouterr().out)
    assert shown.endswith("ZeroDivisionError: division by zero\n\n")


def forget_fallbacks(monkeypatch):
    publish = Exchange.publish

    def publish_and_forget(self, block):
        self.fallbacks = dict.fromkeys(self.neighbors, block.k)
        publish(self, block)

    monkeypatch.setattr(Exchange, "publish", publish_and_forget)


def hear_blocks_of_any_birth(monkeypatch):
    monkeypatch.setattr(Handshake, "is_of_birth", lambda *_: True)


def name_births_by_the_number_of_the_epoch_alone(monkeypatch):
    monkeypatch.setattr(Handshake, "birth_in", lambda _, epoch: f"of epoch {epoch}")


def go_on_without_a_slow_disk(monkeypatch):
    monkeypatch.setattr(Saving, "must_wait", property(lambda *_: False))


def let_duplicates_live(monkeypatch):
    monkeypatch.setattr(OwnAddress, "is_taken", property(lambda *_: False))


def wait_for_no_last_word(monkeypatch):
    monkeypatch.setattr(leaving, "LAST_WORD", 0.0)


def give_up_those_done_at_once(monkeypatch):
    monkeypatch.setattr(leaving, "GONE", 0.0)


def announce_before_writing(monkeypatch):
    stay = Ending._stay  # noqa: SLF001 - to be broken

    def finish_at_once(self):
        self._talk.enter(Stage.SAVING)
        if self._talk.saving is not None and not self._talk.saving.is_under_way:
            self._talk.save()
        self.after_last_save()

    def announce_first(self):
        stay(self)
        self._talk.outputs.sort(key=lambda output: isinstance(output, ResultReady))

    monkeypatch.setattr(Ending, "finish", finish_at_once)
    monkeypatch.setattr(Ending, "_stay", announce_first)


def overlook_lost_state(monkeypatch):
    monkeypatch.setattr(Handshake, "is_lost", lambda *_, **__: False)


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


def mask_all_sums_of_a_phase_by_one_stream(monkeypatch):
    stream = Masks.stream
    monkeypatch.setattr(Masks, "stream", lambda self, j, _, __, size: stream(self, j, 0, UNTOLD, size))


def mask_the_same_sum_of_all_phases_by_one_stream(monkeypatch):
    def stream_of_any_phase(self, neighbor, number, _, size):
        return stream(replace(self, phase=""), neighbor, number, UNTOLD, size)

    stream = Masks.stream
    monkeypatch.setattr(Masks, "stream", stream_of_any_phase)


def draw_the_same_secret_in_each_epoch(monkeypatch):
    def same_secret(plan):
        agents = [each._agent for each in plan.phases if isinstance(each, Masking)]  # noqa: SLF001 - to be broken
        return Found(own_secret=bytes([agents[0] + 1] * SECRET_BYTES) if agents else None)

    monkeypatch.setattr(runner, "first_findings", same_secret)


def draw_another_secret_in_each_life(monkeypatch):
    def resume_with_another(self, k, arrays, stop, index, began, found):
        own = None if found.own_secret is None else bytes(np.random.default_rng().bytes(SECRET_BYTES))
        resume(self, k, arrays, stop, index, began, replace(found, own_secret=own))

    resume = PhaseRunner.resume
    monkeypatch.setattr(PhaseRunner, "resume", resume_with_another)


def share_one_secret_on_all_edges(monkeypatch):
    monkeypatch.setattr(masking, "secret_of_edge", lambda run, keys, product: run)  # noqa: ARG005


def call_it_converged(monkeypatch):
    monkeypatch.setattr(Agent, "convergence", property(lambda _: Convergence("converged", has_converged=True)))


MUTATIONS = [
    forget_fallbacks,
    hear_blocks_of_any_birth,
    name_births_by_the_number_of_the_epoch_alone,
    go_on_without_a_slow_disk,
    let_duplicates_live,
    wait_for_no_last_word,
    give_up_those_done_at_once,
    announce_before_writing,
    overlook_lost_state,
    leave_at_once,
    never_ask_again,
    name_the_latest_checkpoint,
    shut_out_for_one_mistake,
    mask_all_sums_of_a_phase_by_one_stream,
    mask_the_same_sum_of_all_phases_by_one_stream,
    draw_the_same_secret_in_each_epoch,
    draw_another_secret_in_each_life,
    share_one_secret_on_all_edges,
    call_it_converged,
]


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_a_broken_rule_is_found(mutate, monkeypatch):
    mutate(monkeypatch)
    begin = BEGUN_TWICE if mutate is name_births_by_the_number_of_the_epoch_alone else 1
    for first in range(begin, begin + MOST, 10):
        _, wrong = run_some(first, 10)
        # Any other error may be one of the mutation itself.
        if any(what.startswith("WrongError") for _, what in wrong):
            return
    pytest.fail(f"{MOST} schedules did not notice")


# What peers that prepare samples claim, whatever the method.
CLAIMED = ("samples", "mean", "scale", "overall", "feasibility", "common", "objective", "explained_variance")
JUDGED = ("explained_variance_ratio", "sparse_explained_variance", "residual", "nonzeros", "nonzero_rows")


@pytest.mark.parametrize("number", [number for number, network in enumerate(NETWORKS) if network[-1] is PREPARED])
def test_all_that_peers_of_a_method_claim_after_masked_sums_is_computed_again(number):
    instance, data, _ = instance_of(number)
    network = AgentNetwork(instance)
    while not network.is_done:
        network.advance()
    assert network.agents[0].runner.plan.is_masked
    said = [said_of(instance.topology, agent) for agent in network.agents]
    common = np.mean([each.components_.T for each in said], axis=0)
    claims = [claim for i, each in enumerate(said) for claim in PeerClaims(i, each, common).claims(data)]
    has_converged = said[0].facts["has_converged"]
    names = {*CLAIMED, *JUDGED, *(["has_converged"] if has_converged else [])}
    assert {claim.name.partition("[")[0] for claim in claims} == names
    assert not [claim for claim in claims if not claim.is_true]
