"""What a peer says of itself, for `thanos-peer status` and beside its result."""

import time
from typing import Any

from thanos_peer import __version__
from thanos_peer.convergence import starts_of
from thanos_peer.protocol.session import Session
from thanos_peer.topology import Topology


class StatusFacts:
    """Collects what a peer is doing, and how long its rounds take.

    Args:
        topology: What all agree on.
        session: Of the peer.
    """

    def __init__(self, topology: Topology, session: Session) -> None:
        self._topology, self._session = topology, session
        self._first_step: tuple[int, float] | None = None
        # CPU seconds that had been used at the first step.
        self._cpu = 0.0

    def note_first_step(self) -> None:
        """Note the CPU time if the session has just taken its first step; called often."""
        if self._first_step is not self._session.talk.first_step:
            self._first_step, self._cpu = self._session.talk.first_step, time.process_time()

    def _stepping(self) -> dict[str, float]:
        """Rounds since the first, and the time and CPU they took."""
        if self._first_step is None:
            return {"rounds": 0, "seconds": 0.0, "cpu_seconds": 0.0}
        k, began = self._first_step
        talk = self._session.talk
        return {
            "rounds": talk.agent.k - k,
            "seconds": talk.waiting.since - began,
            "cpu_seconds": time.process_time() - self._cpu,
        }

    def collect(self, *, strangers: int) -> dict[str, Any]:
        """All of them.

        Args:
            strangers: How many connections did not get in.
        """
        session, now = self._session, time.monotonic()
        talk = session.talk
        agent, convergence = talk.agent, talk.agent.convergence
        return {
            "id": agent.id,
            "name": self._topology.name,
            "digest": self._topology.digest,
            "version": __version__,
            "round": agent.k,
            "phases": [phase.name for phase in agent.runner.phases],
            "phase": agent.runner.phase.name,
            "phase_round": agent.runner.round,
            "last_round": agent.runner.last_round,
            "epoch": agent.epoch,
            "is_done": agent.is_done,
            "has_converged": convergence.has_converged,
            "residual": None if agent.found.residual is None else float(agent.found.residual),
            "tolerance": self._topology.tolerance,
            "starts": starts_of(agent.found),
            "verdict": convergence.words if agent.is_done else None,
            "eta": agent.runner.eta,
            "waiting": talk.waiting.lines(now),
            "stepping": self._stepping(),
            "rejected": session.rejected,
            "misbehaving": session.misbehaving(now),
            "strangers": strangers,
            "saved_round": None if talk.saving is None else talk.saving.latest,
            "checkpoints": 0 if talk.saving is None else talk.saving.count,
            "edges": talk.traffic.facts(),
        }
