"""Rounds that sum, in a network: exact, also where blocks are rounded."""

import numpy as np
from networks import make_instance
from uneven import LEADING, PREPARED, N, raw_with_parts, some_parts

from thanos_peer.simulate import AgentNetwork


def test_sums_are_as_exact_when_blocks_are_rounded_on_their_way(tmp_path):
    parts = some_parts((20, 3, 30))
    parts[1] = np.full((3, N), 1e20)  # whose squares are beyond float32
    found = []
    for exchange in ("float64", "float32"):
        raw = raw_with_parts(tmp_path, parts, "path", data=PREPARED, start=LEADING)
        raw["algorithm"]["exchange"] = exchange
        network = AgentNetwork(make_instance(raw, file=tmp_path / "net.toml"))
        while network.is_preparing:
            network.advance()
        found.append(network.found)
    for name in ("mean", "variance", "size", "start", "overall"):
        assert getattr(found[0], name).tobytes() == getattr(found[1], name).tobytes()
