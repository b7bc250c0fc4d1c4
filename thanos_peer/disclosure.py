"""What one site of a run reveals, to whom, in which phase and under which coalition: before anything runs."""

from collections.abc import Iterator, Mapping
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
    smallest_coalition,
    sole_neighbors,
)
from thanos_peer.topology.policy import SitePolicy, named_peers, sums_alone_by, why_unmasked
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
    "agreement": Content(
        "a norm of its second moments, and its gradient at the start", "their sums over all peers"
    ),
    "consensus": Content(
        "its own X; the root tells all which entries of its own are zero",
        "the mean of all X, and the sparse answer",
    ),
    "verdict": Content(
        "its gradient at the answer, and how much of its variance that captures",
        "the same of all samples together",
    ),
}
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
    tells_sums = isinstance(data, FileData) and (data.center or data.scale)
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


def page(topology: Topology, agent: AgentId, policy: SitePolicy | None = None) -> str:
    """What a site reveals in this run, in Markdown, for who has to answer for its data."""
    return "\n".join(
        [
            f"# What peer {agent} reveals in the run {topology.name}",
            "",
            *_table(("the run", ""), _of_the_run(topology, policy or SitePolicy())),
            "",
            "## What leaves this site",
            "",
            *_table(
                ("phase", "what it brings", "who hears it", "what all learn, at most"), _sent(topology, agent)
            ),
            "",
            *_besides(topology),
            "",
            "## Who learns what",
            "",
            *_table(("who", "learns of this site"), _learnt(topology, agent)),
            "",
            *_explained(topology),
            "",
            "## What this does not promise",
            "",
            *_NOT_PROMISED,
            "",
            "## Agreed",
            "",
            "The `agreement` above covers the digest, the ids and public keys of all peers, and whether sums are",
            "masked. The result of this peer (.json) has the same digest if that is what was run, and its rules.",
            "",
            *_table(("site", "name", "date", "signature"), [("", "", "", "")]),
            "",
        ]
    )


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    for row in (head, ("---",) * len(head), *rows):
        yield f"| {' | '.join(row)} |"


_NOT_PROMISED = (
    "- All of this holds for peers that keep to the protocol. They may record what they hear, and tell others.",
    "- All peers learn the result. A peer that takes its own numbers from it has the sum of all others.",
    "- Two runs, one with this site and one without, tell its own numbers to all who see both, if the other peers",
    "  bring the same.",
    "- Masks do not keep a peer from bringing wrong numbers, nor the run from being stopped.",
    "- A person who has this host has its numbers. So have its checkpoints: they are removed when all peers are",
    "  done, and stay where the run ends otherwise.",
    "- No noise is added: the result is not differentially private.",
)


def _besides(topology: Topology) -> list[str]:
    """What goes along with the numbers, and what does not."""
    if topology.d == 1:
        return ["There is no other peer, so nothing is sent."]
    return [
        "No message has samples, names of samples or names of files. Besides numbers, neighbors hear the version",
        "of the software, when this peer was started, its round, and for which peers it waits; if it ends with an",
        "error, of which kind that is. Peers pass digests of the names of the features on to all peers: a peer",
        "that guesses all names can check that. All who have the topology file see who takes part, at which",
        "address, and the paths of data files and the numbers of samples that stand there.",
    ]


def _explained(topology: Topology) -> list[str]:
    """What own numbers are, and how much they may tell."""
    if topology.d == 1 or not isinstance(topology.problem.data, FileData):
        return ["There is nothing to work out."]
    meaning = '"Own numbers" are those in the column "what it brings".'
    if topology.problem.objective is not None:
        return [f"{meaning} What these tell of samples depends on the objective."]
    lines = [
        f"{meaning} Second moments are the sums of products",
        "of each two features over the samples of this site. With few samples, or with extreme ones, they may",
        "tell much about these.",
    ]
    if given_away(topology) == 1:
        return [*lines, "A single sample follows from them up to its sign."]
    return [*lines, "One sample, or two, follow from them together with the sums of the features."]


