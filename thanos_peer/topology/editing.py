"""Editing a topology file: other addresses or public keys, or another directory. Comments and the rest stay.

What is written is read and checked before it takes the place of what is there; its digest must not change.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit

from thanos_peer.block import AgentId
from thanos_peer.durable import flush_directory
from thanos_peer.errors import ConfigError
from thanos_peer.topology.load import load
from thanos_peer.topology.model import Topology
from thanos_peer.topology.variants import change_settings, set_method


def anchored(topology: Topology) -> tomlkit.TOMLDocument:
    """The file with paths that hold from anywhere: of data files, and of the start; all the rest stays.

    If another method or other settings were asked for, it has those.
    """
    document = tomlkit.parse(topology.file.read_text(encoding="utf-8"))
    if topology.other_method is not None:
        set_method(document, topology.other_method)
    change_settings(document, topology.other_settings)
    for peer in document["peers"]:
        if peer.get("data") is not None:
            peer["data"] = os.path.realpath(topology.directory / peer["data"])
    start = topology.algorithm.start
    if start.kind == "file":
        document["algorithm"]["start"]["path"] = os.path.realpath(topology.directory / start.path)
    return document


def rewritten(topology: Topology, file: Path, change: Callable[[tomlkit.TOMLDocument], None]) -> Topology:
    """The same topology in a file of its own, or changed where it is; comments and all the rest stay.

    The new text is checked before it takes the place of the old one.

    Args:
        topology: As it was read.
        file: Where the changed one goes; paths of data files and of the start go along.
        change: Changes it in place.
    """
    is_moved = file.parent.resolve() != topology.directory.resolve()
    document = anchored(topology) if is_moved else tomlkit.parse(topology.file.read_text(encoding="utf-8"))
    change(document)
    draft = file.with_name(f".{file.name}.new")
    try:
        with draft.open("w", encoding="utf-8") as text:
            text.write(tomlkit.dumps(document))
            text.flush()
            os.fsync(text.fileno())
        changed = load(draft, data_of=())
        if changed.digest != topology.digest:
            raise ConfigError(f"{topology.file} cannot be edited without changing its meaning; do it by hand")
        if file.exists():
            draft.chmod(stat.S_IMODE(file.stat().st_mode))
        draft.replace(file)
        flush_directory(file.parent)
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
    return Topology(changed.content, file, allowed_code=topology.allowed_code)


def tables_of(document: tomlkit.TOMLDocument) -> list[Any]:
    """The peers in a topology file."""
    return list(document["peers"])


def with_public_keys(
    topology: Topology, file: Path, keys: Mapping[AgentId, str], *, masks: bool | None = None
) -> Topology:
    """The same topology in a file, with these public keys; `file` may be where it was read.

    Args:
        topology: As it was read.
        file: Where it goes.
        keys: Of all peers.
        masks: What the file is to say of masks; None for what it says.
    """

    def put(document: tomlkit.TOMLDocument) -> None:
        document.pop("unencrypted", None)
        if masks is not None:
            said = tomlkit.item(masks)
            if not masks:
                said.comment("the keys were made for one machine, where there is no one to hide numbers from")
            document["algorithm"]["masks"] = said
        for peer in tables_of(document):
            body = peer.value.body
            end = max(number for number, (name, _) in enumerate(body, 1) if name is not None)
            # What follows the last key, a blank line or a comment, belongs to the next peer.
            after = body[end:]
            del body[end:]
            peer["public_key"] = keys[int(peer["id"])]
            body.extend(after)

    return rewritten(topology, file, put)


def with_ports(
    topology: Topology, file: Path, ports: Sequence[int], binds: Sequence[int] | None = None
) -> Topology:
    """The same topology in a new file, with every peer at a port of this machine.

    Args:
        topology: Whose peers they are.
        file: The new file.
        ports: Where each peer is reached.
        binds: Where each peer listens, if that is another port.
    """

    def move(document: tomlkit.TOMLDocument) -> None:
        for peer in tables_of(document):
            i = int(peer["id"])
            peer["address"] = f"tcp://127.0.0.1:{ports[i]}"
            peer.pop("bind", None)
            if binds is not None:
                peer["bind"] = f"tcp://127.0.0.1:{binds[i]}"

    return rewritten(topology, file, move)
