"""The handshake: what peers say of themselves in a Hello, what has to agree, and whether an id is used twice.

A neighbor is sent blocks only once its Hello has arrived and agrees with ours in topology digest, shape, precision
and names of features. A peer says Hello to its own address too: if that does not come back, another process
listens there.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from thanos_peer.block import AgentId
from thanos_peer.errors import RemoteProtocolError
from thanos_peer.protocol.messages import LONGEST_BIRTH, NEVER, Hello
from thanos_peer.protocol.neighbor import Link, Neighbor

if TYPE_CHECKING:
    from thanos_peer.agent import Agent

# Seconds between two Hellos of a peer to its own address.
TELL_ITSELF = 1.0
# Lives of a neighbor that are remembered, at most.
MOST_LIVES = 16
# If more Hellos to its own address than this do not come back, another process is there.
UNHEARD = 8
# Hex digits of each of the two digests of the features' names: of the names in order, and sorted.
HALF = 32


@dataclass(frozen=True)
class Terms:
    """What all peers of a run have to agree on, and how this one introduces itself.

    Attributes:
        digest: Of the topology, and whether sums are masked.
        n: Rows of X.
        p: Columns.
        dtype: How X and D are sent.
        diameter: Of the graph.
        software: The version of this peer.
        life: When this process started, in milliseconds since 1970: it tells this life from an earlier one.
        are_masked: Whether sums are masked.
        digest_otherwise: The digest of a peer that differs in nothing but that.
    """

    digest: str
    n: int
    p: int
    dtype: str
    diameter: int
    software: str
    life: int
    are_masked: bool = False
    digest_otherwise: str = ""


def difference_of_digests(ours: str, theirs: str) -> str | None:
    """In what two digests of names say that they differ; None if in nothing, or where one side has no names."""
    if not ours or not theirs or ours == theirs:
        return None
    return "order of features, whose names are the same" if ours[HALF:] == theirs[HALF:] else "names of features"


class Handshake:
    """Makes this peer's Hellos, and compares those of its neighbors.

    Args:
        terms: What all have to agree on.
        agent: Whose neighbors they are.
        neighbors: What is known of them.
        features: The digest of the names of this peer's features; empty if they have none. Then it passes on the
            first one that it hears, so that peers that are not neighbors can compare theirs.
    """

    def __init__(
        self,
        terms: Terms,
        agent: "Agent",
        neighbors: Mapping[AgentId, Neighbor],
        features: str = "",
    ) -> None:
        self.terms, self._agent, self._neighbors, self._features = terms, agent, neighbors, features
        # The neighbor whose names of features it passes on, having none itself.
        self._features_of: AgentId | None = None
        # The latest epoch that this life has begun.
        self.began: int | None = None

    def hello(self, *, is_asking: bool = False, answered: int = 0, trouble: str = "") -> Hello:
        """What this peer says of itself."""
        terms, agent = self.terms, self._agent
        return Hello(
            k=agent.k,
            digest=terms.digest,
            n=terms.n,
            p=terms.p,
            dtype=terms.dtype,
            software=terms.software,
            is_asking=is_asking,
            life=terms.life,
            answered=answered,
            oldest=agent.exchange.oldest,
            epoch=agent.epoch,
            trouble=trouble,
            features=self._features,
            birth=agent.birth,
        )

    def birth_in(self, epoch: int) -> str:
        """What names the beginning of a later epoch by this life of this peer."""
        named = f"{self._agent.birth} {self.terms.life} {epoch}"
        return hashlib.sha256(named.encode()).hexdigest()[:LONGEST_BIRTH]

    def is_replaced(self, neighbor: AgentId, hello: Hello) -> bool:
        """Whether a neighbor has begun this epoch again, though blocks of the first time have been used."""
        known = self._agent.births.get(neighbor, "")
        is_other = bool(known and hello.birth) and known != hello.birth
        return is_other and hello.epoch == self._agent.epoch and self._agent.has_used(neighbor)

    def note_birth(self, neighbor: AgentId, hello: Hello) -> None:
        """Note which of a neighbor's beginnings of this epoch its blocks are to be of.

        Only an answer to this life is sure to come from the neighbor at its address, and not from a duplicate.
        Until there is one, nothing is known, and no block is taken. If another life has been heard since, it may
        be the late answer of one that is gone, so it has to come twice.
        """
        known = self._neighbors[neighbor]
        if hello.epoch != self._agent.epoch:
            return
        if hello.answered == self.terms.life:
            is_sure = known.is_latest(hello.life) or known.answering == hello.life
            known.answering = hello.life
            if not is_sure:
                return
            self._agent.births[neighbor] = hello.birth
        elif self._agent.births.get(neighbor) != hello.birth and not self._agent.has_used(neighbor):
            self._agent.births.pop(neighbor, None)

    def is_of_birth(self, neighbor: AgentId, birth: str) -> bool:
        """Whether this is the birth that a neighbor has answered with in this epoch."""
        return self._agent.births.get(neighbor) == birth

    def hello_that_state_is_lost(self, neighbor: AgentId, hello: Hello) -> Hello:
        """Tell a neighbor of our epoch that it may not begin a second time, or not go on in from another state."""
        if hello.epoch == self._agent.epoch:
            oldest = NEVER
        else:
            oldest = max(self._agent.exchange.oldest, int(self._agent.has_used(neighbor)))
        return replace(self.hello(answered=hello.life), oldest=oldest)

    def difference(self, neighbor: Neighbor, hello: Hello) -> str | None:
        """What a neighbor does not agree with us on.

        Raises:
            RemoteProtocolError: It did agree before, and the run with it is under way: this Hello is ignored.
        """
        found = self._difference(hello)
        if found is not None and neighbor.is_greeted and not self._may_have_learned(neighbor, hello):
            raise RemoteProtocolError(neighbor=neighbor.id, k=hello.k, what=f"a hello that differs in {found}")
        return found

    def _difference(self, hello: Hello) -> str | None:
        terms = self.terms
        if terms.digest != hello.digest == terms.digest_otherwise:
            here, there = ("on", "off") if terms.are_masked else ("off", "on")
            return f"masks: {here} here, {there} there; have both topology files say the same of algorithm.masks"
        for name, mine, theirs in (
            ("shape (n, p)", (terms.n, terms.p), (hello.n, hello.p)),
            ("precision", terms.dtype, hello.dtype),
            ("topology digest", terms.digest, hello.digest),
        ):
            if mine != theirs:
                return (
                    f"{name}: {mine} here, {theirs} there; give both the same topology file, or if they have it, "
                    f"the same versions of this program ({terms.software} here, {hello.software} there) and numpy"
                )
        what = difference_of_digests(self._features, hello.features)
        if what is None:
            return None
        here = "here" if self._features_of is None else f"as passed on from peer {self._features_of}"
        return (
            f"{what}: digest {self._features} {here}, {hello.features} there, or as passed on by it; find out "
            "where with `thanos-peer features FILE` at both hosts"
        )

    def _may_have_learned(self, neighbor: Neighbor, hello: Hello) -> bool:
        """Whether other names are what a neighbor without any has heard of: they travel one edge in a round."""
        is_early = self._agent.k <= self.terms.diameter
        differs = difference_of_digests(self._features, hello.features) is not None
        return is_early and differs and neighbor.is_nameless

    def forget_features_of(self, neighbor: Neighbor, hello: Hello) -> None:
        """Forget the names that a neighbor has passed on, if another life of it does not know them."""
        if (
            self._features_of == neighbor.id
            and hello.life not in neighbor.lives
            and hello.features != self._features
        ):
            self._features, self._features_of = "", None

    def learns_features(self, neighbor: Neighbor, hello: Hello) -> bool:
        """Note a neighbor's names; returns whether they are the first that this peer hears of, to be passed on.

        Only in the first rounds, in which they reach all: later ones would be of another run, or a lie.
        """
        neighbor.is_nameless = not hello.features
        if neighbor.is_nameless or self._features or self._agent.k > self.terms.diameter:
            return False
        self._features, self._features_of = hello.features, neighbor.id
        return True

    def is_started_again(self, neighbor: Neighbor, hello: Hello) -> bool:
        """Note which life speaks; returns whether it is a new one of a neighbor that is known."""
        is_known = bool(neighbor.lives)
        if hello.life in neighbor.lives:
            return False
        neighbor.answering = 0
        neighbor.lives.append(hello.life)
        del neighbor.lives[:-MOST_LIVES]
        return is_known

    def is_lost(self, neighbor: Neighbor, hello: Hello, *, has_gone_on: bool) -> bool:
        """Whether a neighbor has answered that it cannot help this peer to where it is.

        That can be so for a life that has just started, and until it has come to where the neighbor was then.
        Past that it has sent all that the neighbor has heard of it, and the neighbor keeps what it has not heard.
        A neighbor that could help once can for as long as it lives. In an epoch that this life has begun, both may
        be late answers to a Hello of the one before; but the neighbor may have used what an earlier life has said
        in this one, if this life has taken no step.

        Raises:
            RemoteProtocolError: This peer is past that, or the neighbor has said otherwise.
        """
        is_same_epoch = hello.epoch == self._agent.epoch
        where = self._agent.k if is_same_epoch else 0
        if hello.answered != self.terms.life or self._agent.is_done:
            return False
        if hello.oldest <= where:
            neighbor.epoch.helper = hello.life if is_same_epoch else neighbor.epoch.helper
            return False
        is_begun = is_same_epoch and hello.epoch == self.began
        if is_begun and (hello.oldest != NEVER or not has_gone_on):
            return hello.oldest == NEVER
        first = neighbor.epoch.first_round
        is_past = has_gone_on and first is not None and first < self._agent.k
        if is_begun or is_past or (is_same_epoch and neighbor.epoch.helper == hello.life):
            what = "says that the state of this peer is lost, which has long gone on"
            raise RemoteProtocolError(neighbor=neighbor.id, k=hello.k, what=what)
        return True

    def yet_to_answer(self) -> list[AgentId]:
        """The neighbors that have not answered this life yet."""
        return [j for j, neighbor in self._neighbors.items() if not neighbor.has_answered]


class OwnAddress:
    """Whether this peer is the one that its neighbors reach.

    It says Hello to its own address in the topology file. If that comes back, all is well. If it does not, though
    the address is connected to, another process is there: a duplicate of this peer, or the address is wrong. Where
    the address does not lead back to its own host, nothing is concluded.

    Attributes:
        link: The connection to it.
        is_ours: Whether a Hello has come back.
    """

    def __init__(self, address: str) -> None:
        self.link = Link(address)
        self.is_ours = False
        self._unheard = 0
        self._next = 0.0

    @property
    def is_unclear(self) -> bool:
        """Whether a process is there, and it is not known yet which."""
        return self._unheard > 0 and not self.is_ours

    @property
    def is_taken(self) -> bool:
        """Whether another process is there."""
        return self._unheard > UNHEARD and not self.is_ours

    def is_time_to_tell(self, now: float) -> bool:
        """Whether to say Hello to it now; counted, so that neither load nor being frozen looks like silence."""
        if not self.link.is_up:
            self._unheard = 0
        if not self.link.is_up or now < self._next:
            return False
        self._next = now + TELL_ITSELF
        self._unheard += 1
        return True
