"""What a site asks of every run that it takes part in: rules of its own, which no topology file can change.

A rule is a field of `Policy`, and a line of RULES that says how a topology breaks it. All are looked at before a
socket is opened, so that a run which breaks one never hears of this site. `policy_files.py` finds the files that
rules stand in.

Who learns what follows from the graph, from the method, and from whether sums are masked, for peers that keep to
the protocol: rules judge by all three.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from thanos_peer.algorithm.methods import AUTO
from thanos_peer.block import AgentId
from thanos_peer.errors import PolicyError
from thanos_peer.topology.exposure import learnt_alone, smallest_coalition
from thanos_peer.topology.model import Topology
from thanos_peer.topology.section import Section

MOST_NAMED = 6  # peers


class Policy(Section):
    """The rules; one that is left out asks for nothing.

    Attributes:
        least_samples: So many samples this site must have in the run.
        largest_share: No site may have a larger share of all samples, by what the topology file says of them.
        no_sole_neighbor: No other peer alone may learn this site's own numbers: a sole neighbor does, so does each
            neighbor with a method that mixes, and the parent of a leaf where sums are not masked.
        no_cut_vertex: No other peer alone may learn a sum over fewer than all others: one that divides the graph
            does, and where sums are not masked one that divides the tree.
        least_coalition: So many peers must tell each other what they hear before they learn its own numbers.
        masked_sums: What leaves this site must be masked sums; methods that mix send something else.
        encryption: Every link must be encrypted.
        no_code_of_others: The topology file must not name own code: an objective or a regularizer.
    """

    least_samples: Annotated[int, Field(ge=1)] | None = None
    largest_share: Annotated[float, Field(gt=0, le=1)] | None = None
    no_sole_neighbor: bool = False
    no_cut_vertex: bool = False
    least_coalition: Annotated[int, Field(ge=2)] | None = None
    masked_sums: bool = False
    encryption: bool = False
    no_code_of_others: bool = False

    @property
    def asked(self) -> dict[str, Any]:
        """The rules that ask for something, by name."""
        return {name: value for name, value in self.model_dump().items() if value not in (None, False)}


@dataclass(frozen=True)
class SitePolicy:
    """The rules of a site, by the files that they stand in: a run must keep those of all files."""

    files: Mapping[Path, Policy] = field(default_factory=dict)

    @property
    def agreed(self) -> dict[str, Any]:
        """The rules of all files together, by name: of two with the same name what the stricter one asks."""
        found: dict[str, Any] = {}
        for rules in self.files.values():
            for name, value in rules.asked.items():
                found[name] = STRICTER[name](found[name], value) if name in found else value
        return found

    @property
    def counts_samples(self) -> bool:
        """Whether only the samples of this site can tell if the rules hold."""
        return "least_samples" in self.agreed

    def check(
        self,
        topology: Topology,
        agent: AgentId,
        *,
        mixing: tuple[str, ...],
        samples: int | None = None,
        unmasked: str = "",
    ) -> None:
        """Refuse a run that breaks a rule, with every rule that it breaks.

        Args:
            topology: Of the run.
            agent: Which peer this site is.
            mixing: The phases in which neighbors are told matrices of its own.
            samples: How many it has; None while that is not known, or where they follow from the topology.
            unmasked: Why sums are not masked, if that does not follow from the topology file.

        Raises:
            PolicyError: It breaks one.
        """
        broken: dict[str, list[Path]] = {}
        for file, rules in self.files.items():
            case = Case(rules, topology, agent, mixing, samples, unmasked)
            for name, value in rules.asked.items():
                if (fault := RULES[name](case)) is not None:
                    broken.setdefault(f"{name} = {str(value).lower()}: {fault}", []).append(file)
        if broken:
            files = dict.fromkeys(str(file) for each in broken.values() for file in each)
            raise PolicyError(list(files), str(topology.file), agent, list(broken))


@dataclass(frozen=True)
class Case:
    """What a rule is held against: the arguments of `SitePolicy.check`."""

    policy: Policy
    topology: Topology
    agent: AgentId
    mixing: tuple[str, ...]
    samples: int | None = None
    unmasked: str = ""

    @property
    def why_unmasked(self) -> str:
        """That sums are not masked, and why, where they are not."""
        return f"sums are not masked, as {self.unmasked or why_unmasked(self.topology)}"


def _samples_fault(case: Case) -> str | None:
    least, found = case.policy.least_samples or 0, case.samples
    return None if found is None or found >= least else f"this site has {found}"


def _share_fault(case: Case) -> str | None:
    peers = case.topology.peers
    counts = {peer.id: peer.samples for peer in peers if peer.samples is not None}
    if len(counts) < len(peers):
        first = next(peer.id for peer in peers if peer.samples is None)
        return f"the topology file does not say how many samples peer {first} has (key samples of that peer)"
    most = max(counts, key=lambda i: counts[i])
    share = counts[most] / sum(counts.values())
    is_within = share <= (case.policy.largest_share or 0.0)
    return None if is_within else f"peer {most} has {share:.3g} of all samples"


def _sole_fault(case: Case) -> str | None:
    """How one other peer, or one stranger, learns this site's own numbers."""
    topology = case.topology
    if topology.d == 1:
        return None
    if topology.content.unencrypted is not None:
        return "links are in the clear (key unencrypted): a listener on the way hears what all its neighbors hear"
    if case.mixing:
        return f"in phase {case.mixing[0]} each neighbor alone can work out its own numbers; {_way_out(case)}"
    if topology.d == 2:
        return "of two peers each one learns what the other has"
    coalition = smallest_coalition(topology.graph, case.agent, are_masked=topology.masks_sums)
    if len(coalition) > 1:
        return None
    is_sole = len(topology.graph.neighbors[case.agent]) == 1
    why = "it is its one neighbor" if is_sole else f"{case.why_unmasked}"
    return f"peer {coalition[0]} alone learns its own numbers: {why}"


