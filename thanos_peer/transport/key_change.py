"""New keys for all peers of a topology: its public keys and all secrets change together, or not at all.

The new secrets are written first, beside the old ones. Then each takes the place of an old one, which is kept; and
the last step puts the topology file with the new public keys in its place. A failure before that is undone by
moving files back, which needs no room on a disk that is full. If only the flush after that fails, the keys have
changed, and the old secrets are left where they are, for the case that the disk forgets it.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from thanos_peer.block import AgentId
from thanos_peer.durable import flush_directory
from thanos_peer.errors import ConfigError
from thanos_peer.topology import Topology
from thanos_peer.topology.editing import with_public_keys
from thanos_peer.transport.keys import (
    DIRECTORY_MODE,
    KeyPair,
    public_keys,
    secret_directory,
    secret_file,
    write_secrets,
)


def change_keys(topology: Topology, keys: Mapping[AgentId, KeyPair], *, replaces: bool) -> Topology:
    """Give peers these keys: public ones into the topology file, secrets beside it.

    Args:
        topology: As it was read; its file is changed where it is.
        keys: A pair for every peer.
        replaces: Whether secrets may be there already; they are removed when all is done.

    Raises:
        ConfigError: Nothing has changed; or all has, but may not outlive a power cut.
    """
    directory = secret_directory(topology.file)
    staged, kept = directory / ".new", directory / ".old"
    _check_way(directory, keys, kept, replaces=replaces)
    is_made = not directory.exists()
    try:
        directory.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        write_secrets(staged, keys, replaces=True)
        kept.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        changed = _exchange(topology, keys, staged, kept)
    except OSError as error:
        raise ConfigError(f"the keys of {topology.file} stay as they are: {_in_words(error, topology)}") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)
        if kept.exists() and not any(kept.iterdir()):
            kept.rmdir()
        if is_made and directory.exists() and not any(directory.iterdir()):
            directory.rmdir()
    if kept.exists():
        shutil.rmtree(kept)
    return changed


def _check_way(directory: Path, keys: Mapping[AgentId, KeyPair], kept: Path, *, replaces: bool) -> None:
    if kept.exists() and any(kept.iterdir()):
        raise ConfigError(
            f"{kept} holds secrets from before a change that was cut off; move those whose public keys are in the "
            f"topology file (see `thanos-peer keys show`) back to {directory}, and remove it"
        )
    there = [path for agent in keys if os.path.lexists(path := secret_file(directory, agent))]
    for path in there:
        if path.is_dir():
            raise ConfigError(f"{path} is a directory, where a secret has to be; move it away")
    if there and not replaces:
        raise ConfigError(f"{there[0]} exists already; with --replace old secrets are removed, and useless after")


def _exchange(topology: Topology, keys: Mapping[AgentId, KeyPair], staged: Path, kept: Path) -> Topology:
    """Put the new secrets in the place of the old ones, and the topology file last; or all back."""
    moved: list[tuple[Path, Path]] = []
    before = topology.file.read_bytes()
    try:
        for agent in keys:
            place = secret_file(staged.parent, agent)
            if os.path.lexists(place):
                _move(place, secret_file(kept, agent), moved)
            _move(secret_file(staged, agent), place, moved)
        # The names of the secrets are on the disk before the file that counts on them.
        flush_directory(staged.parent)
        return with_public_keys(topology, topology.file, public_keys(keys))
    except BaseException as error:
        if topology.file.read_bytes() == before:
            for source, target in reversed(moved):
                target.rename(source)
        elif isinstance(error, OSError):
            old = f", whose secrets are in {kept}: remove it when the disk is well" if any(kept.iterdir()) else ""
            raise ConfigError(
                f"the keys of {topology.file} have changed, but {_in_words(error, topology)}; a power cut may "
                f"bring back what was there before{old}"
            ) from error
        # If the file has the new keys already, the user has interrupted the end.
        raise


def _in_words(error: OSError, topology: Topology) -> str:
    return f"{error.filename or topology.file}: {error.strerror or error}"


def _move(source: Path, target: Path, moved: list[tuple[Path, Path]]) -> None:
    source.rename(target)
    moved.append((source, target))
