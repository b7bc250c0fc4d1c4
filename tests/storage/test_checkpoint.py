"""Checkpoints: the same bits come back, or none; and whatever is wrong is said in one line."""

import hashlib
import os
import re
import stat
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from memories import bits_of, flipped, with_body
from namespaces import need
from networks import make_instance, make_topology, raw_topology
from processes import assert_same_bits, command, ended_afterwards, exact, start_peer, write_topology
from puppets import puppets_around
from uneven import random_samples, raw_with_parts, split

from thanos_peer.agent import Agent, Memory
from thanos_peer.algorithm.fixed_point import EXACT
from thanos_peer.block import NOTHING, WORD, Block, StopWord
from thanos_peer.block import PAIR as PAIR_OF_MATRICES
from thanos_peer.errors import CheckpointError, StateInUseError
from thanos_peer.launch.ports import free_ports
from thanos_peer.phases import Found, PhaseEnd, WrongStateError
from thanos_peer.protocol.messages import Bye
from thanos_peer.simulate import AgentNetwork
from thanos_peer.storage import checkpoint
from thanos_peer.storage.checkpoint import CheckpointStore
from thanos_peer.storage.checkpoint_fields import FIELDS, VERSION, agent_memory, by_name, fields_of
from thanos_peer.storage.peer_files import PeerFiles
from thanos_peer.storage.state_files import read_sealed

PAIR = make_topology(family="path", d=2, n=2, p=1)
FLOATS = st.floats(width=64)
FINDINGS = arrays(np.float64, array_shapes(min_dims=0, max_dims=2, max_side=4), elements=FLOATS)
STOP_WORDS = st.builds(StopWord, st.integers(0, 9), st.none() | st.integers(0, 2**40))
BLOCKS = st.builds(
    Block,
    st.just(0),
    st.binary(max_size=40),
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
    st.floats(allow_nan=False, allow_infinity=False),
    STOP_WORDS,
    kind=st.sampled_from([PAIR_OF_MATRICES, WORD, NOTHING, EXACT.kind]),
    to=st.none() | st.lists(st.integers(0, 999), max_size=3).map(tuple),
)
ENDS = st.builds(PhaseEnd, st.text(max_size=9), st.integers(0, 2**40), st.none() | st.booleans())
FOUND = st.builds(
    Found,
    over=st.lists(ENDS, max_size=3).map(tuple),
    final=st.none() | st.dictionaries(st.text(max_size=9), FINDINGS, max_size=3),
    secrets=st.none() | st.binary(max_size=9),
    words=st.none() | st.binary(max_size=9),
    **{
        field.name: st.none() | FINDINGS
        for field in fields(Found)
        if field.name not in ("over", "secrets", "words", "final")
    },
)


def open_store(directory, topology=PAIR, agent=0, *, is_flushed=False):
    return CheckpointStore(directory, topology, agent, is_flushed=is_flushed)


def memory_of_round(k, *, salt=0.5, neighbors=(1,)):
    """Some memory with a block said in each of the two rounds before."""
    X = np.array([[salt + k], [1.0]])
    said = tuple(Block.of(at, X + at, -X, 0.1, StopWord(at), 0) for at in range(max(0, k - 2), k))
    arrays_ = {"X": X, "D": -X, "H": X / 3, "eta": np.asarray(0.1 + k)}
    return Memory(k, arrays_, StopWord(1), said, dict.fromkeys(neighbors, max(0, k - 2)), k)


def assert_only_the_earlier_is_used(store, newest, content):
    """With the content in place of the newest checkpoint, the earlier is gone on from, and so is its fallback."""
    newest.write_bytes(content)
    memory = store.load()
    assert bits_of(memory) == bits_of(memory_of_round(3))
    assert store.files() == [newest.with_name("0-000000000003.ckpt")]
    newest.with_suffix(".damaged").unlink()


def assert_nothing_is_intact(store, only, content):
    only.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        store.load()
    assert str(store.directory) in str(caught.value)
    assert "--fresh" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert store.files() == [only]


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path) as opened:
        yield opened


@pytest.fixture
def only(store, tmp_path):
    """The one checkpoint that there is, of round 3."""
    store.save(memory_of_round(3))
    return tmp_path / "0-000000000003.ckpt"


@pytest.fixture
def newest(store, only, tmp_path):
    """The later one of two, of round 7."""
    assert only.exists()
    store.save(memory_of_round(7))
    return tmp_path / "0-000000000007.ckpt"


