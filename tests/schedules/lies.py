"""One liar among the peers: what it says instead of the truth, field by field of every message.

The liar is a peer like the others, but for what leaves it: of some frames a field is changed, for each neighbor by
itself, and some are made up. After a while an honest peer takes its place, with the same disk. What it never lies
about are its own numbers (X, D, step sizes, what it adds to sums): no other can know these, see SECURITY.md. What
comes of lies about sums, words and keys of masks, `MiscountingWorld` tries.

Whatever it says: no peer but the liar is shut out, none ends without an error that names a peer, none waits
without saying so, and none claims what does not follow from the data. Once the liar is replaced, all get done.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgpack
import numpy as np
from schedules.faults import Fault, FaultyWorld
from schedules.world import Node, Process, WrongError

from thanos_peer.block import WORD
from thanos_peer.errors import (
    EndMismatchError,
    HandshakeError,
    LocalProtocolError,
    RemoteProtocolError,
    RunOverError,
    StateLostError,
    ThanosPeerError,
)
from thanos_peer.protocol.honest import EPOCHS_AHEAD
from thanos_peer.protocol.messages import BLOCK, BYE, DONE, DONE_BUT, HELLO, KINDS, LARGEST_ROUND, SPENT, Bye
from thanos_peer.protocol.stages import Stage
from thanos_peer.protocol.waiting import NOTICE_FIRST
from thanos_peer.protocol.wire import run_of

HEADER = ("version", "kind", "run", "sender", "round")
NAMES = {number: kind.name for number, kind in KINDS.items()}
# All that a liar may lie about: each field of each kind of message.
FIELDS = [(kind, name) for kind in KINDS for name in (*HEADER, *KINDS[kind].fields)]
# Besides, it sends nothing, or one wrong frame so often that its neighbors have had enough of it; or it does lie
# about its numbers, see `MiscountingWorld`.
SILENCE, FLOOD, NUMBERS = "silence", "flood", "numbers"
FLOODED = 250
# Errors that an honest peer may end with because of a lie.
ERRORS = (HandshakeError, EndMismatchError, RemoteProtocolError, StateLostError)
NAMED = re.compile(r"\b(peers?|neighbor) \d")
# Seconds in which an honest peer that waits must have said so.
SPEAKS = 3 * NOTICE_FIRST
# Seconds after which nothing is on its way any more.
LATEST = 4.0
WRONG_TYPES: list[Any] = [None, -1, 1.5, True, "", b"", [1, 2], {}, 2**64 - 1]


@dataclass(frozen=True)
class Lying:
    """Who lies, when, and about what.

    Attributes:
        liar: Which peer.
        begins: When, in seconds.
        ends: When an honest peer takes its place.
        fields: What it lies about: numbers of kinds with names of fields.
        rate: Of how many messages.
        habit: What else it does: SILENCE, FLOOD or nothing.
    """

    liar: int
    begins: float
    ends: float
    fields: tuple[tuple[int, str], ...]
    rate: float
    habit: str = ""

    @property
    def may_move_the_end(self) -> bool:
        """Whether it may lie about when all stop, which is for all to say where they are calm."""
        return any(kind == BLOCK and name in {"streak", "after"} for kind, name in self.fields)

    @property
    def may_say_done(self) -> bool:
        """Whether it may say that all beyond it are done, which it alone knows."""
        return any(kind == BYE for kind, _ in self.fields)

    @property
    def may_end_the_run(self) -> bool:
        """Whether some may find that others have left for good: before they were done, or before a new epoch."""
        return self.may_say_done or (HELLO, "epoch") in self.fields


def lying_of(rng: random.Random, d: int) -> Lying:
    """What one liar does."""
    begins = rng.choice([0.0, rng.uniform(0, 1), rng.uniform(0, 3)])
    return Lying(
        rng.randrange(d),
        begins,
        begins + rng.choice([0.3, 2.0, 6.0, 15.0]),
        _fields(rng),
        rng.choice([0.02, 0.2, 0.6, 1.0]),
        rng.choice([SILENCE, FLOOD, *[""] * 18]),
    )


def _fields(rng: random.Random) -> tuple[tuple[int, str], ...]:
    """Some of all messages, or of one kind together, in the same frame."""
    kind = rng.choice([None, *KINDS])
    fields = [each for each in FIELDS if kind in (None, each[0])]
    if kind is not None:
        fields = [each for each in fields if each[1] not in HEADER[:4]]
    return tuple(rng.sample(fields, rng.randint(1, 3 if kind is None else min(4, len(fields)))))


def _counts(value: int, k: int) -> list[Any]:
    near = [k + ahead for ahead in range(-1, 9) if k + ahead >= 0]
    return [0, 1, value + 1, max(value - 1, 0), 2 * value + 1, *near, 1000, LARGEST_ROUND - 1, LARGEST_ROUND]


def _epochs(value: int, k: int) -> list[Any]:
    """Most are far ahead: as far as a peer believes one word, or nearly."""
    far = [value + 1, value + EPOCHS_AHEAD // 2, value + EPOCHS_AHEAD, value + 2 * EPOCHS_AHEAD]
    return [*far, *far, *_counts(value, k)]


def _round_of_a_block(_: Any, k: int) -> list[Any]:
    """Far ahead: with a nearer one its numbers would be lies."""
    return [k + 50, k + 1000, LARGEST_ROUND]


def _digests(value: str, _: int) -> list[Any]:
    return ["", "ab" * 16, "cd" * 32, value[:-1], value.upper()]


def _numbers(value: bytes, _: int) -> list[Any]:
    """Of the wrong size: others are its own affair."""
    return [value[:-8], value + bytes(8), b"", value[1:]]


TEXTS: dict[str, list[Any]] = {
    "reason": [DONE, SPENT, DONE_BUT, RunOverError.in_short, "it gave up waiting", ""],
    "trouble": ["peer 0 is behind", "x" * 128, "x" * 129, "\n"],
    "software": ["0", "x" * 64],
    "dtype": ["float64", "float32", "i128", "word"],
}
VALUES: dict[str, Callable[[Any, int], list[Any]]] = {
    "version": lambda value, _: [0, value + 1, LARGEST_ROUND],
    "kind": lambda *_: [0, HELLO, BYE, 4],
    "run": lambda value, _: [
        bytes(16),
        value[:-1],
        value[::-1],
        *(run_of("ab" * 32, epoch) for epoch in (1, 2, 3)),
    ],
    "digest": _digests,
    "features": _digests,
    "birth": _digests,
    "is_asking": lambda value, _: [not value],
    "shape": lambda value, _: [value[::-1], [value[0]], [LARGEST_ROUND, LARGEST_ROUND]],
    "numbers": _numbers,
    "epoch": _epochs,
    "eta": lambda *_: [-1.0, float("nan"), float("inf")],
    **{name: lambda *_, texts=texts: texts for name, texts in TEXTS.items()},
}


def lie(rng: random.Random, frame: bytes, names: Sequence[str]) -> bytes:
    """A frame with other values in some fields: mostly such as the fields could have."""
    said = msgpack.unpackb(frame)
    fields, kind, k = list(said), said[1], said[4]
    for name in names:
        index = (*HEADER, *KINDS[kind].fields).index(name)
        values = _round_of_a_block if (kind, name) == (BLOCK, "round") else VALUES.get(name, _counts)
        if rng.random() < 0.85:
            fields[index] = rng.choice(values(0 if said[index] is None else said[index], k))
        else:
            fields[index] = rng.choice([each for each in WRONG_TYPES if type(each) is not type(said[index])])
    return msgpack.packb(fields)


def _kind_of(frame: bytes) -> int:
    return msgpack.unpackb(frame)[1]


class LyingWorld(FaultyWorld):
    """A network with faults, and one liar.

    Args:
        lying: What it does.
        conditions: As of `FaultyWorld`.
    """

    def __init__(self, *about: Any, lying: Lying, **conditions: Any) -> None:
        super().__init__(*about, **conditions)
        self._lying, self._fates = lying, random.Random(conditions["seed"])
        self._failed: dict[int, list[BaseException]] = {}
        self._latest: dict[int, bytes] = {}
        self.begins_again, self._streams.liar = True, lying.liar
        self._calm_from = max(self._calm_from, lying.ends)
        self._at(lying.ends, self._replace_liar)

    @property
    def _is_lying(self) -> bool:
        return self._lying.begins <= self.now < self._lying.ends

    # ------------------------------------------------------------------ the liar

    def _tell(self, process: Process, to: tuple[int, ...], frame: bytes) -> None:
        if process.node.id != self._lying.liar or not self._is_lying:
            super()._tell(process, to, frame)
            return
        self._latest[_kind_of(frame)] = frame
        for j in to:
            # To its own address it speaks the truth: else it would take itself for a duplicate.
            for said in [frame] if j == process.node.id else self._lies(process, frame):
                self._send(process.node.id, j, said)

    def _lies(self, process: Process, frame: bytes) -> list[bytes]:
        """What is sent instead of a frame."""
        rng, lying, said = self._fates, self._lying, [frame]
        if lying.habit == SILENCE and rng.random() < lying.rate:
            self.counts["lie: nothing said"] += 1
            return []
        self._latest.setdefault(BYE, self._bye(process))
        for kind in {kind for kind, _ in lying.fields if kind in self._latest}:
            if rng.random() >= lying.rate:
                continue
            # The frame itself, or one without a question.
            is_asked = kind == _kind_of(frame)
            if is_asked or rng.random() < 0.3:
                changed = frame if is_asked else self._bye(process) if kind == BYE else self._latest[kind]
                names = [name for of, name in lying.fields if of == kind]
                self.counts.update(f"lie: {NAMES[kind]} {name}" for name in names)
                said = [lie(rng, changed, names)] if is_asked else [*said, lie(rng, changed, names)]
        if lying.habit == FLOOD and rng.random() < 0.05:
            self.counts["lie: floods"] += 1
            said += [lie(rng, frame, ["version"])] * FLOODED
        return said

    def _bye(self, process: Process) -> bytes:
        agent, rng = process.agent, self._fates
        k, radius = agent.k + rng.randint(0, 3), rng.randint(0, 4)
        return self._codec(agent.epoch).encode(agent.id, Bye(k, rng.choice(TEXTS["reason"]), radius))

    def _replace_liar(self) -> None:
        """An honest peer takes its place; all others have said by now what they wait for."""
        for node in self.nodes:
            if node.id != self._lying.liar and node.process is not None:
                self._check_waiting(node.process)
        self._say("FAULT the liar is replaced")
        node = self.nodes[self._lying.liar]
        if node.process is not None:
            self._end(node.process)
        self._at(self.now + self._fates.uniform(0.1, 1.0), partial(self._start, node))

    def _check_waiting(self, process: Process) -> None:
        talk = process.session.talk
        is_waiting = talk.stage in (Stage.RUNNING, Stage.LOST) and talk.agent.exchange.missing()
        if is_waiting and talk.waiting.seconds_awake > SPEAKS and not talk.waiting.has_spoken:
            raise WrongError(f"peer {process.node.id} waits, and does not say so")

    # ------------------------------------------------------------------ the others

    def _shut_out(self, process: Process, j: int, seconds: float) -> None:
        if j != self._lying.liar:
            super()._shut_out(process, j, seconds)
        self.counts["liar shut out"] += 1
        i = process.node.id
        self._calm_from = max(self._calm_from, self.now + seconds)
        self._do_cut(Fault(0.0, "cut", (), seconds, 0.0, ((i, j), (j, i))))

    def _fail(self, node: Node, error: BaseException) -> None:
        """It ends with an error, and an operator starts it again: when the liar is gone, and as the error says."""
        if self.now < self._lying.begins or not isinstance(error, ERRORS):
            super()._fail(node, error)
        if not NAMED.search(str(error)):
            raise WrongError(f"peer {node.id} ends with an error that names no peer: {error!r}")
        self.counts[f"said: {type(error).__name__}"] += 1
        before = self._failed.setdefault(node.id, [])
        is_again = any(type(each) is type(error) for each in before)
        before.append(error)
        restarts = isinstance(error, EndMismatchError) or (is_again and isinstance(error, StateLostError))
        when = max(self.now, self._lying.ends) + self._fates.uniform(1.5, 3.0)
        self._at(when, partial(self._start, node, restarts_tracking=restarts))

    def _may_lose_run(self, node: Node) -> bool:
        """Whether a peer may have to say that the run is over without it."""
        lost = any(each.has_lost_disk for each in self.nodes)
        is_tried = len(self._failed.get(node.id, [])) >= 2 and self.now > self._lying.ends
        return lost or (self._lying.may_end_the_run and is_tried)

    def _check_leaving(self, process: Process) -> None:
        if not self._lying.may_end_the_run:
            super()._check_leaving(process)

    def _check_births(self, nodes: list[Node]) -> None:
        """The liar may have told each neighbor another birth of its own."""
        liar = self._lying.liar
        honest = [node for node in nodes if node.id != liar]
        for node in honest:
            node.births.update({liar: self.nodes[liar].birth} if liar in self._neighbors[node.id] else {})
        super()._check_births(honest)

    def _check_bits(self, nodes: list[Node], epoch: int) -> None:
        """A lie about the end may move it, for all alike: what is claimed of it has to be true all the same."""
        if not self._lying.may_move_the_end:
            super()._check_bits(nodes, epoch)
        elif len({node.result[2] for node in nodes}) > 1:
            raise WrongError(f"results of rounds {[node.result[2] for node in nodes]}")


def miscounting_of(rng: random.Random, d: int) -> Lying:
    """One that lies about what it adds to sums, about words, and about keys of masks."""
    begins = rng.choice([0.0, 0.0, rng.uniform(0, 1)])
    ends = begins + rng.choice([0.3, 2.0, 15.0])
    return Lying(rng.randrange(d), begins, ends, ((BLOCK, "numbers"),), rng.choice([0.05, 0.3, 1.0]), NUMBERS)


def other_numbers(rng: random.Random, kind: str, numbers: bytes) -> bytes:
    """As many others of the same kind."""
    anything = [rng.randbytes(len(numbers)), bytes(len(numbers)), b"\xff" * len(numbers)]
    if kind != WORD:
        at = rng.randrange(len(numbers))
        return rng.choice([*anything, numbers[:at] + rng.randbytes(1) + numbers[at + 1 :]])
    word = np.frombuffer(numbers).copy()
    at = rng.randrange(word.size)
    word[at] = rng.choice([0.0, -1.0, 0.5, 1e308, 5e-324, -word[at], word[at] * (1 + 1e-6), np.nan])
    return rng.choice([bytes(len(numbers)), *[word.tobytes()] * 4])


class MiscountingWorld(LyingWorld):
    """A network of which one peer lies about the numbers of sums, of words, and of keys.

    What is wrong and possible is believed, so results may be wrong. But no peer ends without an error that names a
    neighbor or a phase, none hangs silently, and none that is honest is shut out. Once the liar is replaced and,
    where a peer has ended with an error, all are started with --fresh, all have the bits of a run without faults.
    """

    def __init__(self, *about: Any, **conditions: Any) -> None:
        super().__init__(*about, **conditions)
        self._is_fresh, self._was_told = True, False

    def _lies(self, process: Process, frame: bytes) -> list[bytes]:  # noqa: ARG002
        said = msgpack.unpackb(frame)
        if said[1] != BLOCK or self._fates.random() >= self._lying.rate:
            return [frame]
        at, kind = (*HEADER, *KINDS[BLOCK].fields).index("numbers"), said[9]
        if not said[at] or kind in {"float64", "float32"}:
            return [frame]
        self._is_fresh, self._was_told = False, True
        self.counts[f"lie: numbers of {kind}"] += 1
        said[at] = other_numbers(self._fates, kind, said[at])
        return [msgpack.packb(said)]

    def _fail(self, node: Node, error: BaseException) -> None:
        if self._is_fresh or not isinstance(error, ThanosPeerError) or isinstance(error, LocalProtocolError):
            raise WrongError(f"peer {node.id} failed: {error!r}")
        if not (NAMED.search(str(error)) or re.search(r"\bphase [a-z]+\b", str(error))):
            raise WrongError(f"peer {node.id} ends with an error that names no peer and no phase: {error!r}")
        self.counts[f"said: {type(error).__name__}"] += 1
        self._at(max(self.now, self._lying.ends) + 1.5, self._begin_anew)

    def _begin_anew(self) -> None:
        """All are started with --fresh, as one ended with an error."""
        if self._is_fresh:
            return
        self._is_fresh = True
        for node in self.nodes:
            if node.process is not None:
                self._end(node.process)
            vars(node).update(vars(Node(node.id)))
        # Nothing that is on its way is heard by them.
        self._at(self.now + LATEST, lambda: [self._start(node) for node in self.nodes])

    def _check_claims(self, nodes: list[Node]) -> None:
        if self._is_fresh:
            super()._check_claims(nodes)

    def _check_bits(self, nodes: list[Node], epoch: int) -> None:
        self.counts["wrong numbers believed"] += not self._is_fresh
        self.counts["begun anew"] += self._is_fresh and self._was_told
        if self._is_fresh:
            super()._check_bits(nodes, epoch)
