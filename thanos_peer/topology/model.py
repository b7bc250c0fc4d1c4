"""A topology: what the file says, the graph it describes, and the digest by which peers know that they agree."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from thanos_peer.algorithm.methods import AUTO, METHODS, SUMMING
from thanos_peer.block import AgentId
from thanos_peer.errors import ConfigError
from thanos_peer.samples import Columns
from thanos_peer.topology import prediction
from thanos_peer.topology.graph import Graph
from thanos_peer.topology.sections import Algorithm, PeerSection, Problem, TopologyFile

FLOAT32_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Topology:
    """A checked topology file. Made by `thanos_peer.topology.load`, which does the checking.

    Attributes:
        content: What stands in the file, defaults filled in.
        file: Where it was read; relative paths in it start from there.
        own_data: Data files that are used instead of those in the file, known on this host alone.
        allowed_code: The modules, or their files, that the person at this host lets the file name.
        other_method: The method that was asked for instead of the file's.
        other_settings: What was asked for instead of what the file says, by dotted key.
    """

    content: TopologyFile
    file: Path
    own_data: Mapping[AgentId, Path] = field(default_factory=dict)
    allowed_code: tuple[str, ...] = ()
    other_method: str | None = None
    other_settings: Mapping[str, Any] = field(default_factory=dict)

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
    def peers(self) -> tuple[PeerSection, ...]:
        """The peers in order of id, so that peers[i] is peer i."""
        return tuple(sorted(self.content.peers, key=lambda peer: peer.id))

    @property
    def columns(self) -> Columns:
        """Which columns of each peer's file are features."""
        features = self.problem.features
        return Columns(None if features is None else tuple(features), tuple(self.problem.exclude))

    def data_file(self, agent: AgentId) -> Path:
        """Where the samples of a peer lie on this host.

        Raises:
            ConfigError: It is not known where.
        """
        named = self.peers[agent].data
        if agent not in self.own_data and named is None:
            raise ConfigError(
                f"{self.file}: peer {agent} has no data file; set `data` there, or `start --data FILE`"
            )
        return self.own_data[agent] if agent in self.own_data else self.directory / str(named)

    @property
    def d(self) -> int:
        """How many agents there are."""
        return len(self.content.peers)

    @property
    def has_keys(self) -> bool:
        """Whether links are encrypted and authenticated: every peer has a public key, or none has."""
        return self.peers[0].public_key is not None

    @property
    def masks_sums(self) -> bool:
        """Whether neighbors agree on masks for what they sum: where there are keys, unless the file says no."""
        wanted = self.algorithm.masks
        return self.d > 1 and (self.has_keys if wanted is None else wanted)

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
    def itemsize(self) -> int:
        """Bytes of a number of X and D as they are sent."""
        return 8 if self.algorithm.exchange == "float64" else 4

    @property
    def method(self) -> str:
        """The method by name; "auto" is the exact one that sends less, by what is typical."""
        if self.algorithm.method != AUTO:
            return self.algorithm.method
        return prediction.cheaper_method(self.problem, self.algorithm, prediction.digits_of(self.algorithm))

    @property
    def tolerance(self) -> float:
        """Below which residual the network is done; 0 for never."""
        if self.algorithm.tolerance is not None:
            return self.algorithm.tolerance
        method = METHODS[self.method]
        is_rounded = method.mixes and method.default_tolerance > 0
        return max(method.default_tolerance, self.least_tolerance) if is_rounded else method.default_tolerance

    @property
    def max_rounds(self) -> int:
        """After how many rounds the method ends at the latest."""
        return self.algorithm.max_rounds or METHODS[self.method].default_rounds

    def why_over(self, rounds: int) -> str:
        """Why the method ended after so many, above its tolerance, as `EndReason` names it in small letters."""
        mixes, problem, of_sum = METHODS[self.method].mixes, self.problem, self.graph.tree.rounds
        # Methods that sum take whole sums.
        if rounds + (1 if mixes else of_sum) > self.max_rounds:
            return "max_rounds"
        is_cut = not mixes and SUMMING[self.method].may_be_cut(rounds // of_sum, problem.n, problem.p)
        return "searched" if is_cut else "stuck"

    @property
    def least_tolerance(self) -> float:
        """What X and D that are rounded on their way can reach; 0 where they are not."""
        return 0.0 if self.algorithm.exchange == "float64" else FLOAT32_TOLERANCE

    def _weights(self) -> dict[str, Any]:
        """What the digest says of mu."""
        problem = self.problem
        if not problem.is_path:
            return {"mu": problem.weights[0]}
        return {"mu": problem.weights or {"path": problem.weight_count}, "choose": problem.rule}

    def _problem_in_digest(self) -> dict[str, Any]:
        problem = self.problem
        meaning = problem.model_dump(exclude={"mu", "data", *problem.left_out()}) | self._weights()
        data = problem.data.model_dump(exclude=problem.data.left_out())
        if problem.data.kind == "files" and problem.data.fills:
            data["max_missing"] = problem.data.most_missing
        return meaning | {"data": data}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what decides the numbers: name, weighted graph, problem, algorithm.

        Where a peer lives (address, data path), its key, and masks, which change no sum, are not part of it: the
        same run may move to other hosts and have other keys. Two files that mean the same have the same digest,
        whatever their order, comments and left-out defaults.
        """
        meaning: dict[str, Any] = {
            "name": self.name,
            "mixing": [[i, j, w.hex()] for i, row in enumerate(self.graph.mixing) for j, w in row],
            "tree": self.graph.tree.parents,
            "problem": self._problem_in_digest(),
            "algorithm": self.algorithm.model_dump(exclude={"preset": True, "masks": True, "start": {"path"}})
            | {"method": self.method, "tolerance": self.tolerance, "max_rounds": self.max_rounds},
        }
        # The digest has the numbers, which are the same wherever each host keeps them.
        if self.algorithm.start.kind == "file":
            with (self.directory / self.algorithm.start.path).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            meaning["algorithm"]["start"] = {"kind": "file", "sha256": found}
        # What they say of their samples decides whether they take part.
        if any(peer.samples is not None for peer in self.peers):
            meaning["samples"] = [peer.samples for peer in self.peers]
        text = json.dumps(meaning, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def agreement(self) -> str:
        """SHA-256 of who takes part in what: the digest, ids and public keys of all peers, whether they mask.

        What a site has agreed to can be compared with what was run: the digest alone leaves keys and masks open.
        """
        parties = [[peer.id, peer.public_key] for peer in self.peers]
        text = json.dumps([self.digest, parties, self.masks_sums], separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def digest_with(self, *, masks: bool) -> str:
        """What peers compare: the digest, and whether sums are masked, which all must do alike."""
        if masks or not self.has_keys:
            return self.digest
        return hashlib.sha256(f"{self.digest} without masks".encode()).hexdigest()
