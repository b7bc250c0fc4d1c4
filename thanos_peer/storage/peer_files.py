"""One peer's part of a run directory: where its files lie, and what they say of an earlier end."""

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thanos_peer.block import AgentId, Matrix
from thanos_peer.durable import make_directory
from thanos_peer.errors import CheckpointError, ConfigError
from thanos_peer.json_files import LARGEST_COUNT, Count, DamagedJSONError, read_json
from thanos_peer.loadings.files import write_facts, write_loadings
from thanos_peer.loadings.findings import Findings, facts_of_loadings
from thanos_peer.topology import Topology


@dataclass(frozen=True)
class _End:
    """What a peer's .json says of the end of its run; a result that is finished has a round."""

    is_done: bool = False
    round: Count | None = None
    digest: str = ""
    epoch: Count = 0
    rounds_by_phase: dict[str, Count] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a finished result without a round."""
        if self.is_done and self.round is None:
            raise ValueError("round is missing")


# What `run` says of all peers together, and where it goes once that is of an earlier state.
OF_ALL, EARLIER = ("summary.json", "summary.txt", "history.csv"), "earlier"


class PeerFiles:
    """Where one peer's part of a run directory lies."""

    def __init__(self, out: Path, topology: Topology, agent: AgentId) -> None:
        self._out = out
        self._directory = out / "peers"
        stem = self._directory / f"{agent:0{len(str(topology.d - 1))}}"
        self.result, self.facts = stem.with_suffix(".npz"), stem.with_suffix(".json")
        self.table = stem.with_suffix(".csv")
        self.log, self.trajectory = stem.with_suffix(".log"), stem.with_suffix(".traj")

    def prepare(self, *, is_resumed: bool = False) -> None:
        """Make the directory, and refuse to overwrite a finished result, unless the run that wrote it goes on.

        Raises:
            ConfigError: This peer's result is there already.
            CheckpointError: The directory cannot be made, or is another user's.
        """
        if self.result.exists() and self.is_finished is not False and not is_resumed:
            damage = self._damage()
            what = f"exists already, and {self.facts} is damaged ({damage})" if damage else "exists already"
            raise ConfigError(f"{self.result} {what}; choose another directory with --out, or remove it")
        try:
            make_directory(self._directory, is_flushed=False, is_private=True)
        except OSError as error:
            raise CheckpointError(
                f"cannot write the results to {self._directory}: {error.strerror}; mend it, or give a "
                "directory that can be written to with --out"
            ) from error

    @property
    def is_finished(self) -> bool | None:
        """Whether the result is that of the last round; None if there is none, or its facts are missing."""
        end = self._end()
        return None if end is None or not self.result.exists() else end.is_done

    def finished_round(self, digest: str) -> int | None:
        """The last round of a finished run of this topology; None if there is no such result."""
        end = self._end()
        return end.round if self.is_finished and end is not None and end.digest == digest else None

    @property
    def finished_after(self) -> int:
        """The rounds of all phases of a finished run, as they are counted to neighbors."""
        end = self._end() or _End()
        return min(sum(end.rounds_by_phase.values()) or end.round or 0, LARGEST_COUNT)

    @property
    def finished_epoch(self) -> int:
        """The epoch that a finished run ended in."""
        return (self._end() or _End()).epoch

    def withdraw(self) -> None:
        """Let the result not count as finished: the network has begun anew.

        It stays until there is another, and says so: a result without facts would never be replaced.

        Raises:
            CheckpointError: That cannot be written.
        """
        try:
            if self.facts.exists():
                known = {} if self._end() is None else self._facts_there()
                write_facts(self.facts, known | {"is_done": False, "ending": "withdrawn"})
        except OSError as error:
            raise CheckpointError(
                f"cannot withdraw {self.facts}, which belongs to an earlier epoch: {error.strerror}; nothing is "
                "lost: mend it and start this peer again with the same command"
            ) from error

    def set_aside(self) -> None:
        """Move what was said of all peers together out of the way: this peer has gone on since.

        Several peers may do so at once.

        Raises:
            OSError: Something cannot be moved.
        """
        report = self._out / "report"
        for path in (*(self._out / name for name in OF_ALL), *report.glob("*")):
            if path.is_file():
                there = self._out / EARLIER / path.relative_to(self._out)
                there.parent.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(FileNotFoundError):
                    path.replace(there)
        with contextlib.suppress(OSError):
            report.rmdir()

    def _facts_there(self) -> dict[str, Any]:
        """The facts of the result; nothing where they are damaged."""
        try:
            return read_json(self.facts, dict[str, Any], is_own=True)
        except (OSError, DamagedJSONError):
            return {}

    def _end(self) -> "_End | None":
        """How an earlier run ended; None if nothing says so, or what says so is damaged."""
        try:
            return read_json(self.facts, _End, is_own=True)
        except (OSError, DamagedJSONError):
            return None

    def _damage(self) -> str | None:
        """What is wrong with the .json file; None if nothing is, or there is none."""
        try:
            read_json(self.facts, _End, is_own=True)
        except FileNotFoundError:
            return None
        except OSError as error:
            return str(error.strerror)
        except DamagedJSONError as error:
            return str(error)
        return None

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
        make_directory(self._directory, is_private=True)
        write_loadings(self.result, X, D, sparse, findings)
        if facts is not None:
            write_facts(self.facts, facts | facts_of_loadings(X, sparse, findings))
