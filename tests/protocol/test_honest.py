"""What no honest neighbor says, made from the tables of rules, and told to a session that is under way."""

from dataclasses import replace

import pytest
from protocol.talks import CALM, DIAMETER, RESTLESS, Talk, changed

from thanos_peer import agent
from thanos_peer.errors import EndMismatchError, RemoteProtocolError
from thanos_peer.phases import phase
from thanos_peer.protocol.conversation import EPOCHS_APART
from thanos_peer.protocol.epochs import LOSS_FORGOTTEN
from thanos_peer.protocol.honest import BLOCK_RULES, BYE_RULES, EPOCHS_AHEAD, HELLO_RULES, TalkView, check
from thanos_peer.protocol.messages import DONE, DONE_BUT, LARGEST_ROUND, NEVER, SPENT, Bye, Hello
from thanos_peer.protocol.outputs import Log
from thanos_peer.protocol.stages import Stage
from thanos_peer.protocol.wire import Codec

# The round in which a lie is told.
AT = 5
# Each row: the rule that it breaks, the run, and the field with its value.
BLOCKS = [
    ("streak", RESTLESS, {"streak": DIAMETER + 2}),
    ("streak", RESTLESS, {"streak": LARGEST_ROUND}),
    ("streak", {"tolerance": 0.0}, {"streak": 1}),
    ("announced last round", {"tolerance": 0.0}, {"after": AT + 2}),
    ("announced last round", RESTLESS, {"after": AT + DIAMETER + 2}),
    ("announced last round", RESTLESS, {"after": LARGEST_ROUND}),
]
HELLOS = [
    ("epoch", {"epoch": EPOCHS_AHEAD + 1}),
    ("epoch", {"epoch": LARGEST_ROUND - 1}),
    ("round", {"k": 7}),
    ("round", {"k": LARGEST_ROUND}),
    ("oldest", {"oldest": 7}),
]
BYES = [
    ("round", Bye(4, DONE)),
    ("round", Bye(7, DONE_BUT)),
    ("radius", Bye(6, DONE, 1)),
    ("radius", Bye(6, DONE_BUT, DIAMETER + 2)),
    ("reason", Bye(5, SPENT)),
]


def test_every_rule_has_a_violation():
    assert {name for name, *_ in BLOCKS} == {*BLOCK_RULES}
    assert {name for name, *_ in HELLOS} == {*HELLO_RULES}
    assert {name for name, _ in BYES} == {*BYE_RULES}


@pytest.mark.parametrize(("rule", "algorithm", "lie"), BLOCKS)
def test_a_block_that_breaks_a_rule_is_refused_and_the_right_one_taken_afterwards(rule, algorithm, lie):
    talk = Talk(AT, **algorithm)
    block = talk.others[2].block
    assert talk.tell(2, changed(block, **lie))
    assert f"neighbor 2, round {AT}: its {rule} is not " in talk.log
    assert talk.agent.exchange.is_missing(2)
    talk.go_on()
    assert (talk.agent.k, talk.error) == (6, None)


def test_a_fallback_from_longer_ago_than_any_peer_needs_is_refused(monkeypatch):
    monkeypatch.setattr(phase, "KEPT_BYTES", 0)  # so only four blocks are kept
    monkeypatch.setattr(agent, "SPARE", 0)
    talk = Talk(AT, **RESTLESS)
    assert talk.tell(2, talk.others[2].block._replace(fallback=0))
    assert "may have to start again from round 0, but no peer gets so far ahead of its disk" in talk.log
    talk.go_on()
    assert (talk.agent.k, talk.error) == (AT + 1, None)


@pytest.mark.parametrize(("rule", "fields"), HELLOS)
def test_a_hello_that_breaks_a_rule_is_refused(rule, fields):
    talk = Talk(AT, **RESTLESS)
    assert talk.tell(2, talk.hello(2, **fields))
    assert f": its {rule} is not " in talk.log
    assert not talk.tell(2, talk.hello(2))
    talk.go_on()
    assert (talk.agent.k, talk.agent.epoch, talk.error) == (6, 0, None)


@pytest.mark.parametrize(("rule", "bye"), BYES)
def test_a_bye_that_breaks_a_rule_is_refused(rule, bye):
    talk = Talk(AT, **RESTLESS)
    assert talk.tell(2, bye)
    assert f": its {rule} is not " in talk.log
    talk.go_on()
    assert (talk.agent.k, talk.agent.done, talk.error) == (6, set(), None)


@pytest.mark.parametrize(
    "algorithm", [CALM, RESTLESS, {"tolerance": 0.0}], ids=["calm", "restless", "no tolerance"]
)
def test_nothing_that_honest_agents_say_is_refused(algorithm):
    talk = Talk(0, **algorithm)
    while not talk.agent.is_done:
        assert talk.go_on() == [0, 2]
    for j in talk.agent.neighbors:
        assert talk.others[j].is_done
        assert not talk.tell(j, Bye(talk.agent.k, DONE))


