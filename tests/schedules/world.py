"""A network of the sessions that ship, under a clock of its own: one seed decides about every delay and fault.

Each node has what a host has: a process, a disk with two checkpoints that may be slow or fail, and a result.
Messages are frames, as on the wire; they are delayed, and may be lost, repeated and overtaken. A session is
performed for here as `peer.performer` and `peer.daemon` do it for sockets and files. What goes wrong is in
`faults`.
"""

import contextlib
import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from unittest import mock

import numpy as np

from thanos_peer.agent import Agent, Memory
from thanos_peer.algorithm.fixed_point import FixedPoint
from thanos_peer.algorithm.masks import SECRET_BYTES, Masks
from thanos_peer.errors import CheckpointError, DoubleError, RunOverError, StateLostError, ThanosPeerError
from thanos_peer.launch.claims import Data, PeerClaims
from thanos_peer.loadings.findings import facts_of_loadings, findings_of
from thanos_peer.loadings.result import Result
from thanos_peer.problem import Instance
from thanos_peer.protocol.codecs import Codecs
from thanos_peer.protocol.conversation import Options
from thanos_peer.protocol.handshake import Terms
from thanos_peer.protocol.hearing import Arrived
from thanos_peer.protocol.messages import DONE, SPENT, Bye
from thanos_peer.protocol.neighbor import LinkEvent
from thanos_peer.protocol.outputs import (
    AdvanceSoon,
    Finished,
    Log,
    LookUp,
    Output,
    Pause,
    ResultReady,
    ResultWithdrawn,
    Save,
    Send,
)
from thanos_peer.protocol.session import Session
from thanos_peer.protocol.stages import Stage
from thanos_peer.protocol.wire import Codec
from thanos_peer.simulate import AgentNetwork
from thanos_peer.topology import Topology

# Seconds until two hosts that can reach each other are connected.
CONNECTS = 0.05
# Seconds without a connection after which a neighbor that is done may be given up.
APART = 20.0
# Seconds by which some messages are late and overtaken by others, at the most.
LATE = 3.0
# Seconds until a connection that nothing comes through is given up: `SILENCE_MS` of outbox.py.
SILENCE = 4.0
# Seconds in which a peer that is finished tries to reach its neighbors: `PATIENCE` of notify.py.
NOTIFIES = 5.0
# Seconds after which a duplicate that reaches the address of its peer must have ended.
DUPLICATE = 16.0
# Seconds until an operator starts a peer again, after it has said that this may be needed.
OPERATOR = 20.0
# Seconds after the last fault in which every peer must be done, or have said why it cannot be.
LIVELY = 300.0


class WrongError(AssertionError):
    """A promise was broken."""


