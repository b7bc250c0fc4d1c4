"""The methods by name: a new one is a file of its own, and a line here."""

from typing import Any, Final

from thanos_peer.algorithm.dprgt import DPRGT
from thanos_peer.algorithm.drgta import DRGTA
from thanos_peer.algorithm.gram import Gram
from thanos_peer.algorithm.method import Method
from thanos_peer.algorithm.proximal import Proximal
from thanos_peer.algorithm.proximal_tracking import ProximalTracking
from thanos_peer.algorithm.solving import Solving
from thanos_peer.algorithm.subgradient import Subgradient
from thanos_peer.algorithm.thanos import Destiny, Thanos
from thanos_peer.algorithm.traits import Traits
from thanos_peer.algorithm.vrsgt import VRSGT

# Agents mix what their neighbors send.
MIXING: Final[dict[str, type[Method[Any]]]] = {
    "thanos": Thanos,
    "destiny": Destiny,
    "proximal-tracking": ProximalTracking,
    "drgta": DRGTA,
    "dprgt": DPRGT,
    "subgradient": Subgradient,
    "vrsgt": VRSGT,
}

# Agents sum over a tree.
SUMMING: Final[dict[str, type[Solving]]] = {
    "proximal": Proximal,
    "gram": Gram,
}

METHODS: Final[dict[str, type[Traits]]] = {**SUMMING, **MIXING}

# What a topology file and the command line may ask for. "auto" is the exact method that sends less.
CHOICES: Final = ("auto", *METHODS)

# The keys of `algorithm` that only some methods read.
SETTINGS: Final = tuple(sorted({key for method in METHODS.values() for key in method.settings}))


def needs_samples(method: str) -> bool:
    """Whether agents keep their samples for a method, however many: what PCA needs of them is not enough."""
    return method in METHODS and METHODS[method].needs_samples
