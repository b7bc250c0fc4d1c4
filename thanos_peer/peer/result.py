"""What one peer writes when it ends, however it ends."""

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from thanos_peer.errors import CheckpointError
from thanos_peer.loadings.findings import findings_of, words_on_loadings
from thanos_peer.peer.peer import Peer
from thanos_peer.phases.masking import NAME as MASKS
from thanos_peer.storage.peer_files import PeerFiles
from thanos_peer.topology import Topology

log = logging.getLogger("thanos_peer")

TOTALS = ("messages_sent", "bytes_sent")  # over all edges, in the facts


class OutcomeWriter:
    """Writes the result of one peer.

    Args:
        topology: What all agree on.
        peer: Whose result it is.
        files: Where it goes.
        features: What the rows of X are called.
        policy: The rules of this site that held.
        is_alone: Whether nothing else sums up all peers: then what did is of an earlier state.
    """

    def __init__(
        self,
        topology: Topology,
        peer: Peer,
        files: PeerFiles,
        features: tuple[str, ...] | None,
        *,
        policy: Mapping[str, Any],
        is_alone: bool,
    ) -> None:
        self._is_alone = is_alone
        self._topology, self._peer, self._files, self._features = topology, peer, files, features
        self._policy = dict(policy)
        self._began = time.monotonic()

    def write(self, ending: str) -> None:
        """Write what there is; before the phase that minimises there is nothing.

        A finished result is not replaced by less of the same epoch.

        Raises:
            CheckpointError: It cannot be written.
        """
        agent, files = self._peer.agent, self._files
        answer = agent.runner.answer()
        if answer is None:
            log.info("%s in phase %s: there is no result yet", ending.partition(":")[0], agent.runner.phase.name)
            return
        if self._has_better():
            log.info("%s in round %d; the result in %s is finished, and stays", ending, answer.k, files.result)
            return
        facts = self._peer.status() | {"ending": ending, "seconds": time.monotonic() - self._began}
        facts |= {"round": answer.k, "eta": answer.eta, "rounds_by_phase": agent.runner.rounds_by_phase}
        facts |= {"phases_cut_short": list(agent.runner.phases_cut_short)}
        facts |= {name: sum(edge[name] for edge in facts["edges"].values()) for name in TOTALS}
        facts |= {"policy": self._policy, "agreement": self._topology.agreement}
        has_masks = any(phase.name == MASKS for phase in agent.runner.phases)
        facts |= {"has_keys": self._topology.has_keys, "masks_sums": has_masks}
        findings = findings_of(self._topology, agent, self._features)
        with _named(files.result):
            if self._is_alone:
                files.set_aside()
            files.write(answer.X, answer.arrays.get("D"), answer.sparse, facts, findings)
        for phase in agent.runner.phases_cut_short:
            log.warning(
                "phase %s ended at its maximum of %d rounds, not by its tolerance: the start is less precise than "
                "asked for; raise max_rounds in algorithm.start for another run",
                phase,
                agent.runner.rounds_by_phase[phase],
            )
        if agent.is_done:
            log.info("%s", agent.convergence.words)
            if (choice := findings.account.choice) != "":
                log.info("mu = %.4g, %s", findings.account.mu, choice)
            log.info("%s", words_on_loadings(answer.sparse, findings))
        log.info("ended: %s; results of round %d in %s", ending.partition(":")[0], answer.k, files.result)

    def _has_better(self) -> bool:
        """Whether a finished result is there, and this peer has not come as far again."""
        agent, files = self._peer.agent, self._files
        is_finished = files.finished_round(self._topology.digest) is not None
        return is_finished and not agent.is_done and agent.epoch <= files.finished_epoch


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Say which file could not be written, and that nothing is lost."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"cannot write the results to {path}: {error.strerror or error}; nothing is lost: mend it and start "
            "this peer again with the same command"
        ) from error
