"""What has gone over each edge of a peer."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from thanos_peer.block import AgentId


@dataclass(slots=True)
class EdgeCounters:
    """What went over one edge."""

    messages_sent: int = 0
    bytes_sent: int = 0
    messages_received: int = 0
    bytes_received: int = 0
    seconds_waited: float = 0.0
    dropped: int = 0


class Traffic:
    """The counters of all edges. What all neighbors are sent, as every block is, is counted once."""

    def __init__(self, neighbors: Iterable[AgentId]) -> None:
        self._edges = {j: EdgeCounters() for j in neighbors}
        self._messages_to_all, self._bytes_to_all = 0, 0

    def edge(self, neighbor: AgentId) -> EdgeCounters:
        """To count what is received on one edge; of what was sent, broadcasts are missing there."""
        return self._edges[neighbor]

    def note_sent(self, neighbors: Sequence[AgentId], size: int, dropped: Collection[AgentId]) -> None:
        """Count a message to some neighbors; for those in `dropped` there was no room."""
        if not dropped and len(neighbors) == len(self._edges):
            self._messages_to_all += 1
            self._bytes_to_all += size
            return
        for j in neighbors:
            counters = self._edges[j]
            if j in dropped:
                counters.dropped += 1
            else:
                counters.messages_sent += 1
                counters.bytes_sent += size

    def counters(self, neighbor: AgentId) -> EdgeCounters:
        """What went over one edge so far."""
        known = self._edges[neighbor]
        return replace(
            known,
            messages_sent=known.messages_sent + self._messages_to_all,
            bytes_sent=known.bytes_sent + self._bytes_to_all,
        )

    def facts(self) -> dict[str, dict[str, float]]:
        """All counters, by neighbor."""
        return {str(j): asdict(self.counters(j)) for j in self._edges}
