"""The blocks that a peer has sent, in files beside its checkpoints: each is written once, however long it is kept.

A neighbor decides how many of them are needed, by its fallback. So a checkpoint holds only the latest itself. When
these are many, they go into a file of their own, ID-END.said: sealed as a checkpoint is, its body a msgpack list
of the blocks of the rounds before END. The checkpoints from then on name the file, with its checksum.

Invariants:
1. A file is whole and has its name before a checkpoint names it, and goes when none of those kept does. One that
   no checkpoint names is what a kill has left, and is removed too.
2. What is read is what the checkpoint names, by its checksum, and is then checked as the checkpoint's own blocks.
3. Where a file is damaged, all blocks after it can still be sent.
"""

import contextlib
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgpack
from pydantic import TypeAdapter

from thanos_peer.agent import Memory
from thanos_peer.block import AgentId, Block
from thanos_peer.durable import whole_file
from thanos_peer.json_files import Count
from thanos_peer.storage.checkpoint_fields import (
    STRICT,
    VERSION,
    MalformedError,
    UnknownFormatError,
    checked,
    packed_blocks,
    said_blocks,
)
from thanos_peer.storage.state_files import DamagedError, Sealed, epoch_of, files_in, path_of, read_sealed

# Bytes of blocks that a checkpoint holds itself; if there are more, they get a file.
MOST_BYTES: Final = 2**20
# About the bytes of a block besides its numbers.
_HEAD_BYTES: Final = 64
# The first version that leaves blocks to files.
_OLDEST_READ: Final = 7
_ENDING: Final = "said"
_PARTS: Final[TypeAdapter[Any]] = TypeAdapter(tuple[tuple[Count, Count, bytes], ...], config=STRICT)


class Part(NamedTuple):
    """The blocks of some rounds, in a file.

    Attributes:
        first: The earliest round that is needed of it.
        end: The round after its last.
        checksum: That of its file.
    """

    first: int
    end: int
    checksum: bytes


class Intact(NamedTuple):
    """What can be read of the blocks that a checkpoint leaves to files.

    Attributes:
        parts: The latest files, without a gap.
        blocks: What they hold.
        trouble: What is wrong with the one before them; empty if there is none.
    """

    parts: tuple[Part, ...]
    blocks: tuple[Block, ...]
    trouble: str


class BlockFiles:
    """The files with blocks of one peer.

    Args:
        directory: Where they lie.
        agent: Whose they are.
        is_flushed: Whether to survive a power cut, not only a killed process.
    """

    def __init__(self, directory: Path, agent: AgentId, *, is_flushed: bool) -> None:
        self._directory, self._agent, self._is_flushed = directory, agent, is_flushed
        # The parts of the latest checkpoint of each epoch, and the files that each checkpoint needs.
        self._latest: dict[int, tuple[Part, ...]] = {}
        self._needed: dict[Path, frozenset[Path]] = {}

    def put(self, memory: Memory) -> tuple[tuple[Part, ...], tuple[Block, ...]]:
        """Put blocks that are many into a file; returns the files, and the blocks after them.

        Raises:
            OSError: The file could not be written.
        """
        parts, said = self._still_needed(memory), memory.said
        if parts:
            said = said[len(said) - (memory.k - parts[-1].end) :]
        if sum(len(block.numbers) + _HEAD_BYTES for block in said) < MOST_BYTES:
            return parts, said
        sealed = Sealed.of(VERSION, msgpack.packb(packed_blocks(said)))
        path = self._path(memory.epoch, memory.k)
        with whole_file(path, is_flushed=self._is_flushed, is_private=True) as file:
            file.write(sealed.content)
        return (*parts, Part(said[0].k, memory.k, sealed.checksum)), ()

    def _still_needed(self, memory: Memory) -> tuple[Part, ...]:
        """The files of the checkpoint before that have the first blocks of this memory."""
        first = memory.said[0].k if memory.said else memory.k
        before = self._latest.get(memory.epoch, ())
        needed = [part for part in before if first < part.end <= memory.k]
        if not needed or needed[0].first > first:
            return ()
        return (needed[0]._replace(first=first), *needed[1:])

    def note(self, checkpoint: Path, parts: tuple[Part, ...]) -> None:
        """Note which files a checkpoint needs; the next one follows it."""
        epoch = epoch_of(checkpoint)
        self._latest[epoch] = parts
        self._needed[checkpoint] = frozenset(self._path(epoch, part.end) for part in parts)

    def sweep(self, kept: list[Path]) -> None:
        """Remove the files of this epoch that no checkpoint needs, if it is known of all those kept."""
        if not all(checkpoint in self._needed for checkpoint in kept):
            return
        self._needed = {checkpoint: self._needed[checkpoint] for checkpoint in kept}
        needed = frozenset[Path]().union(*self._needed.values())
        epochs = {epoch_of(checkpoint) for checkpoint in kept}
        for path in files_in(self._directory, self._agent, _ENDING):
            if epoch_of(path) in epochs and path not in needed:
                # What stays by mistake is tried again after the next checkpoint.
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)

    def forget_epochs_before(self, epoch: int | None) -> None:
        """Remove the files of earlier epochs; None removes all."""
        for path in files_in(self._directory, self._agent, _ENDING):
            if epoch is None or epoch_of(path) < epoch:
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
        self._latest = {each: parts for each, parts in self._latest.items() if epoch is not None and each >= epoch}

    def read(self, epoch: int, parts: tuple[Part, ...]) -> Intact:
        """Read the latest files, back to the first that is damaged."""
        blocks: list[tuple[Block, ...]] = []
        for number in reversed(range(len(parts))):
            try:
                blocks.append(self._read(epoch, parts[number]))
            except (DamagedError, MalformedError) as error:
                trouble = f"{self._path(epoch, parts[number].end).name}: {error}"
                return Intact(parts[number + 1 :], _in_order(blocks), trouble)
        return Intact(parts, _in_order(blocks), "")

    def _read(self, epoch: int, part: Part) -> tuple[Block, ...]:
        sealed = read_sealed(self._path(epoch, part.end))
        if sealed.checksum != part.checksum:
            raise DamagedError("it is not the file that the checkpoint names")
        if not _OLDEST_READ <= sealed.version <= VERSION:
            raise UnknownFormatError(f"has blocks of format {sealed.version}")
        blocks = said_blocks(sealed.body)
        needed = tuple(block for block in blocks if block.k >= part.first)
        if [block.k for block in needed] != list(range(part.first, part.end)):
            raise MalformedError("it has blocks of other rounds")
        return needed

    def _path(self, epoch: int, end: int) -> Path:
        return path_of(self._directory, self._agent, epoch, end, _ENDING)


def _in_order(blocks: list[tuple[Block, ...]]) -> tuple[Block, ...]:
    return tuple(block for each in reversed(blocks) for block in each)


def parts_from(packed: Any) -> tuple[Part, ...]:
    """The files that a checkpoint names, which follow each other.

    Raises:
        MalformedError: They do not, or are of another form.
    """
    parts = tuple(Part(*each) for each in checked("parts", _PARTS, packed))
    has_gap = any(before.end != after.first for before, after in pairwise(parts))
    if has_gap or any(part.first >= part.end for part in parts):
        raise MalformedError("the rounds of its parts do not follow each other")
    return parts
