"""All agents stop after the same round, without a coordinator.

An agent is calm while its own residual is at most the tolerance. Its streak is 0 while it is not calm, else
one more than the least streak around it (its own included) a round ago. So a streak of t + 1 says that every
agent within t edges was calm t rounds ago, and a streak above the diameter says that every agent was. An agent
with such a streak announces the last round: now + diameter + 1. Every agent passes on the earliest announcement
that it has heard. It reaches all agents within `diameter` rounds, so all know of it before it is due, and no later
one counts.

An announcement of round K says that every agent was calm 2 diameter + 1 rounds before it. An agent that knows
better, because it was not calm itself then, does not believe it, and does not pass it on. Nor does one believe an
announcement that comes too late for those that only it can tell: an honest one is never so late.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from thanos_peer.block import AgentId, StopWord

if TYPE_CHECKING:
    from thanos_peer.topology.graph import Graph


def next_word(
    words: Iterable[StopWord],
    *,
    is_calm: bool,
    k: int,
    diameter: int,
    was_calm: Callable[[int], bool] = lambda k: True,  # noqa: ARG005
) -> StopWord:
    """What an agent says in round k about stopping.

    Args:
        words: Its own word and its neighbors' of round k - 1.
        is_calm: Whether its residual is at most the tolerance.
        k: The round in which this is sent.
        diameter: Of the graph.
        was_calm: Whether it was in an earlier round. Agents that only hear true words need not give it.
    """
    heard = list(words)
    streak = min(1 + min(word.streak for word in heard), diameter + 1) if is_calm else 0
    after = {word.after for word in heard if word.after is not None}
    announced = [each for each in after if was_calm(each - 2 * diameter - 1)]
    if streak > diameter:
        announced.append(k + diameter + 1)
    return StopWord(streak, min(announced, default=None))


def calm_size(diameter: int) -> int:
    """Bytes of a bit for each of 2 diameter + 1 rounds: so long ago all were calm if one announces an end."""
    return diameter // 4 + 1


class StopAgreement:
    """One agent's part in it: in which rounds it was calm, and whom it believes.

    Args:
        agent: Its id.
        graph: Whose distances tell when an announcement comes too late.
        calm: In which of the latest rounds an earlier life was calm, as `calm` gave it; empty if that is not
            known, and then in all; None without an earlier life.
    """

    def __init__(self, agent: AgentId, graph: "Graph", calm: bytes | None = None) -> None:
        self._agent, self._graph = agent, graph
        # A bit for each round back to the one that an announcement may follow from, the latest last.
        self._all = (2 << 2 * graph.diameter) - 1
        self._calm = 0 if calm is None else int.from_bytes(calm) if calm else self._all

    @property
    def calm(self) -> bytes:
        """In which of the latest rounds it was calm, to go on from."""
        return self._calm.to_bytes(calm_size(self._graph.diameter))

    def note(self, *, is_calm: bool) -> None:
        """Remember whether it was calm in one more round."""
        self._calm = (self._calm << 1 | is_calm) & self._all

    def next_word(self, words: list[StopWord], *, is_calm: bool, k: int, began: int) -> StopWord:
        """What it says in round k, which `note` has not been told of yet.

        Args:
            words: Those of round k - 1, its own and its neighbors', in order of agent.
            is_calm: Whether its residual is at most the tolerance.
            k: The round in which this is sent.
            began: The round that this phase began with.
        """
        if any(word.after is not None for word in words):
            senders = sorted((self._agent, *self._graph.neighbors[self._agent]))
            own = words[senders.index(self._agent)]
            words = [self._believed(*heard, k - 1, own.after) for heard in zip(senders, words, strict=True)]

        def was_calm(then: int) -> bool:
            return began < then < k and bool(self._calm >> k - 1 - then & 1)

        return next_word(words, is_calm=is_calm, k=k, diameter=self._graph.diameter, was_calm=was_calm)

    def _believed(self, sender: AgentId, word: StopWord, k: int, known: int | None) -> StopWord:
        """What a neighbor said in round k, without an end that comes too late for those behind this agent."""
        if word.after is None or sender == self._agent or (known is not None and known <= word.after):
            return word
        behind = self._graph.farthest_behind(self._agent, sender)
        can_reach_all = not behind or word.after - k >= behind + 2
        return word if can_reach_all else StopWord(word.streak)
