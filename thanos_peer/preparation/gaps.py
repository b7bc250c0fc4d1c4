"""How many values of each feature there are at all agents together, and how many there have to be."""

import numpy as np

from thanos_peer.algorithm.faults import range_fault
from thanos_peer.block import Matrix
from thanos_peer.errors import DataFileError
from thanos_peer.samples import name_of

MOST_NAMED = 5  # features in one message


def present_fault(present: Matrix, count: float, own: Matrix, own_count: int) -> str | None:
    """Why these cannot be the numbers of values of all agents together; None if they can.

    Args:
        present: How many values of each feature are said to be there, (n,).
        count: How many samples there are.
        own: How many values of each feature one of the agents has, (n,).
        own_count: How many samples it has.
    """
    is_whole = present == np.floor(present)
    if not is_whole.all():
        worst = int(np.argmin(is_whole))
        return f"the number of values of feature {worst} (counted from 0) is {present[worst]:g}, not a whole one"
    # No fewer than its own are there, and no fewer than its own are missing.
    most = count - (own_count - own)
    worst = int(np.argmin(np.minimum(present - own, most - present)))
    what = f"the number of values of feature {worst} (counted from 0)"
    return range_fault(what, float(present[worst]), float(own[worst]), float(most[worst]))


def check_present(present: Matrix, count: float, most_missing: float, features: tuple[str, ...] | None) -> None:
    """Refuse features of which nothing is there, or too much is missing; all agents do so alike.

    Raises:
        DataFileError: There are such.
    """
    missing = count - present
    too_many = np.flatnonzero((missing > most_missing * count) | (present == 0))
    if not too_many.size:
        return
    said = [
        f"{name_of(j, features)}, {missing[j]:.0f} of {count:.0f} ({missing[j] / count:.1%})"
        for j in too_many[:MOST_NAMED].tolist()
    ]
    more = f"; and {too_many.size - MOST_NAMED} more features" if too_many.size > MOST_NAMED else ""
    raise DataFileError(
        f"too many values are missing at all peers together: of {'; of '.join(said)}{more}. At most "
        f"{most_missing:.1%} may be (problem.data.max_missing): leave such a feature out in the topology file "
        "(problem.exclude or problem.features), or raise that share; one without any value has to be left out"
    )