@given(data=st.data())
def test_whatever_is_saved_comes_back_to_the_last_bit(data):
    k = data.draw(st.integers(0, 2**40))
    state = data.draw(st.dictionaries(st.text(max_size=9), FINDINGS | st.binary(max_size=40), max_size=4))
    rounds = range(max(0, k - data.draw(st.integers(0, 4))), k)
    said = tuple(data.draw(BLOCKS)._replace(k=at, fallback=min(at, 5)) for at in rounds)
    fallbacks = data.draw(st.dictionaries(st.integers(0, 999), st.integers(0, 2**40), max_size=4))
    done = data.draw(st.frozensets(st.integers(0, 999), max_size=4))
    phase, began = data.draw(st.integers(0, 9)), data.draw(st.integers(0, k))
    memory = Memory(
        k,
        state,
        data.draw(STOP_WORDS),
        said,
        fallbacks,
        k,
        done=done,
        phase=phase,
        began=began,
        found=data.draw(FOUND),
    )
    assert bits_of(agent_memory(by_name(VERSION, msgpack.packb(fields_of(memory))))) == bits_of(memory)


@pytest.mark.parametrize("method", ["thanos", "proximal", "gram"])
def test_agents_go_on_from_checkpoints_of_every_phase_with_the_same_bits(tmp_path, method):
    parts = split(random_samples(60, 4), 3)
    raw = raw_with_parts(
        tmp_path, parts, "path", start={"kind": "destiny", "seed": 1, "max_rounds": 9}, max_rounds=9
    )
    if method != "thanos":
        exact(method)(raw)
    instance = make_instance(raw, file=tmp_path / "net.toml")
    network, again, phases = AgentNetwork(instance), AgentNetwork(instance), []
    while not network.is_done:
        network.advance()
        again.advance()
        phases.append(again.agents[0].runner.phase.name)
        # All agents begin a new life in every round.
        for i, agent in enumerate(again.agents):
            with CheckpointStore(tmp_path / "state", instance.topology, i, is_flushed=False) as store:
                store.save(agent.memory())
                loaded = store.load()
            assert loaded.phase == agent.runner.index
            assert bits_of(loaded)[-1] == bits_of(agent.memory())[-1]
            again.agents[i] = Agent(instance.topology, i, instance.plan(i), loaded)
    assert set(phases) == {phase.name for phase in network.agents[0].runner.phases}
    assert again.is_done
    for one, other in zip(network.agents, again.agents, strict=True):
        assert bits_of(one.memory())[0] == bits_of(other.memory())[0]
        assert bits_of(one.memory())[-1] == bits_of(other.memory())[-1]


@pytest.mark.parametrize("is_flushed", [True, False])
@pytest.mark.parametrize("exchange", ["float64", "float32"])
def test_agents_go_on_from_their_checkpoints_with_the_same_bits(exchange, is_flushed, tmp_path):
    raw = raw_topology("star", 4, max_rounds=12, tolerance=0.0)
    raw["algorithm"]["exchange"] = exchange
    instance = make_instance(raw)
    network = AgentNetwork(instance)
    for agent in network.agents:
        agent.fallback = 0
    while network.k < 5:
        network.advance()
    again = AgentNetwork(instance)
    again.agents = []
    for agent in network.agents:
        agent.fallback = 5
        memory = agent.memory()
        assert [said.k for said in memory.said] == [0, 1, 2, 3, 4]
        assert memory.fallbacks == dict.fromkeys(agent.neighbors, 0)
        with CheckpointStore(tmp_path, instance.topology, agent.id, is_flushed=is_flushed) as store:
            store.save(memory)
        with CheckpointStore(tmp_path, instance.topology, agent.id, is_flushed=is_flushed) as store:
            loaded = store.load()
        assert bits_of(loaded) == bits_of(memory)
        again.agents.append(Agent(instance.topology, agent.id, instance.plan(agent.id), loaded))
    while not network.is_done:
        network.advance()
        again.advance()
        for one, other in zip(network.agents, again.agents, strict=True):
            assert bits_of(one.memory())[:2] == bits_of(other.memory())[:2]
    assert again.is_done


def test_where_nothing_was_saved_there_is_nothing_to_go_on_from(store):
    assert store.files() == []
    assert store.load() is None


