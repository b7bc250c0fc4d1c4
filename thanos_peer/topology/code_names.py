"""How a topology file names code of the user's own, and what it may pass on to it."""

import math
import re
from typing import Any

from thanos_peer.algorithm.regularizers import REGULARIZERS

LONGEST_CODE = 200  # characters, of the name of a class or of an option
LONGEST_TEXT = 4096  # characters, of an option
MOST_OPTIONS = 64
WORD = "[A-Za-z_][A-Za-z0-9_]*"
_SPELLED = {alias: name for name, kind in REGULARIZERS.items() for alias in (name, *kind.aliases)}


def check_code(name: str) -> str:
    """The name of a class as it is, or ValueError."""
    if len(name) > LONGEST_CODE or not re.fullmatch(rf"{WORD}(\.{WORD})*:{WORD}", name):
        raise ValueError(
            f"must be MODULE:CLASS, of letters, digits and underscores, at most {LONGEST_CODE} characters"
        )
    return name


def check_regularizer(value: Any) -> str:
    """A regularizer by its own name, or a class; or ValueError."""
    if isinstance(value, str) and value in _SPELLED:
        return _SPELLED[value]
    if not isinstance(value, str) or ":" not in value:
        *others, last = (f'"{name}"' for name in REGULARIZERS)
        raise ValueError(f"must be {', '.join(others)} or {last}, or MODULE:CLASS for one of your own")
    return check_code(value)


def check_options(options: dict[str, Any]) -> dict[str, Any]:
    """Few plain values, with names that Python can pass on."""
    if len(options) > MOST_OPTIONS:
        raise ValueError(f"must be at most {MOST_OPTIONS} options")
    for name, value in options.items():
        if not re.fullmatch(WORD, name) or len(name) > LONGEST_CODE:
            raise ValueError(f"{ascii(name)[:80]} is no name of an option: letters, digits and underscores")
        if not _is_plain(value):
            raise ValueError(
                f"{name} must be true or false, a finite number (whole ones below 2^53), or a text of at most "
                f"{LONGEST_TEXT} characters"
            )
    return options


def _is_plain(value: Any) -> bool:
    if isinstance(value, bool):
        return True
    if isinstance(value, int):
        return abs(value) < 2**53
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str) and len(value) <= LONGEST_TEXT
