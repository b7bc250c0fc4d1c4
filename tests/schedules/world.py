"""A network of the sessions that ship, under a clock of its own: one seed decides about every delay and fault.

Each node has what a host has: a process that can be killed, frozen or told to stop, a disk with two checkpoints,
and a result. Messages are delayed; they may be lost, repeated and overtaken. A session is performed for here as
`peer.peer` does it for sockets and files.
"""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from thanos_peer.agent import Agent, Memory
from thanos_peer.errors import DoubleError, RemoteProtocolError, RunOverError, StateLostError
from thanos_peer.launch.claims import Data, PeerClaims
from thanos_peer.loadings.findings import facts_of_loadings, findings_of
from thanos_peer.loadings.result import Result
from thanos_peer.problem import Instance
from thanos_peer.protocol.conversation import Options
from thanos_peer.protocol.handshake import Terms
from thanos_peer.protocol.hearing import Arrived
from thanos_peer.protocol.neighbor import LinkEvent
from thanos_peer.protocol.outputs import (
    AdvanceSoon,
    Finished,
    Log,
    LookUp,
    ResultReady,
    ResultWithdrawn,
    Save,
    Send,
)
from thanos_peer.protocol.session import Session
from thanos_peer.protocol.stages import Stage
from thanos_peer.protocol.wire import Hello
from thanos_peer.topology import Topology

CONNECTS = 0.05  # seconds until two hosts that can reach each other are connected
DISK = 0.01  # seconds that a checkpoint takes, at the most
OPERATOR = 20.0  # seconds until an operator starts a peer again that has said that this may be needed
LIVELY = 300.0  # seconds after the last fault in which every peer must be done, or have said why it cannot be


class WrongError(AssertionError):
    """A promise was broken."""


@dataclass(frozen=True)
class Fault:
    """What happens to some nodes at some time.

    Attributes:
        at: When.
        kind: A method of `World`, without `_do_`.
        nodes: To which nodes.
        seconds: For how long.
        luck: What else is left to chance.
    """

    at: float
    kind: str
    nodes: tuple[int, ...]
    seconds: float
    luck: float


@dataclass(eq=False)
class Node:
    """A host, and the process on it if there is one."""

    id: int
    disk: list[Memory] = field(default_factory=list)
    result: tuple[int, bytes] | None = None  # the epoch, and the bits of X
    final: Mapping[str, np.ndarray] = field(default_factory=dict)  # the state of its last round, by name
    said: Result | None = None  # the result as it is written
    process: "Process | None" = None
    highest: int = 0  # the last round that it has come to in the latest epoch
    epoch: int = 0
    is_over: bool = False  # it has left, with its result
    has_lost_run: bool = False  # it has said that its state is lost and the run is over


