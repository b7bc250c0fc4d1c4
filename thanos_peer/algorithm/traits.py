"""What the rest of the program asks a class of the table in `methods.py`, whichever method it is."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol

from thanos_peer.block import Matrix

NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})


class Outlook(NamedTuple):
    """What is known of a run before it begins.

    Attributes:
        p: Components.
        mu: The weight of l1, where samples have 2-norm 1; None elsewhere.
        digits: Of the residual that is asked for.
        restarts: From how many starts to search.
        passes: How often to search for all values of mu.
        d: How many agents there are.
        rounds_of_sum: How many rounds one sum takes.
        diameter: Of the graph.
        spectrum: Finds the distinct eigenvalues of W other than 1.
    """

    p: int
    mu: float | None
    digits: int
    restarts: int
    passes: int
    d: int
    rounds_of_sum: int
    diameter: int
    spectrum: Callable[[], Matrix]


class Expected(NamedTuple):
    """How many rounds to expect, and in words what they are made of."""

    rounds: int
    words: str


class Content(NamedTuple):
    """What a peer brings to a phase, in words, and what all peers learn from it."""

    own: str
    all_learn: str


MIXED: Content = Content(
    "its X, which moves by its own gradients, and with most methods a tracker D that begins as its own gradient",
    "the common X, in the end",
)


class Iterations(NamedTuple):
    """How many iterations a method takes: means of random problems, as benchmarks/typical_sums.py prints them.

    Attributes:
        by_weight: To a residual of 1e-10 with p = 4, for l1 with mu of at least so much and samples of norm 1.
        in_general: For other problems.
    """

    by_weight: tuple[tuple[float, int], ...]
    in_general: int

    def expected(self, p: int, mu: float | None, digits: int) -> int:
        """It grows as the square root of p does, and is the same whole number on every processor."""
        found = next((count for least, count in self.by_weight if mu is not None and mu >= least), self.in_general)
        return max(1, math.isqrt((found * digits) ** 2 * p // 400))


class Traits(Protocol):
    """A method as a topology file speaks of it; a class says what is otherwise with it.

    Attributes:
        mixes: Whether agents mix what neighbors send, and each ends with its own X; else they sum over a tree.
        settings: The keys of `algorithm` that only some methods read, and this one among them.
        first_settings: What a file says in them where the method is new to it, and nothing else is said.
        presets: Other settings, by name.
        has_parameters: Whether it goes by beta, a step and a smoothing (`Setup.parameters`), which a user may
            tune; else all follows from how large the samples are together.
        finds_start: Whether the leading singular vectors follow from what it sums anyway.
        shares_start: Whether all agents are to evaluate at the same start, to the last bit: the root's, which a
            phase before tells them.
        is_for_smooth: Whether it is for problems without a regularizer only.
        is_for_pca: Whether it is for sparse PCA only.
        smooths: Whether it minimises something smoother than a problem with a regularizer.
        needs_samples: Whether agents keep all their samples for it (`Setup.samples`); it is for sparse PCA then.
        largest_n: For how many features it is at the most.
        default_tolerance: Below which residual it is done where the file does not say; 0 for never.
        default_rounds: After how many rounds it ends at the latest where the file does not say.
    """

    mixes: ClassVar[bool] = True
    settings: ClassVar[frozenset[str]] = frozenset()
    first_settings: ClassVar[Mapping[str, Any]] = NO_SETTINGS
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = NO_SETTINGS
    has_parameters: ClassVar[bool] = False
    finds_start: ClassVar[bool] = False
    shares_start: ClassVar[bool] = False
    is_for_smooth: ClassVar[bool] = False
    is_for_pca: ClassVar[bool] = False
    smooths: ClassVar[bool] = False
    needs_samples: ClassVar[bool] = False
    largest_n: ClassVar[float] = math.inf
    default_tolerance: ClassVar[float] = 0.0
    default_rounds: ClassVar[int] = 3000

    @classmethod
    def content(cls, *, is_pca: bool) -> Content:  # noqa: ARG003
        """What peers bring to it."""
        return MIXED

    @classmethod
    def expected(cls, outlook: Outlook) -> Expected | None:  # noqa: ARG003
        """How many rounds to expect; None where only the maximum is known before."""
        return None
