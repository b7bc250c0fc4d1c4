"""The phase in which neighbors agree on the secrets of their masks."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from thanos_peer.algorithm.masks import SECRET_BYTES, secret_of_edge
from thanos_peer.block import KEY, AgentId, Block, Matrix
from thanos_peer.errors import RemoteProtocolError
from thanos_peer.phases.phase import (
    Arrays,
    Form,
    Found,
    PhaseEnd,
    Result,
    Said,
    Together,
    WrongStateError,
    with_end,
)
from thanos_peer.topology.graph import Graph

NAME = "masks"
FORM: Form = (KEY, (1, SECRET_BYTES))
# The prime of Curve25519: a larger number is another name of a key.
_PRIME = 2**255 - 19


@dataclass(frozen=True, slots=True)
class MaskingState:
    """What an agent has in it.

    Attributes:
        secret: Its own half of the secrets, drawn when the phase begins and kept with the checkpoint: a peer that
            is killed says the same key again, and two lives never use one secret with other numbers.
        shared: What it shares with each neighbor, in order of id; empty in the first round.
    """

    secret: bytes
    shared: bytes = b""


class Masking:
    """All agents tell their neighbors a key that is good for this epoch alone: X25519, in one round.

    Args:
        agent: Whose phase this is.
        graph: Whose neighbors are told.
        run: The digest of the topology.
    """

    name, most = NAME, 1
    has_known_rounds = takes_all_rounds = True
    can_restart = False
    forms = frozenset({FORM})

    def __init__(self, *, agent: AgentId, graph: Graph, run: str) -> None:
        self._agent, self._neighbors, self._run = agent, graph.neighbors[agent], bytes.fromhex(run)
        self._edges = len(graph.edges)
        self._found, self._began = Found(), 0

    def payload(self, rounds: int) -> int:
        """A key in both directions of each edge."""
        return rounds * 2 * self._edges * SECRET_BYTES

    def enter(self, found: Found, began: int) -> None:
        """Nothing to get ready."""
        self._found, self._began = found, began

    def start(self) -> MaskingState:
        """A secret that nothing follows from."""
        return MaskingState(secrets.token_bytes(SECRET_BYTES))

    def restart(self, X: Matrix) -> MaskingState:  # noqa: ARG002 - see `can_restart`
        """From the beginning."""
        return self.start()

    def say(self, r: int, state: MaskingState) -> Said:  # noqa: ARG002
        """Its public key."""
        return Said(_public_key(state.secret), FORM)

    def expects(self, r: int, sender: AgentId) -> Form:  # noqa: ARG002
        """A key from every neighbor."""
        return FORM

    def advance(self, r: int, state: MaskingState, blocks: Sequence[Block]) -> tuple[MaskingState, bool]:
        """The secrets that follow from the keys of the neighbors.

        Raises:
            RemoteProtocolError: A key is none that an honest neighbor draws.
        """
        said = dict(zip(sorted((*self._neighbors, self._agent)), blocks, strict=True))
        keys = {i: block.numbers for i, block in said.items()}
        shared = [self._shared(r, state.secret, keys, neighbor) for neighbor in self._neighbors]
        return replace(state, shared=b"".join(shared)), False

    def _shared(self, r: int, secret: bytes, keys: dict[AgentId, bytes], neighbor: AgentId) -> bytes:
        theirs, product = keys[neighbor], _product(secret, keys[neighbor])
        fault = "none that an honest peer has drawn; that peer is wrong" if product is None else None
        for other, key in keys.items():
            if key == theirs and other == self._agent:
                fault = "this peer's own, which that peer has passed on"
            elif key == theirs and other != neighbor:
                fault = f"that of neighbor {other}, too: one of the two has passed on what the other one has said"
        if product is None or fault is not None:
            what = f"its key in phase {self.name} is {fault}"
            raise RemoteProtocolError(neighbor=neighbor, k=self._began + r, what=what)
        return secret_of_edge(self._run, {self._agent: keys[self._agent], neighbor: theirs}, product)

    def last(self, r: int, state: MaskingState) -> int:  # noqa: ARG002
        """The first round is."""
        return self.most

    def conclude(self, r: int, state: MaskingState, *, is_agreed: bool) -> Found:  # noqa: ARG002
        """The secrets."""
        return self.concluded(replace(self._found, secrets=state.shared))

    def concluded(self, found: Found) -> Found:
        """It is over; those who see all agents sum without masks, which the sums do not tell."""
        return with_end(found, PhaseEnd(self.name, self.most, None))

    def answer(self, r: int, state: MaskingState) -> tuple[Matrix, Matrix]:
        """It is no main phase."""
        raise NotImplementedError

    def arrays(self, state: MaskingState) -> Arrays:
        """Its secret, until all keys are there."""
        return {"secret": state.secret}

    def restored(self, arrays: Arrays) -> MaskingState:
        """As it was.

        Raises:
            WrongStateError: It is no state that this agent can have been in.
        """
        secret = arrays.get("secret")
        if set(arrays) != {"secret"} or not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
            raise WrongStateError(f"its state has {sorted(arrays)}; must have a secret of {SECRET_BYTES} bytes")
        return MaskingState(secret)

    def together(self, phases: Sequence["Masking"], ways: Together[Result]) -> Result:
        """They agree on masks."""
        return ways.masking(phases)


def _public_key(secret: bytes) -> bytes:
    from nacl.bindings import crypto_scalarmult_base  # noqa: PLC0415 - most commands need none

    key: bytes = crypto_scalarmult_base(secret)
    return key


def _product(secret: bytes, theirs: bytes) -> bytes | None:
    """What both ends come to; None where it would be the same with any secret, or the key has another name."""
    from nacl.bindings import crypto_scalarmult  # noqa: PLC0415
    from nacl.exceptions import CryptoError  # noqa: PLC0415

    if int.from_bytes(theirs, "little") >= _PRIME:
        return None
    try:
        product: bytes = crypto_scalarmult(secret, theirs)
    except CryptoError:
        return None
    return product
