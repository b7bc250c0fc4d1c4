"""How a topology file names regularizers and code of the user's own, and which options it may pass on."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from thanos_peer.algorithm.regularizers import REGULARIZERS
from thanos_peer.errors import Mistake

# Characters of the name of a class or of an option, at most.
LONGEST_CODE = 200
LONGEST_TEXT = 4096  # characters, of an option
MOST_OPTIONS = 64
WORD = "[A-Za-z_][A-Za-z0-9_]*"
DEEPEST_OPTION = 2  # lists within one another


def check_code(name: str) -> str:
    """The name of a class as it is, or ValueError."""
    if len(name) > LONGEST_CODE or not re.fullmatch(rf"{WORD}(\.{WORD})*:{WORD}", name):
        raise ValueError(
            f"must be MODULE:CLASS, of letters, digits and underscores, at most {LONGEST_CODE} characters"
        )
    return name


def check_regularizer(value: Any) -> str:
    """A regularizer by its own name, or a class; or ValueError."""
    for name, kind in REGULARIZERS.items():
        if isinstance(value, str) and value in (name, *kind.aliases):
            return name
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
                f"{name} must be true or false, a finite number (whole ones below 2^53), a text of at most "
                f"{LONGEST_TEXT} characters, or a list of these, or of such lists"
            )
    return options


def _is_plain(value: Any, depth: int = DEEPEST_OPTION) -> bool:
    if isinstance(value, list):
        return depth > 0 and all(_is_plain(each, depth - 1) for each in value)
    if isinstance(value, bool):
        return True
    if isinstance(value, int):
        return abs(value) < 2**53
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str) and len(value) <= LONGEST_TEXT


def option_mistakes(problem: Mapping[str, Any]) -> Iterator[Mistake]:
    """A regularizer of the table needs the options that its class states, and takes no others."""
    options, place = problem.get("regularizer_options"), "problem.regularizer_options"
    if options is None or "regularizer" not in problem:
        return
    regularizer = check_regularizer(problem["regularizer"])
    if (kind := REGULARIZERS.get(regularizer)) is None:
        return
    if options and not kind.options:
        yield Mistake(place, f'leave it out with regularizer = "{regularizer}"', options)
        return
    for key in sorted(options.keys() - kind.options.keys()):
        known = ", ".join(kind.options)
        yield Mistake(
            f"{place}.{key}", f'unknown option of regularizer = "{regularizer}" (known: {known})', options[key]
        )
    for key in sorted(kind.options.keys() - options.keys()):
        allowed = f'is missing: regularizer = "{regularizer}" needs {kind.options[key]}'
        yield Mistake(f"{place}.{key}", allowed, has_value=False)
    if options.keys() == kind.options.keys() and "n" in problem:
        try:
            kind.make(1.0, options, n=problem["n"])
        except ValueError as error:
            yield Mistake(place, str(error), has_value=False)
