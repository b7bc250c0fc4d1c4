"""Files that are whole or not there, whatever happens: a killed process, a full disk, a power cut."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def whole_file(path: Path, *, is_flushed: bool = True) -> Iterator[IO[bytes]]:
    """A file that has its name when all is written, and is not there at all if something goes wrong before.

    Args:
        path: Where.
        is_flushed: Whether it has to outlive a power cut, not only a killed process.
    """
    unfinished = path.with_name(f"{path.name}.new")
    try:
        with unfinished.open("wb") as file:
            yield file
            if is_flushed:
                file.flush()
                os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    if is_flushed:
        flush_directory(path.parent)


def make_directory(path: Path, *, is_flushed: bool = True) -> None:
    """Make a directory and those above it, with names that outlive a power cut too."""
    missing = [place for place in (path, *path.parents) if not place.exists()]
    path.mkdir(parents=True, exist_ok=True)
    if is_flushed:
        for place in missing:
            flush_directory(place.parent)


def flush_directory(path: Path) -> None:
    """Have the names in a directory outlive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
