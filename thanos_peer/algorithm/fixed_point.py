"""Numbers as whole multiples of one power of two: their sums are exact, and the same on every processor.

A number v becomes trunc(v / 2^last) modulo 2^bits. Sums are taken modulo 2^bits too, so that masks which cancel
may be added on the way. Nothing wraps: `encode` refuses what could.
"""

import math
from dataclasses import dataclass

import numpy as np

from thanos_peer.block import Matrix

_MANTISSA = 53  # bits of a double


class OutOfRangeError(ValueError):
    """A number that the format cannot hold, or not as many of them as there are agents."""


@dataclass(frozen=True)
class FixedPoint:
    """A format: how many bits a number has, and the exponent of the last of them."""

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
        limit = math.ldexp(1.0, exponent) if exponent < 1024 else math.inf  # itself beyond, or the sum would wrap
        if not (np.abs(flat) < limit).all():
            worst = flat[int(np.argmax(np.where(np.isfinite(flat), np.abs(flat), np.inf)))]
            raise OutOfRangeError(f"{worst:.3g} is not below {limit:.3g}")
        mantissas, exponents = np.frexp(flat)
        whole = np.ldexp(mantissas, _MANTISSA).astype(np.int64).tolist()
        shifts = (exponents - _MANTISSA - self.last).tolist()
        return b"".join(self._packed(_shifted(number, shift)) for number, shift in zip(whole, shifts, strict=True))

    def add(self, one: bytes, other: bytes) -> bytes:
        """The sums of two lists of numbers."""
        pairs = zip(self._unsigned(one), self._unsigned(other), strict=True)
        return b"".join(self._packed(a + b) for a, b in pairs)

    def decode(self, sums: bytes) -> Matrix:
        """The nearest doubles, flat; infinite where a sum is beyond them."""
        half, whole = 1 << (self.bits - 1), 1 << self.bits
        signed = (number - whole if number >= half else number for number in self._unsigned(sums))
        return np.array([_nearest(number, self.last) for number in signed])

    def _packed(self, number: int) -> bytes:
        return (number % (1 << self.bits)).to_bytes(self.size, "little")

    def _unsigned(self, raw: bytes) -> list[int]:
        return [int.from_bytes(raw[at : at + self.size], "little") for at in range(0, len(raw), self.size)]


EXACT = FixedPoint(2112, -1074)  # every double as it is, and the sum of up to 2^12 of them


def _shifted(number: int, shift: int) -> int:
    if shift >= 0:
        return number << shift
    return number >> -shift if number >= 0 else -(-number >> -shift)


def _nearest(number: int, exponent: int) -> float:
    """number 2^exponent, rounded once."""
    try:
        if exponent >= 0:
            return float(number << exponent)
        return number / (1 << -exponent)  # of whole numbers: correctly rounded
    except OverflowError:
        return math.inf if number > 0 else -math.inf
