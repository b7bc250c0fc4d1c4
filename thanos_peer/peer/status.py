"""What a running peer is doing, asked of the peer itself.

Every peer answers on a socket of its own host, named after the run and its id, and on another address if it is
told one. Each connection is sent one JSON object and a line feed; nothing is read, so nothing can be changed this
way. Answers are not encrypted. Rules:

1. On local sockets the peer's own user is answered, and root, and no other user.
2. Any other address is one of its own host too, unless the topology file says otherwise in words
   (`keys.check_in_the_clear`).
3. There are MOST_ANSWERS connections at a time, for ANSWER_TIMEOUT seconds each; others wait in the kernel's
   queue. When files run out, the peer goes on and answers later.
"""

import asyncio
import contextlib
import errno
import json
import logging
import os
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from thanos_peer.block import AgentId
from thanos_peer.errors import ConfigError, printable
from thanos_peer.peer.health import answer_at, place_of, unix_name
from thanos_peer.topology import Topology
from thanos_peer.topology.sections import check_address
from thanos_peer.topology.sockets import directory_fault, path_fault
from thanos_peer.transport.addresses import is_taken

log = logging.getLogger("thanos_peer")

# Connections per callback, so that endless requests do not stop the rounds.
MOST_AT_ONCE = 4
MOST_ANSWERS = 8
ANSWER_TIMEOUT = 2.0  # seconds that an answer may take
# Seconds until the next connection is let in, after one too many.
PAUSE = 0.1
ASKED_AT_ONCE = 32
LONGEST_PROBLEM = 200  # characters
# The process at the other end: its id, its user, its group.
_CREDENTIALS = struct.Struct("=iII")


Text = Annotated[str, AfterValidator(printable)]
Count = Annotated[int, Field(ge=0)]


class EdgeStatus(BaseModel):
    """What went over one edge, as far as it is shown."""

    model_config = ConfigDict(extra="allow", strict=True)

    messages_sent: Count
    messages_received: Count


class RefusedStatus(BaseModel):
    """What a peer has refused of one neighbor, and for how long it has closed its connection."""

    model_config = ConfigDict(extra="allow", strict=True)

    id: Count
    refused: Count
    latest: Text
    seconds_closed: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class PeerStatus(BaseModel):
    """A peer's answer: what is shown is checked, and what is not is kept."""

    model_config = ConfigDict(extra="allow", strict=True)

    id: Count
    name: Text
    round: Count
    phases: list[Text]
    phase: Text
    phase_round: Count
    last_round: Count
    epoch: Count
    is_done: bool
    residual: float | None = None
    tolerance: float | None = None
    verdict: Text | None = None
    waiting: list[Text]
    rejected: Count
    misbehaving: list[RefusedStatus]
    edges: dict[str, EdgeStatus]

    @model_validator(mode="after")
    def _is_in_a_phase(self) -> "PeerStatus":
        if self.phase not in self.phases:
            raise ValueError(f"phase {self.phase} is none of its phases")
        return self


def local_address(topology: Topology, agent: AgentId) -> str:
    """Where a peer on this host answers."""
    name = f"thanos-peer-{topology.digest[:16]}-{agent}"
    return f"ipc://@{name}" if sys.platform == "linux" else f"ipc://{tempfile.gettempdir()}/{name}"


