"""Files that are whole or not there, and files that a peer keeps for itself.

A whole file is never there in part: not after a kill, a full disk or a power cut. Rules of private files:

1. They are for their owner alone (0600), and so is a directory made for them (0700).
2. They belong to this user or to root. Root itself may use what belongs to others: in a container, a volume may.
3. No symbolic link is followed, and nothing but a regular file is opened: no pipe can make a peer wait.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

PRIVATE_FILE: Final = 0o600
PRIVATE_DIRECTORY: Final = 0o700
OTHERS_MAY_WRITE: Final = 0o022
_CAREFULLY: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS: Final = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISREG, "a file"),
)


class NotPrivateError(PermissionError):
    """A file or directory of another user."""


class NotRegularError(OSError):
    """A link, a pipe or something else where a file should be."""


@contextlib.contextmanager
def whole_file(path: Path, *, is_flushed: bool = True, is_private: bool = False) -> Iterator[IO[bytes]]:
    """A file that has its name when all is written, and is not there at all if something goes wrong before.

    Args:
        path: Where. A link there is replaced, not followed.
        is_flushed: Whether it has to outlive a power cut, not only a killed process.
        is_private: Whether it is for its owner alone.
    """
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.unlink(missing_ok=True)  # what a kill has left
    descriptor = os.open(
        unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CAREFULLY, PRIVATE_FILE if is_private else 0o666
    )
    try:
        with os.fdopen(descriptor, "wb") as file:
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


def open_private(path: Path, flags: int = os.O_RDONLY) -> int:
    """The descriptor of a private file; with os.O_CREAT it is made.

    Raises:
        NotPrivateError: It is another user's.
        NotRegularError: It is no regular file.
        OSError: It cannot be opened.
    """
    return _checked(path, flags | _CAREFULLY, is_own=True)


def open_regular(path: Path) -> IO[bytes]:
    """A file of any user, or what a link leads to, to be read; never waits for a pipe.

    Raises:
        NotRegularError: It is no regular file.
        OSError: It cannot be read.
    """
    return os.fdopen(_checked(path, os.O_RDONLY | _CAREFULLY & ~os.O_NOFOLLOW, is_own=False), "rb")


def read_regular(path: Path, most: int | None = None, *, is_own: bool = False) -> bytes:
    """The content of a file; never waits for a pipe.

    Args:
        path: Which file.
        most: How many bytes, at the most; None for all.
        is_own: Whether it is to be a private one; else it may be another user's, or a link to one.

    Raises:
        NotPrivateError: It is another user's.
        NotRegularError: It is no regular file.
        OSError: It cannot be read.
    """
    with os.fdopen(open_private(path), "rb") if is_own else open_regular(path) as file:
        # read() would first allocate `most` bytes.
        size = os.fstat(file.fileno()).st_size
        return file.read(size if most is None else min(most, size))


def _checked(path: Path, flags: int, *, is_own: bool) -> int:
    try:
        descriptor = os.open(path, flags, PRIVATE_FILE)
    except OSError as error:
        # The path is a link, or a pipe that is to be written to.
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        raise _not_regular(path, path.lstat().st_mode) from error
    try:
        _check(path, os.fstat(descriptor), is_own=is_own)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check(path: Path, found: os.stat_result, *, is_own: bool) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise _not_regular(path, found.st_mode)
    if is_own:
        check_owner(path, found)


def _not_regular(path: Path, mode: int) -> OSError:
    code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
    return NotRegularError(code, f"it is {kind_of(mode)}, not a regular file", str(path))


def kind_of(mode: int) -> str:
    """What there is, in words."""
    return next((words for is_one, words in _KINDS if is_one(mode)), "a device")


def check_owner(path: Path, found: os.stat_result) -> None:
    """Refuse what belongs to another user than this one and root; root may use all.

    Raises:
        NotPrivateError: It does.
    """
    own = os.geteuid()
    if own != 0 and found.st_uid not in {own, 0}:
        raise NotPrivateError(
            errno.EPERM, f"it belongs to user {found.st_uid}, and this peer runs as user {own}", str(path)
        )


def make_directory(path: Path, *, is_flushed: bool = True, is_private: bool = False) -> None:
    """Make a directory and those above it, with names that outlive a power cut too.

    Args:
        path: Where.
        is_flushed: Whether to have the names outlive one.
        is_private: Whether it is for private files. One that is there stays as its owner made it, but no other
            user may write to it any more.

    Raises:
        NotPrivateError: It is to be private, and is another user's.
        OSError: It cannot be made.
    """
    missing = [place for place in (path, *path.parents) if not place.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=PRIVATE_DIRECTORY if is_private else 0o777, exist_ok=True)
    if is_private:
        _keep_others_out(path)
    if is_flushed:
        for place in missing:
            flush_directory(place.parent)


def _keep_others_out(path: Path) -> None:
    """Let no other user write to a directory of this one, unless users may remove only their own files there."""
    found = path.stat()
    check_owner(path, found)
    is_open = bool(found.st_mode & OTHERS_MAY_WRITE) and not found.st_mode & stat.S_ISVTX
    if is_open and found.st_uid == os.geteuid():
        path.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS_MAY_WRITE)


def flush_directory(path: Path) -> None:
    """Have the names in a directory outlive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
