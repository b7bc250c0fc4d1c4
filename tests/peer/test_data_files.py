"""A peer's own data file, from the command line to the result, and what is wrong with it, told at once."""

import re
import subprocess
import time

import numpy as np
import pytest
from cli.commands import call
from processes import (
    PATIENCE,
    assert_same_bits,
    command,
    ended_afterwards,
    exact,
    said,
    start_peer,
    wait_until,
    write_topology,
)

from thanos_peer import load_result
from thanos_peer.peer import notify
from thanos_peer.problem import build, share_of
from thanos_peer.samples import features_digest
from thanos_peer.simulate import AgentNetwork
from thanos_peer.storage.checkpoint import CheckpointStore
from thanos_peer.topology import load

N, D = 4, 3
NAMES = "a,b,c,d"
ATTEMPTS = 5
NOT_TOLD = "not there to be told"


def rows(i):
    return np.random.default_rng(i).standard_normal((5 + 3 * i, N)) / 4


def text(i, header=NAMES):
    return header + "\n" + "\n".join(",".join(map(repr, row)) for row in rows(i).tolist()) + "\n"


def files_topology(directory, *, has_paths, method="thanos"):
    """A path of three peers with a CSV file each, which the topology names or not."""
    for i in range(D):
        (directory / f"{i}.csv").write_text(text(i))

    def change(raw):
        raw["problem"]["data"] = {"kind": "files"}
        if method != "thanos":
            exact(method)(raw)
        raw["algorithm"]["start"] = {"kind": "random", "seed": 1}
        for peer in raw["peers"]:
            peer["data"] = f"{peer['id']}.csv"

    topology = write_topology(directory / "net.toml", "path", D, n=N, change=change)
    if not has_paths:
        lines = (directory / "net.toml").read_text().splitlines()
        bare = "\n".join(line for line in lines if not line.startswith("data = "))
        (directory / "bare.toml").write_text(bare)
        return load(directory / "bare.toml", data_of=())
    return topology


def test_peers_that_alone_know_their_data_end_with_the_bits_of_a_topology_that_names_it(tmp_path):
    named, bare = (files_topology(tmp_path, has_paths=has_paths) for has_paths in (True, False))
    assert all(peer.data is None for peer in bare.peers)
    bare = load(bare.file, data_of=())
    out = tmp_path / "out"
    peers = [start_peer(bare, i, out, "--data", tmp_path / f"{i}.csv") for i in range(D - 1)]
    last = start_peer(bare, D - 1, out, env={"THANOS_PEER_DATA": str(tmp_path / f"{D - 1}.csv"), "PATH": ""})
    with ended_afterwards(*peers, last):
        for i, peer in enumerate([*peers, last]):
            assert peer.wait(PATIENCE) == 0, said(out, i)
    assert_same_bits(out, named)
    for i in range(D):
        result = load_result(out, peer=i)
        assert result.feature_names_in_.tolist() == NAMES.split(",")
        edges = result.facts["edges"].values()
        assert result.facts["bytes_sent"] == sum(edge["bytes_sent"] for edge in edges) > 0
        assert (out / "peers" / f"{i}.csv").read_text().splitlines()[1].startswith("a,")


MISTAKES = {
    "a missing value": (
        text(1).replace(repr(float(rows(1)[2, 1])), ""),
        "has a missing value ('') in line 4, column 2 'b'",
    ),
    "text in a column": (
        text(1).replace(repr(float(rows(1)[2, 1])), "high"),
        "has 'high' in line 4, column 2 'b'",
    ),
    "fewer columns": ("a,b,c\n1,2,3\n", "has 3 columns; must have n = 4"),
    "a ragged row": (text(1) + "1,2,3\n", "has 3 fields in line 10; must have 4"),
    "an empty file": ("", "is empty"),
    "a header only": (NAMES + "\n", "has a header and no samples"),
    "NaN in .npy": (None, "has nan in row 3, column 2; all entries must be finite"),
    "infinity": (text(1) + "1,2,3,1e999\n", "has '1e999' in line 10, column 4 'd'"),
    "a double name": (text(1, "a,b,c,a"), "has the name 'a' in columns 1 and 4"),
}


def ended_with_3(arguments):
    return ended_with(3, arguments)


