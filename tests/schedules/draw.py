"""The faults of a schedule: drawn one by one, some as a scene that chance would hardly bring about."""

import random
from dataclasses import replace

from schedules.faults import FIRST_ROUNDS, LAST_ROUND, MIDWAY, NEAR_END, NEW_EPOCH, Fault

from thanos_peer.topology.graph import Graph

KINDS = ["kill", "kill", "kill", "power_cut", "stop", "freeze", "cut", "cut", "duplicate", "fail_disk"]
LONGEST = {  # seconds
    "kill": 3.0,
    "power_cut": 3.0,
    "stop": 0.0,
    "freeze": 8.0,
    "cut": 8.0,
    "duplicate": 0.0,
    "lose_disk": 2.0,
    "fail_disk": 2.0,
}
KINDS_AT = [*["kill", "stop"] * 4, "freeze", "cut", "duplicate", "lose_disk", "fail_disk"]
# More kinds for an epoch that some peers do not know yet.
AGAIN = ["lose_disk"] * 6
LATEST = {  # seconds after what is waited for
    MIDWAY: 0.1,
    NEAR_END: 0.1,
    LAST_ROUND: 0.1,
    NEW_EPOCH: 1.0,
    "while lost": 0.2,
    "while saving": 1.0,
    "while proving": 0.2,
    "while staying": 4.0,
}
# Earlier faults that bring about what would hardly come about by itself.
LEADS_TO = {
    "while proving": [("kill", "while staying"), ("stop", "while staying")],
    "while staying": [("kill", "while saving")],
    "while lost": [("lose_disk", MIDWAY), ("lose_disk", LAST_ROUND)],
    NEW_EPOCH: [("lose_disk", MIDWAY), ("lose_disk", MIDWAY), ("lose_disk", LAST_ROUND), ("cut", NEW_EPOCH)],
}


def faults_of(rng: random.Random, graph: Graph) -> list[Fault]:
    """What happens in one schedule."""
    faults, aside = _faults(rng, graph), random.Random()
    # Drawn aside, so that it decides about nothing else in the schedule.
    aside.setstate(rng.getstate())
    return [*faults, *_kills_in_the_first_rounds(aside, graph)] if aside.random() < 0.15 else faults


def _kills_in_the_first_rounds(rng: random.Random, graph: Graph) -> list[Fault]:
    """A peer, or two, are killed before, between or after what they save and send in the first two rounds."""
    nodes = rng.sample(range(len(graph.neighbors)), 2)
    return [
        Fault(0.0, "kill", (i,), rng.uniform(0.0, 1.0), rng.random(), when=rng.choice(FIRST_ROUNDS), of=i)
        for i in nodes[: rng.randint(1, 2)]
    ]


def _faults(rng: random.Random, graph: Graph) -> list[Fault]:
    if rng.random() < 0.25:
        return rng.choice(SCENES)(rng, graph)
    span = rng.choice([0.5, 2.0, 6.0])
    faults = [_fault(rng, rng.choice(KINDS), graph, span) for _ in range(rng.randint(0, 4))]
    if rng.random() < 0.2:
        faults.append(_fault(rng, "lose_disk", graph, span))
    if rng.random() < 0.6:
        faults += _faults_in_a_life(rng, graph)
    if rng.random() < 0.25:
        faults += rng.choice(SCENES)(rng, graph)
    return faults


def _fault(rng: random.Random, kind: str, graph: Graph, span: float) -> Fault:
    d = len(graph.neighbors)
    nodes = tuple(range(d)) if kind == "power_cut" else (rng.randrange(d),)
    seconds = rng.uniform(0.0, LONGEST[kind]) * rng.choice([0.1, 1.0, 1.0, 4.0])
    ways = _ways(rng, graph) if kind == "cut" else ()
    return Fault(rng.uniform(0, span), kind, nodes, seconds, rng.random(), ways)


