"""What happens to a network of sessions: at some time, or when a peer has come to some point of its life."""

from dataclasses import dataclass
from functools import partial

from schedules.world import Node, Process, World

from thanos_peer.launch.claims import Data
from thanos_peer.phases import PhaseRunner
from thanos_peer.problem import Instance
from thanos_peer.protocol.stages import Stage

# Rounds after which most peers cannot say the first blocks again.
ENOUGH = 14
# A kill at the very moment that a stage begins comes after so many outputs, at the most.
OUTPUTS = 2
MIDWAY, NEAR_END, LAST_ROUND = "midway", "near the end", "in the last round"
NEW_EPOCH = "in a new epoch"
# Where sums are masked, keys are told in the first of these, and what they hide in the second.
FIRST_ROUNDS = ("in round 0", "in round 1")
# The stages that are waited for; a session begins in RUNNING, and enters it again for a new epoch only.
STAGES = {
    NEW_EPOCH: Stage.RUNNING,
    "while lost": Stage.LOST,
    "while saving": Stage.SAVING,
    "while proving": Stage.PROVING,
    "while staying": Stage.STAYING,
}


def _is_in_last_round(runner: PhaseRunner) -> bool:
    return runner.is_in_last_phase and runner.k == runner.last_round - 1


def _is_near_end(runner: PhaseRunner) -> bool:
    return runner.is_in_last_phase and runner.k == runner.last_round - 2


def _is_midway(runner: PhaseRunner) -> bool:
    return runner.k >= ENOUGH and not runner.is_done


ROUNDS = {
    MIDWAY: _is_midway,
    NEAR_END: _is_near_end,
    LAST_ROUND: _is_in_last_round,
    FIRST_ROUNDS[0]: lambda runner: runner.k == 0,
    FIRST_ROUNDS[1]: lambda runner: runner.k == 1,
}


@dataclass(frozen=True)
class Fault:
    """What happens to some nodes at some time.

    Attributes:
        at: When: seconds since the beginning, or since what is waited for.
        kind: A method of `FaultyWorld`, without `_do_`.
        nodes: To which nodes.
        seconds: For how long.
        luck: What else is left to chance.
        ways: The directions that are cut.
        when: What is waited for: a key of STAGES or ROUNDS, or nothing.
        of: Which node it is waited for at.
    """

    at: float
    kind: str
    nodes: tuple[int, ...]
    seconds: float
    luck: float
    ways: tuple[tuple[int, int], ...] = ()
    when: str = ""
    of: int = 0

    @property
    def name(self) -> str:
        """What it is counted as."""
        return f"{self.kind} {self.when}".rstrip()


