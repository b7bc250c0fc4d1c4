"""A phase in which agents mix what their neighbors send."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from thanos_peer.algorithm.method import Method, Setup
from thanos_peer.algorithm.mixing import Heard, divergence, has_sound_numbers
from thanos_peer.block import PAIR, AgentId, Block, Matrix
from thanos_peer.phases.phase import (
    Arrays,
    Form,
    Found,
    PhaseEnd,
    Result,
    Said,
    Together,
    WrongStateError,
    check_shapes,
    little_endian,
    named_arrays,
    with_end,
)
from thanos_peer.topology.graph import Graph


class _BegunMixing(NamedTuple):
    """What a phase has once it has begun: from which findings, in which round, how, and from where."""

    found: Found
    k: int
    method: Method[Any]
    start: Matrix


class Mixing:
    """All agents mix what their neighbors send, by some method.

    Args:
        name: Which.
        agent: Whose phase this is.
        graph: Over which edges.
        shape: (n, p).
        most: The largest number of rounds.
        tolerance: Below which residual an agent could end; 0 for never.
        method: Makes it.
        prepare: From earlier findings to what it is made of.
        conclude: From earlier findings, the state's arrays and the answer to later ones.
        advice: What a user may try should it diverge.
        itemsize: Bytes of one number as it is sent.
    """

    def __init__(  # noqa: PLR0913 - named, each of them needed
        self,
        name: str,
        *,
        agent: AgentId,
        graph: Graph,
        shape: tuple[int, int],
        most: int,
        tolerance: float,
        method: Callable[[Setup], Method[Any]],
        prepare: Callable[[Found], Setup],
        conclude: Callable[[Found, Mapping[str, Matrix], tuple[Matrix, Matrix]], Found],
        advice: str,
        itemsize: int = 8,
    ) -> None:
        self.advice = advice
        self.name, self.most, self.make, self.prepare = name, most, method, prepare
        self.conclude_from, self.tolerance = conclude, tolerance
        self._agent, self._form = agent, (PAIR, shape)
        self._weights = np.array([weight for _, weight in graph.mixing[agent]])
        self._payload = 2 * len(graph.edges) * 2 * shape[0] * shape[1] * itemsize
        self._begun: _BegunMixing

    @property
    def method(self) -> Method[Any]:
        """How it mixes; it is there once the phase has begun."""
        return self._begun.method

    @property
    def has_known_rounds(self) -> bool:
        """It ends by its tolerance, if it has one."""
        return self.tolerance == 0

    @property
    def takes_all_rounds(self) -> bool:
        """Without a tolerance."""
        return self.tolerance == 0

    @property
    def can_restart(self) -> bool:
        """Trackers begin anew wherever each agent is."""
        return True

    @property
    def forms(self) -> frozenset[Form]:
        """Two matrices."""
        return frozenset({self._form})

    def payload(self, rounds: int) -> int:
        """Two matrices in each direction of each edge."""
        return rounds * self._payload

    def enter(self, found: Found, began: int) -> None:
        """Make the method."""
        setup = self.prepare(found)
        self._begun = _BegunMixing(found, began, self.make(setup), setup.start)

    def start(self) -> Any:
        """From the common start."""
        return self.restart(self._begun.start)

    def restart(self, X: Matrix) -> Any:
        """Begin at another X.

        Raises:
            DivergenceError: The data are so large that what is to be sent is not finite.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            state = self.method.start(X)
        self._check(0, state, state)
        return state

    def _check(self, r: int, state: Any, before: Any) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            sent = self.method.send(state)
            is_sound = has_sound_numbers(sent, self.method.growth)
        if not is_sound:
            k, eta = self._begun.k + r, float(self.method.send(before).eta)
            raise divergence(self._agent, k, sent, eta, self.advice)

    def say(self, r: int, state: Any) -> Said:  # noqa: ARG002
        """Two matrices and a step size."""
        X, D, eta = self.method.send(state)
        return Said(little_endian(X) + little_endian(D), self._form, float(eta))

    def expects(self, r: int, sender: AgentId) -> Form:  # noqa: ARG002
        """The same of all."""
        return self._form

    def advance(self, r: int, state: Any, blocks: Sequence[Block]) -> tuple[Any, bool]:
        """One round of the method."""
        heard = Heard(self._weights, blocks)
        # The check below reports an overflow, with a name and a round.
        with np.errstate(over="ignore", invalid="ignore"):
            is_calm = self.tolerance > 0 and bool(self.method.residual(r, state, heard) <= self.tolerance)
            following = self._step(r, state, heard)
        self._check(r + 1, following, state)
        return following, is_calm

    def _step(self, r: int, state: Any, heard: Heard) -> Any:
        try:
            return self.method.step(r, state, heard)
        except np.linalg.LinAlgError as error:
            # The error is about numbers that are not finite any more.
            sent = self.method.send(state)
            raise divergence(self._agent, self._begun.k + r + 1, sent, float(sent.eta), self.advice) from error

    def last(self, r: int, state: Any) -> int:  # noqa: ARG002
        """Nothing follows from the state: the agents agree on it."""
        return self.most

    def conclude(self, r: int, state: Any, *, is_agreed: bool) -> Found:
        """What follows from the last state."""
        known = self.conclude_from(self._begun.found, named_arrays(state), self.answer(r, state))
        return with_end(known, PhaseEnd(self.name, r, is_agreed))

    def answer(self, r: int, state: Any) -> tuple[Matrix, Matrix]:
        """As the method has it."""
        return self.method.answer(r, state)

    def arrays(self, state: Any) -> Arrays:
        """By the names of the dataclass."""
        return dict(named_arrays(state))

    def restored(self, arrays: Arrays) -> Any:
        """As it was; what a method's state is made of is the annotation of `start`'s result.

        Raises:
            WrongStateError: It is no state that this agent can have been in.
        """
        check_shapes(arrays, named_arrays(self.start()))
        state = self.method.state_type(**arrays)
        with np.errstate(over="ignore", invalid="ignore"):
            if not has_sound_numbers(self.method.send(state)):
                raise WrongStateError("its state has numbers that no step leads to")
        return state

    def together(self, phases: Sequence["Mixing"], ways: Together[Result]) -> Result:
        """They mix."""
        return ways.mixing(phases)
