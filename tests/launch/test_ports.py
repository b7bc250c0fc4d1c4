"""Free ports stay free until a peer listens there."""

import socket

import pytest
import zmq

from thanos_peer.launch.ports import free_ports


def test_free_ports_are_kept_for_the_peers_until_they_listen():
    ports = free_ports(8)
    assert not set(ports) & set(free_ports(100))
    with zmq.Context() as context:
        for port in ports:
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))
            with context.socket(zmq.PULL) as inbox:
                inbox.bind(f"tcp://127.0.0.1:{port}")
