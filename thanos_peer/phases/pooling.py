"""A phase in which agents sum over a tree."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from thanos_peer.algorithm.fixed_point import OutOfRangeError
from thanos_peer.algorithm.masks import DIGEST_BYTES, SECRET_BYTES, UNTOLD, Masks, told_with
from thanos_peer.algorithm.pooling import Layout, Place, Pooled, PoolState, WrongSumError, decide, pool_step
from thanos_peer.block import NOTHING, WORD, AgentId, Block, Matrix, bytes_each
from thanos_peer.errors import DataFileError, LocalProtocolError, MasksMismatchError, RemoteProtocolError
from thanos_peer.phases.masking import NAME as MASKS
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

WHO = "that neighbor, or a peer whose numbers it has passed on, is wrong"
UNMASKED = (
    "masks do not cancel, as a peer has begun anew meanwhile, or has sent wrong numbers, another key or another "
    "word; if no peer begins a new epoch, start this one with --restart-tracking: all begin one, with new masks"
)


class _Begun(NamedTuple):
    """What a phase has once it has begun: from which findings, in which round, what it sums, what hides that."""

    found: Found
    k: int
    method: Pooled
    masks: Masks


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
        self._neighbors = graph.neighbors[agent]
        self._begun: _Begun

    @property
    def method(self) -> Pooled:
        """What is summed; it is there once the phase has begun."""
        return self._begun.method

    @property
    def has_known_rounds(self) -> bool:
        """One sum has; of several only the root says which is the last."""
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
        layouts = self.layout, self.layout.of_sum(1)
        sums = {(layout.kind, (1, layout.up)) for layout in layouts}
        return frozenset({*sums, (WORD, (1, self.layout.down)), (NOTHING, (0, 0))})

    def payload(self, rounds: int) -> int:
        """Numbers up, and a word down, each edge of the tree."""
        return (self.d - 1) * self.layout.payload(rounds // self.place.rounds)

    def enter(self, found: Found, began: int) -> None:
        """Make what is summed, and the masks if there are any."""
        shared, secrets = found.secrets, dict[AgentId, bytes]()
        if shared is not None:
            each = (shared[at : at + SECRET_BYTES] for at in range(0, len(shared), SECRET_BYTES))
            secrets = dict(zip(self._neighbors, each, strict=True))
        self._begun = _Begun(found, began, self.prepare(found), Masks(self.place.agent, secrets, self.name))

    def start(self) -> PoolState:
        """This agent's own numbers."""
        words = (self._begun.found.words or UNTOLD) if self._is_masked else b""
        root = self.method.begin() if self.place.depth == 0 else None
        return PoolState(self.said(0, None, words), None, root, words=words)

    def restart(self, X: Matrix) -> PoolState:  # noqa: ARG002 - see `can_restart`
        """From the beginning."""
        return self.start()

    @property
    def _is_masked(self) -> bool:
        """Whether what it says is hidden; those who see all agents have no secrets, and say nothing.

        Raises:
            LocalProtocolError: The agents have agreed on masks, and this one has no secrets.
        """
        found, is_masked = self._begun.found, bool(self._begun.masks.secrets)
        if not is_masked and found.end_of(MASKS) is not None:
            raise LocalProtocolError(f"agent {self.place.agent} has no secrets to mask phase {self.name} with")
        return is_masked

    def said(self, number: int, word: Matrix | None, words: bytes) -> bytes:
        """Its numbers for one sum, counted from 0, as it may show them: masked if there are masks."""
        return self._begun.masks.hide(self.method.format, self.own(word), number, words)

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
        (number, r), place = divmod(r, self.place.rounds), self.place
        layout = self.layout.of_sum(number)
        if place.speaks_up(r):
            return Said(state.partial, (layout.kind, (1, layout.up)), to=(place.parent,))
        if place.speaks_down(r) and state.word is not None:
            return Said(little_endian(state.word), (WORD, (1, layout.down)), to=place.children)
        return Said(b"", (NOTHING, (0, 0)))

    def expects(self, r: int, sender: AgentId) -> Form:
        """What follows from the tree."""
        number, r = divmod(r, self.place.rounds)
        return self.place.expected(r, sender, self.layout.of_sum(number))

    def advance(self, r: int, state: PoolState, blocks: Sequence[Block]) -> tuple[PoolState, bool]:
        """One round of a sum; after its last one the next sum begins, unless this was the last.

        Raises:
            DataFileError: What the root found is not finite, or this agent's next numbers are too large.
            RemoteProtocolError: The sums, or the parent's word, are not those of honest agents.
        """
        at, place = r % self.place.rounds, self.place
        with _in_words(self.name, self._begun.k + r, is_masked=self._is_masked):
            state = pool_step(self.method, place, at, state, blocks)
        if place.depth > 0 and at == place.height + place.depth - 1:
            self._check_word(r, state.word)
        if at + 1 == place.rounds:
            assert state.word is not None, "the root has spoken"  # noqa: S101
            is_over = r + 1 >= self.last(r + 1, state)
            words = told_with(state.words, little_endian(state.word)) if state.words else b""
            own = state.partial if is_over else self.said((r + 1) // place.rounds, state.word, words)
            state = PoolState(own, state.word, state.root, state.word, words)
        return state, False

    def _check_word(self, r: int, word: Matrix | None) -> None:
        """Refuse what no honest parent says."""
        assert word is not None, "the parent has spoken"  # noqa: S101
        with np.errstate(over="ignore", invalid="ignore"):
            fault = self.method.word_fault(word)
        if fault is None and r + self.place.rounds >= self.most and not self.method.is_last(word):
            fault = "there is to be another sum, but this is the last"
        if fault is not None:
            what = f"its word in phase {self.name} cannot be: {fault}; {WHO}"
            raise RemoteProtocolError(neighbor=self.place.parent, k=self._begun.k + r, what=what)

    def decide(self, r: int, state: Any, partial: bytes) -> tuple[Any, Matrix]:
        """At the root, for those who see all agents: its next state, and the word."""
        with _in_words(self.name, self._begun.k + r, is_masked=False):
            return decide(self.method, state, partial)

    def last(self, r: int, state: PoolState) -> int:
        """With the sum whose word is the last."""
        if state.word is not None and r > 0 and self.method.is_last(state.word):
            sums = (r - 1) // self.place.rounds + 1
            return min(self.most, sums * self.place.rounds)
        return self.most

    def conclude(self, r: int, state: PoolState, *, is_agreed: bool) -> Found:  # noqa: ARG002
        """What follows from the last word."""
        assert state.word is not None, "the root has spoken"  # noqa: S101
        found = self.concluded(self._begun.found, r, state.word)
        return replace(found, words=state.words) if state.words else found

    def concluded(self, found: Found, rounds: int, word: Matrix) -> Found:
        """The same, for those who see all agents."""
        converged = self.method.has_converged(word) if self._has_tolerance else None
        return with_end(self.conclude_from(found, word), PhaseEnd(self.name, rounds, converged))

    def answer(self, r: int, state: PoolState) -> tuple[Matrix, Matrix]:  # noqa: ARG002
        """As the last word says that all have."""
        return self.answer_of(self._begun.found, state.told)

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
        if state.words:
            known["words"] = state.words
        if state.root is not None:
            known |= {f"root.{name}": array for name, array in named_arrays(state.root).items()}
        return known

    def restored(self, arrays: Arrays) -> PoolState:
        """As it was.

        Raises:
            WrongStateError: It is no state that this agent can have been in.
        """
        partial, words = arrays.get("partial"), arrays.get("words", b"")
        heard: Arrays = {name: each for name, each in arrays.items() if name in ("word", "told")}
        _check_partial(partial, self.layout)
        _check_words(words, DIGEST_BYTES if self._is_masked else 0)
        check_shapes(heard, dict.fromkeys(heard, np.empty(self.layout.down)))
        root = {name.removeprefix("root."): each for name, each in arrays.items() if name.startswith("root.")}
        if unknown := set(arrays) - {"partial", "words", *heard, *(f"root.{name}" for name in root)}:
            raise WrongStateError(f"its state has {sorted(unknown)}, which a sum does not know")
        begun = self.method.begin() if self.place.depth == 0 else None
        return PoolState(partial, heard.get("word"), _restored_root(root, begun), heard.get("told"), words)  # type: ignore[arg-type]

    def together(self, phases: Sequence["Pooling"], ways: Together[Result]) -> Result:
        """They sum."""
        return ways.summing(phases)


@contextlib.contextmanager
def _in_words(name: str, k: int, *, is_masked: bool) -> Iterator[None]:
    """Say it in the user's words where a sum is beyond double precision, or not one of honest agents."""
    wrong = f"the sum of all peers in phase {name} cannot be"
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            yield
    except (OutOfRangeError, np.linalg.LinAlgError) as error:
        if is_masked:
            what = f"{wrong}: {error}; {UNMASKED}, or all samples together are too large for double precision"
            raise MasksMismatchError(neighbor=None, k=k, what=what) from error
        raise DataFileError(
            f"all samples together are too large for double precision, in phase {name}: scale them down, "
            "unless a peer has sent wrong numbers"
        ) from error
    except WrongSumError as error:
        if is_masked:
            raise MasksMismatchError(neighbor=None, k=k, what=f"{wrong}: {error}; {UNMASKED}") from error
        what = f"{wrong}: {error}; one of them is wrong"
        raise RemoteProtocolError(neighbor=None, k=k, what=what) from error


def _check_words(words: Matrix | bytes, size: int) -> None:
    if not isinstance(words, bytes) or len(words) != size:
        raise WrongStateError(f"words of its state are not {size} bytes")


def _check_partial(partial: Matrix | bytes | None, layout: Layout) -> None:
    lengths = {bytes_each(each.kind) * each.up for each in (layout, layout.of_sum(1))}
    if not isinstance(partial, bytes) or len(partial) not in lengths:
        raise WrongStateError(f"its state has no sum of {' or '.join(map(str, sorted(lengths)))} bytes")


def _restored_root(root: Arrays, begun: Any) -> Any:
    """The root's state of the method, given the one that it begins with; None elsewhere."""
    check_shapes(root, {} if begun is None else named_arrays(begun))
    return None if begun is None else type(begun)(**root)


def run_sums(phases: Sequence[Pooling], found: Found) -> Found:
    """The phase of all agents at once, for those who see all of them: the same bits, without the rounds."""
    for phase in phases:
        phase.enter(found, 0)
    root = next(phase for phase in phases if phase.place.depth == 0)
    method, state, word, sums = root.method, root.method.begin(), None, 0
    while word is None or (not method.is_last(word) and sums * root.place.rounds < root.most):
        first, *others = (phase.own(word) for phase in phases)
        partial = method.format.total(first, others)
        state, word = root.decide(sums * root.place.rounds, state, partial)
        sums += 1
    return root.concluded(found, sums * root.place.rounds, word)
