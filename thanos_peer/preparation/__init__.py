"""What one agent brings to a run, and the phases that it goes through with it.

    mean, spread        the mean and the scale of all samples, where they are to be centered or scaled
    size                how large all samples are together, where something is to follow from it; and what a
                        method that mixes has to know, if nothing else comes before: else that is `agreement`
    leading             the leading singular vectors of all samples, to start from;
    subspace, rotation  or the same by DESTINY
    weights             the values of a path over mu, where the network is to find them
    the main phase      the rounds of the method
    consensus           the X that the agents have come to, as one, where the method leaves each its own
    verdict             what that X is worth: the objective, the variance explained, the residual certified; of a
                        path of each answer, and which of them is the result

Only those that a topology needs. None of them has a coordinator: what is summed is summed over a tree.
"""

from thanos_peer.preparation.choice import Account, PathRow, account_of
from thanos_peer.preparation.own import NOTHING_LEFT, applied
from thanos_peer.preparation.share import Share, outline, pooled_findings

__all__ = ["NOTHING_LEFT", "Account", "PathRow", "Share", "account_of", "applied", "outline", "pooled_findings"]
