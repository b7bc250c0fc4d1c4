"""Who is who: what neighbors say of themselves when they say Hello, and whether there are two of anybody."""

import logging
import time
from dataclasses import replace

from thanos_peer import __version__
from thanos_peer.agent import Agent
from thanos_peer.block import AgentId
from thanos_peer.errors import RemoteProtocolError
from thanos_peer.protocol.wire import Hello
from thanos_peer.runtime.links import LinkState
from thanos_peer.samples import difference_of_digests
from thanos_peer.topology import Topology

log = logging.getLogger("thanos_peer")

NOTICES = 10.0  # seconds between two lines about the same thing
TELL_ITSELF = 1.0  # seconds between two Hellos of a peer to its own address
MOST_LIVES = 16  # of a neighbor that are remembered
UNHEARD = 8  # of them that do not come back, and somebody else is there


class Notices:
    """Lets nobody say the same thing all the time."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}

    def is_time_for(self, what: str) -> bool:
        """Whether something was not said just now."""
        now = time.monotonic()
        if now - self._said.get(what, -NOTICES) < NOTICES:
            return False
        self._said[what] = now
        return True


class Acquaintances:
    """What a peer knows of its neighbors from their Hellos.

    Args:
        topology: What all have to agree on.
        agent: Whose neighbors they are.
        notices: What has been said lately.
        features: The digest of the names of this peer's features; empty if they have none. Then it passes on the
            one that it hears first: neighbors of its neighbors may differ, and have nobody else to notice it.

    Attributes:
        life: When this process started, in milliseconds since 1970: what tells it from an earlier one.
        greeted: Those whose Hello agreed with ours.
    """

    def __init__(self, topology: Topology, agent: Agent, notices: Notices, features: str = "") -> None:
        self._topology, self._agent, self._notices, self._features = topology, agent, notices, features
        self.life = int(time.time() * 1000)
        self.greeted: set[AgentId] = set()
        self._rounds: dict[AgentId, int] = {}  # which round of this epoch each was in when it said Hello
        self._first_rounds: dict[AgentId, int] = {}  # the same, when it said so first
        self._features_of: AgentId | None = None  # whose names it passes on, having none itself
        self._nameless: set[AgentId] = set()  # those whose latest Hello had no names
        self._lives: dict[AgentId, list[int]] = {}  # the latest lives of each neighbor, in order
        self._answered_by: set[AgentId] = set()  # who has answered this life

    def hello(self, *, is_asking: bool = False, answered: int = 0, trouble: str = "") -> Hello:
        """What this peer says of itself."""
        problem = self._topology.problem
        return Hello(
            k=self._agent.k,
            digest=self._topology.digest,
            n=problem.n,
            p=problem.p,
            dtype=self._topology.algorithm.exchange,
            software=__version__,
            is_asking=is_asking,
            life=self.life,
            answered=answered,
            oldest=self._agent.oldest_said,
            epoch=self._agent.epoch,
            trouble=trouble,
            features=self._features,
        )

    def hello_to_an_earlier_epoch(self, neighbor: AgentId, hello: Hello) -> Hello:
        """Tell a neighbor of our epoch; it may not begin it a second time."""
        oldest = max(self._agent.oldest_said, int(self._agent.has_used(neighbor)))
        return replace(self.hello(answered=hello.life), oldest=oldest)

    def difference(self, neighbor: AgentId, hello: Hello) -> str | None:
        """What a neighbor does not agree with us on.

        Raises:
            RemoteProtocolError: It did agree before, and the run with it is under way: its word is ignored then.
        """
        found = self._difference(hello)
        if found is not None and neighbor in self.greeted and not self._may_have_learned(neighbor, hello):
            raise RemoteProtocolError(neighbor=neighbor, k=hello.k, what=f"a hello that differs in {found}")
        return found

    def _difference(self, hello: Hello) -> str | None:
        ours = self.hello()
        for name, mine, theirs in (
            ("shape (n, p)", (ours.n, ours.p), (hello.n, hello.p)),
            ("precision", ours.dtype, hello.dtype),
            ("topology digest", ours.digest, hello.digest),
        ):
            if mine != theirs:
                return f"{name}: {mine} here, {theirs} there; give both the same topology file"
        what = difference_of_digests(ours.features, hello.features)
        if what is None:
            return None
        here = "here" if self._features_of is None else f"as passed on from peer {self._features_of}"
        return (
            f"{what}: digest {ours.features} {here}, {hello.features} there, or as passed on by it; find out "
            "where with `thanos-peer features FILE` at both hosts"
        )

    def _may_have_learned(self, neighbor: AgentId, hello: Hello) -> bool:
        """Whether other names are what a neighbor without any has heard of: they travel a peer in a round."""
        is_early = self._agent.k <= self._topology.graph.diameter
        differs = difference_of_digests(self._features, hello.features) is not None
        return is_early and differs and neighbor in self._nameless

    def _learns_features(self, neighbor: AgentId, hello: Hello) -> bool:
        """Note a neighbor's names; returns whether they are the first that this peer hears of, to be passed on."""
        if not hello.features:
            self._nameless.add(neighbor)
            return False
        self._nameless.discard(neighbor)
        if self._features:
            return False
        self._features, self._features_of = hello.features, neighbor
        return True

    def meet(self, neighbor: AgentId, hello: Hello) -> bool:
        """Note a Hello that agrees with ours.

        A neighbor that was started again is told from two with the same id, of which one is too many.

        Returns:
            Whether this peer has learned something from it to tell all its neighbors.
        """
        self.greeted.add(neighbor)
        lives = self._lives.setdefault(neighbor, [])
        if hello.life not in lives:
            if lives and self._notices.is_time_for(f"again {neighbor}"):
                log.info("peer %d has started again, in round %d", neighbor, hello.k)
            lives.append(hello.life)
            del lives[:-MOST_LIVES]
        elif hello.life != lives[-1] and self._notices.is_time_for(f"double {neighbor}"):
            log.warning("two peers say that they are peer %d; stop the one that is not at its address", neighbor)
        if hello.answered == self.life:
            self._answered_by.add(neighbor)
        elif (
            hello.answered and neighbor in self._answered_by
        ):  # answers come in order: it is none to an earlier life
            self.name_double()
        return self._learns_features(neighbor, hello)

    def yet_to_answer(self) -> list[AgentId]:
        """The neighbors that have not answered this life yet."""
        return [j for j in self._agent.neighbors if j not in self._answered_by]

    def name_double(self) -> None:
        """Say that there is a second peer with this one's id, which is not the one at its address."""
        if self._notices.is_time_for("double"):
            log.warning(
                "another peer %d runs somewhere else; it gets no answers there, and ends when it has noticed",
                self._agent.id,
            )

    def begin_epoch(self) -> None:
        """Note that all rounds begin anew."""
        self._rounds.clear()
        self._first_rounds.clear()

    def note_round(self, neighbor: AgentId, k: int) -> None:
        """Note which round of this epoch a neighbor is in."""
        self._rounds[neighbor] = k
        self._first_rounds.setdefault(neighbor, k)

    def ahead_in(self, k: int) -> tuple[AgentId, ...]:
        """The neighbors that had come to round k or further when they said Hello; the others are forgotten."""
        if self._rounds:
            self._rounds = {j: where for j, where in self._rounds.items() if where >= k}
        return tuple(self._rounds)

    def is_lost(self, neighbor: AgentId, hello: Hello) -> bool:
        """Whether a neighbor has answered that it cannot help this peer to where it is.

        That can be so for a life that has just started, and until it has come to where the neighbor was then.
        Past that it has said all that the neighbor has heard of it, and the neighbor keeps what it has not heard.

        Raises:
            RemoteProtocolError: This peer is past that.
        """
        where = self._agent.k if hello.epoch == self._agent.epoch else 0
        if hello.answered != self.life or hello.oldest <= where or self._agent.is_done:
            return False
        first = self._first_rounds.get(neighbor)
        if first is not None and first < self._agent.k:
            what = "says that the state of this peer is lost, which has long gone on"
            raise RemoteProtocolError(neighbor=neighbor, k=hello.k, what=what)
        return True


class OwnAddress:
    """Whether this peer is the one that its neighbors reach.

    It says Hello to its own address in the topology file. If that comes back, all is well. If it does not, though
    somebody is connected to, that is another: a second peer was started with the same id, or the address is wrong.
    Where the address does not lead back to its own host, nothing is concluded.
    """

    def __init__(self) -> None:
        self.is_ours = False
        self._unheard = 0
        self._next = 0.0

    @property
    def is_unclear(self) -> bool:
        """Whether somebody is there, and it is not known yet who."""
        return self._unheard > 0 and not self.is_ours

    @property
    def is_taken(self) -> bool:
        """Whether somebody else is there."""
        return self._unheard > UNHEARD and not self.is_ours

    def is_time_to_tell(self, link: LinkState) -> bool:
        """Whether to say Hello to it now; counted, so that neither load nor being frozen looks like silence."""
        now = time.monotonic()
        if not link.is_up:
            self._unheard = 0
        if not link.is_up or now < self._next:
            return False
        self._next = now + TELL_ITSELF
        self._unheard += 1
        return True
