"""What survives a kill -9: the memory of one peer's agent, in files of its own.

A checkpoint is one file, ID-ROUND.ckpt, or ID-eEPOCH-ROUND.ckpt once the tracking has been started again, sealed
by a checksum (`state_files.py`). Its body is a msgpack map: the digest of the topology, the agent, the digest of
the samples, how the machine rounds where sums are masked, the fields of `Memory` by name (`checkpoint_fields.py`),
and the names of files that hold all but its latest blocks (`block_files.py`).

Invariants:
1. A file gets its name only when it is whole: written under another name, flushed to the disk (unless only a
   killed process is to be survived), renamed, and the directory flushed.
2. The two latest are kept, and neighbors are told the earlier of them as the fallback: so one of them may be
   damaged and the run still goes on with the same bits. Those of earlier epochs are never gone on from. If blocks
   are lost that both need, the run goes on without them: only a neighbor that starts again from a round before
   would miss them, and finds that its state is lost.
3. All that is read is checked against the SHA-256, and then field by field against what this peer of this
   topology can have written (`checkpoint_rules.py`), before it is used; against the samples and the state of its
   phase once these are there (`tie_to`, `damaged`).
"""

import contextlib
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import msgpack

from thanos_peer.agent import Memory
from thanos_peer.block import AgentId
from thanos_peer.durable import make_directory, whole_file
from thanos_peer.errors import CheckpointError
from thanos_peer.storage.block_files import BlockFiles, Part, parts_from
from thanos_peer.storage.checkpoint_fields import (
    VERSION,
    MalformedError,
    UnknownFormatError,
    agent_memory,
    by_name,
    fields_of,
)
from thanos_peer.storage.checkpoint_rules import check_memory
from thanos_peer.storage.state_files import (
    FRESH,
    DamagedError,
    Sealed,
    cannot_save,
    epoch_of,
    files_in,
    path_of,
    read_sealed,
    round_of,
)
from thanos_peer.storage.state_lock import lock_state
from thanos_peer.topology import Topology

log = logging.getLogger("thanos_peer")

