"""JSON files that may be damaged, or come from another host: read into a known form, or refused in words."""

from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from thanos_peer.durable import read_regular
from thanos_peer.errors import printable

LARGEST = 2**28  # bytes
# Largest round or epoch: what a message can say.
LARGEST_COUNT = 2**53
T = TypeVar("T")

Count: TypeAlias = Annotated[int, Field(ge=0, le=LARGEST_COUNT, strict=True)]


class DamagedJSONError(ValueError):
    """A file that is no JSON of its form; the message says why, without the name of the file."""


def read_json(path: Path, kind: type[T], *, is_own: bool = False) -> T:
    """What a JSON file holds.

    Args:
        path: Which file.
        kind: Its form; keys that the form does not name are ignored.
        is_own: Whether it is to be a private file of this user.

    Raises:
        DamagedJSONError: It is of another form.
        OSError: It cannot be read, or is no regular file.
    """
    content = read_regular(path, LARGEST + 1, is_own=is_own)
    if len(content) > LARGEST:
        raise DamagedJSONError(f"it is larger than {LARGEST:,} bytes")
    try:
        return TypeAdapter(kind).validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key, what = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        what = what.replace("Invalid JSON", "it is not JSON")
        raise DamagedJSONError(printable(f"{key}: {what}" if key else what)) from error
