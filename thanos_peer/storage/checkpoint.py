"""What survives a kill -9: the memory of one peer's agent, in files of its own.

A checkpoint is one file, ID-ROUND.ckpt, or ID-eEPOCH-ROUND.ckpt once the tracking has been started again:

    8 bytes   THANOSCK
    4 bytes   version of this format, little-endian
    32 bytes  SHA-256 of the version and the body
    the body  msgpack, a map: the digest of the topology, the agent, the digest of the samples, and the fields of
              `Memory` by name, as the table in `checkpoint_fields.py` has them

Invariants:
1. A file gets its name only when it is whole: written under another name, flushed to the disk (unless only a
   killed process is to be survived), renamed, and the directory flushed.
2. The two latest are kept, and neighbors are told the earlier of them as the fallback: so one of them may be
   damaged and the run still goes on with the same bits. Those of earlier epochs are never gone on from.
3. Whatever is read is checked against the SHA-256, and then field by field against what this peer of this
   topology can have written (`checkpoint_fields.py`), before it is used; against the samples and the state of its
   phase once these are there (`tie_to`, `damaged`).
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import msgpack

from thanos_peer.agent import Memory
from thanos_peer.block import AgentId
from thanos_peer.durable import NotPrivateError, make_directory, open_private, read_regular, whole_file
from thanos_peer.errors import CheckpointError, StateInUseError
from thanos_peer.storage.checkpoint_fields import (
    VERSION,
    MalformedError,
    UnknownFormatError,
    agent_memory,
    by_name,
    check_memory,
    fields_of,
)
from thanos_peer.topology import Topology

log = logging.getLogger("thanos_peer")

MAGIC = b"THANOSCK"
KEPT = 2
_HEAD = len(MAGIC) + 4 + 32
_FRESH = "--fresh removes this peer's checkpoints and begins anew"


class DamagedError(Exception):
    """A checkpoint that is not what was written; an earlier one may do."""


class CheckpointStore:
    """The checkpoints of one peer; no other process may use them while it is open.

    Args:
        directory: Where they lie, those of other peers among them.
        topology: What all agree on.
        agent: Whose they are.
        is_flushed: Whether to survive a power cut, not only a killed process.

    Raises:
        CheckpointError: The directory cannot be used.
        StateInUseError: The same peer runs already.
    """

    def __init__(self, directory: Path, topology: Topology, agent: AgentId, *, is_flushed: bool) -> None:
        self.directory, self._topology, self._agent, self._is_flushed = directory, topology, agent, is_flushed
        self._stem = str(agent)
        self._samples = ""
        # The checkpoint that was gone on from, and the digest of its samples.
        self._loaded: tuple[Path, str] | None = None
        self._lock = self._open_lock()
        self._remove_unfinished()

    def _open_lock(self) -> int:
        """The descriptor of the file that keeps other processes of the same peer out."""
        lock = self.directory / f"{self._stem}.lock"
        try:
            make_directory(self.directory, is_flushed=self._is_flushed, is_private=True)
            descriptor = open_private(lock, os.O_RDONLY | os.O_CREAT)
        except OSError as error:
            where = f"{lock.name}: " if str(error.filename) == str(lock) else ""
            raise CheckpointError(
                f"cannot keep the state in {self.directory}: {where}{error.strerror}; give a directory that this "
                "user can write to with --state"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            pid = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            if not isinstance(error, BlockingIOError):
                raise _cannot_save(lock, error) from error
            raise StateInUseError(
                f"peer {self._agent} runs already with the state in {self.directory} (process {pid}); "
                "stop it first, or give this one another directory with --state"
            ) from error
        # The process id is for error messages only. What is kept open cannot be written to, so that a file system
        # may become read-only.
        with contextlib.suppress(OSError), os.fdopen(open_private(lock, os.O_WRONLY | os.O_TRUNC), "wb") as file:
            file.write(f"{os.getpid()}\n".encode("ascii"))
        return descriptor

    def _remove_unfinished(self) -> None:
        """Remove what a kill in the middle of saving leaves."""
        with contextlib.suppress(OSError):
            for unfinished in self.directory.glob(f"{self._stem}-*.new"):
                unfinished.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._lock)

    def files(self) -> list[Path]:
        """The checkpoints, earliest first."""
        return checkpoints_in(self.directory, self._agent)

    def load(self, *, or_nothing: bool = False) -> Memory | None:
        """The latest memory that is intact; None if there is none at all.

        Args:
            or_nothing: Whether to give the state up for lost, and set it aside, if none is intact.

        Raises:
            CheckpointError: There are checkpoints, but of another topology or version, or none is intact.
        """
        files, damaged = self._of_the_latest_epoch(), []
        for number, path in reversed(list(enumerate(files))):
            try:
                memory = self._read(path)
            except DamagedError as error:
                log.warning("%s is damaged (%s)", path, error)
                damaged.append(path)
                continue
            _set_aside(damaged)
            return replace(memory, fallback=_round_of(files[number - 1])) if number else memory
        if files and or_nothing:
            _set_aside(self.files())
        elif files:
            raise CheckpointError(
                f"no checkpoint of peer {self._agent} in {self.directory} is intact "
                f"({', '.join(path.name for path in files)}); bring one back, or give the state up for lost "
                f"with --restart-tracking; {_FRESH}"
            )
        return None

    def _of_the_latest_epoch(self) -> list[Path]:
        """From an earlier epoch there is no way on: it would lead to a second, other start of the latest one."""
        files = self.files()
        return [path for path in files if _epoch_of(path) == _epoch_of(files[-1])]

    def tie_to(self, samples: str, file: Path | None) -> None:
        """Have what is saved from now on belong to these samples.

        Args:
            samples: Their digest; empty where they follow from the topology.
            file: Where they were read.

        Raises:
            CheckpointError: What was loaded belongs to others.
        """
        if self._loaded is not None and self._loaded[1] != samples:
            raise CheckpointError(
                f"{self._loaded[0]} was made with other samples than those in {file}, which cannot go on from "
                f"it: bring back the data file that this peer began with; {_FRESH}, then at all peers"
            )
        self._samples = samples

    def damaged(self, why: str) -> CheckpointError:
        """The error to raise when what was loaded turns out to be no state of its phase."""
        path = self.directory if self._loaded is None else self._loaded[0]
        return CheckpointError(
            f"{path} is damaged ({why}): remove it to go on from an earlier one, or give the state up for lost "
            f"with --restart-tracking; {_FRESH}"
        )

    def save(self, memory: Memory) -> None:
        """Write a checkpoint, and remove those no longer needed.

        Raises:
            CheckpointError: It could not be written; the earlier ones are as they were.
        """
        epoch = f"e{memory.epoch}-" if memory.epoch else ""
        path = self.directory / f"{self._stem}-{epoch}{memory.k:012}.ckpt"
        try:
            make_directory(self.directory, is_flushed=self._is_flushed, is_private=True)
            with whole_file(path, is_flushed=self._is_flushed, is_private=True) as file:
                file.write(self._encode(memory))
            of_this_epoch = [each for each in self.files() if _epoch_of(each) == memory.epoch]
            for old in of_this_epoch[:-KEPT]:
                old.unlink(missing_ok=True)
        except OSError as error:
            raise _cannot_save(path, error) from error

    def clear(self) -> None:
        """Remove all checkpoints of this peer."""
        self.forget_epochs_before(None)

    def forget_epochs_before(self, epoch: int | None) -> None:
        """Remove the checkpoints of earlier epochs, from which there is no way on; None removes all."""
        with contextlib.suppress(OSError):
            for path in self.files():
                if epoch is None or _epoch_of(path) < epoch:
                    path.unlink(missing_ok=True)

    # ------------------------------------------------------------------ the format

    def _encode(self, memory: Memory) -> bytes:
        body: bytes = msgpack.packb(
            {"digest": self._topology.digest, "agent": self._agent, "samples": self._samples} | fields_of(memory)
        )
        version = VERSION.to_bytes(4, "little")
        return MAGIC + version + hashlib.sha256(version + body).digest() + body

    def _read(self, path: Path) -> Memory:
        try:
            content = read_regular(path, is_own=True)
        except NotPrivateError as error:
            raise CheckpointError(
                f"{path} is not this peer's: {error.strerror}; start it as the one who wrote it; {_FRESH}"
            ) from error
        except PermissionError as error:
            raise CheckpointError(
                f"{path} may not be read by this user; start this peer as the one who wrote it"
            ) from error
        except OSError as error:
            raise DamagedError(f"cannot be read: {error.strerror}") from error
        if len(content) < _HEAD or not content.startswith(MAGIC):
            raise DamagedError("it does not begin like a checkpoint")
        raw, body = content[len(MAGIC) : len(MAGIC) + 4], content[_HEAD:]
        is_intact = hashlib.sha256(raw + body).digest() == content[_HEAD - 32 : _HEAD]
        version = int.from_bytes(raw, "little")
        if not is_intact:
            raise DamagedError("its content does not fit its checksum")
        try:
            return self._decode(path, by_name(version, body))
        except MalformedError as error:
            raise DamagedError(str(error)) from error
        except UnknownFormatError as error:
            raise CheckpointError(f"{path} {error}; go on with the version that wrote it; {_FRESH}") from error

    def _decode(self, path: Path, named: dict[str, Any]) -> Memory:
        digest, agent, samples = (named.pop(name, "") for name in ("digest", "agent", "samples"))
        if digest != self._topology.digest or agent != self._agent:
            raise CheckpointError(
                f"{path} is of peer {agent} of the topology {str(digest)[:16]}, this is peer {self._agent} of "
                f"{self._topology.digest[:16]} ({self._topology.file}), which cannot go on from it: use the "
                f"topology file it began with, or another directory with --state; {_FRESH}"
            )
        memory = agent_memory(named)
        check_memory(memory, self._topology, self._agent)
        if (memory.epoch, memory.k) != (_epoch_of(path), _round_of(path)):
            raise MalformedError(f"it is of round {memory.k} of epoch {memory.epoch}, and its name says another")
        self._loaded = path, samples
        return memory


def _set_aside(damaged: Iterable[Path]) -> None:
    with contextlib.suppress(OSError):
        for path in damaged:
            path.replace(path.with_suffix(".damaged"))


def checkpoints_in(directory: Path, agent: AgentId) -> list[Path]:
    """The checkpoints of a peer in a directory, earliest first.

    Raises:
        CheckpointError: The directory may not be read, or the disk fails.
    """
    pattern = re.compile(rf"{agent}-(?:e\d+-)?\d+\.ckpt")
    try:
        paths = list(directory.iterdir()) if directory.is_dir() else []
    except OSError as error:
        raise CheckpointError(
            f"cannot look for the state of peer {agent} in {directory}: {error.strerror}; let this user read it, "
            "or name another directory with --state"
        ) from error
    found = [path for path in paths if pattern.fullmatch(path.name)]
    return sorted(found, key=lambda path: (_epoch_of(path), _round_of(path)))


def latest_epoch_in(directory: Path, agent: AgentId) -> int:
    """The epoch of a peer's latest checkpoint, by its name; 0 if there is none, or it may not be read."""
    with contextlib.suppress(CheckpointError):
        if found := checkpoints_in(directory, agent):
            return _epoch_of(found[-1])
    return 0


def _round_of(path: Path) -> int:
    return int(path.stem.rsplit("-", 1)[1])


def _epoch_of(path: Path) -> int:
    epoch = re.search(r"-e(\d+)-", path.name)
    return int(epoch[1]) if epoch else 0


def _cannot_save(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"cannot save the state to {path}: {error.strerror or error}; nothing is lost: mend it and start this "
        "peer again with the same command, the others wait"
    )
