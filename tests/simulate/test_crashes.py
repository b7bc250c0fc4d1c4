"""Agents that crash and start again, over a network that loses, repeats, reorders and delays: the same bits."""

import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from networks import found_bits, make_instance, raw_topology

from thanos_peer.agent import Agent
from thanos_peer.algorithm.methods import MIXING, SUMMING, needs_samples
from thanos_peer.problem import assemble
from thanos_peer.runtime.checkpoint import CheckpointStore
from thanos_peer.samples.moments import moments_of_rows
from thanos_peer.simulate import AgentNetwork
from thanos_peer.topology import parse

METHODS = MIXING | SUMMING
NUMBERS = st.integers(0, 2**16)  # taken modulo the number of things to choose from
SURVIVORS = st.integers(0, 2**32 - 1)  # a bit for each message on the way: whether it outlives a crash
NETWORKS = st.tuples(
    st.sampled_from(["ring", "star", "path", "complete"]),
    st.integers(3, 6),
    st.sampled_from([(6, 0.0), (9, 0.0), (20, 0.3), (12, 1.0)]),  # the latter stop by themselves
    st.sampled_from(["float64", "float32"]),
    st.sampled_from([None, None, "subspace", *METHODS]),
)


class Hello(NamedTuple):
    """What a peer says of itself, as far as crashes matter."""

    k: int
    oldest: int
    life: int
    answered: int
    is_asking: bool


def bits_of(agent):
    """Its phase, its state, what it has found, and what it says."""
    memory, block = agent.memory(), agent.block()
    state = {name: np.asarray(each).tobytes() for name, each in memory.arrays.items()}
    return agent.phase, memory.began, state, found_bits(memory.found), block._replace(fallback=0)


@cache
def instance_and_rounds(family, d, rounds_and_tolerance, exchange="float64", what=None):
    """A network, and a run without any fault: its end, and the bits of all agents in every round.

    Args:
        family: Of the graph.
        d: How many agents there are.
        rounds_and_tolerance: When it ends.
        exchange: How numbers are sent.
        what: "subspace" for DESTINY before THANOS; a method, the first word, for samples that are prepared and
            judged too.
    """
    max_rounds, tolerance = rounds_and_tolerance
    if what in (None, "subspace"):
        raw = raw_topology(family, d, n=4, p=2, max_rounds=max_rounds, tolerance=tolerance)
        if what is not None:
            raw["algorithm"]["start"] = {"kind": "destiny", "seed": 1, "max_rounds": 4}
        raw["algorithm"]["exchange"] = exchange
        instance = make_instance(raw)
    else:
        timed = {"max_rounds": max_rounds, "tolerance": tolerance}
        method = what.partition(" ")[0]
        if method in SUMMING:  # less time than they need, or as much as they like
            timed = {"max_rounds": max_rounds if tolerance == 0 else None}
        regularizer = "none" if METHODS[method].is_for_smooth else "l1"
        raw = raw_topology(family, d, n=4, p=2, method=method, regularizer=regularizer, mu=0.2, **timed)
        raw["problem"]["data"] = {"kind": "files", "center": True, "scale": True, "overall": "auto"}
        raw["algorithm"] |= {"exchange": exchange, "start": {"kind": "leading"}}
        rows = np.random.default_rng(d).standard_normal((d, 7, 4)) * [3, 2, 1, 1]
        topology = parse(raw, file=Path("test.toml"), may_lack_data=True, reads_data=False)
        moments = [moments_of_rows(part, None, keeps_rows=needs_samples(what)) for part in rows]
        instance = assemble(topology, moments)
    network = AgentNetwork(instance)
    rounds = [[bits_of(agent) for agent in network.agents]]
    while not network.is_done:
        network.advance()
        rounds.append([bits_of(agent) for agent in network.agents])
    return instance, network.has_converged, rounds


