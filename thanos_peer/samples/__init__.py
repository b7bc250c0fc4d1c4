"""The samples of a peer: files of several formats, read chunk by chunk, and what they amount to.

Rows are samples and columns features; the paper's A_i is the transpose. No reader holds more than a few chunks at
a time, so a file may be larger than the memory. Errors here say what is wrong with a file, beginning with a verb;
the caller, who knows whose file it is, puts that in front (`named`).
"""

from thanos_peer.samples.columns import Columns
from thanos_peer.samples.files import FORMATS, named, open_table, read_rows
from thanos_peer.samples.gaps import Incomplete
from thanos_peer.samples.moments import Moments, Spread, samples_digest
from thanos_peer.samples.names import (
    check_same_features,
    columns_of,
    digests_so_far,
    features_digest,
    name_of,
)
from thanos_peer.samples.reading import moments_of_rows, read_moments, unmasked
from thanos_peer.samples.table import LARGEST_SIDE, Table

__all__ = [
    "FORMATS",
    "LARGEST_SIDE",
    "Columns",
    "Incomplete",
    "Moments",
    "Spread",
    "Table",
    "check_same_features",
    "columns_of",
    "digests_so_far",
    "features_digest",
    "moments_of_rows",
    "name_of",
    "named",
    "open_table",
    "read_moments",
    "read_rows",
    "samples_digest",
    "unmasked",
]
