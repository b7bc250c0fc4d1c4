"""Phases over real processes: killed, stopped and started again in each of them, with the same bits."""

import json
import re
import signal

import numpy as np
import pytest
import tomlkit
from cli.commands import call
from runtime.processes import PATIENCE, assert_same_bits, ended_afterwards, own_name, said, start_peer, wait_until
from uneven import random_samples, raw_with_parts, split

from thanos_peer import load_result
from thanos_peer.algorithm.averaging import rounds_needed
from thanos_peer.algorithm.stiefel import random_point
from thanos_peer.results import PeerFiles, load_outcome
from thanos_peer.runtime.status import ask, local_address
from thanos_peer.runtime.trajectory import TrajectoryReader
from thanos_peer.topology import load

N, D = 5, 4
ATTEMPTS = 8
PHASES = ("mean", "spread", "size", "subspace", "rotation", "thanos", "consensus", "verdict")


def files_topology(directory, d=D, *, change=None, **options):
    """A path of peers that prepare their data and find their start, with a few hundred rounds in all."""
    parts = split(random_samples(40 * d, N), d)
    start = {"kind": "destiny", "seed": 1, "max_rounds": 150}
    raw = raw_with_parts(
        directory, parts, "path", names="abcde", **({"start": start, "max_rounds": 150, "mu": 0.02} | options)
    )
    raw["name"] = own_name("phases")
    if change is not None:
        change(raw)
    (directory / "net.toml").write_text(tomlkit.dumps(raw), encoding="utf-8")
    return load(directory / "net.toml")


def start_all(topology, out, *options):
    return [start_peer(topology, i, out, *options) for i in range(topology.d)]


def hold_in(phase, out, processes, agent):
    """Stop the neighbor of an agent as soon as the agent is in a phase: the network can go no further then."""
    wait_until(lambda: f"phase {phase} begins" in said(out, agent), f"peer {agent} is in phase {phase}")
    processes[agent - 1].send_signal(signal.SIGSTOP)


def held_in(topology, agent):
    """Phase and round of an agent that cannot go on, since its neighbor is stopped, once that is on its disk.

    No phase if it was done before, or does not answer any more.
    """
    seen = []

    def rests():
        (answer,) = ask([local_address(topology, agent)], timeout=PATIENCE)
        if isinstance(answer, str) or answer.is_done:
            seen.append((None, None))
            return True
        seen.append((answer.phase, answer.round))
        return len(seen) > 3 and len(set(seen[-4:])) == 1 and answer.saved_round == answer.round

    wait_until(rests, f"peer {agent} waits for its neighbor, and has saved its round")
    return seen[-1]


def after(phase):
    return list(PHASES[PHASES.index(phase) + 1 :])


def end_all(processes, out):
    for i, process in enumerate(processes):
        assert process.wait(PATIENCE) == 0, said(out, i)


@pytest.mark.parametrize("phase", PHASES)
def test_a_peer_killed_in_any_phase_and_started_again_ends_with_the_same_bits(tmp_path, phase):
    topology = files_topology(tmp_path)
    for attempt in range(ATTEMPTS):  # a phase may be over before its neighbor is stopped
        out = tmp_path / f"run{attempt}"
        processes = start_all(topology, out)
        with ended_afterwards(*processes):
            hold_in(phase, out, processes, 2)
            held, k = held_in(topology, 2)
            if held != phase:
                continue
            processes[2].kill()
            processes[2].wait()
            words = said(out, 2)
            processes[2] = start_peer(topology, 2, out)
            with ended_afterwards(processes[2]):
                processes[1].send_signal(signal.SIGCONT)
                end_all(processes, out)
            break
    else:
        pytest.fail(f"phase {phase} was over {ATTEMPTS} times before peer 2 could be killed in it")
    again = said(out, 2).removeprefix(words)
    assert f"going on from round {k}, saved in " in again
    begun = re.findall(r"phase (\w+) begins", again)
    assert [name for name in begun if name != phase] == after(phase)  # it says so in round 0 of the phase only
    for i in range(D):
        assert "Traceback" not in said(out, i)
        assert "phase verdict begins" in said(out, i)
    assert_same_bits(out, topology)


