"""The files of one peer's state: their names, and the seal that tells whether a file is what was written.

A file begins with

    8 bytes   THANOSCK
    4 bytes   version of the format, little-endian
    32 bytes  SHA-256 of the version and the body

and its body follows. Its name is ID-ROUND.ENDING, or ID-eEPOCH-ROUND.ENDING once the tracking has been started
again.
"""

import hashlib
import re
from pathlib import Path
from typing import Final, NamedTuple

from thanos_peer.block import AgentId
from thanos_peer.durable import NotPrivateError, read_regular
from thanos_peer.errors import CheckpointError

FRESH: Final = "--fresh removes this peer's checkpoints and begins anew"
_MAGIC: Final = b"THANOSCK"
_CHECKSUM: Final = len(_MAGIC) + 4
_HEAD: Final = _CHECKSUM + 32


class DamagedError(Exception):
    """A file that is not what was written; an earlier one may do."""


class Sealed(NamedTuple):
    """What a file holds."""

    version: int
    checksum: bytes
    body: bytes

    @classmethod
    def of(cls, version: int, body: bytes) -> "Sealed":
        """A body with its checksum."""
        checksum = hashlib.sha256(version.to_bytes(4, "little"))
        checksum.update(body)
        return cls(version, checksum.digest(), body)

    @property
    def content(self) -> bytes:
        """All bytes of the file."""
        return _MAGIC + self.version.to_bytes(4, "little") + self.checksum + self.body


def read_sealed(path: Path) -> Sealed:
    """What a file holds, if that is what was written.

    Raises:
        CheckpointError: It is not for this user.
        DamagedError: It is not what was written, or not there.
    """
    try:
        content = read_regular(path, is_own=True)
    except NotPrivateError as error:
        raise CheckpointError(
            f"{path} is not this peer's: {error.strerror}; start it as the one who wrote it; {FRESH}"
        ) from error
    except PermissionError as error:
        raise CheckpointError(
            f"{path} may not be read by this user; start this peer as the one who wrote it"
        ) from error
    except OSError as error:
        raise DamagedError(f"cannot be read: {error.strerror}") from error
    if len(content) < _HEAD or not content.startswith(_MAGIC):
        raise DamagedError("it does not begin like a checkpoint")
    found = Sealed.of(int.from_bytes(content[len(_MAGIC) : _CHECKSUM], "little"), content[_HEAD:])
    if found.checksum != content[_CHECKSUM:_HEAD]:
        raise DamagedError("its content does not fit its checksum")
    return found


def path_of(directory: Path, agent: AgentId, epoch: int, k: int, ending: str) -> Path:
    """Where a file of this round belongs."""
    of_epoch = f"e{epoch}-" if epoch else ""
    return directory / f"{agent}-{of_epoch}{k:012}.{ending}"


def files_in(directory: Path, agent: AgentId, ending: str) -> list[Path]:
    """The files of a peer in a directory, earliest first.

    Raises:
        CheckpointError: The directory may not be read, or the disk fails.
    """
    pattern = re.compile(rf"{agent}-(?:e\d+-)?\d+\.{ending}")
    try:
        paths = list(directory.iterdir()) if directory.is_dir() else []
    except OSError as error:
        raise CheckpointError(
            f"cannot look for the state of peer {agent} in {directory}: {error.strerror}; let this user read it, "
            "or name another directory with --state"
        ) from error
    found = [path for path in paths if pattern.fullmatch(path.name)]
    return sorted(found, key=lambda path: (epoch_of(path), round_of(path)))


def round_of(path: Path) -> int:
    """The round in the name of a file."""
    return int(path.stem.rsplit("-", 1)[1])


def epoch_of(path: Path) -> int:
    """The epoch in the name of a file."""
    epoch = re.search(r"-e(\d+)-", path.name)
    return int(epoch[1]) if epoch else 0


def cannot_save(path: Path, error: OSError) -> CheckpointError:
    """The error to raise when a file of the state cannot be written."""
    return CheckpointError(
        f"cannot save the state to {path}: {error.strerror or error}; nothing is lost: mend it and start this "
        "peer again with the same command, the others wait"
    )
