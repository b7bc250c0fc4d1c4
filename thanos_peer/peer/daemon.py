"""`thanos-peer start` from the inside: one peer, its signals, its files, its end."""

import contextlib
import logging
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from thanos_peer import disclosure
from thanos_peer.agent import Agent, Memory
from thanos_peer.algorithm.arithmetic import fingerprint
from thanos_peer.block import AgentId
from thanos_peer.errors import (
    CheckpointError,
    DataFileError,
    NeighborLostError,
    OwnCodeError,
    RunOverError,
    ThanosPeerError,
)
from thanos_peer.peer.notify import notify_neighbors
from thanos_peer.peer.peer import Peer
from thanos_peer.peer.result import OutcomeWriter
from thanos_peer.peer.scheduling import prefer_long_turns
from thanos_peer.peer.serving import run_loop, serve
from thanos_peer.peer.signals import Signals
from thanos_peer.peer.status import local_address
from thanos_peer.phases import WrongStateError
from thanos_peer.preparation import Share, outline
from thanos_peer.problem import share_of
from thanos_peer.protocol.conversation import Options
from thanos_peer.protocol.messages import DONE, LONGEST_BIRTH, SPENT, Bye
from thanos_peer.protocol.waiting import Patience
from thanos_peer.samples import features_digest
from thanos_peer.storage.checkpoint import CheckpointStore, checkpoints_in, latest_epoch_in
from thanos_peer.storage.peer_files import PeerFiles
from thanos_peer.storage.trajectory import TrajectoryWriter
from thanos_peer.topology import Topology
from thanos_peer.topology.data import features_of
from thanos_peer.topology.policy import SitePolicy
from thanos_peer.transport.authenticator import allow_many_files
from thanos_peer.transport.keys import Credentials, check_in_the_clear, credentials_of

log = logging.getLogger("thanos_peer")


@dataclass(frozen=True)
class PeerOptions:
    """What the person at this host chose.

    Attributes:
        out: The run directory.
        bind: Where to listen; None for what the topology says.
        status: One more address to answer status requests on.
        secret: The file with this peer's secret key; None for the one beside the topology file.
        keep_every: Keep the X of every so many rounds; 0 keeps none.
        patience: How long to wait.
        state: The directory of checkpoints.
        survive: What a peer comes back from with the same bits: "power" cuts, a "kill", or "nothing".
        is_fresh: Whether to begin anew, whatever checkpoints there are.
        restarts_tracking: Whether to have the network start its tracking again if this peer's state is lost.
        ends_with_stdin: Stop when standard input is closed: how a launcher takes its peers with it.
        policy: The rules of this site.
    """

    out: Path
    bind: str | None = None
    status: str | None = None
    secret: Path | None = None
    keep_every: int = 0
    patience: Patience = field(default_factory=Patience)
    state: Path | None = None
    survive: str = "power"
    is_fresh: bool = False
    restarts_tracking: bool = False
    ends_with_stdin: bool = False
    policy: SitePolicy = field(default_factory=SitePolicy)


def run_peer(topology: Topology, agent_id: AgentId, options: PeerOptions, signals: Signals) -> int:
    """Run one peer to its end, and write its results whatever the end.

    Args:
        topology: What all agree on.
        agent_id: Which peer this is.
        options: What the person at this host chose.
        signals: Told of every signal that comes from the first round on, also after the end.

    Returns:
        0, or 128 plus the number of the signal that stopped it before its last round.
    """
    share = _check_policy(topology, agent_id, options.policy)
    bind = options.bind or topology.peers[agent_id].bind or topology.peers[agent_id].address
    check_in_the_clear(topology, agent_id, bind, options.status)
    credentials = credentials_of(topology, agent_id, options.secret)
    if options.ends_with_stdin:
        signals.end_with(sys.stdin.fileno())
    prefer_long_turns()
    allow_many_files(len(topology.graph.neighbors[agent_id]))
    directory = options.state or options.out.with_name(f"{options.out.name}.state")
    if options.survive == "nothing" and not options.is_fresh and (found := checkpoints_in(directory, agent_id)):
        raise CheckpointError(
            f"{found[-1]} is there to go on from: leave out --survive nothing, or begin anew with --fresh"
        )
    files = PeerFiles(options.out, topology, agent_id)
    with contextlib.ExitStack() as stack:
        life = _Life(topology, agent_id, replace(options, bind=bind), credentials, files, signals, share)
        return life.begin(directory, stack)


