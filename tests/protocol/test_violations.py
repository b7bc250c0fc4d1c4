"""Every violation of the table of what an honest peer can say, told to a session in every stage that hears it.

For each rule of `honest.py` values are drawn for its field: those that break it, and no other rule, are refused by
name and change nothing; those that break none are taken. So a rule that is not asked for in some stage shows, and
so does one that nothing breaks. Rules that need more than one message to tell are below, by hand.
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from protocol.talks import CALM, DIAMETER, RESTLESS, Talk, changed

from thanos_peer import agent
from thanos_peer.errors import RunOverError
from thanos_peer.phases import phase
from thanos_peer.protocol.honest import BLOCK_RULES, BYE_RULES, EPOCHS_AHEAD, HELLO_RULES, BlockView
from thanos_peer.protocol.messages import DONE, DONE_BUT, LARGEST_ROUND, NEVER, SPENT, Bye, Hello
from thanos_peer.protocol.neighbor import LinkEvent
from thanos_peer.protocol.stages import Stage

DOCUMENT = Path(__file__).parents[2] / "docs" / "protocol.md"
TABLES = {"Block": BLOCK_RULES, "Hello": HELLO_RULES, "Bye": BYE_RULES}
LIAR = 2
REASONS = [DONE, DONE_BUT, SPENT, RunOverError.in_short, "SIGTERM"]

# ---------------------------------------------------------------------- stages


def running(rounds, **algorithm):
    return lambda: Talk(rounds, **algorithm)


def lost():
    talk = Talk(0, **RESTLESS)
    talk.tell(0, talk.hello(0, k=9, epoch=5, oldest=1))
    return talk


def done(*, saves):
    talk = Talk(0, saves=saves, **CALM)
    while not talk.agent.is_done:
        talk.go_on()
    return talk


def failing():
    talk = Talk(0, **RESTLESS)
    talk.session.link_changed(talk.agent.id, LinkEvent.UP, talk.now)
    talk.session.tick(talk.now)  # from now on it is unclear which process is there
    talk.session.fail(ValueError("first"), talk.now)
    return talk


def ended():
    talk = Talk(5, **RESTLESS)
    talk.session.fail(ValueError("first"), talk.now)
    return talk


# A session in each stage; of the one with most rules, in several rounds and with other ways to end.
MAKE = {
    "at first": (Stage.RUNNING, running(0, **RESTLESS)),
    "in round 1": (Stage.RUNNING, running(1, **RESTLESS)),
    "restless": (Stage.RUNNING, running(9, **RESTLESS)),
    "calm": (Stage.RUNNING, running(3, **CALM)),
    "without tolerance": (Stage.RUNNING, running(5, tolerance=0.0)),
    "lost": (Stage.LOST, lost),
    "saving": (Stage.SAVING, lambda: done(saves=True)),
    "proving": (Stage.PROVING, lambda: Talk(0, is_done=True, **CALM)),
    "staying": (Stage.STAYING, lambda: done(saves=False)),
    "failing": (Stage.FAILING, failing),
}
# Where nothing breaks a rule: a peer that has just begun may be far behind, and only one that has gone on knows
# what its neighbor has left.
AT_FIRST = ("at first", "lost", "failing")
UNBROKEN = {
    *((name, "Hello", "round") for name in (*AT_FIRST, "proving")),
    *((name, "Bye", "round") for name in AT_FIRST),
    *((name, "Bye", "reason") for name in (*AT_FIRST, "saving", "proving", "staying")),
}
# A peer without a state asks blocks for an X to begin with, and no more.
CASES = [
    (name, kind, rule)
    for name in MAKE
    for kind, rules in TABLES.items()
    for rule in rules
    if (name, kind) != ("lost", "Block")
]
# Messages that break no rule are told one by one to a session each, so not all are.
MOST = 12


def test_there_is_a_session_in_every_stage_that_hears():
    assert {stage for stage, _ in MAKE.values()} == {*Stage} - {Stage.ENDED}
    for stage, make in MAKE.values():
        assert make().session.talk.stage is stage


# ---------------------------------------------------------------------- what is said


def numbers(talk):
    """Near what the peer knows, at the ends, and anywhere."""
    rng, k = np.random.default_rng(talk.agent.k), talk.agent.k
    ends = [1000, LARGEST_ROUND - 1, LARGEST_ROUND]
    far = [times * EPOCHS_AHEAD + off for times in (1, 2) for off in (-1, 0, 1, 5)]
    anywhere = [int(rng.integers(2 ** rng.integers(1, 54))) for _ in range(20)]
    return [*range(k + 2 * DIAMETER + 4), *ends, *far, *anywhere]


def hellos(talk, field, value):
    life = talk.terms.life
    if field == "epoch":
        return [talk.hello(LIAR, epoch=value, k=k, oldest=0, answered=0) for k in (0, talk.agent.k)]
    if field == "round":
        return [talk.hello(LIAR, k=value, oldest=0, answered=0)]
    return [talk.hello(LIAR, oldest=value, answered=answered) for answered in (0, life)]


def byes(talk, field, value):
    k, ends = talk.agent.k, (DONE, DONE_BUT)
    if field == "round":
        return [Bye(value, reason) for reason in ends]
    if field == "radius":
        return [Bye(k + ahead, reason, value) for reason in ends for ahead in (0, 1)]
    return [Bye(value, reason) for reason in REASONS]


def blocks(talk, field, value):
    block = talk.others[LIAR].block
    if field == "streak":
        return [changed(block, streak=value)]
    return [changed(block, after=value)] if value > block.k else [changed(block, after=None)]


SAY = {"Block": blocks, "Hello": hellos, "Bye": byes}


def view_of(talk, kind):
    """What the peer compares a message with."""
    runner = talk.agent.runner
    if kind != "Block":
        return talk.session.talk.view(LIAR)
    return BlockView(
        k=talk.agent.k,
        r=runner.round,
        ends_by_agreement=not runner.phase.has_known_rounds,
        diameter=DIAMETER,
    )


def said(talk, kind, name):
    """Messages that break this rule alone, and such that break none."""
    view, rules = view_of(talk, kind), TABLES[kind]
    lies, true = [], []
    for value in numbers(talk):
        for message in SAY[kind](talk, rules[name].field, value):
            broken = [each for each, rule in rules.items() if not rule.is_kept(view, message)]
            if broken in ([], [name]):
                (lies if broken else true).append(message)
    return lies, true


def state_of(talk):
    """All that a message could change, but for what is counted and when it was heard."""
    known, peer = talk.session.talk, talk.agent
    memory = peer.memory()
    arrays = {name: each.tobytes() for name, each in memory.arrays.items()}
    boxes = [
        {j: block.numbers for j, block in box.items()}
        for box in (peer.exchange._here, peer.exchange._ahead)  # noqa: SLF001 - nothing else shows it
    ]
    neighbors = [
        (
            replace(each.epoch, words_ahead=None),
            each.is_greeted,
            [*each.lives],
            each.has_answered,
            each.is_nameless,
            each.question,
            each.left,
            each.is_spent,
        )
        for each in known.neighbors.values()
    ]
    loss = None if known.loss is None else (known.loss.epoch, {*known.loss.known_to})
    done = known.leaving.radius, known.leaving.reach, talk.session.are_all_done, known.has_result
    return known.stage, replace(memory, arrays={}), arrays, boxes, neighbors, loss, done, talk.error


def refusal_of(talk):
    return talk.session.talk.neighbors[LIAR].conduct.latest


@pytest.mark.parametrize(("name", "kind", "rule"), CASES)
def test_what_breaks_a_rule_is_refused_by_name_and_changes_nothing(name, kind, rule):
    talk = MAKE[name][1]()
    lies, _ = said(talk, kind, rule)
    assert bool(lies) is ((name, kind, rule) not in UNBROKEN)
    for lie in lies:
        before = state_of(talk)
        assert talk.tell(LIAR, lie), lie
        assert refusal_of(talk).startswith(f"neighbor {LIAR}, round {lie.k}: its {rule} is not "), lie
        assert state_of(talk) == before, lie


@pytest.mark.parametrize(("name", "kind", "rule"), CASES)
def test_what_breaks_no_rule_is_taken(name, kind, rule):
    talk = MAKE[name][1]()
    _, true = said(talk, kind, rule)
    for message in true[:: 1 + len(true) // MOST]:
        talk = MAKE[name][1]()
        is_refused = talk.tell(LIAR, message)
        assert not (is_refused and re.search(": its .* is not ", refusal_of(talk))), message


@pytest.mark.parametrize("name", MAKE)
def test_what_an_honest_neighbor_says_at_that_moment_is_taken(name):
    for kind in TABLES:
        talk = MAKE[name][1]()
        message = {
            "Block": talk.others[LIAR].block,
            "Hello": talk.hello(LIAR, is_asking=True),
            "Bye": Bye(talk.agent.k, DONE if talk.others[LIAR].is_done else "SIGTERM"),
        }[kind]
        assert not talk.tell(LIAR, message), (message, refusal_of(talk))


def test_a_session_that_has_ended_hears_nothing():
    talk = ended()
    before = state_of(talk)
    for message in (talk.others[LIAR].block, talk.hello(LIAR, k=LARGEST_ROUND), Bye(3, SPENT, 99)):
        assert not talk.tell(LIAR, message)
    assert state_of(talk) == before


# ---------------------------------------------------------------------- rules that need more than one message


def of_kind_and_shape(talk):
    block = talk.others[LIAR].block
    forms = [("word", (1, 2), 16), ("none", (0, 0), 0), ("int2112", (1, 1), 264), ("key", (1, 32), 32)]
    return [block._replace(kind=kind, shape=shape, numbers=bytes(size)) for kind, shape, size in forms]


def of_fallback(talk):
    block = talk.others[LIAR].block
    return [block._replace(fallback=each) for each in range(block.k - talk.agent.exchange.most_said)]


def of_terms(talk):
    terms, names = talk.terms, "ab" * 32
    others = [{"n": terms.n + 1}, {"p": terms.p + 1}, {"dtype": "float32"}, {"digest": names}]
    return [talk.hello(LIAR, **fields) for fields in others]


def of_loss(talk):
    k, life = talk.agent.k, talk.terms.life
    return [talk.hello(LIAR, k=k, oldest=NEVER, answered=life), *of_old_rounds(talk)]


def of_old_rounds(talk):
    return [talk.hello(LIAR, k=talk.agent.k + 1, oldest=talk.agent.k + 1, answered=talk.terms.life)]


def of_round(talk):
    return [talk.others[LIAR].block._replace(k=each) for each in numbers(talk) if each > talk.agent.k + 1]


# Each row of the document that no rule of `honest.py` has: what breaks it, and why that is refused.
REFUSED = {
    ("Block", "kind, shape"): (of_kind_and_shape, "expects pair of (6, 2)"),
    ("Block", "fallback"): (of_fallback, "no peer gets so far ahead of its disk"),
    ("Block", "round"): (of_round, "more than one round ahead of"),
    ("Hello", "version, digest, n, p, dtype, features"): (of_terms, "a hello that differs in"),
    ("Hello", "answered, oldest"): (of_loss, "says that the state of this peer is lost, which has long gone on"),
}


@pytest.mark.parametrize("row", REFUSED, ids=": ".join)
def test_what_breaks_a_rule_that_takes_more_than_a_message_to_tell_is_refused(row, monkeypatch):
    monkeypatch.setattr(phase, "KEPT_BYTES", 0)  # so only four blocks are kept
    monkeypatch.setattr(agent, "SPARE", 0)
    talk = Talk(9, **RESTLESS)
    lies, why = REFUSED[row][0](talk), REFUSED[row][1]
    assert lies
    for lie in lies:
        known = talk.session.talk.neighbors[LIAR].epoch
        known.mismatch, before = None, state_of(talk)
        assert talk.tell(LIAR, lie), lie
        assert why in refusal_of(talk)
        # Since when a neighbor is in another phase is noted, and acted on if it stays there.
        known.mismatch = None
        assert state_of(talk) == before, lie
    assert not talk.tell(LIAR, talk.others[LIAR].block)


def of_another_birth(talk):
    assert not talk.tell(LIAR, talk.others[LIAR].block._replace(birth="of another life"))
    assert not talk.sent


def with_another_birth(talk):
    assert not talk.tell(LIAR, talk.hello(LIAR, birth="of another life", life=6, answered=0, is_asking=True))
    (answer,) = [each for each in talk.sent if isinstance(each, Hello)]
    assert (answer.answered, answer.oldest) == (6, NEVER)


def with_anything_in_words(talk):
    hello = {"software": "?", "trouble": "peer 0 is behind", "is_asking": True}
    for life in (5, LARGEST_ROUND):
        assert not talk.tell(LIAR, talk.hello(LIAR, life=life, **hello))


def bye_of_any_kind(talk):
    for k in (0, talk.agent.k, LARGEST_ROUND):
        for reason in ("SIGTERM", "x" * 64):
            assert not talk.tell(LIAR, Bye(k, reason))
    assert not talk.tell(LIAR, talk.hello(LIAR))


def of_any_numbers(talk):
    block = talk.others[LIAR].block
    assert not talk.tell(LIAR, block._replace(eta=1e300, numbers=bytes(len(block.numbers))))


# Rows of which nothing is refused: what breaks them is ignored or answered, or nothing does.
NOT_REFUSED = {
    ("Block", "birth"): of_another_birth,
    ("Hello", "birth"): with_another_birth,
    ("Hello", "is_asking, life, software, trouble"): with_anything_in_words,
    ("Bye, early", "round, reason"): bye_of_any_kind,
    ("Block", "eta, numbers"): of_any_numbers,
}


@pytest.mark.parametrize("row", NOT_REFUSED, ids=": ".join)
def test_what_is_not_refused_takes_the_run_nowhere_else(row):
    talk = Talk(9, **RESTLESS)
    before = state_of(talk)[0], talk.agent.k, state_of(talk)[2]
    NOT_REFUSED[row](talk)
    assert (state_of(talk)[0], talk.agent.k, state_of(talk)[2]) == before
    if talk.agent.exchange.is_missing(LIAR):
        talk.tell(LIAR, talk.others[LIAR].block)
    talk.tell(0, talk.others[0].block)
    assert (talk.agent.k, talk.error) == (10, None)


# ---------------------------------------------------------------------- the document


def rows_of_the_document():
    text = DOCUMENT.read_text(encoding="utf-8")
    table = text.split("## What an honest peer can say")[1].split("\n\n")[2].splitlines()
    return [tuple(cell.strip() for cell in row.split("|")[1:3]) for row in table[2:]]


def test_document_and_rules_have_the_same_rows():
    ruled = [(kind, rule.field) for kind, rules in TABLES.items() for rule in rules.values()]
    rows = [(kind.removesuffix(", done"), field) for kind, field in rows_of_the_document()]
    assert sorted(rows) == sorted([*ruled, *REFUSED, *NOT_REFUSED])
