"""The files that the rules of a site stand in: that of the host, and others that are named. All hold together."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from thanos_peer.errors import ConfigError
from thanos_peer.topology.load import as_mistakes
from thanos_peer.topology.policy import Policy, SitePolicy
from thanos_peer.topology.text import read_toml

# Always read where it exists: no command line and no variable leads past it.
HOST_FILE: Final = Path("/etc/thanos-peer/policy.toml")
# Names one more file.
VARIABLE: Final = "THANOS_PEER_POLICY"
OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def policy_of_site(named: Iterable[Path] = ()) -> SitePolicy:
    """The rules of this host, and those in files that are named besides.

    Raises:
        TopologyError: A file holds no rules, with all its mistakes.
        ConfigError: Another user could have changed those of the host.
    """
    files = [HOST_FILE] if _has_host_file() else []
    return SitePolicy({file: read_policy(file) for file in (*files, *named)})


def read_policy(file: Path) -> Policy:
    """The rules in a file.

    Raises:
        TopologyError: It is none, with all its mistakes.
    """
    raw = read_toml(file)
    try:
        return Policy.model_validate(raw)
    except ValidationError as error:
        raise as_mistakes(file, error, {(): Policy}) from error


def _has_host_file() -> bool:
    """Whether there are rules of the host; what cannot be looked at is no reason to go on without."""
    try:
        HOST_FILE.lstat()
        for path in (HOST_FILE.parent, HOST_FILE):
            _check_owner(path, path.stat())
    except (FileNotFoundError, NotADirectoryError) as error:
        if not os.path.lexists(HOST_FILE) and HOST_FILE.parent.exists() is os.path.lexists(HOST_FILE.parent):
            return False
        raise ConfigError(f"{HOST_FILE} leads nowhere: {error.strerror}; mend it or remove it") from error
    except OSError as error:
        raise ConfigError(
            f"{HOST_FILE} cannot be looked at: {error.strerror}; let the user that runs peers read it"
        ) from error
    return True


def _check_owner(path: Path, found: os.stat_result) -> None:
    """Refuse rules that another user than root and this one may change."""
    if found.st_uid not in (0, os.geteuid()):
        raise ConfigError(
            f"{path} belongs to user {found.st_uid}; it must be root's or your own: chown root {path}"
        )
    if found.st_mode & OTHERS_WRITE:
        mode = f"{stat.S_IMODE(found.st_mode):04o}"
        raise ConfigError(f"{path} has mode {mode}, so other users can change it: chmod go-w {path}")
