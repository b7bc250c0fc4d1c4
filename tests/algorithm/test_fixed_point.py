"""Sums of whole multiples of a power of two: exact, to be compared with rational arithmetic."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thanos_peer.algorithm.fixed_point import EXACT, FixedPoint, OutOfRangeError

LARGEST = float(np.finfo(np.float64).max)
SMALLEST = 5e-324
doubles = st.floats(allow_nan=False, allow_infinity=False)
SEEDS = st.integers(0, 2**32 - 1)


def nearest(exact):
    """The nearest double, infinite where there is none."""
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def bits(values):
    return np.asarray(values, dtype=np.float64).tobytes()


def total_of(form, rows):
    """The sums of the columns of (agents, numbers), as agents take them."""
    first, *others = (form.encode(row, len(rows)) for row in rows)
    return form.total(first, others)


def whole_numbers(form, raw):
    """What stands in the bytes, in two's complement."""
    return [
        int.from_bytes(raw[at : at + form.size], "little", signed=True) for at in range(0, len(raw), form.size)
    ]


def spread_out(rng, shape, orders=20):
    """Numbers of both signs over so many orders of magnitude."""
    return rng.choice([-1.0, 1.0], shape) * 10.0 ** rng.uniform(-orders / 2, orders / 2, shape)


@given(
    st.integers(1, 9).flatmap(
        lambda d: st.lists(st.lists(doubles, min_size=3, max_size=3), min_size=d, max_size=d)
    )
)
def test_the_sum_of_any_doubles_is_the_nearest_double_of_the_exact_sum(rows):
    found = EXACT.decode(total_of(EXACT, np.array(rows)))
    exact = [nearest(sum(map(Fraction, column))) for column in zip(*rows, strict=True)]
    assert bits(found) == bits(exact)


@given(doubles)
def test_one_double_comes_back_as_it_was(value):
    (back,) = EXACT.decode(EXACT.encode(np.array([value]), 1))
    # Only the sign of a zero is lost.
    assert bits(back) == bits(value + 0.0)


@pytest.mark.parametrize(
    "value", [LARGEST, -LARGEST, SMALLEST, -SMALLEST, 2.0**1023, 2.0**-1022, 0.0, 1.5, -1e-320]
)
@pytest.mark.parametrize("terms", [1, 2, 3, 2048, 4096])
def test_the_ends_of_double_precision_are_held_by_as_many_agents_as_there_may_be(value, terms):
    assert whole_numbers(EXACT, EXACT.encode(np.array([value]), terms)) == [Fraction(value) * 2**1074]


@pytest.mark.parametrize("value", [LARGEST, -LARGEST])
def test_4096_of_the_largest_doubles_do_not_wrap(value):
    total = EXACT.encode(np.array([value]), 4096)
    for _ in range(12):
        total = EXACT.total(total, [total])
    assert whole_numbers(EXACT, total) == [4096 * Fraction(value) * 2**1074]
    assert EXACT.decode(total).tolist() == [math.copysign(math.inf, value)]


@given(SEEDS, st.integers(1, 200))
def test_sums_over_20_orders_of_magnitude_are_exact_bit_for_bit(seed, d):
    rows = spread_out(np.random.default_rng(seed), (d, 2))
    found = EXACT.decode(total_of(EXACT, rows))
    assert bits(found) == bits([nearest(sum(map(Fraction, column))) for column in rows.T.tolist()])
    assert bits(found) == bits([math.fsum(column) for column in rows.T.tolist()])


@given(SEEDS, st.integers(1, 60), st.integers(-900, 900))
def test_in_128_bits_each_number_is_cut_off_towards_zero_and_the_sum_of_those_is_exact(seed, d, scale):
    rng = np.random.default_rng(seed)
    rows = np.ldexp(spread_out(rng, (d, 2), orders=70), scale)
    form = FixedPoint.within(np.abs(rows).max(), d)
    unit = Fraction(2) ** form.last
    exact = [sum(math.trunc(Fraction(value) / unit) for value in column) for column in rows.T.tolist()]
    total = total_of(form, rows)
    assert whole_numbers(form, total) == exact
    assert bits(form.decode(total)) == bits([nearest(each * unit) for each in exact])


@given(SEEDS, st.integers(1, 200))
def test_in_128_bits_a_sum_of_so_many_is_precise_to_the_last_bit_of_the_bound(seed, d):
    rows = spread_out(np.random.default_rng(seed), (d, 1), orders=40)
    bound = np.abs(rows).max()
    form = FixedPoint.within(bound, d)
    (found,) = whole_numbers(form, total_of(form, rows))
    error = found * Fraction(2) ** form.last - sum(map(Fraction, rows[:, 0].tolist()))
    assert abs(error) < d * Fraction(2) ** form.last <= Fraction(bound) * d**2 / 2**124
    assert form.bits == 128


@given(SEEDS, st.sampled_from([FixedPoint.within(1e10, 9), EXACT]))
def test_the_order_in_which_numbers_are_added_does_not_matter(seed, form):
    rng = np.random.default_rng(seed)
    rows = spread_out(rng, (9, 3))
    left, right = total_of(form, rows[:5]), total_of(form, rows[5:])
    assert (
        form.total(left, [right])
        == form.total(right, [left])
        == total_of(form, rows)
        == total_of(form, rng.permutation(rows))
    )


@given(SEEDS, st.sampled_from([FixedPoint.within(1e10, 3), EXACT]))
def test_masks_that_cancel_leave_no_trace(seed, form):
    rng = np.random.default_rng(seed)
    rows, mask = spread_out(rng, (3, 4)), rng.bytes(4 * form.size)
    one, two, three = (form.encode(row, 3) for row in rows)
    masked = form.total(form.total(one, [mask]), [form.total(two, subtracted=[mask]), three])
    assert masked == total_of(form, rows)


