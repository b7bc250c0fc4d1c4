"""The parts of a run: rounds that sum over a tree, and rounds that mix.

A run goes through its phases one after the other. All agents leave a phase after the same round: because a sum has
a number of rounds that follows from the graph, because the root of the tree has said that its word is the last, or
by the stop that they reach together. So nobody has to say that a new one begins. Rounds are counted through: the
exchange and the wire know of the round alone, and each agent knows from it and from its own past which phase it is
in. What a phase has found is there for those that follow.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from thanos_peer.algorithm.fixed_point import OutOfRangeError
from thanos_peer.algorithm.method import Method, Setup
from thanos_peer.algorithm.mixing import Heard, divergence, has_sound_numbers
from thanos_peer.algorithm.pooling import Layout, Place, Pooled, PoolState, decide, pool_step
from thanos_peer.block import NOTHING, PAIR, WORD, AgentId, Block, Matrix, bytes_each
from thanos_peer.errors import DataFileError
from thanos_peer.topology.graph import Graph

Arrays: TypeAlias = dict[str, Matrix | bytes]
Form: TypeAlias = tuple[str, tuple[int, int]]  # the kind and the shape of what a block carries


class PhaseEnd(NamedTuple):
    """How a phase ended: its rounds, and whether its tolerance was reached; None where it has none."""

    name: str
    rounds: int
    has_converged: bool | None


@dataclass(frozen=True)
class Found:
    """What an agent knows so far; None where it does not know.

    Attributes:
        over: The phases that are over.
        count: How many samples there are at all agents together.
        mean: Of all samples, (n,).
        variance: Of each feature about it, (n,).
        size: ||A||_2^2 of all samples, or a bound of it; before `overall` divides them.
        overall: What all samples are divided by.
        start: Where the main phase begins, (n, p).
        agreed: What the main method's own preparation has found.
        values: The p leading eigenvalues of AA'.
        final: The last state of the main phase, by name.
        X: Its answer, (n, p).
        sparse: Its answer with exact zeros, (n, p).
        common: The mean of all X, (n, p).
        common_sparse: The mean of all sparse X, (n, p).
        total: ||A||_F^2 of all samples.
        residual: The certified residual of the answer.
        objective: The value of the whole problem.
        explained: The share of the variance that each component explains, (p,).
        sparse_explained: The share that the sparse components explain together.
    """

    over: tuple[PhaseEnd, ...] = ()
    count: Matrix | None = None
    mean: Matrix | None = None
    variance: Matrix | None = None
    size: Matrix | None = None
    overall: Matrix | None = None
    start: Matrix | None = None
    agreed: Matrix | None = None
    values: Matrix | None = None
    final: Mapping[str, Matrix] | None = None
    X: Matrix | None = None
    sparse: Matrix | None = None
    common: Matrix | None = None
    common_sparse: Matrix | None = None
    total: Matrix | None = None
    residual: Matrix | None = None
    objective: Matrix | None = None
    explained: Matrix | None = None
    sparse_explained: Matrix | None = None

    def end_of(self, name: str) -> PhaseEnd | None:
        """How a phase ended; None while it has not."""
        return next((end for end in self.over if end.name == name), None)


class Said(NamedTuple):
    """What a block carries: numbers or matrices, and for whom; None for all."""

    numbers: bytes
    form: Form
    eta: float = 0.0
    to: tuple[AgentId, ...] | None = None


class Phase(Protocol):
    """Some rounds of one agent, counted from 0. `enter` comes first, also when it goes on after a restart."""

    @property
    def name(self) -> str:
        """In one word."""

    @property
    def most(self) -> int:
        """The largest number of rounds."""

    @property
    def has_known_rounds(self) -> bool:
        """Whether the agents have nothing to agree on: no neighbor's announcement ends it."""

    @property
    def takes_all_rounds(self) -> bool:
        """Whether it takes `most` rounds, whatever the data."""

    @property
    def forms(self) -> frozenset[Form]:
        """What blocks may carry in it."""

    def payload(self, rounds: int) -> int:
        """The bytes that all agents together send in so many rounds, without the frames around them."""

    def enter(self, found: Found, began: int) -> None:
        """Get ready, with what earlier phases have found; the phase begins with round `began` of the run."""

    def start(self) -> Any:
        """The state of its first round."""

    def say(self, r: int, state: Any) -> Said:
        """What neighbors hear in round r."""

    def expects(self, r: int, sender: AgentId) -> Form:
        """What a neighbor says in round r."""

    def advance(self, r: int, state: Any, blocks: Sequence[Block]) -> tuple[Any, bool]:
        """The state of round r + 1, and whether this agent could have ended in round r."""

    def last(self, r: int, state: Any) -> int:
        """After how many rounds it ends, as far as follows from the state of round r."""

    def conclude(self, r: int, state: Any, *, is_agreed: bool) -> Found:
        """What is known after it, from the state of its last round, and whether the agents agreed to stop."""

    def answer(self, r: int, state: Any) -> tuple[Matrix, Matrix]:
        """X of a main phase, and X with exact zeros."""

    def arrays(self, state: Any) -> Arrays:
        """A state by name."""

    def restored(self, arrays: Arrays) -> Any:
        """The state of these arrays."""

    @property
    def can_restart(self) -> bool:
        """Whether it can begin at any X, another one at each agent."""

    def restart(self, X: Matrix) -> Any:
        """Begin at this X."""


