"""The parts of a run: rounds that sum over a tree, rounds that mix, and the round that agrees on masks.

A run goes through its phases one after the other. All agents leave a phase after the same round: because a sum has
a number of rounds that follows from the graph, because the root of the tree has said that its word is the last, or
by the stop that they reach together. So no message says that a new one begins. Rounds are counted through: the
exchange and the wire know of the round alone, and each agent knows from it and from its own past which phase it is
in. What a phase has found is there for those that follow.
"""

from thanos_peer.phases.masking import Masking
from thanos_peer.phases.mixing import Mixing
from thanos_peer.phases.phase import Arrays, Found, Phase, PhaseEnd, Plan, WrongStateError, named_arrays
from thanos_peer.phases.pooling import Pooling, run_sums
from thanos_peer.phases.runner import Answer, PhaseRunner

__all__ = [
    "Answer",
    "Arrays",
    "Found",
    "Masking",
    "Mixing",
    "Phase",
    "PhaseEnd",
    "PhaseRunner",
    "Plan",
    "Pooling",
    "WrongStateError",
    "named_arrays",
    "run_sums",
]
