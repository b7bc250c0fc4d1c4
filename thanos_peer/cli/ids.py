"""`--id`: which peer of a topology is meant."""

from thanos_peer.block import AgentId
from thanos_peer.errors import ConfigError
from thanos_peer.topology import Topology


def check_id(topology: Topology, agent: AgentId) -> None:
    """Refuse an id that no peer of the file has; it may also come from a rank, or from the name of a pod.

    Raises:
        ConfigError: There is no such peer.
    """
    if agent >= topology.d:
        raise ConfigError(f"--id {agent}: {topology.file} has the peers 0 to {topology.d - 1}")
