"""What must hold for any conversation with a peer: it goes on, or ends with an error of the one tree.

An input is a script of what neighbors and strangers say: hellos, blocks and byes with right and wrong fields, and
frames of any bytes, in any order. They are decoded as a peer does it, and told to the session that peers run.
What it answers must be sound, and what it logs must be short and printable.

The bits of the first byte say how the peer was started, and whether its run begins with sums. If with keys, each
frame comes with the id that belongs to some key, the sender's or another's, and nothing may be heard of a neighbor
but what came with its own.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import TypeAlias

import numpy as np
from fuzz.decoder import check_line, check_message
from networks import make_instance, raw_topology

from thanos_peer.agent import Agent
from thanos_peer.block import PAIR, WORD, AgentId, Block, StopWord, bytes_each
from thanos_peer.errors import ThanosPeerError
from thanos_peer.peer.peer import terms_of
from thanos_peer.problem import Instance
from thanos_peer.protocol.conversation import EPOCHS_APART, Options
from thanos_peer.protocol.hearing import Arrived
from thanos_peer.protocol.messages import LARGEST_ROUND, Bye, Hello, Message
from thanos_peer.protocol.outputs import AdvanceSoon, Finished, Log, Output, Save, Send
from thanos_peer.protocol.session import Session
from thanos_peer.protocol.waiting import Patience
from thanos_peer.protocol.wire import Codec
from thanos_peer.storage.checkpoint import CheckpointStore

ME, NEIGHBORS = 0, (1, 3)
N, P = 3, 2
MOST_GROUPS = 20
BEGAN = 1000.0  # by the clock of a conversation
LONGEST_LINE = 700  # characters
NUMBERS = (0, 1, 2, 3, 5, 7, 1000, LARGEST_ROUND)
# The digest of the features' names, if the peer's features have some.
FEATURES = "ff" * 32
TEXTS = ("float64", "float32", "", "done", "SIGTERM", FEATURES, "a\nb", "\x1b[2J", "caf\u00e9", "x" * 65)
LONGER_TEXTS = (*TEXTS, "it waits for peer 2", "0f" * 32, "x" * 128, "x" * 129)
VARIED = (
    "life",
    "answered",
    "oldest",
    "epoch",
    "n",
    "p",
    "dtype",
    "digest",
    "software",
    "trouble",
    "features",
    "birth",
)
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
    # Whether epochs may follow each other at once.
    is_hasty: bool = False
    # Whether its run begins with phases that sum.
    has_sums: bool = False

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
        # Only this peer and its neighbors have keys that are let in.
        whose = claimed if claimed in (ME, *NEIGHBORS) else NEIGHBORS[0]
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
        forms = self._agent.runner.plan.forms
        self._latest = codec_of(self._digest, epoch, forms).encode(claimed, message), claimed
        return self._latest

    def _round(self) -> int:
        k = self._agent.k
        return max(0, self._script.one_of((k, k, k + 1, k - 1, k + 2, k - 3, *NUMBERS)))

    def _hello(self) -> Hello:
        script = self._script
        hello = Hello(
            self._round(), self._digest, N, P, "float64", "1", script.one_of((True, False)), *self._lives[:2]
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
        sums = sorted(form for form in self._agent.runner.plan.forms if form[0] != PAIR)
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


class Conversation:
    """A session that is talked to: what it wants done is done here, and what it sends and logs is looked at."""

    def __init__(self, instance: Instance, scene: Scene, store: CheckpointStore | None) -> None:
        topology = instance.topology
        self.agent = Agent(topology, ME, instance.plan(ME), None if store is None else store.load())
        self._digest, self._store, self._forms = topology.digest, store, self.agent.runner.plan.forms
        self._now, self._heard_with = BEGAN, Counter()
        self.lines, self.is_over, self.error, self.sent = 0, False, None, []
        options = Options(
            patience=Patience(leave_after=0),
            saves=store is not None,
            restarts_tracking=scene.restarts_tracking,
            features=FEATURES if scene.has_features else "",
            epochs_apart=0.0 if scene.is_hasty else EPOCHS_APART,
        )
        addresses = {j: topology.peers[j].address for j in (ME, *NEIGHBORS)}
        self.session = Session(self.agent, terms_of(topology), addresses, options, self._now)
        self._perform(self.session.start(self._now))

    @property
    def life(self) -> int:
        return self.session.talk.handshake.terms.life

    def hear(self, frames: list[Said]) -> None:
        """Have it hear some frames at once, and then the clock tick."""
        epoch = self.session.talk.listening_epoch
        decoded = codec_of(self._digest, epoch, self._forms).decode_all([said.frame for said in frames])
        self._heard_with += Counter(said.speaker for said in frames if said.claimed in (None, said.speaker))
        arrived = [
            Arrived(message, len(said.frame), self._now, said.speaker)
            for message, said in zip(decoded, frames, strict=True)
        ]
        self._perform(self.session.receive(arrived, epoch, self._now))
        self.tick(0.01)

    @property
    def seconds(self) -> float:
        return self._now - BEGAN

    def tick(self, seconds: float) -> None:
        self._now += seconds
        self._perform(self.session.tick(self._now))

    def stop(self) -> None:
        self._perform(self.session.stop("all is said", self._now))
        for _ in range(1000):
            if self.is_over:
                return
            self.tick(self.session.seconds_to_tick)
        raise AssertionError(f"it does not end, but stays {self.session.talk.stage}")

    def _perform(self, outputs: list[Output]) -> None:
        for output in outputs:
            assert not self.is_over, "it says something after its end"
            match output:
                case Send(_, message, epoch):
                    codec = codec_of(self._digest, epoch, self._forms)
                    sender, decoded = codec.decode(codec.encode(ME, message))  # which a neighbor would accept
                    assert sender == ME
                    check_message(sender, decoded, {(PAIR, (N, P)), *self._forms})
                    self.sent.append(decoded)
                case Log(_, text):
                    self.lines += 1
                    check_line(text, LONGEST_LINE)
                case Save(memory, is_urgent):
                    self._store.save(memory)
                    if not is_urgent:
                        self._perform(self.session.saved(memory, self._now))
                case AdvanceSoon():
                    self._perform(self.session.advance(self._now))
                case Finished(error):
                    self.is_over, self.error = True, error

    def check_speakers(self) -> None:
        """Whether nothing was heard in the name of a neighbor that did not come with its key."""
        for j in NEIGHBORS:
            received = self.session.talk.traffic.counters(j).messages_received
            assert received <= self._heard_with[j], f"another spoke as peer {j}"


class Stage:
    """Where all conversations take place: instances to be the peer of."""

    def __init__(self) -> None:
        raw = raw_topology("ring", 4, n=N, p=P, max_rounds=6, tolerance=1e-3)
        self.instance = make_instance(raw)
        raw["algorithm"]["start"] = {"kind": "leading"}
        self.instance_with_sums = make_instance(raw)
        self.talk: Conversation

    @property
    def sent(self) -> list[Message]:
        """What the peer that is played to has sent, as neighbors decode it."""
        return self.talk.sent

    def play(self, speak: Speech, scene: Scene, store: CheckpointStore | None = None) -> bool:
        """Let a new peer hear what is said to it, a few frames at a time; returns whether it took no offence."""
        talk = self.talk = Conversation(self.instance_of(scene), scene, store)
        for frames in speak(talk.agent, talk.life):
            talk.hear(frames)
            if talk.is_over:
                break
        talk.stop()
        if scene.has_keys:
            talk.check_speakers()
        if talk.error is not None:
            assert isinstance(talk.error, ThanosPeerError)
            check_line(str(talk.error), LONGEST_LINE)
        return talk.error is None and talk.session.rejected == 0

    def instance_of(self, scene: Scene) -> Instance:
        """Whose peer is to be played to."""
        return self.instance_with_sums if scene.has_sums else self.instance


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