def _cut_fault(case: Case) -> str | None:
    if (fault := _sole_fault(case)) is not None:
        return fault
    topology = case.topology
    for other, part in learnt_alone(topology.graph, case.agent, are_masked=topology.masks_sums):
        why = "" if topology.masks_sums else f": {case.why_unmasked}"
        return f"peer {other} alone learns the sum over {named_peers(part)}{why}"
    return None


def _coalition_fault(case: Case) -> str | None:
    topology = case.topology
    if (fault := _sole_fault(case)) is not None:
        return fault
    coalition = smallest_coalition(topology.graph, case.agent, are_masked=topology.masks_sums)
    if topology.d == 1 or len(coalition) >= (case.policy.least_coalition or 0):
        return None
    why = "they are all its neighbors" if topology.masks_sums else case.why_unmasked
    return f"{named_peers(coalition)} together learn its own numbers, {len(coalition)} in all: {why}"


def _mask_fault(case: Case) -> str | None:
    if case.topology.d == 1:
        return None
    if case.mixing:
        return f"in phase {case.mixing[0]} neighbors are told more than sums; {_way_out(case)}"
    return None if case.topology.masks_sums else case.why_unmasked


def why_unmasked(topology: Topology) -> str:
    """Why a run does not mask its sums."""
    if topology.has_keys:
        return "algorithm.masks is false"
    return "masks need keys (`thanos-peer keys new`)"


def _way_out(case: Case) -> str:
    return f"{sums_alone_by(case.topology, case.mixing)} every phase sums"


def sums_alone_by(topology: Topology, mixing: tuple[str, ...]) -> str:
    """With what settings there would be sums alone."""
    method = [f'method = "{AUTO}"'] if topology.method in mixing else []
    start = ['start = { kind = "leading" }'] if set(mixing) - {topology.method} else []
    return f"with {' and '.join(method + start)}"


def _encryption_fault(case: Case) -> str | None:
    is_clear = case.topology.d > 1 and not case.topology.has_keys
    return "the topology file has no keys, so nothing is encrypted" if is_clear else None


def _code_fault(case: Case) -> str | None:
    return next((f"{key} is {what}" for key, what in case.topology.problem.own_code().items()), None)


def named_peers(agents: tuple[AgentId, ...]) -> str:
    """Some peers in words."""
    shown = ", ".join(map(str, agents[:MOST_NAMED]))
    more = f" and {len(agents) - MOST_NAMED} more" if len(agents) > MOST_NAMED else ""
    return f"{'peer' if len(agents) == 1 else 'peers'} {shown}{more}"


# How a run breaks a rule; None where it does not.
RULES: Final[Mapping[str, Callable[[Case], str | None]]] = {
    "least_samples": _samples_fault,
    "largest_share": _share_fault,
    "no_sole_neighbor": _sole_fault,
    "no_cut_vertex": _cut_fault,
    "least_coalition": _coalition_fault,
    "masked_sums": _mask_fault,
    "encryption": _encryption_fault,
    "no_code_of_others": _code_fault,
}
# What two files together ask, of which each has the rule.
STRICTER: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    name: min if name == "largest_share" else or_ if kind.annotation is bool else max
    for name, kind in Policy.model_fields.items()
}
