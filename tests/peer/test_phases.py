"""Phases over real processes: killed, stopped and started again in each of them, with the same bits."""

import contextlib
import json
import os
import re
import signal
from itertools import cycle

import numpy as np
import pytest
import tomlkit
from cli.commands import call
from processes import (
    PATIENCE,
    assert_same_bits,
    ended_afterwards,
    environment_with,
    exact,
    give_keys,
    own_name,
    said,
    simulated,
    start_peer,
    wait_until,
)
from uneven import random_samples, raw_with_parts, split

from thanos_peer import load_result
from thanos_peer.algorithm.methods import METHODS, MIXING
from thanos_peer.algorithm.stiefel import random_point
from thanos_peer.peer.status import ask, local_address
from thanos_peer.preparation import outline
from thanos_peer.problem import build
from thanos_peer.simulate import AgentNetwork
from thanos_peer.storage.checkpoint import CheckpointStore
from thanos_peer.storage.outcome import load_outcome
from thanos_peer.storage.peer_files import PeerFiles
from thanos_peer.storage.trajectory import TrajectoryReader
from thanos_peer.topology import load

N, D = 5, 4
PHASES = ("mean", "spread", "size", "subspace", "rotation", "thanos", "consensus", "verdict")
# One round of each phase: on the way up the tree, at the root, or on the way down.
STOPS = {
    "thanos": "mean:1 spread:0 size:2 subspace:7 rotation:3 thanos:5 consensus:2 verdict:1",
    "proximal": "mean:3 spread:2 size:1 leading:6 proximal:9 verdict:2",
    "gram": "gram:2 verdict:3",  # after those of all
    "proximal-tracking": "agreement:1 proximal-tracking:6 consensus:2 verdict:1",
}
OTHERS = [method for method in METHODS if method not in STOPS]
for each in OTHERS:
    before = "agreement:1 " if MIXING[each].preparation is not None else ""
    STOPS[each] = f"{before}{each}:13 verdict:1"
HOLDS = """
import os, pathlib

from thanos_peer.protocol.exchange import Exchange

rounds, go = [*map(int, os.environ["ROUNDS"].split())], pathlib.Path(os.environ["GO"])
is_complete = Exchange.is_complete


def is_complete_here(self):
    following = self.k + 1
    is_held = following in rounds and not (go / str(following)).exists()
    return not is_held and is_complete(self)


Exchange.is_complete = is_complete_here
"""


def files_topology(directory, d=D, *, method="thanos", change=None, **options):
    """A path of peers that prepare their data and find their start, with a few hundred rounds in all."""
    parts = split(random_samples(40 * d, N), d)
    start = {"kind": "destiny", "seed": 1, "max_rounds": 150}
    raw = raw_with_parts(
        directory, parts, "path", names="abcde", **({"start": start, "max_rounds": 150, "mu": 0.02} | options)
    )
    raw["name"] = own_name("phases")
    if method in OTHERS:
        exact(method, max_rounds=30, tolerance=0.0, start={"kind": "random", "seed": 1})(raw)
        raw["problem"] |= {"regularizer": "none", "mu": 0.0} if METHODS[method].is_for_smooth else {}
    elif method != "thanos":
        exact(method)(raw)
    if change is not None:
        change(raw)
    (directory / "net.toml").write_text(tomlkit.dumps(raw), encoding="utf-8")
    return load(directory / "net.toml")


def start_all(topology, out, *options):
    return [start_peer(topology, i, out, *options) for i in range(topology.d)]


class Holder:
    """A peer that does not step into some places before it is let go: its neighbors come there, and no further."""

    def __init__(self, topology, out, agent, places):
        rounds, first = simulated(topology).rounds_by_phase, {}
        for name in rounds:
            first[name] = sum(rounds[each] for each in first)
        self._topology, self._go, self.agent = topology, out.with_name("go"), agent
        self._rounds = {place: first[place.split(":")[0]] + int(place.split(":")[1]) for place in places}
        self._go.mkdir()
        variables = {"ROUNDS": " ".join(map(str, self._rounds.values())), "GO": str(self._go)}
        environment = environment_with(HOLDS, out.with_name("holds")) | variables
        self.processes = [
            start_peer(topology, i, out, **({"env": environment} if i == agent else {})) for i in range(topology.d)
        ]

    def wait_for(self, neighbor, place, *, is_saved=False):
        """The round of a neighbor once it is in a place, and maybe has saved that."""

        def rests():
            (answer,) = ask([local_address(self._topology, neighbor)], timeout=PATIENCE)
            is_there = not isinstance(answer, str) and f"{answer.phase}:{answer.phase_round}" == place
            return answer if is_there and (answer.saved_round == answer.round or not is_saved) else None

        k = wait_until(rests, f"peer {neighbor} is in {place}").round
        assert k == self._rounds[place]
        return k

    def let_go(self, place):
        (self._go / str(self._rounds[place])).touch()


