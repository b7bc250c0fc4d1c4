"""What has gone over each edge of a peer: counted, and as much as was foreseen."""

import json
import os
import struct

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st
from processes import (
    PATIENCE,
    assert_same_bits,
    ended_afterwards,
    environment_with,
    exact,
    said,
    start_peer,
)
from uneven import random_samples, raw_with_parts, split

from thanos_peer.block import PAIR, Block
from thanos_peer.preparation import outline
from thanos_peer.protocol.traffic import EdgeCounters, Traffic
from thanos_peer.protocol.wire import Codec
from thanos_peer.storage.peer_files import PeerFiles
from thanos_peer.topology import load

NEIGHBORS = (2, 5, 9)
SOME = st.lists(st.sampled_from(NEIGHBORS), unique=True)


@given(st.lists(st.tuples(SOME, st.integers(1, 1000), SOME)))
def test_each_edge_has_what_was_sent_to_its_neighbor_whether_to_it_alone_or_to_all(sent):
    traffic = Traffic(NEIGHBORS)
    expected = {j: EdgeCounters() for j in NEIGHBORS}
    for neighbors, size, full in sent:
        dropped = [j for j in full if j in neighbors]
        traffic.note_sent(neighbors, size, dropped)
        for j in neighbors:
            edge = expected[j]
            if j in dropped:
                edge.dropped += 1
            else:
                edge.messages_sent, edge.bytes_sent = edge.messages_sent + 1, edge.bytes_sent + size
    assert {j: traffic.counters(j) for j in NEIGHBORS} == expected


def test_what_has_been_heard_is_counted_by_neighbor():
    traffic = Traffic(NEIGHBORS)
    traffic.edge(5).messages_received += 1
    assert traffic.facts()["5"]["messages_received"] == 1
    assert traffic.facts()["2"]["messages_received"] == 0


NOTES_FRAMES = """
import os, struct

from thanos_peer.transport.links import Links

send, file = Links.send, open(os.path.join(os.environ["FRAMES"], str(os.getpid())), "ab", buffering=0)


def send_and_note(self, neighbors, frame):
    for j in neighbors:
        file.write(struct.pack("<II", j, len(frame)) + frame)
    return send(self, neighbors, frame)


Links.send = send_and_note
"""


def frames_in(path):
    """Whom each frame went to, and the frame, of one process."""
    content, at = path.read_bytes(), 0
    while at < len(content):
        receiver, size = struct.unpack_from("<II", content, at)
        yield receiver, content[at + 8 : at + 8 + size]
        at += 8 + size


def blocks_among(frames, codec):
    """The blocks that were said: sender, receiver and round to what was said; said again, it is the same."""
    found = {}
    for receiver, frame in frames:
        sender, message = codec.decode(frame)
        if isinstance(message, Block):
            assert found.setdefault((sender, receiver, message.k), message).has_same_bits(message)
    return found


def run_and_note_frames(topology, out):
    """What each peer of a run has sent, in order."""
    frames = out.with_name("frames")
    frames.mkdir()
    environment = environment_with(NOTES_FRAMES, out.with_name("notes")) | {"FRAMES": os.fspath(frames)}
    processes = [start_peer(topology, i, out, env=environment) for i in range(topology.d)]
    with ended_afterwards(*processes):
        for i, process in enumerate(processes):
            assert process.wait(PATIENCE) == 0, said(out, i)
    return [list(frames_in(frames / str(process.pid))) for process in processes]


@pytest.mark.parametrize("method", ["thanos", "proximal", "gram"])
def test_each_phase_sends_what_was_foreseen_and_sums_go_along_the_tree_alone(tmp_path, method):
    raw = raw_with_parts(tmp_path, split(random_samples(60, 4), 5), "ring", max_rounds=30)
    raw["algorithm"] |= {"exchange": "float32", "start": {"kind": "destiny", "seed": 1, "max_rounds": 20}}
    if method != "thanos":
        exact(method)(raw)
    (tmp_path / "net.toml").write_text(tomlkit.dumps(raw), encoding="utf-8")
    topology, out = load(tmp_path / "net.toml"), tmp_path / "run"
    plan, tree, problem = outline(topology), topology.graph.tree, topology.problem
    frames = run_and_note_frames(topology, out)
    facts = [json.loads(PeerFiles(out, topology, i).facts.read_text(encoding="utf-8")) for i in range(topology.d)]
    exchange = topology.algorithm.exchange
    codec = Codec(topology.digest, n=problem.n, p=problem.p, dtype=exchange, forms=plan.forms)
    blocks = {key: block for of_one in frames for key, block in blocks_among(of_one, codec).items()}
    rounds = facts[0]["rounds_by_phase"]
    assert len(blocks) == sum(rounds.values()) * topology.messages_per_round
    first = 0
    for phase in plan.phases:
        own = {key: block for key, block in blocks.items() if first <= key[2] < first + rounds[phase.name]}
        sizes = [
            len(block.numbers) * (topology.itemsize if block.kind == PAIR else 8) // 8 for block in own.values()
        ]
        assert sum(sizes) == phase.payload(rounds[phase.name]), phase.name
        edges = {frozenset(key[:2]) for key, block in own.items() if block.numbers}
        along_tree = {frozenset((i, tree.parents[i])) for i in range(topology.d) if i != tree.root}
        is_mixing = phase.name in ("thanos", "subspace")
        assert edges == ({frozenset(edge) for edge in topology.graph.edges} if is_mixing else along_tree), (
            phase.name
        )
        first += rounds[phase.name]
    for i, of_one in enumerate(frames):
        for j, edge in facts[i]["edges"].items():
            sizes = [len(frame) for receiver, frame in of_one if receiver == int(j)]
            assert edge["bytes_sent"] == sum(sizes[: edge["messages_sent"]])  # a Bye comes after the facts
            after = [frame for receiver, frame in of_one if receiver == int(j)][edge["messages_sent"] :]
            assert not any(isinstance(codec.decode(frame)[1], Block) for frame in after)
    assert_same_bits(out, topology)
