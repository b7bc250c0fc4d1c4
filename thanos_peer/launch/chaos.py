"""Faults on purpose, on a seeded schedule: what a run of real peers has to get through with the same bits.

What happens, to whom and in which round is drawn beforehand from the seed; when exactly, the machine decides. A
fault strikes when the run reaches its round; the run goes on meanwhile.
"""

import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from thanos_peer.block import AgentId
from thanos_peer.errors import NeighborLostError
from thanos_peer.launch.cluster import Cluster
from thanos_peer.launch.proxy import Proxies

KINDS = ("kill", "storm", "kill-saving", "freeze", "cut", "delay", "drop", "duplicate")
LOOK = 0.02  # seconds between two looks at the peers
STUCK = 120.0  # seconds without anything new after which the run is given up,
LOADING = 3600.0  # while a peer does not say where it is: it may be reading its data
ASK = 5.0  # seconds between two questions where the peers are, while there are no rounds to be seen
CATCH_SAVING = 3.0  # seconds to wait for a peer to be in the middle of saving


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        k: When the run reaches this round.
        kind: One of KINDS.
        victims: To whom.
        seconds: For how long.
    """

    k: int
    kind: str
    victims: tuple[AgentId, ...]
    seconds: float

    def describe(self) -> str:
        """In words."""
        whom = ", ".join(map(str, self.victims))
        return {
            "kill": f"kill -9 of {whom}",
            "storm": f"kill -9 of {whom}, and twice more while it starts",
            "kill-saving": f"kill -9 of {whom} while it saves",
            "freeze": f"freeze {whom} for {self.seconds:.1f} s",
            "cut": f"cut the cable to {whom} for {self.seconds:.1f} s",
            "delay": f"delay all messages to {whom} by 20 ms for {self.seconds:.1f} s",
            "drop": f"drop 30% of the messages to {whom} for {self.seconds:.1f} s",
            "duplicate": f"duplicate 30% of the messages to {whom} for {self.seconds:.1f} s",
        }[self.kind]


def draw_faults(count: int, kinds: Sequence[str], *, d: int, rounds: int, seed: int) -> list[Fault]:
    """A schedule of faults, spread over the rounds, in order."""
    rng = random.Random(seed)  # noqa: S311 - it must be repeatable, not secret
    when = sorted(rng.randrange(max(1, rounds - 1)) for _ in range(count))
    faults = []
    for number, k in enumerate(when):
        kind = kinds[number % len(kinds)]
        several = rng.choice((1, 1, 2, 3)) if kind == "kill" else 1
        victims = tuple(sorted(rng.sample(range(d), min(several, d))))
        faults.append(Fault(k, kind, victims, seconds=rng.uniform(0.2, 5.0)))
    return faults


class StallDetector:
    """Whether a run still moves; the rounds that prepare it are seen only by asking the peers.

    Args:
        whereabouts: Says where each peer is, None for one that does not answer.
    """

    def __init__(self, whereabouts: Callable[[], Mapping[AgentId, object]]) -> None:
        self._whereabouts = whereabouts
        self._known: dict[AgentId, object] = {}
        self._limit = LOADING
        self._moved = self._asked = time.monotonic()

    def note(self) -> None:
        """Note that there was something new."""
        self._moved = self._asked = time.monotonic()

    def has_ended(self) -> bool:
        """Whether there has been nothing new for too long."""
        now = time.monotonic()
        if now - self._asked >= ASK:
            self._asked, places = now, self._whereabouts()
            self._limit = LOADING if None in places.values() else STUCK
            news = {i: place for i, place in places.items() if place not in (None, self._known.get(i))}
            if news:
                self._moved = now
                self._known |= news
        return now - self._moved > self._limit


class Chaos:
    """Lets faults strike the peers of a cluster.

    Args:
        cluster: Whose peers they are; every round must be kept.
        proxies: What stands before each peer's address.
        faults: The schedule.
        tell: Called with a line for each fault.
    """

    def __init__(
        self, cluster: Cluster, proxies: Proxies, faults: Sequence[Fault], *, tell: Callable[[str], None]
    ) -> None:
        self._cluster, self._proxies, self._tell = cluster, proxies, tell
        self._left = list(faults)
        self._thaw: dict[AgentId, float] = {}
        self._restarted: dict[AgentId, float] = {}  # when, on the clock of the files
        self.struck: Counter[str] = Counter()
        self.kills = self.kills_saving = 0

    def run(self) -> None:
        """Until all peers have ended by themselves.

        Raises:
            PeerFailedError: One ended with an error.
            NeighborLostError: Nothing moves any more.
        """
        k, progress = -1, StallDetector(self._cluster.whereabouts)
        while self._cluster.is_running:
            time.sleep(LOOK)
            self._cluster.check()
            for snapshot in self._cluster.snapshots():
                k = snapshot.k
                progress.note()
            self._thaw_those_due()
            while self._left and self._left[0].k <= k:
                self._strike(self._left.pop(0), k)
            if progress.has_ended():
                raise NeighborLostError(f"nothing moves any more after round {k}; the peers' logs say more")

    @property
    def not_struck(self) -> int:
        """How many faults the run was too short for."""
        return len(self._left)

    def _strike(self, fault: Fault, k: int) -> None:
        self._tell(f"round {k:6}: {fault.describe()}")
        self.struck[fault.kind] += 1
        proxies, seconds, (victim, *_) = self._proxies, fault.seconds, fault.victims
        match fault.kind:
            case "kill":
                self._kill(fault.victims)
            case "storm":
                for pause in (0.0, 0.1 * seconds, 0.2 * seconds):
                    time.sleep(pause)
                    self._kill(fault.victims)
            case "kill-saving":
                self._await_saving(victim)
                self._kill(fault.victims)
            case "freeze":
                self._cluster.send_signal(victim, signal.SIGSTOP)
                self._thaw[victim] = time.monotonic() + seconds
            case "cut":
                proxies.cut(victim, seconds)
            case "delay":
                proxies.worsen(victim, seconds, delay=0.02)
            case "drop":
                proxies.worsen(victim, seconds, drop=0.3)
            case "duplicate":
                proxies.worsen(victim, seconds, duplicate=0.3)

    def _kill(self, victims: Sequence[AgentId]) -> None:
        """All at once, then start them again; but not those who have ended by themselves."""
        victims = [i for i in victims if not self._cluster.has_ended(i)]
        for i in victims:
            self._cluster.send_signal(i, signal.SIGKILL)
            self._thaw.pop(i, None)
        for i in victims:
            self._cluster.restart(i)
            self._restarted[i] = time.time()
            self.kills += 1

    def _await_saving(self, victim: AgentId) -> None:
        """Wait for a moment at which the victim has a checkpoint half written."""
        until = time.monotonic() + CATCH_SAVING
        while time.monotonic() < until and not self._cluster.has_ended(victim):
            if self._is_saving(victim):
                self._cluster.send_signal(victim, signal.SIGSTOP)  # so that it cannot finish before it is killed
                time.sleep(0.01)
                if self._is_saving(victim):
                    self.kills_saving += 1
                    return
                self._cluster.send_signal(victim, signal.SIGCONT)
            time.sleep(0.0005)

    def _is_saving(self, victim: AgentId) -> bool:
        """Whether a checkpoint is half written, and not one that an earlier kill has left so."""
        for path in self._cluster.state.glob(f"{victim}-*.new"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime > self._restarted.get(victim, 0.0):
                    return True
        return False

    def _thaw_those_due(self) -> None:
        for i in [i for i, when in self._thaw.items() if time.monotonic() >= when]:
            del self._thaw[i]
            self._cluster.send_signal(i, signal.SIGCONT)
