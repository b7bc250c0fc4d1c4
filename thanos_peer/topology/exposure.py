"""Who learns what of whom from sums, as far as the graph decides it.

Some peers that tell each other all they hear are a coalition. From masked sums it learns the sum of each connected
part of the graph without it, and nothing else: masks on the edges inside of a part hide all but that. From sums
without masks it learns the same of the parts of the tree along which they are taken. A part of one peer is alone:
the coalition learns that peer's own numbers.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from thanos_peer.block import AgentId
from thanos_peer.topology.graph import Edge, Graph, components


class Learnt(NamedTuple):
    """What a coalition learns from sums.

    Attributes:
        parts: The sets of peers whose sums it learns; it learns no other, but what follows from these.
    """

    parts: tuple[tuple[AgentId, ...], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of how many peers each sum is."""
        return tuple(len(part) for part in self.parts)

    @property
    def alone(self) -> tuple[AgentId, ...]:
        """The peers whose own numbers it learns."""
        return tuple(part[0] for part in self.parts if len(part) == 1)


def parts_without(
    d: int, edges: Iterable[Edge], coalition: Collection[AgentId]
) -> tuple[tuple[AgentId, ...], ...]:
    """The connected parts of a graph on 0..d-1 without some agents: each sorted, in order of the first."""
    gone = set(coalition)
    left = [edge for edge in edges if gone.isdisjoint(edge)]
    return tuple(tuple(part) for part in components(d, left) if part[0] not in gone)


def learnt_from_sums(graph: Graph, coalition: Collection[AgentId], *, are_masked: bool) -> Learnt:
    """What a coalition learns from sums over the tree of a graph: the sums of the parts that it divides."""
    tree = graph.tree
    edges = graph.edges if are_masked else [(i, j) for i, j in enumerate(tree.parents) if i != j]
    return Learnt(parts_without(graph.d, edges, coalition))


def sole_neighbors(graph: Graph) -> Mapping[AgentId, AgentId]:
    """For each peer with one neighbor this neighbor, which alone leaves the peer in a part by itself."""
    return {i: neighbors[0] for i, neighbors in enumerate(graph.neighbors) if len(neighbors) == 1}


def smallest_coalition(graph: Graph, agent: AgentId) -> tuple[AgentId, ...] | None:
    """The fewest peers that together learn the own numbers of one from masked sums: its neighbors.

    None where these are all other peers: the result, less their own, tells them the same whatever the graph is. So
    it is always in a network of two.
    """
    neighbors = graph.neighbors[agent]
    return neighbors if len(neighbors) < graph.d - 1 else None


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
    """The fewest edges with which no peer has a sole neighbor, so that no peer by itself leaves another one alone.

    Ends are joined to ends, those that are half of all ends apart on a walk around the graph: so a tree keeps no
    edge without which it would fall apart. None in a network of two, where nothing helps.
    """
    if graph.d <= 2:
        return ()
    ends = [i for i in _walk(graph) if graph.degrees[i] == 1]
    half = len(ends) // 2
    pairs = list(zip(ends, ends[half:], strict=False)) if half else [(i, _partner(graph, i)) for i in ends]
    return tuple(sorted((min(pair), max(pair)) for pair in pairs))


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


def _partner(graph: Graph, agent: AgentId) -> AgentId:
    """Of the peers that are no neighbors, the first with the fewest neighbors."""
    others = set(range(graph.d)) - {agent, *graph.neighbors[agent]}
    return min(others, key=lambda i: (graph.degrees[i], i))
