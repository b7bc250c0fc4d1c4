"""The rules of a round, for one agent.

1. Neighbors are at most one round apart: nobody finishes round k without the other's block k. So an inbox
   holds blocks of rounds k and k + 1, and nothing else.
2. A block from the past, or one that is here already, is a repetition and is ignored. One from beyond k + 1
   is the neighbor's fault, and so is a repetition that says something else.
3. What is taken comes in increasing order of agent, its own block among it, whatever the order of arrival.
4. Only `receive` fills the inbox, only `take` empties it. `publish` comes first in each round.
5. Its own blocks of this round and the last are kept: a neighbor may be one round behind and ask for either.
"""

from collections.abc import Iterable

from thanos_peer.block import AgentId, Block
from thanos_peer.errors import LocalProtocolError, RemoteProtocolError


class Exchange:
    """Collects, round by round, the blocks of an agent and its neighbors.

    Args:
        agent: Whose exchange this is.
        neighbors: With whom it exchanges.
        k: The round it starts with.
    """

    def __init__(self, agent: AgentId, neighbors: Iterable[AgentId], k: int = 0) -> None:
        self.agent = agent
        self.neighbors = tuple(sorted(neighbors))
        self.k = k
        self._here: dict[AgentId, Block] = {}  # round k, its own block among them
        self._ahead: dict[AgentId, Block] = {}  # round k + 1
        self._said: dict[int, Block] = {}  # its own blocks that somebody may still ask for

    def publish(self, block: Block) -> None:
        """Put down its own block of round k: what every neighbor is to be sent."""
        if block.k != self.k:
            raise LocalProtocolError(f"agent {self.agent} publishes round {block.k} in round {self.k}")
        if self.agent in self._here:
            raise LocalProtocolError(f"agent {self.agent} publishes round {block.k} twice")
        self._here[self.agent] = block
        self._said = {k: said for k, said in self._said.items() if k == block.k - 1} | {block.k: block}

    def said(self, k: int) -> Block | None:
        """Its own block of round k, for a neighbor that asks; None if it is not there yet, or long gone."""
        return self._said.get(k)

    def receive(self, sender: AgentId, block: Block) -> None:
        """Take in a neighbor's block, of this round or the next.

        Raises:
            RemoteProtocolError: The sender is no neighbor, is more than a round ahead, or contradicts itself.
        """
        if sender not in self.neighbors:
            raise RemoteProtocolError(neighbor=sender, k=block.k, what=f"not a neighbor of agent {self.agent}")
        if block.k > self.k + 1:
            raise RemoteProtocolError(neighbor=sender, k=block.k, what=f"more than one round ahead of {self.k}")
        if block.k < self.k:
            return
        box = self._here if block.k == self.k else self._ahead
        known = box.setdefault(sender, block)
        if known is not block and not known.has_same_bits(block):
            raise RemoteProtocolError(
                neighbor=sender, k=block.k, what="a second block that differs from the first"
            )

    def is_missing(self, neighbor: AgentId) -> bool:
        """Whether a neighbor's block of round k is not here yet."""
        return neighbor not in self._here

    def missing(self) -> tuple[AgentId, ...]:
        """The neighbors whose block of round k is not here yet."""
        return tuple(j for j in self.neighbors if self.is_missing(j))

    def is_complete(self) -> bool:
        """Whether round k can be taken."""
        return len(self._here) == len(self.neighbors) + 1

    def take(self) -> list[Block]:
        """The blocks of round k in increasing order of agent; the exchange moves on to round k + 1."""
        if not self.is_complete():
            raise LocalProtocolError(f"agent {self.agent} takes round {self.k} before it is complete")
        blocks = [self._here[j] for j in sorted(self._here)]
        self._here, self._ahead, self.k = self._ahead, {}, self.k + 1
        return blocks
