"""Keys: how they are made, where they lie, and what a peer may do without them.

Every peer has a CURVE pair. The public half stands in the topology file, the secret one in a file on the peer's
own host that only its owner may read. Rules:

1. With keys in the topology, every link is encrypted, and only the peer's own neighbors get in
   (`authenticator.py`).
2. Without keys, a peer listens and sends where its own host alone reaches it, unless the topology says otherwise
   in words; then every start warns, whatever else is logged.
3. Nothing falls back: what is missing or does not match is an error before any socket is opened.
"""

import logging
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import zmq

from thanos_peer.block import AgentId
from thanos_peer.errors import ConfigError
from thanos_peer.topology import Topology
from thanos_peer.topology.sections import IN_THE_CLEAR, check_key, is_local

log = logging.getLogger("thanos_peer")

LARGEST_SECRET_FILE = 1024  # bytes
SECRET_MODE, DIRECTORY_MODE = 0o600, 0o700
# The permissions of all users but the owner.
OTHERS = 0o077


@dataclass(frozen=True)
class KeyPair:
    """A CURVE pair in Z85; the secret half is not shown by accident."""

    public: str
    secret: str = field(repr=False)


@dataclass(frozen=True)
class Credentials:
    """Who a peer is, and whom it listens to.

    Attributes:
        agent: Its id.
        pair: Its own keys.
        neighbors: The public key of each of its neighbors.
    """

    agent: AgentId
    pair: KeyPair
    neighbors: Mapping[AgentId, str]

    def public_key(self, agent: AgentId) -> str:
        """The public key of a neighbor, or its own."""
        return self.pair.public if agent == self.agent else self.neighbors[agent]


def new_pair() -> KeyPair:
    """A new pair, from the operating system's randomness."""
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())


def make_keys(topology: Topology) -> dict[AgentId, KeyPair]:
    """A new pair for every peer of a topology."""
    return {peer.id: new_pair() for peer in topology.peers}


def public_keys(keys: Mapping[AgentId, KeyPair]) -> dict[AgentId, str]:
    """The public halves of some pairs, for the topology file."""
    return {agent: pair.public for agent, pair in keys.items()}


def secret_directory(file: Path) -> Path:
    """Where the secrets of a topology file lie unless told otherwise: ring.keys beside ring.toml."""
    return file.with_suffix(".keys")


def secret_file(directory: Path, agent: AgentId) -> Path:
    """The secret of a peer in there."""
    return directory / f"{agent}.secret"


def write_secret(path: Path, pair: KeyPair) -> None:
    """Write a new secret file that its owner alone can read; one that is there is never overwritten."""
    path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, SECRET_MODE)
    except FileExistsError as error:
        raise ConfigError(
            f"{path} exists already, and a secret is never overwritten; name another file"
        ) from error
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(
                f"# A secret of thanos-peer: it stays on this host. Its public key: {pair.public}\n{pair.secret}\n"
            )
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        # Half a secret would be in the way of a whole one.
        path.unlink()
        raise


def read_secret(path: Path) -> KeyPair:
    """The pair in a secret file.

    Raises:
        ConfigError: It is not there, others own it or can read it, or it holds something else.
    """
    try:
        text = _read_private(path)
    except OSError as error:
        raise ConfigError(
            f"the secret key {path} cannot be read: {error.strerror or error}; bring it to this host, name "
            "another with --secret-key, or make a new one with `thanos-peer keys new` and put its public key into "
            "the topology file of every peer"
        ) from error
    lines = [line.strip() for line in text.splitlines()]
    keys = [line for line in lines if line and not line.startswith("# ")]
    try:
        (key,) = keys
        return KeyPair(zmq.curve_public(check_key(key).encode()).decode(), key)
    except ValueError:
        # No line of the file is shown: it may be a secret.
        raise ConfigError(
            f"{path} is no secret key: besides comments it must hold one line, as `thanos-peer keys new` writes it"
        ) from None


