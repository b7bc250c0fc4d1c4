"""What a site asks of every run that it takes part in: rules of its own, which no topology file can change.

A rule is a field of `Policy`, and a line of RULES that says how a topology breaks it. All are looked at before a
socket is opened, so that a run which breaks one never hears of this site.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError

from thanos_peer.algorithm.methods import AUTO
from thanos_peer.block import AgentId
from thanos_peer.errors import PolicyError
from thanos_peer.topology.exposure import cut_vertices, learnt_from_sums
from thanos_peer.topology.load import as_mistakes
from thanos_peer.topology.model import Topology
from thanos_peer.topology.sections import Section
from thanos_peer.topology.text import read_toml

MOST_NAMED = 6  # peers


class Policy(Section):
    """The rules; one that is left out asks for nothing.

    Attributes:
        least_samples: So many samples this site must have in the run.
        largest_share: No site may have a larger share of all samples, by what the topology file says of them.
        no_sole_neighbor: This site must have two neighbors or more.
        no_cut_vertex: No other peer alone may separate this site from any part of the network.
        least_coalition: So many peers must tell each other what they hear before they learn its own numbers.
        masked_sums: Whatever leaves this site must be a masked sum; methods that mix send something else.
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
    """The rules, and the file that they stand in."""

    file: Path
    rules: Policy

    def check(
        self, topology: Topology, agent: AgentId, *, mixing: tuple[str, ...], samples: int | None = None
    ) -> None:
        """Refuse a run that breaks a rule, with every rule that it breaks.

        Args:
            topology: Of the run.
            agent: Which peer this site is.
            mixing: The phases in which neighbors are told matrices of its own.
            samples: How many it has; None while that is not known.

        Raises:
            PolicyError: It breaks one.
        """
        case = Case(self.rules, topology, agent, mixing, samples)
        faults = [
            f"{name} = {str(value).lower()}: {fault}"
            for name, value in self.rules.asked.items()
            if (fault := RULES[name](case)) is not None
        ]
        if faults:
            raise PolicyError(str(self.file), str(topology.file), agent, faults)


def read_policy(file: Path) -> SitePolicy:
    """The rules in a file.

    Raises:
        TopologyError: It is none, with all its mistakes.
    """
    raw = read_toml(file)
    try:
        return SitePolicy(file, Policy.model_validate(raw))
    except ValidationError as error:
        raise as_mistakes(file, error, {(): Policy}) from error


@dataclass(frozen=True)
class Case:
    """What a rule is held against: the arguments of `SitePolicy.check`."""

    policy: Policy
    topology: Topology
    agent: AgentId
    mixing: tuple[str, ...]
    samples: int | None = None


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
    neighbors = case.topology.graph.neighbors[case.agent]
    return f"its one neighbor is peer {neighbors[0]}" if len(neighbors) == 1 else None


def _cut_fault(case: Case) -> str | None:
    graph = case.topology.graph
    if graph.d == 2:
        return "of two peers each one learns what the other has"
    for other in cut_vertices(graph):
        if other != case.agent:
            parts = learnt_from_sums(graph, {other}, are_masked=True).parts
            own = next(part for part in parts if case.agent in part)
            return f"peer {other} learns the sum over {named_peers(own)} apart from the others"
    return None


def _coalition_fault(case: Case) -> str | None:
    size = len(case.topology.graph.neighbors[case.agent])
    is_enough = size >= (case.policy.least_coalition or 0)
    return None if is_enough else f"its neighbors are {size}, and together they learn its own numbers"


def _mask_fault(case: Case) -> str | None:
    if case.mixing:
        return f'in phase {case.mixing[0]} neighbors are told more than sums; method = "{AUTO}" sums alone'
    return None if case.topology.masks_sums else "sums are not masked in this run; they are where there are keys"


def _encryption_fault(case: Case) -> str | None:
    return None if case.topology.has_keys else "the topology file has no keys, so nothing is encrypted"


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
