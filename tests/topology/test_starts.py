"""A start in a file: checked when the topology is, and part of what peers have to agree on."""

import shutil

import numpy as np
import pytest
from networks import make_instance, make_topology, raw_topology
from topology.graphs import put

from thanos_peer.algorithm.stiefel import random_point
from thanos_peer.errors import TopologyError
from thanos_peer.simulate import AgentNetwork
from thanos_peer.topology import parse

N, P = 6, 2
START = random_point(N, P, np.random.default_rng(3))


def raw_from(path="x0.npy"):
    return put(raw_topology(n=N, p=P), "algorithm.start", {"kind": "file", "path": path})


def topology_in(directory, start=START, path="x0.npy"):
    """A topology in a directory, with this start beside it."""
    directory.mkdir(exist_ok=True)
    np.save(directory / "x0.npy", start)
    return make_topology(raw_from(path), file=directory / "net.toml")


def refusal(raw, directory):
    with pytest.raises(TopologyError) as caught:
        parse(raw, file=directory / "net.toml")
    (line,) = str(caught.value).splitlines()
    return line.removeprefix(f"{directory / 'net.toml'}: ")


def test_agents_start_from_the_file_to_the_last_bit(tmp_path):
    np.save(tmp_path / "x0.npy", START)
    network = AgentNetwork(make_instance(raw_from(), file=tmp_path / "net.toml"))
    assert [X.tobytes() for X in network.X] == [START.tobytes()] * 5


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (START.T, "has shape (2, 6); must be (samples, 2)"),
        (START[:-1], "has 5 rows; must have 6"),
        (2 * START, "has columns that are not orthonormal"),
        (START[:, [0, 0]], "has columns that are not orthonormal"),
        (START * np.array([1, 1 + 1e-7]), "has columns that are not orthonormal"),
        (np.where(START[0, 0] == START, np.nan, START), "has nan in row 0, column 0; all entries must be finite"),
        (None, "cannot be read: No such file or directory"),
    ],
    ids=["turned", "short", "long columns", "twice the same", "nearly", "nan", "missing"],
)
def test_a_start_that_cannot_be_used_is_named_with_what_is_wrong(tmp_path, start, what):
    if start is not None:
        np.save(tmp_path / "x0.npy", start)
    line = refusal(raw_from(), tmp_path)
    assert line.startswith(f"algorithm.start.path = 'x0.npy': {tmp_path / 'x0.npy'}, the start, {what}")


def test_a_start_that_is_no_table_is_named(tmp_path):
    (tmp_path / "x0.npy").write_bytes(b"not an array")
    assert f"{tmp_path / 'x0.npy'}, the start, " in refusal(raw_from(), tmp_path)
    line = refusal(raw_from("x0.pickle"), tmp_path)
    assert "the start, must be a file that ends in .npy" in line


def test_hosts_with_other_numbers_to_start_from_have_another_digest(tmp_path):
    one, other = START.copy(), START.copy()
    other[0, 0] = np.nextafter(other[0, 0], 2)
    here, there = topology_in(tmp_path / "here", one), topology_in(tmp_path / "there", other)
    assert here.digest != there.digest
    assert here.digest == topology_in(tmp_path / "again", one).digest


def test_where_a_host_keeps_the_start_is_not_part_of_the_digest(tmp_path):
    here = topology_in(tmp_path / "here")
    (tmp_path / "there" / "deep").mkdir(parents=True)
    shutil.copy(tmp_path / "here" / "x0.npy", tmp_path / "there" / "deep" / "mine.npy")
    there = make_topology(raw_from("deep/mine.npy"), file=tmp_path / "there" / "net.toml")
    assert here.digest == there.digest
    random = make_topology(
        put(raw_from(), "algorithm.start", {"kind": "random", "seed": 1}), file=tmp_path / "net.toml"
    )
    assert here.digest != random.digest