def _check_policy(topology: Topology, agent: AgentId, policy: SitePolicy) -> Share | None:
    """Refuse a run that breaks the rules of this site; returns what this peer brings, if a rule is about that.

    Nothing has been sent when this ends, nor if the samples cannot be read that a rule counts.
    """
    mixing = outline(topology).mixing
    policy.check(topology, agent, mixing=mixing)
    if not policy.counts_samples:
        return None
    share = share_of(topology, agent)
    policy.check(topology, agent, mixing=mixing, samples=share.count)
    return share


@dataclass(frozen=True)
class _Life:
    """One life of a peer: from what it finds on its disk to what it leaves there."""

    topology: Topology
    agent: AgentId
    options: PeerOptions
    credentials: Credentials | None
    files: PeerFiles
    signals: Signals
    share: Share | None = None
    store: CheckpointStore | None = None

    def begin(self, directory: Path, stack: contextlib.ExitStack) -> int:
        """Look in a directory for what an earlier life has left, and live; returns the exit code."""
        try:
            life = replace(self, store=self._open_store(directory, stack))
            memory = life.recall()
        except CheckpointError as error:
            if error.in_short:
                self._notify_neighbors(Bye(0, error.in_short), latest_epoch_in(directory, self.agent))
            raise
        return life.live(memory, stack)

    def _open_store(self, directory: Path, stack: contextlib.ExitStack) -> CheckpointStore | None:
        survive = self.options.survive
        if survive == "nothing":
            return None
        store = CheckpointStore(directory, self.topology, self.agent, is_flushed=survive == "power")
        return stack.enter_context(store)

    def live(self, memory: Memory | None, stack: contextlib.ExitStack) -> int:
        """Go on from what it remembers, or begin from the start."""
        files = self.files
        finished = None if self.options.is_fresh else files.finished_round(self.topology.digest)
        if finished is not None and (memory is None or memory.epoch < files.finished_epoch):
            return self._say_finished(finished, SPENT)
        is_behind = finished is not None and self._is_behind(memory)
        try:
            peer, features = self._prepare(memory, stack, has_result=is_behind)
        except (DataFileError, OwnCodeError, CheckpointError) as error:
            k, epoch = (0, 0) if memory is None else (memory.k, memory.epoch)
            self._notify_neighbors(Bye(k, error.in_short), epoch)
            raise
        try:
            return self._take_part(peer, features, is_first=memory is None)
        except (NeighborLostError, RunOverError) as error:
            if finished is None or not is_behind:
                raise
            log.warning("%s", error)
            return self._say_finished(finished, DONE)

    def recall(self) -> Memory | None:
        """What an earlier life of this peer has left, unless it is not wanted."""
        if self.store is None or self.options.is_fresh:
            return None
        memory = self.store.load(or_nothing=self.options.restarts_tracking)
        if memory is not None:
            log.info("going on from round %d, saved in %s", memory.k, self.store.directory)
        return memory

    def _is_behind(self, memory: Memory | None) -> bool:
        """Whether it remembers less than led to the finished result: the rest was damaged, or is gone.

        Neighbors may need the rounds between, so they are gone through again; the result stays meanwhile.
        """
        if memory is None or memory.epoch != self.files.finished_epoch:
            return False
        return memory.k < self.files.finished_after

    def _say_finished(self, finished: int, reason: str) -> int:
        """Say that there is nothing to do, also to neighbors that do not know it yet."""
        result = self.files.result
        log.info(
            "finished already, in round %d; results in %s; to run again, take --fresh and another --out",
            finished,
            result,
        )
        epoch = 0 if reason == SPENT else self.files.finished_epoch
        self._notify_neighbors(Bye(self.files.finished_after, reason), epoch)
        return 0

    def _notify_neighbors(self, bye: Bye, epoch: int) -> None:
        bind = str(self.options.bind)
        run_loop(notify_neighbors(self.topology, self.agent, bind, self.credentials, bye, epoch), self.signals)

    def _prepare(
        self, memory: Memory | None, stack: contextlib.ExitStack, *, has_result: bool
    ) -> tuple[Peer, tuple[str, ...] | None]:
        """The peer, all that it needs, and what its features are called."""
        options, store = self.options, self.store
        self.files.prepare(is_resumed=memory is not None)
        if options.is_fresh:
            if store is not None and (found := store.files()):
                log.info("--fresh removes %d checkpoints of this peer, the latest %s", len(found), found[-1])
            _forget(store, self.files)
        features = features_of(self.topology, self.agent)
        agent = self._make_agent(memory)
        if store is not None and memory is None:
            agent.fallback = agent.k
            store.save(agent.memory())
        peer = Peer(
            self.topology,
            agent,
            bind=str(options.bind),
            credentials=self.credentials,
            on_round=self._keeper(stack),
            options=Options(
                patience=options.patience,
                saves=store is not None,
                restarts_tracking=options.restarts_tracking,
                features=features_digest(features),
                has_result=has_result,
            ),
            store=store,
        )
        return peer, features

    def _make_agent(self, memory: Memory | None) -> Agent:
        """The agent with its data, and what it remembers if that is of the same data."""
        share = self.share or share_of(self.topology, self.agent)
        for sentence in disclosure.warnings(self.topology, self.agent, share.count):
            log.warning("%s; see `thanos-peer disclose`", sentence)
        plan = share.plan()
        if self.store is not None:
            is_made_up = self.topology.problem.data.kind == "synthetic"
            file = None if is_made_up else self.topology.data_file(self.agent)
            self.store.tie_to(share.samples, file, fingerprint() if plan.is_masked else "")
        try:
            return Agent(self.topology, self.agent, plan, memory, secrets.token_hex(LONGEST_BIRTH // 2))
        except WrongStateError as error:
            assert self.store is not None, "that is where the state is from"  # noqa: S101
            raise self.store.damaged(str(error)) from error

    def _keeper(self, stack: contextlib.ExitStack) -> Callable[[Agent], None]:
        """What is done with the agent in every round of the main phase."""
        every, problem = self.options.keep_every, self.topology.problem
        if not every:
            return _ignore
        writer = TrajectoryWriter(self.files.trajectory, every=every, n=problem.n, p=problem.p)
        stack.enter_context(writer)
        return writer.append

    def _take_part(self, peer: Peer, features: tuple[str, ...] | None, *, is_first: bool) -> int:
        """Run the peer to its end, and write its results whatever the end."""
        agent, files, store, signals = peer.agent, self.files, self.store, self.signals
        agreed, is_alone = self.options.policy.agreed, not self.options.ends_with_stdin
        write = OutcomeWriter(self.topology, peer, files, features, policy=agreed, is_alone=is_alone).write
        first = agent.k
        try:
            run_loop(
                serve(
                    peer,
                    signals,
                    status_at=(local_address(self.topology, self.agent), self.options.status),
                    ends_with_stdin=self.options.ends_with_stdin,
                    on_done=lambda: write(_ending_of(self.topology, agent)),
                    on_anew=files.withdraw,
                ),
                signals,
            )
        except ThanosPeerError as error:
            if agent.k > first:
                _write_at_least_something(write, error)
            elif is_first and not agent.epoch and not peer.session.talk.has_sent_block:
                # An error before a block was sent leaves no files behind. A neighbor that has used one goes on
                # with no other state of this peer.
                _forget(store, files)
            raise
        if not agent.is_done:
            write("stopped")
        if store is not None and peer.session.are_all_done:
            store.clear()
        return 0 if agent.is_done else 128 + signals.heard[0]


def _forget(store: CheckpointStore | None, files: PeerFiles) -> None:
    """Remove what an earlier life has left, or what this one has begun."""
    with contextlib.suppress(OSError):
        files.trajectory.unlink(missing_ok=True)
    if store is not None:
        store.clear()


def _write_at_least_something(write: Callable[[str], None], error: ThanosPeerError) -> None:
    try:
        write(f"error: {error}")
    except CheckpointError as second:
        log.warning("%s", second)


def _ending_of(topology: Topology, agent: Agent) -> str:
    """As `EndReason` names it."""
    return "tolerance" if agent.runner.is_below_tolerance else topology.why_over(agent.runner.main_round)


def _ignore(agent: Agent) -> None:
    """Keep nothing of a round."""
