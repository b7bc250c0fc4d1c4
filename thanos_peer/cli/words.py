"""Words on the command line that others have to understand."""

import re
from typing import Any

import click


class Word(click.types.StringParamType):
    """A text of a certain form.

    Args:
        pattern: What all of it has to match.
        meaning: The same for people.
    """

    def __init__(self, pattern: str, meaning: str) -> None:
        self._pattern, self._meaning = re.compile(pattern, re.ASCII), meaning

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text, or a usage error."""
        word = str(super().convert(value, param, ctx))
        if not self._pattern.fullmatch(word):
            self.fail(f"{word!r} is not {self._meaning}.", param, ctx)
        return word
