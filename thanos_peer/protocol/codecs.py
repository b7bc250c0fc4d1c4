"""The codecs of a run: frames name their epoch, so each epoch has its own."""

from collections.abc import Iterable

from thanos_peer.protocol.handshake import Terms
from thanos_peer.protocol.wire import Codec

# Epochs whose codecs are kept: this one, the one before, and one that a neighbor may have begun.
KEPT = 3


class Codecs:
    """Makes the codec of an epoch, and keeps the latest few.

    Args:
        terms: What the peers of the run agree on.
        forms: What else blocks may carry: kinds and shapes.
    """

    def __init__(self, terms: Terms, forms: Iterable[tuple[str, tuple[int, int]]]) -> None:
        self._terms, self._forms = terms, tuple(forms)
        self._by_epoch: dict[int, Codec] = {}

    def of(self, epoch: int) -> Codec:
        """The codec for the frames of an epoch."""
        if epoch not in self._by_epoch:
            if len(self._by_epoch) >= KEPT:
                del self._by_epoch[min(self._by_epoch)]
            terms = self._terms
            self._by_epoch[epoch] = Codec(
                terms.digest, n=terms.n, p=terms.p, dtype=terms.dtype, epoch=epoch, forms=self._forms
            )
        return self._by_epoch[epoch]
