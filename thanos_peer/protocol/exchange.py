"""The rules of a round, for one agent.

1. Neighbors are at most one round apart: neither finishes round k without the other's block k. So an inbox
   holds blocks of rounds k and k + 1, and nothing else.
2. A block from the past, or one that is here already, is a repetition and is ignored. One from beyond k + 1
   is the neighbor's fault, and so is a repetition that says something else. But an agent that has started again
   from an earlier round is behind by itself: what its neighbors say meanwhile is early, not wrong.
3. What is taken comes in increasing order of agent, its own block among it, whatever the order of arrival.
4. Only `receive` fills the inbox, only `take` empties it. `publish` comes first in each round.
5. Its own blocks are kept while a neighbor may ask for them: those of this round and the last, for a neighbor that
   is one round behind, and all since the earliest round that a neighbor may have to start again from; but no more
   than `most_said`, whatever a neighbor says.
"""

import sys
from collections.abc import Callable, Iterable, Mapping

from thanos_peer.block import AgentId, Block
from thanos_peer.errors import LocalProtocolError, RemoteProtocolError


class Exchange:
    """Collects, round by round, the blocks of an agent and its neighbors.

    Args:
        agent: Whose exchange this is.
        neighbors: With whom it exchanges.
        k: The round it starts with.
        said: Its own earlier blocks, one for each round up to k - 1 that a neighbor may ask for.
        fallbacks: The earliest round that each neighbor may start again from; k if not given.
        is_again: Whether the agent has started again, and its neighbors may be far ahead.
        most_said: How many of its own blocks it keeps at the most.

    Attributes:
        fallbacks: The earliest round that each neighbor may start again from.
    """

    def __init__(
        self,
        agent: AgentId,
        neighbors: Iterable[AgentId],
        k: int = 0,
        *,
        said: Iterable[Block] = (),
        fallbacks: Mapping[AgentId, int] | None = None,
        is_again: bool = False,
        most_said: int = sys.maxsize,
    ) -> None:
        self.agent = agent
        self.neighbors = tuple(sorted(neighbors))
        self.k = k
        # The blocks of round k that are here, its own among them.
        self._here: dict[AgentId, Block] = {}
        self._ahead: dict[AgentId, Block] = {}  # blocks of round k + 1
        # Its own blocks that a neighbor may still ask for.
        self._said = {block.k: block for block in said}
        self._oldest = min(self._said, default=k)
        self.is_again, self.most_said = is_again, most_said
        self.fallbacks = dict.fromkeys(self.neighbors, k) | dict(fallbacks or {})

    def publish(self, block: Block) -> None:
        """Put down its own block of round k: what every neighbor is to be sent."""
        if block.k != self.k:
            raise LocalProtocolError(f"agent {self.agent} publishes round {block.k} in round {self.k}")
        if self.agent in self._here:
            raise LocalProtocolError(f"agent {self.agent} publishes round {block.k} twice")
        self._here[self.agent] = block
        self._said[block.k] = block
        needed = max(min(block.k - 1, *self.fallbacks.values(), block.k), block.k - self.most_said)
        while self._oldest < needed:
            del self._said[self._oldest]
            self._oldest += 1

    @property
    def own(self) -> Block:
        """Its own block of round k."""
        return self._here[self.agent]

    def said(self, k: int) -> Block | None:
        """Its own block of round k, for a neighbor that asks; None if it is not there yet, or long gone."""
        return self._said.get(k)

    @property
    def oldest(self) -> int:
        """The earliest round whose own block can still be sent again."""
        return self._oldest

    def said_before(self, k: int) -> tuple[Block, ...]:
        """All its own blocks of earlier rounds than k that a neighbor may still ask for, in order of round."""
        # There may be a million.
        said = tuple(self._said.values())
        return said[: max(0, k - self._oldest)]

    def receive(self, sender: AgentId, block: Block) -> bool:
        """Take in a neighbor's block, of this round or the next.

        Returns:
            Whether it is one that round k lacked.

        Raises:
            RemoteProtocolError: The sender is no neighbor, is more than a round ahead, or contradicts itself.
        """
        ahead = block.k - self.k
        known_fallback = self.fallbacks.get(sender)
        if known_fallback is None:
            raise RemoteProtocolError(neighbor=sender, k=block.k, what=f"not a neighbor of agent {self.agent}")
        if ahead > 1 and not self.is_again:
            raise RemoteProtocolError(neighbor=sender, k=block.k, what=f"more than one round ahead of {self.k}")
        if block.fallback > known_fallback:
            self.fallbacks[sender] = block.fallback
        if ahead < 0 or ahead > 1:
            return False
        box = self._ahead if ahead else self._here
        known = box.setdefault(sender, block)
        if known is block:
            return not ahead
        if not known.has_same_bits(block):
            raise RemoteProtocolError(
                neighbor=sender, k=block.k, what="a second block that differs from the first"
            )
        return False

    def refuse(self, is_wrong: Callable[[AgentId, Block], bool]) -> None:
        """Forget blocks of round k that came early and, now that it is here, turn out to be wrong."""
        for sender in [j for j, block in self._here.items() if is_wrong(j, block)]:
            del self._here[sender]

    def missing(self) -> tuple[AgentId, ...]:
        """The neighbors whose block of round k is not here yet."""
        return tuple(j for j in self.neighbors if self.is_missing(j))

    def is_missing(self, neighbor: AgentId) -> bool:
        """Whether a neighbor's block of round k is not here yet."""
        return neighbor not in self._here

    def has_heard(self, neighbor: AgentId) -> bool:
        """Whether a block of a neighbor is here, of round k or of the next: that one may overtake the other."""
        return neighbor in self._here or neighbor in self._ahead

    def lacks(self) -> int:
        """How many blocks of round k are not here yet, its own among them."""
        return len(self.neighbors) + 1 - len(self._here)

    def is_complete(self) -> bool:
        """Whether round k can be taken."""
        return self.lacks() == 0

    def blocks(self) -> list[Block]:
        """The blocks of round k in increasing order of agent."""
        if not self.is_complete():
            raise LocalProtocolError(f"agent {self.agent} takes round {self.k} before it is complete")
        return [self._here[j] for j in sorted(self._here)]

    def go_on(self) -> None:
        """Move on to round k + 1."""
        self._here, self._ahead, self.k = self._ahead, {}, self.k + 1