KEPT_BYTES = 32 * 2**20  # of blocks that may be asked for again
FEWEST_KEPT = 4  # however large the blocks


class Plan(NamedTuple):
    """The phases of an agent, in order, and which of them is the main one."""

    phases: tuple[Phase, ...]
    main: int

    @property
    def forms(self) -> frozenset[Form]:
        """What blocks may carry in any of them."""
        return frozenset[Form]().union(*(phase.forms for phase in self.phases))

    @property
    def blocks_kept(self) -> int:
        """How many rounds a peer may be ahead of its disk, and its neighbors keep their blocks for it."""
        return max(FEWEST_KEPT, KEPT_BYTES // max(1, *(size_of_form(form) for form in self.forms)))


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
        itemsize: int = 8,
    ) -> None:
        self.name, self.most, self.make, self.prepare = name, most, method, prepare
        self.conclude_from, self.tolerance = conclude, tolerance
        self._agent, self._form = agent, (PAIR, shape)
        self._weights = np.array([weight for _, weight in graph.mixing[agent]])
        self._payload = 2 * len(graph.edges) * 2 * shape[0] * shape[1] * itemsize
        self._found, self._began = Found(), 0
        self.method: Method[Any]
        self._start: Matrix

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
        self._found, self._began = found, began
        setup = self.prepare(found)
        self.method, self._start = self.make(setup), setup.start

    def start(self) -> Any:
        """From the common start."""
        return self.restart(self._start)

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
            is_sound = has_sound_numbers(sent)
        if not is_sound:
            raise divergence(self._agent, self._began + r, sent, float(self.method.send(before).eta))

    def say(self, r: int, state: Any) -> Said:  # noqa: ARG002
        """Two matrices and a step size."""
        X, D, eta = self.method.send(state)
        return Said(_bytes(X) + _bytes(D), self._form, float(eta))

    def expects(self, r: int, sender: AgentId) -> Form:  # noqa: ARG002
        """The same of all."""
        return self._form

    def advance(self, r: int, state: Any, blocks: Sequence[Block]) -> tuple[Any, bool]:
        """One round of the method."""
        heard = Heard(self._weights, blocks)
        with np.errstate(over="ignore", invalid="ignore"):  # caught by the check, with a name and a round
            is_calm = self.tolerance > 0 and bool(self.method.residual(r, state, heard) <= self.tolerance)
            following = self._step(r, state, heard)
        self._check(r + 1, following, state)
        return following, is_calm

    def _step(self, r: int, state: Any, heard: Heard) -> Any:
        try:
            return self.method.step(r, state, heard)
        except np.linalg.LinAlgError as error:  # of numbers that are not finite any more
            sent = self.method.send(state)
            raise divergence(self._agent, self._began + r + 1, sent, float(sent.eta)) from error

    def last(self, r: int, state: Any) -> int:  # noqa: ARG002
        """Nothing follows from the state: the agents agree on it."""
        return self.most

    def conclude(self, r: int, state: Any, *, is_agreed: bool) -> Found:
        """What follows from the last state."""
        known = self.conclude_from(self._found, named_arrays(state), self.answer(r, state))
        return _with_end(known, PhaseEnd(self.name, r, is_agreed))

    def answer(self, r: int, state: Any) -> tuple[Matrix, Matrix]:
        """As the method has it."""
        return self.method.answer(r, state)

    def arrays(self, state: Any) -> Arrays:
        """By the names of the dataclass."""
        return dict(named_arrays(state))

    def restored(self, arrays: Arrays) -> Any:
        """As it was; what a method's state is made of is the annotation of `start`'s result."""
        return self.method.state_type(**arrays)