def test_the_two_latest_are_kept_and_the_earlier_is_the_fallback(store):
    for k, kept in ((0, [0]), (2, [0, 2]), (9, [2, 9]), (10, [9, 10]), (1000, [10, 1000])):
        store.save(memory_of_round(k))
        assert [path.name for path in store.files()] == [f"0-{at:012}.ckpt" for at in kept]
        assert bits_of(store.load()) == bits_of(replace(memory_of_round(k), fallback=kept[0]))


def test_the_checkpoints_of_other_peers_are_left_alone(tmp_path):
    topology = make_topology(family="path", d=12, n=2, p=1)
    with open_store(tmp_path, topology, 1) as one, open_store(tmp_path, topology, 11) as eleven:
        for k in range(4):
            one.save(memory_of_round(k, neighbors=(0, 2)))
            eleven.save(memory_of_round(k, salt=0.25, neighbors=(10,)))
        one.clear()
        assert one.load() is None
        assert bits_of(eleven.load()) == bits_of(
            replace(memory_of_round(3, salt=0.25, neighbors=(10,)), fallback=2)
        )


@pytest.mark.parametrize("k", [5, 7])
def test_a_file_that_was_not_finished_is_ignored(store, only, k):
    leftover = only.with_name(f"0-{k:012}.new")
    leftover.write_bytes(only.read_bytes()[:50])
    assert bits_of(store.load()) == bits_of(memory_of_round(3))
    store.save(memory_of_round(7))
    assert bits_of(store.load()) == bits_of(replace(memory_of_round(7), fallback=3))


def test_a_file_that_was_not_finished_is_nothing_to_go_on_from(store, only):
    only.rename(only.with_suffix(".new"))
    assert store.load() is None


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_the_earlier_is_used_whichever_byte_of_the_newest_is_damaged(store, newest, mask):
    content = newest.read_bytes()
    for at in range(len(content)):
        assert_only_the_earlier_is_used(store, newest, flipped(content, at, mask))


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_the_only_one_is_refused_whichever_byte_of_it_is_damaged(store, only, mask):
    content = only.read_bytes()
    for at in range(len(content)):
        assert_nothing_is_intact(store, only, flipped(content, at, mask))
    only.write_bytes(content)
    assert bits_of(store.load()) == bits_of(memory_of_round(3))


def test_the_earlier_is_used_wherever_the_newest_is_cut_off(store, newest):
    content = newest.read_bytes()
    for length in range(len(content)):
        assert_only_the_earlier_is_used(store, newest, content[:length])


def test_the_only_one_is_refused_wherever_it_is_cut_off(store, only):
    content = only.read_bytes()
    for length in range(len(content)):
        assert_nothing_is_intact(store, only, content[:length])


@pytest.mark.parametrize("content", [b"\0" * 4096, b"\xff" * 44, b"not a checkpoint at all", os.urandom(4096)])
def test_the_earlier_is_used_where_the_newest_is_something_else(store, newest, content):
    assert_only_the_earlier_is_used(store, newest, content)


def test_the_earlier_is_used_where_something_follows_the_newest(store, newest):
    assert_only_the_earlier_is_used(store, newest, newest.read_bytes() + b"\0")


def test_the_newest_is_used_where_the_earlier_is_damaged(store, only, newest):
    assert newest.exists()
    only.write_bytes(b"")
    assert bits_of(store.load()) == bits_of(replace(memory_of_round(7), fallback=3))


def test_both_damaged_are_both_named(store, only, newest):
    for path in (only, newest):
        path.write_bytes(flipped(path.read_bytes(), -20 % path.stat().st_size, 0xFF))
    with pytest.raises(CheckpointError, match=f"{only.name}, {newest.name}"):
        store.load()


def test_a_damaged_one_is_not_replaced_by_one_of_an_earlier_epoch(store, newest):
    store.save(replace(memory_of_round(0), epoch=1))
    latest = store.files()[-1]
    latest.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"is intact \(0-e1-0+\.ckpt\); .*--restart-tracking"):
        store.load()
    assert newest in store.files()
    assert store.load(or_nothing=True) is None
    assert store.files() == []


def test_a_run_that_went_on_from_the_earlier_saves_over_the_damaged_one(store, newest):
    newest.write_bytes(b"")
    assert store.load().k == 3
    store.save(memory_of_round(5))
    assert bits_of(store.load()) == bits_of(replace(memory_of_round(5), fallback=3))
    store.save(memory_of_round(7))
    assert bits_of(store.load()) == bits_of(replace(memory_of_round(7), fallback=5))