class StatusServer:
    """Answers on some addresses until it is closed; use it inside a running event loop.

    Args:
        local: The address on this host. If it is taken, another peer of the same run and id is here; that is
            said, and this one goes on without.
        extra: One more address, or None.
        status: Gives the answer.
    """

    def __init__(self, local: str, extra: str | None, status: Callable[[], dict[str, Any]]) -> None:
        self._status, self._loop = status, asyncio.get_running_loop()
        self._listeners: dict[socket.socket, str] = {}
        self._answers: set[asyncio.Task[None]] = set()
        try:
            self._listen(local)
        except OSError as error:
            why = "is taken by a peer of the same run and id on this host"
            log.warning(
                "no local status: %s %s", local, why if error.errno == errno.EADDRINUSE else error.strerror
            )
        if extra is not None:
            try:
                self._listen(extra)
            except OSError as error:
                self.close()
                raise ConfigError(
                    f"cannot answer status requests on {extra}: {error.strerror or error}"
                ) from error

    def _listen(self, address: str) -> None:
        listener = _open(address)
        self._listeners[listener] = address
        listener.settimeout(0)
        self._loop.add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        """Let some in, and tell them."""
        for _ in range(MOST_AT_ONCE):
            if len(self._answers) >= MOST_ANSWERS:
                self._pause(listener)
                return
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError:  # no more files, or no memory
                self._pause(listener)
                return
            if not _is_one_of_us(connection):
                connection.close()
                continue
            answer = f"{json.dumps(self._status())}\n".encode()
            task = self._loop.create_task(self._tell(connection, answer))
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)

    def _pause(self, listener: socket.socket) -> None:
        """Let those that wait do so for a moment."""
        self._loop.remove_reader(listener)
        self._loop.call_later(PAUSE, self._resume, listener)

    def _resume(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)

    async def _tell(self, connection: socket.socket, answer: bytes) -> None:
        connection.settimeout(0)
        with connection, contextlib.suppress(OSError):  # TimeoutError is one
            async with asyncio.timeout(ANSWER_TIMEOUT):
                await self._loop.sock_sendall(connection, answer)

    def close(self) -> None:
        """Stop answering."""
        for task in self._answers:
            task.cancel()
        for listener, address in self._listeners.items():
            self._loop.remove_reader(listener)
            listener.close()
            if address.startswith("ipc://") and not address.startswith("ipc://@"):
                Path(unix_name(address)).unlink(missing_ok=True)
        self._listeners.clear()


def _open(address: str) -> socket.socket:
    """A socket that listens there; a path that a killed peer has left behind is taken over."""
    if not address.startswith("ipc://"):
        family = socket.AF_INET6 if "[" in address else socket.AF_INET
        return socket.create_server(place_of(address), family=family)
    name = unix_name(address)
    if not name.startswith("\0"):
        if is_taken(address):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        if (fault := path_fault(Path(name)) or directory_fault(Path(name))) is not None:
            raise OSError(errno.EPERM, fault)
        Path(name).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(name)
        if not name.startswith("\0"):
            Path(name).chmod(stat.S_IRUSR | stat.S_IWUSR)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def _is_one_of_us(connection: socket.socket) -> bool:
    """Whether the other end of a local socket is this user's, or root's; elsewhere the address has to do."""
    if connection.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return True
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(raw)[1] in {os.geteuid(), 0}


def ask(addresses: Sequence[str], *, timeout: float) -> list[PeerStatus | str]:
    """Ask the peers at some addresses, all at once; for those that give no sound answer in time, why."""
    for address in addresses:
        try:
            check_address(address)
        except ValueError as error:
            raise ConfigError(f"{address!a} is no address that can be asked: it {error}") from None
    if not addresses:
        return []
    with ThreadPoolExecutor(min(ASKED_AT_ONCE, len(addresses))) as pool:
        return list(pool.map(partial(_ask, timeout=timeout), addresses))


def _ask(address: str, *, timeout: float) -> PeerStatus | str:
    try:
        answer = answer_at(address, timeout=timeout)
        if not answer:
            return "no answer to this user: only the one that runs the peer is told, and root"
        return PeerStatus.model_validate(json.loads(answer))
    except TimeoutError:
        return f"no answer within {timeout:g} s"
    except OSError as error:
        return f"no answer ({error.strerror or error})"
    except ValidationError as error:
        first = error.errors()[0]
        what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except (ValueError, RecursionError):
        what = "it is no JSON"
    return f"something answers there, but not as a peer of this version does ({printable(what)[:LONGEST_PROBLEM]})"
