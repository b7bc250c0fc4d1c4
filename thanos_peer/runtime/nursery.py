"""Where the peers of `run` come from: a process that has loaded what a peer needs, and forks one when asked to.

So a peer is there at once; and as all have the same code at the same addresses, what the cores remember of one
serves the others too: with more peers than cores, every turn begins less cold. A peer becomes a child of the
launcher nevertheless: it is forked twice, and Linux gives it to the launcher when the process between has ended.
Elsewhere than on Linux, each peer is started as a new program.
"""

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import IO, BinaryIO, Final, Protocol, TypeAlias

LONGEST: Final = 2**16  # bytes of a request, or of an answer
PROGRAM: Final = (sys.executable, "-m", "thanos_peer")
_ROOM: Final = 2048  # bytes of a peer's command that `ps` shows
_PAUSE: Final = 0.02  # seconds between two looks
_PATIENCE: Final = 120.0  # seconds that it may take to be ready, or to answer, on however busy a machine
_PR_SET_CHILD_SUBREAPER: Final = 36
_GONE: Final = "the process that peers are forked from has ended, or does not answer; run it again"
_NO_PROCESS: Final = 3  # the exit code of a wrong setting, as that of a limit is
Environment: TypeAlias = Mapping[str, str]


class Process(Protocol):
    """A peer's process, however it was started."""

    stdin: IO[bytes] | None

    def poll(self) -> int | None:
        """Its exit code, negative if a signal ended it; None while it runs."""

    def wait(self) -> int:
        """The same, once it has ended."""

    def send_signal(self, sig: int) -> None:
        """Send it a signal, if it still runs."""


class Offspring:
    """A forked peer; until the nursery is ready, it is one that is yet to be born."""

    def __init__(self, nursery: "Nursery", stdin: IO[bytes]) -> None:
        self._nursery = nursery
        self.stdin: IO[bytes] | None = stdin
        self._pid: int | None = None
        self._code: int | None = None

    def be_born(self, pid: int) -> None:
        """From now on it is a process."""
        self._pid = pid

    def never_be_born(self, code: int) -> None:
        """It ends before it is a process."""
        self._code = code

    def poll(self) -> int | None:
        """Its exit code, negative if a signal ended it; None while it runs, or is yet to."""
        if self._code is None and self._pid is None:
            self._nursery.tend()
        if self._code is None and self._pid is not None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self) -> int:
        """The same, once it has ended."""
        while (code := self.poll()) is None:
            time.sleep(_PAUSE)
        return code

    def send_signal(self, sig: int) -> None:
        """Send it a signal, if it still runs; whoever is yet to be born will not be."""
        if self.poll() is None:
            if self._pid is None:
                self._nursery.forget(self)
                self.never_be_born(-sig)
            else:
                os.kill(self._pid, sig)


class Nursery:
    """The launcher's end of the process that forks."""

    def __init__(self, environment: Environment) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                [*PROGRAM, "nursery", str(theirs.fileno()), " " * _ROOM],  # which that process overwrites
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,
                env=environment,
            )
        self._channel.settimeout(_PATIENCE)
        self._is_ready, self._ready_until = False, time.monotonic() + _PATIENCE
        self._unborn: dict[Offspring, tuple[bytes, int, int]] = {}  # its arguments, and its standard files

    def close(self) -> None:
        """End the process that forks, but no peer."""
        for peer in list(self._unborn):
            self.forget(peer)
        self._channel.close()
        self._end()

    def start(self, arguments: Sequence[str], log: BinaryIO) -> Offspring:
        """A peer, as `thanos-peer start` with these arguments is one."""
        reader, writer = os.pipe()
        peer = Offspring(self, os.fdopen(writer, "wb", buffering=0))
        self._unborn[peer] = json.dumps(list(arguments)).encode(), reader, os.dup(log.fileno())
        self.tend()
        return peer

    def tend(self) -> None:
        """Have those forked that are yet to be born, if the nursery is ready; does not wait for that."""
        if not self._is_ready:
            is_silent = not select.select([self._channel], [], [], 0)[0]
            if is_silent and time.monotonic() < self._ready_until:
                return
            if is_silent or not self._hear():
                self._channel.close()
            self._is_ready = True  # or will never be, and does not answer
        for peer, (request, stdin, log) in list(self._unborn.items()):
            answer = self._ask_for(request, stdin, log)
            if answer.isdigit():
                peer.be_born(int(answer))
            else:
                os.write(log, f"Error: {answer or _GONE}\n".encode())
                peer.never_be_born(_NO_PROCESS if answer else self._end())
            self.forget(peer)

    def _ask_for(self, request: bytes, *files: int) -> str:
        """Have a peer forked; the number of its process, or why there is none, or nothing if nobody answers."""
        with contextlib.suppress(OSError):
            socket.send_fds(self._channel, [request], files)
            if answer := self._hear():
                return answer
        self._channel.close()  # an answer that comes too late is not to be taken for another
        return ""

    def _end(self) -> int:
        """End the process that forks, if it has not; returns its exit code, negative if a signal ended it."""
        self._process.kill()
        return self._process.wait() or _NO_PROCESS

    def _hear(self) -> str:
        """What it says, or nothing."""
        with contextlib.suppress(OSError):
            return self._channel.recv(LONGEST).decode()
        return ""

    def forget(self, peer: Offspring) -> None:
        """Close the files of one that is not yet to be born any more."""
        for file in self._unborn.pop(peer)[1:]:
            os.close(file)


class NewPrograms:
    """Starts peers one by one, where they cannot be forked."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def close(self) -> None:
        """There is nothing to end but the peers."""

    def start(self, arguments: Sequence[str], log: BinaryIO) -> "subprocess.Popen[bytes]":
        """A peer, as `thanos-peer start` with these arguments is one."""
        return subprocess.Popen(  # noqa: S603 - our own command
            [*PROGRAM, "start", *arguments],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            process_group=0,
            env=self._environment,
        )


def open_nursery(environment: Environment) -> Nursery | NewPrograms:
    """What peers are started by: forked where that is possible, as new programs elsewhere."""
    return Nursery(environment) if _adopts_orphans() else NewPrograms(environment)


def _adopts_orphans() -> bool:
    """Have Linux give this process whoever is left by a child of it; False where that cannot be."""
    if sys.platform != "linux":
        return False
    with contextlib.suppress(ImportError):  # not every Python has ctypes
        import ctypes  # noqa: PLC0415

        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    return False
