"""Where the peers of `run` come from: a process that has loaded what a peer needs, and forks one when asked to.

So a peer is there at once; and as all have the same code at the same addresses, what the cores remember of one
serves the others too: with more peers than cores, every turn begins less cold. A peer becomes a child of the
launcher nevertheless: it is forked twice, and Linux gives it to the launcher when the process between has ended.
Where there is no such process, because the system does not help or it has ended, each peer is a new program.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final, TypeAlias

READY: Final = b"ready"
LONGEST: Final = 2**16  # bytes of a request, or of an answer
_PROGRAM: Final = (sys.executable, "-m", "thanos_peer")
_ROOM: Final = 2048  # bytes of a peer's command that `ps` shows
_PAUSE: Final = 0.02  # seconds between two looks
_PATIENCE: Final = 120.0  # seconds that it may take to be ready, or to answer, on however busy a machine
_GRACE: Final = 5.0  # seconds in which it ends by itself, and says what was wrong
_PR_SET_CHILD_SUBREAPER: Final = 36
_NO_PROCESS: Final = 3  # the exit code of a wrong setting, as that of a limit is
_LOST: Final = "the process that peers are forked from has ended, or does not answer, while it makes this one"
Environment: TypeAlias = Mapping[str, str]


class Forked:
    """A child of this process that another has forked; with what is needed here of `subprocess.Popen`."""

    def __init__(self, pid: int, stdin: IO[bytes]) -> None:
        self._pid = pid
        self._code: int | None = None
        self.stdin: IO[bytes] | None = stdin

    def poll(self) -> int | None:
        """Its exit code, negative if a signal ended it; None while it runs."""
        return self._code if self._code is not None else self._look(os.WNOHANG)

    def wait(self) -> int:
        """The same, once it has ended."""
        while (code := self.poll()) is None:
            self._look(0)
        return code

    def _look(self, options: int) -> int | None:
        pid, status = os.waitpid(self._pid, options)
        self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def send_signal(self, sig: int) -> None:
        """Send it a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self._pid, sig)


class Offspring:
    """A peer: at first one that is yet to be born, then its process."""

    def __init__(self, nursery: "Nursery") -> None:
        self._nursery = nursery
        self._process: Forked | subprocess.Popen[bytes] | None = None
        self._code: int | None = None

    def be_born(self, process: "Forked | subprocess.Popen[bytes]") -> None:
        """From now on it is a process."""
        self._process = process

    def never_be_born(self, code: int) -> None:
        """It ends before it is a process."""
        self._code = code

    @property
    def stdin(self) -> IO[bytes] | None:
        """What it reads from, as soon as it can."""
        return None if self._process is None else self._process.stdin

    def poll(self) -> int | None:
        """Its exit code, negative if a signal ended it; None while it runs, or is yet to."""
        if self._process is None and self._code is None:
            self._nursery.tend()
        return self._code if self._process is None else self._process.poll()

    def wait(self) -> int:
        """The same, once it has ended."""
        while (code := self.poll()) is None:
            time.sleep(_PAUSE)
        return code

    def send_signal(self, sig: int) -> None:
        """Send it a signal, if it still runs; whoever is yet to be born will not be."""
        if self._process is not None:
            self._process.send_signal(sig)
        elif self._code is None:
            self._nursery.forget(self)
            self.never_be_born(-sig)


