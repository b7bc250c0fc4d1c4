"""Numbers as whole multiples of one power of two: these are summed exactly, the same on every processor.

The wide format, `EXACT`, holds every double as it is. With 128 bits each number loses less than 2^last, at most
2^(b - 126) times the bound of all, where b is the bits of how many terms there are; nothing is lost after that.

A number v becomes trunc(v / 2^last) modulo 2^bits. Sums are taken modulo 2^bits too, so that masks which cancel
may be added on the way. Nothing wraps: `encode` refuses what could.

Each number is a row of 64-bit digits, the lowest first, and all rows are worked on at once.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thanos_peer.block import Matrix

_MANTISSA = 53  # bits of a double
_DIGIT = 64  # bits
# Exponent of the smallest double that has all its bits.
_LEAST = -1022
_LITTLE = np.dtype("<u8")
_HALF, _HALF_BITS = np.dtype("<u4"), 32  # of a digit: sums of these have room for carries
_Digits = NDArray[np.uint64]


class OutOfRangeError(ValueError):
    """A number that the format cannot hold, or not as many of them as there are agents."""


@dataclass(frozen=True)
class FixedPoint:
    """A format: how many bits a number has, a multiple of 64, and the exponent of the last of them."""

    bits: int
    last: int

    @classmethod
    def within(cls, bound: float, terms: int) -> "FixedPoint":
        """128 bits, for sums of so many terms, none of which is larger than the bound."""
        _, exponent = math.frexp(bound)
        return cls(128, exponent + (terms - 1).bit_length() + 1 - 128)

    @property
    def size(self) -> int:
        """Bytes of one number."""
        return self.bits // 8

    @property
    def kind(self) -> str:
        """What it is called on the wire."""
        return f"int{self.bits}"

    def encode(self, values: Matrix, terms: int) -> bytes:
        """The numbers of one of so many agents whose sum is to be taken.

        Raises:
            OutOfRangeError: One is not finite, or the sum of so many like it would not fit.
        """
        flat = values.ravel()
        exponent = self.bits - 1 + self.last - (terms - 1).bit_length()
        # A number of this size is refused already, or the sum would wrap.
        limit = math.ldexp(1.0, exponent) if exponent < 1024 else math.inf
        if not (np.abs(flat) < limit).all():
            worst = flat[int(np.argmax(np.where(np.isfinite(flat), np.abs(flat), np.inf)))]
            raise OutOfRangeError(f"{worst:.3g} is not below {limit:.3g}")
        mantissas, exponents = np.frexp(np.abs(flat))
        whole = np.ldexp(mantissas, _MANTISSA).astype(np.uint64)
        shifts = exponents.astype(np.int64) - (_MANTISSA + self.last)
        # Bits below the last one are cut off.
        whole >>= np.clip(-shifts, 0, _DIGIT - 1).astype(np.uint64)
        # One digit more than the format has, for bits that are moved up.
        digits = np.zeros((flat.size, self.bits // _DIGIT + 1), dtype=np.uint64)
        at, by = np.divmod(np.maximum(shifts, 0), _DIGIT)
        at, rows = np.where(whole > 0, at, 0), np.arange(flat.size)
        digits[rows, at], digits[rows, at + 1] = _moved_up(whole, by)
        return self._packed(_negated(digits, flat < 0)[:, :-1])

    def total(self, first: bytes, added: Iterable[bytes] = (), subtracted: Iterable[bytes] = ()) -> bytes:
        """The sums of some lists of numbers, less those of others, modulo 2^bits."""
        sums = np.frombuffer(first, dtype=_HALF).astype(np.int64)
        # Many of them fit before a carry has to be taken.
        for lists, take in ((added, np.add), (subtracted, np.subtract)):
            for each in lists:
                if len(each) != len(first):
                    raise ValueError(f"{len(each)} bytes cannot be added to {len(first)}")
                take(sums, np.frombuffer(each, dtype=_HALF), out=sums)
        rows = sums.reshape(-1, self.bits // _HALF_BITS)
        for at in range(1, rows.shape[1]):
            rows[:, at] += rows[:, at - 1] >> _HALF_BITS
        return rows.astype(_HALF).tobytes()

    def decode(self, sums: bytes) -> Matrix:
        """The nearest doubles, flat; infinite where a sum is beyond them."""
        digits = self._digits(sums)
        is_negative = digits[:, -1] >> np.uint64(_DIGIT - 1) > 0
        leading, exponents = _leading_digit(_negated(digits, is_negative))
        exponents += self.last
        rounded = leading.astype(np.float64)
        with np.errstate(over="ignore"):
            found: Matrix = np.ldexp(np.where(is_negative, -rounded, rounded), exponents)
        for row in np.flatnonzero(exponents + _DIGIT <= _LEAST):  # these would be rounded twice
            number = int.from_bytes(self._packed(digits[row]), "little", signed=True)
            # Python rounds a quotient of whole numbers correctly.
            found[row] = number / (1 << -self.last)
        return found

    def _packed(self, digits: _Digits) -> bytes:
        return digits.astype(_LITTLE, copy=False).tobytes()

    def _digits(self, raw: bytes) -> _Digits:
        return np.frombuffer(raw, dtype=_LITTLE).astype(np.uint64, copy=False).reshape(-1, self.bits // _DIGIT)


# Holds every double as it is, and the sum of up to 2^12 of them.
EXACT = FixedPoint(2112, -1074)


def _moved_up(digit: _Digits, by: NDArray[np.int64]) -> tuple[_Digits, _Digits]:
    """A digit moved up by 0 to 63 bits: what stays, and what goes to the next one."""
    amount = by.astype(np.uint64)
    return digit << amount, (digit >> np.uint64(1)) >> (np.uint64(_DIGIT - 1) - amount)


def _negated(digits: _Digits, which: NDArray[np.bool_]) -> _Digits:
    """The same rows, with the sign of some changed: all bits turned, and one more."""
    turned = digits ^ np.where(which, ~np.uint64(0), np.uint64(0))[:, None]
    carry = which.astype(np.uint64)
    for at in range(digits.shape[1]):
        turned[:, at] += carry
        carry &= turned[:, at] == 0
    return turned


def _leading_digit(size: _Digits) -> tuple[_Digits, NDArray[np.int64]]:
    """The 64 bits from the highest one on, and the exponent of the last of them.

    Where any bit below them is set, so is the last of them: rounded to 53 bits, they are the whole rounded once.
    """
    # Two more digits at the low end, so that there are two digits below every one.
    size = np.pad(size, ((0, 0), (2, 0)))
    rows, top = np.arange(len(size)), np.maximum(2, size.shape[1] - 1 - np.argmax(size[:, ::-1] != 0, axis=1))
    has_more = np.logical_or.accumulate(size != 0, axis=1)[rows, top - 2]
    zeros = _leading_zeros(size[rows, top])
    first, _ = _moved_up(size[rows, top], zeros)
    rest, second = _moved_up(size[rows, top - 1], zeros)
    return first | second | (has_more | (rest != 0)), _DIGIT * (top - 2) - zeros


def _leading_zeros(digit: _Digits) -> NDArray[np.int64]:
    """How many zero bits are above the highest one; 63 for zero."""
    zeros, rest = np.zeros(digit.shape, dtype=np.int64), digit.copy()
    for bits in (32, 16, 8, 4, 2, 1):
        is_clear = rest >> np.uint64(_DIGIT - bits) == 0
        zeros += bits * is_clear
        rest = np.where(is_clear, rest << np.uint64(bits), rest)
    return zeros
