"""Blocks in files beside the checkpoints: all come back whatever a kill leaves, or it is said which do not."""

import os
import stat
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memories import bits_of, flipped, with_body
from networks import make_instance, make_topology, raw_topology

from thanos_peer.agent import Agent, Memory
from thanos_peer.block import Block, StopWord
from thanos_peer.errors import CheckpointError
from thanos_peer.simulate import AgentNetwork
from thanos_peer.storage import block_files
from thanos_peer.storage.checkpoint import CheckpointStore
from thanos_peer.storage.checkpoint_fields import VERSION, packed_blocks
from thanos_peer.storage.state_files import Sealed

PAIR = make_topology(family="path", d=2, n=2, p=1)
# Bytes of a block of these tests, as they are counted.
EACH = 32 + 64


@pytest.fixture(autouse=True, scope="module")
def three_blocks_get_a_file():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_files, "MOST_BYTES", 3 * EACH)
        yield


def open_store(directory, agent=0, topology=PAIR, *, is_flushed=False):
    return CheckpointStore(directory, topology, agent, is_flushed=is_flushed)


def memory_of(k, first=0, *, epoch=0, neighbors=(1,)):
    """A memory with all blocks since some round."""
    X = np.array([[0.5 + k], [1.0]])
    blocks = tuple(Block.of(at, X * 0 + at, X * 0 - at, 0.1, StopWord(), min(at, 2)) for at in range(first, k))
    arrays = {"X": X, "D": -X, "H": X / 3, "eta": np.asarray(0.1 + k)}
    return Memory(k, arrays, StopWord(1), blocks, dict.fromkeys(neighbors, first), k, epoch)


def with_fallback(memory, fallback):
    before, after = bits_of(memory)[:4], bits_of(memory)[5:]
    return (*before, fallback, *after)


def rounds_of(memory):
    return [block.k for block in memory.said]


def names(directory, ending="said"):
    return sorted(path.name for path in Path(directory).glob(f"*.{ending}"))


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path) as opened:
        yield opened


@pytest.fixture
def files(store, tmp_path):
    """Two files: of rounds 0 to 3, which both checkpoints need, and of 4 to 8, which only the later does."""
    store.save(memory_of(4))
    store.save(memory_of(9))
    assert names(tmp_path, "ckpt") == ["0-000000000004.ckpt", "0-000000000009.ckpt"]
    assert names(tmp_path) == ["0-000000000004.said", "0-000000000009.said"]
    return tmp_path / "0-000000000004.said", tmp_path / "0-000000000009.said"


# ---------------------------------------------------------------------- kills


class KilledError(BaseException):
    """A kill -9 strikes."""


def save_and_be_killed(store, memory, names_given):
    """Save, and be killed before one more file than these has its name; returns whether that happened."""
    give_name, unlink, given_names = Path.replace, Path.unlink, 0

    def replace_or_die(old, new):
        nonlocal given_names
        if given_names == names_given:
            raise KilledError
        given_names += 1
        return give_name(old, new)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", replace_or_die)
        # Nothing is removed any more.
        patch.setattr(Path, "unlink", lambda path, **how: path.suffix == ".new" or unlink(path, **how))
        try:
            store.save(memory)
        except KilledError:
            return True
    return False


STEPS = st.tuples(st.integers(0, 6), st.integers(0, 12), st.sampled_from([None, None, 0, 1]), st.booleans())


@given(st.lists(STEPS, min_size=1, max_size=25))
def test_whatever_kills_leave_the_latest_checkpoint_comes_back_with_all_its_blocks(steps):
    """Rounds pass, more or fewer blocks are needed, and kills strike before files have their names."""
    with TemporaryDirectory() as directory:
        saved, first, store = {0: memory_of(0)}, 0, open_store(Path(directory))
        store.save(saved[0])
        for rounds, kept, names_given, begins_anew in steps:
            k = max(saved) + rounds
            first = max(first, k - kept)
            memory, is_killed = memory_of(k, first), False
            if names_given is None:
                store.save(memory)
            else:
                is_killed = save_and_be_killed(store, memory, names_given)
            saved |= {} if is_killed else {k: memory}
            if is_killed or begins_anew:
                store.__exit__()
                store = open_store(Path(directory))
                first = saved[max(saved)].fallbacks[1]
                assert names(directory, "new") == []
                before = sorted(saved)[-2] if len(saved) > 1 else 0
                assert bits_of(store.load()) == with_fallback(saved[max(saved)], before)
        # Whatever is no longer needed is gone once two checkpoints have been written.
        for k in (max(saved) + 1, max(saved) + 2):
            store.save(memory_of(k, max(first, k - 4)))
        contents = [msgpack.unpackb(path.read_bytes()[44:]) for path in store.files()]
        assert set(names(directory)) == {f"0-{end:012}.said" for each in contents for _, end, _ in each["parts"]}
        store.__exit__()


