"""Masked sums in whole networks: the same bits in one round more."""

import pytest
from networks import found_bits, make_instance, with_keys
from simulate.test_exact_methods import run_both
from uneven import LEADING, PREPARED, raw_with_parts, some_parts

from thanos_peer.simulate import AgentNetwork, StackedNetwork
from thanos_peer.topology import families

SIZES = {"complete": 4, "tree": 15, "erdos-renyi": 12, "torus": 9}


def raw_problem(tmp_path, family, d, method):
    raw = raw_with_parts(tmp_path, some_parts([3 + i % 5 for i in range(d)]), family, data=PREPARED, start=LEADING)
    raw["algorithm"] = {"method": method, "start": LEADING}
    return raw


@pytest.mark.parametrize(
    ("family", "d", "method"),
    [
        *((family, SIZES.get(family, 6), "gram") for family in families.FAMILIES),
        ("path", 2, "gram"),
        ("tree", 200, "gram"),
        ("star", 5, "proximal"),
        ("tree", 7, "proximal"),
        ("ring", 4, "proximal-tracking"),
    ],
)
def test_sums_of_agents_that_mask_have_the_bits_of_plain_ones(tmp_path, family, d, method):
    raw, file = raw_problem(tmp_path, family, d, method), tmp_path / "net.toml"
    masked = AgentNetwork(make_instance(with_keys(raw), file=file))
    plain = StackedNetwork(make_instance(raw, file=file))
    for network in (masked, plain):
        while not network.is_done:
            network.advance()
    assert masked.rounds_by_phase == {"masks": 1, **plain.rounds_by_phase}
    assert masked.payload_sent == plain.payload_sent + 64 * len(raw["edges"])
    assert [masked.X.tobytes(), masked.sparse.tobytes()] == [plain.X.tobytes(), plain.sparse.tobytes()]
    found, expected = found_bits(masked.found), found_bits(plain.found)
    assert found.pop("over")[1:] == expected.pop("over")
    assert found == expected


def test_both_engines_go_through_the_round_of_masks_together(tmp_path):
    run_both(make_instance(with_keys(raw_problem(tmp_path, "ring", 4, "gram")), file=tmp_path / "net.toml"))