class Peer:
    """What peer.py does around an agent, without clock and sockets."""

    def __init__(self, instance, agent_id, directory, send):
        self._instance, self._id, self._send_one = instance, agent_id, send
        self._store = CheckpointStore(directory, instance.topology, agent_id, is_flushed=False)
        self.life = 0
        self.highest = 0
        self._begin(None)
        self.agent.fallback = 0
        self._store.save(self.agent.memory())
        self.ask(self.agent.neighbors)

    def _begin(self, memory):
        instance = self._instance
        self.agent = Agent(instance.topology, self._id, instance.plan(self._id), memory)
        self.life += 1
        self.unsaved, self._latest = None, self.agent.k
        self._greeted, self._rounds = set(), {}

    def close(self):
        self._store.__exit__()

    def _send(self, receiver, message):
        self._send_one(self._id, receiver, message)

    def _say_hello(self, receiver, *, is_asking=False, answered=0):
        self._send(receiver, Hello(self.agent.k, self.agent.oldest_said, self.life, answered, is_asking))

    def ask(self, neighbors):
        for j in neighbors:
            self._say_hello(j, is_asking=True)

    def hear(self, sender, message):
        if isinstance(message, Hello):
            self._hear_hello(sender, message)
        elif sender in self._greeted:
            self.agent.receive(sender, message)
        while self.agent.is_ready and not self.agent.is_done:
            self._step()

    def _hear_hello(self, sender, hello):
        assert not (hello.answered == self.life and hello.oldest > self.agent.k), "its state is lost"
        self._greeted.add(sender)
        self._rounds[sender] = hello.k
        if hello.is_asking:
            self._say_hello(sender, answered=hello.life)
            for block in (self.agent.said(hello.k), self.agent.said(hello.k + 1)):
                if block is not None and not (self.agent.is_done and block.k == self.agent.k):
                    self._send(sender, block.as_told_to(sender))

    def _step(self):
        self.agent.advance()
        self.highest = max(self.highest, self.agent.k)
        if not self.agent.is_done:
            for j in self.agent.neighbors:
                self._send(j, self.agent.block().as_told_to(j))
            self.ask([j for j in self.agent.missing() if j in self._rounds and self._rounds[j] >= self.agent.k])

    @property
    def may_begin_to_save(self):
        return self.unsaved is None and self.agent.k > self._latest

    def begin_to_save(self):
        self.unsaved = self.agent.memory()

    def save(self):
        self._store.save(self.unsaved)
        self.agent.fallback, self._latest = self._latest, self.unsaved.k
        self.unsaved = None

    def restart(self, *, damage, is_saved):
        """Lose all but the disk; what is being saved may get there just in time, and the newest be damaged."""
        if self.unsaved is not None and is_saved:
            self._store.save(self.unsaved)
        files = self._store.files()
        if damage is not None and len(files) > 1:
            content = bytearray(files[-1].read_bytes())
            content[damage % len(content)] ^= 0xFF
            files[-1].write_bytes(content)
        self._begin(self._store.load())
        self.ask(self.agent.neighbors)


