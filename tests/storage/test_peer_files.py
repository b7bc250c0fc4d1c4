"""A peer's own part of a run directory: what an earlier end has left may be damaged."""

import json
import os
import stat

import numpy as np
import pytest
from networks import make_topology

from thanos_peer.errors import CheckpointError, ConfigError
from thanos_peer.storage.peer_files import PeerFiles

TOPOLOGY = make_topology(family="path", d=2, n=2, p=1)
DAMAGED = {
    "a list": b"[]",
    "null": b"null",
    "no round": b'{"is_done": true}',
    "an epoch that is no number": b'{"is_done": true, "round": 3, "epoch": "x"}',
    "an epoch beyond all": b'{"is_done": true, "round": 3, "epoch": 1e300}',
    "a negative round": b'{"is_done": true, "round": -1}',
    "a round that is no number": b'{"is_done": true, "round": NaN}',
    "rounds that are none": b'{"is_done": true, "round": 3, "rounds_by_phase": [1]}',
    "deep nesting": b"[" * 100_000,
    "deep nesting in a key": b'{"is_done": true, "round": 3, "x": ' + b'{"a":' * 100_000,
    "no JSON": b"{",
    "no text": b"\xff\xfe",
}


@pytest.fixture
def files(tmp_path):
    """Those of a peer that is done."""
    files, X = PeerFiles(tmp_path, TOPOLOGY, 0), np.ones((2, 1))
    files.write(X, None, X, {"is_done": True, "round": 3, "epoch": 1, "digest": TOPOLOGY.digest})
    return files


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_file_says_nothing_and_is_named(files, what):
    files.facts.write_bytes(DAMAGED[what])
    assert files.is_finished is None
    assert files.finished_round(TOPOLOGY.digest) is None
    assert (files.finished_after, files.finished_epoch) == (0, 0)
    with pytest.raises(
        ConfigError, match=r"0\.npz exists already, and .*0\.json is damaged \(.+\); choose another"
    ) as caught:
        files.prepare()
    assert "\n" not in str(caught.value)
    files.prepare(is_resumed=True)
    files.withdraw()
    assert files.is_finished is False


def test_a_sound_file_tells_how_the_run_ended(files):
    assert files.is_finished is True
    assert files.finished_round(TOPOLOGY.digest) == files.finished_after == 3
    assert files.finished_epoch == 1
    files.withdraw()
    assert json.loads(files.facts.read_text())["ending"] == "withdrawn"


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_pipe_or_a_link_in_place_of_it_is_not_read(files, make):
    files.facts.unlink()
    make(files.facts)
    assert files.is_finished is None
    with pytest.raises(ConfigError, match="not a regular file"):
        files.prepare()


def test_what_a_peer_writes_is_for_its_owner_alone(files):
    written = [files.result, files.facts, files.table]
    assert {stat.S_IMODE(path.stat().st_mode) for path in written} == {0o600}
    assert stat.S_IMODE(files.result.parent.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_a_directory_of_another_user_is_refused(tmp_path, monkeypatch):
    (tmp_path / "peers").mkdir()
    os.chown(tmp_path / "peers", 54321, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(CheckpointError, match=r"cannot write the results to .*: it belongs to user 54321"):
        PeerFiles(tmp_path, TOPOLOGY, 0).prepare()
