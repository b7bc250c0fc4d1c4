"""Masks: what neighbors add to their numbers and take away again, so that a sum stays what it is.

Two neighbors share a secret. From it each makes the same stream of bytes for each sum; the one with the smaller id
adds it to its numbers, the other takes it away, modulo 2^bits. The streams look uniform to all that lack the
secret. So what an agent sends says nothing of its numbers as long as one of its neighbors keeps to itself what the
two share; what some agents together have sent says their sum, and what they share with others hides that, too.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from thanos_peer.algorithm.fixed_point import FixedPoint
from thanos_peer.block import AgentId

SECRET_BYTES = 32


def shared_secret(product: bytes, one: bytes, other: bytes) -> bytes:
    """What two neighbors share, from the product of their keys, and both public keys in any order."""
    return hashlib.blake2b(product + min(one, other) + max(one, other), digest_size=SECRET_BYTES).digest()


@dataclass(frozen=True)
class Masks:
    """The masks of one agent in one phase.

    Attributes:
        agent: Which agent.
        secrets: What it shares with each of its neighbors, new in every epoch; empty for no masks.
        phase: The name of the phase: no two phases use the same stream.
    """

    agent: AgentId
    secrets: Mapping[AgentId, bytes]
    phase: str

    def stream(self, neighbor: AgentId, number: int, size: int) -> bytes:
        """So many bytes for one sum, counted from 0: the same at both ends of the edge."""
        seed = self.secrets[neighbor] + number.to_bytes(8, "little") + self.phase.encode()
        return hashlib.shake_256(seed).digest(size)

    def hide(self, form: FixedPoint, numbers: bytes, number: int) -> bytes:
        """What it says of its numbers in one sum."""
        if not self.secrets:
            return numbers

        def streams(*, of_later: bool) -> Iterator[bytes]:
            for neighbor in self.secrets:
                if (neighbor > self.agent) is of_later:
                    yield self.stream(neighbor, number, len(numbers))

        return form.total(numbers, streams(of_later=True), streams(of_later=False))
