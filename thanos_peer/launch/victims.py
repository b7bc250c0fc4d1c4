"""The processes that faults strike: killed and started again, frozen and thawed."""

import contextlib
import signal
import time

from thanos_peer.block import AgentId
from thanos_peer.launch.cluster import Cluster
from thanos_peer.launch.faults import Fault


class Victims:
    """Kills and freezes peers of a cluster.

    Args:
        cluster: Whose peers they are.

    Attributes:
        kills: How many processes were killed.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.kills = 0
        self._thaw: dict[AgentId, float] = {}
        # When each peer was restarted, by the clock of its files.
        self._restarted: dict[AgentId, float] = {}

    def kill(self, fault: Fault) -> None:
        """All at once, then start them again; but not those who have ended by themselves."""
        victims = [i for i in fault.victims if not self._cluster.has_ended(i)]
        for i in victims:
            self._cluster.send_signal(i, signal.SIGKILL)
            self._thaw.pop(i, None)
        for i in victims:
            self._cluster.restart(i)
            self._restarted[i] = time.time()
            self.kills += 1

    def freeze(self, fault: Fault) -> None:
        """For some seconds."""
        for i in fault.victims:
            self._cluster.send_signal(i, signal.SIGSTOP)
            self._thaw[i] = time.monotonic() + fault.seconds

    def thaw_those_due(self) -> None:
        """Let those go on that have been frozen for long enough."""
        for i in [i for i, when in self._thaw.items() if time.monotonic() >= when]:
            del self._thaw[i]
            self._cluster.send_signal(i, signal.SIGCONT)

    def stop_while_saving(self, victim: AgentId) -> bool:
        """Stop a peer if it has a checkpoint half written; whether it has, and stands still."""
        if not self._is_saving(victim):
            return False
        # It is stopped first, so that it cannot finish before it is killed.
        self._cluster.send_signal(victim, signal.SIGSTOP)
        time.sleep(0.01)
        if self._is_saving(victim):
            return True
        self._cluster.send_signal(victim, signal.SIGCONT)
        return False

    def _is_saving(self, victim: AgentId) -> bool:
        """Whether a checkpoint is half written, and not one that an earlier kill has left so."""
        for path in self._cluster.state.glob(f"{victim}-*.new"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime > self._restarted.get(victim, 0.0):
                    return True
        return False
