"""Numbers on the command line."""

import math
from typing import Any

import click


class FiniteFloat(click.FloatRange):
    """A float in a range that is neither NaN nor infinite: comparisons alone let those pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, or a usage error."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number
