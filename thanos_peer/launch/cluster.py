"""All peers of a topology as processes on this machine."""

import os
import shlex
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np

from thanos_peer.block import AgentId, Matrix
from thanos_peer.errors import PeerFailedError
from thanos_peer.launch.fork_server import ForkServer, PeerProcess
from thanos_peer.peer.status import ask, local_address
from thanos_peer.preparation import Account
from thanos_peer.storage.peer_files import PeerFiles
from thanos_peer.storage.trajectory import TrajectoryReader
from thanos_peer.topology import Topology
from thanos_peer.topology.editing import with_ports, with_public_keys
from thanos_peer.topology.policy_files import VARIABLE
from thanos_peer.transport.keys import (
    credentials_of,
    make_keys,
    public_keys,
    secret_directory,
    secret_file,
    write_secrets,
)

# Lines of a failed peer's log that are shown to the user.
LAST_LINES = 5
# Seconds that a peer gets to answer.
AT_ONCE = 0.2


def _environment() -> dict[str, str]:
    """Our environment without the options of a single peer: peers have theirs in their commands.

    Rules of this site hold for all.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("THANOS_PEER_") or name == VARIABLE
    }


def prepare_peers(
    topology: Topology,
    file: Path,
    ports: Sequence[int] | None = None,
    binds: Sequence[int] | None = None,
    *,
    makes_keys: bool = True,
) -> tuple[Topology, Path]:
    """What all peers of a topology need to run on this machine, and where their secrets lie.

    Peers that have no keys get new ones for this run, beside the new file. If they have, their secrets must be
    here.

    Args:
        topology: As it was read.
        file: A topology file for this run, in its directory.
        ports: Where each peer is reached; None for what the file says.
        binds: Where each peer listens, if that is another port.
        makes_keys: Whether peers without keys get new ones.
    """
    directory = secret_directory(topology.file if topology.has_keys else file)
    if not topology.has_keys and makes_keys:
        keys = make_keys(topology)
        write_secrets(directory, keys)
        # What this machine does with a file has as many rounds as the file says, by whatever command.
        topology = with_public_keys(topology, file, public_keys(keys), masks=False)
    if ports is not None:
        topology = with_ports(topology, file, ports, binds)
    for i in range(topology.d if topology.has_keys else 0):
        credentials_of(topology, i, secret_file(directory, i))
    return topology, directory


@dataclass(frozen=True)
class ClusterSnapshot:
    """All peers in the same round: what a row of the history is measured on."""

    k: int
    X: Matrix
    eta: Matrix
    overall: float | None
    account: Account = field(default_factory=Account)


class Cluster:
    """The processes of one run; leaving the context ends all that still run.

    Args:
        topology: What runs.
        out: The run directory.
        secrets: The directory of their secrets.
        keep_every: Rounds between two snapshots.
        give_up: Seconds after which a waiting peer gives up; None never.
        survive: What a peer comes back from, if it is started again: "power", "kill" or "nothing".
        lasts: Whether peers could go on at their addresses when this is over; not so behind proxies.
        policy: A file with rules of this site that every peer keeps, besides those that each finds itself.
    """

    def __init__(  # noqa: PLR0913 - named, but for the first three
        self,
        topology: Topology,
        out: Path,
        secrets: Path,
        *,
        keep_every: int,
        give_up: float | None = None,
        survive: str = "power",
        lasts: bool = True,
        policy: Path | None = None,
    ) -> None:
        self._topology, self._out = topology, out
        self._options = [] if give_up is None else ["--give-up-after", str(give_up)]
        self._options += ["--keep-every", str(keep_every)]
        self._secrets, self._survive, self._lasts = secrets, survive, lasts
        self._rules = [] if policy is None else ["--policy", str(policy)]
        self.files = [PeerFiles(out, topology, i) for i in range(topology.d)]
        self._fork_server: ForkServer
        self._processes: list[PeerProcess] = []
        n, p = topology.problem.n, topology.problem.p
        self._readers = [TrajectoryReader(files.trajectory, n=n, p=p) for files in self.files]
        self._seen: dict[int, dict[AgentId, np.void]] = {}

    def __enter__(self) -> Self:
        self._fork_server = ForkServer(_environment())
        try:
            for i in range(self._topology.d):
                self._processes.append(self._start(i))
        except BaseException:
            self._end_all()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._end_all()

    @property
    def state(self) -> Path:
        """Where the peers keep what they would start again from."""
        return self._out / "state"

    def restart(self, i: AgentId) -> None:
        """Start a peer again that has ended."""
        ended = self._processes[i]
        ended.wait()
        if ended.stdin is not None:
            ended.stdin.close()
        self._processes[i] = self._start(i, is_again=True)

    def _start(self, i: AgentId, *, is_again: bool = False) -> PeerProcess:
        arguments = ["--id", str(i), "--out", str(self._out)]
        arguments += ["--topology", str(self._topology.file)]
        arguments += ["--end-with-stdin", "--state", str(self.state), "--survive", self._survive]
        if self._topology.has_keys:
            arguments += ["--secret-key", str(secret_file(self._secrets, i))]
        arguments += self._rules + self._options
        for allowed in self._topology.allowed_code:
            arguments += ["--allow-code", allowed]
        self.files[i].prepare(is_resumed=is_again)
        return self._fork_server.start(arguments, self.files[i].log)

    @property
    def is_running(self) -> bool:
        """Whether any peer still runs."""
        return bool(self.running)

    @property
    def running(self) -> list[AgentId]:
        """The peers that still run."""
        return [i for i, process in enumerate(self._processes) if process.poll() is None]

    def check(self) -> None:
        """Raise PeerFailedError if a peer has ended with an error."""
        for i, process in enumerate(self._processes):
            code = process.poll()
            if code not in (None, 0):
                lines = self.files[i].log.read_text(encoding="utf-8", errors="replace").splitlines()
                raise PeerFailedError(
                    agent=i,
                    exit_code=code if code > 0 else 128 - code,
                    log_tail=lines[-LAST_LINES:],
                    go_on=self.command_to_go_on(),
                )

    def command_to_go_on(self) -> str:
        """For any peer, which stands there as I; empty where nothing is kept to go on from."""
        if not self._lasts or self._survive == "nothing":
            return ""
        words = ["thanos-peer", "start", "--id", "I", "--topology", str(self._topology.file)]
        words += ["--out", str(self._out), "--state", str(self.state)]
        if self._topology.has_keys and self._secrets != secret_directory(self._topology.file):
            words += ["--secret-key", str(self._secrets / "I.secret")]
        words += self._rules
        for allowed in self._topology.allowed_code:
            words += ["--allow-code", allowed]
        return shlex.join(words)

    def snapshots(self) -> Iterator[ClusterSnapshot]:
        """The rounds that all peers have reported since the last call, in order."""
        for i, reader in enumerate(self._readers):
            for record in reader.read():
                self._seen.setdefault(int(record["k"]), {})[i] = record
        for k in sorted(self._seen):
            if len(self._seen[k]) < self._topology.d:
                return
            records = self._seen.pop(k)
            rows = [records[i] for i in range(self._topology.d)]
            X, eta = (np.array([row[name] for row in rows]) for name in ("X", "eta"))
            divisor = float(rows[0]["overall"])
            yield ClusterSnapshot(k, X, eta, None if np.isnan(divisor) else divisor)

    def phase(self) -> tuple[str, int] | None:
        """Which phase peer 0 is in, and the round of it, as it answers; None if it does not answer at once."""
        (answer,) = ask([local_address(self._topology, 0)], timeout=AT_ONCE)
        return None if isinstance(answer, str) else (answer.phase, answer.phase_round)

    def places(self) -> dict[AgentId, tuple[str, int, int] | None]:
        """Phase, epoch and round of each peer that still runs, as it answers; None where one does not answer."""
        running = self.running
        answers = ask([local_address(self._topology, i) for i in running], timeout=AT_ONCE)
        return {
            i: None if isinstance(each, str) else (each.phase, each.epoch, each.round)
            for i, each in zip(running, answers, strict=True)
        }

    def slowest(self) -> AgentId | None:
        """A peer that others wait for: one that has reported the fewest of the rounds not yet complete."""
        if not self._seen:
            return None
        return min(range(self._topology.d), key=lambda i: sum(i in reported for reported in self._seen.values()))

    def has_ended(self, i: AgentId) -> bool:
        """Whether a peer has ended."""
        return self._processes[i].poll() is not None

    def send_signal(self, i: AgentId, number: int) -> None:
        """Send a signal to one peer, if it still runs."""
        self._processes[i].send_signal(number)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Ask all peers to end."""
        for process in self._processes:
            process.send_signal(number)

    def wait(self, seconds: float) -> bool:
        """Wait until all have ended, for some seconds at most; whether they have."""
        until = time.monotonic() + seconds
        while self.is_running and time.monotonic() < until:
            time.sleep(0.02)
        return not self.is_running

    def _end_all(self) -> None:
        self._fork_server.close()
        if self.is_running:
            self.stop()
            if not self.wait(5.0):
                self.stop(signal.SIGKILL)
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
            process.wait()