def test_a_checkpoint_of_another_topology_is_refused_with_both_digests(tmp_path):
    other = make_topology(family="path", d=2, n=2, p=1, mu=0.2)
    with open_store(tmp_path, other) as store:
        store.save(memory_of_round(3))
    with open_store(tmp_path) as store, pytest.raises(CheckpointError) as caught:
        store.load()
    assert PAIR.digest[:16] != other.digest[:16]
    path = tmp_path / "0-000000000003.ckpt"
    for part in (PAIR.digest[:16], other.digest[:16], str(path), "--state", "--fresh"):
        assert part in str(caught.value)


def test_a_checkpoint_of_another_peer_is_refused(only, tmp_path):
    only.rename(tmp_path / "1-000000000003.ckpt")
    with open_store(tmp_path, agent=1) as other, pytest.raises(CheckpointError) as caught:
        other.load()
    for part in ("of peer 0", "this is peer 1", "1-000000000003.ckpt", "--fresh"):
        assert part in str(caught.value)


@pytest.mark.parametrize("earlier", [True, False])
def test_a_checkpoint_of_a_newer_format_is_refused_with_both_versions(store, monkeypatch, earlier):
    if earlier:
        store.save(memory_of_round(3))
    with monkeypatch.context() as future:
        future.setattr(checkpoint, "VERSION", checkpoint.VERSION + 1)
        store.save(memory_of_round(7))
    with pytest.raises(CheckpointError) as caught:
        store.load()
    for part in (
        "0-000000000007.ckpt",
        f"format {checkpoint.VERSION + 1}",
        f"formats 5 to {checkpoint.VERSION};",
        "--fresh",
    ):
        assert part in str(caught.value)


def test_every_field_of_a_memory_is_written_but_the_one_that_follows_from_the_files():
    assert set(FIELDS) == {field.name for field in fields(Memory)} - {"fallback"}


def test_a_checkpoint_without_fields_that_have_defaults_can_be_read(store, only):
    def cut(body):
        return {name: value for name, value in body.items() if name not in ("epoch", "done", "found")}

    only.write_bytes(with_body(only.read_bytes(), cut))
    assert bits_of(store.load()) == bits_of(memory_of_round(3))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda body: body | {"mood": 1}, "has mood, which this version does not know"),
        (lambda body: body | {"found": [[], None, [["omen", [], b"12345678"]]]}, "has omen, which this version"),
        (lambda body: {name: body[name] for name in body if name != "arrays"}, "lacks arrays, which this version"),
    ],
)
def test_a_checkpoint_with_other_fields_is_refused_by_their_name_and_kept(store, only, change, said):
    content = with_body(only.read_bytes(), change)
    only.write_bytes(content)
    with pytest.raises(CheckpointError, match=said) as caught:
        store.load()
    assert "go on with the version that wrote it" in str(caught.value)
    assert only.read_bytes() == content


@pytest.mark.parametrize(("version", "later"), [(5, {}), (6, {"calm": b"\5", "birth": "born"})])
def test_a_checkpoint_that_a_program_with_an_earlier_format_wrote_can_be_read(version, later):
    X = np.array([[0.5], [1.0]])
    over = (PhaseEnd("size", 4, None), PhaseEnd("start", 40, has_converged=True))
    expected = memory_of_round(3)
    before, last = expected.said
    expected = replace(
        expected,
        arrays={**expected.arrays, "seen": b"\0\1"},
        said=(before, last._replace(kind=NOTHING, shape=(0, 0), numbers=b"", to=(1,))),
        epoch=2,
        done=frozenset({1}),
        phase=2,
        began=1,
        found=Found(over=over, size=np.asarray(0.1), final={"X": X}, mean=X[:, 0] / 3),
        **later,
    )
    sealed = read_sealed(Path(__file__).with_name(f"format_{version}.ckpt"))
    assert sealed.version == version
    named = by_name(version, sealed.body)
    assert [named.pop(name) for name in ("agent", "samples")] == [0, "of samples"]
    del named["digest"]
    assert bits_of(agent_memory(named)) == bits_of(expected)


def with_field(name, change):
    return lambda body: body | {name: change(body[name])}


def with_blocks(change):
    return with_field("said", lambda said: [change(number, block) for number, block in enumerate(said)])


