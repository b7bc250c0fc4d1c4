"""Whether the peer of this container answers: `python -m thanos_peer.peer.health`.

An engine asks every few seconds, in every container. So this loads nothing but Python's own sockets: a small part
of the time that `thanos-peer status` takes, most of which goes into loading what a peer needs.
"""

import os
import socket
import sys
import time

HEALTH_TIMEOUT = 3.0  # seconds
PAUSE = 0.02  # seconds
LARGEST_ANSWER = 2**24  # bytes


def unix_name(address: str) -> str:
    """The name of a local socket, for Python: a path, or Linux's own kind of name, which begins with @."""
    name = address.removeprefix("ipc://")
    return f"\0{name[1:]}" if name.startswith("@") else name


def place_of(address: str) -> tuple[str, int]:
    """Host and port of a tcp address."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return host.strip("[]"), int(port)


def answer_at(address: str, *, timeout: float) -> bytes:
    """What is sent there to each connection.

    Raises:
        OSError: Nothing is, or not within that many seconds.
    """
    until = time.monotonic() + timeout
    answer = bytearray()
    with _connected(address, until) as connection:
        while len(answer) <= LARGEST_ANSWER:
            connection.settimeout(_left(until))
            if not (chunk := connection.recv(65536)):
                return bytes(answer)
            answer += chunk
    raise OSError(f"more than {LARGEST_ANSWER} bytes")


def _connected(address: str, until: float) -> socket.socket:
    if not address.startswith("ipc://"):
        return socket.create_connection(place_of(address), _left(until))
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_left(until))
        while not _is_let_in(connection, unix_name(address)):
            time.sleep(min(PAUSE, _left(until)))
    except OSError:
        connection.close()
        raise
    return connection


def _is_let_in(connection: socket.socket, name: str) -> bool:
    """Connect to a local socket, unless too many are waiting there already."""
    try:
        connection.connect(name)
    except BlockingIOError:
        return False
    return True


def _left(until: float) -> float:
    """Seconds until then."""
    if (left := until - time.monotonic()) <= 0:
        raise TimeoutError
    return left


def _is_well(address: str) -> bool:
    try:
        return answer_at(address, timeout=HEALTH_TIMEOUT).endswith(b"\n")
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(0 if _is_well(os.environ["THANOS_PEER_STATUS"]) else 1)
