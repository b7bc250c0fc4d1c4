"""What a run leaves behind: a directory that says what ran, how it went, and what came out.

run.json       what ran: topology digest, versions, seeds, command; a digest of all samples, if they are in
               files, and the names of their features, if there are any
topology.toml  the file itself; paths in it lead to where they led
history.csv    a line per round, appended as the run goes; the last has the residual of the summary, at least
peers/07.npz   for every peer its X, its D and the sparse prox(X), and more: see `loadings/files.py`
peers/07.csv   its loadings by feature
peers/07.json  the result in numbers; from a network run also how it ended and what went over its edges,
peers/07.log   what it said,
peers/07.traj  and its X over the rounds, if kept
summary.json   the result in numbers
summary.txt    the same in words
report/        the same as a page and pictures, made afterwards by `thanos-peer report`
earlier/       history, summary and report of before peers were started again one by one, and went on
"""

import csv
import json
import platform
import shutil
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import tomlkit

from thanos_peer import __version__
from thanos_peer.algorithm.stiefel import polar
from thanos_peer.block import AgentId, Matrix
from thanos_peer.errors import ConfigError
from thanos_peer.loadings.findings import found_as_findings
from thanos_peer.problem import Instance
from thanos_peer.simulate import Network, Row
from thanos_peer.storage.peer_files import PeerFiles
from thanos_peer.storage.summary import Summary
from thanos_peer.topology import Topology
from thanos_peer.topology.data import features_of
from thanos_peer.topology.editing import anchored


def cells_of(row: Row) -> dict[str, float | int | None]:
    """A row of the history, flat: name to number."""
    cells = asdict(row)
    parts: dict[str, float | int | None] = cells.pop("stationarity")
    return cells | parts | {"epsilon": row.stationarity.epsilon}


class RunDirectory:
    """A new directory for one run; the history in it grows with every row.

    Args:
        path: Where.
        topology: What runs.
        engine: What runs it.
        samples: The digest of all samples in files.

    Raises:
        ConfigError: The directory holds something already.
    """

    def __init__(self, path: Path, topology: Topology, *, engine: str, samples: str = "") -> None:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ConfigError(f"{path} exists already; choose another directory with --out, or remove it")
        self._features = [features_of(topology, i) for i in range(topology.d)]  # while the files are there
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        _copy_topology(topology, path / "topology.toml")
        features = next((list(names) for names in self._features if names is not None), None)
        _write_json(path / "run.json", _describe(topology, engine) | {"samples": samples, "features": features})
        self._history = (path / "history.csv").open("a", encoding="utf-8", newline="", buffering=1)
        self._writer: csv.DictWriter[str] | None = None
        # Where the last line begins, and what is in it.
        self._last: tuple[int, dict[str, str]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._history.close()

    def append(self, row: Row) -> None:
        """Add a line to the history."""
        cells = {name: "" if cell is None else repr(cell) for name, cell in cells_of(row).items()}
        if self._writer is None:
            self._writer = csv.DictWriter(self._history, fieldnames=list(cells))
            self._writer.writeheader()
        self._last = self._history.tell(), cells
        self._writer.writerow(cells)

    def _complete(self, summary: Summary) -> None:
        """Give the last line its residual: methods that smooth know it at the end of the run only."""
        if self._writer is None or self._last is None or self._last[1]["round"] != repr(summary.rounds):
            return
        begin, cells = self._last
        if not cells["residual"]:
            self._history.truncate(begin)
            self._writer.writerow(cells | {"residual": repr(float(summary.residual))})

    def finish(self, network: Network, instance: Instance, summary: Summary) -> None:
        """Write what came out."""
        topology, D, common = instance.topology, network.array("D"), network.X.mean(axis=0)
        known = replace(
            found_as_findings(topology, network.found, None),
            common=common,
            objective=summary.objective,
            explained_variance_ratio=_explained_by_each(instance, polar(common)) if instance.is_pca else None,
            sparse_explained_variance=summary.sparse_variance_explained,
            residual=summary.residual,
        )
        for i, (X, sparse) in enumerate(zip(network.X, network.sparse, strict=True)):
            findings = replace(known, features=self._features[i])
            facts = _facts_of_agent(network, topology, i, summary)
            PeerFiles(self.path, topology, i).write(X, None if D is None else D[i], sparse, facts, findings)
        self.write_summary(summary)

    def write_summary(self, summary: Summary) -> None:
        """Write the result in numbers and in words."""
        self._complete(summary)
        _write_json(self.path / "summary.json", asdict(summary))
        (self.path / "summary.txt").write_text(summary.in_words() + "\n", encoding="utf-8")


def _facts_of_agent(network: Network, topology: Topology, agent: AgentId, summary: Summary) -> dict[str, Any]:
    """What a simulated agent has to say of the run, with the names that a peer uses."""
    return {
        "id": agent,
        "name": topology.name,
        "digest": topology.digest,
        "version": __version__,
        "round": network.k,
        "rounds_by_phase": dict(network.rounds_by_phase),
        "phases_cut_short": list(network.phases_cut_short),
        "is_done": network.is_done,
        "has_converged": summary.has_converged,
        "tolerance": topology.tolerance,
        "starts": network.starts,
        "verdict": summary.verdict,
        "eta": float(network.eta[agent]),
        "messages_sent": sum(network.rounds_by_phase.values()) * topology.graph.degrees[agent],
    }


def _explained_by_each(instance: Instance, X: Matrix) -> Matrix:
    """The same for each column by itself, (p,)."""
    shares: Matrix = -(X * instance.pooled.gradient(X)).sum(axis=0) / instance.pooled.variance()
    return shares


def _copy_topology(topology: Topology, file: Path) -> None:
    """As it is, unless it names files, whose paths may start from where it lay."""
    has_paths = topology.algorithm.start.kind == "file" or any(peer.data is not None for peer in topology.peers)
    if has_paths or topology.other_method is not None or topology.other_settings:
        file.write_text(tomlkit.dumps(anchored(topology)), encoding="utf-8")
    else:
        shutil.copyfile(topology.file, file)


def _describe(topology: Topology, engine: str) -> dict[str, Any]:
    return {
        "name": topology.name,
        "topology": str(topology.file.resolve()),
        "digest": topology.digest,
        "data": topology.problem.data.model_dump(),
        "start": topology.algorithm.start.model_dump(),
        "engine": engine,
        "command": sys.argv,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "versions": {
            "thanos-peer": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "platform": platform.platform(),
        },
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_bytes((json.dumps(content, indent=2) + "\n").encode())
