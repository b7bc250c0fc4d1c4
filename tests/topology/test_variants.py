"""The same file with another method."""

from pathlib import Path

import pytest
from networks import raw_topology, with_keys

from thanos_peer.algorithm.methods import METHODS
from thanos_peer.preparation import outline
from thanos_peer.topology import parse
from thanos_peer.topology.variants import set_method, with_method


@pytest.mark.parametrize("other", ["auto", "gram", "proximal"])
def test_methods_by_sums_share_their_settings(other):
    named = "proximal" if other != "proximal" else "gram"
    raw = {"algorithm": {"method": named, "restarts": 20, "max_rounds": 900}}
    set_method(raw, other)
    assert raw["algorithm"] == {"method": other, "restarts": 20, "max_rounds": 900}


@pytest.mark.parametrize("named", ["gram", "unknown"])
def test_a_method_of_another_kind_has_its_own_settings(named):
    raw = {"algorithm": {"method": named, "restarts": 20, "exchange": "float32"}}
    set_method(raw, "thanos")
    assert "restarts" not in raw["algorithm"]
    assert raw["algorithm"]["exchange"] == "float32"
    assert raw["algorithm"]["smoothing"] == {"rule": "decreasing"}


def test_a_file_with_an_unknown_method_has_nothing_to_share():
    raw = {"algorithm": {"method": "unknown", "beta": 1.0, "max_rounds": 9}}
    set_method(raw, "gram")
    assert raw["algorithm"] == {"method": "gram"}


@pytest.mark.parametrize("method", METHODS)
def test_a_file_with_another_method_is_as_sound_as_one_that_names_it(method):
    raw = with_keys(raw_topology("ring", 4))
    raw["problem"]["data"] = {"kind": "files", "center": True}
    raw["algorithm"] = {"method": "gram", "start": {"kind": "leading"}}
    raw["peers"] = [peer | {"data": "x.csv"} for peer in raw["peers"]]
    changed = with_method(parse(raw, file=Path("net.toml"), data_of=()), method)
    assert changed.method == method
    # pydantic warns of a section that is none.
    assert changed.digest
    assert outline(changed).is_masked
