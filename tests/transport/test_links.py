"""Links to a neighbor whose listening end does not only listen."""

import asyncio
import contextlib
import socket

from thanos_peer.transport.links import Links

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x04\x1a\x05READY\x0bSocket-Type" + (4).to_bytes(4) + b"PULL"
PART = b"\x01\xfa" + bytes(250)  # more follow
# Bytes: more than are read between two looks.
MOST = 2**30


def test_a_listener_that_sends_parts_without_end_is_cut_off():
    def send_parts(server):
        connection, _ = server.accept()
        sent = 0
        with connection, contextlib.suppress(ConnectionError):
            connection.sendall(GREETING + READY)
            heard = b""
            while b"READY" not in heard:
                heard += connection.recv(256)
            while sent < MOST:
                connection.sendall(PART * 100)
                sent += 100 * len(PART)
        return sent

    async def main():
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(60)
            neighbors = {1: f"tcp://127.0.0.1:{server.getsockname()[1]}"}
            links = Links("tcp://127.0.0.1:*", neighbors, largest_frame=1000, on_frames=lambda *_: None)
            counts = [await asyncio.to_thread(send_parts, server) for _ in range(2)]  # it comes back
            links.close(linger=0)
        return counts

    assert max(asyncio.run(main())) < MOST
