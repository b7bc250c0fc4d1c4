"""The process that the peers of `run` are forked from; see `runtime/nursery.py` for the launcher's end of it."""

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

from thanos_peer.cli.start import start_command
from thanos_peer.runtime.nursery import LONGEST, PROGRAM

LOADED_LATE = ("ctypes", "uvloop")  # what a peer loads only where it needs it, or if it is there
IN, OUT, ERR = range(3)


@click.command("nursery", hidden=True)
@click.argument("channel", type=int)
@click.argument("room")  # for the commands of peers, which are longer than that of this process
@click.pass_context
def nursery_command(context: click.Context, channel: int, room: str) -> None:  # noqa: ARG001
    """Fork a peer whenever the launcher asks for one, until it is gone; it is `run` that needs this."""
    try:
        launcher = socket.socket(fileno=channel)
    except (OSError, OverflowError) as error:
        raise click.UsageError("it is for `thanos-peer run` to start this") from error
    _show_as(["thanos-peer", "nursery"])
    for name in LOADED_LATE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is here lives as long as any peer: looking at it would only make copies of its pages
    with launcher:
        arguments = fork_when_asked(launcher)
    if arguments is not None:
        with start_command.make_context("start", arguments, parent=context.find_root()) as peer:
            start_command.invoke(peer)


def fork_when_asked(launcher: socket.socket) -> list[str] | None:
    """Serve the launcher; returns None when it is gone, and in every peer that is forked its arguments."""
    has_threads = len(list(Path("/proc/self/task").iterdir())) > 1
    launcher.send(b"ready")
    while True:
        request, files, _, _ = socket.recv_fds(launcher, LONGEST, 2)
        if not request:
            return None
        pid = _fork_orphan()
        if pid == "0":
            arguments: list[str] = json.loads(request)
            _become_peer(arguments, *files, has_threads=has_threads)
            return arguments
        launcher.send(pid.encode())
        for file in files:
            os.close(file)


def _fork_orphan() -> str:
    """Fork a process whose parent has ended when this returns: its number, or why there is none; 0 in itself."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)  # what is to be read has been written when the process between has ended
    try:
        between = os.fork()
        if between == 0:
            orphan = _fork()
            if orphan != "0":
                os.write(writer, orphan.encode())
                os._exit(0)
            return orphan
        os.waitpid(between, 0)
        return os.read(reader, LONGEST).decode()
    except OSError as error:
        return _cannot_fork(error)
    finally:
        os.close(reader)
        os.close(writer)


def _fork() -> str:
    try:
        return str(os.fork())
    except OSError as error:
        return _cannot_fork(error)


def _cannot_fork(error: OSError) -> str:
    return f"no process can be made for this peer: {error.strerror}"


def _become_peer(arguments: Sequence[str], stdin: int, log: int, *, has_threads: bool) -> None:
    """Be on one's own: with a peer's files and name, and no part of the group that Ctrl-C is for.

    Where there were threads that the fork has left behind, as of a BLAS that was told to use some, a new program.
    """
    os.setpgid(0, 0)
    for file, standard in ((stdin, IN), (log, OUT), (log, ERR)):
        os.dup2(file, standard)
    os.close(stdin)
    os.close(log)
    if has_threads:
        os.execv(sys.executable, [*PROGRAM, "start", *arguments])  # noqa: S606 - our own command
    sys.argv = ["thanos-peer", "start", *arguments]
    _show_as(sys.argv)


def _show_as(words: Sequence[str]) -> None:
    """Have `ps` show a command, as far as there is room for it where this process has its own."""
    import ctypes  # noqa: PLC0415 - not every Python has it, but every launcher of this process

    fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # of the command, as Linux numbers what it tells of a process
    if 0 < start < end:
        shown = "\0".join(words).encode(errors="replace")[: end - start - 1]
        ctypes.memmove(start, shown.ljust(end - start, b"\0"), end - start)
