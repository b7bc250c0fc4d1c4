"""The fields of a checkpoint by name: how each is written, and how files of earlier formats are read.

A new field is a line of `Memory`, with a default, and a line of FIELDS. The version stays: files without the field
can be read, and a program that does not know the field refuses the file by its name. The version changes when a
field gets another meaning, or a tuple in it (`StopWord`, `Block`, `PhaseEnd`) other members. Then `by_name`
translates what earlier formats hold.
"""

from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from typing import Any, Final, NamedTuple

import msgpack
import numpy as np

from thanos_peer.agent import Memory
from thanos_peer.block import Block, StopWord
from thanos_peer.phases import Arrays, Found, PhaseEnd

VERSION: Final = 6
OLDEST_READ: Final = 5


class UnknownFormatError(Exception):
    """A checkpoint that another version of this program wrote, and this one cannot read."""


def fields_of(memory: Memory) -> dict[str, Any]:
    """What a checkpoint holds of a memory, by name."""
    return {name: form.pack(getattr(memory, name)) for name, form in FIELDS.items()}


def agent_memory(named: dict[str, Any]) -> Memory:
    """The memory that was written; its fallback is its own round.

    Raises:
        UnknownFormatError: A field is not known, or one without a default is missing.
    """
    _check_names(named, Memory, set(FIELDS))
    memory = {name: FIELDS[name].unpack(value) for name, value in named.items()}
    return Memory(**memory, fallback=memory["k"])


def by_name(version: int, body: bytes) -> dict[str, Any]:
    """The fields in the body of a checkpoint. In format 5 they have no names, only places.

    Raises:
        UnknownFormatError: This program does not read that format.
    """
    if not OLDEST_READ <= version <= VERSION:
        raise UnknownFormatError(f"has format {version}, this version reads formats {OLDEST_READ} to {VERSION}")
    content = msgpack.unpackb(body, use_list=False)
    if version > 5:
        return dict(content)
    *before, (phase, began), found, samples = content
    names = ("digest", "agent", "k", "arrays", "stop", "said", "fallbacks", "epoch", "done")
    return {
        **dict(zip(names, before, strict=True)),
        "phase": phase,
        "began": began,
        "found": found,
        "samples": samples,
    }


def _check_names(named: Iterable[str], kind: type[Any], known: set[str]) -> None:
    """Refuse names that are not known, and a lack of those that have no default."""
    needed = {field.name for field in fields(kind) if field.default is field.default_factory is MISSING}
    if unknown := sorted({*named} - known):
        raise UnknownFormatError(f"has {', '.join(unknown)}, which this version does not know")
    if lacking := sorted((needed & known) - {*named}):
        raise UnknownFormatError(f"lacks {', '.join(lacking)}, which this version needs")


def _packed(arrays: Arrays) -> list[list[Any]]:
    """Arrays with their shapes, bytes without."""
    return [
        [name, None, each]
        if isinstance(each, bytes)
        else [name, list(np.shape(each)), np.asarray(each, dtype="<f8").tobytes()]
        for name, each in sorted(arrays.items())
    ]


def _unpacked(packed: Iterable[tuple[str, tuple[int, ...] | None, bytes]]) -> Arrays:
    return {
        name: raw
        if shape is None
        else np.frombuffer(raw, dtype="<f8").reshape(shape).astype(np.float64, copy=False)
        for name, shape, raw in packed
    }


def _packed_found(found: Found) -> list[Any]:
    named = {field.name: getattr(found, field.name) for field in fields(found)}
    over, final = named.pop("over"), named.pop("final")
    known = {name: np.asarray(each) for name, each in named.items() if each is not None}
    return [over, None if final is None else _packed(dict(final)), _packed(dict(known))]


def _unpacked_found(packed: Any) -> Found:
    over, final, arrays = packed
    known: dict[str, Any] = dict(_unpacked(arrays))
    _check_names(known, Found, {field.name for field in fields(Found)})
    if final is not None:
        known["final"] = _unpacked(final)
    return Found(over=tuple(PhaseEnd(*end) for end in over), **known)


def _unpacked_block(packed: Any) -> Block:
    block = Block(*packed)
    return block._replace(stop=StopWord(*block.stop))


class _Form(NamedTuple):
    """How a field of `Memory` is written, and read."""

    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


_AS_IT_IS: Final = _Form(lambda value: value, lambda value: value)

# All fields of `Memory` but `fallback`, which follows from the other checkpoints in the directory.
FIELDS: Final[dict[str, _Form]] = {
    "k": _AS_IT_IS,
    "arrays": _Form(_packed, _unpacked),
    "stop": _Form(list, lambda stop: StopWord(*stop)),
    "said": _Form(list, lambda said: tuple(map(_unpacked_block, said))),
    "fallbacks": _Form(lambda fallbacks: sorted(fallbacks.items()), dict),
    "epoch": _AS_IT_IS,
    "done": _Form(sorted, frozenset),
    "phase": _AS_IT_IS,
    "began": _AS_IT_IS,
    "found": _Form(_packed_found, _unpacked_found),
    "calm": _AS_IT_IS,
    "birth": _AS_IT_IS,
    "births": _Form(lambda births: sorted(births.items()), dict),
}
