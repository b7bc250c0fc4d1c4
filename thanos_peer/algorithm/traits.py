"""What the rest of the program asks a class of the table in `methods.py`, whichever method it is."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})


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
    is_for_smooth: ClassVar[bool] = False
    is_for_pca: ClassVar[bool] = False
    smooths: ClassVar[bool] = False
    needs_samples: ClassVar[bool] = False
    largest_n: ClassVar[float] = math.inf
    default_tolerance: ClassVar[float] = 0.0
    default_rounds: ClassVar[int] = 3000
