"""Which columns of a file are read: all, those that are named, or all but some; picked by name."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field

from thanos_peer.errors import DataFileError
from thanos_peer.samples.names import check_names, listed
from thanos_peer.samples.table import check_columns

# Names that a missing one is compared with, at most: each takes a while.
MOST_COMPARED = 1000


@dataclass(frozen=True)
class Picked:
    """The columns of one file that are read.

    Attributes:
        count: How many.
        features: What they are called, where the file says so.
        places: Where they stand in the file, from 0, in the order in which they are wanted; None for all of it.
    """

    count: int
    features: tuple[str, ...] | None
    places: tuple[int, ...] | None = None

    def place(self, column: int) -> int:
        """Where one of them stands in the file."""
        return column if self.places is None else self.places[column]


@dataclass(frozen=True)
class Columns:
    """Which columns of any file are wanted.

    Attributes:
        features: Their names, in this order; None for all in the order of the file.
        exclude: The names of those that are left out then.
    """

    features: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()

    @property
    def are_all(self) -> bool:
        """Whether no name matters."""
        return self.features is None and not self.exclude

    def picked(self, names: Sequence[str] | None, count: int) -> Picked:
        """Those of a file with so many columns, which are called this.

        Raises:
            DataFileError: It has no names, or lacks one that is asked for; or a name of those picked is unsound.
        """
        if self.are_all:
            return Picked(count, None if names is None else check_names(names))
        if names is None:
            raise DataFileError(
                f"has no names of its columns, and {self._key} picks columns by name: give text a first line with "
                "the names, or save the table as .npz with `features`, or as .parquet"
            )
        self._check_there(names)
        if self.features is None:
            excluded = set(self.exclude)
            places = tuple(place for place, name in enumerate(names) if name not in excluded)
        else:
            places = self._places_of_features(names, self.features)
        if not places:
            raise DataFileError("has no columns but those that problem.exclude leaves out")
        return Picked(len(places), check_names([names[place] for place in places], places), places)

    @property
    def _key(self) -> str:
        return "problem.exclude" if self.features is None else "problem.features"

    def _check_there(self, names: Sequence[str]) -> None:
        there = set(names)
        missing = [name for name in (self.features or self.exclude) if name not in there]
        if missing:
            folded = {name.casefold(): name for name in names[:MOST_COMPARED]}
            near = difflib.get_close_matches(missing[0].casefold(), folded, n=1)
            hint = f"; it has {listed([folded[near[0]]])}" if near else ""
            plural = "" if len(missing) == 1 else "s"
            raise DataFileError(f"has no column{plural} {listed(missing)}, as in {self._key}{hint}")

    @staticmethod
    def _places_of_features(names: Sequence[str], features: Sequence[str]) -> tuple[int, ...]:
        places: dict[str, list[int]] = {}
        for place, name in enumerate(names):
            places.setdefault(name, []).append(place)
        if twice := [name for name in features if len(places[name]) > 1]:
            first, second, *_ = places[twice[0]]
            raise DataFileError(
                f"has the name {listed(twice[:1])} in columns {first + 1} and {second + 1}; names are unique"
            )
        return tuple(places[name][0] for name in features)


@dataclass(frozen=True)
class Wanted:
    """What a file is to give.

    Attributes:
        n: How many features; None for any number.
        columns: Which columns are these.
        allows_missing: Whether a value may be missing: it is NaN then.
    """

    n: int | None = None
    columns: Columns = field(default_factory=Columns)
    allows_missing: bool = False

    def picked(self, names: Sequence[str] | None, count: int) -> Picked:
        """The columns of a file with so many, which are called this.

        Raises:
            DataFileError: Others are wanted, or another number of them.
        """
        picked = self.columns.picked(names, count)
        if not self.columns.are_all:
            check_columns(picked.count, self.n, extra=picked.features or ())
        return picked