class Links:
    """Peers, and all that is on the way between them."""

    def __init__(self, instance, has_converged, rounds, directory, *, in_order):
        self._has_converged, self._rounds, self._in_order = has_converged, rounds, in_order
        self.on_the_way = []  # (sender, receiver, message)
        self.peers = []
        for i in range(instance.topology.d):
            self.peers.append(Peer(instance, i, directory, self._send))

    def _send(self, sender, receiver, message):
        self.on_the_way.append((sender, receiver, message))

    def pick(self, number):
        """A message on the way: any, or the first of an edge where links keep the order."""
        picked = number % len(self.on_the_way)
        if self._in_order:
            edge = self.on_the_way[picked][:2]
            picked = next(at for at, sent in enumerate(self.on_the_way) if sent[:2] == edge)
        return picked

    def deliver(self, at):
        sender, receiver, message = self.on_the_way.pop(at)
        self.peers[receiver].hear(sender, message)

    def deliver_all(self, *, but=None):
        """Deliver what is on the way now, and what is said meanwhile stays there."""
        waiting, self.on_the_way = self.on_the_way, []
        kept = []
        for sender, receiver, message in waiting:
            if but is not None and but(sender, receiver):
                kept.append((sender, receiver, message))
            else:
                self.peers[receiver].hear(sender, message)
        self.on_the_way = kept + self.on_the_way

    def ask(self):
        for peer in self.peers:
            if not peer.agent.is_done:
                peer.ask(peer.agent.missing())

    def forget(self, crashed, survivors):
        """Of what is on the way from and to whoever crashes, only a part survives."""
        self.on_the_way = [
            (sender, receiver, message)
            for at, (sender, receiver, message) in enumerate(self.on_the_way)
            if not {sender, receiver} & crashed or survivors >> at % 32 & 1
        ]

    def check(self):
        for i, peer in enumerate(self.peers):
            assert all(abs(self.peers[j].highest - peer.highest) <= 1 for j in peer.agent.neighbors)
            assert bits_of(peer.agent) == self._rounds[peer.agent.k][i]

    def finish(self):
        """From now on nothing is lost: all come to the same end."""
        for _ in range(10 * len(self._rounds)):
            self.ask()
            self.deliver_all()
        for peer in self.peers:
            assert peer.agent.is_done, f"agent {peer.agent.id} is stuck in round {peer.agent.k}"
            assert peer.agent.k == len(self._rounds) - 1
            assert peer.agent.has_converged == self._has_converged
        self.check()


class CrashingNetwork(RuleBasedStateMachine):
    @initialize(network=NETWORKS, in_order=st.booleans(), headstart=st.sampled_from([0, 5, 8, 12, 50, 90]))
    def begin(self, network, in_order, headstart):
        self.directory = tempfile.TemporaryDirectory()
        self.links = Links(*instance_and_rounds(*network), Path(self.directory.name), in_order=in_order)
        self.run_well(headstart)

    def peer(self, number):
        return self.links.peers[number % len(self.links.peers)]

    @rule(numbers=st.lists(NUMBERS, min_size=1, max_size=40))
    def deliver_some_in_any_order(self, numbers):
        for number in numbers:
            if self.links.on_the_way:
                self.links.deliver(self.links.pick(number))

    @rule(sweeps=st.integers(1, 8))
    def run_well(self, sweeps):
        for _ in range(sweeps):
            self.links.ask()
            self.links.deliver_all()

    @rule(number=NUMBERS, sweeps=st.integers(1, 8))
    def run_while_one_hears_nothing(self, number, sweeps):
        deaf = self.peer(number).agent.id
        for _ in range(sweeps):
            self.links.ask()
            self.links.deliver_all(but=lambda _, receiver: receiver == deaf)

    @rule(number=NUMBERS, sweeps=st.integers(1, 8))
    def run_while_one_is_not_heard(self, number, sweeps):
        mute = self.peer(number).agent.id
        for _ in range(sweeps):
            self.links.ask()
            self.links.deliver_all(but=lambda sender, _: sender == mute)

    @rule(numbers=st.lists(NUMBERS, min_size=1, max_size=8))
    def repeat(self, numbers):
        for number in numbers:
            if self.links.on_the_way:
                at = self.links.pick(number)
                self.links.on_the_way.insert(at, self.links.on_the_way[at])

    @rule(numbers=st.lists(NUMBERS, min_size=1, max_size=8))
    def lose(self, numbers):
        for number in numbers:
            if self.links.on_the_way:
                del self.links.on_the_way[number % len(self.links.on_the_way)]

    @rule(number=NUMBERS)
    def begin_to_save(self, number):
        if self.peer(number).may_begin_to_save:
            self.peer(number).begin_to_save()

    @rule(numbers=st.lists(NUMBERS, min_size=1, max_size=6))
    def save(self, numbers):
        for number in numbers:
            self.begin_to_save(number)
            if self.peer(number).unsaved is not None:
                self.peer(number).save()

    @rule(number=NUMBERS, survivors=SURVIVORS, damage=st.none() | NUMBERS, is_saved=st.booleans())
    def crash(self, number, survivors, damage, is_saved):
        self.links.forget({self.peer(number).agent.id}, survivors)
        self.peer(number).restart(damage=damage, is_saved=is_saved)

    @rule(
        survivors=SURVIVORS, damages=st.lists(st.none() | NUMBERS, min_size=6, max_size=6), is_saved=st.booleans()
    )
    def cut_the_power_of_all(self, survivors, damages, is_saved):
        self.links.forget(set(range(len(self.links.peers))), survivors)
        for peer, damage in zip(self.links.peers, damages, strict=False):
            peer.restart(damage=damage, is_saved=is_saved)

    @invariant()
    def all_is_well(self):
        self.links.check()

    def teardown(self):
        try:
            if sys.exception() is None:  # what went wrong before is the failure to show
                self.links.finish()
        finally:
            for peer in self.links.peers:
                peer.close()
            self.directory.cleanup()