@dataclass(eq=False)
class Process:
    """One life of a peer."""

    node: Node
    session: Session
    agent: Agent
    is_duplicate: bool = False
    frozen_until: float = 0.0
    is_alive: bool = True
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
        faults: What happens.
        seed: Decides about the rest.
        loss: Of messages, as a share; until the last fault is over.
        delay: The longest delay of a message in seconds.
        keeps_log: Whether to keep all that is said.
    """

    def __init__(
        self,
        instance: Instance,
        data: Data,
        bits: list[bytes],
        faults: list[Fault],
        *,
        seed: int,
        loss: float = 0.0,
        delay: float = 0.02,
        keeps_log: bool = False,
    ) -> None:
        self.instance, self._data, self._bits, self._rng = instance, data, bits, random.Random(seed)
        self._loss, self._delay, self.log = loss, delay, [] if keeps_log else None
        topology = instance.topology
        self._neighbors, self._d = topology.graph.neighbors, topology.d
        self._addresses = {i: f"tcp://host-{i}:1" for i in range(topology.d)}
        self.now, self._order, self._events = 0.0, itertools.count(), []
        self.nodes = [Node(i) for i in range(topology.d)]
        self._cut: dict[tuple[int, int], int] = Counter()  # how many faults cut a direction
        self._lives = itertools.count(1)
        self.counts: Counter[str] = Counter()
        self._calm_from = max([0.0, *(fault.at + fault.seconds for fault in faults)])
        self.begins_again = any(fault.kind == "lose_disk" for fault in faults)
        for fault in faults:
            self._at(fault.at, lambda fault=fault: self._happen(fault))
        for node in self.nodes:
            self._at(self._rng.uniform(0, 0.2), lambda node=node: self._start(node))

    # ------------------------------------------------------------------ the clock

    def _at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), what))

    def run(self) -> None:
        """To the end; raises WrongError if a promise is broken."""
        while not all(node.is_over or node.has_lost_run for node in self.nodes):
            if not self._events or self._events[0][0] > self._calm_from + LIVELY:
                raise WrongError(f"stuck at {self.now:.2f} s: {self._describe()}")
            self.now, _, what = heapq.heappop(self._events)
            what()
        self._check_results()

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
        memory = None if is_duplicate else self._recalled(node)
        agent = Agent(topology, node.id, self.instance.plan(node.id), memory)
        if memory is None:
            agent.fallback = agent.k
            if not is_duplicate:
                node.disk = [agent.memory()]
        problem = topology.problem
        terms = Terms(
            topology.digest,
            problem.n,
            problem.p,
            topology.algorithm.exchange,
            topology.graph.diameter,
            "1",
            next(self._lives),
        )
        has_result = node.result is not None and memory is not None and node.result[0] == memory.epoch
        options = Options(
            saves=not is_duplicate,
            restarts_tracking=restarts_tracking,
            has_result=has_result and not agent.is_done,
        )
        near = {j: self._addresses[j] for j in (*self._neighbors[node.id], node.id)}
        process = Process(node, Session(agent, terms, near, options, self.now), agent, is_duplicate)
        if not is_duplicate:
            node.process = process
            self._note_reached(process)
        for j in self._neighbors[node.id]:
            self._connect(process, j)
            other = self.nodes[j].process
            if other is not None and not is_duplicate:
                self._connect(other, node.id)
        self._connect(process, node.id)
        self._perform(process, process.session.start(self.now))
        self._tick(process)

    def _start_if_needed(self, node: Node) -> None:
        """Its state is kept in case that a peer lacks something, as one without a result does."""
        if all(other.is_over or other.has_lost_run for other in self.nodes):
            return
        if any(self._lacks_something(other) for other in self.nodes):
            node.is_over = False
            self._start(node)
        else:
            self._at(self.now + OPERATOR, lambda: self._start_if_needed(node))

    @staticmethod
    def _lacks_something(node: Node) -> bool:
        if node.process is None:
            return not (node.is_over or node.has_lost_run)
        return node.process.session.talk.stage is not Stage.STAYING

    def _recalled(self, node: Node) -> Memory | None:
        """The latest memory, with the earlier one as the fallback."""
        latest = [each for each in node.disk if each.epoch == node.disk[-1].epoch]
        if not latest:
            return None
        return replace(latest[-1], fallback=latest[-2].k if len(latest) > 1 else latest[-1].k)

    def _connect(self, process: Process, j: int) -> None:
        self._at(self.now + CONNECTS, lambda: self._link(process, j, LinkEvent.UP))

    def _link(self, process: Process, j: int, event: LinkEvent) -> None:
        """A connection came up or went down; it comes up only if there is a process, and a way both ways."""
        i = process.node.id
        if event is LinkEvent.UP and (self.nodes[j].process is None or self._cut[i, j] or self._cut[j, i]):
            return
        if process.is_alive:
            process.session.link_changed(j, event, self.now)

    def _tick(self, process: Process) -> None:
        if not process.is_alive:
            return
        pause = process.session.seconds_to_tick * self._rng.uniform(1.0, 1.2)
        self._at(max(self.now + pause, process.frozen_until), lambda: self._tick(process))
        if self.now >= process.frozen_until:
            self._perform(process, process.session.tick(self.now))

    def _end(self, process: Process) -> None:
        """The process is gone."""
        process.is_alive = False
        if process.is_duplicate:
            return
        process.node.process = None
        for j in self._neighbors[process.node.id]:
            if (other := self.nodes[j].process) is not None:
                self._link(other, process.node.id, LinkEvent.DOWN)

    # ------------------------------------------------------------------ what sessions want done

    def _perform(self, process: Process, outputs: list) -> None:  # noqa: C901 - a case for each output
        self._check_skew(process)
        if any(isinstance(output, Finished) for output in outputs[:-1]):
            raise WrongError(f"peer {process.node.id} says something after its end")
        for output in outputs:
            match output:
                case Send(to, message, epoch):
                    for j in to:
                        self._send(process, j, message, epoch)
                case Log(level, text):
                    self._say(f"peer {process.node.id} {level}: {text}")
                    process.last_words.append(text)
                case Save(memory, is_urgent):
                    self._save(process, memory, is_urgent=is_urgent)
                case AdvanceSoon():
                    self._at(self.now, lambda: self._advance(process))
                case LookUp(neighbors):
                    self._perform(process, process.session.looked_up(dict.fromkeys(neighbors), self.now))
                case ResultReady():
                    answer = process.agent.runner.answer()
                    process.node.result = process.agent.epoch, answer.X.tobytes()
                    process.node.final = answer.arrays
                    process.node.said = said_of(self.instance.topology, process.agent)
                case ResultWithdrawn():
                    process.node.result = None
                case Finished(error):
                    self._finish(process, error)

    def _advance(self, process: Process) -> None:
        if process.is_alive:
            self._perform(process, process.session.advance(self.now))

    def _save(self, process: Process, memory: Memory, *, is_urgent: bool) -> None:
        """At once if it is urgent; else a little later, if the process lives that long."""
        if is_urgent:
            self._write(process.node, memory)
            return

        def end() -> None:
            if process.is_alive:
                self._write(process.node, memory)
                self._perform(process, process.session.saved(memory, self.now))

        self._at(max(self.now + self._rng.uniform(0, DISK), process.frozen_until), end)

    def _write(self, node: Node, memory: Memory) -> None:
        kept = [each for each in node.disk if each.epoch == memory.epoch and each.k != memory.k]
        node.disk = [*kept[-1:], memory]

    def _finish(self, process: Process, error: BaseException | None) -> None:
        node, session = process.node, process.session
        self._end(process)
        process.error = error
        self._say(f"peer {node.id} ends: {error!r}")
        if process.is_duplicate:
            self.counts["duplicates that ended"] += isinstance(error, DoubleError)
            return
        is_stopped = error is None and bool(session.talk.stop_reason) and not session.is_everybody_done
        if isinstance(error, RunOverError) and node.result is not None:
            node.is_over = True  # its result stays
        elif error is None and process.agent.is_done and not is_stopped:
            self._check_leaving(process)
            node.is_over = True
            if session.is_everybody_done:
                node.disk = []
            else:
                self._at(self.now + OPERATOR, lambda: self._start_if_needed(node))
        elif isinstance(error, RunOverError) and self.begins_again:
            self.counts["lost runs said"] += 1
            node.has_lost_run = True
            self._at(self.now + OPERATOR, lambda: self._start(node))  # those who have not heard it are told again
        elif isinstance(error, StateLostError):
            self.counts["lost state said"] += 1
            self._at(self.now + 1.0, lambda: self._start(node, restarts_tracking=True))
        elif error is None:  # told to stop
            self._at(self.now + self._rng.uniform(0.1, 2.0), lambda: self._start(node))
        else:
            raise WrongError(f"peer {node.id} failed: {error!r}; {self._describe()}")

    # ------------------------------------------------------------------ messages

    def _send(self, process: Process, j: int, message: object, epoch: int) -> None:
        i, rng = process.node.id, self._rng
        is_lossy = self.now < self._calm_from
        is_lost = is_lossy and rng.random() < self._loss
        if self._cut[i, j] or (is_lost and i != j):  # its own address is on its own host
            self.counts["messages lost"] += 1
            return
        copies = 1 + (is_lossy and rng.random() < self._loss)
        self.counts["messages repeated"] += copies - 1
        for _ in range(copies):
            arrives = self.now + rng.uniform(0.0005, self._delay)
            self._at(arrives, lambda: self._deliver(i, j, message, epoch))

    def _deliver(self, i: int, j: int, message: object, epoch: int) -> None:
        process = self.nodes[j].process
        if process is None or self._cut[i, j]:
            return
        if self.now < process.frozen_until:
            self._at(process.frozen_until, lambda: self._deliver(i, j, message, epoch))
            return
        listening = process.session.talk.listening_epoch
        said = (i, message)
        if epoch != listening and not isinstance(message, Hello):
            said = RemoteProtocolError(neighbor=i, k=message.k, what="belongs to another run")
        self._perform(process, process.session.receive([Arrived(said, 100, self.now, i)], listening, self.now))

    # ------------------------------------------------------------------ faults

    def _happen(self, fault: Fault) -> None:
        if all(self.nodes[i].is_over for i in fault.nodes):
            return
        self.counts[fault.kind] += 1
        self._say(f"FAULT {fault}")
        getattr(self, f"_do_{fault.kind}")(fault)

    def _do_kill(self, fault: Fault) -> None:
        """kill -9, and start again; sometimes the newest checkpoint is damaged."""
        for node in (self.nodes[i] for i in fault.nodes):
            if node.process is not None:
                self._end(node.process)
            is_damaged = fault.luck < 0.4 and not self.begins_again  # a lost disk is enough
            if is_damaged and len(node.disk) > 1 and node.disk[-1].epoch == node.disk[-2].epoch:
                node.disk.pop()
            self._at(self.now + fault.seconds, lambda node=node: self._start(node))

    _do_power_cut = _do_kill  # of all of them

    def _do_stop(self, fault: Fault) -> None:
        """SIGTERM; it is started again when it has ended."""
        for node in (self.nodes[i] for i in fault.nodes):
            if (process := node.process) is not None and self.now >= process.frozen_until:
                self._perform(process, process.session.stop("SIGTERM", self.now))

    def _do_freeze(self, fault: Fault) -> None:
        for node in (self.nodes[i] for i in fault.nodes):
            if node.process is not None:
                node.process.frozen_until = self.now + fault.seconds

    def _do_cut(self, fault: Fault) -> None:
        """No way between some nodes and all others, one way or both ways."""
        inside, outside = fault.nodes, [i for i in range(self._d) if i not in fault.nodes]
        ways = [(i, j) for i in inside for j in outside if fault.luck < 0.66]
        ways += [(j, i) for i in inside for j in outside if fault.luck > 0.33]
        for i, j in ways:
            self._cut[i, j] += 1
            self._link_both(i, j, LinkEvent.DOWN)
        self._at(self.now + fault.seconds, lambda: self._mend(ways))

    def _mend(self, ways: list[tuple[int, int]]) -> None:
        for i, j in ways:
            self._cut[i, j] -= 1
            self._at(self.now + CONNECTS, lambda i=i, j=j: self._link_both(i, j, LinkEvent.UP))

    def _link_both(self, i: int, j: int, event: LinkEvent) -> None:
        for one, other in ((i, j), (j, i)):
            if other in self._neighbors[one] and (process := self.nodes[one].process) is not None:
                self._link(process, other, event)

    def _do_lose_disk(self, fault: Fault) -> None:
        """A killed process, and its disk is empty; started again with --restart-tracking, or first without."""
        (node,) = (self.nodes[i] for i in fault.nodes)
        if node.result is not None:  # then there is nothing to be made up
            return
        if node.process is not None:
            self._end(node.process)
        node.disk = []
        self._at(self.now + fault.seconds, lambda: self._start(node, restarts_tracking=fault.luck < 0.5))

    def _do_duplicate(self, fault: Fault) -> None:
        """A second process with the same id, somewhere else."""
        for node in (self.nodes[i] for i in fault.nodes):
            if node.process is not None:
                self._start(node, is_duplicate=True)

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
        node = process.node
        for other in (self.nodes[j] for j in self._neighbors[node.id]):
            if other.epoch == node.epoch and abs(other.highest - node.highest) > 1:
                raise WrongError(
                    f"peers {node.id} and {other.id} are in rounds {node.highest} and {other.highest}"
                )

    def _check_leaving(self, process: Process) -> None:
        """A peer that leaves knows that all have their results, in its own epoch.

        Or a peer that has lost its state cuts it off from the others: then it says so, and keeps its state.
        """
        if not process.session.is_everybody_done and any(node.has_lost_run for node in self.nodes):
            return
        for other in self.nodes:
            if not other.has_lost_run and (other.result is None or other.result[0] != process.agent.epoch):
                raise WrongError(f"peer {process.node.id} leaves before peer {other.id} is done")

    def _check_results(self) -> None:
        nodes = [node for node in self.nodes if not node.has_lost_run]
        epochs = {node.result[0] for node in nodes}
        if len(epochs) != 1:
            raise WrongError(f"results of epochs {epochs}")
        if epochs == {0} and any(node.result[1] != self._bits[node.id] for node in nodes):
            raise WrongError("other bits than without faults")
        if epochs != {0} and not self.begins_again:
            raise WrongError(f"epoch {epochs} without a lost disk")
        self.counts["new epochs"] += max(epochs)
        X = np.array([np.frombuffer(node.result[1]) for node in nodes])
        if not np.isfinite(X).all():
            raise WrongError("a result that is not finite")
        if len(nodes) == self._d:
            self._check_claims(nodes)
        if "H" in nodes[0].final and len(nodes) == self._d:
            self._check_trackers(nodes)

    def _check_claims(self, nodes: list[Node]) -> None:
        """What the peers say of their results follows from the samples of all."""
        common = np.mean([node.said.components_.T for node in nodes], axis=0)
        for node in nodes:
            for claim in PeerClaims(node.id, node.said, common).claims(self._data):
                self.counts["claims"] += 1
                if not claim.is_true:
                    raise WrongError(f"a false claim: {claim}")

    def _check_trackers(self, nodes: list[Node]) -> None:
        """The trackers D add up to the directions H, if no block was mixed that was not sent just then."""
        D, H = (sum(node.final[name] for node in nodes) for name in ("D", "H"))
        rounding = 1e-9 if self.instance.topology.algorithm.exchange == "float64" else 1e-6
        if np.abs(D - H).max() > rounding * max(1.0, np.abs(H).max()):
            raise WrongError(f"the trackers do not add up: off by {np.abs(D - H).max():.1e}")

    def _say(self, line: str) -> None:
        if self.log is not None:
            self.log.append(f"{self.now:9.4f} {line}")