def _ways(rng: random.Random, graph: Graph) -> tuple[tuple[int, int], ...]:
    """The directions of some edges, or of those between some peers and the others: one direction, or both."""
    d = len(graph.neighbors)
    edges = [(i, j) for i in range(d) for j in graph.neighbors[i] if i < j]
    if rng.random() < 0.5:
        cut = rng.sample(edges, rng.randint(1, len(edges)))
    else:
        inside = set(rng.sample(range(d), rng.randint(1, d // 2)))
        cut = [(i, j) for i in inside for j in graph.neighbors[i] if j not in inside]
    directions = rng.choice(["there", "back", "both"])
    there = [] if directions == "back" else cut
    return tuple(there + ([] if directions == "there" else [(j, i) for i, j in cut]))


def _faults_in_a_life(rng: random.Random, graph: Graph) -> list[Fault]:
    """Some that wait until a peer has come to some point of its life; most happen to that peer."""
    of, faults = rng.randrange(len(graph.neighbors)), []
    for _ in range(rng.randint(1, 3)):
        when = rng.choice([*LATEST, NEW_EPOCH, "while proving"])
        leading = LEADS_TO.get(when, [])
        kinds = KINDS_AT + (AGAIN if when == NEW_EPOCH else [])
        whats = [*rng.sample(leading, rng.randint(0, len(leading))), (rng.choice(kinds), when)]
        faults += [_fault_when(rng, what, graph, of) for what in whats]
    return faults


def _fault_when(rng: random.Random, what: tuple[str, str], graph: Graph, of: int) -> Fault:
    kind, when = what
    fault = _fault(rng, kind, graph, rng.choice([0.0, LATEST[when]]))
    nodes = (of,) if rng.random() < 0.7 else fault.nodes
    return replace(fault, when=when, of=of, nodes=nodes)


def _epoch_while_proving(rng: random.Random, graph: Graph) -> list[Fault]:
    """A peer that is done is started again while another one, which is no neighbor, begins a new epoch."""
    i, j = _strangers(rng, graph)
    return [
        Fault(0.0, "lose_disk", (j,), rng.uniform(0.1, 1.0), 0.0, when=NEAR_END, of=j),
        Fault(0.0, "kill", (i,), rng.uniform(1.0, 3.0), 0.9, when="while staying", of=i),
    ]


def _long_duplicate(rng: random.Random, graph: Graph) -> list[Fault]:
    """A peer that is done stays for another one for long enough that its duplicate notices it."""
    i, j = rng.sample(range(len(graph.neighbors)), 2)
    return [
        Fault(0.0, "kill", (j,), rng.uniform(12.0, 20.0), 0.9, when="while saving", of=i),
        Fault(0.1, "duplicate", (i,), 0.0, 0.9, when="while staying", of=i),
    ]


def _epoch_begun_twice(rng: random.Random, graph: Graph) -> list[Fault]:
    """A peer begins an epoch, which one neighbor hears of and the other does not; it loses its disk again.

    Its next life hears the other one first.
    """
    a, b = _strangers(rng, graph)
    between = [i for i in range(len(graph.neighbors)) if {a, b} <= set(graph.neighbors[i])]
    if not between:
        return []
    i = rng.choice(between)
    again, away = rng.uniform(0.3, 2.0), rng.uniform(0.1, 1.0)
    return [
        Fault(0.0, "lose_disk", (i,), 0.1, 0.0, when=MIDWAY, of=i),
        Fault(0.0, "cut", (i,), again + away, 0.0, ((i, b),), NEW_EPOCH, i),
        Fault(again, "lose_disk", (i,), away, 0.0, when=NEW_EPOCH, of=i),
        Fault(again, "cut", (i,), away + rng.uniform(1.0, 3.0), 0.0, ((i, a), (a, i)), NEW_EPOCH, i),
    ]


def _strangers(rng: random.Random, graph: Graph) -> tuple[int, int]:
    """Two peers that are no neighbors, if there are such."""
    d = len(graph.neighbors)
    pairs = [(i, j) for i in range(d) for j in range(d) if i != j and j not in graph.neighbors[i]]
    return rng.choice(pairs) if pairs else (0, 1)


def _disk_fails_at_the_end(rng: random.Random, graph: Graph) -> list[Fault]:
    """The last checkpoint cannot be written, or the result."""
    i, when = rng.randrange(len(graph.neighbors)), rng.choice(["while saving", "while staying"])
    return [Fault(0.0, "fail_disk", (i,), rng.uniform(0.5, 2.0), 0.0, when=when, of=i)]


def _end_while_lost(rng: random.Random, graph: Graph) -> list[Fault]:
    """A peer that has lost its disk is told to stop, or killed, before it has begun an epoch."""
    i = rng.randrange(len(graph.neighbors))
    return [
        Fault(0.0, "lose_disk", (i,), rng.uniform(0.0, 0.5), 0.0, when=MIDWAY, of=i),
        Fault(0.0, rng.choice(["kill", "stop"]), (i,), 0.0, 0.9, when="while lost", of=i),
    ]


SCENES = [
    *[_epoch_while_proving] * 4,
    *[_long_duplicate] * 2,
    *[_epoch_begun_twice] * 4,
    _disk_fails_at_the_end,
    _end_while_lost,
]
