"""A connected graph with mixing weights, and what follows from them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from thanos_peer.block import AgentId, Matrix

Edge: TypeAlias = tuple[AgentId, AgentId]


def components(d: int, edges: Iterable[Edge]) -> list[list[AgentId]]:
    """The connected components of a graph on 0..d-1, each sorted, the one with agent 0 first."""
    neighbors = neighbor_lists(d, edges)
    found: list[list[AgentId]] = []
    is_seen = [False] * d
    for root in range(d):
        if is_seen[root]:
            continue
        is_seen[root] = True
        component = [root]
        for i in component:
            fresh = [j for j in neighbors[i] if not is_seen[j]]
            for j in fresh:
                is_seen[j] = True
            component += fresh
        found.append(sorted(component))
    return found


def neighbor_lists(d: int, edges: Iterable[Edge]) -> list[list[AgentId]]:
    """For every agent its neighbors, sorted."""
    neighbors: list[list[AgentId]] = [[] for _ in range(d)]
    for i, j in edges:
        neighbors[i].append(j)
        neighbors[j].append(i)
    return [sorted(row) for row in neighbors]


def _rounds_to_all(i: AgentId, told_by: Sequence[int]) -> int:
    """How many rounds it takes until all have heard of i, if each tells its neighbors what it has just heard."""
    heard = fresh = 1 << i
    rounds = -1
    while fresh:
        told, rounds = 0, rounds + 1
        while fresh:
            last = fresh.bit_length() - 1
            told |= told_by[last]
            fresh ^= 1 << last
        fresh = told & ~heard
        heard |= fresh
    return rounds


@dataclass(frozen=True)
class Tree:
    """A spanning tree: shortest ways from a centre of the graph.

    Attributes:
        root: The agent with the shortest way to the farthest; of several the one with the smallest id.
        parents: For every agent its neighbor on the way to the root, the one with the smallest id; the root itself
            for the root.
        depths: For every agent how many edges it is from the root.
    """

    root: AgentId
    parents: tuple[AgentId, ...]
    depths: tuple[int, ...]

    @classmethod
    def of(cls, root: AgentId, neighbors: Sequence[Sequence[AgentId]]) -> "Tree":
        """The tree of a connected graph with this root."""
        depths = {root: 0}
        for i in (queue := [root]):
            for j in neighbors[i]:
                if j not in depths:
                    depths[j] = depths[i] + 1
                    queue.append(j)
        parents = [min((j for j in row if depths[j] < depths[i]), default=i) for i, row in enumerate(neighbors)]
        return cls(root, tuple(parents), tuple(depths[i] for i in range(len(neighbors))))

    @property
    def height(self) -> int:
        """How many edges the farthest agent is from the root."""
        return max(self.depths)

    def children(self, agent: AgentId) -> tuple[AgentId, ...]:
        """The agents whose parent it is, sorted."""
        return tuple(i for i, parent in enumerate(self.parents) if parent == agent != i)

    @property
    def rounds(self) -> int:
        """How many rounds it takes to sum up to the root, and to tell all: one where there is but one agent."""
        return max(1, 2 * self.height)


@dataclass(frozen=True)
class Graph:
    """Agents 0..d-1, sorted edges (i, j) with i < j, and W: Metropolis, unless a matrix is given.

    The edges must be sound and connected; `thanos_peer.topology.load` sees to that.
    """

    d: int
    edges: tuple[Edge, ...]
    explicit_weights: tuple[tuple[float, ...], ...] | None = None

    @classmethod
    def of(cls, d: int, edges: Iterable[Sequence[AgentId]], weights: Iterable[Iterable[float]] | None) -> "Graph":
        """From edges in any order and direction, and a matrix or None for Metropolis weights."""
        explicit = None if weights is None else tuple(tuple(map(float, row)) for row in weights)
        return cls(d, tuple(sorted((min(edge), max(edge)) for edge in edges)), explicit)

    def farthest_behind(self, i: AgentId, j: AgentId) -> int:
        """How far the farthest agent is from i of those that hear of its neighbor j by i only; 0 without any."""
        beyond = [j]
        is_seen = {i, j}
        for each in beyond:
            fresh = [other for other in self.neighbors[each] if other not in is_seen]
            is_seen.update(fresh)
            beyond += fresh
        if len(is_seen) == self.d:
            return 0
        depths = Tree.of(i, self.neighbors).depths
        return max(depths[each] for each in range(self.d) if each not in is_seen)

    @cached_property
    def neighbors(self) -> tuple[tuple[AgentId, ...], ...]:
        """For every agent its neighbors, sorted."""
        return tuple(tuple(row) for row in neighbor_lists(self.d, self.edges))

    @cached_property
    def degrees(self) -> tuple[int, ...]:
        """For every agent how many neighbors it has."""
        return tuple(len(row) for row in self.neighbors)

    @cached_property
    def mixing(self) -> tuple[tuple[tuple[AgentId, float], ...], ...]:
        """Row i of W as pairs (j, W_ij) over agent i and its neighbors, in increasing order of j."""
        return tuple(self._mixing_row(i) for i in range(self.d))

    def _mixing_row(self, i: AgentId) -> tuple[tuple[AgentId, float], ...]:
        if self.explicit_weights is not None:
            row = self.explicit_weights[i]
            return tuple((j, row[j]) for j in sorted((*self.neighbors[i], i)))
        weights = {j: 1 / (1 + max(self.degrees[i], self.degrees[j])) for j in self.neighbors[i]}
        weights[i] = 1.0 - sum(weights.values())
        return tuple(sorted(weights.items()))

    def matrix(self) -> Matrix:
        """W, dense: (d, d)."""
        W = np.zeros((self.d, self.d))
        for i, row in enumerate(self.mixing):
            for j, weight in row:
                W[i, j] = weight
        return W

    @cached_property
    def lambda_(self) -> float:
        """||W - 11'/d||_2: how much of any disagreement one round of mixing leaves, at most."""
        eigenvalues = np.linalg.eigvalsh(self.matrix() - 1 / self.d)
        value = float(np.abs(eigenvalues).max())
        return value if value > 1e-12 else 0.0  # rounding, not disagreement

    @cached_property
    def eccentricities(self) -> tuple[int, ...]:
        """For every agent the most rounds until word from it is with all.

        Sets of agents are the bits of one integer, so that many edges cost no more than few.
        """
        told_by = [sum(1 << j for j in row) for row in self.neighbors]
        return tuple(_rounds_to_all(i, told_by) for i in range(self.d))

    @property
    def diameter(self) -> int:
        """The largest number of edges between two agents."""
        return max(self.eccentricities)

    @cached_property
    def tree(self) -> Tree:
        """The spanning tree along which all sums are taken; it follows from the edges alone."""
        return Tree.of(self.eccentricities.index(min(self.eccentricities)), self.neighbors)

    def rounds_to_consensus(self, factor: float) -> int:
        """Rounds of mixing after which any disagreement has shrunk by `factor` (for instance 1e-6)."""
        if self.lambda_ == 0:
            return 1 if self.d > 1 else 0
        return math.ceil(math.log(factor) / math.log(self.lambda_))
