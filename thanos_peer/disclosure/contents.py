"""What a site brings to each phase, and what others learn of it: to warn one site, and to check a file."""

from collections.abc import Mapping
from itertools import islice
from typing import Final

from thanos_peer.algorithm.methods import METHODS
from thanos_peer.algorithm.traits import MIXED, Content
from thanos_peer.block import AgentId
from thanos_peer.phases.masking import NAME as MASKS
from thanos_peer.preparation import outline
from thanos_peer.topology import Topology
from thanos_peer.topology.exposure import (
    cut_vertices,
    edges_against_exposure,
    learnt_alone,
    sole_neighbors,
)
from thanos_peer.topology.policy import named_peers, sums_alone_by, why_unmasked
from thanos_peer.topology.sections import FileData

MOST_SHOWN = 10  # of a list in one line


# Of phases that sum; one that learns a peer's own numbers learns what it brings.
SUMMED: Final[Mapping[str, Content]] = {
    "mean": Content(
        "its number of samples, and the sum of each feature", "the number of all samples, and the means"
    ),
    "spread": Content("the sum of squares of each feature about the common mean", "the variances"),
    "size": Content("the largest eigenvalue of its second moments, and their trace", "the sums of those"),
    "leading": Content(
        "its second moments times one matrix after the other, which may determine them",
        "that of all together: the leading directions and eigenvalues",
    ),
    "rotation": Content("its second moments within p directions", "those of all samples together"),
    "weights": Content("the sum of squares of each feature", "the values of mu"),
    "agreement": Content(
        "a norm of its second moments, and its gradient at the start", "their sums over all peers"
    ),
    "consensus": Content(
        "its own X; the root tells all which entries of its own are zero",
        "the mean of all X, and the sparse answer",
    ),
    "verdict": Content(
        "its gradient at the answer, and how much of its variance that captures; of a path over mu at each answer",
        "the same of all samples together",
    ),
}
# The same, where missing values are filled in.
OF_GAPS: Final = Content(
    "its number of samples, how many values of each feature it has, and the sum of each feature",
    "the number of all samples, how many values of each feature are missing, and the means",
)
# The same, where the method mixes.
OF_MIXING: Final[Mapping[str, Content]] = {
    "size": Content(
        f"{SUMMED['size'].own}; with some methods also its gradient at the start", "the sums of those"
    ),
}
# The same, where the objective is a site's own.
OF_OWN_OBJECTIVES: Final[Mapping[str, Content]] = {
    "size": Content("the bound that its class gives of how steep its objective is", "the sum of those"),
    "agreement": Content("that bound, and its gradient at the start", "their sums over all peers"),
    "verdict": Content("the value and the gradient of its objective at the answer", "their sums over all peers"),
}
KEYS: Final = Content("a fresh public key, which says nothing of its samples", "nothing")


def content_of(topology: Topology, phase: str) -> Content:
    """What a peer brings to a phase."""
    is_pca = topology.problem.objective is None
    if phase in METHODS:
        return METHODS[phase].content(is_pca=is_pca)
    if phase == "mean" and topology.problem.data.fills:
        return OF_GAPS
    mixing = OF_MIXING if METHODS[topology.method].mixes else {}
    own = mixing if is_pca else OF_OWN_OBJECTIVES
    return KEYS if phase == MASKS else own.get(phase) or SUMMED.get(phase, MIXED)


# Peers that alone learn a sum over fewer than all others, and over which.
Alone = list[tuple[AgentId, tuple[AgentId, ...]]]


def nearest_alone(topology: Topology, agent: AgentId) -> Alone:
    """Those peers for this agent; of very many only the nearest, which learn the sums over the fewest."""
    return list(islice(learnt_alone(topology.graph, agent, are_masked=topology.masks_sums), MOST_SHOWN))


def worked_out(topology: Topology) -> str:
    """What a neighbor can work out of one peer where they mix."""
    if topology.problem.objective is None:
        return "the second moments of its samples"
    return "gradients of its objective, that at the start first; what these tell of samples depends on its class"


def given_away(topology: Topology) -> int:
    """So many samples, or fewer, follow from what a peer brings; of an own objective that is not known."""
    if topology.problem.objective is not None:
        return 0
    data = topology.problem.data
    tells_sums = isinstance(data, FileData) and (data.center or data.scale or data.fills)
    return 2 if tells_sums else 1


def warnings(topology: Topology, agent: AgentId, samples: int | None) -> list[str]:
    """What a site should know before it takes part with so many samples; None where these are no secret."""
    if samples is None or topology.d == 1:
        return []
    mixing, alone = outline(topology).mixing, nearest_alone(topology, agent)
    found = [
        f"in phase {phase} each neighbor of this peer, alone, can work out {worked_out(topology)}; "
        f"{sums_alone_by(topology, mixing)} every phase sums"
        for phase in mixing
    ]
    why = "" if topology.masks_sums else ", as sums are not masked"
    found += [f"peer {other} alone learns the sums over {named_peers(part)}{why}" for other, part in alone]
    is_open = bool(mixing) or topology.d == 2 or any(len(part) == 1 for _, part in alone)
    if samples <= given_away(topology) and is_open:
        found.append(f"this peer has {samples} sample(s) only, which follow from its own sums")
    return found


def exposure_facts(topology: Topology) -> dict[str, str]:
    """What `topology check` says of all peers."""
    if topology.problem.data.kind == "synthetic":
        return {}
    graph, mixing = topology.graph, outline(topology).mixing
    if graph.d == 1:
        return {"neighbors learn": "nothing: there is one peer only"}
    if mixing:
        learn = (
            f"of a peer, each alone, from phase {' and '.join(mixing)}: {worked_out(topology)}; "
            f"{sums_alone_by(topology, mixing)} every phase sums"
        )
    elif topology.masks_sums:
        learn = "sums, which are masked; see `thanos-peer disclose`"
    else:
        learn = (
            "a peer's parent in the tree the sum over the peer and all below it, so of a leaf its own numbers; "
            f"sums are not masked: {why_unmasked(topology)}"
        )
    lines = {"neighbors learn": learn}
    if graph.d == 2:
        return lines | {"exposed": "each of the two peers learns what the other has: no masks help"}
    # Where they mix each neighbor learns more than that, and another edge is one more neighbor.
    return lines if mixing else lines | _exposed_by_graph(topology)


def _exposed_by_graph(topology: Topology) -> dict[str, str]:
    graph, lines = topology.graph, dict[str, str]()
    sole = [f"{i} by {j}" for i, j in sole_neighbors(graph).items()]
    cuts = [f"{i} ({' and '.join(map(str, parts))})" for i, parts in cut_vertices(graph).items()]
    if sole:
        lines["exposed"] = f"peers with a sole neighbor, which learns their own numbers: {_listed(sole)}"
    if cuts:
        lines["divided by"] = f"peers that alone learn the sum of each part: {_listed(cuts)} (sizes of the parts)"
        edges = [f"[{i}, {j}]" for i, j in edges_against_exposure(graph)]
        masks = "" if topology.masks_sums else ", and masked sums,"
        lines["edges that help"] = (
            f"{_listed(edges)}: with them{masks} no peer alone learns a sum over fewer than all others"
        )
    return lines


def _listed(texts: list[str]) -> str:
    more = f" and {len(texts) - MOST_SHOWN} more" if len(texts) > MOST_SHOWN else ""
    return ", ".join(texts[:MOST_SHOWN]) + more
