"""A topology file that is to lie in another directory: its paths go along."""

import os

import tomlkit

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