def test_after_a_power_cut_in_the_middle_of_preparing_all_go_on_with_the_same_bits(tmp_path):
    topology, out = files_topology(tmp_path), tmp_path / "run"
    processes = start_all(topology, out)
    with ended_afterwards(*processes):
        wait_until(lambda: "phase subspace begins" in said(out, 0), "it is on its way")
        for process in processes:
            process.kill()
            process.wait()
    processes = start_all(topology, out)
    with ended_afterwards(*processes):
        end_all(processes, out)
    assert_same_bits(out, topology)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_peer_stopped_before_there_is_a_result_says_so_and_goes_on_later(tmp_path, number):
    topology = files_topology(tmp_path)
    for attempt in range(ATTEMPTS):  # the phases before the result may be over before its neighbor is stopped
        out = tmp_path / f"run{attempt}"
        processes = start_all(topology, out)
        with ended_afterwards(*processes):
            hold_in("spread", out, processes, 2)
            held, _ = held_in(topology, 2)
            if held not in PHASES[1:5]:
                continue
            processes[2].send_signal(number)
            assert processes[2].wait(PATIENCE) == 128 + number
            words = said(out, 2)
            assert f"stopped in phase {held}: there is no result yet" in words
            assert "Traceback" not in words
            assert not PeerFiles(out, topology, 2).result.exists()
            processes[2] = start_peer(topology, 2, out)
            with ended_afterwards(processes[2]):
                processes[1].send_signal(signal.SIGCONT)
                end_all(processes, out)
            break
    else:
        pytest.fail(f"there was a result {ATTEMPTS} times before peer 2 could be stopped")
    assert "going on from round " in said(out, 2)
    assert_same_bits(out, topology)


def test_the_result_says_what_the_network_has_found_and_keeps_every_round_once(tmp_path):
    start = {"kind": "destiny", "seed": 1, "max_rounds": 5}  # cut short: what is divided by is not the 2-norm
    topology, out = files_topology(tmp_path, max_rounds=40, start=start), tmp_path / "run"
    call("run", topology.file, "--out", out, "--every", 10, "--quiet", "--give-up-after", 60, "--reference")
    assert_same_bits(out, topology)
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    rounds = summary["rounds_by_phase"]
    averaging = rounds_needed(topology.graph.lambda_, D)
    assert rounds == dict.fromkeys(PHASES, averaging) | {"subspace": rounds["subspace"], "thanos": 40}
    assert rounds["subspace"] == 5
    assert summary["phases_cut_short"] == ["subspace"]
    assert "subspace was cut short by its max_rounds" in (out / "summary.txt").read_text("utf-8")
    assert summary["messages"] == sum(rounds.values()) * topology.messages_per_round
    assert summary["payload_bytes"] == summary["messages"] * topology.payload_per_message
    assert f"rounds by phase     mean {averaging}, spread {averaging}, " in (out / "summary.txt").read_text(
        "utf-8"
    )
    call("simulate", topology.file, "--out", tmp_path / "one", "--quiet", "--every", 10, "--reference")
    one = json.loads((tmp_path / "one" / "summary.json").read_text(encoding="utf-8"))
    assert one == summary | {"seconds": one["seconds"]}
    histories = [(each / "history.csv").read_bytes() for each in (out, tmp_path / "one")]
    assert histories[0] == histories[1]
    assert f"{summary['objective']!r}," in histories[0].decode().splitlines()[-1]
    compared = call("verify", topology.file, "--results", out).output
    assert f"objective           {summary['objective']:.9g}\n" in compared
    for i in range(D):
        simulated = json.loads(PeerFiles(tmp_path / "one", topology, i).facts.read_text(encoding="utf-8"))
        assert simulated["messages_sent"] == sum(rounds.values()) * topology.graph.degrees[i]
        files = PeerFiles(out, topology, i)
        facts = json.loads(files.facts.read_text(encoding="utf-8"))
        assert (facts["round"], facts["phase"], facts["is_done"]) == (40, "verdict", True)
        assert facts["ending"] == "max_rounds"
        assert facts["rounds_by_phase"] == rounds
        assert files.finished_round(topology.digest) == 40
        assert files.finished_after == sum(rounds.values())  # what its neighbors have counted
        assert facts["phases_cut_short"] == simulated["phases_cut_short"] == ["subspace"]
        words = files.log.read_text(encoding="utf-8")
        assert words.count("phase subspace ended at its maximum of 5 rounds, not by its tolerance") == 1
        assert facts["messages_sent"] >= simulated["messages_sent"]  # greetings too
        for name, known in ("objective", "objective"), ("explained_variance", "variance_explained"):
            assert facts[name] == pytest.approx(summary[known], rel=1e-9)
        assert facts["sparse_explained_variance"] == pytest.approx(summary["sparse_variance_explained"], rel=1e-9)
        assert facts["epsilon"] == pytest.approx(summary["epsilon"], rel=1e-9)
        assert facts["samples"] == simulated["samples"] == 40 * D
        assert facts["overall"] == pytest.approx(simulated["overall"], rel=1e-12)
        for where in (out, tmp_path / "one"):
            common = load_result(where, peer=i).common_components_.T
            assert common == pytest.approx(load_outcome(out, topology).X.mean(axis=0), abs=1e-12)
        records = TrajectoryReader(files.trajectory, n=N, p=2).read()
        assert records["k"].tolist() == [0, 10, 20, 30, 40]
        assert records["X"][-1].tobytes() == load_outcome(out, topology).X[i].tobytes()


