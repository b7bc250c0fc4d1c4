"""Who learns what of whom from sums, as far as the graph decides it.

Some peers that keep to the protocol, and tell each other all they hear, are a coalition. From masked sums it
learns the sum of each connected part of the graph without it, and nothing else: masks on the edges inside of a
part hide all but that. From sums without masks it learns the same of the parts of the tree along which they are
taken. A part of one peer is alone: the coalition learns that peer's own numbers.

Of methods that mix nothing of this holds: one neighbor is enough there.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from thanos_peer.block import AgentId
from thanos_peer.topology.graph import Edge, Graph, components


class Learnt(NamedTuple):
    """What a coalition learns from sums.

    Attributes:
        parts: The sets of peers whose sums it learns; it learns no other, but what follows from these.
    """

    parts: tuple[tuple[AgentId, ...], ...]


def parts_without(
    d: int, edges: Iterable[Edge], coalition: Collection[AgentId]
) -> tuple[tuple[AgentId, ...], ...]:
    """The connected parts of a graph on 0..d-1 without some agents: each sorted, in order of the first."""
    gone = set(coalition)
    left = [edge for edge in edges if gone.isdisjoint(edge)]
    return tuple(tuple(part) for part in components(d, left) if part[0] not in gone)


def learnt_from_sums(graph: Graph, coalition: Collection[AgentId], *, are_masked: bool) -> Learnt:
    """What a coalition learns from sums over the tree of a graph: the sums of the parts that it divides."""
    return Learnt(parts_without(graph.d, _hiding_edges(graph, are_masked=are_masked), coalition))


def _hiding_edges(graph: Graph, *, are_masked: bool) -> Iterable[Edge]:
    """The edges over which what one peer brings is hidden in a sum: all that have a mask, or those of the tree."""
    return graph.edges if are_masked else [(i, j) for i, j in enumerate(graph.tree.parents) if i != j]


def learnt_alone(
    graph: Graph, agent: AgentId, *, are_masked: bool
) -> Iterator[tuple[AgentId, tuple[AgentId, ...]]]:
    """The peers that alone learn a sum over fewer than all others, and over which; this agent is one of these.

    The nearest first, which learn the sums over the fewest.
    """
    suspects = cut_vertices(graph) if are_masked else set(graph.tree.parents)
    for other in _by_distance(graph, agent):
        if other in suspects and other != agent:
            parts = learnt_from_sums(graph, {other}, are_masked=are_masked).parts
            own = next(part for part in parts if agent in part)
            if len(own) < graph.d - 1:
                yield other, own


def _by_distance(graph: Graph, agent: AgentId) -> list[AgentId]:
    found = {agent: None}
    for i in (queue := [agent]):
        new = [j for j in graph.neighbors[i] if j not in found]
        found |= dict.fromkeys(new)
        queue += new
    return queue


def sole_neighbors(graph: Graph) -> Mapping[AgentId, AgentId]:
    """For each peer with one neighbor this neighbor, which alone leaves the peer in a part by itself."""
    return {i: neighbors[0] for i, neighbors in enumerate(graph.neighbors) if len(neighbors) == 1}


def smallest_coalition(graph: Graph, agent: AgentId, *, are_masked: bool) -> tuple[AgentId, ...]:
    """The fewest peers that together learn the own numbers of one from sums.

    Of masked sums these are its neighbors, and without masks those of them that it sums with: its parent and its
    children. Empty where there is no other peer.
    """
    if are_masked:
        return graph.neighbors[agent]
    parent, children = graph.tree.parents[agent], graph.tree.children(agent)
    return tuple(sorted({parent, *children} - {agent}))


def cut_vertices(graph: Graph) -> Mapping[AgentId, tuple[int, ...]]:
    """The peers without which the graph falls apart, and the sizes of the parts, smallest first.

    Such a peer learns the sum of each part. By depth first search, in one pass over the edges (Tarjan): a peer
    cuts off those that it has led to, if none of them has an edge to before it.
    """
    neighbors = graph.neighbors
    number, low, size = [-1] * graph.d, [0] * graph.d, [1] * graph.d
    behind: dict[AgentId, list[int]] = {}
    number[0], seen = 0, 1
    way = [(0, iter(neighbors[0]))]
    while way:
        i, others = way[-1]
        fresh = None
        for j in others:
            if number[j] < 0:
                fresh = j
                break
            if number[j] < low[i]:  # noqa: PLR1730 - the innermost loop
                low[i] = number[j]
        if fresh is not None:
            number[fresh] = low[fresh] = seen
            seen += 1
            way.append((fresh, iter(neighbors[fresh])))
            continue
        way.pop()
        if way:
            parent = way[-1][0]
            low[parent] = min(low[parent], low[i])
            size[parent] += size[i]
            if low[i] >= number[parent]:
                behind.setdefault(parent, []).append(size[i])
    sizes = {i: [*parts, graph.d - 1 - sum(parts)] for i, parts in sorted(behind.items())}
    found = {i: tuple(sorted(part for part in parts if part)) for i, parts in sizes.items()}
    return {i: parts for i, parts in found.items() if len(parts) > 1}


def edges_against_exposure(graph: Graph) -> tuple[Edge, ...]:
    """Edges with which no peer by itself divides the graph, so that none alone learns the sum of a part of it.

    They join ends of the graph, half of all ends apart on a walk around it, until no peer divides it. Few, though
    not always the fewest. None in a network of two, where nothing helps.
    """
    added: list[Edge] = []
    while graph.d > 2 and (cuts := cut_vertices(graph)):
        ends = _ends(graph, cuts)
        half = len(ends) // 2
        pairs = [(min(pair), max(pair)) for pair in zip(ends, ends[half:], strict=False)]
        added += pairs
        graph = Graph.of(graph.d, (*graph.edges, *pairs), None)
    return tuple(sorted(added))


def _ends(graph: Graph, cuts: Collection[AgentId]) -> list[AgentId]:
    """Of each part that hangs on one dividing peer alone the one with the fewest neighbors, in order of a walk."""
    ends = [
        min(part, key=lambda i: (graph.degrees[i], i))
        for part in parts_without(graph.d, graph.edges, cuts)
        if len({j for i in part for j in graph.neighbors[i] if j in cuts}) == 1
    ]
    places = {i: place for place, i in enumerate(_walk(graph))}
    return sorted(ends, key=places.__getitem__)


def _walk(graph: Graph) -> list[AgentId]:
    """All peers depth first, from the first that is no end."""
    rest = [next(i for i in range(graph.d) if graph.degrees[i] > 1)]
    found: dict[AgentId, None] = {}
    while rest:
        i = rest.pop()
        if i not in found:
            found[i] = None
            rest += reversed(graph.neighbors[i])
    return list(found)
