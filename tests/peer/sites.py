"""A run of some sites with samples in files, and whether a peer of it says a word."""

import contextlib
import socket

import tomlkit
from processes import give_keys
from uneven import LEADING, PREPARED, raw_with_parts, some_parts

from thanos_peer.topology import load
from thanos_peer.topology.sections import IN_THE_CLEAR


def files_topology(
    directory,
    family="ring",
    sizes=(5, 6, 7, 8),
    *,
    method="gram",
    start=LEADING,
    has_keys=True,
    counts=True,
    masks=None,
    is_clear=False,
):
    raw = raw_with_parts(directory, some_parts(sizes), family, data=PREPARED, start=LEADING)
    raw["algorithm"] = {"method": method, "start": start} | ({} if masks is None else {"masks": masks})
    if is_clear:
        raw["unencrypted"] = IN_THE_CLEAR
    if counts:
        raw["peers"] = [peer | {"samples": size} for peer, size in zip(raw["peers"], sizes, strict=True)]
    (directory / "net.toml").write_text(tomlkit.dumps(raw), encoding="utf-8")
    topology = load(directory / "net.toml")
    return give_keys(topology) if has_keys else topology


def policy_in(directory, text):
    file = directory / "site.toml"
    file.write_text(text, encoding="utf-8")
    return file


@contextlib.contextmanager
def listening(topology, agent):
    """A listener at the address of each neighbor; yields how many connections have come there."""
    with contextlib.ExitStack() as stack:
        ports = [int(topology.peers[j].address.rpartition(":")[2]) for j in topology.graph.neighbors[agent]]
        ears = [stack.enter_context(socket.create_server(("127.0.0.1", port))) for port in ports]

        def count():
            found = 0
            for ear in ears:
                ear.settimeout(0.2)
                with contextlib.suppress(TimeoutError):
                    stack.enter_context(ear.accept()[0])
                    found += 1
            return found

        yield count
