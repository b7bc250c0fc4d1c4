"""What a phase is, what it finds, and the plan of all phases of an agent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from thanos_peer.block import KEY, PAIR, AgentId, Block, Matrix, bytes_each

if TYPE_CHECKING:
    from thanos_peer.phases.masking import Masking
    from thanos_peer.phases.mixing import Mixing
    from thanos_peer.phases.pooling import Pooling

Arrays: TypeAlias = dict[str, Matrix | bytes]
# The kind and the shape of what a block carries.
Form: TypeAlias = tuple[str, tuple[int, int]]


class WrongStateError(ValueError):
    """Arrays that are no state of a phase."""


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
        own_secret: What its key in phase masks follows from: from the beginning of the epoch until all keys are
            there. Each life of a peer then says the same key, from whichever checkpoint it goes on.
        secrets: What it shares with each of its neighbors in this epoch, in order of id; their masks follow from
            it. Like `own_secret` it goes into checkpoints and nowhere else.
        words: What stands for all words that it has been told in sums of this epoch, where these are masked.
        count: How many samples there are at all agents together.
        mean: Of all samples, (n,); where values are missing, of those that are there.
        present: How many values of each feature there are at all agents together, (n,); None where none may be
            missing.
        variance: Of each feature about it, (n,).
        size: ||A||_2^2 of all samples, or a bound of it; before `overall` divides them. Of objectives that are not
            PCA, the sum of the bounds that they know of the Lipschitz constants of their gradients; 0 for none.
        overall: What all samples are divided by.
        start: Where the main phase begins, (n, p).
        agreed: What the main method's own preparation has found.
        values: The p leading eigenvalues of AA'.
        spectrum: More of them, where the main method knows all.
        final: The last state of the main phase, by name.
        X: Its answer, (n, p).
        sparse: Its answer with exact zeros, (n, p); after phase consensus the same at all agents.
        common: The mean of all X, (n, p).
        starts: From how many starts it was searched.
        total: ||A||_F^2 of all samples.
        mus: The values of mu that the network has found, from the largest on.
        path: Of a path, the answers with exact zeros, in the same order, (k, n, p).
        marks: From how many starts each was searched, negative where it has not converged, (k,).
        table: A row for each: see `preparation.choice`.
        chosen: The number of the one that the result is, counted from 0.
        residual: The certified residual of the answer.
        weakest: What the weakest component is worth, relative to what the residual is.
        objective: The value of the whole problem.
        explained: The share of the variance that each component explains, (p,).
        sparse_explained: The share that the sparse components explain together.
    """

    over: tuple[PhaseEnd, ...] = ()
    own_secret: bytes | None = field(default=None, repr=False)
    secrets: bytes | None = field(default=None, repr=False)
    words: bytes | None = None
    count: Matrix | None = None
    mean: Matrix | None = None
    present: Matrix | None = None
    variance: Matrix | None = None
    size: Matrix | None = None
    overall: Matrix | None = None
    start: Matrix | None = None
    agreed: Matrix | None = None
    values: Matrix | None = None
    spectrum: Matrix | None = None
    final: Mapping[str, Matrix] | None = None
    X: Matrix | None = None
    sparse: Matrix | None = None
    common: Matrix | None = None
    starts: Matrix | None = None
    total: Matrix | None = None
    mus: Matrix | None = None
    path: Matrix | None = None
    marks: Matrix | None = None
    table: Matrix | None = None
    chosen: Matrix | None = None
    residual: Matrix | None = None
    weakest: Matrix | None = None
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


Result = TypeVar("Result")
Outcome_co = TypeVar("Outcome_co", covariant=True)


class Together(Protocol[Outcome_co]):
    """What is done with one phase of all agents at once: one way for each kind of phase."""

    def mixing(self, phases: "Sequence[Mixing]") -> Outcome_co:
        """With a phase in which they mix."""

    def summing(self, phases: "Sequence[Pooling]") -> Outcome_co:
        """With one in which they sum."""

    def masking(self, phases: "Sequence[Masking]") -> Outcome_co:
        """With one in which they agree on masks."""


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
        """The state of these arrays.

        Raises:
            WrongStateError: They are none.
        """

    @property
    def can_restart(self) -> bool:
        """Whether it can begin at any X, another one at each agent."""

    def restart(self, X: Matrix) -> Any:
        """Begin at this X."""

    def together(self, phases: Sequence[Any], ways: Together[Result]) -> Result:
        """Take the way of its kind, with this phase of all agents."""


# Bytes of blocks that are kept, as neighbors may ask for them again.
KEPT_BYTES = 32 * 2**20
FEWEST_KEPT = 4  # however large the blocks


class Plan(NamedTuple):
    """The phases of an agent, in order, and which of them is the main one."""

    phases: tuple[Phase, ...]
    main: int

    @property
    def most(self) -> int:
        """The largest number of rounds of the main phase."""
        return self.phases[self.main].most

    @property
    def forms(self) -> frozenset[Form]:
        """What blocks may carry in any of them."""
        return frozenset[Form]().union(*(phase.forms for phase in self.phases))

    @property
    def mixing(self) -> tuple[str, ...]:
        """The phases in which neighbors are told matrices of this agent's own, by name; in others they sum."""
        return tuple(phase.name for phase in self.phases if any(kind == PAIR for kind, _ in phase.forms))

    @property
    def is_masked(self) -> bool:
        """Whether its sums are masked."""
        return any(kind == KEY for kind, _ in self.forms)

    @property
    def blocks_kept(self) -> int:
        """How many rounds a peer may be ahead of its disk, and its neighbors keep their blocks for it."""
        return max(FEWEST_KEPT, KEPT_BYTES // max(1, *(size_of_form(form) for form in self.forms)))


def size_of_form(form: Form) -> int:
    """Bytes of what a block carries, with numbers of eight bytes where they are no whole ones."""
    kind, (rows, columns) = form
    return bytes_each(kind) * rows * columns


def named_arrays(state: Any) -> dict[str, Matrix]:
    """The arrays of a dataclass by name."""
    return {field.name: getattr(state, field.name) for field in fields(state)}


def check_shapes(arrays: Mapping[str, Matrix | bytes], like: Mapping[str, Matrix]) -> None:
    """Refuse arrays that have other names or shapes than a state has; what is empty at first may grow.

    Raises:
        WrongStateError: They have.
    """
    if set(arrays) != set(like):
        raise WrongStateError(f"its state has {sorted(arrays)}; must have {sorted(like)}")
    for name, known in like.items():
        found, expected = arrays[name], np.shape(known)
        if isinstance(found, bytes) or (np.shape(found) != expected and 0 not in expected):
            what = "bytes" if isinstance(found, bytes) else f"of shape {np.shape(found)}"
            raise WrongStateError(f"{name} of its state is {what}; must be of shape {expected}")


def little_endian(matrix: Matrix) -> bytes:
    """Row by row, as float64."""
    return matrix.astype("<f8", copy=False).tobytes()


def with_end(found: Found, end: PhaseEnd) -> Found:
    """The same, after one more phase."""
    return replace(found, over=(*found.over, end))