def test_a_peer_alone_prepares_its_data_and_verifies(tmp_path):
    topology = files_topology(tmp_path, 1)
    done = call("verify", topology.file, "--out", tmp_path / "run", "--quiet")
    assert "same bits: X and D of 1 peers" in done.output


def test_float32_on_the_way_has_the_bits_of_one_process_too(tmp_path):
    def round_off(raw):
        raw["algorithm"]["exchange"] = "float32"
        raw["problem"]["data"] |= {"center": False, "scale": False}

    topology = files_topology(tmp_path, 3, change=round_off)
    assert "same bits" in call("verify", topology.file, "--out", tmp_path / "run", "--quiet").output


def test_a_start_in_a_file_goes_along_with_the_run_and_its_report(tmp_path):
    np.save(tmp_path / "x0.npy", random_point(N, 2, np.random.default_rng(1)))
    topology = files_topology(tmp_path, 2, start={"kind": "file", "path": "x0.npy"}, max_rounds=20)
    for command, out in (("verify", tmp_path / "deep" / "net"), ("simulate", tmp_path / "deep" / "one")):
        call(command, topology.file, "--out", out, "--quiet")
        assert load(out / "topology.toml").digest == topology.digest
        call("report", out)
        assert "beta = auto" in (out / "report" / "report.html").read_text(encoding="utf-8")
    assert "beta >" in call("topology", "check", topology.file).output
    assert_same_bits(tmp_path / "deep" / "net", topology)


def test_peers_with_different_starts_refuse_each_other_by_their_digests(tmp_path):
    topologies = []
    for i in range(2):
        (tmp_path / str(i)).mkdir()
        np.save(tmp_path / str(i) / "x0.npy", random_point(N, 2, np.random.default_rng(i)))
        start = {"kind": "file", "path": "x0.npy"}
        raw = raw_with_parts(tmp_path / str(i), split(random_samples(40, N), 2), "path", start=start)
        if topologies:
            raw["peers"] = [peer | {"address": topologies[0].peers[peer["id"]].address} for peer in raw["peers"]]
        (tmp_path / str(i) / "net.toml").write_text(tomlkit.dumps(raw), encoding="utf-8")
        topologies.append(load(tmp_path / str(i) / "net.toml"))
    assert topologies[0].digest != topologies[1].digest
    out = tmp_path / "run"
    processes = [start_peer(topologies[i], i, out) for i in range(2)]
    with ended_afterwards(*processes):
        assert [process.wait(PATIENCE) for process in processes] == [5, 5]
    for i in range(2):
        here, there = topologies[i].digest, topologies[1 - i].digest
        assert f"they differ in topology digest: {here} here, {there} there" in said(out, i)


@pytest.mark.parametrize("what", ["files", "destiny", "auto"])
def test_stacked_agents_are_refused_where_phases_come_first(tmp_path, what):
    def change(raw):
        if what == "destiny":
            raw["problem"]["data"] = {"kind": "files"}
            raw["algorithm"] |= {"beta": 1.0, "step": {"rule": "bb"}}
        elif what == "auto":
            raw["problem"]["data"] = {"kind": "files"}
            raw["algorithm"]["start"] = {"kind": "random", "seed": 1}

    topology = files_topology(tmp_path, 2, change=change)
    done = call("simulate", topology.file, "--engine", "stacked", "--out", tmp_path / "run", code=3)
    assert "needs phases that --engine stacked does not know; leave it out" in done.output
    assert not (tmp_path / "run").exists()