def end_all(processes, out):
    for i, process in enumerate(processes):
        assert process.wait(PATIENCE) == 0, said(out, i)


def kill_and_go_on(topology, out, holder, victims, places):
    """In each place one of the victims is killed and started again; in the end the bits are the same."""
    holding = Holder(topology, out, holder, places)
    processes = holding.processes
    with contextlib.ExitStack() as stack:
        stack.enter_context(ended_afterwards(*processes))
        for number, (place, victim) in enumerate(zip(places, cycle(victims), strict=False)):
            # If its round is not saved, it goes on from an earlier one, maybe of an earlier phase.
            is_saved = number % 3 < 2
            k = holding.wait_for(victim, place, is_saved=is_saved)
            processes[victim].kill()
            processes[victim].wait()
            words = said(out, victim)
            holding.let_go(place)
            processes[victim] = start_peer(topology, victim, out)
            stack.enter_context(ended_afterwards(processes[victim]))

            def goes_on(victim=victim, words=words):
                return re.search(r"going on from round (\d+)", said(out, victim).removeprefix(words))

            at = int(wait_until(goes_on, f"peer {victim} goes on, {place}")[1])
            assert at == k if is_saved else at <= k
        end_all(processes, out)
    for i in range(topology.d):
        assert "Traceback" not in said(out, i)
        assert "phase verdict begins" in said(out, i)
    assert_same_bits(out, topology)


@pytest.mark.parametrize(
    ("method", "holder", "victims", "most"),
    [
        *(("thanos", 2, (1, 3), 8), ("proximal", 2, (1,), 6), ("proximal", 1, (0, 2), 3), ("gram", 2, (1, 3), 2)),
        ("proximal-tracking", 2, (1, 3), 4),
        *((method, 2, (1,), 3) for method in OTHERS),
    ],
    ids=["thanos", "proximal: the root", "proximal: others", "gram", "proximal-tracking", *OTHERS],
)
def test_peers_killed_in_every_phase_and_started_again_end_with_the_same_bits(
    tmp_path, method, holder, victims, most
):
    topology = files_topology(tmp_path, 3 if method in OTHERS else D, method=method)
    places = STOPS[method].split()[-most:]
    assert topology.graph.tree.root == 1
    phases = [
        phase.name for phase in outline(topology).phases if phase.name != "consensus" or method not in OTHERS
    ]
    assert [place.split(":")[0] for place in places] == phases[-len(places) :]
    kill_and_go_on(topology, tmp_path / "run", holder, victims, places)


@pytest.mark.parametrize(
    ("method", "victims", "places"),
    [
        ("gram", (1, 3), "mean:0 spread:2 size:3 gram:2 verdict:3"),
        ("proximal", (1,), "mean:0 leading:6 proximal:9"),
    ],
)
def test_peers_that_mask_and_are_killed_mask_the_same_numbers_again(tmp_path, method, victims, places):
    # In mean:0 the neighbor that holds the others up has not taken the step in which it agrees on masks.
    topology = give_keys(files_topology(tmp_path, method=method))
    assert [phase.name for phase in outline(topology).phases][:2] == ["masks", "mean"]
    kill_and_go_on(topology, tmp_path / "run", 2, victims, places.split())


def later_starts(topology, root):
    """The rounds of phase proximal in which the root begins with the second start, the third, ..."""
    network, rounds, number = AgentNetwork(build(topology)), [], 0
    while not network.is_done:
        network.advance()
        state = network.agents[root].runner.state
        if network.is_in_main_phase and state.root.number > number:
            number = state.root.number
            rounds.append(network.phase[1])
    return rounds