def _of_the_run(topology: Topology, policy: SitePolicy) -> list[tuple[str, ...]]:
    problem, mixing = topology.problem, outline(topology).mixing
    made = "made from a seed that stands in the topology file: nothing is secret"
    kind = "from a file at each site" if isinstance(problem.data, FileData) else made
    rules = ", ".join(f"{name} = {str(value).lower()}" for name, value in policy.agreed.items()) or "none given"
    how = f"mixes in phase {' and '.join(mixing)}" if mixing else "sums in every phase"
    return [
        ("digest", f"`{topology.digest}`"),
        ("agreement", f"`{topology.agreement}`"),
        ("peers", str(topology.d)),
        ("data", f"{problem.n} features, {kind}"),
        ("method", f"{topology.method}: {how}"),
        ("links", _links(topology)),
        ("sums", _sums(topology)),
        ("rules of this site", rules),
    ]


def _links(topology: Topology) -> str:
    if topology.d == 1:
        return "none"
    if topology.has_keys:
        return "encrypted, and each end proves its key"
    if topology.content.unencrypted is None:
        return "**in the clear**, within one host"
    return "**in the clear**: a listener on the way hears all that neighbors hear"


def _sums(topology: Topology) -> str:
    if topology.d == 1:
        return "of one peer"
    return "masked" if topology.masks_sums else f"**not masked**: {why_unmasked(topology)}"


def _sent(topology: Topology, agent: AgentId) -> list[tuple[str, ...]]:
    plan = outline(topology)
    neighbors = f"its neighbors: {named_peers(topology.graph.neighbors[agent])}"
    rows: list[tuple[str, ...]] = []
    for phase in plan.phases:
        own, all_learn = content_of(topology, phase.name)
        is_to_all = phase.name in (*plan.mixing, MASKS) and topology.d > 1
        rows.append((phase.name, own, neighbors if is_to_all else _summed_by(topology, agent), all_learn))
    return rows


def _summed_by(topology: Topology, agent: AgentId) -> str:
    """Who hears what this agent brings to a sum."""
    tree = topology.graph.tree
    if topology.d == 1:
        return "no other peer"
    if tree.root == agent:
        return "no other peer: it is the root, which adds it to the sum"
    below = ", in one sum with those below it" if tree.children(agent) else ""
    return f"peer {tree.parents[agent]}{below}{', masked' if topology.masks_sums else ''}"


def _learnt(topology: Topology, agent: AgentId) -> list[tuple[str, ...]]:
    graph, mixing = topology.graph, outline(topology).mixing
    if not isinstance(topology.problem.data, FileData):
        return [("all who have the topology file", "all its samples: they can make them themselves")]
    if graph.d == 1:
        return [("no other peer", "nothing")]
    rows: list[tuple[str, ...]] = [
        (f"peer {j}, alone", f"can work out {worked_out(topology)}, from phase {' and '.join(mixing)}")
        for j in graph.neighbors[agent]
        if mixing
    ]
    if mixing and len(graph.neighbors[agent]) < graph.d - 1:
        rest = "may work out the same: what neighbors send on follows from its numbers, too"
        rows.append(("any peer that is no neighbor, alone", rest))
    rows += _learnt_from_sums(topology, agent, is_all=not mixing)
    return [*rows, ("a stranger on the network", _overheard(topology))]


def _learnt_from_sums(topology: Topology, agent: AgentId, *, is_all: bool) -> Iterator[tuple[str, ...]]:
    """What is learnt where peers sum; `is_all` says whether they only sum."""
    graph, alone = topology.graph, nearest_alone(topology, agent)
    for other, part in alone:
        what = "**its own numbers**" if len(part) == 1 else f"the sums over {named_peers(part)} together"
        yield f"peer {other}, alone", what
    if graph.d == 2:
        yield f"peer {1 - agent}, alone", "**its own numbers**: they are the result less those of that peer"
        return
    if is_all:
        rest = "any other peer, alone" if alone else "any one peer, alone"
        is_complete = len(alone) < MOST_SHOWN
        yield (
            rest,
            "nothing but the result: the sums over all" if is_complete else "sums over more peers than that",
        )
    coalition = smallest_coalition(graph, agent, are_masked=topology.masks_sums)
    if 1 < len(coalition) < graph.d - 1:
        why = "they are all its neighbors" if topology.masks_sums else "it sums with no other"
        yield f"{named_peers(coalition)}, together", f"**its own numbers**: {why}"
    yield "all other peers, together", "**its own numbers**: they are the result less theirs"


def _overheard(topology: Topology) -> str:
    if topology.has_keys:
        return "who speaks with whom, when and how much"
    return (
        "nothing: no link leaves the host" if topology.content.unencrypted is None else "all that a neighbor hears"
    )
