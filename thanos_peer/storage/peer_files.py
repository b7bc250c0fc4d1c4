"""One peer's part of a run directory: where its files lie, and what they say of an earlier end."""

import json
from pathlib import Path
from typing import Any

from thanos_peer.block import AgentId, Matrix
from thanos_peer.durable import make_directory
from thanos_peer.errors import CheckpointError, ConfigError
from thanos_peer.loadings.files import write_facts, write_loadings
from thanos_peer.loadings.findings import Findings, facts_of_loadings
from thanos_peer.topology import Topology


class PeerFiles:
    """Where one peer's part of a run directory lies."""

    def __init__(self, out: Path, topology: Topology, agent: AgentId) -> None:
        self._directory = out / "peers"
        stem = self._directory / f"{agent:0{len(str(topology.d - 1))}}"
        self.result, self.facts = stem.with_suffix(".npz"), stem.with_suffix(".json")
        self.table = stem.with_suffix(".csv")
        self.log, self.trajectory = stem.with_suffix(".log"), stem.with_suffix(".traj")

    def prepare(self, *, is_resumed: bool = False) -> None:
        """Make the directory, and refuse to overwrite a finished result, unless the run that wrote it goes on.

        Raises:
            ConfigError: This peer's result is there already.
            CheckpointError: The directory cannot be made.
        """
        if self.result.exists() and self.is_finished is not False and not is_resumed:
            raise ConfigError(f"{self.result} exists already; choose another directory with --out, or remove it")
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"cannot write the results to {self._directory}: {error.strerror}; mend it, or give a "
                "directory that can be written to with --out"
            ) from error

    @property
    def is_finished(self) -> bool | None:
        """Whether the result is that of the last round; None if there is none, or nothing is said of it."""
        facts = self._facts_there()
        return facts.get("is_done") if self.result.exists() else None

    def finished_round(self, digest: str) -> int | None:
        """The last round of a finished run of this topology; None if there is no such result."""
        facts = self._facts_there()
        return facts["round"] if self.is_finished and facts.get("digest") == digest else None

    @property
    def finished_after(self) -> int:
        """The rounds of all phases of a finished run, as they are counted to neighbors."""
        facts = self._facts_there()
        return sum(facts.get("rounds_by_phase", {}).values()) or int(facts["round"])

    @property
    def finished_epoch(self) -> int:
        """The epoch that a finished run ended in."""
        return int(self._facts_there().get("epoch", 0))

    def withdraw(self) -> None:
        """Let the result not count as finished: the network has begun anew.

        It stays until there is another, and says so: a result of which nothing is said would never be replaced.

        Raises:
            CheckpointError: That cannot be written.
        """
        try:
            if self.facts.exists():
                write_facts(self.facts, self._facts_there() | {"is_done": False, "ending": "withdrawn"})
        except OSError as error:
            raise CheckpointError(
                f"cannot withdraw {self.facts}, which belongs to an earlier epoch: {error.strerror}; nothing is "
                "lost: mend it and start this peer again with the same command"
            ) from error

    def _facts_there(self) -> dict[str, Any]:
        try:
            facts: dict[str, Any] = json.loads(self.facts.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return facts

    def write(
        self,
        X: Matrix,
        D: Matrix | None,
        sparse: Matrix,
        facts: dict[str, Any] | None = None,
        findings: Findings | None = None,
    ) -> None:
        """Write what came out."""
        findings = findings or Findings()
        make_directory(self._directory)
        write_loadings(self.result, X, D, sparse, findings)
        if facts is not None:
            write_facts(self.facts, facts | facts_of_loadings(X, sparse, findings))
