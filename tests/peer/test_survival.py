import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from processes import (
    assert_same_bits,
    command,
    ended_afterwards,
    said,
    simulated,
    start_peer,
    wait_until,
    write_topology,
)

from thanos_peer.algorithm.stiefel import signed_permutation_distance
from thanos_peer.launch.ports import free_ports
from thanos_peer.problem import build
from thanos_peer.simulate import AgentNetwork
from thanos_peer.storage.checkpoint import CheckpointStore
from thanos_peer.storage.outcome import load_outcome
from thanos_peer.storage.peer_files import PeerFiles
from thanos_peer.topology import load

# Rounds: more than pass while a peer is held back.
LONG = 4000
# Seconds in which these rounds pass, however slow the machine is.
LATE = 300.0
STUCK_DISK = """
import os, time

flush = os.fsync


def flush_first_rounds_only(number):
    name = os.path.basename(os.readlink(f"/proc/self/fd/{number}"))
    if name.endswith(".ckpt.new") and not name.endswith(("-000000000000.ckpt.new", "-000000000001.ckpt.new")):
        time.sleep(3600)
    flush(number)


os.fsync = flush_first_rounds_only
"""


def checkpoints(out, agent):
    return sorted(out.with_name("run.state").glob(f"{agent}-*.ckpt"))


def round_of(path):
    return int(path.stem.split("-")[-1])


def have_saved_rounds(out, agents, epoch=""):
    """Whether neither checkpoint of some peers is that of round 0."""
    files = [checkpoints(out, agent) for agent in agents]
    return all(each and f"-{epoch}" in each[0].name and round_of(each[0]) > 0 for each in files)


def cannot_be_helped(out, topology, lost):
    """Whether all neighbors know that a peer will not ask for the first rounds again, or are done."""
    return all(knows_of_fallbacks(out, topology, j) for j in topology.graph.neighbors[lost])


def knows_of_fallbacks(out, topology, agent):
    with tempfile.TemporaryDirectory() as copy:
        for path in checkpoints(out, agent):
            # A later checkpoint may have taken its place.
            with contextlib.suppress(FileNotFoundError):
                shutil.copy(path, copy)
        with CheckpointStore(Path(copy), topology, agent, is_flushed=False) as store:
            memory = store.load()
    if memory is None:
        return PeerFiles(out, topology, agent).result.exists()
    return min(memory.fallbacks.values()) > 0


def hold_after_a_later_checkpoint(processes, held, out, agent):
    """Wait until a peer has saved a later round than 0, and leave another one stopped: so the run cannot end."""
    wait_until(lambda: "listening" in said(out, held), f"peer {held} is there")
    wait_slowly(
        processes[held],
        lambda: any(round_of(path) > 0 for path in checkpoints(out, agent)),
        f"peer {agent} saves",
    )


def wait_slowly(process, condition, what):
    """Wait with one peer held back, so that few rounds pass however fast the machine is; leaves it stopped."""

    def turn():
        process.send_signal(signal.SIGCONT)
        time.sleep(0.05)
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.4)
        return condition()

    wait_until(turn, what)


def stop_all(processes):
    for process in processes:
        process.terminate()
        process.send_signal(signal.SIGCONT)
    assert {process.wait(60) for process in processes} == {128 + signal.SIGTERM}


@contextlib.contextmanager
def running(topology, out, *options):
    """All peers of a topology, as a list in which they may be replaced."""
    processes = [start_peer(topology, agent, out, *options) for agent in range(topology.d)]
    try:
        yield processes
    finally:
        with ended_afterwards(*processes):
            pass


@pytest.mark.parametrize("survive", ["power", "kill"])
def test_a_killed_peer_goes_on_where_it_was_with_the_same_bits(tmp_path, survive):
    topology, out = write_topology(tmp_path / "net.toml", "ring", 4, max_rounds=LONG), tmp_path / "run"
    with running(topology, out, "--survive", survive) as processes:
        hold_after_a_later_checkpoint(processes, 0, out, 2)
        processes[2].kill()
        processes[2].wait()
        processes[0].send_signal(signal.SIGCONT)
        processes[2] = start_peer(topology, 2, out, "--survive", survive)
        assert [process.wait(LATE) for process in processes] == [0] * 4
    assert "going on from round " in said(out, 2)
    assert "peer 2 has started again" in said(out, 1)
    assert_same_bits(out, topology)
    assert checkpoints(out, 2) == []  # they are not needed any more


