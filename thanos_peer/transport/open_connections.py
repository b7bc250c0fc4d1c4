"""Which connections are open, whose they are, and which of too many is to be closed."""

from collections import Counter
from collections.abc import Iterator

from thanos_peer.block import AgentId

# Connections: descriptors and addresses, in order of arrival.
Group = dict[int, str]


class OpenConnections:
    """The open connections of an inbox: strangers, which have sent no message so far, and the neighbors'.

    Args:
        most_links: How many of one neighbor may be open; without keys, of all together.

    Attributes:
        strangers: Those without a message.
    """

    def __init__(self, most_links: int) -> None:
        self.strangers: Group = {}
        self._links: dict[AgentId | None, Group] = {}  # by neighbor; None without keys
        self._most_links = most_links

    def __iter__(self) -> Iterator[int]:
        return (descriptor for group in self._groups() for descriptor in group)

    def __contains__(self, descriptor: int) -> bool:
        return any(descriptor in group for group in self._groups())

    def _groups(self) -> Iterator[Group]:
        yield self.strangers
        yield from self._links.values()

    def address(self, descriptor: int) -> str:
        """Where it comes from; nothing if that is not known."""
        return next((group[descriptor] for group in self._groups() if descriptor in group), "")

    def of(self, speaker: AgentId | None) -> list[int]:
        """Those of a neighbor."""
        return [*self._links.get(speaker, ())]

    def hear(self, descriptor: int, speaker: AgentId | None) -> int | None:
        """A message has come: it is a stranger no longer. Returns one of this neighbor's too many."""
        if descriptor not in self.strangers:
            return None
        links = self._links.setdefault(speaker, {})
        links[descriptor] = self.strangers.pop(descriptor)
        return oldest_of_most(links) if len(links) > self._most_links else None

    def forget(self, descriptor: int) -> None:
        """It is closed."""
        for group in self._groups():
            group.pop(descriptor, None)


def oldest_of_most(group: Group) -> int:
    """The oldest connection of the address that has the most."""
    largest, _ = Counter(group.values()).most_common(1)[0]
    return next(each for each, address in group.items() if address == largest)