@pytest.mark.parametrize("ahead", range(1, DIAMETER + 2))
def test_an_end_that_does_not_follow_from_a_round_in_which_this_peer_was_calm_is_not_believed(ahead):
    talk = Talk(20, **RESTLESS)
    block = talk.others[2].block
    assert talk.go_on({2: changed(block, after=block.k + ahead)}) == [0, 2]
    assert talk.agent.runner.stop.after is None
    for _ in range(10):
        talk.go_on()
    assert (talk.agent.k, talk.agent.is_done) == (31, False)


@pytest.mark.parametrize("is_told_first", [False, True], ids=["in that round", "a round before"])
def test_a_neighbor_that_ends_in_another_round_is_an_error_in_words_and_not_a_wait(is_told_first):
    talk = Talk(AT, **RESTLESS)
    bye = Bye(talk.agent.k + is_told_first, DONE)
    assert not talk.tell(2, bye)
    if is_told_first:
        assert talk.error is None
        talk.go_on()
    assert isinstance(talk.error, EndMismatchError)
    assert f"neighbor 2 is done with round {bye.k}" in str(talk.error)
    assert "--restart-tracking" in str(talk.error)


def test_a_neighbor_that_begins_anew_is_told_that_its_state_is_lost():
    talk = Talk(0, **RESTLESS)
    for j in talk.agent.neighbors:
        talk.others[j].fallback = 0  # so all blocks are still there
    for _ in range(3):
        talk.go_on()
    talk.tell(2, talk.hello(2, k=0, life=6, birth="second", answered=0, is_asking=True))
    (answer,) = [message for message in talk.sent if isinstance(message, Hello)]
    assert (answer.answered, answer.oldest) == (6, NEVER)
    assert [message.k for message in talk.sent if not isinstance(message, Hello)] == [3]
    talk.go_on()
    assert (talk.agent.k, talk.error) == (4, None)


def test_blocks_of_a_birth_that_a_neighbor_has_not_answered_with_are_not_heard():
    talk = Talk(0, **RESTLESS)
    assert not talk.tell(2, talk.others[2].block._replace(birth="of another life"))
    assert talk.agent.exchange.is_missing(2)
    assert talk.go_on() == [0, 2]
    assert talk.agent.k == 1


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_peer_that_was_away_follows_its_only_neighbor_that_a_liar_has_told_of_epoch_after_epoch(is_lost):
    talk, words = Talk(0, me=0, **RESTLESS), 5
    said = talk.hello(1, k=0, epoch=words * EPOCHS_AHEAD, oldest=int(is_lost))
    refused = []
    for _ in range(words):
        refused += [talk.tell(1, said) for _ in range(3)]
        talk.now += EPOCHS_APART
    assert refused == [True] * 3 * (words - 1) + [False] * 3
    assert talk.session.talk.listening_epoch == said.epoch
    assert (talk.session.talk.stage is Stage.LOST) is is_lost


@pytest.mark.parametrize("oldest", [0, 1], ids=["begun", "lost"])
def test_a_liar_gets_a_peer_no_further_in_epochs_than_one_step_in_two_seconds(oldest):
    talk = Talk(0, **RESTLESS)
    began, latest = talk.now, 0
    while talk.now < began + 10 * EPOCHS_APART:
        for j, epoch in ((2, LARGEST_ROUND - 1), (2, latest + EPOCHS_AHEAD)):
            if not talk.tell(j, talk.hello(j, k=0, epoch=epoch, oldest=oldest)):
                latest = max(latest, epoch)
        talk.now += 0.05
    assert talk.session.talk.listening_epoch <= 11 * EPOCHS_AHEAD
    # An honest peer takes the liar's place, and its neighbors are all told of the next epoch.
    after = talk.session.talk.listening_epoch + 1
    for j in (2, 0):
        talk.now += EPOCHS_APART
        assert not talk.tell(j, talk.hello(j, k=0, epoch=after))
    assert talk.agent.epoch == after


def in_epoch_1(rounds=AT):
    """All have begun it, and the session has not heard yet by which births."""
    talk = Talk(rounds, **RESTLESS)
    for other in talk.others:
        if other is not talk.agent:
            other.restart_tracking(1, birth=f"in epoch 1 of {other.id}")
    talk.tell(2, talk.hello(2))
    assert talk.agent.epoch == 1
    return talk


def test_two_births_of_one_later_epoch_are_told_apart():
    talk = in_epoch_1()
    assert not talk.tell(2, talk.others[2].block)
    assert talk.agent.exchange.is_missing(2)
    for j in talk.agent.neighbors:
        talk.tell(j, talk.hello(j))
    talk.go_on()
    assert talk.agent.k == 1
    talk.tell(2, talk.hello(2, k=0, life=6, birth="second", answered=0, is_asking=True))
    (answer,) = [message for message in talk.sent if isinstance(message, Hello)]
    assert (answer.answered, answer.epoch, answer.oldest) == (6, 1, NEVER)


def test_a_birth_names_one_beginning_by_one_life():
    first, second = in_epoch_1(), Talk(AT, **RESTLESS)
    second.session.talk.handshake.terms = replace(second.terms, life=second.terms.life + 1)
    names = [talk.session.talk.handshake.birth_in(epoch) for talk in (first, second) for epoch in (2, 3)]
    assert len({first.agent.birth, "of 1", *names}) == 6


