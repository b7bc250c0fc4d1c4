"""What a peer knows of the network while it has no state to take part in it with."""

from dataclasses import dataclass

from thanos_peer.block import AgentId
from thanos_peer.errors import StateLostError
from thanos_peer.protocol.wire import Codec


@dataclass(frozen=True)
class Loss:
    """A neighbor has said that nobody can help this peer to where the network is.

    It is kept apart from the agent, whose state and epoch stay what they were: nothing of this is saved or passed
    on, for it is one neighbor's word. Only a new epoch puts it into effect.

    Attributes:
        error: What to end with, if no new epoch is wanted.
        epoch: The one that the network is said to be in.
        codec: For what is said in that epoch.
        known_to: The neighbors that have named it.
    """

    error: StateLostError
    epoch: int
    codec: Codec
    known_to: set[AgentId]
