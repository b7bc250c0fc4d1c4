"""The methods by name: a new one is a file of its own, and a line here.

No other file names a method or tests for one: what differs between methods is a trait of their classes.
"""

from typing import Any, Final

from thanos_peer.algorithm.dprgd import DPRGD
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
    "dprgd": DPRGD,
    "subgradient": Subgradient,
    "vrsgt": VRSGT,
}

# Agents sum over a tree.
SUMMING: Final[dict[str, type[Solving]]] = {
    "proximal": Proximal,
    "gram": Gram,
}

METHODS: Final[dict[str, type[Traits]]] = {**SUMMING, **MIXING}

# What a topology file and the command line may ask for. AUTO is the exact method that sends less.
AUTO: Final = "auto"
CHOICES: Final = (AUTO, *METHODS)

# What a file means that names no method, and what suits every problem of every size.
UNNAMED: Final = "thanos"
GENERAL: Final = "proximal"

# The keys of `algorithm` that only some methods read.
SETTINGS: Final = tuple(sorted({key for method in METHODS.values() for key in method.settings}))

# Settings of some methods by name, and which methods those are.
PRESETS: Final[dict[str, list[str]]] = {
    preset: [name for name, method in METHODS.items() if preset in method.presets]
    for preset in sorted({preset for method in METHODS.values() for preset in method.presets})
}


def traits_of(choice: str) -> type[Traits]:
    """Those of a choice, or of a word that is none; AUTO has the settings of all that it may be."""
    return METHODS.get(choice, METHODS[GENERAL])