def test_a_peer_killed_before_it_has_saved_a_later_round_begins_again_and_catches_up(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "path", 3, max_rounds=2000), tmp_path / "run"
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "sitecustomize.py").write_text(STUCK_DISK, encoding="utf-8")
    found = os.pathsep.join([str(tmp_path / "disk"), os.environ.get("PYTHONPATH", "")])
    processes = [start_peer(topology, agent, out) for agent in (0, 2)]
    stuck = start_peer(topology, 1, out, "--keep-every", 1, env=os.environ | {"PYTHONPATH": found})
    with ended_afterwards(*processes, stuck):
        trajectory = PeerFiles(out, topology, 1).trajectory
        wait_until(lambda: trajectory.exists() and trajectory.stat().st_size > 2000, "some rounds have passed")
        stuck.kill()
        stuck.wait()
        again = start_peer(topology, 1, out)
        with ended_afterwards(again):
            assert [process.wait(LATE) for process in (*processes, again)] == [0] * 3
    assert "going on from round 1, saved in " in said(out, 1)
    assert_same_bits(out, topology)


def test_a_stopped_network_goes_on_when_all_are_started_again(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "ring", 4, max_rounds=LONG), tmp_path / "run"
    with running(topology, out) as processes:
        hold_after_a_later_checkpoint(processes, 3, out, 0)
        stop_all(processes)
    with running(topology, out) as processes:
        assert [process.wait(LATE) for process in processes] == [0] * 4
    assert_same_bits(out, topology)


@pytest.mark.parametrize("seed", [1, 2])
def test_after_a_power_cut_all_go_on_from_whatever_was_on_their_disks(tmp_path, seed):
    topology, out = write_topology(tmp_path / "net.toml", "star", 5, max_rounds=LONG), tmp_path / "run"
    rng = random.Random(seed)  # noqa: S311
    with running(topology, out) as processes:
        wait_until(lambda: "listening" in said(out, 4), "peer 4 is there")
        wait_slowly(
            processes[4], lambda: have_saved_rounds(out, range(5)), "all have saved two rounds but the first"
        )
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
    unlucky = rng.sample(range(5), 3)
    # The latest checkpoint of these peers had not reached the disk: it is lost, or torn.
    for agent in unlucky:
        earlier, latest = checkpoints(out, agent)[-2:]
        assert round_of(earlier) > 0
        latest.unlink() if rng.random() < 0.5 else latest.write_bytes(latest.read_bytes()[:100])
    with running(topology, out) as processes:
        assert [process.wait(LATE) for process in processes] == [0] * 5
    for agent in unlucky:
        assert re.search(r"going on from round [1-9]", said(out, agent))
    assert_same_bits(out, topology)


@pytest.mark.parametrize("victims", [(1,), (0, 1, 2)], ids=["one", "all"])
def test_killed_peers_go_on_with_blocks_in_files(tmp_path, victims):
    topology = write_topology(tmp_path / "net.toml", "path", 3, n=600, p=4, max_rounds=800)
    out, state = tmp_path / "run", tmp_path / "run.state"
    with running(topology, out) as processes:
        wait_until(lambda: "listening" in said(out, 0), "peer 0 is there")
        # Both checkpoints name files then, which the neighbors' fallbacks may be in.
        have_files = lambda: all(len(list(state.glob(f"{j}-*.said"))) >= 2 for j in range(3))  # noqa: E731
        wait_slowly(processes[0], have_files, "all have files with blocks")
        for j in victims:
            processes[j].kill()
            processes[j].wait()
        processes[0].send_signal(signal.SIGCONT)
        for j in victims:
            processes[j] = start_peer(topology, j, out)
        assert [process.wait(LATE) for process in processes] == [0] * 3
    for j in victims:
        assert re.search(r"going on from round [1-9]", said(out, j))
    assert_same_bits(out, topology)
    assert not list(state.glob("*.said"))