def put(at, value):
    """A list with another value at one place."""
    return lambda each: [*each[:at], value, *each[at + 1 :]]


MALFORMED = {
    "a list": list,
    "no body": lambda _: None,
    "a number for a name": lambda body: {1: body},
    **{
        f"{name} is {value!r}": with_field(name, lambda _, value=value: value)
        for name in FIELDS
        for value in (None, "x", 1.5, True, -1, 2**63, {}, [[]], b"")
        if (name, value) not in (("said", b""), ("done", b""), ("calm", b""), ("births", b""), ("birth", "x"))
    },
    "a round of a phase that cannot be": lambda body: body | {"k": 10**9},
    "a phase that is none": lambda body: body | {"phase": 1},
    "a beginning before it": lambda body: body | {"began": 1},
    "an array of another length": with_field("arrays", lambda each: [["X", [2, 2], b"12345678"], *each[1:]]),
    "an array of negative length": with_field("arrays", lambda each: [["X", [-1], b"12345678"], *each[1:]]),
    "a huge array": with_field("arrays", lambda each: [["X", [2**40, 2**40], b""], *each[1:]]),
    "a streak beyond the diameter": lambda body: body | {"stop": [9, None]},
    "an end before the round": lambda body: body | {"stop": [0, 1]},
    "a stop of three": lambda body: body | {"stop": [0, None, 1]},
    "no neighbor": lambda body: body | {"fallbacks": []},
    "another neighbor": lambda body: body | {"fallbacks": [[5, 0]]},
    "one neighbor more": lambda body: body | {"fallbacks": [[1, 0], [2, 0]]},
    "another that is done": lambda body: body | {"done": [3]},
    "calm rounds beyond the diameter": lambda body: body | {"calm": bytes(9)},
    "another that was born": lambda body: body | {"births": [[3, "x"]]},
    "blocks with a gap": with_blocks(lambda number, block: block if number else put(0, 2)(block)),
    "blocks from beyond": with_blocks(lambda _, block: put(0, block[0] + 7)(block)),
    "a block of another shape": with_blocks(lambda _, block: put(2, [3, 1])(block)),
    "a block with other bytes": with_blocks(lambda _, block: put(1, b"1234")(block)),
    "a block of another kind": with_blocks(lambda _, block: put(6, "int9")(block)),
    "a block to a stranger": with_blocks(lambda _, block: put(7, [7])(block)),
    "a block with a step that is none": with_blocks(lambda _, block: put(3, float("nan"))(block)),
    "a finding of another shape": lambda body: body | {"found": [[], None, [["X", [1], b"12345678"]]]},
    "a finding in bytes": lambda body: body | {"found": [[], None, [["X", None, b"12345678"]]]},
    "a phase that has not been": lambda body: body | {"found": [[["mean", 1, None]], None, []]},
    "an end of another form": lambda body: body | {"found": [[["mean", "x", 3]], None, []]},
    "deep nesting": with_field("found", lambda _: nested(400)),
}


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("what", MALFORMED)
def test_the_earlier_is_used_where_the_newest_has_a_right_checksum_and_no_sense(store, newest, what):
    assert_only_the_earlier_is_used(store, newest, with_body(newest.read_bytes(), MALFORMED[what]))


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\x91" * 2000])
def test_the_only_one_is_refused_where_its_body_is_no_msgpack_at_all(store, only, body):
    version = only.read_bytes()[8:12]
    content = only.read_bytes()[:12] + hashlib.sha256(version + body).digest() + body
    assert_nothing_is_intact(store, only, content)


@pytest.mark.parametrize("name", ["0-000000000009.ckpt", "0-e1-000000000007.ckpt"])
def test_a_checkpoint_under_another_name_is_damaged(store, newest, name):
    newest.rename(newest.with_name(name))
    if "e1" in name:
        with pytest.raises(CheckpointError, match="is intact"):
            store.load()
    else:
        assert store.load().k == 3


def wrong_states():
    """States that are none of phase thanos of a pair, by what is wrong with them."""
    right = memory_of_round(3).arrays
    return {
        "of shape (1, 2)": right | {"X": right["X"].T},
        "bytes": right | {"X": b"12345678"},
        "must have": {"X": right["X"]},
        "must have ": right | {"Z": right["X"]},
        "no step leads to": right | {"X": right["X"] * np.nan},
        "no step leads to ": right | {"D": right["D"] * 1e200},
    }


