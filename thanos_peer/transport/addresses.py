"""The addresses that peers listen at: whether this host can listen there, and why not."""

import errno
import socket
from urllib.parse import urlsplit

import zmq

from thanos_peer.errors import ConfigError
from thanos_peer.topology.sockets import check_socket

IN_USE = (
    "the address is in use; is this peer running already, or another program? (`thanos-peer run --free-ports` "
    "takes free ports instead)"
)


def check_can_listen(address: str) -> None:
    """See that a socket could listen at an address now.

    Raises:
        ConfigError: It could not.
    """
    _check_path(address)
    # Listening at a path would leave it behind.
    if not address.startswith("ipc://"):
        with zmq.Context() as context, context.socket(zmq.PULL) as probe:
            probe.setsockopt(zmq.IPV6, "[" in address)
            _bind(probe, address)


def listen(pull: "zmq.Socket[bytes]", address: str) -> None:
    """Have a socket listen at an address.

    Raises:
        ConfigError: It cannot.
    """
    _check_path(address)
    _bind(pull, address)


def _check_path(address: str) -> None:
    if is_taken(address):
        raise ConfigError(f"cannot listen on {address}: {IN_USE}")
    check_socket(address)


def _bind(pull: "zmq.Socket[bytes]", address: str) -> None:
    try:
        pull.bind(address)
    except zmq.ZMQError as error:
        raise ConfigError(f"cannot listen on {address}: {_explain(address, error)}") from error


def is_taken(address: str) -> bool:
    """Whether a process listens on an ipc address: ZeroMQ would take over its path."""
    if not address.startswith("ipc://"):
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(address.removeprefix("ipc://"))
        except OSError:
            # There is no such path, or a killed process has left it behind.
            return False
    return True


def unresolved_host(address: str) -> str | None:
    """The host of a tcp address if it is a name that does not resolve here and now."""
    parts = urlsplit(address)
    if parts.scheme != "tcp" or parts.hostname is None:
        return None
    try:
        socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
    except OSError:
        return parts.hostname
    return None


def _explain(address: str, error: zmq.ZMQError) -> str:
    name = unresolved_host(address)
    if name is not None:
        return f"the name {name} does not resolve"
    if error.errno == errno.EADDRINUSE:
        return IN_USE
    if error.errno in (errno.EADDRNOTAVAIL, errno.ENODEV):
        return "this host has no such address; listen elsewhere with --bind, for instance tcp://0.0.0.0:PORT"
    return str(error.strerror or error)
