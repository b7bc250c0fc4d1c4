"""A start in a file: the same numbers at every host, wherever the topology file is written."""

import shutil
import subprocess

import numpy as np
import pytest
import tomlkit
from claims import npy_header, zipped
from peer.test_start import one_line_error, start_and_wait
from processes import PATIENCE, command, write_topology

from thanos_peer.algorithm.stiefel import random_point
from thanos_peer.topology import load


def give_start(raw):
    raw["algorithm"]["start"] = {"kind": "file", "path": "start.npy"}


def test_a_network_with_phases_starts_from_a_file_and_has_the_bits_of_one_process(tmp_path):
    start = random_point(6, 2, np.random.default_rng(7))
    np.save(tmp_path / "start.npy", start)

    def prepare(raw):
        give_start(raw)
        raw["problem"]["data"] = {"kind": "files", "center": True, "overall": "auto"}
        for peer in raw["peers"]:
            np.save(tmp_path / f"{peer['id']}.npy", np.random.default_rng(peer["id"]).standard_normal((9, 6)))
            peer["data"] = f"{peer['id']}.npy"

    topology = write_topology(tmp_path / "net.toml", d=4, change=prepare)
    done = subprocess.run(
        command("verify", topology.file, "--quiet", "--out", tmp_path / "elsewhere/out"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "same bits: the results of 4 peers, all after round 60" in done.stdout


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("start.npy", npy_header(10**12, 2), "the start, is not a plain numeric .npy file: it ends early"),
        (
            "start.npz",
            zipped(X=npy_header(10**12, 2)),
            "the start, is not a plain numeric .npz file: it ends early",
        ),
        ("x" * 300 + ".npy", None, "the start, cannot be read: File name too long"),
        ("a\0b.npy", None, "must be a path of 1 to 4096 characters, without control characters"),
    ],
    ids=["npy", "npz", "long name", "NUL"],
)
def test_a_peer_refuses_a_start_that_claims_too_much_or_cannot_be_named(tmp_path, name, content, what):
    topology = write_topology(tmp_path / "net.toml", "path", 2)
    text = topology.file.read_text(encoding="utf-8")
    path = tomlkit.string(name).as_string()
    assert text.count('kind = "svd"') == 1
    topology.file.write_text(text.replace('kind = "svd"', f'kind = "file"\npath = {path}'), encoding="utf-8")
    if content is not None:
        (tmp_path / name).write_bytes(content)
    done = start_and_wait("--id", 0, "--topology", topology.file, "--out", tmp_path / "run")
    assert what in one_line_error(done, 3)
    assert not (tmp_path / "run").exists()


def test_the_digest_covers_the_numbers_of_a_start_and_not_its_path(tmp_path):
    digests = []
    for place, seed in (("a", 7), ("b", 7), ("c", 8)):
        directory = tmp_path / place
        directory.mkdir()
        np.save(directory / "start.npy", random_point(6, 2, np.random.default_rng(seed)))
        topology = write_topology(directory / "net.toml", d=4, change=give_start)
        if place == "b":
            shutil.move(directory / "start.npy", directory / "other.npy")
            text = topology.file.read_text(encoding="utf-8").replace("start.npy", "other.npy")
            topology.file.write_text(text, encoding="utf-8")
        digests.append(load(topology.file).digest)
    assert digests[0] == digests[1] != digests[2]