@pytest.mark.parametrize("what", wrong_states())
def test_an_agent_does_not_go_on_from_what_is_no_state_of_its_phase(what):
    instance = make_instance(family="path", d=2, n=2, p=1)
    memory = replace(memory_of_round(3), arrays=wrong_states()[what])
    with pytest.raises(WrongStateError, match=re.escape(what.strip())):
        Agent(instance.topology, 0, instance.plan(0), memory)


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: arrays | {"partial": b"1234"},
        lambda arrays: arrays | {"partial": np.ones(3)},
        lambda arrays: arrays | {"word": np.ones(99)},
        lambda arrays: arrays | {"omen": np.ones(1)},
        lambda arrays: arrays | {"root.X": np.ones((9, 9))},
        lambda arrays: {name: each for name, each in arrays.items() if name != "partial"},
        lambda arrays: {name: each for name, each in arrays.items() if name != "root.X"} | {"root.Q": np.ones(1)},
    ],
)
def test_an_agent_does_not_go_on_from_what_is_no_state_of_a_sum(change):
    raw = raw_topology("path", 3)
    exact("proximal")(raw)
    instance = make_instance(raw)
    network, root = AgentNetwork(instance), instance.topology.graph.tree.root
    while network.agents[root].runner.phase.name != "proximal":
        network.advance()
    memory = network.agents[root].memory()
    assert Agent(instance.topology, root, instance.plan(root), memory).runner.phase.name == "proximal"
    with pytest.raises(WrongStateError):
        Agent(instance.topology, root, instance.plan(root), replace(memory, arrays=change(memory.arrays)))


def test_checkpoints_and_their_directory_are_for_their_owner_alone(tmp_path):
    with open_store(tmp_path / "state") as store:
        store.save(memory_of_round(3))
        assert {stat.S_IMODE(path.stat().st_mode) for path in store.directory.iterdir()} == {0o600}
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700


def test_a_lock_that_is_a_link_is_refused_and_what_it_leads_to_is_not_touched(tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"mine")
    (tmp_path / "0.lock").symlink_to("elsewhere")
    with pytest.raises(CheckpointError, match=r"0\.lock: it is a symbolic link, not a regular file"):
        open_store(tmp_path)
    assert (tmp_path / "elsewhere").read_bytes() == b"mine"


