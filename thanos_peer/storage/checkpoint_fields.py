"""The fields of a checkpoint by name: how each is written and read, and how earlier formats are read.

A new field is a line of `Memory`, with a default, and a line of FIELDS. The version stays: files without the field
can be read, and a program that does not know the field refuses the file by its name. The version changes when a
field gets another meaning, or a tuple in it (`StopWord`, `Block`, `PhaseEnd`) other members. Then `by_name`
translates what earlier formats hold.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from typing import Any, Final, NamedTuple, TypeAlias

import msgpack
import numpy as np
from pydantic import ConfigDict, FiniteFloat, TypeAdapter, ValidationError

from thanos_peer.agent import Memory
from thanos_peer.block import Block, Matrix, StopWord
from thanos_peer.json_files import Count
from thanos_peer.phases import Arrays, Found, PhaseEnd

VERSION: Final = 8
# What of `Found` is bytes, and no array.
OF_BYTES: Final = ("secrets", "words")
OLDEST_READ: Final = 5


class UnknownFormatError(Exception):
    """A checkpoint that another version of this program wrote, and this one cannot read."""


class MalformedError(Exception):
    """A checkpoint that no peer has written, though its checksum fits."""


def fields_of(memory: Memory) -> dict[str, Any]:
    """What a checkpoint holds of a memory, by name."""
    return {name: form.pack(getattr(memory, name)) for name, form in FIELDS.items()}


def agent_memory(named: dict[str, Any]) -> Memory:
    """The memory that was written; its fallback is its own round.

    Raises:
        UnknownFormatError: A field is not known, or one without a default is missing.
        MalformedError: A field is of another form.
    """
    _check_names(named, Memory, set(FIELDS))
    memory = {name: _unpacked_field(name, value) for name, value in named.items()}
    return Memory(**memory, fallback=memory["k"])


def _unpacked_field(name: str, value: Any) -> Any:
    form = FIELDS[name]
    return form.unpack(checked(name, TypeAdapter(form.kind, config=STRICT), value))


def checked(name: str, form: TypeAdapter[Any], value: Any) -> Any:
    """A value that is of some form.

    Raises:
        MalformedError: It is of another.
    """
    try:
        return form.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, (name, *first["loc"])))
        raise MalformedError(f"{place} cannot be: {first['msg']}") from error


def by_name(version: int, body: bytes) -> dict[str, Any]:
    """The fields in the body of a checkpoint.

    In format 5 they have no names, only places. Up to format 6 all blocks are among them; from format 7 on some
    may be in files beside it (`block_files.py`). Up to format 7 births were named otherwise: neighbors tell theirs
    again.

    Raises:
        UnknownFormatError: This program does not read that format.
        MalformedError: It is of another form.
    """
    if not OLDEST_READ <= version <= VERSION:
        raise UnknownFormatError(f"has format {version}, this version reads formats {OLDEST_READ} to {VERSION}")
    content = checked("the body", _BY_NAME if version > 5 else _BY_PLACE, _unpacked_body(body))
    if version > 5:
        return {name: value for name, value in content.items() if name != "births" or version > 7}
    *before, (phase, began), found, samples = content
    names = ("digest", "agent", "k", "arrays", "stop", "said", "fallbacks", "epoch", "done")
    return {
        **dict(zip(names, before, strict=True)),
        "phase": phase,
        "began": began,
        "found": found,
        "samples": samples,
    }


def said_blocks(body: bytes) -> tuple[Block, ...]:
    """The blocks in the body of a file that has nothing else.

    Raises:
        MalformedError: It is of another form.
    """
    blocks: tuple[Block, ...] = _unpacked_field("said", _unpacked_body(body))
    return blocks


def _unpacked_body(body: bytes) -> Any:
    try:
        return msgpack.unpackb(body, use_list=False)
    except (ValueError, RecursionError, msgpack.UnpackException) as error:
        raise MalformedError(f"it is not msgpack: {error}") from error


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
    return {name: raw if shape is None else _array(name, shape, raw) for name, shape, raw in packed}


def _array(name: str, shape: tuple[int, ...], raw: bytes) -> Matrix:
    if len(raw) != 8 * math.prod(shape):
        raise MalformedError(f"{name} has {len(raw)} bytes, which are no array of shape {shape}")
    array: Matrix = np.frombuffer(raw, dtype="<f8").reshape(shape).astype(np.float64, copy=False)
    return array


def _packed_found(found: Found) -> list[Any]:
    named = {field.name: getattr(found, field.name) for field in fields(found)}
    over, final = named.pop("over"), named.pop("final")
    known = {name: each for name, each in named.items() if each is not None}
    return [over, None if final is None else _packed(dict(final)), _packed(known)]


def _unpacked_found(packed: Any) -> Found:
    over, final, arrays = packed
    known: dict[str, Any] = dict(_unpacked(arrays))
    if any(isinstance(each, bytes) is not (name in OF_BYTES) for name, each in known.items()):
        raise MalformedError("found holds bytes, where arrays belong")
    _check_names(known, Found, {field.name for field in fields(Found)})
    if final is not None:
        known["final"] = _unpacked(final)
    return Found(over=tuple(PhaseEnd(*end) for end in over), **known)


def packed_blocks(blocks: Iterable[Block]) -> list[tuple[Any, ...]]:
    """Blocks as they are written: all without their birth, which is that of the memory."""
    return [block[:-1] for block in blocks]


def _unpacked_block(packed: Any) -> Block:
    block = Block(*packed)
    return block._replace(stop=StopWord(*block.stop))


class _Form(NamedTuple):
    """What a field of `Memory` is in the file, how it is written, and how it is read."""

    kind: Any
    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


def _as_it_is(value: Any) -> Any:
    return value


STRICT: Final = ConfigDict(strict=True)
_Shape: TypeAlias = tuple[Count, ...]
_Arrays: TypeAlias = tuple[tuple[str, _Shape | None, bytes], ...]
_Stop: TypeAlias = tuple[Count, Count | None]
_Said: TypeAlias = tuple[
    Count, bytes, tuple[Count, Count], FiniteFloat, _Stop, Count, str, tuple[Count, ...] | None
]
_Ends: TypeAlias = tuple[tuple[str, Count, bool | None], ...]
_BY_NAME: Final[TypeAdapter[Any]] = TypeAdapter(dict[str, Any], config=STRICT)
_BY_PLACE: Final[TypeAdapter[Any]] = TypeAdapter(
    tuple[Any, Any, Any, Any, Any, Any, Any, Any, Any, tuple[Any, Any], Any, Any], config=STRICT
)

# All fields of `Memory` but `fallback`, which follows from the other checkpoints in the directory.
FIELDS: Final[dict[str, _Form]] = {
    "k": _Form(Count, _as_it_is, _as_it_is),
    "arrays": _Form(_Arrays, _packed, _unpacked),
    "stop": _Form(_Stop, list, lambda stop: StopWord(*stop)),
    "said": _Form(tuple[_Said, ...], packed_blocks, lambda said: tuple(map(_unpacked_block, said))),
    "fallbacks": _Form(tuple[tuple[Count, Count], ...], lambda fallbacks: sorted(fallbacks.items()), dict),
    "epoch": _Form(Count, _as_it_is, _as_it_is),
    "done": _Form(tuple[Count, ...], sorted, frozenset),
    "phase": _Form(Count, _as_it_is, _as_it_is),
    "began": _Form(Count, _as_it_is, _as_it_is),
    "found": _Form(tuple[_Ends, _Arrays | None, _Arrays], _packed_found, _unpacked_found),
    "calm": _Form(bytes, _as_it_is, _as_it_is),
    "birth": _Form(str, _as_it_is, _as_it_is),
    "births": _Form(tuple[tuple[Count, str], ...], lambda births: sorted(births.items()), dict),
}
