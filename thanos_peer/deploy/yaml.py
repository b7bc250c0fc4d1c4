"""YAML as text, as far as compose files and manifests need it: quoted strings, blocks, and shared parts.

Every string is quoted, so that no `no`, `1e3` or `08` changes its type on the way.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*|<<")
# Texts without line breaks but \n, without anything that a parser refuses, and with one \n at the end.
IN_A_BLOCK = re.compile(
    r"[\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]*[^\n]\n"
)
NOT_PLAIN = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}  # to some parsers


@dataclass(frozen=True)
class Shared:
    """A mapping that others take over: written here, under a name."""

    name: str
    content: Mapping[str, Any]


@dataclass(frozen=True)
class Taken:
    """What is shared under a name; the value of the key `<<`."""

    name: str


@dataclass(frozen=True)
class Text:
    """A text of several lines, written as it is, or as a quoted string where a block would change it."""

    content: str


def to_yaml(document: Mapping[str, Any]) -> str:
    """A document, with a blank line before each of its parts but the first."""
    return "\n".join("\n".join(_entry(key, value, "")) + "\n" for key, value in document.items())


def _entry(key: str, value: Any, indent: str) -> Iterator[str]:
    start = f"{indent}{_key(key)}:"
    if isinstance(value, Shared):
        yield f"{start} &{value.name}"
        yield from _block(value.content, f"{indent}  ")
    elif isinstance(value, Taken):
        yield f"{start} *{value.name}"
    elif isinstance(value, Text):
        yield from _text(value.content, start, f"{indent}  ")
    elif _is_flat(value):
        yield f"{start} {_flat(value)}"
    else:
        yield start
        yield from _block(value, f"{indent}  ")


def _block(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _entry(key, part, indent)
        return
    for part in value:
        if isinstance(part, Text):
            yield from _text(part.content, f"{indent}-", f"{indent}  ")
        elif _is_flat(part):
            yield f"{indent}- {_flat(part)}"
        else:
            first, *rest = _block(part, f"{indent}  ")
            yield from (f"{indent}- {first.lstrip()}", *rest)


def _text(text: str, start: str, indent: str) -> Iterator[str]:
    """A text after what it belongs to."""
    if not IN_A_BLOCK.fullmatch(text):
        yield f"{start} {_quote(text)}"
        return
    # Without the 2, the indentation of the first line would be taken for that of all lines.
    yield f"{start} |{'2' if text[0].isspace() else ''}"
    yield from (f"{indent}{line}" if line else "" for line in text[:-1].split("\n"))


def _is_flat(value: Any) -> bool:
    """Whether a value fits on the line of its key: a scalar, nothing, or a few words."""
    if isinstance(value, Mapping):
        return not value
    if isinstance(value, Sequence) and not isinstance(value, str):
        return all(isinstance(part, str | int | float) for part in value) and len(_flat(value)) < 80
    return not isinstance(value, Shared | Taken | Text)


def _flat(value: Any) -> str:
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, bool | int | Mapping):
        return json.dumps(value)
    if isinstance(value, float):
        digits, e, exponent = repr(value).partition("e")
        return digits + ".0" * (bool(e) and "." not in digits) + e + exponent  # 1e+16 would be a word
    return f"[{', '.join(map(_flat, value))}]"


def _quote(text: str) -> str:
    return f'"{"".join(map(_spell, text))}"'


def _spell(character: str) -> str:
    code = ord(character)
    if character in '"\\':
        return f"\\{character}"
    return character if 32 <= code < 127 else f"\\U{code:08X}"


def _key(key: str) -> str:
    return key if PLAIN_KEY.fullmatch(key) and key.lower() not in NOT_PLAIN else _quote(key)
