"""The topology file: one TOML file that says everything all agents must agree on, checked before it is used."""

from thanos_peer.topology.load import load, parse
from thanos_peer.topology.model import Topology

__all__ = ["Topology", "load", "parse"]
