"""Faults on purpose, on a seeded schedule: what a run of real peers has to get through with the same bits.

What happens, to whom and in which round is drawn beforehand from the seed; when exactly, the machine decides. A
fault strikes when the run reaches its round; the run goes on meanwhile. The proxies let the run get only so far
until it is seen which round it has reached: however fast it is, it is not over before its faults have struck.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from thanos_peer.block import AgentId
from thanos_peer.errors import NeighborLostError
from thanos_peer.launch.cluster import Cluster
from thanos_peer.launch.faults import Fault
from thanos_peer.launch.proxy import Proxies
from thanos_peer.launch.victims import Victims

# Seconds between two looks at the peers.
STRIKE_PAUSE = 0.02
# Seconds without anything new after which the run is given up.
STUCK = 120.0
# Seconds, in place of STUCK, while a peer does not say where it is: it may be reading its data.
LOADING = 3600.0
# Seconds between two questions to the peers where they are, while there are no rounds to be seen.
ASK = 5.0
# Seconds to wait for a peer to be in the middle of saving.
CATCH_SAVING = 3.0
# While a fault waits for that, each connection may bring PIECES pieces in PACE seconds.
PIECES, PACE = 5, 0.1
# Rounds before a fault in which the peers are asked at each look where they are.
NEAR = 200
# Seconds between two such questions while a fault is further away.
ASK_FAR = 0.5
# Rounds that one piece can bring the run further, at the most.
ROUNDS_A_PIECE = 2

# How each of these faults worsens the connections to a peer.
_WORSE: Final[Mapping[str, Mapping[str, float]]] = {
    "delay": {"delay": 0.02},
    "lose-bytes": {"loss": 0.1},
    "drop": {"drop": 0.3},
    "duplicate": {"duplicate": 0.3},
}


class StallDetector:
    """Whether a run still moves; the rounds that prepare it are seen only by asking the peers.

    Args:
        places: Says where each peer is, None for one that does not answer.
    """

    def __init__(self, places: Callable[[], Mapping[AgentId, object]]) -> None:
        self._places = places
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
            self._asked, places = now, self._places()
            self._limit = LOADING if None in places.values() else STUCK
            news = {i: place for i, place in places.items() if place not in (None, self._known.get(i))}
            if news:
                self._moved = now
                self._known |= news
        return now - self._moved > self._limit


class RoundWatch:
    """Which round a run has reached, as far as it is seen.

    Args:
        cluster: Whose run it is.
        before: The rounds of the phases before the main one: those that are kept are counted from there.

    Attributes:
        reached: That round.
    """

    def __init__(self, cluster: Cluster, before: int) -> None:
        self._cluster, self._before = cluster, before
        self.reached = -1
        # When the peers were last asked where they are.
        self._asked = 0.0
        self._stall = StallDetector(cluster.places)

    def look(self, next_fault: float) -> bool:
        """See which round the run has reached; returns whether that is known as of now.

        Args:
            next_fault: The round of the next fault: shortly before it the peers are asked at each look.
        """
        is_new = False
        for snapshot in self._cluster.snapshots():
            is_new, self.reached = True, max(self.reached, self._before + snapshot.k)
        if is_new:
            self._stall.note()
        is_near = next_fault - self.reached < NEAR
        if is_near or (not is_new and time.monotonic() - self._asked > ASK_FAR):
            places = self._cluster.places().values()
            self.reached = max(self.reached, -1, *(place[2] for place in places if place is not None))
            is_new, self._asked = True, time.monotonic()
        return is_new

    def check(self) -> None:
        """Raise NeighborLostError if nothing moves any more."""
        if self._stall.has_ended():
            raise NeighborLostError(f"nothing moves any more after round {self.reached}; the peers' logs say more")


class Chaos:
    """Lets faults strike the peers of a cluster.

    Args:
        cluster: Whose peers they are.
        proxies: What stands before each peer's address.
        faults: The schedule.
        before: The rounds of the phases before the main one: those that are kept are counted from there.
        latest: The last round in which a fault can strike.
        tell: Called with a line for each fault.
        rate: How many rounds per second the run is held back to.

    Attributes:
        struck: How many faults of each kind have struck a peer that still ran.
        victims: Those that were killed or frozen.
        kills_saving: How many processes were killed in the middle of saving.
    """

    def __init__(
        self,
        cluster: Cluster,
        proxies: Proxies,
        faults: Sequence[Fault],
        *,
        before: int,
        latest: int,
        tell: Callable[[str], None],
        rate: float = math.inf,
    ) -> None:
        self._cluster, self._proxies, self._tell = cluster, proxies, tell
        self._latest, self._rate, self._began = latest, rate, time.monotonic()
        self._left = list(faults)
        self._watch, self.victims = RoundWatch(cluster, before), Victims(cluster)
        self.struck: Counter[str] = Counter()
        self.kills_saving = 0

    @property
    def _next(self) -> float:
        """The round of the next fault; infinite after the last."""
        return self._left[0].k if self._left else math.inf

    def run(self) -> None:
        """Until all peers have ended by themselves.

        Raises:
            PeerFailedError: One ended with an error.
            NeighborLostError: Nothing moves any more.
        """
        self._allow()
        while self._cluster.is_running:
            time.sleep(STRIKE_PAUSE)
            self._cluster.check()
            is_seen = self._watch.look(self._next)
            self.victims.thaw_those_due()
            while self._next <= self._watch.reached:
                self._strike(self._left.pop(0))
            if is_seen:
                self._allow()
            self._watch.check()

    def _allow(self) -> None:
        """Let the run get to the next fault, but not beyond, nor further than the time lets it."""
        to = min(self._next, self._rate * (time.monotonic() - self._began + ASK_FAR))
        self._proxies.allowance.give(max(1.0, (to - self._watch.reached) / ROUNDS_A_PIECE))

    def _strike(self, fault: Fault) -> None:
        """Let a fault strike; not one whose victims have all ended, which stays one that has not struck."""
        if all(self._cluster.has_ended(i) for i in fault.victims):
            return
        self._tell(f"round {self._watch.reached:6}: {fault.describe()}")
        self.struck[fault.kind] += 1
        match fault.kind:
            case "kill":
                self.victims.kill(fault)
            case "storm":
                for pause in (0.0, 0.1 * fault.seconds, 0.2 * fault.seconds):
                    time.sleep(pause)
                    self.victims.kill(fault)
            case "kill-saving":
                self._await_saving(fault.victims[0])
                self.victims.kill(fault)
            case "freeze":
                self.victims.freeze(fault)
            case _:
                self._spoil(fault)

    def _spoil(self, fault: Fault) -> None:
        """Do something to the connections to a peer."""
        proxies, victim, seconds = self._proxies, fault.victims[0], fault.seconds
        match fault.kind:
            case "cut":
                proxies.cut(victim, seconds)
            case "refuse":
                proxies.refuse(victim, seconds)
            case "reset":
                proxies.reset(victim)
            case "half-open":
                proxies.half_open(victim, seconds)
            case "stall" | "deaf" | "mute" as kind:
                proxies.hold(victim, seconds, way_in=kind != "mute", way_back=kind != "deaf")
            case kind:
                proxies.worsen(victim, seconds, **_WORSE[kind])

    def _await_saving(self, victim: AgentId) -> None:
        """Wait for a moment at which the victim has a checkpoint half written.

        Meanwhile the run goes on slowly, as far as faults may strike: a peer that stands still saves nothing.
        """
        until, looked = time.monotonic() + CATCH_SAVING, 0.0
        while time.monotonic() < until and not self._cluster.has_ended(victim):
            if self.victims.stop_while_saving(victim):
                self.kills_saving += 1
                return
            if time.monotonic() - looked > PACE:
                looked = time.monotonic()
                self._watch.look(self._next)
                left = (self._latest - self._watch.reached) // ROUNDS_A_PIECE
                self._proxies.allowance.give(min(PIECES, max(0, left)))
            time.sleep(0.0005)
