"""Methods for one machine that holds all the data, to compare the network with: one file each, and their table.

Each is a generator: from f, g and a start it gives points of the manifold without end, the start first. One
iteration takes one gradient of f, and one of ManPG also its value. Nothing is to be tuned: step sizes follow from
f.lipschitz() and g.lipschitz(n, p).
"""

from collections.abc import Callable, Iterator
from typing import Final

from thanos_peer.algorithm.central import admm, manpg, slpg, smoothing, subgradient
from thanos_peer.algorithm.objectives import Objective
from thanos_peer.algorithm.regularizers import Regularizer
from thanos_peer.block import Matrix

Iterates = Callable[[Objective, Regularizer, Matrix], Iterator[Matrix]]

CENTRAL: Final[dict[str, Iterates]] = {
    "slpg": slpg.iterates,
    "manpg": manpg.iterates,
    "riemannian-subgradient": subgradient.iterates,
    "riemannian-smoothing": smoothing.iterates,
    "riemannian-admm": admm.iterates,
}

# Methods that minimise a smoothed problem, even if it is smoothed only slightly.
SMOOTHING: Final = frozenset({"riemannian-smoothing", "riemannian-admm"})
