"""What one site of a run reveals, to whom, in which phase and under which coalition: before anything runs."""

from collections.abc import Iterator, Mapping
from typing import Final

from thanos_peer.algorithm.methods import AUTO, METHODS
from thanos_peer.algorithm.traits import MIXED, Content
from thanos_peer.block import AgentId
from thanos_peer.phases.masking import NAME as MASKS
from thanos_peer.preparation import outline
from thanos_peer.topology import Topology
from thanos_peer.topology.exposure import (
    Learnt,
    cut_vertices,
    edges_against_exposure,
    learnt_from_sums,
    smallest_coalition,
    sole_neighbors,
)
from thanos_peer.topology.graph import Graph
from thanos_peer.topology.policy import SitePolicy, named_peers

# So many samples, or fewer, follow from their sum and their sum of squares.
MOST_GIVEN_AWAY = 2
MOST_SHOWN = 10  # of a list in one line


# Of phases that sum; one that learns a peer's own numbers learns what it brings.
SUMMED: Final[Mapping[str, Content]] = {
    "mean": Content(
        "its number of samples, and the sum of each feature", "the number of all samples, and the means"
    ),
    "spread": Content("the sum of squares of each feature about the common mean", "the variances"),
    "size": Content(
        "the largest eigenvalue of its second moments, and their trace; for some methods that mix also its "
        "gradient at the start",
        "the sums of those",
    ),
    "leading": Content(
        "its second moments times one matrix after the other, which may determine them",
        "that of all together: the leading directions and eigenvalues",
    ),
    "rotation": Content("its second moments within p directions", "those of all samples together"),
    "weights": Content("the sum of squares of each feature", "the values of mu"),
    "agreement": Content(
        "a norm of its second moments, and its gradient at the start", "their sums over all peers"
    ),
    "consensus": Content("its own X", "the mean of all X"),
    "verdict": Content(
        "its gradient at the answer, and how much of its variance that captures; of a path over mu at each answer",
        "the same of all samples together",
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
    own = {} if is_pca else OF_OWN_OBJECTIVES
    return KEYS if phase == MASKS else own.get(phase) or SUMMED.get(phase, MIXED)


def learnt_alone(topology: Topology, agent: AgentId) -> dict[AgentId, tuple[AgentId, ...]]:
    """The peers that alone learn a sum over fewer than all others, and over which; this agent is one of these.

    Of very many only the nearest, which learn the sums over the fewest.
    """
    graph, are_masked = topology.graph, topology.masks_sums
    suspects = set(cut_vertices(graph)) if are_masked else {graph.tree.parents[agent], *graph.neighbors[agent]}
    nearest = [other for other in _by_distance(graph, agent) if other in suspects and other != agent]
    parts = {
        other: part_of(learnt_from_sums(graph, {other}, are_masked=are_masked), agent)
        for other in nearest[:MOST_SHOWN]
    }
    return {other: part for other, part in parts.items() if len(part) < graph.d - 1}


def _by_distance(graph: Graph, agent: AgentId) -> list[AgentId]:
    found = {agent: None}
    for i in (queue := [agent]):
        new = [j for j in graph.neighbors[i] if j not in found]
        found |= dict.fromkeys(new)
        queue += new
    return queue


def part_of(learnt: Learnt, agent: AgentId) -> tuple[AgentId, ...]:
    """The peers whose sum with this one's numbers is learnt."""
    return next(part for part in learnt.parts if agent in part)


def warnings(topology: Topology, agent: AgentId, samples: int | None) -> list[str]:
    """What a site should know before it takes part with so many samples; None where these are no secret."""
    if samples is None:
        return []
    mixing, alone = outline(topology).mixing, learnt_alone(topology, agent)
    found = [
        f"in phase {phase} this peer's neighbors can work out the second moments of its samples, each of them "
        f'alone; method = "{AUTO}" sums alone'
        for phase in mixing
    ]
    found += [
        f"peer {other} alone learns the sums over {named_peers(part)}{_why(topology)}"
        for other, part in alone.items()
    ]
    is_open = bool(mixing) or topology.d == 2 or any(len(part) == 1 for part in alone.values())
    if samples <= MOST_GIVEN_AWAY and is_open:
        found.append(f"this peer has {samples} sample(s) only, which follow from its own sums")
    return found


def _why(topology: Topology) -> str:
    return "" if topology.masks_sums else ", as sums are not masked in this run"


def exposure_facts(topology: Topology) -> dict[str, str]:
    """What `topology check` says of all peers."""
    if topology.problem.data.kind == "synthetic":
        return {}
    graph = topology.graph
    lines, mixing = {}, outline(topology).mixing
    if mixing:
        lines["neighbors learn"] = (
            f"the second moments of a peer's samples, from phase {' and '.join(mixing)}; sums alone with "
            f'method = "{AUTO}"'
        )
    elif topology.masks_sums:
        lines["neighbors learn"] = "sums alone, which are masked; see `thanos-peer disclose`"
    else:
        lines["neighbors learn"] = "sums alone, but a peer's parent learns its own: masks need keys"
    if graph.d == 2:
        return lines | {"exposed": "each of the two peers learns what the other has: no masks help"}
    sole = [f"{i} by {j}" for i, j in sole_neighbors(graph).items()]
    cuts = [f"{i} ({' and '.join(map(str, parts))})" for i, parts in cut_vertices(graph).items()]
    if sole:
        lines["exposed"] = f"peers with a sole neighbor, which learns their own numbers: {_listed(sole)}"
        edges = [f"[{i}, {j}]" for i, j in edges_against_exposure(graph)]
        lines["edges that help"] = f"{_listed(edges)}: with them no peer has a sole neighbor"
    if cuts:
        lines["divided by"] = f"peers that alone learn the sum of each part: {_listed(cuts)} (sizes of the parts)"
    return lines


def _listed(texts: list[str]) -> str:
    more = f" and {len(texts) - MOST_SHOWN} more" if len(texts) > MOST_SHOWN else ""
    return ", ".join(texts[:MOST_SHOWN]) + more


def page(topology: Topology, agent: AgentId, policy: SitePolicy | None = None) -> str:
    """What a site reveals in this run, in Markdown, for who has to answer for its data."""
    return "\n".join(
        [
            f"# What peer {agent} reveals in the run {topology.name}",
            "",
            *_table(("the run", ""), _of_the_run(topology, policy)),
            "",
            "## What leaves this site",
            "",
            *_table(("phase", "what it brings", "who hears it", "what all learn"), _sent(topology, agent)),
            "",
            "Samples, names of samples and file names never leave it. Neighbors get a digest of the names of the",
            "features, and everybody who has the topology file sees who takes part.",
            "",
            "## Who learns what",
            "",
            *_table(("who", "learns of this site"), _learnt(topology, agent)),
            "",
            '"Own numbers" are those in the column "what it brings". Second moments are the sums of products of',
            "each two features over the samples of this site. With few samples, or with extreme ones, they may",
            f"tell much about these; with {MOST_GIVEN_AWAY} or fewer they are the samples.",
            "",
            "## What this does not promise",
            "",
            "- All peers learn the result. Who takes its own numbers from it has the sum of all others.",
            "- Two runs, one with this site and one without, tell its own numbers to all who see both.",
            "- Masks do not keep a peer from bringing wrong numbers, nor the run from being stopped.",
            "- Whoever has this host, or its checkpoints while the run lasts, has its numbers.",
            "- No noise is added: the result is not differentially private.",
            "",
            "## Agreed",
            "",
            *_table(("site", "name", "date", "signature"), [("", "", "", "")]),
            "",
        ]
    )


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    for row in (head, ("---",) * len(head), *rows):
        yield f"| {' | '.join(row)} |"


_KINDS = {"files": "from a file at each site", "synthetic": "made from a seed that all know: nothing is secret"}


def _of_the_run(topology: Topology, policy: SitePolicy | None) -> list[tuple[str, ...]]:
    problem = topology.problem
    links = (
        "encrypted, and each end proves its key"
        if topology.has_keys
        else "**in the clear**: whoever listens on the way hears all that neighbors hear"
    )
    masks = "masked" if topology.masks_sums else "**not masked**: masks need keys in the topology file"
    asked = policy.rules.asked if policy is not None else {}
    rules = ", ".join(f"{name} = {str(value).lower()}" for name, value in asked.items()) or "none given"
    return [
        ("digest", f"`{topology.digest}`"),
        ("peers", str(topology.d)),
        ("data", f"{problem.n} features, {_KINDS[problem.data.kind]}"),
        ("method", f"{topology.method}: {'mixes' if METHODS[topology.method].mixes else 'sums alone'}"),
        ("links", links),
        ("sums", masks),
        ("rules of this site", rules),
    ]


def _sent(topology: Topology, agent: AgentId) -> list[tuple[str, ...]]:
    plan, tree = outline(topology), topology.graph.tree
    neighbors = f"its neighbors: {named_peers(topology.graph.neighbors[agent])}"
    parent = "nobody: it is the root" if tree.root == agent else f"peer {tree.parents[agent]}"
    parent += ", masked" if topology.masks_sums and tree.root != agent else ""
    rows: list[tuple[str, ...]] = []
    for phase in plan.phases:
        own, all_learn = content_of(topology, phase.name)
        is_to_all = phase.name in (*plan.mixing, MASKS)
        rows.append((phase.name, own, neighbors if is_to_all else parent, all_learn))
    return rows


def _learnt(topology: Topology, agent: AgentId) -> list[tuple[str, ...]]:
    graph, alone, mixing = topology.graph, learnt_alone(topology, agent), outline(topology).mixing
    rows: list[tuple[str, ...]] = [
        (f"peer {j}, alone", f"can work out its second moments, from what is sent in phase {mixing[0]}")
        for j in graph.neighbors[agent]
        if mixing
    ]
    for other, part in alone.items():
        what = "**its own numbers**" if len(part) == 1 else f"the sums over {named_peers(part)} together"
        rows.append((f"peer {other}, alone", what))
    if graph.d == 2:
        rows.append((f"peer {1 - agent}", "**its own numbers**: they are the result less those of that peer"))
    else:
        if not mixing:
            rest = "any other peer, alone" if alone else "any one peer, alone"
            is_all = topology.masks_sums and len(alone) < MOST_SHOWN
            what = "nothing but the result: the sums over all" if is_all else "sums over more peers than that"
            rows.append((rest, what))
        coalition = smallest_coalition(graph, agent)
        if coalition is not None and len(coalition) > 1:
            rows.append((f"{named_peers(coalition)}, together", "**its own numbers**: they are all its neighbors"))
        rows.append(("all other peers, together", "**its own numbers**: they are the result less theirs"))
    stranger = "who speaks with whom, when and how much" if topology.has_keys else "all that a neighbor hears"
    return [*rows, ("a stranger on the network", stranger)]
