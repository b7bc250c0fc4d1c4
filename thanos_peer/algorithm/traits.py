"""What the rest of the program asks a class of the table in `methods.py`, whichever method it is."""

import math
from typing import ClassVar, Protocol


class Traits(Protocol):
    """A method as a topology file speaks of it; a class says what is otherwise with it.

    Attributes:
        settings: The keys of `algorithm` that only some methods read, and this one among them.
        is_for_smooth: Whether it is for problems without a regularizer only.
        is_for_pca: Whether it is for sparse PCA only.
        smooths: Whether it minimises something smoother than a problem with a regularizer.
        needs_samples: Whether agents keep all their samples for it (`Setup.samples`); it is for sparse PCA then.
        largest_n: For how many features it is at the most.
        default_tolerance: Below which residual it is done where the file does not say; 0 for never.
        default_rounds: After how many rounds it ends at the latest where the file does not say.
    """

    settings: ClassVar[frozenset[str]] = frozenset()
    is_for_smooth: ClassVar[bool] = False
    is_for_pca: ClassVar[bool] = False
    smooths: ClassVar[bool] = False
    needs_samples: ClassVar[bool] = False
    largest_n: ClassVar[float] = math.inf
    default_tolerance: ClassVar[float] = 0.0
    default_rounds: ClassVar[int] = 3000
