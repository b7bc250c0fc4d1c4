"""The names of features: which are allowed, and whether two files have the same ones."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import count

from thanos_peer.errors import DataFileError
from thanos_peer.protocol.handshake import HALF

LONGEST_NAME = 200
MOST_LISTED = 5  # names in one message


def check_names(names: Sequence[str], places: Sequence[int] | None = None) -> tuple[str, ...]:
    """Names as they are, if each is printable, not too long, and there once.

    Args:
        names: Of columns.
        places: Where these stand in their file, from 0; None for one after the other.

    Raises:
        DataFileError: One is not.
    """
    first_at: dict[str, int] = {}
    for place, name in zip(count(1) if places is None else (place + 1 for place in places), names, strict=False):
        if not name:
            raise DataFileError(
                f"has no name for column {place}; name it, or leave it out if it only numbers the rows"
            )
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise DataFileError(
                f"has the name {_short(name)} in column {place}; a name is of at most {LONGEST_NAME} printable "
                "characters"
            )
        if first_at.setdefault(name, place) != place:
            raise DataFileError(
                f"has the name {_short(name)} in columns {first_at[name]} and {place}; names are unique"
            )
    return tuple(names)


def name_of(number: int, features: Sequence[str] | None) -> str:
    """A feature as messages call it: by its name, or else by its number."""
    return f"feature {number} (counted from 0)" if features is None else f"feature {_short(features[number])}"


def columns_of(samples: object) -> tuple[str, ...] | None:
    """What the columns of a data frame are called; None for an array, or if they are merely numbered from 0."""
    columns = getattr(samples, "columns", None)
    if columns is None or list(columns) == list(range(len(columns))):
        return None
    return tuple(str(column) for column in columns)


def features_digest(features: Sequence[str] | None) -> str:
    """Half a SHA-256 of the names in their order, and half of one of the sorted names; "" where there are none."""
    if features is None:
        return ""
    lists = list(features), sorted(features)
    return "".join(hashlib.sha256(json.dumps(names).encode()).hexdigest()[:HALF] for names in lists)


def digests_so_far(features: Sequence[str]) -> Iterator[str]:
    """For each name the SHA-256 of the JSON list of all names up to it."""
    begun = hashlib.sha256(b"[")
    for number, name in enumerate(features):
        begun.update((f", {json.dumps(name)}" if number else json.dumps(name)).encode())
        whole = begun.copy()
        whole.update(b"]")
        yield whole.hexdigest()


def check_same_features(
    features: Sequence[str] | None, expected: Sequence[str] | None, *, as_in: str = "the others"
) -> None:
    """Refuse other names, or the same ones in another order; where one side has none there is nothing to compare.

    Args:
        features: The names in the file at hand.
        expected: What they should be.
        as_in: Where those are from.

    Raises:
        DataFileError: With the first difference.
    """
    if features is None or expected is None or tuple(features) == tuple(expected):
        return
    if len(features) != len(expected):
        raise DataFileError(
            f"has {len(features)} columns; must have {len(expected)}, as in {as_in}: "
            f"{_difference(features, expected)}"
        )
    place = next(place for place, pair in enumerate(zip(features, expected, strict=True)) if pair[0] != pair[1])
    what = "the same features in another order" if set(features) == set(expected) else "other features"
    raise DataFileError(
        f"has {what}: column {place + 1} is {_short(features[place])}; must be {_short(expected[place])}, "
        f"as in {as_in}"
    )


def _difference(features: Sequence[str], expected: Sequence[str]) -> str:
    """Which names are there and should not be, and which the other way round."""
    extra = [name for name in features if name not in set(expected)]
    missing = [name for name in expected if name not in set(features)]
    said = [f"it {word} {listed(names)}" for word, names in (("has besides", extra), ("lacks", missing)) if names]
    return ", and ".join(said)


def listed(names: Sequence[str]) -> str:
    """Some names in a message; of many only the first."""
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(map(_short, names[:MOST_LISTED])) + more


def _short(name: str) -> str:
    text = ascii(name)
    return text if len(text) <= 60 else f"{text[:57]}..."
