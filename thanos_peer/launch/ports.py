"""Ports of this machine for all peers of a topology: free ones, or those in the file if they are free."""

import contextlib
import random
import socket

from thanos_peer.errors import ConfigError
from thanos_peer.topology import Topology
from thanos_peer.transport.addresses import check_can_listen

FREE_PORTS = "--free-ports"
# Ports that peers may get: below those that most systems give to outgoing connections.
PORTS = range(10_000, 32_768)


def free_ports(count: int) -> list[int]:
    """Ports of this machine that are free now, and kept for some time from other processes that look for one.

    They are none of those that systems give to outgoing connections: one of these could take a port before its
    peer listens there.
    """
    ports: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.append(port)
            _keep(probe)
        if len(ports) == count:
            return ports
    raise ConfigError(f"{count} free ports are needed, but there are {len(ports)} from {PORTS[0]} to {PORTS[-1]}")


def _keep(port: socket.socket) -> None:
    """Have the system remember a connection to this port.

    Then only a process that asks for this port, as ZeroMQ does, gets it. So it is for a minute or so (TIME_WAIT)
    after a connection that was ended first at this end.
    """
    # Only now: before it was bound, it could have got a port that is kept for another peer.
    port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port.listen(1)
    with socket.create_connection(port.getsockname(), timeout=1.0) as there:
        port.accept()[0].close()
        there.recv(1)


def check_addresses(topology: Topology) -> None:
    """See that every peer of a topology could listen here, at the address that is in the file.

    Raises:
        ConfigError: One could not.
    """
    for i, peer in enumerate(topology.peers):
        try:
            check_can_listen(peer.bind or peer.address)
        except ConfigError as error:
            way_out = "" if FREE_PORTS in str(error) else f"; {FREE_PORTS} gives every peer a port of this machine"
            raise ConfigError(f"peer {i} {error}{way_out}") from error