class FaultyWorld(World):
    """A network with faults.

    Args:
        instance: What the peers compute.
        bits: Of the result of each agent without any fault.
        faults: What happens.
        conditions: As of `World`.
    """

    def __init__(
        self, instance: Instance, data: Data, bits: list[bytes], faults: list[Fault], **conditions
    ) -> None:
        super().__init__(instance, data, bits, **conditions)
        timed = [fault for fault in faults if not fault.when]
        self._waiting = [fault for fault in faults if fault.when]
        self._killers: dict[Process, tuple[int, Fault]] = {}  # after how many outputs more
        self._calm_from = max([0.0, *(fault.at + fault.seconds for fault in timed)])
        self.begins_again = any(fault.kind == "lose_disk" for fault in faults)
        for fault in timed:
            self._at(fault.at, partial(self._happen, fault))

    # ------------------------------------------------------------------ when

    def _note_stage(self, process: Process, stage: Stage) -> None:
        for fault in [each for each in self._waiting if STAGES.get(each.when) is stage]:
            self._trigger(fault, process)

    def _perform(self, process: Process, outputs: list) -> None:
        if not process.is_duplicate:
            for fault in [each for each in self._waiting if each.when in ROUNDS]:
                if ROUNDS[fault.when](process.agent.runner):
                    self._trigger(fault, process)
        super()._perform(process, outputs)

    def _trigger(self, fault: Fault, process: Process) -> None:
        """What a fault waits for has come: it happens now, between two outputs, or later."""
        if fault.of != process.node.id:
            return
        self._waiting.remove(fault)
        if fault.kind == "kill" and fault.nodes == (fault.of,) and not fault.at:
            self._killers[process] = int(fault.luck * (OUTPUTS + 1)), fault
        elif fault.kind == "fail_disk" and not fault.at:
            self._happen(fault)
        else:
            self._at(self.now + fault.at, partial(self._happen_or_wait, fault))

    def _happen_or_wait(self, fault: Fault) -> None:
        process = self.nodes[fault.of].process
        if process is not None and self._is_at(process, fault.when):
            self._happen(fault)
        else:
            self._waiting.append(fault)

    @staticmethod
    def _is_at(process: Process, when: str) -> bool:
        if when in ROUNDS:
            return ROUNDS[when](process.agent.runner)
        return process.session.talk.stage is STAGES[when]

    def _is_gone(self, process: Process) -> bool:
        if process in self._killers:
            left, fault = self._killers.pop(process)
            if left:
                self._killers[process] = left - 1, fault
            elif process.is_alive:
                self._happen(fault)
        return super()._is_gone(process)

    def _happen(self, fault: Fault) -> None:
        if all(self.nodes[i].is_over for i in fault.nodes):
            return
        self._say(f"FAULT {fault}")
        self._calm_from = max(self._calm_from, self.now + fault.seconds)
        self.counts[fault.name] += getattr(self, f"_do_{fault.kind}")(fault)

    # ------------------------------------------------------------------ what: each returns whether it was possible

    def _do_kill(self, fault: Fault) -> bool:
        """kill -9, and start again; sometimes the newest checkpoint is damaged."""
        for node in (self.nodes[i] for i in fault.nodes):
            if node.process is not None:
                self._end(node.process)
            if fault.luck < 0.4 and len(node.disk) > 1 and node.disk[-1].epoch == node.disk[-2].epoch:
                node.disk.pop()
            pause = fault.seconds if len(fault.nodes) == 1 else self._rng.uniform(0, fault.seconds)
            self._at(self.now + pause, partial(self._start, node))
        return True

    _do_power_cut = _do_kill  # of all of them

    def _do_stop(self, fault: Fault) -> bool:
        """SIGTERM; it is started again when it has ended."""
        (node,) = (self.nodes[i] for i in fault.nodes)
        process = node.process
        if process is None:
            return False
        if self.now < process.frozen_until:
            self._at(process.frozen_until, partial(self._happen, fault))
            return False
        self._perform(process, process.session.stop("SIGTERM", self.now))
        return True

    def _do_freeze(self, fault: Fault) -> bool:
        """SIGSTOP: those connected to it notice that after a while."""
        (node,) = (self.nodes[i] for i in fault.nodes)
        if (process := node.process) is None:
            return False
        process.frozen_until = self.now + fault.seconds
        for other in self._processes_near(node.id):
            self._notice_silence(other, node.id)
        self._at(process.frozen_until, partial(self._connect_others, node.id))
        return True

    def _do_cut(self, fault: Fault) -> bool:
        """No way from some nodes to others."""
        for i, j in fault.ways:
            self._cut[i, j] += 1
            for one, other in ((i, j), (j, i)):
                for process in self._processes_of(one):
                    self._notice_silence(process, other)
        self._at(self.now + fault.seconds, partial(self._mend, fault.ways))
        return True

    def _mend(self, ways: tuple[tuple[int, int], ...]) -> None:
        for i, j in ways:
            self._cut[i, j] -= 1
            for one, other in ((i, j), (j, i)):
                for process in self._processes_of(one):
                    self._connect(process, other)

    def _processes_of(self, i: int) -> list[Process]:
        doubles = [each for each in self.duplicates if each.node.id == i and each.is_alive]
        return doubles if self.nodes[i].process is None else [self.nodes[i].process, *doubles]

    def _do_lose_disk(self, fault: Fault) -> bool:
        """A killed process, and its disk is empty; started again with --restart-tracking, or first without."""
        (node,) = (self.nodes[i] for i in fault.nodes)
        if node.result is not None and not self._may_lose_after_result(node):
            return False
        if any(each.has_lost_disk and not self._is_back(each) for each in self.nodes if each is not node):
            return False
        if node.process is not None:
            self._end(node.process)
        node.disk, node.has_lost_disk = [], True
        self.counts["disks lost after the result"] += node.result is not None
        self._at(self.now + fault.seconds, partial(self._start, node, restarts_tracking=fault.luck < 0.5))
        return True

    def _is_back(self, node: Node) -> bool:
        """Whether a peer that had lost its disk is where the others are.

        Of two that are not, and a neighbor that is done, the one between waits for ever: it is told that its state
        is lost, but those done have no block to send, and the other one is not done.
        """
        epoch, k = max((each.epoch, each.highest) for each in self.nodes)
        return node.result is not None or (
            node.process is not None
            and node.process.agent.epoch == epoch
            and node.process.agent.k >= k - len(self.nodes)
        )

    def _may_lose_after_result(self, node: Node) -> bool:
        """A peer with a result and no state cannot take part again, so no other one may need it."""
        others = (each for each in self.nodes if each is not node)
        return all(each.result is not None and not each.has_lost_disk for each in others)

    def _do_fail_disk(self, fault: Fault) -> bool:
        """Nothing can be written for a while."""
        for node in (self.nodes[i] for i in fault.nodes):
            node.fails_until = self.now + fault.seconds
        return True

    def _do_duplicate(self, fault: Fault) -> bool:
        """A second process with the same id, somewhere else; some have a copy of the state."""
        (node,) = (self.nodes[i] for i in fault.nodes)
        if node.process is None:
            return False
        self._start(node, is_duplicate=True)
        return True