def ended_with(code, arguments):
    done = subprocess.run(command(*arguments), capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("what", [what for what in MISTAKES if MISTAKES[what][0] is not None])
def test_a_mistake_in_the_data_ends_simulate_before_the_first_round(tmp_path, what):
    topology = files_topology(tmp_path, has_paths=True)
    content, message = MISTAKES[what]
    (tmp_path / "1.csv").write_text(content)
    out = tmp_path / "out"
    if what == "fewer columns":
        # The files of other peers are at hand, which have names as well.
        message = f"has 3 columns; must have 4, as in {tmp_path}/0.csv of peer 0: it lacks 'd'"
    (line,) = ended_with_3(("simulate", topology.file, "--out", out)).splitlines()
    assert line.startswith(
        f"Error: {topology.file}: peers[1].data = '1.csv': {tmp_path}/1.csv of peer 1 {message}"
    )
    assert not out.exists()


def spoil(directory, content):
    """Give peer 1 a file with this mistake."""
    if content is None:
        table = rows(1)
        table[3, 2] = np.nan
        np.save(directory / "1.npy", table)
        return directory / "1.npy"
    (directory / "1.csv").write_text(content)
    return directory / "1.csv"


def refused(topology, out, *options, there, code=3):
    """Start peer 1, which ends with a code, again while one of those there was too busy to be told; its line."""
    for _ in range(ATTEMPTS):
        words = ended_with(code, ("start", "--id", 1, "--topology", topology.file, "--out", out, *options))
        not_told = re.search(rf"{NOT_TOLD} .*: peers (.*)", words)
        if not_told is None or not set(not_told[1].split(", ")) & set(map(str, there)):
            break
    (line,) = [each for each in words.splitlines() if each.startswith("Error: ")]
    return line


def told(out, agent, words):
    """Wait until a peer says something of a neighbor for which it waits."""
    wait_until(lambda: words in said(out, agent), f"peer {agent} says: {words}")
    assert "Traceback" not in said(out, agent)


@pytest.mark.parametrize(
    "what", ["a missing value", "text in a column", "fewer columns", "an empty file", "NaN in .npy"]
)
def test_a_mistake_in_the_data_ends_start_in_one_line_and_is_told_to_the_neighbors(tmp_path, what):
    topology = files_topology(tmp_path, has_paths=True)
    content, message = MISTAKES[what]
    path = spoil(tmp_path, content)
    out = tmp_path / "out"
    neighbors = [start_peer(topology, i, out) for i in (0, 2)]
    with ended_afterwards(*neighbors):
        for i in (0, 2):
            wait_until(lambda i=i: "listening" in said(out, i), f"peer {i} is there")
        line = refused(topology, out, "--data", path, there=(0, 2))
        assert line.startswith(f"Error: {path} of peer 1 {message}")
        for i in (0, 2):
            told(out, i, "peer 1 left in round 0: its data cannot be used")
            told(out, i, "it left in round 0 (its data cannot be used)")
        assert all(neighbor.poll() is None for neighbor in neighbors)  # they wait for it
        (tmp_path / "1.csv").write_text(text(1))
        again = start_peer(topology, 1, out)
        with ended_afterwards(again):
            assert [peer.wait(PATIENCE) for peer in (*neighbors, again)] == [0] * 3
    assert_same_bits(out, topology)


def test_samples_too_large_for_a_sum_end_the_peer_that_has_them_and_are_told_to_the_neighbors(tmp_path):
    topology, out = files_topology(tmp_path, has_paths=True), tmp_path / "out"
    words = topology.file.read_text().replace("[algorithm]\n", '[algorithm]\nbeta = "auto"\n')
    topology.file.write_text(re.sub(r"^beta = 1\.0$", "", words, flags=re.MULTILINE))
    (tmp_path / "1.csv").write_text(f"{NAMES}\n1.2e154,1.2e154,1.2e154,0\n")
    neighbor = start_peer(topology, 0, out)
    with ended_afterwards(neighbor):
        wait_until(lambda: "listening" in said(out, 0), "peer 0 is there")
        line = refused(topology, out, there=(0,))
        assert line.startswith(
            "Error: the samples of peer 1 are too large: in phase size it has a number that cannot be summed"
        )
        told(out, 0, "peer 1 left in round 0: its data cannot be used")


def test_neighbors_are_told_of_a_mistake_in_the_data_after_a_new_epoch_too(tmp_path):
    topology, out = files_topology(tmp_path, has_paths=True), tmp_path / "out"
    for agent in AgentNetwork(build(topology)).agents:
        agent.restart_tracking(1)
        agent.fallback = agent.k
        with CheckpointStore(tmp_path / "out.state", topology, agent.id, is_flushed=False) as store:
            store.tie_to(share_of(topology, agent.id).samples, topology.data_file(agent.id))
            store.save(agent.memory())
    neighbor = start_peer(topology, 0, out)
    with ended_afterwards(neighbor):
        wait_until(lambda: "listening" in said(out, 0), "peer 0 is there")
        spoil(tmp_path, "")
        assert "is empty" in refused(topology, out, there=(0,))
        told(out, 0, "peer 1 left in round 0: its data cannot be used")


def test_a_peer_does_not_go_on_with_other_samples_but_with_the_same_in_another_file(tmp_path):
    topology, out = files_topology(tmp_path, has_paths=True), tmp_path / "out"
    first = start_peer(topology, 1, out)
    with ended_afterwards(first):
        wait_until(lambda: "listening" in said(out, 1), "peer 1 is there, and its checkpoint")
    (tmp_path / "1.csv").write_text(text(2))
    neighbor = start_peer(topology, 0, out)
    with ended_afterwards(neighbor):
        wait_until(lambda: "listening" in said(out, 0), "peer 0 is there to be told")
        line = refused(topology, out, there=(0,), code=8)
        assert f"1-000000000000.ckpt was made with other samples than those in {tmp_path}/1.csv" in line
        assert "--fresh" in line
        told(out, 0, "peer 1 left in round 0: it cannot save or read its state")
        np.save(tmp_path / "moved.npy", rows(1))
        others = start_peer(topology, 1, out, "--data", tmp_path / "moved.npy"), start_peer(topology, 2, out)
        with ended_afterwards(*others):
            assert [peer.wait(PATIENCE) for peer in (neighbor, *others)] == [0] * D
    (tmp_path / "1.csv").write_text(text(1))
    assert_same_bits(out, topology)


def test_features_in_another_order_end_both_neighbors_with_both_sides(tmp_path):
    topology = files_topology(tmp_path, has_paths=True)
    (tmp_path / "1.csv").write_text(text(1, "a,c,b,d"))
    out = tmp_path / "out"
    peers = [start_peer(topology, i, out) for i in (0, 1)]
    with ended_afterwards(*peers):
        assert [peer.wait(PATIENCE) for peer in peers] == [5, 5]
    digests = [features_digest(names.split(",")) for names in (NAMES, "a,c,b,d")]
    for i in (0, 1):
        words = said(out, i)
        assert "Traceback" not in words
        assert "they differ in order of features, whose names are the same: " in words
        assert f"digest {digests[i]} here, {digests[1 - i]} there" in words
        assert "`thanos-peer features FILE`" in words
        assert not (out / "peers" / f"{i}.npz").exists()


@pytest.mark.parametrize("between", [1, 2])
def test_other_names_are_found_through_peers_that_have_none(tmp_path, between):
    """A path whose ends have names, and no peer between them has."""
    d = between + 2
    for i in range(d):
        np.save(tmp_path / f"{i}.npy", rows(i))
    (tmp_path / "first.csv").write_text(text(0))
    (tmp_path / "last.csv").write_text(text(d - 1, "a,b,c,x"))

    def change(raw):
        raw["problem"]["data"] = {"kind": "files"}
        raw["algorithm"]["start"] = {"kind": "random", "seed": 1}
        for peer in raw["peers"]:
            peer["data"] = f"{peer['id']}.npy"

    topology, out = (
        write_topology(tmp_path / "net.toml", "path", d, n=N, change=change, max_rounds=10**6),
        tmp_path / "out",
    )
    data = {0: "first.csv", d - 1: "last.csv"}
    peers = [
        start_peer(topology, i, out, *(["--data", tmp_path / data[i]] if i in data else [])) for i in range(d)
    ]
    with ended_afterwards(*peers):
        wait_until(lambda: [peer.poll() for peer in peers].count(5) == 2, "two of them refuse each other")
        refusing = [i for i in range(d) if peers[i].poll() == 5]
        assert refusing[1] == refusing[0] + 1
        for i in refusing:
            assert "they differ in names of features: digest " in said(out, i)
        assert any("as passed on from peer" in said(out, i) for i in refusing)
        for i in set(range(d)) - set(refusing):
            if set(refusing) & {i - 1, i + 1}:
                told(out, i, "it cannot run together with another peer")


def test_names_pass_through_a_peer_without_any_and_all_is_well_where_they_agree(tmp_path):
    topology, out = files_topology(tmp_path, has_paths=True), tmp_path / "out"
    np.save(tmp_path / "bare.npy", rows(1))
    peers = [
        start_peer(topology, i, out, *(["--data", tmp_path / "bare.npy"] if i == 1 else [])) for i in range(D)
    ]
    with ended_afterwards(*peers):
        assert [peer.wait(PATIENCE) for peer in peers] == [0] * D
    assert_same_bits(out, topology)
    assert load_result(out, peer=1).feature_names_in_ is None


def test_the_names_of_a_file_are_shown_with_digests_to_find_the_first_difference_by(tmp_path):
    (tmp_path / "one.csv").write_text(text(1))
    (tmp_path / "other.csv").write_text(text(1, "a,b,x,d"))
    np.save(tmp_path / "bare.npy", rows(1))
    one, other = (call("features", tmp_path / f"{name}.csv").stdout.splitlines() for name in ("one", "other"))
    assert one[0] == f"{tmp_path}/one.csv has 4 features, digest {features_digest(NAMES.split(','))}"
    assert [line.split()[0] for line in one[1:]] == list("0123")
    assert [line.split()[2] for line in one[1:]] == NAMES.split(",")
    assert [mine.split()[1] == theirs.split()[1] for mine, theirs in zip(one[1:], other[1:], strict=True)] == [
        *(True, True),
        *(False, False),
    ]
    assert (
        "4 features without names: they are numbered from 0 to 3" in call("features", tmp_path / "bare.npy").stdout
    )
    assert f"{tmp_path}/no.csv cannot be read" in call("features", tmp_path / "no.csv", code=3).stderr


def test_a_column_that_is_constant_at_all_peers_ends_all_where_it_is_to_be_scaled(tmp_path):
    topology = files_topology(tmp_path, has_paths=True)
    words = topology.file.read_text().replace('kind = "files"', 'kind = "files"\nscale = true')
    topology.file.write_text(words)
    for i in range(D):
        table = rows(i)
        table[:, 2] = 0.1
        body = "\n".join(",".join(map(repr, row)) for row in table.tolist())
        (tmp_path / f"{i}.csv").write_text(f"{NAMES}\n{body}\n")
    out = tmp_path / "out"
    peers = [start_peer(topology, i, out) for i in range(D)]
    with ended_afterwards(*peers):
        assert [peer.wait(PATIENCE) for peer in peers] == [3] * D
    for i in range(D):
        assert "Error: feature 'c' is the same in all samples of all peers" in said(out, i)
        assert "Traceback" not in said(out, i)
    assert "is the same in all samples" in ended_with_3(("simulate", topology.file, "--out", tmp_path / "one"))


def test_a_peer_with_bad_data_says_whom_it_could_not_tell(tmp_path):
    topology, table = files_topology(tmp_path, has_paths=True), rows(1)
    table[3, 2] = np.nan
    path = tmp_path / "x.npz"
    np.savez(path, table)
    began = time.monotonic()
    start = ("start", "--id", 1, "--topology", topology.file, "--out", tmp_path / "out", "--data", path)
    words = ended_with_3(start)
    # The neighbors had the time to come up.
    assert time.monotonic() - began >= notify.REACH_TIMEOUT
    assert f"{path} of peer 1 has nan in row 3, column 2; all entries must be finite" in words
    assert f"{NOT_TOLD} that this peer leaves (its data cannot be used): peers 0, 2" in words


@pytest.mark.parametrize("key", ["center", "scale"])
def test_a_peer_whose_sums_would_tell_its_samples_warns(tmp_path, key):
    for i, count in enumerate((1, 2, 3)):
        np.save(tmp_path / f"{i}.npy", rows(2)[4 * i : 4 * i + count])

    def change(raw):
        raw["problem"]["data"] = {"kind": "files", key: True}
        raw["algorithm"]["start"] = {"kind": "random", "seed": 1}
        for peer in raw["peers"]:
            peer["data"] = f"{peer['id']}.npy"

    topology = write_topology(tmp_path / "net.toml", "path", D, n=N, max_rounds=3, change=change)
    call("run", topology.file, "--out", tmp_path / "run", "--quiet")
    words = [(tmp_path / "run" / "peers" / f"{i}.log").read_text() for i in range(D)]
    assert [len(re.findall(r"WARNING: this peer has (\d) sample\(s\) only", word)) for word in words] == [1, 1, 0]


def test_features_in_another_order_end_simulate_with_the_first_difference(tmp_path):
    topology = files_topology(tmp_path, has_paths=True)
    (tmp_path / "2.csv").write_text(text(2, "a,c,b,d"))
    words = ended_with_3(("simulate", topology.file, "--out", tmp_path / "out"))
    assert "2.csv of peer 2 has the same features in another order: column 2 is 'c'; must be 'b'" in words


def test_a_constant_column_at_one_peer_is_no_mistake(tmp_path):
    topology = files_topology(tmp_path, has_paths=True)
    words = topology.file.read_text().replace('kind = "files"', 'kind = "files"\nscale = true')
    topology.file.write_text(words)
    (tmp_path / "1.csv").write_text(f"{NAMES}\n0.1,0.2,0.3,0.4\n0.1,0.5,0.2,0.1\n")
    done = subprocess.run(
        command("simulate", topology.file, "--out", tmp_path / "out"), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_peer_without_any_data_is_told_how_to_get_some(tmp_path):
    bare = files_topology(tmp_path, has_paths=False)
    words = ended_with_3(("start", "--id", 1, "--topology", bare.file))
    assert "peers[1].data: is missing: name this peer's data file, or start the peer with --data FILE" in words
    assert "3 mistakes" in ended_with_3(("simulate", bare.file))
    shown = subprocess.run(
        command("topology", "check", bare.file), capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert "data: files" in shown.stdout


@pytest.mark.parametrize("launcher", [["run"], ["chaos", "--faults", 0]], ids=["run", "chaos"])
def test_what_the_environment_says_of_one_peer_is_not_taken_for_all(tmp_path, monkeypatch, launcher):
    topology = files_topology(tmp_path, has_paths=True)
    monkeypatch.setenv("THANOS_PEER_DATA", str(tmp_path / "gone.csv"))
    monkeypatch.setenv("THANOS_PEER_SECRET_KEY", str(tmp_path / "gone.secret"))
    monkeypatch.setenv("THANOS_PEER_STATUS", f"ipc://{tmp_path}/status")
    out = tmp_path / "out"
    done = subprocess.run(
        command(*launcher, topology.file, "--out", out),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert_same_bits(out, topology)


def test_a_peer_that_begins_anew_with_other_samples_is_refused_and_all_may_begin_anew_with_it(tmp_path):
    topology, out = files_topology(tmp_path, has_paths=True, method="gram"), tmp_path / "run"
    first, middle = start_peer(topology, 2, out), start_peer(topology, 1, out)
    with ended_afterwards(first, middle):
        wait_until(lambda: "in round 0 for peer 0" in said(out, 1), "a wait for peer 0 alone")
        assert "for peer 2" not in said(out, 1)
        first.kill()
        first.wait()
        lines = (tmp_path / "2.csv").read_text().splitlines()
        (tmp_path / "2.csv").write_text("\n".join(lines[:-3]) + "\n")
        again = start_peer(topology, 2, out, "--fresh")
        with ended_afterwards(again):
            assert again.wait(PATIENCE) == 8
        assert "peer 1 is in round 0 and has gone on with blocks of another state of this peer" in said(out, 2)
        assert "peer 2 has begun anew, or with other samples" in said(out, 1)
        others = start_peer(topology, 2, out, "--fresh", "--restart-tracking"), start_peer(topology, 0, out)
        with ended_afterwards(*others):
            assert [peer.wait(PATIENCE) for peer in (middle, *others)] == [0, 0, 0], said(out, 1)
    assert_same_bits(out, load(topology.file))