def test_peers_killed_in_a_later_start_go_on_and_all_keep_the_same_best_answer(tmp_path):
    def search(raw):
        raw["algorithm"] |= {"restarts": 3, "tolerance": 1e-6}
        raw["problem"]["mu"] = 0.3

    topology = files_topology(tmp_path, method="proximal", change=search)
    second, third = later_starts(topology, topology.graph.tree.root)
    kill_and_go_on(topology, tmp_path / "run", 2, (1,), [f"proximal:{second + 2}", f"proximal:{third + 5}"])


def second_pass(topology):
    """The round of phase proximal in which all but one value of mu are searched once more."""
    network, root = AgentNetwork(build(topology)), topology.graph.tree.root
    while network.is_preparing or network.agents[root].runner.state.root.first == 0:
        network.advance()
    return network.phase[1]


def path_topology(directory, method):
    def search(raw):
        raw["algorithm"]["tolerance"] = 1e-5
        raw["problem"] |= {"mu": {"path": 3}, "choose": {"variance": 0.5}}

    return files_topology(directory, method=method, change=search)


@pytest.mark.parametrize(("holder", "victims"), [(2, (1,)), (1, (0, 2))], ids=["the root", "others"])
def test_peers_killed_anywhere_on_a_path_go_on_and_all_have_the_same_bits_and_table(tmp_path, holder, victims):
    topology, out = path_topology(tmp_path, "proximal"), tmp_path / "run"
    assert topology.graph.tree.root == 1
    again = second_pass(topology)
    places = ["weights:2", "proximal:9", f"proximal:{again + 2}", f"proximal:{again + 7}", "verdict:2"]
    kill_and_go_on(topology, out, holder, victims, places if victims == (1,) else places[1:])
    tables = {PeerFiles(out, topology, i).result.with_suffix(".path.csv").read_bytes() for i in range(D)}
    assert len(tables) == 1


def test_peers_killed_before_and_after_the_root_searches_a_path_by_gram_have_the_same_bits(tmp_path):
    topology = path_topology(tmp_path, "gram")
    kill_and_go_on(topology, tmp_path / "run", 2, (1, 3), ["weights:3", "gram:3", "gram:7", "verdict:3"])


@pytest.mark.parametrize("place", ["subspace:9", "leading:5"])
def test_after_a_power_cut_in_the_middle_of_preparing_all_go_on_with_the_same_bits(tmp_path, place):
    method = "thanos" if place.startswith("subspace") else "proximal"
    topology, out = files_topology(tmp_path, method=method), tmp_path / "run"
    holder = Holder(topology, out, 0, [place])
    with ended_afterwards(*holder.processes):
        holder.wait_for(1, place)
        for process in holder.processes:
            process.kill()
            process.wait()
    processes = start_all(topology, out)
    with ended_afterwards(*processes):
        end_all(processes, out)
    assert_same_bits(out, topology)


def test_a_peer_killed_while_masks_are_agreed_on_says_the_same_key_again_and_all_have_the_same_bits(tmp_path):
    topology, out = give_keys(files_topology(tmp_path, method="gram")), tmp_path / "run"
    processes = {i: start_peer(topology, i, out) for i in (0, 1, 3)}
    with contextlib.ExitStack() as stack:
        stack.enter_context(ended_afterwards(*processes.values()))
        for i in (1, 3):
            wait_until(lambda i=i: "phase masks begins" in said(out, i) or None, f"peer {i} agrees on masks")
        keys = []
        for _ in range(2):
            processes[1].kill()
            processes[1].wait()
            with CheckpointStore(tmp_path / "run.state", topology, 1, is_flushed=False) as store:
                keys.append(store.load().found.own_secret)
            processes[1] = start_peer(topology, 1, out)
            stack.enter_context(ended_afterwards(processes[1]))
            wait_until(lambda: said(out, 1).count("going on from round 0") == len(keys) or None, "it goes on")
        assert keys[0] == keys[1] is not None
        processes[2] = start_peer(topology, 2, out)
        stack.enter_context(ended_afterwards(processes[2]))
        end_all([processes[i] for i in range(D)], out)
    assert_same_bits(out, topology)