KEPT = 2
_ENDING = "ckpt"
_DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class _Read:
    """What a checkpoint holds.

    Attributes:
        path: Where it is.
        memory: The agent's.
        samples: The digest of its samples.
        arithmetic: How the machine rounds that wrote it; empty if it does not matter.
        parts: The files with blocks that are intact.
        trouble: What is wrong with those before; empty if they are all.
    """

    path: Path
    memory: Memory
    samples: str
    arithmetic: str
    parts: tuple[Part, ...]
    trouble: str


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
        self._samples = self._arithmetic = ""
        self._digest = topology.digest_with(masks=topology.masks_sums)
        # The checkpoint that was gone on from.
        self._loaded: _Read | None = None
        self._lock = lock_state(directory, agent, is_flushed=is_flushed)
        self._blocks = BlockFiles(directory, agent, is_flushed=is_flushed)
        self._remove_unfinished()

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
        files, lacking = self._of_the_latest_epoch(), None
        for number, path in reversed(list(enumerate(files))):
            try:
                found = self._read(path)
            except DamagedError as error:
                log.warning("%s is damaged (%s)", path, error)
                continue
            if not found.trouble:
                return self._go_on_from(files, number, found)
            log.warning("%s is damaged (%s)", path, found.trouble)
            lacking = lacking or (number, found)
        if lacking is not None:
            return self._go_on_from(files, *lacking)
        if files and or_nothing:
            _set_aside(self.files())
        elif files:
            raise CheckpointError(
                f"no checkpoint of peer {self._agent} in {self.directory} is intact "
                f"({', '.join(path.name for path in files)}); bring one back, or give the state up for lost "
                f"with --restart-tracking; {FRESH}"
            )
        return None

    def _go_on_from(self, files: list[Path], number: int, found: _Read) -> Memory:
        """Set the later ones aside, which are damaged."""
        memory = found.memory
        if found.trouble:
            text = (
                "going on from round %d without the blocks before round %d: a neighbor that starts again from one "
                "of those rounds will miss them"
            )
            log.warning(text, memory.k, memory.k - len(memory.said))
        _set_aside(files[number + 1 :])
        self._loaded = found
        self._blocks.note(found.path, found.parts)
        return replace(memory, fallback=round_of(files[number - 1])) if number else memory

    def _of_the_latest_epoch(self) -> list[Path]:
        """From an earlier epoch there is no way on: it would lead to a second, other start of the latest one."""
        files = self.files()
        return [path for path in files if epoch_of(path) == epoch_of(files[-1])]

    def tie_to(self, samples: str, file: Path | None, arithmetic: str = "") -> None:
        """Have what is saved from now on belong to these samples, and to how this machine rounds.

        Args:
            samples: Their digest; empty where they follow from the topology.
            file: Where they were read.
            arithmetic: Where sums are masked, how this machine rounds: a peer may have sent more than it has
                saved, and must not hide other numbers by the same masks. Else empty.

        Raises:
            CheckpointError: What was loaded belongs to others.
        """
        before = self._loaded
        if before is not None and before.samples != samples:
            raise CheckpointError(
                f"{before.path} was made with other samples than those in {file}, which cannot go on from "
                f"it: bring back the data file that this peer began with; {FRESH}, then at all peers"
            )
        if before is not None and before.arithmetic and before.arithmetic != arithmetic:
            raise CheckpointError(
                f"{before.path} was made on a machine that rounds otherwise ({before.arithmetic}; here "
                f"{arithmetic}): masks of what was sent there may hide no other numbers; start this peer there "
                f"again, or where processor and versions are the same; {FRESH}, then at all peers"
            )
        self._samples, self._arithmetic = samples, arithmetic

    def damaged(self, why: str) -> CheckpointError:
        """The error to raise when what was loaded turns out to be no state of its phase."""
        path = self.directory if self._loaded is None else self._loaded.path
        return CheckpointError(
            f"{path} is damaged ({why}): remove it to go on from an earlier one, or give the state up for lost "
            f"with --restart-tracking; {FRESH}"
        )

    def save(self, memory: Memory) -> None:
        """Write a checkpoint, and remove those no longer needed.

        Raises:
            CheckpointError: It could not be written; the earlier ones are as they were.
        """
        path = path_of(self.directory, self._agent, memory.epoch, memory.k, _ENDING)
        try:
            make_directory(self.directory, is_flushed=self._is_flushed, is_private=True)
            parts, said = self._blocks.put(memory)
            with whole_file(path, is_flushed=self._is_flushed, is_private=True) as file:
                file.write(self._encode(replace(memory, said=said), parts))
            self._blocks.note(path, parts)
            of_this_epoch = [each for each in self.files() if epoch_of(each) == memory.epoch]
            for old in of_this_epoch[:-KEPT]:
                old.unlink(missing_ok=True)
            self._blocks.sweep(of_this_epoch[-KEPT:])
        except OSError as error:
            raise cannot_save(path, error) from error

    def clear(self) -> None:
        """Remove all checkpoints of this peer, also those set aside: they hold secrets."""
        self.forget_epochs_before(None)
        with contextlib.suppress(OSError, CheckpointError):
            for path in files_in(self.directory, self._agent, _DAMAGED):
                path.unlink(missing_ok=True)

    def forget_epochs_before(self, epoch: int | None) -> None:
        """Remove the checkpoints of earlier epochs, from which there is no way on; None removes all."""
        with contextlib.suppress(OSError):
            for path in self.files():
                if epoch is None or epoch_of(path) < epoch:
                    path.unlink(missing_ok=True)
            # What checkpoints need goes after them.
            self._blocks.forget_epochs_before(epoch)

    # ------------------------------------------------------------------ the format

    def _encode(self, memory: Memory, parts: tuple[Part, ...]) -> bytes:
        body: bytes = msgpack.packb(
            {"digest": self._digest, "agent": self._agent, "samples": self._samples, "parts": parts}
            | ({"arithmetic": self._arithmetic} if self._arithmetic else {})
            | fields_of(memory)
        )
        return Sealed.of(VERSION, body).content

    def _read(self, path: Path) -> _Read:
        sealed = read_sealed(path)
        try:
            return self._decode(path, by_name(sealed.version, sealed.body))
        except MalformedError as error:
            raise DamagedError(str(error)) from error
        except UnknownFormatError as error:
            raise CheckpointError(f"{path} {error}; go on with the version that wrote it; {FRESH}") from error

    def _decode(self, path: Path, named: dict[str, Any]) -> _Read:
        about = ("digest", "agent", "samples", "arithmetic")
        digest, agent, samples, arithmetic = (named.pop(name, "") for name in about)
        if digest != self._digest or agent != self._agent:
            raise CheckpointError(
                f"{path} is of peer {agent} of the topology {str(digest)[:16]}, this is peer {self._agent} of "
                f"{self._digest[:16]} ({self._topology.file}), which cannot go on from it: use the "
                f"topology file it began with, or another directory with --state; {FRESH}"
            )
        parts, memory = parts_from(named.pop("parts", ())), agent_memory(named)
        if (memory.epoch, memory.k) != (epoch_of(path), round_of(path)):
            raise MalformedError(f"it is of round {memory.k} of epoch {memory.epoch}, and its name says another")
        intact = self._blocks.read(memory.epoch, parts)
        memory = replace(memory, said=intact.blocks + memory.said)
        check_memory(memory, self._topology, self._agent)
        return _Read(path, memory, samples, arithmetic, intact.parts, intact.trouble)


def _set_aside(damaged: Iterable[Path]) -> None:
    with contextlib.suppress(OSError):
        for path in damaged:
            path.replace(path.with_suffix(f".{_DAMAGED}"))


def checkpoints_in(directory: Path, agent: AgentId) -> list[Path]:
    """The checkpoints of a peer in a directory, earliest first.

    Raises:
        CheckpointError: The directory may not be read, or the disk fails.
    """
    return files_in(directory, agent, _ENDING)


def latest_epoch_in(directory: Path, agent: AgentId) -> int:
    """The epoch of a peer's latest checkpoint, by its name; 0 if there is none, or it may not be read."""
    with contextlib.suppress(CheckpointError):
        if found := checkpoints_in(directory, agent):
            return epoch_of(found[-1])
    return 0
