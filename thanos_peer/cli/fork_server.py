"""The process that the peers of `run` are forked from; `launch/fork_server.py` is the launcher's end."""

import contextlib
import gc
import importlib
import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from thanos_peer.cli.start import start_command
from thanos_peer.launch.fork_server import LONGEST, READY

# Modules that a peer loads late: where it needs them, or if they are installed.
LOADED_LATE = ("ctypes", "encodings.ascii", "uvloop")
IN, OUT, ERR = range(3)


@click.command("fork-server", hidden=True)
@click.argument("channel", type=int)
# Room for the command line of a peer, which is longer than that of this process.
@click.argument("room")
@click.pass_context
def fork_server_command(context: click.Context, channel: int, room: str) -> None:  # noqa: ARG001
    """Fork a peer whenever the launcher asks for one, until it is gone; it is `run` that needs this."""
    try:
        launcher = socket.socket(fileno=channel)
    except (OSError, OverflowError, ValueError) as error:
        raise click.UsageError("it is for `thanos-peer run` to start this") from error
    _show_as(["thanos-peer", "fork-server"])
    for name in LOADED_LATE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    # What is here lives as long as any peer: collecting garbage in it would only copy its pages.
    gc.freeze()
    with launcher:
        arguments = None if _has_threads() else fork_when_asked(launcher)
    if arguments is not None:
        with start_command.make_context("start", arguments, parent=context.find_root()) as peer:
            start_command.invoke(peer)


def _has_threads() -> bool:
    """Whether there are threads that a fork would leave behind, as of a BLAS that was told to use some."""
    try:
        return len(list(Path("/proc/self/task").iterdir())) > 1
    except OSError:  # unknown
        return True


def fork_when_asked(launcher: socket.socket) -> list[str] | None:
    """Serve the launcher; returns None when it is gone, and in every peer that is forked its arguments."""
    # The launcher may have been killed before it has read all.
    with contextlib.suppress(ConnectionError):
        launcher.send(READY)
        while True:
            request, files, _, _ = socket.recv_fds(launcher, LONGEST, 2)
            if not request:
                return None
            pid = _fork_orphan()
            if pid == 0:
                arguments: list[str] = json.loads(request)
                _become_peer(arguments, *files)
                return arguments
            launcher.send(b"no process" if pid is None else str(pid).encode())
            for file in files:
                os.close(file)
    return None


def _fork_orphan() -> int | None:
    """Fork a process whose parent has ended when this returns: its number, or None for no process; 0 in itself."""
    try:
        reader, writer = os.pipe()
    except OSError:
        return None
    try:
        between = _fork()
        if between == 0:
            return _leave_orphan(writer)
        if between is not None:
            os.waitpid(between, 0)
        # By now all that is to be read has been written.
        os.set_blocking(reader, False)
        with contextlib.suppress(BlockingIOError):
            return int(os.read(reader, LONGEST))
        return None
    finally:
        os.close(reader)
        os.close(writer)


def _leave_orphan(writer: int) -> int:
    """In the process between: fork, say the number of the new process, and end; returns in that one alone."""
    orphan = None
    try:
        orphan = _fork()
        if orphan:
            os.write(writer, str(orphan).encode())
    finally:
        if orphan != 0:
            os._exit(0)
    return 0


def _fork() -> int | None:
    try:
        return os.fork()
    except OSError:
        # The launcher tries it itself, and its error says why.
        return None


def _become_peer(arguments: Sequence[str], stdin: int, log: int) -> None:
    """Become a process of its own: with a peer's files, name and random numbers, out of the group of Ctrl-C."""
    os.setpgid(0, 0)
    for file, standard in ((stdin, IN), (log, OUT), (log, ERR)):
        os.dup2(file, standard)
    os.close(stdin)
    os.close(log)
    # The user's code may draw from it, and all peers would draw the same numbers.
    np.random.seed()  # noqa: NPY002
    sys.argv = ["thanos-peer", "start", *arguments]
    _show_as(sys.argv)


def _show_as(words: Sequence[str]) -> None:
    """Have `ps` show a command, as far as there is room for it where this process has its own."""
    # Not every Python has ctypes, but that of every launcher of this process has it.
    import ctypes  # noqa: PLC0415

    with contextlib.suppress(OSError, ValueError, IndexError):  # ps shows another command then
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        # arg_start and arg_end: where the command stands in memory.
        start, end = int(fields[45]), int(fields[46])
        if 0 < start < end:
            shown = b"\0".join(map(os.fsencode, words))[: end - start - 1]
            ctypes.memmove(start, shown.ljust(end - start, b"\0"), end - start)