def test_a_peer_that_masks_does_not_go_on_where_numbers_are_rounded_otherwise(tmp_path):
    topology, out = give_keys(files_topology(tmp_path, 2, method="gram")), tmp_path / "run"
    process = start_peer(topology, 1, out)
    with ended_afterwards(process):
        wait_until(lambda: "phase masks begins" in said(out, 1) or None, "peer 1 agrees on masks")
    # numpy takes other kernels for its products, as on an older processor.
    again = start_peer(topology, 1, out, env=os.environ | {"OPENBLAS_CORETYPE": "Nehalem"})
    with ended_afterwards(again):
        assert again.wait(PATIENCE) == 8
    assert "was made on a machine that rounds otherwise (" in said(out, 1)
    assert "Traceback" not in said(out, 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_peer_stopped_before_there_is_a_result_says_so_and_goes_on_later(tmp_path, number):
    topology, out = files_topology(tmp_path), tmp_path / "run"
    holder = Holder(topology, out, 1, ["spread:2"])
    processes = holder.processes
    with ended_afterwards(*processes):
        holder.wait_for(2, "spread:2")
        processes[2].send_signal(number)
        assert processes[2].wait(PATIENCE) == 128 + number
        words = said(out, 2)
        assert "stopped in phase spread: there is no result yet" in words
        assert "Traceback" not in words
        assert not PeerFiles(out, topology, 2).result.exists()
        processes[2] = start_peer(topology, 2, out)
        with ended_afterwards(processes[2]):
            holder.let_go("spread:2")
            end_all(processes, out)
    assert "going on from round " in said(out, 2)
    assert_same_bits(out, topology)


def test_the_result_says_what_the_network_has_found_and_keeps_every_round_once(tmp_path):
    # The start is cut short, so that what is divided by is not the 2-norm.
    start = {"kind": "destiny", "seed": 1, "max_rounds": 5}
    topology, out = give_keys(files_topology(tmp_path, max_rounds=40, start=start)), tmp_path / "run"
    call("run", topology.file, "--out", out, "--every", 10, "--quiet", "--give-up-after", 60, "--reference")
    assert_same_bits(out, topology)
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    rounds = summary["rounds_by_phase"]
    summing = topology.graph.tree.rounds
    assert summing == 4
    others = {"masks": 1, "subspace": rounds["subspace"], "rotation": 2 * summing, "thanos": 40}
    assert rounds == dict.fromkeys(PHASES, summing) | others
    assert rounds["subspace"] == 5
    assert summary["phases_cut_short"] == ["subspace"]
    assert "subspace was cut short by its max_rounds" in (out / "summary.txt").read_text("utf-8")
    assert summary["messages"] == sum(rounds.values()) * topology.messages_per_round
    phases = outline(topology).phases
    assert summary["payload_bytes"] == sum(phase.payload(rounds[phase.name]) for phase in phases)
    assert f"rounds by phase     masks 1, mean {summing}, spread {summing}, " in (out / "summary.txt").read_text(
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
        assert f"of {2 * N}, which explain {facts['sparse_explained_variance']:.2%} of the variance" in words
        assert f"ended: max_rounds; results of round 40 in {files.result}\n" in words
        assert facts["messages_sent"] >= simulated["messages_sent"]  # greetings too
        for name, known in ("objective", "objective"), ("explained_variance", "variance_explained"):
            assert facts[name] == pytest.approx(summary[known], rel=1e-9)
        assert facts["sparse_explained_variance"] == pytest.approx(summary["sparse_variance_explained"], rel=1e-9)
        # The residual is in units of the 2-norm as it was found.
        assert facts["residual"] == pytest.approx(summary["residual"], rel=0.2)
        assert facts["samples"] == simulated["samples"] == 40 * D
        assert facts["overall"] == pytest.approx(simulated["overall"], rel=1e-12)
        for where in (out, tmp_path / "one"):
            common = load_result(where, peer=i).common_components_.T
            assert common == pytest.approx(load_outcome(out, topology).X.mean(axis=0), abs=1e-12)
        records = TrajectoryReader(files.trajectory, n=N, p=2).read()
        assert records["k"].tolist() == [0, 10, 20, 30, 40]
        assert records["X"][-1].tobytes() == load_outcome(out, topology).X[i].tobytes()


@pytest.mark.parametrize("method", [method for method in STOPS if method not in OTHERS])
def test_a_peer_alone_prepares_its_data_and_verifies(tmp_path, method):
    topology = files_topology(tmp_path, 1, method=method)
    done = call("verify", topology.file, "--out", tmp_path / "run", "--quiet")
    assert "same bits: the results of 1 peers" in done.output


def test_float32_on_the_way_has_the_bits_of_one_process_too(tmp_path):
    def round_off(raw):
        raw["algorithm"]["exchange"] = "float32"  # sums are exact all the same

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