class Pooling:
    """All agents sum their numbers over the tree, once or until the root's word is the last.

    Args:
        name: What for.
        agent: Whose phase this is.
        graph: Whose tree.
        layout: What is sent.
        most: The largest number of sums.
        prepare: From earlier findings to what is summed.
        conclude: From earlier findings and the last word to later ones.
        answer: From the latest word to X and the sparse X, for a main phase.
    """

    def __init__(  # noqa: PLR0913 - named, each of them needed
        self,
        name: str,
        *,
        agent: AgentId,
        graph: Graph,
        layout: Layout,
        prepare: Callable[[Found], Pooled],
        conclude: Callable[[Found, Matrix], Found],
        most: int = 1,
        has_tolerance: bool = False,
        answer: Callable[[Found, Matrix | None], tuple[Matrix, Matrix]] | None = None,
    ) -> None:
        tree = graph.tree
        self.name, self.prepare, self.conclude_from = name, prepare, conclude
        self.layout, self.d, self._answer, self._has_tolerance = layout, graph.d, answer, has_tolerance
        self.place = Place(
            agent,
            tree.depths[agent],
            tree.height,
            tree.parents[agent],
            tree.children(agent),
            tuple(sorted((*graph.neighbors[agent], agent))),
        )
        self.most = most * self.place.rounds
        self._found = Found()
        self.method: Pooled

    @property
    def has_known_rounds(self) -> bool:
        """One sum has; of several the root says which is the last, and nobody else."""
        return True

    @property
    def takes_all_rounds(self) -> bool:
        """One sum does."""
        return self.most == self.place.rounds

    @property
    def can_restart(self) -> bool:
        """All agents are at the same X, or the sum means nothing."""
        return False

    @property
    def forms(self) -> frozenset[Form]:
        """Sums, words, and nothing."""
        layout = self.layout
        return frozenset({(layout.kind, (1, layout.up)), (WORD, (1, layout.down)), (NOTHING, (0, 0))})

    def payload(self, rounds: int) -> int:
        """Numbers up, and a word down, each edge of the tree."""
        sums = rounds // self.place.rounds
        return sums * (self.d - 1) * self.layout.payload

    def enter(self, found: Found, began: int) -> None:  # noqa: ARG002
        """Make what is summed."""
        self._found = found
        self.method = self.prepare(found)

    def start(self) -> PoolState:
        """This agent's own numbers."""
        return PoolState(self.own(None), None, self.method.begin() if self.place.depth == 0 else None)

    def restart(self, X: Matrix) -> PoolState:  # noqa: ARG002 - see `can_restart`
        """From the beginning."""
        return self.start()

    def own(self, word: Matrix | None) -> bytes:
        """Its numbers for the next sum.

        Raises:
            DataFileError: One of them is too large for a sum.
        """
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                return self.method.format.encode(self.method.numbers(word), self.d)
        except OutOfRangeError as error:
            raise DataFileError(
                f"the samples of peer {self.place.agent} are too large: in phase {self.name} it has a number that "
                f"cannot be summed, {error}; scale the samples of all peers down"
            ) from error

    def say(self, r: int, state: PoolState) -> Said:
        """The sum so far to the parent, or the word to the children, or nothing."""
        r, place = r % self.place.rounds, self.place
        if place.speaks_up(r):
            return Said(state.partial, (self.layout.kind, (1, self.layout.up)), to=(place.parent,))
        if place.speaks_down(r) and state.word is not None:
            return Said(_bytes(state.word), (WORD, (1, self.layout.down)), to=place.children)
        return Said(b"", (NOTHING, (0, 0)))

    def expects(self, r: int, sender: AgentId) -> Form:
        """What follows from the tree."""
        return self.place.expected(r % self.place.rounds, sender, self.layout)

    def advance(self, r: int, state: PoolState, blocks: Sequence[Block]) -> tuple[PoolState, bool]:
        """One round of a sum; after its last one the next sum begins, unless this was the last.

        Raises:
            DataFileError: What the root found is not finite, or this agent's next numbers are too large.
        """
        with too_large():
            state = pool_step(self.method, self.place, r % self.place.rounds, state, blocks)
        if (r + 1) % self.place.rounds == 0:
            is_over = r + 1 >= self.last(r + 1, state)
            own = state.partial if is_over else self.own(state.word)
            state = PoolState(own, state.word, state.root, told=state.word)
        return state, False

    def last(self, r: int, state: PoolState) -> int:
        """With the sum whose word is the last."""
        if state.word is not None and r > 0 and self.method.is_last(state.word):
            sums = (r - 1) // self.place.rounds + 1
            return min(self.most, sums * self.place.rounds)
        return self.most

    def conclude(self, r: int, state: PoolState, *, is_agreed: bool) -> Found:  # noqa: ARG002
        """What follows from the last word."""
        return self.concluded(self._found, r, self._last_word(state))

    def concluded(self, found: Found, rounds: int, word: Matrix) -> Found:
        """The same, for those who see all agents."""
        converged = self.method.has_converged(word) if self._has_tolerance else None
        return _with_end(self.conclude_from(found, word), PhaseEnd(self.name, rounds, converged))

    def _last_word(self, state: PoolState) -> Matrix:
        assert state.word is not None, "the root has spoken"  # noqa: S101
        return state.word

    def answer(self, r: int, state: PoolState) -> tuple[Matrix, Matrix]:  # noqa: ARG002
        """As the last word says that all have."""
        return self.answer_of(self._found, state.told)

    def answer_of(self, found: Found, word: Matrix | None) -> tuple[Matrix, Matrix]:
        """The same, for those who see all agents."""
        assert self._answer is not None, "this is a main phase"  # noqa: S101
        return self._answer(found, word)

    def arrays(self, state: PoolState) -> Arrays:
        """The root's by the names of its own state."""
        known: Arrays = {"partial": state.partial}
        if state.word is not None:
            known["word"] = state.word
        if state.told is not None:
            known["told"] = state.told
        if state.root is not None:
            known |= {f"root.{name}": array for name, array in named_arrays(state.root).items()}
        return known

    def restored(self, arrays: Arrays) -> PoolState:
        """As it was."""
        partial, word, told = arrays["partial"], arrays.get("word"), arrays.get("told")
        assert isinstance(partial, bytes)  # noqa: S101
        root = {name.removeprefix("root."): each for name, each in arrays.items() if name.startswith("root.")}
        state = type(self.method.begin())(**root) if root else None
        return PoolState(
            partial,
            word if isinstance(word, np.ndarray) else None,
            state,
            told if isinstance(told, np.ndarray) else None,
        )


