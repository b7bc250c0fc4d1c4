"""What must hold between the keys of a topology file. Every check returns its mistakes; none raises."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from thanos_peer.errors import Mistake
from thanos_peer.topology.graph import Graph, components
from thanos_peer.topology.sections import Algorithm, Peer, Problem

ROW_SUM_TOLERANCE = 1e-12


def peer_mistakes(peers: Sequence[Peer]) -> Iterator[Mistake]:
    """Ids are unique and 0..d-1, addresses distinct."""
    d = len(peers)
    ids = Counter(peer.id for peer in peers)
    for index, peer in enumerate(peers):
        if ids[peer.id] > 1 and any(other.id == peer.id for other in peers[:index]):
            yield Mistake(f"peers[{index}].id", "this id is taken by a peer above; ids are unique", peer.id)
        elif peer.id >= d:
            allowed = f"{d} peers have the ids 0 to {d - 1}"
            yield Mistake(f"peers[{index}].id", allowed, peer.id)
    first_at: dict[str, Peer] = {}
    for index, peer in enumerate(peers):
        taken_by = first_at.setdefault(peer.address, peer)
        if taken_by is not peer:
            allowed = f"peer {taken_by.id} has this address already; every peer needs its own"
            yield Mistake(f"peers[{index}].address", allowed, peer.address)


def edge_mistakes(d: int, edges: Sequence[Sequence[int]]) -> Iterator[Mistake]:
    """Edges join two different known peers, each pair once, and the whole graph hangs together."""
    first_at: dict[frozenset[int], int] = {}
    sound: list[tuple[int, int]] = []
    for index, (i, j) in enumerate(edges):
        key, value = f"edges[{index}]", [i, j]
        unknown = [end for end in (i, j) if not 0 <= end < d]
        earlier = first_at.setdefault(frozenset((i, j)), index)
        if unknown:
            allowed = f"there is no peer {unknown[0]}; with {d} peers an edge joins two of 0 to {d - 1}"
            yield Mistake(key, allowed, value)
        elif i == j:
            yield Mistake(key, "a self-loop; an edge joins two different peers", value)
        elif earlier != index:
            allowed = f"the same edge as edges[{earlier}]; list each once, in either direction"
            yield Mistake(key, allowed, value)
        else:
            sound.append((i, j))
    parts = components(d, sound)
    if len(parts) > 1:
        yield Mistake("edges", _describe_parts(parts), has_value=False)


def _describe_parts(parts: Sequence[Sequence[int]]) -> str:
    def show(part: Sequence[int]) -> str:
        ids = ", ".join(map(str, part[:10]))
        return f"{{{ids}, ... {len(part)} peers}}" if len(part) > 10 else f"{{{ids}}}"

    shown = ", ".join(show(part) for part in parts[:6]) + (", ..." if len(parts) > 6 else "")
    return (
        f"the graph is not connected: {len(parts)} components {shown}; "
        "add edges until every peer can reach every other"
    )


def weight_mistakes(d: int, edges: Sequence[Sequence[int]], rows: Sequence[Sequence[float]]) -> Iterator[Mistake]:
    """Explicit weights are d by d, symmetric, non-negative, zero off the edges, with rows that sum to 1."""
    if [len(row) for row in rows] != [d] * d:
        shape = f"{len(rows)} rows of {sorted({len(row) for row in rows})} entries"
        yield Mistake(
            "weights", f"must be {d} rows of {d} entries, one per peer; here are {shape}", has_value=False
        )
        return
    W = np.array(rows)
    may_be_positive = np.eye(d, dtype=bool)
    for i, j in edges:
        may_be_positive[i, j] = may_be_positive[j, i] = True
    for wrong, allowed in (
        (W < 0, "must be >= 0"),
        (np.triu(W != W.T), "must equal the weight of the same edge in the other direction (symmetric)"),
        ((W != 0) & ~may_be_positive, "must be 0: there is no such edge"),
    ):
        for i, j in np.argwhere(wrong).tolist():
            yield Mistake(f"weights[{i}][{j}]", allowed, float(W[i, j]))
    for i in np.flatnonzero(np.abs(W.sum(axis=1) - 1) > ROW_SUM_TOLERANCE).tolist():
        allowed = f"the row sums to {W[i].sum():.15g}; every row must sum to 1"
        yield Mistake(f"weights[{i}]", allowed, has_value=False)


def mixing_mistakes(graph: Graph) -> Iterator[Mistake]:
    """Mixing must reach consensus at all: lambda < 1. Metropolis weights always do."""
    if graph.explicit_weights is not None and graph.lambda_ > 1 - 1e-12:
        allowed = (
            "lambda = ||W - 11'/d||_2 is 1, so mixing never reaches consensus; "
            "give the diagonal some weight and every edge more than 0"
        )
        yield Mistake("weights", allowed, has_value=False)


def problem_mistakes(problem: Problem) -> Iterator[Mistake]:
    """p <= n; mu goes with a regularizer."""
    if problem.p > problem.n:
        allowed = f"must be at most n = {problem.n}: more orthonormal columns do not fit"
        yield Mistake("problem.p", allowed, problem.p)
    if problem.regularizer == "none" and problem.mu:
        yield Mistake("problem.mu", 'leave it out when regularizer = "none"', problem.mu)
    if problem.regularizer != "none" and problem.mu is None:
        allowed = f'is missing: regularizer = "{problem.regularizer}" needs its weight, a number >= 0'
        yield Mistake("problem.mu", allowed, has_value=False)


def method_mistakes(problem: Problem, algorithm: Algorithm) -> Iterator[Mistake]:
    """DESTINY is for smooth problems; THANOS needs to know how to smooth; some starts need the data."""
    if algorithm.method == "destiny":
        if problem.regularizer != "none":
            allowed = f'must be "thanos" with regularizer = "{problem.regularizer}": DESTINY has none'
            yield Mistake("algorithm.method", allowed, "destiny")
        if algorithm.smoothing is not None:
            yield Mistake("algorithm.smoothing", 'leave it out when method = "destiny"', has_value=False)
    elif algorithm.smoothing is None:
        allowed = 'is missing: rule = "constant" with sigma, or rule = "decreasing" with sigma0 and exponent'
        yield Mistake("algorithm.smoothing", allowed, has_value=False)
    if algorithm.start.kind == "svd" and problem.data.kind == "files":
        allowed = 'must be "random": no peer holds all the data files that an SVD needs'
        yield Mistake("algorithm.start.kind", allowed, "svd")


def data_mistakes(problem: Problem, peers: Sequence[Peer]) -> Iterator[Mistake]:
    """Data files go with kind = "files", enough samples with kind = "synthetic"."""
    data = problem.data
    if data.kind == "synthetic" and data.samples < len(peers):
        allowed = f"must be at least {len(peers)}, one for each peer"
        yield Mistake("problem.data.samples", allowed, data.samples)
    for index, peer in enumerate(peers):
        if data.kind == "synthetic" and peer.data is not None:
            allowed = 'leave it out, or set problem.data.kind = "files"'
            yield Mistake(f"peers[{index}].data", allowed, peer.data)
        if data.kind == "files" and peer.data is None:
            allowed = 'is missing: problem.data.kind = "files" needs a .npy file at every peer'
            yield Mistake(f"peers[{index}].data", allowed, has_value=False)
