"""A topology: what the file says, the graph it describes, and the digest by which peers know that they agree."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from thanos_peer.topology.graph import Graph
from thanos_peer.topology.sections import Algorithm, Peer, Problem, TopologyFile


@dataclass(frozen=True)
class Topology:
    """A checked topology file. Made by `thanos_peer.topology.load`, which does the checking.

    Attributes:
        content: What stands in the file, defaults filled in.
        file: Where it was read; relative paths in it start from there.
    """

    content: TopologyFile
    file: Path

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.content.name

    @property
    def problem(self) -> Problem:
        """What is minimised."""
        return self.content.problem

    @property
    def algorithm(self) -> Algorithm:
        """How."""
        return self.content.algorithm

    @property
    def directory(self) -> Path:
        """Where relative paths start."""
        return self.file.parent

    @cached_property
    def peers(self) -> tuple[Peer, ...]:
        """The peers in order of id, so that peers[i] is peer i."""
        return tuple(sorted(self.content.peers, key=lambda peer: peer.id))

    @property
    def d(self) -> int:
        """How many agents there are."""
        return len(self.content.peers)

    @cached_property
    def graph(self) -> Graph:
        """The graph and its weights."""
        weights = self.content.weights
        return Graph.of(self.d, self.content.edges, None if weights == "metropolis" else weights)

    @property
    def messages_per_round(self) -> int:
        """One in each direction of each edge."""
        return 2 * len(self.graph.edges)

    @property
    def payload_per_message(self) -> int:
        """Bytes of X and D as they are sent; the frame around them is not counted."""
        return 2 * self.problem.n * self.problem.p * (8 if self.algorithm.exchange == "float64" else 4)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what decides the numbers: name, weighted graph, problem, algorithm.

        Where a peer lives (address, data path) is not part of it: the same run may move to other hosts. Two
        files that mean the same have the same digest, whatever their order, comments and left-out defaults.
        """
        meaning = {
            "name": self.name,
            "mixing": [[i, j, w.hex()] for i, row in enumerate(self.graph.mixing) for j, w in row],
            "problem": self.problem.model_dump(exclude={"mu"}) | {"mu": self.problem.mu or 0.0},
            "algorithm": self.algorithm.model_dump(),
        }
        text = json.dumps(meaning, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
