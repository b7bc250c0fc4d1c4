"""Connections that ZeroMQ keeps to itself, by the descriptors that it tells."""

import contextlib
import os
import socket
import struct

import zmq

BYTES_RECEIVED = struct.Struct("=128xQ")  # in Linux's struct tcp_info
# Linux alone has this option.
_TCP_INFO = getattr(socket, "TCP_INFO", -1)


def descriptor_of(frame: zmq.Frame) -> int | None:
    """By which connection a frame has come; None if ZeroMQ does not know, as with its oldest protocols.

    Where it does not, a property of that name that the sender has made up takes its place: anything.
    """
    try:
        descriptor = int(frame["__fd"])
    except (zmq.ZMQError, ValueError):
        return None
    return descriptor if 0 <= descriptor < 2**31 else None


def connection_of(descriptor: int) -> socket.socket:
    """A second handle on a connection; OSError if it is gone, or no socket."""
    second = os.dup(descriptor)
    try:
        return socket.socket(fileno=second)
    except OSError:
        os.close(second)
        raise


def received(connection: socket.socket) -> int:
    """How many bytes have come by a connection; OSError where the system does not count them."""
    raw = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, BYTES_RECEIVED.size)
    return int(BYTES_RECEIVED.unpack(raw)[0]) if len(raw) == BYTES_RECEIVED.size else 0


def address_of(descriptor: int) -> str:
    """The host at the other end; nothing if that is this host, or if it has hung up already."""
    with contextlib.suppress(OSError), connection_of(descriptor) as connection:
        name = connection.getpeername()
        return str(name[0]) if isinstance(name, tuple) else ""
    return ""


def cut(descriptor: int, endpoint: str) -> None:
    """Close a listening socket's connection under ZeroMQ's hands, unless the number means something else by now.

    Args:
        descriptor: Of the connection.
        endpoint: Where the socket listens.
    """
    with contextlib.suppress(OSError), connection_of(descriptor) as connection:
        here = connection.getsockname()
        end = f":{here[1]}" if isinstance(here, tuple) else os.fsdecode(here).lstrip("\0")
        if end and endpoint.endswith(end):
            connection.shutdown(socket.SHUT_RDWR)
