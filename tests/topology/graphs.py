"""Random connected graphs, and a way to change one key of a topology file."""

import re

from hypothesis import strategies as st

GONE = object()


@st.composite
def connected_graphs(draw, largest: int = 9) -> tuple[int, list[tuple[int, int]]]:
    """d and sorted edges (i, j) with i < j: a random tree and some more edges."""
    d = draw(st.integers(1, largest))
    tree = {(draw(st.integers(0, i - 1)), i) for i in range(1, d)}
    pairs = [(i, j) for j in range(d) for i in range(j)]
    extra = draw(st.sets(st.sampled_from(pairs))) if pairs else set()
    return d, sorted(tree | extra)


def put(raw: dict, key: str, value: object) -> dict:
    """Set a key such as `peers[3].address` of a parsed topology file, or take it out with GONE."""
    *parents, last = [int(part) if part.isdigit() else part for part in re.findall(r"\w+", key)]
    place = raw
    for part in parents:
        place = place[part]
    if value is GONE:
        del place[last]
    else:
        place[last] = value
    return raw
