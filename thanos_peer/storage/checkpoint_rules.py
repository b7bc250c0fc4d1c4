"""What must hold between the fields of a checkpoint and the topology.

A checksum says that a file is what was written, not that a peer wrote it. So each field has a form in the file
(FIELDS in `checkpoint_fields.py`), and RULES must hold. A file that breaks one of them is damaged.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from thanos_peer.agent import Memory
from thanos_peer.algorithm.gram import MOST_VALUES
from thanos_peer.algorithm.masks import DIGEST_BYTES, SECRET_BYTES
from thanos_peer.block import AgentId, Block, bytes_each
from thanos_peer.phases import Found, Plan
from thanos_peer.phases.masking import NAME as MASKS
from thanos_peer.preparation import outline
from thanos_peer.preparation.choice import COLUMNS
from thanos_peer.protocol.stop import calm_size
from thanos_peer.storage.checkpoint_fields import OF_BYTES, MalformedError
from thanos_peer.topology import Topology


@dataclass(frozen=True)
class _Peer:
    """Whose memory it is, and what follows from the topology."""

    topology: Topology
    agent: AgentId
    plan: Plan

    @property
    def neighbors(self) -> frozenset[AgentId]:
        return frozenset(self.topology.graph.neighbors[self.agent])

    @property
    def names(self) -> list[str]:
        return [phase.name for phase in self.plan.phases]


def check_memory(memory: Memory, topology: Topology, agent: AgentId) -> None:
    """Refuse a memory that this peer cannot have had.

    Raises:
        MalformedError: With the first rule that it breaks.
    """
    peer = _Peer(topology, agent, outline(topology))
    for name, has_held in RULES.items():
        if not has_held(memory, peer):
            value = getattr(memory, name)
            shown = f"{name} = {value}" if isinstance(value, int) else name
            raise MalformedError(f"{shown}: peer {agent} of this topology cannot have saved this")


def _has_own_phases(memory: Memory, peer: _Peer) -> bool:
    """The phases before this one are over, with rounds that they can have; the last one may be over too."""
    over, names = memory.found.over, peer.names
    if memory.phase >= len(names) or any(
        end.rounds > phase.most for end, phase in zip(over, peer.plan.phases, strict=False)
    ):
        return False
    ended = [end.name for end in over]
    is_all_over = memory.phase == len(names) - 1 and ended == names
    return is_all_over or ended == names[: memory.phase]


def _has_own_rounds(memory: Memory, peer: _Peer) -> bool:
    began = sum(end.rounds for end in memory.found.over[: memory.phase])
    return memory.began == began <= memory.k <= began + peer.plan.phases[memory.phase].most


def _has_said_in_order(memory: Memory, peer: _Peer) -> bool:
    """One block for each round up to the last, of a form that the phases have, to neighbors only."""
    rounds = [block.k for block in memory.said]
    return rounds == list(range(memory.k - len(rounds), memory.k)) and all(
        _is_own_block(block, peer) for block in memory.said
    )


def _is_own_block(block: Block, peer: _Peer) -> bool:
    return (
        (block.kind, block.shape) in peer.plan.forms
        and len(block.numbers) == bytes_each(block.kind) * math.prod(block.shape)
        and (block.to is None or peer.neighbors >= set(block.to))
        and block.fallback <= block.k
    )


def _has_found_shapes(memory: Memory, peer: _Peer) -> bool:
    n, p, count = peer.topology.problem.n, peer.topology.problem.p, peer.topology.problem.weight_count
    shapes = {
        "spectrum": (min(n, MOST_VALUES),),
        **dict.fromkeys(("mus", "marks"), (count,)),
        "path": (count, n, p),
        "table": (count, COLUMNS + p),
        **dict.fromkeys(("mean", "present", "variance"), (n,)),
        **dict.fromkeys(("values", "explained"), (p,)),
        **dict.fromkeys(("start", "X", "sparse", "common"), (n, p)),
    }
    others = {field.name for field in fields(Found)} - {*shapes, "over", "final", "agreed", *OF_BYTES}
    found = {name: getattr(memory.found, name) for name in (*shapes, *others)}
    return all(each is None or np.shape(each) == shapes.get(name, ()) for name, each in found.items())


def _has_own_secrets(memory: Memory, peer: _Peer) -> bool:
    """Its own until they have agreed, then one for each neighbor; and what stands for words told since then."""
    names = [end.name for end in memory.found.over]
    has_agreed = MASKS in names
    is_told = has_agreed and any(name not in peer.plan.mixing for name in names[names.index(MASKS) + 1 :])
    expected = (
        SECRET_BYTES if peer.plan.is_masked and not has_agreed else None,
        len(peer.neighbors) * SECRET_BYTES if has_agreed else None,
        DIGEST_BYTES if is_told else None,
    )
    found = memory.found.own_secret, memory.found.secrets, memory.found.words
    return expected == tuple(None if each is None else len(each) for each in found)


def _has_own_stop(memory: Memory, peer: _Peer) -> bool:
    """A streak ends above the diameter, and a phase is not announced to end before the round that it is in."""
    stop = memory.stop
    return stop.streak <= peer.topology.graph.diameter + 1 and (stop.after is None or stop.after >= memory.k)


# What holds for every memory that a peer of the topology saves, by the field that it is about; in this order.
RULES: Final[dict[str, Callable[[Memory, _Peer], bool]]] = {
    "phase": _has_own_phases,
    "k": _has_own_rounds,
    "stop": _has_own_stop,
    "said": _has_said_in_order,
    "fallbacks": lambda memory, peer: set(memory.fallbacks) == peer.neighbors,
    "done": lambda memory, peer: memory.done <= peer.neighbors,
    "calm": lambda memory, peer: len(memory.calm) in (0, calm_size(peer.topology.graph.diameter)),
    "births": lambda memory, peer: peer.neighbors >= set(memory.births),
    "found": lambda memory, peer: _has_found_shapes(memory, peer) and _has_own_secrets(memory, peer),
}