CrashingNetwork.TestCase.settings = settings(
    max_examples=200,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestCrashingNetwork = CrashingNetwork.TestCase


def test_an_agent_that_has_started_again_hears_a_neighbor_that_goes_on_with_what_it_said_before(tmp_path):
    links = Links(*instance_and_rounds("path", 3, (9, 0.0)), tmp_path, in_order=True)
    first, middle, _ = links.peers

    def is_from_last(sender, receiver):
        return (sender, receiver) == (2, 1)

    while middle.agent.k < 3:
        links.deliver_all()
    for _ in range(5):  # the middle one waits for the last, and has already heard the first's rounds 3 and 4
        links.deliver_all(but=is_from_last)
    assert [peer.agent.k for peer in links.peers] == [4, 3, 4]
    first.restart(damage=None, is_saved=False)
    links.deliver_all(but=is_from_last)  # its question
    links.deliver_all(but=is_from_last)  # the answer: the middle one is in round 3, and what it said in 0 and 1
    assert [peer.agent.k for peer in links.peers] == [2, 3, 4]
    links.deliver_all(but=lambda sender, receiver: not is_from_last(sender, receiver))
    assert middle.agent.k == 5
    links.finish()
    for peer in links.peers:
        peer.close()


@pytest.mark.parametrize("newest_is_damaged", [False, True])
@pytest.mark.parametrize("what", [*METHODS, "gram over several sums"])
@pytest.mark.parametrize("who", [0, 1, 2], ids=["leaf", "root", "other leaf"])
def test_from_every_round_of_every_phase_either_checkpoint_leads_to_the_same_bits(
    tmp_path, monkeypatch, who, what, newest_is_damaged
):
    if what.startswith("gram "):
        monkeypatch.setattr("thanos_peer.algorithm.gram.evaluations_per_sum", lambda *_: 7)
    instance, has_converged, rounds = instance_and_rounds("path", 3, (25, 0.3), "float64", what)
    assert instance.topology.graph.tree.parents == (1, 1, 1)
    links = Links(instance, has_converged, rounds, tmp_path, in_order=True)
    peer, crashed_in, steps = links.peers[who], set(), 0
    while not all(each.agent.is_done for each in links.peers):
        steps += 1
        assert steps < 20 * len(rounds)
        links.ask()
        links.deliver_all()
        if peer.may_begin_to_save:
            peer.begin_to_save()
            peer.save()
            k = peer.agent.k
            if k not in crashed_in:
                crashed_in.add(k)
                links.forget({who}, 0)
                peer.restart(damage=99 if newest_is_damaged else None, is_saved=False)
                assert (peer.agent.k < k) is newest_is_damaged
                links.check()
    in_gram = sum(of_all[who][0] == "gram" for of_all in rounds)
    assert (in_gram > 2 * instance.topology.graph.tree.rounds) is what.startswith("gram ")
    assert len(crashed_in) >= len(rounds) // 2 - 1
    assert {rounds[k][who][0] for k in crashed_in} == {phase.name for phase in instance.plan(who).phases}
    links.finish()
    for each in links.peers:
        each.close()
