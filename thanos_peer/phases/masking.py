"""The phase in which neighbors agree on the secrets of their masks."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from thanos_peer.algorithm.masks import SECRET_BYTES, shared_secret
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
    """

    name, most = NAME, 1
    has_known_rounds = takes_all_rounds = True
    can_restart = False
    forms = frozenset({FORM})

    def __init__(self, *, agent: AgentId, graph: Graph) -> None:
        self._agent, self._neighbors = agent, graph.neighbors[agent]
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
        own = said.pop(self._agent).numbers
        shared = [self._shared(r, state.secret, own, neighbor, block.numbers) for neighbor, block in said.items()]
        return replace(state, shared=b"".join(shared)), False

    def _shared(self, r: int, secret: bytes, own: bytes, neighbor: AgentId, theirs: bytes) -> bytes:
        product = None if theirs == own else _product(secret, theirs)
        if product is None:
            what = f"its key in phase {self.name} is none that an honest peer has drawn; that peer is wrong"
            raise RemoteProtocolError(neighbor=neighbor, k=self._began + r, what=what)
        return shared_secret(product, own, theirs)

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
    """What both ends come to; None where it would be the same with any secret of ours."""
    from nacl.bindings import crypto_scalarmult  # noqa: PLC0415
    from nacl.exceptions import CryptoError  # noqa: PLC0415

    try:
        product: bytes = crypto_scalarmult(secret, theirs)
    except CryptoError:
        return None
    return product