def test_a_life_that_has_begun_an_epoch_again_believes_that_it_has_but_no_late_answer_to_the_one_before():
    talk = in_epoch_1(rounds=0)
    for late in (0, 1):
        assert not talk.tell(2, talk.hello(2, oldest=late))
        assert talk.session.talk.stage is Stage.RUNNING
    assert not talk.tell(2, talk.hello(2, oldest=NEVER))
    assert talk.session.talk.stage is Stage.LOST


def test_a_life_that_has_taken_steps_cannot_have_begun_an_epoch_a_second_time():
    talk = in_epoch_1()
    assert talk.tell(2, talk.hello(2, oldest=NEVER))
    assert "which has long gone on" in talk.log
    assert talk.session.talk.stage is Stage.RUNNING


def lost_in(epoch, talk, j=2):
    return talk.hello(j, k=9, epoch=epoch, oldest=1)


def test_a_word_that_the_state_is_lost_is_forgotten_if_nothing_follows():
    talk = Talk(0, **RESTLESS)
    assert not talk.tell(2, lost_in(5, talk))
    assert talk.session.talk.stage is Stage.LOST
    talk.session.tick(1.0 + LOSS_FORGOTTEN - 0.5)
    assert talk.session.talk.stage is Stage.LOST
    outputs = talk.session.tick(1.0 + LOSS_FORGOTTEN)
    assert talk.session.talk.stage is Stage.RUNNING
    (text,) = [each.text for each in outputs if isinstance(each, Log) and "goes on with" in each.text]
    assert text.startswith("neighbor 2 has said that the state of this peer is lost, but no more")
    talk.go_on()
    assert (talk.agent.k, talk.error) == (1, None)


def test_a_neighbor_that_could_help_once_cannot_call_the_state_lost_later():
    talk = Talk(0, **RESTLESS)
    assert talk.tell(2, talk.hello(2, k=9, oldest=1))
    assert "which has long gone on" in talk.log
    talk.go_on()
    assert (talk.agent.k, talk.error) == (1, None)


def test_names_of_features_are_learned_in_the_first_rounds_and_forgotten_with_their_life():
    early, late = Talk(0, **RESTLESS), Talk(DIAMETER + 1, **RESTLESS)
    for talk in (early, late):
        talk.tell(2, talk.hello(2, features="ab" * 32))
    assert early.session.talk.handshake.hello().features == "ab" * 32
    assert not late.session.talk.handshake.hello().features
    early.tell(2, early.hello(2, life=6))
    assert not early.session.talk.handshake.hello().features


def test_a_later_epoch_is_ignored_once_all_are_known_to_be_done():
    talk = Talk(0, **CALM)
    while not talk.agent.is_done:
        talk.go_on()
    for radius in range(DIAMETER + 1):
        for j in talk.agent.neighbors:
            assert not talk.tell(j, Bye(talk.agent.k, DONE, radius))
    assert talk.session.are_all_done
    talk.tell(2, talk.hello(2, k=0, epoch=1))
    assert "all peers are done: ignored" in talk.log
    assert talk.sent == [Bye(talk.agent.k, SPENT)]
    assert (talk.agent.epoch, talk.error) == (0, None)


VIEW = TalkView(
    k=5,
    epoch=0,
    own_epoch=0,
    words_ahead=0,
    diameter=DIAMETER,
    is_done=False,
    may_be_behind=False,
    has_gone_on=True,
    has_heard=True,
    is_in_last_phase=True,
    radius=None,
    epochs=(),
)


@pytest.mark.parametrize(
    ("view", "bye", "is_honest"),
    [
        ({}, Bye(5, DONE), True),
        ({"is_in_last_phase": False}, Bye(5, DONE), False),
        ({"is_in_last_phase": False}, Bye(6, DONE), False),
        ({"is_in_last_phase": False, "may_be_behind": True}, Bye(7, DONE), True),
        ({"is_in_last_phase": False}, Bye(5, "SIGTERM"), True),
        ({}, Bye(9, SPENT), False),
        ({"has_heard": False}, Bye(9, SPENT), True),
        ({"has_gone_on": False}, Bye(9, SPENT), True),
        ({"is_done": True}, Bye(9, SPENT), True),
    ],
)
def test_a_bye_is_compared_with_where_this_peer_is(view, bye, is_honest):
    if is_honest:
        check(BYE_RULES, replace(VIEW, **view), 2, bye)
        return
    with pytest.raises(RemoteProtocolError):
        check(BYE_RULES, replace(VIEW, **view), 2, bye)


@pytest.mark.parametrize(("reason", "is_heard"), [(SPENT, True), (DONE, False), (DONE_BUT, False)])
def test_a_peer_without_a_state_is_heard_in_every_epoch(reason, is_heard):
    first, later = (Codec("ab" * 32, n=4, p=2, dtype="float64", epoch=epoch) for epoch in (0, 7))
    (said,) = later.decode_all([first.encode(2, Bye(9, reason))])
    assert (said == (2, Bye(9, reason))) is is_heard
