"""All peers of a topology as processes on this machine."""

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import tomlkit

from thanos_peer.block import AgentId, Matrix
from thanos_peer.errors import PeerFailedError
from thanos_peer.results import PeerFiles
from thanos_peer.runtime.trajectory import TrajectoryReader
from thanos_peer.topology import Topology, load

LAST_LINES = 5  # of a failed peer's log, shown to the user


def with_free_ports(topology: Topology, file: Path) -> Topology:
    """The same topology in a new file, with every peer at a free port of this machine."""
    document = tomlkit.parse(topology.file.read_text(encoding="utf-8"))
    with contextlib.ExitStack() as stack:
        for peer in document["peers"]:
            probe = stack.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            peer["address"] = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
            peer.pop("bind", None)
            if peer.get("data") is not None:
                peer["data"] = str((topology.directory / peer["data"]).resolve())
    file.write_text(tomlkit.dumps(document), encoding="utf-8")
    return load(file, data_of=())


@dataclass(frozen=True)
class Glimpse:
    """All peers in the same round: what a row of the history is measured on."""

    k: int
    X: Matrix
    eta: Matrix


class Cluster:
    """The processes of one run; leaving the context ends whatever still runs.

    Args:
        topology: What runs.
        out: The run directory.
        keep_every: Rounds between two glimpses.
        give_up: Seconds after which a waiting peer gives up; None never.
    """

    def __init__(self, topology: Topology, out: Path, *, keep_every: int, give_up: float | None = None) -> None:
        self._topology, self._out, self._keep_every, self._give_up = topology, out, keep_every, give_up
        self.files = [PeerFiles(out, topology, i) for i in range(topology.d)]
        self._processes: list[subprocess.Popen[bytes]] = []
        n, p = topology.problem.n, topology.problem.p
        self._readers = [TrajectoryReader(files.trajectory, n=n, p=p) for files in self.files]
        self._seen: dict[int, dict[AgentId, np.void]] = {}

    def __enter__(self) -> Self:
        try:
            for i in range(self._topology.d):
                self._processes.append(self._start(i))
        except BaseException:
            self._end_all()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._end_all()

    def _start(self, i: AgentId) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "thanos_peer", "start", "--id", str(i), "--out", str(self._out)]
        command += ["--topology", str(self._topology.file), "--keep-every", str(self._keep_every)]
        command += ["--end-with-stdin"]
        if self._give_up is not None:
            command += ["--give-up-after", str(self._give_up)]
        self.files[i].prepare()
        with self.files[i].log.open("wb") as log:
            return subprocess.Popen(  # noqa: S603 - our own command
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def pids(self) -> list[int]:
        """The process of each peer."""
        return [process.pid for process in self._processes]

    @property
    def is_running(self) -> bool:
        """Whether any peer still runs."""
        return any(process.poll() is None for process in self._processes)

    def check(self) -> None:
        """Raise PeerFailedError if a peer has ended with an error."""
        for i, process in enumerate(self._processes):
            code = process.poll()
            if code not in (None, 0):
                lines = self.files[i].log.read_text(encoding="utf-8", errors="replace").splitlines()
                raise PeerFailedError(
                    agent=i, exit_code=code if code > 0 else 128 - code, last_words=lines[-LAST_LINES:]
                )

    def glimpses(self) -> Iterator[Glimpse]:
        """The rounds that all peers have reported since the last call, in order."""
        for i, reader in enumerate(self._readers):
            for record in reader.read():
                self._seen.setdefault(int(record["k"]), {})[i] = record
        for k in sorted(self._seen):
            if len(self._seen[k]) < self._topology.d:
                return
            records = self._seen.pop(k)
            rows = [records[i] for i in range(self._topology.d)]
            yield Glimpse(k, np.array([row["X"] for row in rows]), np.array([row["eta"] for row in rows]))

    def slowest(self) -> AgentId | None:
        """A peer that others wait for: one that has reported the fewest of the rounds not yet complete."""
        if not self._seen:
            return None
        return min(range(self._topology.d), key=lambda i: sum(i in reported for reported in self._seen.values()))

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Ask all peers to end."""
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(number)

    def wait(self, seconds: float) -> bool:
        """Wait until all have ended, for some seconds at most; whether they have."""
        until = time.monotonic() + seconds
        while self.is_running and time.monotonic() < until:
            time.sleep(0.02)
        return not self.is_running

    def _end_all(self) -> None:
        if self.is_running:
            self.stop()
            if not self.wait(5.0):
                self.stop(signal.SIGKILL)
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
            process.wait()
