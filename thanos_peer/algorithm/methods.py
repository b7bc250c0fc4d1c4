"""The methods by name: a new one is a file of its own, and a line here."""

from typing import Final, TypeAlias

from thanos_peer.algorithm.dprgt import DPRGT
from thanos_peer.algorithm.drgta import DRGTA
from thanos_peer.algorithm.gram import Gram
from thanos_peer.algorithm.proximal import Proximal
from thanos_peer.algorithm.proximal_tracking import ProximalTracking
from thanos_peer.algorithm.subgradient import Subgradient
from thanos_peer.algorithm.thanos import Destiny, Thanos

Mixes: TypeAlias = type[Thanos] | type[ProximalTracking] | type[DRGTA] | type[DPRGT] | type[Subgradient]
Sums: TypeAlias = type[Proximal] | type[Gram]

# Agents mix what their neighbors send: see `method.Method`.
MIXING: Final[dict[str, Mixes]] = {
    "thanos": Thanos,
    "destiny": Destiny,
    "proximal-tracking": ProximalTracking,
    "drgta": DRGTA,
    "dprgt": DPRGT,
    "subgradient": Subgradient,
}

# Agents sum over a tree: see `pooling.Pooled`.
SUMMING: Final[dict[str, Sums]] = {
    "proximal": Proximal,
    "gram": Gram,
}
