"""The regularizers by name: a new one is a file of its own, and a line in the table here."""

from typing import Final

from thanos_peer.algorithm.regularizers.group_l21 import GroupL21
from thanos_peer.algorithm.regularizers.l1 import L1
from thanos_peer.algorithm.regularizers.l21 import L21
from thanos_peer.algorithm.regularizers.none import Zero
from thanos_peer.algorithm.regularizers.regularizer import (
    NamedRegularizer,
    Regularizer,
    SmoothlyProxed,
    Subdifferentiable,
    envelope,
    envelope_gradient,
    slope,
)

__all__ = [
    "L1",
    "L21",
    "REGULARIZERS",
    "GroupL21",
    "NamedRegularizer",
    "Regularizer",
    "SmoothlyProxed",
    "Subdifferentiable",
    "Zero",
    "envelope",
    "envelope_gradient",
    "is_smooth",
    "slope",
]

REGULARIZERS: Final[dict[str, type[NamedRegularizer]]] = {
    "l1": L1,
    "l21": L21,
    "group-l21": GroupL21,
    "none": Zero,
}


def is_smooth(regularizer: str) -> bool:
    """Whether a problem with this regularizer has none; one of the user's own is not in the table."""
    return regularizer in REGULARIZERS and REGULARIZERS[regularizer].is_zero
