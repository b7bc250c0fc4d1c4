"""What must hold for any conversation with a peer: it goes on, or ends with an error of the one tree.

An input is a script of what neighbors and strangers say: hellos, blocks and byes with right and wrong fields, and
frames of any bytes, in any order. A real `Peer` runs on a real event loop; its sockets are real too, but are
opened once for all inputs, and lead to nobody. Frames are handed over where those that arrive are. What the peer
answers must be sound, and what it logs must be short and printable.

The bits of the first byte say how the peer was started, and whether its run begins with sums. If with keys, each
frame comes with the id that belongs to some key, the sender's or another's, and nothing may be heard of a neighbor
but what came with its own.
"""

import asyncio
import atexit
import contextlib
import functools
import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from fuzz.decoder import check_line, check_message
from networks import make_instance, raw_topology

from thanos_peer.agent import Agent
from thanos_peer.block import PAIR, WORD, AgentId, Block, StopWord, bytes_each
from thanos_peer.errors import ThanosPeerError
from thanos_peer.problem import Instance
from thanos_peer.protocol.wire import LARGEST_ROUND, Bye, Codec, Hello
from thanos_peer.runtime import peer as peer_module
from thanos_peer.runtime.checkpoint import CheckpointStore
from thanos_peer.runtime.links import Links
from thanos_peer.runtime.peer import Peer
from thanos_peer.runtime.waiting import Patience

ME, NEIGHBORS = 0, (1, 3)
N, P = 3, 2
MOST_GROUPS = 20
LONGEST_LINE = 700  # characters
NUMBERS = (0, 1, 2, 3, 5, 7, 1000, LARGEST_ROUND)
FEATURES = "ff" * 32  # the digest of their names, where the peer's features have some
TEXTS = ("float64", "float32", "", "done", "SIGTERM", FEATURES, "a\nb", "\x1b[2J", "caf\u00e9", "x" * 65)
LONGER_TEXTS = (*TEXTS, "it waits for peer 2", "0f" * 32, "x" * 128, "x" * 129)
VARIED = ("life", "answered", "oldest", "epoch", "n", "p", "dtype", "digest", "software", "trouble", "features")
assert {field.name for field in fields(Hello)} == {*VARIED, "k", "is_asking"}, "a field of Hello never varies"


@dataclass(frozen=True)
class Said:
    """A frame as it arrives.

    Attributes:
        frame: What was sent.
        speaker: Whose key it came with; None without keys.
        claimed: Who it says that it is from; None if that is for the peer to find out.
    """

    frame: bytes
    speaker: AgentId | None = None
    claimed: AgentId | None = None


@dataclass(frozen=True)
class Scene:
    """How the peer was started."""

    restarts_tracking: bool = False
    has_keys: bool = False
    has_features: bool = False
    is_hasty: bool = False  # epochs may follow each other at once
    has_sums: bool = False  # its run begins with phases that sum

    @classmethod
    def of(cls, byte: int) -> "Scene":
        return cls(*(bool(byte & bit) for bit in (0x80, 1, 2, 4, 8)))


Speech: TypeAlias = Callable[[Agent, int], Iterator[list[Said]]]  # given the peer's agent and life


def codec_of(digest: str, epoch: int = 0, forms: Iterable[tuple[str, tuple[int, int]]] = ()) -> Codec:
    return Codec(digest, n=N, p=P, dtype="float64", epoch=epoch, forms=forms)


class Script:
    """Reads choices from the bytes of an input; when they are used up, every choice is the first."""

    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    @property
    def is_over(self) -> bool:
        return self._place >= len(self._data)

    def byte(self) -> int:
        self._place += 1
        return 0 if self._place > len(self._data) else self._data[self._place - 1]

    def bytes(self, count: int) -> bytes:
        self._place += count
        return self._data[self._place - count : self._place]

    def one_of(self, choices):
        return choices[self.byte() % len(choices)]


