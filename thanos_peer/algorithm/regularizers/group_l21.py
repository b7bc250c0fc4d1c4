"""l2,1 over groups: sparse groups of features."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from thanos_peer.algorithm.regularizers.l21 import L21
from thanos_peer.block import Matrix


@dataclass(frozen=True)
class GroupL21(L21):
    """weight * sum of the norms of groups of rows. As `L21`, with the rows of a group as one long row.

    Attributes:
        group_of: The number of the group of each feature; all numbers from 0 on are in use.
    """

    group_of: tuple[int, ...]
    words: ClassVar[str] = "sum of the norms of groups of rows, for sparse groups of features"
    aliases: ClassVar[tuple[str, ...]] = ("group-l2,1",)
    options: ClassVar[Mapping[str, str]] = {
        "groups": "lists of features that are zero together, such as [[0, 1], [4, 5, 6]], counted from 0"
    }

    @classmethod
    def make(cls, weight: float, options: Mapping[str, Any], *, n: int) -> Self:
        """With the groups of the file; a feature in none of them is a group of its own."""
        group_of = _checked(options["groups"], n)
        alone = iter(range(len(options["groups"]), len(options["groups"]) + n))
        return cls(weight, tuple(group_of[i] if i in group_of else next(alone) for i in range(n)))

    def value(self, X: Matrix) -> float:
        """The sum of the norms of the groups, weighted."""
        first_of_each = np.unique(self._numbers, return_index=True)[1]
        return self.weight * float(self._norms(X)[first_of_each].sum())

    def lipschitz(self, n: int, p: int) -> float:  # noqa: ARG002 - grows with the groups
        """By Cauchy-Schwarz over the groups."""
        return self.weight * float(np.sqrt(self._count))

    @cached_property
    def _numbers(self) -> NDArray[np.intp]:
        return np.array(self.group_of, dtype=np.intp)

    @property
    def _count(self) -> int:
        return int(self._numbers.max()) + 1

    def _sums(self, E: Matrix) -> Matrix:
        """The sum over its whole group at each row, (..., n, 1), added feature by feature."""
        rows = E.sum(axis=-1)
        stack = rows.reshape(-1, rows.shape[-1])
        places = self._numbers + self._count * np.arange(len(stack))[:, None]
        sums: Matrix = np.bincount(places.ravel(), stack.ravel())[places]
        return sums.reshape(*rows.shape, 1)


def _checked(groups: Any, n: int) -> dict[int, int]:
    """The group of each feature that is in one.

    Raises:
        ValueError: Something else than distinct features in lists that are not empty.
    """
    if not isinstance(groups, list) or not groups:
        raise ValueError(f"groups must be {GroupL21.options['groups']}")
    group_of: dict[int, int] = {}
    for number, group in enumerate(groups):
        if not isinstance(group, list) or not group:
            raise ValueError(f"groups[{number}] must be a list of at least one feature, counted from 0")
        for feature in group:
            if type(feature) is not int or not 0 <= feature < n:
                raise ValueError(
                    f"groups[{number}] has {ascii(feature)[:80]}, which is no feature: they are 0 to {n - 1}"
                )
            if feature in group_of:
                raise ValueError(
                    f"groups[{number}] has feature {feature}, which is in groups[{group_of[feature]}] already"
                )
            group_of[feature] = number
    return group_of
