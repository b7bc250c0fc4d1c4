"""The authenticator of a peer (ZAP): which keys may connect.

ZeroMQ asks it about the key of each new connection. Only the keys of the peer's neighbors, and its own, are
accepted. Frames carry the id that belongs to the key of their connection: the key says who speaks, and a message
in another's name is refused. Nothing here waits, and no callback answers more than MOST_AT_ONCE requests. Limits
on the number of connections are in `connections.py`.
"""

import asyncio
import contextlib
import logging
import resource

import zmq
from zmq.utils import z85

from thanos_peer.block import AgentId
from thanos_peer.errors import ConfigError
from thanos_peer.transport.connections import MOST_AT_ONCE, Connections
from thanos_peer.transport.keys import Credentials

log = logging.getLogger("thanos_peer")

DOMAIN = b"thanos-peer"
# Open files that ZeroMQ cannot use up: it has to stop before.
ENOUGH_FILES = 4096
# Files that a peer needs without any stranger: in any case, and per neighbor. With fewer, libzmq would abort.
FEWEST_FILES, FILES_PER_NEIGHBOR = 32, 5
# Status codes: after a 400 ZeroMQ would never try again, even with a new file at this end.
ACCEPTED, REFUSED = b"200", b"300"
WRONG_KEY = "it has a key that is no neighbor's"
PAUSED = "it has the key of a neighbor that has sent too much that was refused"
_NOBLOCK = int(zmq.NOBLOCK)


def allow_many_files(neighbors: int) -> None:
    """Raise the limit on open files: connections of strangers must not keep the peer from saving.

    Args:
        neighbors: How many this peer has.

    Raises:
        ConfigError: The limit is too low for the peer itself.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems have a lower limit of their own.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = FEWEST_FILES + FILES_PER_NEIGHBOR * neighbors
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise ConfigError(
            f"this process may open {limit} files only, and this peer needs {needed} for its {neighbors} "
            f"neighbor(s); raise the limit, best to {ENOUGH_FILES} (ulimit -n {ENOUGH_FILES}, or LimitNOFILE= of "
            "a systemd unit)"
        )
    if limit != resource.RLIM_INFINITY and limit < ENOUGH_FILES:
        log.warning("this peer may open %d files only; %d keep strangers from using them up", limit, ENOUGH_FILES)


class Authenticator:
    """Authenticates the connections to an inbox that is not bound yet; use it inside a running event loop.

    Args:
        context: Of the inbox.
        inbox: Gets its keys here.
        credentials: Of this peer and its neighbors.
        connections: Those of the inbox; they log a refused key when its connection is closed.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        inbox: "zmq.Socket[bytes]",
        credentials: Credentials,
        connections: Connections,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        known = {agent: credentials.public_key(agent) for agent in (*credentials.neighbors, credentials.agent)}
        self._ids = {z85.decode(key.encode()): str(agent).encode() for agent, key in known.items()}
        self._speakers = {str(agent): agent for agent in known}
        self._connections = connections
        self._requests: zmq.Socket[bytes] = context.socket(zmq.REP)
        self._requests.linger = 0
        self._requests.bind("inproc://zeromq.zap.01")
        inbox.curve_server = True
        inbox.curve_publickey = credentials.pair.public.encode()
        inbox.curve_secretkey = credentials.pair.secret.encode()
        inbox.zap_domain = DOMAIN
        inbox.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # refuse if there is no answer
        self._loop.add_reader(self._requests.fileno(), self._answer)
        # The descriptor becomes readable again only after a read that found nothing.
        self._loop.call_soon(self._answer)

    def speaker_of(self, frame: zmq.Frame) -> AgentId:
        """Whose key a frame came with."""
        return self._speakers[str(frame["User-Id"])]

    def _answer(self) -> None:
        """Answer ZeroMQ's requests about keys."""
        with contextlib.suppress(zmq.Again):
            for _ in range(MOST_AT_ONCE):
                if self._requests.closed:
                    return
                version, request, _, address, _, mechanism, *shown = self._requests.recv_multipart(_NOBLOCK)
                name = self._ids.get(shown[0]) if mechanism == b"CURVE" and len(shown) == 1 else None
                why = self._objection(name)
                code = ACCEPTED if why is None else REFUSED
                self._requests.send_multipart([version, request, code, b"", name or b"", b""], _NOBLOCK)
                if why is not None:
                    self._connections.refusals.latest = why, f"from {_printable(address)}"
            self._loop.call_soon(self._answer)

    def _objection(self, name: bytes | None) -> str | None:
        """Why a connection with the key of this name is refused; None if it is not."""
        if name is None:
            return WRONG_KEY
        return PAUSED if self._connections.is_paused(self._speakers[name.decode()]) else None

    def close(self) -> None:
        """Stop answering, after the inbox is closed."""
        self._loop.remove_reader(self._requests.fileno())
        self._requests.close(linger=0)


def _printable(raw: bytes) -> str:
    return ascii(raw[:64].decode("ascii", errors="replace"))
