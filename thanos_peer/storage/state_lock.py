"""The lock on the state of a peer: two processes of one peer would spoil its checkpoints."""

import contextlib
import fcntl
import os
from pathlib import Path

from thanos_peer.block import AgentId
from thanos_peer.durable import make_directory, open_private
from thanos_peer.errors import CheckpointError, StateInUseError
from thanos_peer.storage.state_files import cannot_save


def lock_state(directory: Path, agent: AgentId, *, is_flushed: bool) -> int:
    """Keep other processes of the same peer out, until the descriptor that this returns is closed.

    Args:
        directory: Where the checkpoints lie; it is made if it is not there.
        agent: Whose they are.
        is_flushed: Whether the directory is to survive a power cut.

    Raises:
        CheckpointError: The directory cannot be used.
        StateInUseError: The same peer runs already.
    """
    lock = directory / f"{agent}.lock"
    descriptor = _opened(lock, is_flushed=is_flushed)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        pid = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        if not isinstance(error, BlockingIOError):
            raise cannot_save(lock, error) from error
        raise StateInUseError(
            f"peer {agent} runs already with the state in {directory} (process {pid}); stop it first, or give "
            "this one another directory with --state"
        ) from error
    # The process id is for error messages only. What is kept open cannot be written to, so that a file system may
    # become read-only.
    with contextlib.suppress(OSError), os.fdopen(open_private(lock, os.O_WRONLY | os.O_TRUNC), "wb") as file:
        file.write(f"{os.getpid()}\n".encode("ascii"))
    return descriptor


def _opened(lock: Path, *, is_flushed: bool) -> int:
    try:
        make_directory(lock.parent, is_flushed=is_flushed, is_private=True)
        return open_private(lock, os.O_RDONLY | os.O_CREAT)
    except OSError as error:
        where = f"{lock.name}: " if str(error.filename) == str(lock) else ""
        raise CheckpointError(
            f"cannot keep the state in {lock.parent}: {where}{error.strerror}; give a directory that this user "
            "can write to with --state"
        ) from error