@pytest.fixture
def small_disk(disk_of):
    """A disk of a few megabytes."""
    return disk_of("8m")


def fill(disk):
    with contextlib.suppress(OSError), (disk / "filler").open("ab", buffering=0) as filler:
        for size in (4096, 512, 1):
            with contextlib.suppress(OSError):
                while filler.write(b"x" * size):
                    pass


def has_ended(process, harm, disk):
    """Whether a process has ended; until then its disk is harmed again: a checkpoint may have made room."""
    if process.poll() is None:
        harm(disk)
    return process.poll() is not None


def remount(disk, how):
    command = ["/usr/bin/mount", "-o", f"remount,{how}", disk]
    wait_until(lambda: subprocess.run(command, check=False).returncode == 0, "it is not written to", 30)


@pytest.mark.parametrize(
    ("harm", "mend", "complaint"),
    [
        (fill, lambda disk: (disk / "filler").unlink(), "No space left on device"),
        (lambda disk: remount(disk, "ro"), lambda disk: remount(disk, "rw"), "Read-only file system"),
    ],
    ids=["full", "read-only"],
)
def test_a_disk_that_fails_stops_one_peer_and_loses_nothing(tmp_path, small_disk, harm, mend, complaint):
    topology, out = write_topology(tmp_path / "net.toml", "ring", 4, max_rounds=LONG), tmp_path / "run"
    state = "--state", small_disk / "state"
    with running(topology, out) as processes:
        # The peer is killed as soon as it is there, as it is to use the other disk from the beginning.
        processes[1].kill()
        processes[1].wait()
        with contextlib.suppress(FileNotFoundError):
            for leftover in checkpoints(out, 1):
                leftover.unlink()
        processes[1] = start_peer(topology, 1, out, *state)
        wait_slowly(processes[3], lambda: len(list((small_disk / "state").glob("1-*.ckpt"))) == 2, "it saves")
        harm(small_disk)
        wait_slowly(processes[3], lambda: has_ended(processes[1], harm, small_disk), "it ends")
        processes[3].send_signal(signal.SIGCONT)
        assert processes[1].wait() == 8
        for neighbor in (0, 2):
            wait_until(lambda j=neighbor: "for peer 1 at" in said(out, j), "neighbors say for whom they wait")
        # Writes that could not be finished may have left some room.
        harm(small_disk)
        again = subprocess.run(
            command("start", "--id", 1, "--topology", topology.file, "--out", out, *state),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        # The peer ends as soon as it has to save again.
        assert again.returncode == 8
        assert f"cannot save the state to {small_disk}" in again.stderr
        mend(small_disk)
        processes[1] = start_peer(topology, 1, out, *state)
        assert [process.wait(LATE) for process in processes] == [0] * 4
    assert f"cannot save the state to {small_disk}" in said(out, 1)
    assert complaint in said(out, 1)
    assert "Traceback" not in said(out, 1) + again.stderr
    assert_same_bits(out, topology)


def test_a_second_peer_with_the_same_state_is_refused_and_the_run_goes_on(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "ring", 3, max_rounds=1500), tmp_path / "run"
    processes = [start_peer(topology, i, out) for i in (0, 1)]  # they wait for peer 2
    with ended_afterwards(*processes):
        wait_until(lambda: "listening" in said(out, 1), "peer 1 is there")
        double = subprocess.run(
            command("start", "--id", 1, "--topology", topology.file, "--out", out),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert double.returncode == 8
        assert f"peer 1 runs already with the state in {out}.state (process {processes[1].pid})" in double.stderr
        last = start_peer(topology, 2, out)
        with ended_afterwards(last):
            assert [process.wait(120) for process in (*processes, last)] == [0] * 3
    assert_same_bits(out, topology)


def elsewhere():
    return "--bind", f"tcp://127.0.0.1:{free_ports(1)[0]}"


@pytest.mark.parametrize("which_is_first", ["the real one", "the double"])
def test_a_second_peer_with_the_same_id_elsewhere_is_refused_and_named_and_does_not_disturb(
    tmp_path, which_is_first
):
    topology, out, other = write_topology(tmp_path / "net.toml", "ring", 3), tmp_path / "run", tmp_path / "double"
    doubles = []
    if which_is_first == "the double":
        doubles.append(start_peer(topology, 1, other, *elsewhere()))
        wait_until(lambda: "listening" in said(other, 1), "the double is there")
    processes = [start_peer(topology, agent, out) for agent in (0, 1)]  # they wait for peer 2
    with ended_afterwards(*processes, *doubles):
        wait_until(lambda: "listening" in said(out, 1), "the real one is there")
        double = doubles[0] if doubles else start_peer(topology, 1, other, *elsewhere())
        processes.append(double)
        with ended_afterwards(double):
            assert double.wait(60) == 5
        last = start_peer(topology, 2, out)
        with ended_afterwards(last):
            assert [process.wait(60) for process in (*processes[:2], last)] == [0] * 3
    assert f"another process listens at {topology.peers[1].address}" in said(other, 1)
    assert "another peer 1 runs somewhere else" in said(out, 1)
    assert "peer 1 left" not in said(out, 0)
    assert not PeerFiles(other, topology, 1).result.exists()
    assert_same_bits(out, topology)


def test_a_second_peer_does_not_take_a_local_socket_away_from_the_first(tmp_path):
    def use_local_sockets(raw):
        for peer in raw["peers"]:
            peer["address"] = f"ipc://{tmp_path}/{peer['id']}"

    topology = write_topology(tmp_path / "net.toml", "ring", 3, change=use_local_sockets)
    out, other = tmp_path / "run", tmp_path / "double"
    processes = [start_peer(topology, agent, out) for agent in (0, 1)]
    with ended_afterwards(*processes):
        wait_until(lambda: "listening" in said(out, 1), "the first is there")
        double = start_peer(topology, 1, other)
        with ended_afterwards(double):
            assert double.wait(60) == 3
        assert f"cannot listen on {topology.peers[1].address}: the address is in use" in said(other, 1)
        # The killed peer's socket file stays behind, and no process listens there.
        processes[1].kill()
        processes[1].wait()
        again, last = start_peer(topology, 1, out), start_peer(topology, 2, out)
        with ended_afterwards(again, last):
            assert [process.wait(60) for process in (processes[0], again, last)] == [0] * 3
    assert_same_bits(out, topology)


def test_after_a_lost_disk_the_network_can_restart_its_tracking_and_gets_there(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 4, max_rounds=6000)
    out, state = tmp_path / "run", tmp_path / "run.state"
    with running(topology, out) as processes:
        wait_slowly(processes[3], lambda: cannot_be_helped(out, topology, 1), "what it would need is gone")
        processes[1].kill()
        processes[1].wait()
        for lost in state.glob("1-*.ckpt"):
            lost.unlink()
        processes[3].send_signal(signal.SIGCONT)
        processes[1] = start_peer(topology, 1, out)
        assert processes[1].wait(60) == 8
        assert "--restart-tracking" in said(out, 1)
        wait_until(lambda: "peer 1 has begun anew, or with other samples" in said(out, 0), "its neighbor says so")
        for agent in (0, 2, 3):  # also those further away
            wait_until(lambda agent=agent: "(its state is lost)" in said(out, agent), f"peer {agent} says so")
        assert "it says that peer 1 left in round 0 (its state is lost)" in said(out, 3)
        processes[1] = start_peer(topology, 1, out, "--restart-tracking")
        assert [process.wait(LATE) for process in processes] == [0] * 4
    outcome, network = load_outcome(out, topology), simulated(topology)
    for agent in range(4):
        facts = json.loads(PeerFiles(out, topology, agent).facts.read_text(encoding="utf-8"))
        assert (facts["epoch"], facts["round"], facts["ending"]) == (1, 6000, "max_rounds")
        assert "the tracking starts again from the current X, epoch 1" in said(out, agent)
    distance = signed_permutation_distance(outcome.X.mean(axis=0), network.X.mean(axis=0))
    assert np.abs(outcome.X - outcome.X.mean(axis=0)).max() < 1e-5
    # Both runs are still moving slowly, as sigma falls.
    assert distance < 1e-3


def test_results_that_cannot_be_written_are_written_when_the_disk_is_mended(tmp_path, small_disk):
    topology, out = write_topology(tmp_path / "net.toml", "path", 2, max_rounds=1500), tmp_path / "run"
    there, state = small_disk / "run", tmp_path / "state1"
    first = start_peer(topology, 0, out)
    with (tmp_path / "said").open("wb") as words:
        options = ["start", "--id", 1, "--topology", topology.file, "--out", there, "--state", state]
        second = subprocess.Popen(command(*options), stdout=words, stderr=words)
        with ended_afterwards(first, second):
            wait_until(lambda: list(state.glob("*.ckpt")), "it is there")
            fill(small_disk)
            assert second.wait(60) == 8
            wait_until(lambda: "staying, since" in said(out, 0), "the first is done, and stays for the second")
            (small_disk / "filler").unlink()
            again = subprocess.run(command(*options), capture_output=True, timeout=60, check=False)
            assert again.returncode == 0
            assert first.wait(60) == 0
    complaint = (tmp_path / "said").read_text(encoding="utf-8")
    assert f"cannot write the results to {there}" in complaint
    assert "Traceback" not in complaint
    for part in PeerFiles(there, topology, 1).result.parent.iterdir():
        shutil.copy(part, out / "peers")
    assert_same_bits(out, topology)


def test_the_same_command_after_the_end_says_that_it_is_finished_and_fresh_removes_nothing_before_it_may(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "path", 2, max_rounds=30), tmp_path / "run"
    with running(topology, out) as processes:
        assert [process.wait(60) for process in processes] == [0, 0]
    before = PeerFiles(out, topology, 1).result.read_bytes()
    again = start_peer(topology, 1, out)
    assert again.wait(60) == 0
    assert "finished already, in round 30" in said(out, 1)
    assert "to run again, take --fresh and another --out" in said(out, 1)
    fresh = start_peer(topology, 1, out, "--fresh")
    assert fresh.wait(60) == 3
    assert PeerFiles(out, topology, 1).result.read_bytes() == before


def test_a_fresh_start_after_a_stop_begins_anew(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "path", 2, max_rounds=LONG), tmp_path / "run"
    with running(topology, out) as processes:
        hold_after_a_later_checkpoint(processes, 1, out, 0)
        stop_all(processes)
    with running(topology, out, "--fresh") as processes:
        assert [process.wait(LATE) for process in processes] == [0, 0]
    assert "going on from round" not in said(out, 0)
    assert re.search(r"--fresh removes \d checkpoints of this peer, the latest .*/run\.state/", said(out, 0))
    assert_same_bits(out, topology)


def lose_the_disk_of(agent, processes, topology, out):
    processes[agent].kill()
    processes[agent].wait()
    files = PeerFiles(out, topology, agent)
    for lost in (
        *checkpoints(out, agent),
        files.result,
        files.facts,
        files.table,
    ):  # a result may be there already
        lost.unlink(missing_ok=True)
    processes[agent] = start_peer(topology, agent, out, "--restart-tracking")


def test_disks_may_be_lost_again_and_again(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "path", 3, max_rounds=LONG), tmp_path / "run"
    with running(topology, out) as processes:
        for epoch, lost, condition in (
            (1, 1, lambda: cannot_be_helped(out, topology, 1)),
            # Peer 1 has used what peer 2 said by then.
            (2, 2, lambda: have_saved_rounds(out, [0], epoch="e1")),
            (3, 2, lambda: have_saved_rounds(out, range(3), epoch="e2")),
        ):
            wait_slowly(processes[0], condition, "what it would need is gone")
            lose_the_disk_of(lost, processes, topology, out)
            processes[0].send_signal(signal.SIGCONT)
            begun = f"epoch {epoch}: "
            wait_until(lambda begun=begun: all(begun in said(out, i) for i in range(3)), begun)
        assert [process.wait(LATE) for process in processes] == [0] * 3
    for agent in range(3):
        facts = json.loads(PeerFiles(out, topology, agent).facts.read_text(encoding="utf-8"))
        assert (facts["epoch"], facts["round"]) == (3, LONG)
    outcome = load_outcome(out, topology)
    assert np.abs(outcome.X - outcome.X.mean(axis=0)).max() < 1e-4


@pytest.mark.parametrize(("hub", "leaf"), [(59, 59), (59, 60), (60, 60)], ids=["none", "leaves", "all"])
def test_a_disk_lost_when_others_are_done_already_takes_all_of_them_into_a_new_epoch_or_none(tmp_path, hub, leaf):
    topology, out = write_topology(tmp_path / "net.toml", "star", 4, max_rounds=60), tmp_path / "run"
    network, memories = AgentNetwork(build(topology)), {}
    while not network.is_done:
        network.advance()
        memories[network.k] = [agent.memory() for agent in network.agents]
    # These are all but peer 3, whose disk is lost.
    for agent, k in ((0, hub), (1, leaf), (2, leaf)):
        memory = memories[k][agent]
        with CheckpointStore(tmp_path / "run.state", topology, agent, is_flushed=False) as store:
            store.save(replace(memory, fallbacks=dict.fromkeys(memory.fallbacks, k - 1)))
    with running(topology, out, "--restart-tracking") as processes:
        assert processes[3].wait(120) == (8 if hub == 60 else 0)
        assert [process.wait(60) for process in processes[:3]] == [0] * 3
    # The hub was done by then, and does not wait for what is lost.
    if hub == 60:
        assert "the run is over at all of its neighbors" in said(out, 3)
    for agent in range(3 if hub == 60 else 4):
        facts = json.loads(PeerFiles(out, topology, agent).facts.read_text(encoding="utf-8"))
        assert (facts["epoch"], facts["round"], facts["is_done"]) == (int(hub < 60), 60, True)


def test_a_double_with_an_old_state_of_a_later_epoch_does_not_begin_one(tmp_path):
    topology, out, other = write_topology(tmp_path / "net.toml", "ring", 3), tmp_path / "run", tmp_path / "double"
    instance = build(topology)
    agent = AgentNetwork(instance).agents[1]
    agent.restart_tracking(1)
    with CheckpointStore(tmp_path / "double.state", topology, 1, is_flushed=False) as store:
        store.save(agent.memory())
    processes = [start_peer(topology, i, out) for i in (0, 1)]  # they wait for peer 2
    with ended_afterwards(*processes):
        wait_until(lambda: "listening" in said(out, 1), "the real one is there")
        double = start_peer(topology, 1, other, *elsewhere())
        with ended_afterwards(double):
            assert double.wait(60) == 5
        last = start_peer(topology, 2, out)
        with ended_afterwards(last):
            assert [process.wait(60) for process in (*processes, last)] == [0] * 3
    assert "epoch 1" not in said(out, 0)
    assert_same_bits(out, topology)


def test_a_mended_handshake_leaves_nothing_behind_that_would_be_refused(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "path", 2), tmp_path / "run"
    text = topology.file.read_text(encoding="utf-8")
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(text.replace("max_rounds = 60", "max_rounds = 61"), encoding="utf-8")
    first, second = start_peer(topology, 0, out), start_peer(load(wrong), 1, out)
    with ended_afterwards(first, second):
        assert [first.wait(60), second.wait(60)] == [5, 5]
    assert "--fresh" not in said(out, 0)  # which it was not started with
    with running(topology, out) as processes:
        assert [process.wait(60) for process in processes] == [0, 0]
    assert_same_bits(out, topology)


def test_a_peer_that_ends_in_round_0_after_a_neighbor_has_used_its_block_goes_on(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "path", 3), tmp_path / "run"
    text = topology.file.read_text(encoding="utf-8")
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(text.replace("max_rounds = 60", "max_rounds = 61"), encoding="utf-8")
    processes = [start_peer(topology, i, out) for i in (0, 1)]
    with ended_afterwards(*processes):
        wait_until(lambda: "in round 1 for peer 1" in said(out, 0) or None, "peer 0 has used a block")
        other = start_peer(load(wrong), 2, out)
        with ended_afterwards(other):
            assert [processes[1].wait(60), other.wait(60)] == [5, 5]
        again = [start_peer(topology, i, out) for i in (1, 2)]
        with ended_afterwards(*again):
            assert [process.wait(60) for process in (processes[0], *again)] == [0, 0, 0]
    assert "going on from round 0" in said(out, 1)
    assert_same_bits(out, topology)


def test_local_sockets_with_any_letters_in_their_paths_can_be_waited_for(tmp_path):
    def use_local_sockets(raw):
        (tmp_path / "jos\u00e9").mkdir()
        for peer in raw["peers"]:
            peer["address"] = f"ipc://{tmp_path}/jos\u00e9/{peer['id']}"

    topology, out = write_topology(tmp_path / "n.toml", "path", 3, change=use_local_sockets), tmp_path / "run"
    processes = [start_peer(topology, agent, out) for agent in (0, 1)]
    with ended_afterwards(*processes):
        wait_until(lambda: "it says that peer 2 at ipc://" in said(out, 0), "peer 0 knows of peer 2")
        processes.append(start_peer(topology, 2, out))
        with ended_afterwards(*processes):
            assert [process.wait(60) for process in processes] == [0] * 3
    assert "not printable" not in said(out, 0) + said(out, 1)
    assert_same_bits(out, topology)


def test_a_peer_killed_after_it_was_done_does_not_wait_for_those_that_have_left(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "path", 2, max_rounds=200), tmp_path / "run"
    with running(topology, out) as processes:
        assert [process.wait(60) for process in processes] == [0, 0]
        memory = replace(simulated(topology).agents[1].memory(), done=frozenset({0}))
        with CheckpointStore(tmp_path / "run.state", topology, 1, is_flushed=False) as store:
            # The state of a peer that was killed before it heard that all are done.
            store.save(memory)
        processes[1] = start_peer(topology, 1, out)
        assert processes[1].wait(60) == 0
    assert "going on from round 200" in said(out, 1)
    assert_same_bits(out, topology)


def test_one_that_was_done_goes_with_the_others_into_their_epoch_and_writes_no_result_before_its_end(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "path", 2, max_rounds=300), tmp_path / "run"
    fresh = AgentNetwork(build(topology)).agents[0]
    fresh.restart_tracking(1)
    for agent, memory in enumerate((fresh.memory(), simulated(topology).agents[1].memory())):
        with CheckpointStore(tmp_path / "run.state", topology, agent, is_flushed=False) as store:
            store.save(memory)
    with running(topology, out) as processes:
        assert [process.wait(60) for process in processes] == [0, 0]
    for agent in range(2):
        facts = json.loads(PeerFiles(out, topology, agent).facts.read_text(encoding="utf-8"))
        assert (facts["epoch"], facts["round"], facts["is_done"]) == (1, 300, True)
    results = [line for line in said(out, 1).splitlines() if "results of round" in line]
    assert all("results of round 300" in line for line in results)


def test_state_lost_when_only_some_are_done_has_those_wait_and_takes_them_into_the_new_epoch(tmp_path):
    topology, out = write_topology(tmp_path / "net.toml", "path", 3, max_rounds=1200), tmp_path / "run"
    network = AgentNetwork(build(topology))
    while network.k < 1199:
        network.advance()
    late = network.agents[2].memory()
    network.advance()
    for agent, memory in ((0, network.agents[0].memory()), (2, late)):
        with CheckpointStore(tmp_path / "run.state", topology, agent, is_flushed=False) as store:
            store.save(replace(memory, fallbacks=dict.fromkeys(memory.fallbacks, memory.k - 1)))
    with running(topology, out) as processes:
        assert processes[1].wait(60) == 8
        wait_until(lambda: "for peers 1 (left: its state is lost)" in said(out, 0), "peer 0 stays for it")
        processes[1] = start_peer(topology, 1, out, "--restart-tracking")
        assert [process.wait(120) for process in processes] == [0] * 3
    for agent in range(3):
        facts = json.loads(PeerFiles(out, topology, agent).facts.read_text(encoding="utf-8"))
        assert (facts["epoch"], facts["round"]) == (1, 1200)