class Nursery:
    """The launcher's end of the process that forks; peers that it cannot have forked, it starts as programs.

    Args:
        environment: Of the peers.
        forks: Whether to have them forked, if the system lets it.
    """

    def __init__(self, environment: Environment, *, forks: bool = True) -> None:
        self._environment = environment
        self._unborn: dict[Offspring, tuple[list[str], Path]] = {}  # with its arguments, and its log
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._is_ready, self._ready_until = False, time.monotonic() + _PATIENCE
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who ignores it does not hear how a child has ended
        if forks and _adopts_orphans():
            with contextlib.suppress(OSError):  # then each peer is tried as a new program
                self._channel = self._open()

    def _open(self) -> socket.socket:
        """Start the process that forks; returns this end of what joins both."""
        channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        channel.settimeout(_PATIENCE)
        with theirs:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - our own command
                    [*_PROGRAM, "nursery", str(theirs.fileno()), " " * _ROOM],  # which that process overwrites
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    process_group=0,
                    env=self._environment,
                )
            except OSError:
                channel.close()
                raise
        return channel

    def close(self) -> None:
        """Let nobody else be born, and end the process that forks; those that are there it does not touch."""
        for peer in list(self._unborn):
            peer.send_signal(signal.SIGTERM)
        self._do_without()

    def start(self, arguments: Sequence[str], log: Path) -> Offspring:
        """A peer, as `thanos-peer start` with these arguments is one; what it says is appended to its log."""
        peer = Offspring(self)
        self._unborn[peer] = list(arguments), log
        self.tend()
        return peer

    def forget(self, peer: Offspring) -> None:
        """Do not have it forked."""
        self._unborn.pop(peer, None)

    def tend(self) -> None:
        """Have those made that are yet to be born, if it is clear by whom; does not wait for that."""
        if self._channel is not None and not self._is_ready:
            is_silent = not select.select([self._channel], [], [], 0)[0]
            if is_silent and time.monotonic() < self._ready_until:
                return
            self._is_ready = not is_silent and self._hear() == READY
            if not self._is_ready:
                self._do_without(_GRACE)
        for peer, (arguments, log) in list(self._unborn.items()):
            self.forget(peer)
            self._make(peer, arguments, log)

    def _make(self, peer: Offspring, arguments: list[str], log: Path) -> None:
        peer.never_be_born(_NO_PROCESS)  # unless all goes well
        with log.open("ab") as file:
            try:
                peer.be_born(self._fork(arguments, file) or self._start_program(arguments, file))
            except _LostError:
                file.write(f"Error: {_LOST}\n".encode())
                self._do_without(_GRACE)
            except OSError as error:
                file.write(f"Error: no process can be made for this peer: {error.strerror}\n".encode())

    def _fork(self, arguments: list[str], log: IO[bytes]) -> Forked | None:
        """Have a peer forked; None if that cannot be."""
        request = json.dumps(arguments).encode()
        if self._channel is None or len(request) > LONGEST:
            return None
        reader, writer = os.pipe()
        stdin, pid = os.fdopen(writer, "wb", buffering=0), b""
        try:
            pid = self._ask(self._channel, request, reader, log.fileno())
        finally:
            os.close(reader)
            if not pid.isdigit():
                stdin.close()
        return Forked(int(pid), stdin) if pid.isdigit() else None

    def _ask(self, channel: socket.socket, request: bytes, *files: int) -> bytes:
        """What the process that forks says to a request; nothing if that has not reached it.

        Raises:
            _LostError: It has, but nobody knows whether there is a peer; if so, that has lost its standard input.
        """
        is_sent = False
        try:
            socket.send_fds(channel, [request], files)
            is_sent = True
            if answer := channel.recv(LONGEST):
                return answer
        except OSError:
            pass
        except BaseException:  # the answer that is missing now is not to be taken for that to another request
            self._do_without()
            raise
        if is_sent:
            raise _LostError
        self._do_without(_GRACE)
        return b""

    def _hear(self) -> bytes:
        """What the process that forks says first; nothing if it has ended."""
        with contextlib.suppress(OSError):
            return b"" if self._channel is None else self._channel.recv(LONGEST)
        return b""

    def _start_program(self, arguments: list[str], log: IO[bytes]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(  # noqa: S603 - our own command
            [*_PROGRAM, "start", *arguments],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            process_group=0,
            env=self._environment,
        )

    def _do_without(self, grace: float = 0.0) -> None:
        """End the process that forks.

        Args:
            grace: Seconds in which it may end by itself, and say what was wrong.
        """
        if self._process is None or self._channel is None:
            return
        if not grace:
            self._process.kill()
        self._channel.close()
        self._channel = None
        try:
            self._process.wait(grace or None)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _LostError(Exception):
    pass


def _adopts_orphans() -> bool:
    """Have Linux give this process whoever is left by a child of it; False where that cannot be."""
    if sys.platform != "linux":
        return False
    with contextlib.suppress(ImportError):  # not every Python has ctypes
        import ctypes  # noqa: PLC0415

        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    return False
