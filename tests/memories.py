"""Memories of agents, compared to the last bit, and checkpoints with something changed."""

import hashlib
from collections.abc import Mapping
from dataclasses import fields

import msgpack
import numpy as np


def bits(each):
    """A value with its type and shape, in a form that tells one bit from another."""
    if isinstance(each, Mapping):
        return {name: bits(value) for name, value in each.items()}
    return each if isinstance(each, bytes | tuple | None) else (np.shape(each), np.asarray(each).tobytes())


def bits_of(memory):
    """All of a memory, in a form that tells one bit from another; its blocks have its birth, written once."""
    return (
        (memory.k, bits(memory.arrays)),
        (memory.stop, memory.epoch, memory.done),
        [(*said._replace(eta=0.0, birth=""), np.float64(said.eta).tobytes()) for said in memory.said],
        dict(memory.fallbacks),
        memory.fallback,
        (memory.phase, memory.began, memory.calm, memory.birth, dict(memory.births)),
        {field.name: bits(getattr(memory.found, field.name)) for field in fields(memory.found)},
    )


def flipped(content, at, mask):
    """Bytes with some bits of one of them changed."""
    return content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :]


def with_body(content, change):
    """A checkpoint of the same version with another body, and a checksum that fits."""
    version, body = content[8:12], msgpack.packb(change(msgpack.unpackb(content[44:])))
    return content[:8] + version + hashlib.sha256(version + body).digest() + body
