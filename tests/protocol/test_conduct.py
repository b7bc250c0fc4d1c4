"""The budget of refused messages: how much is let pass, how long the pauses are, and when all is forgiven."""

import itertools

from thanos_peer.protocol.conduct import BUDGET, FIRST_PAUSE, FORGIVEN, LONGEST_PAUSE, REFILL, Conduct

WRONG = "neighbor 1, round 9: more than one round ahead of 3"


def flood(conduct, now, *, is_proven=True, most=10_000):
    """Refuse one message after the other at one time; returns how many, and the pause that follows, if any."""
    for number in range(1, most + 1):
        if pause := conduct.refuse(WRONG, now, is_proven=is_proven):
            return number, pause
    return most, 0.0


def test_what_an_honest_neighbor_may_have_refused_has_no_consequence():
    conduct = Conduct()
    for number in range(24 * 3600):
        assert not conduct.refuse(WRONG, 1000.0 + number / REFILL, is_proven=True)
    assert not conduct.is_bad(1e6)
    assert conduct.refused == 24 * 3600


def test_beyond_the_budget_pauses_double_up_to_the_longest():
    conduct, now, pauses = Conduct(), 1000.0, []
    for _ in range(9):
        number, pause = flood(conduct, now)
        assert number == BUDGET + 1
        assert conduct.is_bad(now)
        pauses.append(pause)
        now += pause
    assert (pauses[0], pauses[-1]) == (FIRST_PAUSE, LONGEST_PAUSE)
    assert all(later == min(2 * earlier, LONGEST_PAUSE) for earlier, later in itertools.pairwise(pauses))


def test_what_was_on_its_way_when_the_connection_was_closed_does_not_close_it_for_longer():
    conduct = Conduct()
    flood(conduct, 1000.0)
    assert flood(conduct, 1000.0 + FIRST_PAUSE / 2) == (10_000, 0.0)
    assert flood(conduct, 1000.0 + FIRST_PAUSE) == (BUDGET + 1, 2 * FIRST_PAUSE)


def test_after_some_minutes_within_its_budget_the_next_pause_is_short_again():
    conduct = Conduct()
    flood(conduct, 1000.0)
    flood(conduct, 1010.0)
    later = 1010.0 + 2 * FIRST_PAUSE + FORGIVEN
    assert conduct.is_bad(later - 1)
    assert not conduct.is_bad(later)
    assert flood(conduct, later) == (BUDGET + 1, FIRST_PAUSE)


def test_what_no_key_proves_closes_no_connection_and_is_named():
    conduct = Conduct()
    assert flood(conduct, 1000.0, is_proven=False) == (10_000, 0.0)
    assert conduct.is_bad(1000.0)
    assert not conduct.seconds_closed(1000.0)
    assert conduct.describe(1000.0) == f"refused 10000 message(s), the latest from {WRONG}"


def test_a_description_says_how_many_what_and_for_how_long():
    conduct = Conduct()
    assert conduct.describe(1000.0) == ""
    flood(conduct, 1000.0)
    flood(conduct, 1001.0)
    told = f"refused 402 message(s), the latest from {WRONG}; its connection is closed for 2 s"
    assert conduct.describe(1001.0) == told
    conduct.refuse("x" * 1000, 1010.0, is_proven=True)
    assert len(conduct.describe(1010.0)) < 250
