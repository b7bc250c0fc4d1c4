"""The text of a topology file, as TOML has it: of bounded size and depth.

tomllib takes seconds for a megabyte, and the square of its length for a key of many dotted parts, in time and in
memory; so both are bounded before it sees anything.
"""

import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

from thanos_peer.errors import Mistake, TopologyError

LARGEST_FILE = 8 * 2**20  # bytes
# Parts of a dotted key, at most; the deepest that means anything has three.
MOST_PARTS = 32

_KEY = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?)"""
# Every match begins where the last one ended, so that no text is looked at twice.
_LEXEME = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+(?:"""|\Z)'
    r"|'''(?:[^']|'(?!''))*+(?:'''|\Z)"
    r"|\#[^\n]*+"
    rf"|(?P<keys>{_KEY}(?:[ \t]*+\.[ \t]*+{_KEY})*+)",
    re.DOTALL,
)
_PART = re.compile(_KEY, re.DOTALL)


def read_toml(file: Path) -> dict[str, Any]:
    """What stands in a file.

    Raises:
        TopologyError: It cannot be read, is too large or too deep, or is not TOML.
    """
    try:
        text = _read(file).decode("utf-8").replace("\r\n", "\n")
        _check_keys(file, text)
        return tomllib.loads(text)
    except OSError as error:
        raise single(file, f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise single(file, f"is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except ValueError as error:
        # This is tomllib's own error, or Python's for an integer of thousands of digits.
        raise single(file, f"is not TOML: {error}") from error
    except RecursionError as error:
        raise single(file, "is nested too deeply") from error


def single(file: Path, what: str) -> TopologyError:
    """The one mistake that stands in the way of all others."""
    return TopologyError(str(file), [Mistake("", what, has_value=False)])


def _read(file: Path) -> bytes:
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # no waiting for a pipe
    with os.fdopen(descriptor, "rb") as source:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise single(file, "cannot be read: it is no regular file")
        content = source.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise single(file, f"larger than {LARGEST_FILE // 2**20} MiB")
    return content


def _check_keys(file: Path, text: str) -> None:
    """Refuse a dotted key of very many parts; what looks like one in a text or a comment is none."""
    for found in _LEXEME.finditer(text):
        keys = found["keys"]
        if keys is not None and len(keys) > 2 * MOST_PARTS and len(_PART.findall(keys)) > MOST_PARTS:
            line = text.count("\n", 0, found.start()) + 1
            raise single(
                file, f"has a key of more than {MOST_PARTS} parts in line {line}; it is nested too deeply"
            )
