"""What one agent brings to a run, and the phases that it goes through with it.

    mean, spread        the mean and the scale of all samples, where they are to be centered or scaled
    size                how large all samples are together, where something is to follow from it; and what a
                        method that mixes has to know, if nothing else comes before: else that is `agreement`
    leading             the leading singular vectors of all samples, to start from;
    subspace, rotation  or the same by DESTINY
    the main phase      the rounds of the method
    consensus           the X that the agents have come to, as one, where the method leaves each its own
    verdict             what that X is worth: the objective, the variance explained, the residual certified

Only those that a topology needs. None of them has a coordinator: what is summed is summed over a tree.
"""

from thanos_peer.preparation.own import NOTHING_LEFT, applied
from thanos_peer.preparation.share import Share, outline, pooled_findings

__all__ = ["NOTHING_LEFT", "Share", "applied", "outline", "pooled_findings"]
