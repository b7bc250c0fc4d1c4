"""Masks: what neighbors add to their numbers and take away again, so that a sum stays what it is.

Two neighbors share a secret. From it each makes the same stream of bytes for each sum; the one with the smaller id
adds it to its numbers, the other takes it away, modulo 2^bits. The streams look uniform to all that lack the
secret. So what an agent sends says nothing of its numbers as long as one of its neighbors keeps to itself what the
two share; what some agents together have sent says their sum, and what they share with others hides that, too.

A stream hides one list of numbers only: two lists under one stream would tell their difference. The numbers follow
from the words that an agent has been told, so its streams do too. Where a neighbor tells other words to an agent
that has started again, the masks do not cancel, and the sum is noise.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from thanos_peer.algorithm.fixed_point import FixedPoint
from thanos_peer.block import AgentId

SECRET_BYTES = DIGEST_BYTES = 32
_LABEL = b"thanos-peer masks, secret of an edge"
# The words told, before the first of them.
UNTOLD = bytes(DIGEST_BYTES)


def secret_of_edge(run: bytes, keys: Mapping[AgentId, bytes], product: bytes) -> bytes:
    """What two neighbors share: no two edges, no two runs and no other keys come to the same.

    Args:
        run: The digest of the topology.
        keys: The public keys of both, by id.
        product: That of one's secret and the other's key.
    """
    ids = sorted(keys)
    parts = (_LABEL, run, *(i.to_bytes(8, "little") for i in ids), product, *(keys[i] for i in ids))
    return _digest(b"".join(parts))


def told_with(told: bytes, word: bytes) -> bytes:
    """What stands for all words told, after one more of them."""
    return _digest(told + word)


def _digest(content: bytes, key: bytes = b"") -> bytes:
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES, key=key).digest()


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

    def stream(self, neighbor: AgentId, number: int, told: bytes, size: int) -> bytes:
        """So many bytes for one sum, counted from 0, at these words: the same at both ends of the edge."""
        from nacl.bindings import randombytes_buf_deterministic  # noqa: PLC0415 - most commands need none

        seed = _digest(told + number.to_bytes(8, "little") + self.phase.encode(), key=self.secrets[neighbor])
        # ChaCha20 with this key: faster than a hash for long lists, and about as fast for short ones.
        stream: bytes = randombytes_buf_deterministic(size, seed)
        return stream

    def hide(self, form: FixedPoint, numbers: bytes, number: int, told: bytes) -> bytes:
        """What it says of its numbers in one sum."""
        if not self.secrets:
            return numbers

        def streams(*, of_later: bool) -> Iterator[bytes]:
            for neighbor in self.secrets:
                if (neighbor > self.agent) is of_later:
                    yield self.stream(neighbor, number, told, len(numbers))

        return form.total(numbers, streams(of_later=True), streams(of_later=False))
