"""Local sockets (`ipc://PATH`): where this user may make one.

libzmq removes any file at the path before it binds there, so a path that is in use for something else must be
refused before. And another user who can write to the directory could put a socket of their own in the place of a
peer's, so no other user may write to it. Names that begin with @ are no paths, and are not looked at.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from thanos_peer.durable import OTHERS_MAY_WRITE, kind_of
from thanos_peer.errors import ConfigError, Mistake
from thanos_peer.topology.model import Topology


def socket_path(address: str) -> Path | None:
    """The path of a local socket; None for other addresses."""
    name = address.removeprefix("ipc://")
    return None if name == address or name.startswith("@") else Path(name)


def path_fault(path: Path) -> str | None:
    """Why no socket can be made at a path without removing something else; None if nothing is in the way."""
    try:
        found = path.lstat()
    except OSError:
        # There is no such path; or listening there fails, and says why.
        return None
    if not stat.S_ISSOCK(found.st_mode):
        return f"{kind_of(found.st_mode)} is there, which would be removed; name a path where nothing is"
    if found.st_uid != os.geteuid():
        return f"a socket of user {found.st_uid} is there; name a path where nothing is"
    return None


def directory_fault(path: Path) -> str | None:
    """Why a socket at a path would not be safe from other users; None if it would."""
    directory, own = path.parent, os.geteuid()
    try:
        found = directory.stat()
    except OSError:
        return None
    if found.st_uid not in {own, 0}:
        return f"its directory {directory} belongs to user {found.st_uid}, who could replace it; {_WAY_OUT}"
    if found.st_mode & OTHERS_MAY_WRITE:
        return (
            f"other users can write to its directory {directory} (mode {found.st_mode & 0o7777:04o}); {_WAY_OUT}"
        )
    return None


_WAY_OUT = "take one that is for this user alone (mkdir -m 700)"


def check_socket(address: str) -> None:
    """Refuse to make a socket at an address where that would remove something, or would not be safe.

    Raises:
        ConfigError: It is such an address.
    """
    path = socket_path(address)
    fault = None if path is None else path_fault(path) or directory_fault(path)
    if fault is not None:
        raise ConfigError(f"cannot listen on {address}: {fault}")


def socket_mistakes(topology: Topology) -> Iterator[Mistake]:
    """Addresses of peers where something else lies on this host; directories may be other ones at theirs."""
    for index, peer in enumerate(topology.peers):
        for key, address in (("address", peer.address), ("bind", peer.bind)):
            path = None if address is None else socket_path(address)
            if path is not None and (fault := path_fault(path)) is not None:
                yield Mistake(f"peers[{index}].{key}", fault, address)