def test_agents_go_on_with_the_same_bits_from_blocks_in_files(tmp_path):
    instance = make_instance(raw_topology("path", 3, max_rounds=40, tolerance=0.0))
    network, again = AgentNetwork(instance), AgentNetwork(instance)
    for agent in (*network.agents, *again.agents):
        agent.fallback = 0
    while not network.is_done:
        network.advance()
        again.advance()
        for i, agent in enumerate(again.agents):
            with open_store(tmp_path, i, instance.topology) as store:
                if agent.k > 1:
                    store.load()
                store.save(agent.memory())
            with open_store(tmp_path, i, instance.topology) as store:
                loaded = store.load()
            assert rounds_of(loaded) == list(range(agent.k))
            # All keep all blocks.
            loaded = replace(loaded, fallback=0)
            again.agents[i] = Agent(instance.topology, i, instance.plan(i), loaded)
    assert len(names(tmp_path)) > 30
    for one, other in zip(network.agents, again.agents, strict=True):
        assert bits_of(one.memory()) == bits_of(other.memory())


def test_a_checkpoint_has_its_name_after_the_blocks_that_it_names_are_on_the_disk(tmp_path, monkeypatch):
    happened = []
    fsync, give_name = os.fsync, Path.replace

    def note_fsync(descriptor):
        happened.append(("flush", Path(f"/proc/self/fd/{descriptor}").readlink().name))
        fsync(descriptor)

    def note_replace(old, new):
        happened.append(("name", new.name))
        return give_name(old, new)

    with open_store(tmp_path, is_flushed=True) as store:
        monkeypatch.setattr(os, "fsync", note_fsync)
        monkeypatch.setattr(Path, "replace", note_replace)
        store.save(memory_of(4))
    assert happened == [
        step
        for name in ("0-000000000004.said", "0-000000000004.ckpt")
        for step in (("flush", f"{name}.new"), ("name", name), ("flush", tmp_path.name))
    ]


# ---------------------------------------------------------------------- what is damaged


def test_the_earlier_is_used_whichever_byte_of_the_newest_blocks_is_damaged(store, files, tmp_path):
    content, newest = files[1].read_bytes(), store.files()[-1]
    kept = newest.read_bytes()
    for at in range(len(content)):
        files[1].write_bytes(flipped(content, at, 0x80))
        assert bits_of(store.load()) == bits_of(memory_of(4))
        assert names(tmp_path, "damaged") == ["0-000000000009.damaged"]
        newest.write_bytes(kept)