def _read_private(path: Path) -> str:
    # With O_NONBLOCK there is no waiting for a pipe that stays empty.
    descriptor = os.open(
        path,
        os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC,
    )
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError(f"the secret key {path} is no ordinary file")
        if found.st_uid not in {os.geteuid(), 0}:
            raise ConfigError(
                f"the secret key {path} belongs to user {found.st_uid}, who can read it; if it is this peer's, "
                f"chown {os.geteuid()} {path}; else make a new one with `thanos-peer keys new`"
            )
        if found.st_mode & OTHERS:
            raise ConfigError(
                f"others may read or write the secret key {path} (mode {stat.S_IMODE(found.st_mode):04o}); if "
                f"no other user has seen it, chmod 600 {path}; else make a new one with `thanos-peer keys new`"
            )
        return file.read(LARGEST_SECRET_FILE).decode("ascii", errors="replace")


def credentials_of(topology: Topology, agent: AgentId, path: Path | None) -> Credentials | None:
    """The keys by which a peer and its neighbors know each other; None if the topology has none.

    Args:
        topology: Says the public keys.
        agent: Which peer this is.
        path: Its secret; None for the one beside the topology file.
    """
    if not topology.has_keys:
        if path is not None:
            raise ConfigError(
                f"--secret-key {path}: the peers of {topology.file} have no public keys; add them, or leave it out"
            )
        return None
    path = path or secret_file(secret_directory(topology.file), agent)
    pair, expected = read_secret(path), topology.peers[agent].public_key
    if pair.public != expected:
        raise ConfigError(
            f"the secret key {path} does not belong to peer {agent}: its public key is {pair.public}, but "
            f"{topology.file} says {expected}; use the secret of peer {agent}, or correct the file at every peer"
        )
    neighbors = topology.graph.neighbors[agent]
    return Credentials(agent, pair, {j: str(topology.peers[j].public_key) for j in neighbors})


def check_in_the_clear(topology: Topology, agent: AgentId, bind: str, status: str | None) -> None:
    """Refuse to speak in the clear where others than this host hear it, unless the topology says so; then warn.

    The inbox and what is sent are encrypted when there are keys; answers to `thanos-peer status` never are.
    """
    heard = (status,) if topology.has_keys else (bind, status)
    told = () if topology.has_keys else (*topology.graph.neighbors[agent], agent)
    listening = [address for address in heard if address is not None and not is_local(address)]
    addresses = [topology.peers[j].address for j in told]
    sending = [address for address in addresses if not is_local(address) and address not in listening]
    if not listening and not sending:
        return
    if topology.content.unencrypted is None:
        what = f"listen on {listening[0]}" if listening else f"send to {sending[0]}"
        way_out = (
            "status is answered in the clear: use an address of this host only, and ask from there"
            if topology.has_keys
            else "make keys with `thanos-peer keys new`, or use 127.0.0.1; to do without on purpose, write "
            f'unencrypted = "{IN_THE_CLEAR}" at the top of the topology file'
        )
        raise ConfigError(f"will not {what} unencrypted: others than this host reach it; {way_out}")
    speaking = [("listening on", listening), ("sending to", sending)]
    warning = ", ".join(f"{verb} {' and '.join(found)}" for verb, found in speaking if found)
    _warn_in_any_case(f"{warning} UNENCRYPTED: {IN_THE_CLEAR}")


def _warn_in_any_case(text: str) -> None:
    """Log a warning, even if warnings are not to be logged."""
    log.handle(log.makeRecord(log.name, logging.WARNING, __file__, 0, text, (), None))


def write_secrets(directory: Path, keys: Mapping[AgentId, KeyPair], *, replaces: bool = False) -> None:
    """Write the secrets of several peers into a directory that its owner alone can enter.

    Args:
        directory: Made if it is not there.
        keys: The pairs.
        replaces: Whether to remove older secrets of the same peers first.
    """
    paths = {agent: secret_file(directory, agent) for agent in keys}
    there = [path for path in paths.values() if path.exists()]
    if there and not replaces:
        raise ConfigError(f"{there[0]} exists already; with --replace old secrets are removed, and useless after")
    for path in there:
        path.unlink()
    for agent, pair in keys.items():
        write_secret(paths[agent], pair)