def test_a_lock_that_is_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "0.lock")
    with pytest.raises(CheckpointError, match=r"0\.lock: it is a pipe, not a regular file"):
        open_store(tmp_path)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_checkpoint_that_is_a_pipe_or_a_link_is_damaged(store, newest, make, caplog):
    newest.unlink()
    make(newest)
    assert store.load().k == 3
    assert "not a regular file" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_a_checkpoint_of_another_user_is_refused(store, newest, monkeypatch):
    os.chown(newest, 54321, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(CheckpointError, match=r"is not this peer's: it belongs to user 54321.*--fresh"):
        store.load()


def test_a_second_store_of_the_same_peer_is_refused_and_names_the_process(store, tmp_path):
    with pytest.raises(StateInUseError) as caught:
        open_store(tmp_path)
    # The neighbors are told nothing in the first one's name.
    assert caught.value.in_short == ""
    for part in ("peer 0", str(tmp_path), f"process {os.getpid()}", "--state"):
        assert part in str(caught.value)
    store.save(memory_of_round(1))
    assert store.load().k == 1


def test_a_second_process_of_the_same_peer_is_refused_and_names_the_first(tmp_path):
    holding = (
        "import fcntl, os, sys\n"
        "file = open(sys.argv[1], 'w')\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "print(os.getpid(), file=file, flush=True)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", holding, tmp_path / "0.lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with ended_afterwards(other):
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(CheckpointError, match=f"process {other.pid}"):
            open_store(tmp_path)
        other.kill()
        other.wait()
        with open_store(tmp_path) as store:
            assert store.load() is None


def test_another_peer_may_use_the_same_directory(store, tmp_path):
    with open_store(tmp_path, agent=1) as other:
        store.save(memory_of_round(1))
        other.save(memory_of_round(2, neighbors=(0,)))
        assert (store.load().k, other.load().k) == (1, 2)


def test_a_store_that_is_closed_may_be_opened_again(tmp_path):
    for k in range(3):
        with open_store(tmp_path) as store:
            store.save(memory_of_round(k))


@pytest.mark.parametrize("below", ["", "deep/er"])
def test_a_directory_that_cannot_be_made_is_refused(tmp_path, below):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CheckpointError, match="cannot keep the state in") as caught:
        open_store(tmp_path / "file" / below)
    assert str(tmp_path / "file" / below) in str(caught.value)


def test_a_directory_where_nothing_can_be_made_is_refused():
    with pytest.raises(CheckpointError, match="cannot keep the state in /proc"):
        open_store(Path("/proc"))


def test_a_checkpoint_that_cannot_be_written_leaves_the_earlier_ones_as_they_were(store, newest):
    obstacle = newest.with_name("0-000000000009.ckpt.new")
    obstacle.mkdir()
    with pytest.raises(CheckpointError, match="cannot save the state to") as caught:
        store.save(memory_of_round(9))
    assert "0-000000000009.ckpt" in str(caught.value)
    assert bits_of(store.load()) == bits_of(replace(memory_of_round(7), fallback=3))
    obstacle.rmdir()
    store.save(memory_of_round(9))
    assert store.load().k == 9


def test_a_checkpoint_that_cannot_be_read_is_damaged_and_the_earlier_one_is_used(store, newest, caplog):
    newest.unlink()
    # Reads of a directory fail, as those of a bad sector do.
    newest.mkdir()
    assert bits_of(store.load()) == bits_of(memory_of_round(3))
    assert f"{newest} is damaged (cannot be read: it is a directory, not a regular file)" in caplog.text


def test_a_checkpoint_of_a_topology_with_many_more_peers_is_refused_all_the_same(tmp_path):
    large, small = make_instance(d=12), make_instance(d=4)
    with CheckpointStore(tmp_path, large.topology, 0, is_flushed=False) as store:
        store.save(AgentNetwork(large).agents[0].memory())
    with (
        CheckpointStore(tmp_path, small.topology, 0, is_flushed=False) as store,
        pytest.raises(CheckpointError, match=r"is of peer 0 of the topology [0-9a-f]{16}, this is peer 0 of "),
    ):
        store.load()


@pytest.mark.parametrize("is_flushed", [True, False])
def test_a_name_is_given_only_to_what_has_reached_the_disk(tmp_path, monkeypatch, is_flushed):
    happened = []
    fsync, replace_ = os.fsync, Path.replace

    def note_fsync(descriptor):
        happened.append(("flush", Path(f"/proc/self/fd/{descriptor}").readlink().name))
        fsync(descriptor)

    def note_replace(old, new):
        happened.append(("name", new.name))
        return replace_(old, new)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    with open_store(tmp_path / "above" / "state", is_flushed=is_flushed) as store:
        store.save(memory_of_round(3))
    named = ("name", "0-000000000003.ckpt")
    if is_flushed:
        directories = [("flush", "above"), ("flush", tmp_path.name)]
        assert happened == [*directories, ("flush", "0-000000000003.ckpt.new"), named, ("flush", "state")]
    else:
        assert happened == [named]
    happened.clear()
    X = np.eye(3)
    PeerFiles(tmp_path / "run", make_instance().topology, 0).write(X, X, X, {"is_done": True})
    assert happened[-9:] == [
        step
        for name in ("0.csv", "0.npz", "0.json")
        for step in (("flush", f"{name}.new"), ("name", name), ("flush", "peers"))
    ]


def test_clearing_removes_damaged_ones_too_which_hold_secrets_but_not_those_of_other_peers(
    store, newest, tmp_path
):
    newest.write_bytes(newest.read_bytes()[:-1])
    other = tmp_path / "11-000000000009.damaged"
    other.write_bytes(b"not mine")
    store.load()
    assert len(list(tmp_path.glob("0-*.damaged"))) == 1
    store.clear()
    assert [*tmp_path.glob("*.damaged"), *tmp_path.glob("0-*")] == [other]


def test_clearing_removes_all_checkpoints_but_nothing_else(store, newest, tmp_path):
    assert newest.exists()
    (tmp_path / "notes.txt").write_bytes(b"mine")
    store.clear()
    assert store.files() == []
    assert store.load() is None
    assert (tmp_path / "notes.txt").read_bytes() == b"mine"
    store.clear()
    store.save(memory_of_round(0))
    assert store.load().k == 0


# ---------------------------------------------------------------------- end to end


@pytest.fixture
def pair(tmp_path):
    return write_topology(tmp_path / "net.toml", "path", 2, max_rounds=20, n=2, p=1)


def save_of(topology, directory):
    """A checkpoint of peer 0 in the directory where it looks for one."""
    with open_store(directory, topology) as store:
        store.save(memory_of_round(3))
        return store.files()[0]


def refusal_of_peer_0(topology, out):
    """The one line with which it ends, with code 8."""
    done = subprocess.run(
        command("start", "--id", 0, "--topology", topology.file, "--out", out),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 8, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1, done.stderr
    assert done.stderr.splitlines()[-1] == errors[0]
    return errors[0]


def assert_a_fresh_run_works(topology, out):
    peers = [start_peer(topology, i, out, "--fresh") for i in range(topology.d)]
    with ended_afterwards(*peers):
        assert [peer.wait(60) for peer in peers] == [0] * topology.d
    assert_same_bits(out, topology)


def test_a_peer_whose_only_checkpoint_is_damaged_says_so_and_begins_anew_when_told(pair, tmp_path):
    path = save_of(pair, tmp_path / "run.state")
    path.write_bytes(flipped(path.read_bytes(), 100, 0xFF))
    error = refusal_of_peer_0(pair, tmp_path / "run")
    for part in (str(tmp_path / "run.state"), path.name, "--fresh"):
        assert part in error
    assert path.exists()
    assert_a_fresh_run_works(pair, tmp_path / "run")


def test_a_peer_with_a_checkpoint_of_another_topology_says_so_and_begins_anew_when_told(pair, tmp_path):
    other = write_topology(tmp_path / "other.toml", "path", 2, max_rounds=21, n=2, p=1)
    path = save_of(other, tmp_path / "run.state")
    error = refusal_of_peer_0(pair, tmp_path / "run")
    for part in (str(path), pair.digest[:16], other.digest[:16], "--fresh"):
        assert part in error
    assert path.exists()
    assert_a_fresh_run_works(pair, tmp_path / "run")


def refused(topology, *options):
    """Why peer 0 ends with code 8."""
    done = subprocess.run(
        command("start", "--id", 0, "--topology", topology.file, *options),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 8, done.stderr
    return done.stderr


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_state_that_cannot_be_gone_on_from_is_told_to_the_neighbors_in_the_latest_epoch(pair, tmp_path, epoch):
    with open_store(tmp_path / "run.state", pair) as store:
        store.save(replace(memory_of_round(3), epoch=epoch))
        (path,) = store.files()
    path.write_bytes(b"")
    with puppets_around(pair, 0) as puppets:
        assert "is intact" in refused(pair, "--out", tmp_path / "run")
        assert puppets[1].wait_for(Bye, epoch=epoch) == Bye(0, CheckpointError.in_short)


def test_a_directory_that_cannot_keep_the_state_is_told_to_the_neighbors(pair, tmp_path):
    (tmp_path / "file").touch()
    options = "--out", tmp_path / "run", "--state", tmp_path / "file"
    with puppets_around(pair, 0) as puppets:
        assert f"cannot keep the state in {tmp_path / 'file'}" in refused(pair, *options)
        assert puppets[1].wait_for(Bye) == Bye(0, CheckpointError.in_short)


def test_a_second_peer_with_the_state_of_the_first_says_nothing(pair, tmp_path):
    # Another address is bound: at its own, the peer could not reach any neighbor.
    bind = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    with open_store(tmp_path / "run.state", pair), puppets_around(pair, 0) as puppets:
        why = refused(pair, "--out", tmp_path / "run", "--bind", bind)
        assert why.splitlines()[0].startswith("Error: peer 0 runs already")
        assert puppets[1].listen() == []


def test_a_directory_that_may_be_entered_but_not_listed_is_named(tmp_path):
    need()
    for folder in (tmp_path, *tmp_path.parents[:-2]):  # pytest's own, of this user alone
        folder.chmod(0o711)
    (tmp_path / "state").mkdir(mode=0o711)
    os.seteuid(65534)
    try:
        with pytest.raises(CheckpointError, match=f"state of peer 0 in {tmp_path}/state: Permission denied"):
            checkpoint.checkpoints_in(tmp_path / "state", 0)
        assert checkpoint.latest_epoch_in(tmp_path / "state", 0) == 0
    finally:
        os.seteuid(0)
