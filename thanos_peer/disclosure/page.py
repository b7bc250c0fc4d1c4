"""The page of one site: what it reveals in a run, for who has to answer for its data."""

from collections.abc import Iterator

from thanos_peer.block import AgentId
from thanos_peer.disclosure.contents import (
    MOST_SHOWN,
    content_of,
    given_away,
    nearest_alone,
    worked_out,
)
from thanos_peer.phases.masking import NAME as MASKS
from thanos_peer.preparation import outline
from thanos_peer.topology import Topology
from thanos_peer.topology.exposure import smallest_coalition
from thanos_peer.topology.policy import SitePolicy, named_peers, why_unmasked
from thanos_peer.topology.sections import FileData


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
    rows += _learnt_from_sums(topology, agent, mixes=bool(mixing))
    return [*rows, ("a stranger on the network", _overheard(topology))]


def _learnt_from_sums(topology: Topology, agent: AgentId, *, mixes: bool) -> Iterator[tuple[str, ...]]:
    """What is learnt where peers sum, besides what neighbors learn where they mix."""
    graph, alone = topology.graph, nearest_alone(topology, agent)
    for other, part in alone:
        if mixes and other in graph.neighbors[agent]:
            continue
        what = "**its own numbers**" if len(part) == 1 else f"the sums over {named_peers(part)} together"
        yield f"peer {other}, alone", what
    if graph.d == 2:
        yield f"peer {1 - agent}, alone", "**its own numbers**: they are the result less those of that peer"
        return
    if not mixes:
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
