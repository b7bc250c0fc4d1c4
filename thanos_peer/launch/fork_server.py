"""The fork server of `run`: a process that has loaded what a peer needs, and forks a peer on request.

A forked peer starts at once. All peers have the same code at the same addresses, so they share the caches of the
cores: with more peers than cores, every time slice begins less cold. A peer is a child of the launcher all the
same: it is forked twice, and Linux reparents it to the launcher when the process between has ended. Without a fork
server, because the system has no support or it has ended, each peer is a new program.
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

from thanos_peer.durable import open_private

READY: Final = b"ready"
# Bytes of a request, or of an answer, at most.
LONGEST: Final = 2**16
_PROGRAM: Final = (sys.executable, "-m", "thanos_peer")
# Bytes of a peer's command that `ps` shows.
_ROOM: Final = 2048
_PAUSE: Final = 0.02  # seconds between two looks
# Seconds that the fork server may take to be ready, or to answer, on however busy a machine.
_READY_TIMEOUT: Final = 120.0
# Seconds in which the fork server ends by itself, and says what was wrong.
_GRACE: Final = 5.0
_PR_SET_CHILD_SUBREAPER: Final = 36
# Exit code if no process can be made: that of a wrong setting, as that of a limit is.
_NO_PROCESS: Final = 3
_LOST: Final = "the process that peers are forked from has ended, or does not answer, while it makes this one"
Environment: TypeAlias = Mapping[str, str]


class ForkedProcess:
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


class PeerProcess:
    """The process of a peer; pending until the fork server, or a new program, has started it."""

    def __init__(self, server: "ForkServer") -> None:
        self._server = server
        self._process: ForkedProcess | subprocess.Popen[bytes] | None = None
        self._code: int | None = None

    def started(self, process: "ForkedProcess | subprocess.Popen[bytes]") -> None:
        """Note that it runs as this process."""
        self._process = process

    def failed(self, code: int) -> None:
        """Note that it has ended, with this exit code, before it was a process."""
        self._code = code

    @property
    def stdin(self) -> IO[bytes] | None:
        """What it reads from, as soon as it can."""
        return None if self._process is None else self._process.stdin

    def poll(self) -> int | None:
        """Its exit code, negative if a signal ended it; None while it runs or is pending."""
        if self._process is None and self._code is None:
            self._server.start_pending()
        return self._code if self._process is None else self._process.poll()

    def wait(self) -> int:
        """The same, once it has ended."""
        while (code := self.poll()) is None:
            time.sleep(_PAUSE)
        return code

    def send_signal(self, sig: int) -> None:
        """Send it a signal, if it still runs; a pending peer is not started any more."""
        if self._process is not None:
            self._process.send_signal(sig)
        elif self._code is None:
            self._server.cancel(self)
            self.failed(-sig)


class ForkServer:
    """The launcher's end of the fork server; peers that cannot be forked are started as new programs.

    Args:
        environment: Of the peers.
        forks: Whether to have them forked, if the system lets it.
    """

    def __init__(self, environment: Environment, *, forks: bool = True) -> None:
        self._environment = environment
        # Peers that are asked for, each with its arguments and its log.
        self._pending: dict[PeerProcess, tuple[list[str], Path]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._is_ready, self._ready_until = False, time.monotonic() + _READY_TIMEOUT
        # A process that ignores SIGCHLD is not told the exit codes of its children.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if forks and _becomes_subreaper():
            # If this fails, each peer is started as a new program.
            with contextlib.suppress(OSError):
                self._channel = self._open()

    def _open(self) -> socket.socket:
        """Start the fork server; returns the launcher's end of the channel to it."""
        channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        channel.settimeout(_READY_TIMEOUT)
        with theirs:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - our own command
                    # The spaces are room for the commands that `ps` is to show.
                    [*_PROGRAM, "fork-server", str(theirs.fileno()), " " * _ROOM],
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
        """Cancel the pending peers, and end the fork server; peers that run go on."""
        for peer in list(self._pending):
            peer.send_signal(signal.SIGTERM)
        self._stop_server()

    def start(self, arguments: Sequence[str], log: Path) -> PeerProcess:
        """A peer, as `thanos-peer start` with these arguments is one; what it says is appended to its log."""
        peer = PeerProcess(self)
        self._pending[peer] = list(arguments), log
        self.start_pending()
        return peer

    def cancel(self, peer: PeerProcess) -> None:
        """Do not start a pending peer."""
        self._pending.pop(peer, None)

    def start_pending(self) -> None:
        """Start the pending peers, unless the fork server may still become ready; does not wait for it."""
        if self._channel is not None and not self._is_ready:
            is_silent = not select.select([self._channel], [], [], 0)[0]
            if is_silent and time.monotonic() < self._ready_until:
                return
            self._is_ready = not is_silent and self._first_message() == READY
            if not self._is_ready:
                self._stop_server(_GRACE)
        for peer, (arguments, log) in list(self._pending.items()):
            self.cancel(peer)
            self._make(peer, arguments, log)

    def _make(self, peer: PeerProcess, arguments: list[str], log: Path) -> None:
        # Overridden below, unless no process can be made.
        peer.failed(_NO_PROCESS)
        with os.fdopen(open_private(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as file:
            try:
                peer.started(self._fork(arguments, file) or self._start_program(arguments, file))
            except _LostError:
                file.write(f"Error: {_LOST}\n".encode())
                self._stop_server(_GRACE)
            except OSError as error:
                file.write(f"Error: no process can be made for this peer: {error.strerror}\n".encode())

    def _fork(self, arguments: list[str], log: IO[bytes]) -> ForkedProcess | None:
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
        return ForkedProcess(int(pid), stdin) if pid.isdigit() else None

    def _ask(self, channel: socket.socket, request: bytes, *files: int) -> bytes:
        """The answer of the fork server to a request; empty if the request has not reached it.

        Raises:
            _LostError: It may have forked a peer, or not; such a peer has lost its standard input.
        """
        is_sent = False
        try:
            socket.send_fds(channel, [request], files)
            is_sent = True
            if answer := channel.recv(LONGEST):
                return answer
        except OSError:
            pass
        except BaseException:
            # The answer that is missing now must not be taken for the answer to a later request.
            self._stop_server()
            raise
        if is_sent:
            raise _LostError
        self._stop_server(_GRACE)
        return b""

    def _first_message(self) -> bytes:
        """The first message of the fork server; empty if it has ended."""
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

    def _stop_server(self, grace: float = 0.0) -> None:
        """End the fork server.

        Args:
            grace: Seconds in which it may end by itself, and report what was wrong.
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


def _becomes_subreaper() -> bool:
    """Have Linux reparent orphans below this process to it; False where that cannot be."""
    if sys.platform != "linux":
        return False
    with contextlib.suppress(ImportError):  # not every Python has ctypes
        import ctypes  # noqa: PLC0415

        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    return False