class Speaker:
    """Makes frames as a script says, about the round that the peer is in."""

    def __init__(
        self, script: Script, agent: Agent, digest: str, lives: tuple[int, ...], *, has_keys: bool
    ) -> None:
        self._script, self._agent, self._digest, self._lives = script, agent, digest, lives
        self._has_keys = has_keys
        self._latest = b"", None

    def said(self) -> Said:
        frame, claimed = self._frame()
        if not self._has_keys:
            return Said(frame)
        whose = claimed if claimed in (ME, *NEIGHBORS) else NEIGHBORS[0]  # nobody else has a key that is let in
        return Said(frame, self._script.one_of((whose, whose, whose, *NEIGHBORS, ME)), claimed)

    def _frame(self) -> tuple[bytes, AgentId | None]:
        script = self._script
        kind = script.byte() % 8
        if kind == 7:
            return self._latest
        if kind == 6:
            return script.bytes(script.byte()), None
        message = (self._hello, self._block, self._block, self._hello, self._bye, self._block)[kind]()
        epoch = script.one_of((self._agent.epoch, self._agent.epoch, self._agent.epoch, 0, 1, 2))
        claimed = script.one_of((*NEIGHBORS, *NEIGHBORS, ME, 2, 77))
        self._latest = codec_of(self._digest, epoch, self._agent.forms).encode(claimed, message), claimed
        return self._latest

    def _round(self) -> int:
        k = self._agent.k
        return max(0, self._script.one_of((k, k, k + 1, k - 1, k + 2, k - 3, *NUMBERS)))

    def _hello(self) -> Hello:
        script = self._script
        hello = Hello(
            self._round(), self._digest, N, P, "float64", "1", script.one_of((True, False)), self._lives[0]
        )
        for _ in range(script.byte() % 4):
            name = script.one_of(VARIED)
            is_text = isinstance(getattr(hello, name), str)
            hello = replace(hello, **{name: script.one_of(LONGER_TEXTS if is_text else (*self._lives, *NUMBERS))})
        return hello

    def _block(self) -> Block:
        script, k = self._script, self._round()
        X = np.eye(N, P) * script.one_of((1.0, 0.5, -1.0, 0.0, 1e155, 1e300, 5e-324, np.nan))
        D = np.ones((N, P)) * script.one_of((0.0, 1e-9, 1.0, 1e155, 1e300, np.inf))
        after = script.one_of((None, None, k + 1, k + 3, k, *NUMBERS))
        stop = StopWord(script.one_of(NUMBERS), after)
        block = Block.of(
            k, X, D, script.one_of((0.1, 0.0, 1e-300, 1e300, np.inf)), stop, script.one_of((k, 0, *NUMBERS))
        )
        sums = sorted(form for form in self._agent.forms if form[0] != PAIR)
        return block if not sums else self._summed(block, script.one_of((*sums, (PAIR, (N, P)))))

    def _summed(self, block: Block, form: tuple[str, tuple[int, int]]) -> Block:
        """The same with numbers of a sum, all of them alike."""
        kind, (rows, columns) = form
        if kind == PAIR:
            return block
        number = self._script.one_of((1.0, 0.0, -1.0, 1e155, 1e300, np.nan))
        whole = self._script.one_of((1, 0, 0xFF, 0x7F)).to_bytes(1, "little")
        count = rows * columns
        numbers = np.full(count, number).tobytes() if kind == WORD else whole * (count * bytes_each(kind))
        return block._replace(kind=kind, shape=(rows, columns), numbers=numbers)

    def _bye(self) -> Bye:
        k, choice = self._round(), self._script.byte()
        return Bye(k, TEXTS[::-1][choice % len(TEXTS)], NUMBERS[choice // len(TEXTS) % len(NUMBERS)])


class OpenLinks(Links):
    """Sockets that stay open from one peer to the next, and note what is sent."""

    def pass_to(self, on_frames) -> "OpenLinks":
        self._on_frames, self.sent, self.came_with = on_frames, [], Counter()
        return self

    def hand_over(self, frames: list[Said]) -> None:
        self.came_with += Counter(said.speaker for said in frames if said.claimed in (None, said.speaker))
        self._on_frames([said.frame for said in frames], [said.speaker for said in frames])

    def send(self, neighbors, frame):
        self.sent.append(frame)
        return super().send(neighbors, frame)

    def close(self, *, linger) -> None:
        """Leave them open."""


class Lines(logging.Handler):
    """All that is logged must be one short line; they are counted."""

    count = 0

    def emit(self, record) -> None:
        self.count += 1
        check_line(record.getMessage(), LONGEST_LINE)


class Stage:
    """Where all conversations take place: a loop, sockets, and an instance to be the peer of."""

    def __init__(self) -> None:
        directory = tempfile.TemporaryDirectory(prefix="fuzz")
        atexit.register(directory.cleanup)
        raw = raw_topology("ring", 4, n=N, p=P, max_rounds=6, tolerance=1e-3)
        for peer in raw["peers"]:
            peer["address"] = f"ipc://{Path(directory.name) / str(peer['id'])}"
        self.instance = make_instance(raw)
        raw["algorithm"]["start"] = {"kind": "leading"}
        self.instance_with_sums = make_instance(raw)
        self.loop = asyncio.new_event_loop()
        self.links = self.loop.run_until_complete(self._open())
        self.lines = Lines()

    async def _open(self) -> OpenLinks:
        peers = self.instance.topology.peers
        return OpenLinks(
            peers[ME].address, {j: peers[j].address for j in NEIGHBORS}, largest_frame=10**4, on_frames=print
        )

    def play(self, speak: Speech, scene: Scene, store: CheckpointStore | None = None) -> bool:
        """Let a new peer hear what is said to it, a few frames at a time; returns whether it took no offence."""
        self.lines.count = 0
        with self._set_up(scene):
            return self.loop.run_until_complete(self._converse(speak, scene, store))

    @contextlib.contextmanager
    def _set_up(self, scene: Scene) -> Iterator[None]:
        """Have peers use the sockets that are open, and lines of the log be looked at."""
        logger = logging.getLogger("thanos_peer")
        links, apart, log = peer_module.Links, peer_module.EPOCHS_APART, (logger.handlers[:], logger.propagate)
        level = logger.level
        peer_module.Links = lambda *_, on_frames, **__: self.links.pass_to(on_frames)
        peer_module.EPOCHS_APART = 0.0 if scene.is_hasty else apart
        logger.handlers[:], logger.propagate, logger.level = [self.lines], False, logging.DEBUG
        try:
            yield
        finally:
            peer_module.Links, peer_module.EPOCHS_APART = links, apart
            logger.handlers[:], logger.propagate = log
            logger.level = level

    async def _converse(self, speak: Speech, scene: Scene, store: CheckpointStore | None) -> bool:
        instance, loop = self.instance_of(scene), asyncio.get_running_loop()
        agent = Agent(instance.topology, ME, instance.plan(ME), None if store is None else store.load())
        peer = Peer(
            instance.topology,
            agent,
            bind=instance.topology.peers[ME].address,
            on_round=lambda _: None,
            patience=Patience(farewell=0),
            store=store,
            restarts_tracking=scene.restarts_tracking,
            features=FEATURES if scene.has_features else "",
        )
        running = asyncio.create_task(peer.run(lambda: None, lambda: None))
        await asyncio.sleep(0)
        for frames in speak(agent, self.life()):
            loop.call_soon(self.links.hand_over, frames)
            await asyncio.sleep(0)  # it hears them,
            await asyncio.sleep(0)  # and takes a step that it has put off
            if running.done():
                break
        peer.stop("all is said")
        try:
            await asyncio.wait_for(running, 60)  # on a busy machine
        except ThanosPeerError as error:
            check_line(str(error), LONGEST_LINE)
            return False
        finally:
            self._check_answers(agent, instance.topology.digest)
            self._check_speakers(peer, scene)
        return peer.rejected == 0

    def instance_of(self, scene: Scene) -> Instance:
        """Whose peer is to be played to."""
        return self.instance_with_sums if scene.has_sums else self.instance

    def life(self) -> int:
        """The life that the peer has named in its first hello."""
        return codec_of(self.instance.topology.digest).decode(self.links.sent[0])[1].life

    def _check_answers(self, agent: Agent, digest: str) -> None:
        """Whether all that the peer has sent is sound in one of the epochs that it has named, or the latest."""
        first = codec_of(digest, 0, agent.forms).decode_all(self.links.sent)
        epochs = {0, agent.epoch} | {
            said[1].epoch for said in first if isinstance(said, tuple) and isinstance(said[1], Hello)
        }
        for codec in [codec_of(digest, epoch, agent.forms) for epoch in epochs]:
            decoded = codec.decode_all(self.links.sent)
            for sender, message in (said for said in decoded if isinstance(said, tuple)):
                assert sender == ME
                check_message(sender, message, {(PAIR, (N, P)), *agent.forms})
            self.links.sent = [
                frame for frame, said in zip(self.links.sent, decoded, strict=True) if not isinstance(said, tuple)
            ]
        assert not self.links.sent, "the peer has sent what no neighbor would accept"

    def _check_speakers(self, peer: Peer, scene: Scene) -> None:
        """Whether nothing was heard in the name of a neighbor that did not come with its key."""
        for j in NEIGHBORS if scene.has_keys else ():
            assert peer.traffic.counters(j).messages_received <= self.links.came_with[j], (
                f"somebody spoke as peer {j}"
            )


@functools.cache
def stage() -> Stage:
    """The one stage of this process."""
    return Stage()


def seeds() -> dict[str, bytes]:
    """Inputs to begin from besides the corpus: frames as the codec makes them, to be changed byte by byte."""
    digest = stage().instance.topology.digest
    hello = Hello(0, digest, N, P, "float64", "1", is_asking=True, life=5)
    block = Block.of(0, np.eye(N, P), np.ones((N, P)), 0.1, StopWord(0), 0)
    frames = {
        f"seed-{type(said).__name__}": codec_of(digest).encode(1, said) for said in (hello, block, Bye(0, "x"))
    }
    return {name: bytes([1, 0, 6, len(frame)]) + frame for name, frame in frames.items()}


def try_bytes(data: bytes) -> bool:
    """Play an input to a peer; returns whether all that was said to it was in order."""
    script, scene = Script(data[1:]), Scene.of(data[0] if data else 0)
    digest = stage().instance_of(scene).topology.digest

    def speak(agent: Agent, life: int) -> Iterator[list[Said]]:
        speaker = Speaker(script, agent, digest, (5, life, 6), has_keys=scene.has_keys)
        for _ in range(MOST_GROUPS):
            if script.is_over:
                return
            yield [speaker.said() for _ in range(1 + script.byte() % 3)]

    return stage().play(speak, scene)
