"""A whole network in one process: real agents with real exchanges, or all of them stacked and stepped at once."""

from thanos_peer.simulate.network import AgentNetwork, Ended, Network, Snapshot
from thanos_peer.simulate.run import EndReason, Row, ending_of, measure, prepare, run
from thanos_peer.simulate.stacked import StackedNetwork

__all__ = [
    "AgentNetwork",
    "EndReason",
    "Ended",
    "Network",
    "Row",
    "Snapshot",
    "StackedNetwork",
    "ending_of",
    "measure",
    "prepare",
    "run",
]
