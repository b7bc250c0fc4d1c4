"""Rounds that mix: counted from the first of their own phase."""

import numpy as np
import pytest
from uneven import N, network_of, some_parts

OWN_STEP = {"rule": "constant", "eta": 0.1}


def test_sigma_falls_with_the_rounds_of_the_phase_that_minimises(tmp_path):
    """The same start and the same problem, with and without rounds before: the same bits."""
    parts = some_parts((20, 3, 30))
    start = {"kind": "destiny", "seed": 1, "max_rounds": 40}
    late = network_of(
        tmp_path,
        parts,
        max_rounds=25,
        start=start,
        change=lambda raw: raw["algorithm"].update(beta="auto", step=OWN_STEP),
    )
    while late.is_preparing:
        late.advance()
    assert late.agents[0].k > 40
    assert late.k == 0
    start, size = late.X[0], float(late.found.size)
    np.save(tmp_path / "x0.npy", start)
    found, beta = late.found, (1 + 0.1 * np.sqrt(2 * N)) / 3
    for i, part in enumerate(parts):
        parts[i] = (part - found.mean) / (np.sqrt(size) * np.sqrt(found.variance))
    early = network_of(
        tmp_path,
        parts,
        data={"kind": "files"},
        start={"kind": "file", "path": "x0.npy"},
        max_rounds=25,
        change=lambda raw: raw["algorithm"].update(beta=beta, step=OWN_STEP),
    )
    for _ in range(8):
        assert early.k == late.k
        assert pytest.approx(late.X, abs=1e-9) == early.X
        assert pytest.approx(late.array("D"), abs=1e-9) == early.array("D")
        early.advance()
        late.advance()
