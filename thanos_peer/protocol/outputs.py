"""What a session wants done: it returns these, in order, and the peer performs them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from thanos_peer.block import AgentId
from thanos_peer.protocol.messages import Message

if TYPE_CHECKING:
    from thanos_peer.agent import Memory

Level: TypeAlias = Literal["info", "warning"]


class Send(NamedTuple):
    """Send a message to some neighbors, in the words of an epoch."""

    to: Sequence[AgentId]
    message: Message
    epoch: int


class Log(NamedTuple):
    """Write a line to the log."""

    level: Level
    text: str


class Save(NamedTuple):
    """Save what the agent needs to go on, and say when that is done.

    Attributes:
        memory: What to save.
        is_urgent: Whether nothing may be sent before it is saved: the start of an epoch.
    """

    memory: "Memory"
    is_urgent: bool = False


class LookUp(NamedTuple):
    """Find out whether the hosts of these neighbors resolve, and say so."""

    neighbors: Sequence[AgentId]


class Disconnect(NamedTuple):
    """Close the link to an address that is not needed any more."""

    neighbor: AgentId


class Pause(NamedTuple):
    """Close the connections of a neighbor, and let it in again after some seconds."""

    neighbor: AgentId
    seconds: float


class EnteredRound(NamedTuple):
    """The agent is in a new round of the main phase: a trajectory may be kept."""


class AdvanceSoon(NamedTuple):
    """The next round is complete already: call `advance` after other callbacks had their turn."""


class ResultReady(NamedTuple):
    """The last round is saved: write the result."""


class ResultWithdrawn(NamedTuple):
    """A new epoch has begun: the result of the last one does not hold."""


class Finished(NamedTuple):
    """The session is over; with an error if it failed."""

    error: BaseException | None = None


Output: TypeAlias = (
    Send
    | Log
    | Save
    | LookUp
    | Disconnect
    | Pause
    | EnteredRound
    | AdvanceSoon
    | ResultReady
    | ResultWithdrawn
    | Finished
)