def run_sums(phases: Sequence[Pooling], found: Found) -> Found:
    """The phase of all agents at once, for those who see all of them: the same bits, without the rounds."""
    for phase in phases:
        phase.enter(found, 0)
    root = next(phase for phase in phases if phase.place.depth == 0)
    method, state, word, sums = root.method, root.method.begin(), None, 0
    while word is None or (not method.is_last(word) and sums * root.place.rounds < root.most):
        partial = phases[0].own(word)
        for phase in phases[1:]:
            partial = method.format.add(partial, phase.own(word))
        with too_large():
            state, word = decide(method, state, partial)
        sums += 1
    return root.concluded(found, sums * root.place.rounds, word)


@contextlib.contextmanager
def too_large() -> Iterator[None]:
    """Say it in the user's words where a sum is beyond double precision."""
    try:
        yield
    except OutOfRangeError as error:
        raise DataFileError("all samples together are too large for double precision: scale them down") from error


def size_of_form(form: Form) -> int:
    """Bytes of what a block carries, with numbers of eight bytes where they are no whole ones."""
    kind, (rows, columns) = form
    return bytes_each(kind) * rows * columns


def named_arrays(state: Any) -> dict[str, Matrix]:
    """The arrays of a dataclass by name."""
    return {field.name: getattr(state, field.name) for field in fields(state)}


def _bytes(matrix: Matrix) -> bytes:
    return matrix.astype("<f8", copy=False).tobytes()


def _with_end(found: Found, end: PhaseEnd) -> Found:
    return replace(found, over=(*found.over, end))