class Streams:
    """What each key stream has masked, in all lives of all peers: at each end one list of numbers alone.

    And what its secrets are of: one beginning of an epoch of one peer, or of the two ends of an edge.
    """

    def __init__(self, counts: Counter[str]) -> None:
        self._counts, self._masked = counts, dict[tuple, bytes]()
        self._owners, self._halves = dict[bytes, tuple](), dict[tuple, bytes]()
        # Of this peer, which lies, nothing is known.
        self.liar: int | None = None

    def note(self, agent: Agent) -> None:
        """Look at the secrets of an agent."""
        secret, shared = agent.found.own_secret, agent.found.secrets
        if secret is not None:
            owner = agent.id, agent.epoch, agent.birth
            self._note_owner(secret, owner)
            if self._halves.setdefault(owner, secret) != secret:
                raise WrongError(f"peer {agent.id} draws two secrets for one beginning of epoch {agent.epoch}")
        for at, j in enumerate(agent.neighbors if shared is not None else ()):
            if self.liar in (agent.id, j):
                continue
            ends = sorted([(agent.id, agent.birth), (j, agent.births.get(j, ""))])
            self._note_owner(shared[at * SECRET_BYTES :][:SECRET_BYTES], (agent.epoch, *ends))

    def _note_owner(self, secret: bytes, owner: tuple) -> None:
        if self._owners.setdefault(secret, owner) != owner:
            raise WrongError(f"one secret for {owner} and {self._owners[secret]}")

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Look at all that is masked from now on."""
        hide = Masks.hide

        def noted(masks: Masks, form: FixedPoint, numbers: bytes, number: int, told: bytes) -> bytes:
            for neighbor in masks.secrets:
                stream = masks.agent, masks.stream(neighbor, number, told, 32)
                self._counts["streams used again" if stream in self._masked else "streams"] += 1
                if self._masked.setdefault(stream, numbers) != numbers:
                    raise WrongError(f"peer {masks.agent} masks other numbers by a stream of phase {masks.phase}")
            return hide(masks, form, numbers, number, told)

        with mock.patch.object(Masks, "hide", noted):
            yield


@dataclass(eq=False)
class Node:
    """A host, and the process on it if there is one."""

    id: int
    disk: list[Memory] = field(default_factory=list)
    # The epoch, the bits of X, and the last round of its result.
    result: tuple[int, bytes, int] | None = None
    # The state of its last round, by name.
    final: Mapping[str, np.ndarray] = field(default_factory=dict)
    said: Result | None = None  # the result as it is written
    # What names its beginning of the epoch, and which beginning of each neighbor it has heard.
    birth: str = ""
    births: Mapping[int, str] = field(default_factory=dict)
    process: "Process | None" = None
    # The last round that this node has come to in the latest epoch.
    highest: int = 0
    epoch: int = 0
    is_over: bool = False  # it has left, with its result
    # Whether it has said that its state is lost and the run is over.
    has_lost_run: bool = False
    # Whether its neighbors have been told so, if not by its end.
    has_said_over: bool = False
    has_lost_disk: bool = False
    fails_until: float = 0.0  # nothing can be written before
    # The memory that it began each epoch with, but for the first.
    starts: dict[int, Memory] = field(default_factory=dict)


@dataclass(eq=False)
class Process:
    """One life of a peer."""

    node: Node
    session: Session
    agent: Agent
    is_duplicate: bool = False
    frozen_until: float = 0.0
    is_alive: bool = True
    # Frames that are not heard yet, with time and sender.
    frames: list[tuple[bytes, float, int]] = field(default_factory=list)
    unsaved: Memory | None = None  # which is being written
    last_words: list[str] = field(default_factory=list)
    error: BaseException | None = None


def said_of(topology: Topology, agent: Agent) -> Result:
    """What an agent says of its result, as `thanos_peer.peer.result` writes it."""
    answer, findings = agent.runner.answer(), findings_of(topology, agent, None)
    facts = facts_of_loadings(answer.X, answer.sparse, findings)
    return Result(
        components_=answer.X.T,
        sparse_components_=answer.sparse.T,
        mean_=findings.mean,
        scale_=findings.scale,
        explained_variance_ratio_=findings.explained_variance_ratio,
        common_components_=None if findings.common is None else findings.common.T,
        facts=facts | {"has_converged": agent.convergence.has_converged},
    )


class World:
    """All nodes, all that is on the way between them, and a clock.

    Args:
        instance: What they compute.
        data: From which samples: what they claim must follow from these.
        bits: Of the result of each agent without any fault.
        seed: Decides about all that is left to chance.
        loss: Of messages, as a share; until the last fault is over.
        delay: The longest delay of a message in seconds.
        disk: The longest time that a checkpoint takes in seconds.
        lumps: The share of frames that are not heard until another one or a tick comes.
        keeps_log: Whether to keep all that is said.
    """

    def __init__(
        self,
        instance: Instance,
        data: Data,
        bits: list[bytes],
        *,
        seed: int,
        loss: float = 0.0,
        delay: float = 0.02,
        disk: float = 0.01,
        lumps: float = 0.0,
        keeps_log: bool = False,
    ) -> None:
        self.instance, self._data, self._bits, self._rng = instance, data, bits, random.Random(seed)
        self._loss, self._delay, self._disk, self._lumps = loss, delay, disk, lumps
        self.log: list[str] | None = [] if keeps_log else None
        topology = instance.topology
        self._neighbors, self._d = topology.graph.neighbors, topology.d
        self._addresses = {i: f"tcp://host-{i}:1" for i in range(topology.d)}
        self.now, self._order, self._events = 0.0, itertools.count(), []
        self.nodes = [Node(i) for i in range(topology.d)]
        self.duplicates: list[Process] = []
        self._terms = Terms(
            topology.digest,
            topology.problem.n,
            topology.problem.p,
            topology.algorithm.exchange,
            topology.graph.diameter,
            "1",
            life=0,
        )
        self._codecs = Codecs(self._terms, instance.plan(0).forms)
        self._cut: dict[tuple[int, int], int] = Counter()  # how many faults cut a direction
        self._lives = itertools.count(1)
        self.counts: Counter[str] = Counter()
        self._streams = Streams(self.counts)
        self._calm_from = 0.0  # when the last fault is over
        self.begins_again = False  # whether a disk is lost
        # Whether a peer was given up: its neighbors may have told others.
        self._was_apart = False
        for node in self.nodes:
            self._at(self._rng.uniform(0, 0.2), lambda node=node: self._start(node))

    # ------------------------------------------------------------------ the clock

    def _at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), what))

    def run(self) -> None:
        """To the end; raises WrongError if a promise is broken."""
        with self._streams.watched():
            while not all(node.is_over or node.has_lost_run for node in self.nodes):
                if not self._events or self._events[0][0] > self._calm_from + LIVELY:
                    raise WrongError(f"stuck at {self.now:.2f} s: {self._describe()}")
                self._take_event()
        self._check_results()
        self._stop_duplicates()

    def _take_event(self) -> None:
        self.now, _, what = heapq.heappop(self._events)
        what()

    def _describe(self) -> str:
        return "; ".join(
            f"peer {node.id}: over" if node.is_over else f"peer {node.id}: {self._describe_process(node.process)}"
            for node in self.nodes
        )

    @staticmethod
    def _describe_process(process: Process | None) -> str:
        if process is None:
            return "not running"
        talk = process.session.talk
        k, epoch = process.agent.k, process.agent.epoch
        return f"{talk.stage.value} in round {k} of epoch {epoch}, {talk.waiting.lines(talk.now)}"

    # ------------------------------------------------------------------ processes

    def _start(self, node: Node, *, restarts_tracking: bool = False, is_duplicate: bool = False) -> None:
        """Start a process on a node, from what its disk has."""
        if (node.process is not None and not is_duplicate) or node.is_over:
            return
        topology = self.instance.topology
        memory = None if is_duplicate and self._rng.random() < 0.5 else self._recalled(node)
        if not is_duplicate and not self._may_begin(node, memory, restarts_tracking=restarts_tracking):
            return
        life = next(self._lives)
        agent = Agent(topology, node.id, self.instance.plan(node.id), memory, str(life))
        if memory is None:
            agent.fallback = agent.k
            if not is_duplicate:
                node.disk = [agent.memory()]
        has_result = node.result is not None and memory is not None and node.result[0] == memory.epoch
        options = Options(
            saves=not is_duplicate,
            restarts_tracking=restarts_tracking,
            has_result=has_result and not agent.is_done,
        )
        near = {j: self._addresses[j] for j in (*self._neighbors[node.id], node.id)}
        process = Process(
            node, Session(agent, replace(self._terms, life=life), near, options, self.now), agent, is_duplicate
        )
        talk = process.session.talk
        talk.enter = partial(self._enter, process, talk.enter)
        if is_duplicate:
            self.duplicates.append(process)
        else:
            node.process = process
            self._note_reached(process)
        for j in (*self._neighbors[node.id], node.id):
            self._connect(process, j)
        if not is_duplicate:
            self._connect_others(node.id)
        self._perform(process, process.session.start(self.now))
        self._tick(process)

    def _may_begin(self, node: Node, memory: Memory | None, *, restarts_tracking: bool) -> bool:
        """Whether a process gets as far as its session, as in `peer.daemon`."""
        if memory is not None:
            return True
        if node.result is not None:
            self._notify(node, SPENT)
        elif self.now < node.fails_until:
            again = partial(self._start, node, restarts_tracking=restarts_tracking)
            self._at(node.fails_until + 1.0, again)
        else:
            return True
        return False

    def _notify(self, node: Node, reason: str) -> None:
        """Say to the neighbors that it reaches that it is finished; once more if one lacks something."""
        node.is_over = True
        epoch, _, k = node.result
        codec = self._codec(0 if reason == SPENT else epoch)
        frame, until = codec.encode(node.id, Bye(k, reason)), self.now + NOTIFIES
        for j in self._neighbors[node.id]:
            self._at(self.now + CONNECTS, partial(self._notify_one, node.id, j, frame, until))
        self._at(self.now + OPERATOR, lambda: self._start_if_needed(node))

    def _notify_one(self, i: int, j: int, frame: bytes, until: float) -> None:
        if self._is_reachable(i, j):
            self._send(i, j, frame)
        elif self.now < until:
            self._at(self.now + 0.5, partial(self._notify_one, i, j, frame, until))

    def _start_if_needed(self, node: Node) -> None:
        """It has left, and is started again if a peer lacks something, or says that it stays for this one."""
        if all(other.is_over or other.has_lost_run for other in self.nodes):
            return
        stay_for_it = (self._stays_for(self.nodes[j].process, node) for j in self._neighbors[node.id])
        if any(self._lacks_something(other) for other in self.nodes) or any(stay_for_it):
            node.is_over = False
            self._start(node)
        else:
            self._at(self.now + OPERATOR, lambda: self._start_if_needed(node))

    @staticmethod
    def _lacks_something(node: Node) -> bool:
        return node.result is None and (node.process is not None or not node.has_lost_run)

    @staticmethod
    def _stays_for(process: Process | None, gone: Node) -> bool:
        """Whether a peer stays for one that has left and has not been heard to be done."""
        is_staying = process is not None and process.session.talk.stage is Stage.STAYING
        return is_staying and gone.id not in process.agent.done

    def _recalled(self, node: Node) -> Memory | None:
        """The latest memory, with the earlier one as the fallback."""
        latest = [each for each in node.disk if each.epoch == node.disk[-1].epoch]
        if not latest:
            return None
        return replace(latest[-1], fallback=latest[-2].k if len(latest) > 1 else latest[-1].k)

    def _connect(self, process: Process, j: int) -> None:
        self._at(self.now + CONNECTS, lambda: self._link(process, j, LinkEvent.UP))

    def _connect_others(self, i: int) -> None:
        for process in self._processes_near(i):
            self._connect(process, i)

    def _processes_near(self, i: int) -> list[Process]:
        """Those that connect to the address of a node: its neighbors, and duplicates of them and of itself."""
        near = [self.nodes[j].process for j in self._neighbors[i]]
        doubles = [each for each in self.duplicates if each.node.id == i or i in self._neighbors[each.node.id]]
        return [each for each in (*near, *doubles) if each is not None and each.is_alive]

    def _is_reachable(self, i: int, j: int) -> bool:
        """Whether there is a way both ways, and a process that answers."""
        process = self.nodes[j].process
        is_there = process is not None and self.now >= process.frozen_until
        return is_there and not (self._cut[i, j] or self._cut[j, i])

    def _link(self, process: Process, j: int, event: LinkEvent) -> None:
        """A connection comes up if that is possible, or goes down if not."""
        if not process.is_alive or self._is_reachable(process.node.id, j) is not (event is LinkEvent.UP):
            return
        known = process.session.talk.neighbors.get(j)
        link = process.session.talk.own_address.link if known is None else known.link
        if link.is_up is not (event is LinkEvent.UP):
            process.session.link_changed(j, event, self.now)

    def _notice_silence(self, process: Process, j: int) -> None:
        """Each end of a connection finds out by itself that nothing comes through."""
        self._at(self.now + self._rng.uniform(0, SILENCE), lambda: self._link(process, j, LinkEvent.DOWN))

    def _tick(self, process: Process) -> None:
        if not process.is_alive:
            return
        pause = process.session.seconds_to_tick * self._rng.uniform(1.0, 4.0)  # the host is busy
        self._at(max(self.now + pause, process.frozen_until), lambda: self._tick(process))
        if self.now >= process.frozen_until:
            if process.frames:
                self._hear(process)
            if outputs := process.session.tick(self.now):
                self._perform(process, outputs)
            self._check_duplicate(process)

    def _end(self, process: Process) -> None:
        """The process is gone."""
        process.is_alive = False
        if process.is_duplicate:
            return
        process.node.process, i = None, process.node.id
        for other in self._processes_near(i):
            if self._cut[i, other.node.id]:
                self._notice_silence(other, i)
            else:
                self._link(other, i, LinkEvent.DOWN)

    # ------------------------------------------------------------------ what sessions want done

    def _enter(self, process: Process, enter: Callable[[Stage], None], stage: Stage) -> None:
        """A session goes to another stage."""
        before = process.session.talk.stage
        enter(stage)
        self.counts[f"{before.value} > {stage.value}"] += 1
        if not process.is_duplicate:
            self._note_stage(process, stage)

    def _note_stage(self, process: Process, stage: Stage) -> None:
        """For faults that wait for this."""

    def _perform(self, process: Process, outputs: list) -> None:
        self._check_skew(process)
        if any(isinstance(output, Finished) for output in outputs[:-1]):
            raise WrongError(f"peer {process.node.id} says something after its end")
        try:
            for output in outputs:
                if self._is_gone(process):
                    return
                self._perform_one(process, output)
        except ThanosPeerError as error:
            if process.session.talk.stage is Stage.ENDED:
                self._finish(process, error)
                return
            begins_epoch = isinstance(output, Save | ResultWithdrawn)
            failed = process.session.epoch_failed if begins_epoch else process.session.fail
            self._perform(process, failed(error, self.now))

    def _is_gone(self, process: Process) -> bool:
        """Whether it is killed before the next output."""
        return not process.is_alive

    def _perform_one(self, process: Process, output: Output) -> None:
        match output:
            case Send(to, message, epoch):
                if isinstance(message, Bye) and message.reason == RunOverError.in_short:
                    process.node.has_said_over = True
                self._tell(process, to, self._codec(epoch).encode(process.node.id, message))
            case Log(level, text):
                self._say(f"peer {process.node.id} {level}: {text}")
                process.last_words.append(text)
            case Save(memory, is_urgent):
                self._save(process, memory, is_urgent=is_urgent)
            case AdvanceSoon():
                self._at(self.now, lambda: self._advance(process))
            case LookUp(neighbors):
                self._perform(process, process.session.looked_up(dict.fromkeys(neighbors), self.now))
            case Pause(j, seconds):
                self._shut_out(process, j, seconds)
            case ResultReady() | ResultWithdrawn() if not process.is_duplicate:
                self._write_result(process, is_ready=isinstance(output, ResultReady))
            case Finished(error):
                self._finish(process, error)

    def _tell(self, process: Process, to: tuple[int, ...], frame: bytes) -> None:
        """A process sends a frame to some neighbors."""
        for j in to:
            self._send(process.node.id, j, frame)

    def _shut_out(self, process: Process, j: int, _seconds: float) -> None:
        raise WrongError(f"peer {process.node.id} closes the connection of peer {j}, which is honest")

    def _write_result(self, process: Process, *, is_ready: bool) -> None:
        node = process.node
        self._check_disk(node)
        answer = process.agent.runner.answer()
        node.result = (process.agent.epoch, answer.X.tobytes(), process.agent.k) if is_ready else None
        node.final = answer.arrays if is_ready else {}
        node.said = said_of(self.instance.topology, process.agent) if is_ready else None
        node.birth, node.births = process.agent.birth, dict(process.agent.births)

    def _check_disk(self, node: Node) -> None:
        if self.now < node.fails_until:
            raise CheckpointError(f"the disk of peer {node.id} fails")

    def _advance(self, process: Process) -> None:
        if process.is_alive:
            self._perform(process, process.session.advance(self.now))

    def _save(self, process: Process, memory: Memory, *, is_urgent: bool) -> None:
        """At once if it is urgent; else a little later, if the process lives that long."""
        if is_urgent:
            self._write(process.node, memory)
            if memory.k == 0:
                process.node.starts[memory.epoch] = memory
            return
        process.unsaved = memory
        self._at(self.now + self._rng.uniform(0, self._disk), lambda: self._end_save(process, memory))

    def _end_save(self, process: Process, memory: Memory) -> None:
        if not process.is_alive:
            return
        if self.now < process.frozen_until:
            self._at(process.frozen_until, lambda: self._end_save(process, memory))
            return
        process.unsaved = None
        try:
            self._write(process.node, memory)
        except CheckpointError as error:
            self._perform(process, process.session.save_failed(error, self.now))
        else:
            self._perform(process, process.session.saved(memory, self.now))

    def _write(self, node: Node, memory: Memory) -> None:
        self._check_disk(node)
        if node.disk and node.disk[-1].epoch > memory.epoch:
            # A checkpoint of an earlier epoch is not gone on from any more.
            return
        kept = [each for each in node.disk if each.epoch == memory.epoch and each.k != memory.k]
        node.disk = [*kept[-1:], memory]

    def _finish(self, process: Process, error: BaseException | None) -> None:
        node, session = process.node, process.session
        if process.unsaved is not None and self.now >= node.fails_until and not process.is_duplicate:
            self._write(node, process.unsaved)  # which it waits for
        self._end(process)
        process.error = error
        self._say(f"peer {node.id} ends: {error!r}")
        if process.is_duplicate:
            self.counts["duplicates that ended"] += isinstance(error, DoubleError)
            return
        is_stopped = error is None and bool(session.talk.stop_reason) and not session.are_all_done
        if isinstance(error, RunOverError) and node.result is not None:
            self._notify(node, DONE)  # its result stays
        elif error is None and process.agent.is_done and not is_stopped:
            self._check_leaving(process)
            node.is_over = True
            if session.are_all_done:
                node.disk = []
            self._at(self.now + OPERATOR, lambda: self._start_if_needed(node))
        elif isinstance(error, RunOverError) and self._may_lose_run(node):
            self.counts["lost runs said"] += 1
            node.has_lost_run = True
            # Neighbors that have not heard it are told again.
            self._at(self.now + OPERATOR, lambda: self._start(node))
        elif isinstance(error, StateLostError) and node.has_lost_disk:
            self.counts["lost state said"] += 1
            self._at(self.now + 1.0, lambda: self._start(node, restarts_tracking=True))
        elif error is None:  # told to stop
            self._at(self.now + self._rng.uniform(0.1, 2.0), lambda: self._start(node))
        elif type(error) is CheckpointError and node.fails_until:
            self.counts["failed disks said"] += 1
            mended = max(self.now, node.fails_until) + self._rng.uniform(0.1, 2.0)
            self._at(mended, lambda: self._start(node))
        else:
            self._fail(node, error)

    def _may_lose_run(self, node: Node) -> bool:  # noqa: ARG002 - for worlds with a liar
        """Whether a peer may find that its state is lost, and the run over."""
        return self.begins_again

    def _fail(self, node: Node, error: BaseException) -> None:
        """A process ends with an error that nothing here leads to."""
        raise WrongError(f"peer {node.id} failed: {error!r}; {self._describe()}")

    # ------------------------------------------------------------------ messages

    def _codec(self, epoch: int) -> Codec:
        return self._codecs.of(epoch)

    def _send(self, i: int, j: int, frame: bytes) -> None:
        rng = self._rng
        is_lossy = self.now < self._calm_from
        is_lost = is_lossy and rng.random() < self._loss
        # A node's own address is on its own host, so nothing is lost on the way there.
        if self._cut[i, j] or (is_lost and i != j):
            self.counts["messages lost"] += 1
            return
        copies = 1 + (is_lossy and rng.random() < self._loss)
        self.counts["messages repeated"] += copies - 1
        for _ in range(copies):
            arrives = self.now + rng.uniform(0.0005, self._delay)
            if self._loss and rng.random() < self._loss / 2:
                arrives += rng.uniform(0, LATE)
                self.counts["messages late"] += 1
            self._at(arrives, lambda: self._deliver(i, j, frame))

    def _deliver(self, i: int, j: int, frame: bytes) -> None:
        """A frame arrives; it is heard when there are as many as the round lacks, as by `Peer`, or later."""
        process = self.nodes[j].process
        if process is None or self._cut[i, j]:
            return
        if self.now < process.frozen_until:
            self._at(process.frozen_until, lambda: self._deliver(i, j, frame))
            return
        process.frames.append((frame, self.now, i))
        is_held = self._lumps and self._rng.random() < self._lumps
        if len(process.frames) >= process.session.frames_needed and not is_held:
            self._hear(process)

    def _hear(self, process: Process) -> None:
        frames, process.frames = process.frames, []
        self.counts["frames together"] += len(frames) > 1
        epoch = process.session.talk.listening_epoch
        decoded = self._codec(epoch).decode_all([frame for frame, _, _ in frames])
        arrived = [
            Arrived(said, len(frame), at, sender)
            for said, (frame, at, sender) in zip(decoded, frames, strict=True)
        ]
        if outputs := process.session.receive(arrived, epoch, self.now):
            self._perform(process, outputs)

    # ------------------------------------------------------------------ promises

    def _note_reached(self, process: Process) -> None:
        node, agent = process.node, process.agent
        if agent.epoch > node.epoch:
            node.epoch, node.highest = agent.epoch, agent.k
        elif agent.epoch == node.epoch:
            node.highest = max(node.highest, agent.k)

    def _check_skew(self, process: Process) -> None:
        """Neighbors are at most a round apart."""
        if process.is_duplicate:
            return
        self._note_reached(process)
        self._streams.note(process.agent)
        node = process.node
        for other in (self.nodes[j] for j in self._neighbors[node.id]):
            if other.epoch == node.epoch and abs(other.highest - node.highest) > 1:
                raise WrongError(
                    f"peers {node.id} and {other.id} are in rounds {node.highest} and {other.highest}"
                )

    def _check_leaving(self, process: Process) -> None:
        """A peer that leaves knows that all have their results, in its own epoch.

        Or a peer that has lost its state cuts it off from the others, or one that was away for long: then it says
        so, and keeps its state.
        """
        is_cut_off = any(node.has_said_over for node in self.nodes) or self._has_given_up(process)
        if not process.session.are_all_done and is_cut_off:
            return
        for other in self.nodes:
            if not other.has_lost_run and (other.result is None or other.result[0] != process.agent.epoch):
                raise WrongError(f"peer {process.node.id} leaves before peer {other.id} is done")

    def _has_given_up(self, process: Process) -> bool:
        """Whether a peer has not been connected to a neighbor for so long that it may give it up."""
        here = [process, *(node.process for node in self.nodes if node.process is not None)]
        links = (each.link for one in here for each in one.session.talk.neighbors.values())
        self._was_apart |= any(not link.is_up and self.now - link.since >= APART for link in links)
        return self._was_apart

    def _check_results(self) -> None:
        nodes = [node for node in self.nodes if not node.has_lost_run]
        epochs = {node.result[0] for node in nodes}
        if len(epochs) != 1:
            raise WrongError(f"results of epochs {epochs}")
        if epochs != {0} and not self.begins_again:
            raise WrongError(f"epoch {epochs} without a lost disk")
        self.counts["new epochs"] += max(epochs) > 0
        X = np.array([np.frombuffer(node.result[1]) for node in nodes])
        if not np.isfinite(X).all():
            raise WrongError("a result that is not finite")
        if len(nodes) == self._d:
            self._check_claims(nodes)
            self._check_births(nodes)
        if "H" in nodes[0].final and len(nodes) == self._d:
            self._check_trackers(nodes)
        self._check_bits(nodes, max(epochs))

    def _check_claims(self, nodes: list[Node]) -> None:
        """What the peers say of their results follows from the samples of all."""
        common = np.mean([node.said.components_.T for node in nodes], axis=0)
        for node in nodes:
            for claim in PeerClaims(node.id, node.said, common).claims(self._data):
                self.counts["claims"] += 1
                if not claim.is_true:
                    raise WrongError(f"a false claim: {claim}")

    def _check_births(self, nodes: list[Node]) -> None:
        """All have heard the same life of a peer begin the epoch."""
        for node in nodes:
            if node.births != {j: self.nodes[j].birth for j in self._neighbors[node.id]}:
                raise WrongError(f"peer {node.id} has heard other births than those of its neighbors")

    def _check_trackers(self, nodes: list[Node]) -> None:
        """The trackers D add up to the directions H, if no block was mixed that was not sent just then."""
        D, H = (sum(node.final[name] for node in nodes) for name in ("D", "H"))
        rounding = 1e-9 if self.instance.topology.algorithm.exchange == "float64" else 1e-6
        if np.abs(D - H).max() > rounding * max(1.0, np.abs(H).max()):
            raise WrongError(f"the trackers do not add up: off by {np.abs(D - H).max():.1e}")

    def _check_bits(self, nodes: list[Node], epoch: int) -> None:
        """The bits are those without faults.

        A later epoch has the bits of a network without faults that begins with what each peer began it with. A run
        that prepares something begins from the first phase, so it has the bits of the first epoch.
        """
        topology, plan = self.instance.topology, self.instance.plan
        if epoch > 0 and Agent(topology, 0, plan(0)).runner.minimises_first:
            if len(nodes) < self._d:
                return
            network = AgentNetwork(self.instance)
            network.agents = [Agent(topology, node.id, plan(node.id), node.starts[epoch]) for node in nodes]
            for agent in network.agents:
                agent.fallback = None  # nothing is saved here
            while not network.is_done:
                network.advance()
            bits = [X.tobytes() for X in network.X]
        else:
            bits = self._bits
        if any(node.result[1] != bits[node.id] for node in nodes):
            raise WrongError(f"other bits in epoch {epoch} than without faults")

    def _check_duplicate(self, process: Process) -> None:
        """A duplicate that reaches the peer at its address ends soon."""
        link = process.session.talk.own_address.link
        if process.is_duplicate and process.is_alive and link.is_up and self.now - link.since > DUPLICATE:
            raise WrongError(f"a duplicate of peer {process.node.id} does not end")

    def _stop_duplicates(self) -> None:
        """Where there is no peer that it could be told from, a duplicate ends when it is told to."""
        for process in self.duplicates:
            if process.is_alive:
                self._perform(process, process.session.stop("SIGTERM", self.now))
        until = self.now + LIVELY
        while any(process.is_alive for process in self.duplicates):
            if not self._events or self._events[0][0] > until:
                raise WrongError("a duplicate does not stop")
            self._take_event()

    def _say(self, line: str) -> None:
        if self.log is not None:
            self.log.append(f"{self.now:9.4f} {line}")