DAMAGES = {
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "empty": lambda path: path.write_bytes(b""),
    "gone": Path.unlink,
    "a directory": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a link": lambda path: (path.rename(path.with_suffix(".x")), path.symlink_to(path.with_suffix(".x"))),
    "another": lambda path: path.write_bytes(Sealed.of(VERSION, msgpack.packb(memory_of(9, 1).said)).content),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_the_earlier_is_used_where_the_newest_blocks_are_something_else(store, files, what):
    DAMAGES[what](files[1])
    assert bits_of(store.load()) == bits_of(memory_of(4))


@pytest.mark.parametrize("what", DAMAGES)
def test_a_peer_goes_on_without_blocks_that_both_checkpoints_have_lost(store, files, what, tmp_path, caplog):
    DAMAGES[what](files[0])
    memory = store.load()
    assert (memory.k, memory.fallback, rounds_of(memory)) == (9, 4, [4, 5, 6, 7, 8])
    assert f"{store.files()[-1]} is damaged (0-000000000004.said: " in caplog.text
    assert "going on from round 9 without the blocks before round 4" in caplog.text
    assert names(tmp_path, "damaged") == []
    for k in (10, 13):
        store.save(memory_of(k, 4))
    assert rounds_of(store.load()) == list(range(4, 13))


def test_without_any_intact_file_a_peer_goes_on_with_the_latest_blocks_alone(store, files):
    store.save(memory_of(10))
    for path in files:
        path.unlink()
    memory = store.load()
    assert (memory.k, memory.fallback, rounds_of(memory)) == (10, 9, [9])


def test_blocks_of_another_user_are_refused(store, files, monkeypatch):
    def is_of(path):
        raise CheckpointError(f"{path} is not this peer's")

    read = block_files.read_sealed
    monkeypatch.setattr(block_files, "read_sealed", lambda path: is_of(path) if path == files[1] else read(path))
    with pytest.raises(CheckpointError, match=r"0-000000000009.said is not this peer's"):
        store.load()


MALFORMED = {
    **{repr(value): lambda _, value=value: value for value in (None, 1, "x", [[]], {}, [[0, 4]], [[0, 4, "x"]])},
    "a gap": lambda parts: [parts[0], [5, *parts[1][1:]]],
    "twice the same": lambda parts: [parts[0], *parts],
    "in another order": lambda parts: parts[::-1],
    "no rounds": lambda parts: [*parts, [9, 9, b""]],
    "one less": lambda parts: parts[:1],
    "fewer blocks than needed": lambda parts: [parts[0], [4, 8, parts[1][2]]],
    "a negative round": lambda parts: [[-1, *parts[0][1:]], parts[1]],
}


@pytest.mark.parametrize("what", MALFORMED)
def test_the_earlier_is_used_where_the_newest_names_files_that_cannot_be(store, files, what):
    assert files[0].exists()
    newest = store.files()[-1]
    content = with_body(newest.read_bytes(), lambda body: body | {"parts": MALFORMED[what](body["parts"])})
    newest.write_bytes(content)
    assert bits_of(store.load()) == bits_of(memory_of(4))


BODIES = {
    "no msgpack": b"\xc1",
    "no list": msgpack.packb(4),
    "no blocks": msgpack.packb([4, 5, 6, 7, 8]),
    "other rounds": msgpack.packb(memory_of(8, 3).said),
    "a block too many": msgpack.packb(memory_of(10, 4).said),
    "a block of another shape": msgpack.packb([block._replace(shape=(7, 1)) for block in memory_of(9, 4).said]),
}


@pytest.mark.parametrize("what", BODIES)
def test_the_earlier_is_used_where_blocks_have_right_checksums_and_no_sense(store, files, what):
    sealed, newest = Sealed.of(VERSION, BODIES[what]), store.files()[-1]

    def change(body):
        first, second = body["parts"]
        return body | {"parts": [first, [*second[:2], sealed.checksum]]}

    files[1].write_bytes(sealed.content)
    newest.write_bytes(with_body(newest.read_bytes(), change))
    assert bits_of(store.load()) == bits_of(memory_of(4))


def test_blocks_of_a_newer_format_are_refused(store, files):
    sealed, newest = Sealed.of(VERSION + 1, msgpack.packb(memory_of(9, 4).said)), store.files()[-1]
    files[1].write_bytes(sealed.content)
    change = lambda body: body | {"parts": [body["parts"][0], [4, 9, sealed.checksum]]}  # noqa: E731
    newest.write_bytes(with_body(newest.read_bytes(), change))
    with pytest.raises(CheckpointError, match=f"has blocks of format {VERSION + 1}; go on with the version"):
        store.load()


# ---------------------------------------------------------------------- what else there is


def test_a_checkpoint_of_format_6_with_all_its_blocks_is_gone_on_from(store, tmp_path):
    store.save(memory_of(2))
    store.save(memory_of(9))
    named = msgpack.unpackb(store.files()[-1].read_bytes()[44:], use_list=False)
    del named["parts"]
    body = msgpack.packb(named | {"said": packed_blocks(memory_of(9).said)})
    store.files()[-1].write_bytes(Sealed.of(6, body).content)
    for path in tmp_path.glob("*.said"):
        path.unlink()
    with_all = store.load()
    assert bits_of(with_all) == with_fallback(memory_of(9), 2)
    store.save(memory_of(10))
    assert names(tmp_path) == ["0-000000000010.said"]
    assert bits_of(store.load()) == with_fallback(memory_of(10), 9)


def test_blocks_of_an_earlier_epoch_go_with_its_checkpoints(store, files, tmp_path):
    store.save(memory_of(0, epoch=1))
    store.save(memory_of(5, epoch=1))
    of_epoch = ["0-e1-000000000005.said"]
    assert names(tmp_path) == [*(path.name for path in files), *of_epoch]
    store.save(memory_of(6, epoch=1))
    store.forget_epochs_before(1)
    assert names(tmp_path) == of_epoch
    assert bits_of(store.load()) == with_fallback(memory_of(6, epoch=1), 5)


def test_a_fresh_start_removes_the_blocks_too_and_those_of_other_peers_stay(tmp_path):
    topology = make_topology(family="path", d=12, n=2, p=1)
    with open_store(tmp_path, 1, topology) as one, open_store(tmp_path, 11, topology) as eleven:
        for k in (4, 9):
            one.save(memory_of(k, neighbors=(0, 2)))
            eleven.save(memory_of(k, neighbors=(10,)))
        one.clear()
        assert names(tmp_path) == ["11-000000000004.said", "11-000000000009.said"]
        assert bits_of(eleven.load()) == with_fallback(memory_of(9, neighbors=(10,)), 4)
        # Another run of the same rounds.
        one.save(memory_of(9, 6, neighbors=(0, 2)))
        assert bits_of(one.load()) == bits_of(memory_of(9, 6, neighbors=(0, 2)))


def test_files_with_blocks_are_for_their_owner_alone_and_no_link_is_followed(store, tmp_path):
    (tmp_path / "mine").write_bytes(b"mine")
    for name in ("0-000000000004.said", "0-000000000004.said.new"):
        (tmp_path / name).symlink_to(tmp_path / "mine")
    store.save(memory_of(4))
    path = tmp_path / "0-000000000004.said"
    assert not path.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (tmp_path / "mine").read_bytes() == b"mine"
    assert bits_of(store.load()) == bits_of(memory_of(4))


def test_blocks_that_cannot_be_written_leave_the_checkpoints_as_they_were(store, files, tmp_path):
    assert files[0].exists()
    obstacle = tmp_path / "0-000000000014.said.new"
    obstacle.mkdir()
    with pytest.raises(CheckpointError, match="cannot save the state to"):
        store.save(memory_of(14))
    assert bits_of(store.load()) == with_fallback(memory_of(9), 4)
    obstacle.rmdir()
    store.save(memory_of(14))
    assert bits_of(store.load()) == with_fallback(memory_of(14), 9)
