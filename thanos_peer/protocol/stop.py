"""All agents stop after the same round, without a coordinator.

An agent is calm while its own residual is at most the tolerance. Its streak is 0 while it is not calm, else
one more than the least streak around it (its own included) a round ago. So a streak of t + 1 says that every
agent within t edges was calm t rounds ago, and a streak above the diameter says that every agent was. An agent
with such a streak announces the last round: now + diameter + 1. Every agent passes on the earliest announcement
that it has heard. It reaches all agents within `diameter` rounds, so all know of it before it is due, and no later
one counts.

An announcement of round K says that every agent was calm 2 diameter + 1 rounds before it. An agent that knows
better, because it was not calm itself then, does not believe it, and does not pass it on. Nor does one believe an
announcement that comes too late for those that only it can tell (`Agent`): an honest one is never so late.
"""

from collections.abc import Callable, Iterable

from thanos_peer.block import StopWord


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
        k: The round in which this is said.
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