@given(SEEDS, st.integers(0, 50), st.integers(0, 50), st.sampled_from([FixedPoint(128, -60), EXACT]))
def test_totals_are_those_of_whole_numbers_modulo_the_bits(seed, added, subtracted, form):
    rng = np.random.default_rng(seed)
    first, *others = (rng.bytes(2 * form.size) for _ in range(1 + added + subtracted))
    found = form.total(first, iter(others[:added]), iter(others[added:]))
    signs = [1] * (1 + added) + [-1] * subtracted
    columns = zip(*(whole_numbers(form, each) for each in (first, *others)), strict=True)
    expected = [sum(sign * each for sign, each in zip(signs, column, strict=True)) for column in columns]
    modulus = 1 << form.bits
    assert [each % modulus for each in whole_numbers(form, found)] == [each % modulus for each in expected]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("form", [EXACT, FixedPoint.within(1.0, 4), FixedPoint(128, 900)])
def test_what_is_not_finite_is_refused_and_named(form, value):
    with pytest.raises(OutOfRangeError, match=f"^{value:.3g} is not "):
        form.encode(np.array([1.0, value, 2.0]), 4)


@pytest.mark.parametrize("terms", [1, 2, 3, 4, 5, 8, 200, 256, 2048])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_largest_number_that_is_let_in_does_not_wrap_and_the_next_is_refused(terms, sign):
    form = FixedPoint.within(1.0, terms)
    beyond = 1.0
    while True:
        try:
            form.encode(np.array([sign * beyond]), terms)
        except OutOfRangeError:
            break
        beyond *= 2
    largest = sign * math.nextafter(beyond, 0)
    rows = np.full((terms, 1), largest)
    assert whole_numbers(form, total_of(form, rows)) == [
        terms * math.trunc(Fraction(largest) / Fraction(2) ** form.last)
    ]
    # No more than this is given away for safety.
    assert beyond <= 4.0
    assert np.sign(form.decode(total_of(form, rows))) == sign


@pytest.mark.parametrize("bound", [1.0, 0.75, 3.0, 1e-300, 1e300, LARGEST, SMALLEST])
@pytest.mark.parametrize("terms", [1, 2, 7, 2048])
def test_a_number_as_large_as_the_bound_is_always_let_in(bound, terms):
    form = FixedPoint.within(bound, terms)
    both = np.array([bound, -bound])
    scaled = Fraction(bound) / Fraction(2) ** form.last
    assert whole_numbers(form, form.encode(both, terms)) == [math.trunc(scaled), -math.trunc(scaled)]


def test_the_worst_of_several_is_named():
    with pytest.raises(OutOfRangeError, match=r"^-1e\+30 is not below 2"):
        FixedPoint.within(1.0, 1).encode(np.array([[5.0, -1e30], [7.0, 0.0]]), 1)


def test_how_numbers_stand_in_bytes():
    form = FixedPoint(128, -64)
    assert form.encode(np.array([[1.0], [-1.0]]), 1).hex() == "00" * 8 + "01" + "00" * 7 + "00" * 8 + "ff" * 8
    assert form.encode(np.array([-(2.0**-64), 2.0**-65, -(2.0**-65)]), 1).hex() == "ff" * 16 + "00" * 32
    assert (form.size, form.kind) == (16, "int128")
    assert (EXACT.size, EXACT.kind) == (264, "int2112")
    assert EXACT.encode(np.array([SMALLEST]), 1).hex() == "01" + "00" * 263
    assert EXACT.encode(np.array([]), 1) == b""
    assert EXACT.decode(b"").shape == (0,)


@pytest.mark.parametrize("last", [-1150, -1136, -1100, -200, -1, 0, 1, 500, 950])
def test_what_lies_between_two_doubles_is_rounded_once_to_the_nearest_and_ties_to_even(last):
    form = FixedPoint(128, last)
    whole = [
        2**53 + 1,
        2**53 + 3,
        2**126 - 1,
        -(2**127),
        3 * 2**70 + 1,
        2**60 + 2**7,
        -(2**60 + 2**7 + 1),
        2**100 + 1,
        -1,
        0,
    ]
    raw = b"".join(number.to_bytes(16, "little", signed=True) for number in whole)
    assert bits(form.decode(raw)) == bits([nearest(number * Fraction(2) ** last) for number in whole])


def test_a_sum_that_cancels_down_to_the_smallest_double_is_that_double():
    rows = np.array([[1e300], [SMALLEST], [-1e300], [1.0], [-1.0]])
    assert EXACT.decode(total_of(EXACT, rows)).tolist() == [SMALLEST]


def test_lists_of_different_lengths_are_not_added():
    one, two = EXACT.encode(np.ones(1), 1), EXACT.encode(np.ones(2), 1)
    with pytest.raises(ValueError, match=r"^264 bytes cannot be added to 528$"):
        EXACT.total(two, [one])


@given(st.lists(st.floats(1e-300, 1e300), min_size=2, max_size=6, unique=True).map(sorted), st.integers(1, 2048))
def test_a_larger_bound_or_more_terms_never_make_a_format_finer(bounds, terms):
    lasts = [FixedPoint.within(bound, terms).last for bound in bounds]
    assert all(a <= b for a, b in pairwise(lasts))
    assert FixedPoint.within(bounds[0], terms).last <= FixedPoint.within(bounds[0], terms + 1).last
