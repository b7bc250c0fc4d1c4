"""What must hold between the keys of a topology file. Every check yields its mistakes; none raises.

The checks take sections as mappings of those values that are sound by themselves, defaults filled in: a value
that has been found fault with already is not there, and is not spoken of again.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from thanos_peer.algorithm.methods import AUTO, GENERAL, METHODS, PRESETS, SETTINGS, SUMMING, UNNAMED, traits_of
from thanos_peer.algorithm.regularizers import is_smooth
from thanos_peer.block import AgentId
from thanos_peer.errors import Mistake
from thanos_peer.topology.graph import Graph, components
from thanos_peer.topology.sections import LARGEST_MATRIX, MOST_EDGES, MOST_PEERS

Values: TypeAlias = Mapping[str, Any]
ROW_SUM_TOLERANCE = 1e-12
# Wrong weights that are listed one by one, at most.
MOST_OF_A_KIND = 10


def count_mistakes(raw: Values) -> Iterator[Mistake]:
    """More peers or edges than there may be: looked at first, for all other checks take time for each of them."""
    for key, most in (("peers", MOST_PEERS), ("edges", MOST_EDGES), ("weights", MOST_PEERS)):
        found = raw.get(key)
        if isinstance(found, list) and len(found) > most:
            yield Mistake(key, f"must be at most {most:,}; here are {len(found):,}", has_value=False)


def peer_mistakes(peers: Sequence[Values]) -> Iterator[Mistake]:
    """Ids are unique and 0..d-1, addresses distinct."""
    d = len(peers)
    first_with: dict[int, int] = {}
    first_at: dict[str, int] = {}
    for index, peer in enumerate(peers):
        if "id" in peer:
            key, agent = f"peers[{index}].id", peer["id"]
            earlier = first_with.setdefault(agent, index)
            if earlier != index:
                yield Mistake(key, f"peers[{earlier}] has this id already; ids are unique", agent)
            elif agent >= d:
                yield Mistake(key, f"{d} peers have the ids 0 to {d - 1}", agent)
        if "address" in peer:
            earlier = first_at.setdefault(peer["address"], index)
            if earlier != index:
                allowed = f"peers[{earlier}] has this address already; every peer needs its own"
                yield Mistake(f"peers[{index}].address", allowed, peer["address"])


def key_mistakes(peers: Sequence[Values], unencrypted: str | None) -> Iterator[Mistake]:
    """All peers have a key or none has; each has its own; and what has keys is not said to be in the clear."""
    keyed = [index for index, peer in enumerate(peers) if peer.get("public_key", "unsound") is not None]
    first_with: dict[str, int] = {}
    for index, peer in enumerate(peers):
        if "public_key" not in peer:
            continue
        key, place = peer["public_key"], f"peers[{index}].public_key"
        if key is None and keyed:
            allowed = f"is missing: peers[{keyed[0]}] has one, and either every peer has a key or none has"
            yield Mistake(place, allowed, has_value=False)
        elif key is not None and (earlier := first_with.setdefault(key, index)) != index:
            yield Mistake(place, f"peers[{earlier}] has this key already; every peer needs its own", key)
    if keyed and unencrypted is not None:
        yield Mistake("unencrypted", "leave it out: with keys every link is encrypted", unencrypted)


def mask_mistakes(algorithm: Values, peers: Sequence[Values]) -> Iterator[Mistake]:
    """Masks that a listener cannot work out need links that are not listened to."""
    if algorithm.get("masks") and any(peer.get("public_key", "unsound") is None for peer in peers):
        allowed = "needs keys: without them a listener can read what masks are made of; see `thanos-peer keys`"
        yield Mistake("algorithm.masks", allowed, value=True)


def edge_mistakes(d: int, edges: Sequence[Sequence[int] | None]) -> Iterator[Mistake]:
    """Edges join two different known peers, each pair once, and the whole graph hangs together.

    An edge that is None has been found fault with already.
    """
    first_at: dict[frozenset[int], int] = {}
    sound: list[tuple[int, int]] = []
    for index, edge in enumerate(edges):
        if edge is None:
            continue
        (i, j), key = edge, f"edges[{index}]"
        unknown = [end for end in (i, j) if not 0 <= end < d]
        earlier = first_at.setdefault(frozenset((i, j)), index)
        if unknown:
            allowed = f"there is no peer {unknown[0]}; with {d} peers an edge joins two of 0 to {d - 1}"
            yield Mistake(key, allowed, [i, j])
        elif i == j:
            yield Mistake(key, "a self-loop; an edge joins two different peers", [i, j])
        elif earlier != index:
            allowed = f"the same edge as edges[{earlier}]; list each once, in either direction"
            yield Mistake(key, allowed, [i, j])
        else:
            sound.append((i, j))
    parts = components(d, sound)
    if len(parts) > 1 and None not in edges:
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
        found = np.argwhere(wrong).tolist()
        for i, j in found[:MOST_OF_A_KIND]:
            yield Mistake(f"weights[{i}][{j}]", allowed, float(W[i, j]))
        if len(found) > MOST_OF_A_KIND:
            yield Mistake("weights", f"and {len(found) - MOST_OF_A_KIND} more that {allowed}", has_value=False)
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


def rounds_mistakes(algorithm: Values, d: int, edges: Sequence[Sequence[int]]) -> Iterator[Mistake]:
    """A method by sums takes whole sums."""
    rounds, method = algorithm.get("max_rounds"), algorithm.get("method")
    # No sum takes more rounds than d.
    if rounds is None or rounds >= d or method is None or traits_of(method).mixes:
        return
    needed = Graph.of(d, edges, None).tree.rounds
    if rounds < needed:
        allowed = f'must be at least {needed}, the rounds of one sum over this network, with method = "{method}"'
        yield Mistake("algorithm.max_rounds", allowed, rounds)


def problem_mistakes(problem: Values) -> Iterator[Mistake]:
    """p <= n; mu goes with a regularizer."""
    n, p = problem.get("n"), problem.get("p")
    if n is not None and p is not None and p > n:
        yield Mistake("problem.p", f"must be at most n = {n}: more orthonormal columns do not fit", p)
    if n is not None and p is not None and n * p > LARGEST_MATRIX:
        yield Mistake("problem.n", f"with p = {p}, X would have more than {LARGEST_MATRIX:,} entries", n)
    if "regularizer" in problem and "mu" in problem:
        regularizer, mu = problem["regularizer"], problem["mu"]
        if is_smooth(regularizer) and mu:
            yield Mistake("problem.mu", f'leave it out when regularizer = "{regularizer}"', mu)
        if not is_smooth(regularizer) and mu is None:
            allowed = f'is missing: regularizer = "{regularizer}" needs its weight, a number >= 0'
            yield Mistake("problem.mu", allowed, has_value=False)


def path_mistakes(problem: Values, algorithm: Values) -> Iterator[Mistake]:
    """Several values of mu are for sparse PCA by sums; some need to know the leading eigenvalues."""
    mu, choose = problem.get("mu"), problem.get("choose")
    if not isinstance(mu, list | Mapping):
        if choose is not None and "mu" in problem:
            yield Mistake("problem.choose", "leave it out with one value of mu", choose)
        return
    method, count = algorithm.get("method", AUTO), len(mu) if isinstance(mu, list) else mu["path"]
    if traits_of(method).mixes:
        allowed = (
            f"must be one number with method = {method!a}, as with all that mix: take one of "
            f"{', '.join((AUTO, *SUMMING))}, or compare runs: thanos-peer compare --sweep problem.mu=0.1,0.05"
        )
        yield Mistake("problem.mu", allowed, mu)
    if problem.get("objective") is not None:
        yield Mistake("problem.mu", "must be one number with an objective of your own", mu)
    if problem.get("n", 1) * problem.get("p", 1) * count > LARGEST_MATRIX:
        yield Mistake("problem.mu", f"so many answers would have more than {LARGEST_MATRIX:,} entries", mu)
    regularizer = problem.get("regularizer")
    if isinstance(mu, Mapping) and regularizer is not None and ":" in regularizer:
        allowed = "must be a list of numbers with a regularizer of your own, of which nothing is known"
        yield Mistake("problem.mu", allowed, mu)
    yield from _choose_mistakes(problem, algorithm)


def _choose_mistakes(problem: Values, algorithm: Values) -> Iterator[Mistake]:
    """What plain PCA explains is known where the leading vectors are looked for."""
    start = _kind(algorithm.get("start"))
    if start in (None, "leading", "destiny") or "choose" not in problem:
        return
    others = 'the leading eigenvalues, which are known with algorithm.start.kind = "leading" only'
    if isinstance(problem["mu"], Mapping):
        yield Mistake("problem.mu", f"a path found by the network follows from {others}", problem["mu"])
    if problem["choose"] is None:
        allowed = f"is missing: what is chosen without it follows from {others}; say {{ variance = 0.7 }} or such"
        yield Mistake("problem.choose", allowed, has_value=False)
    elif problem["choose"].get("of_pca") is not None:
        yield Mistake("problem.choose.of_pca", f"it follows from {others}", problem["choose"]["of_pca"])


def method_mistakes(problem: Values, algorithm: Values, given: Collection[str]) -> Iterator[Mistake]:
    """Some methods are for smooth problems; some need to know how to smooth; some starts need the data."""
    regularizer, method = problem.get("regularizer", "none"), algorithm.get("method", AUTO)
    known, preset = traits_of(method), algorithm.get("preset")
    if _kind(problem.get("data")) == "files" and "method" not in given and "method" in algorithm:
        allowed = (
            f'is missing: with data files say "{AUTO}", by which peers sum, or name another one: of '
            f'"{UNNAMED}" and all that mix, every neighbor can work out the second moments of a peer\'s samples'
        )
        yield Mistake("algorithm.method", allowed, has_value=False)
    if known.is_for_smooth and not is_smooth(regularizer):
        allowed = f'must be another with regularizer = "{regularizer}": {method} is for problems without'
        yield Mistake("algorithm.method", allowed, method)
    if preset is not None and "method" in algorithm and preset not in known.presets:
        named = " or ".join(f'"{name}"' for name in PRESETS[preset])
        allowed = f'is for method = {named}: leave it out when method = "{method}"'
        yield Mistake("algorithm.preset", allowed, preset)
    for key in SETTINGS:
        if "method" in algorithm and key in given and key in algorithm and key not in known.settings:
            yield Mistake(f"algorithm.{key}", f'leave it out when method = "{method}"', has_value=False)
    if "smoothing" in known.settings and "preset" in algorithm and algorithm.get("smoothing", "unsound") is None:
        allowed = (
            'is missing: rule = "constant" with sigma, or rule = "decreasing" with sigma0 and exponent; or set '
            'algorithm.preset = "paper", which stands for the paper\'s beta, step and smoothing'
        )
        yield Mistake("algorithm.smoothing", allowed, has_value=False)
    if known.is_for_pca and problem.get("objective") is not None:
        others = ", ".join(sorted(each for each, of in METHODS.items() if not of.is_for_pca))
        allowed = (
            f'must be "{AUTO}", or one of {others}, with an objective of your own: {method} is for sparse PCA'
        )
        yield Mistake("algorithm.method", allowed, method)
    if (n := problem.get("n", 0)) > (most := known.largest_n):
        allowed = (
            f'must be "{GENERAL}", "{AUTO}" or another with n = {n}: {method} is for n up to {most}, as one of '
            "its messages holds n(n+1)/2 numbers and would exceed 64 MiB"
        )
        yield Mistake("algorithm.method", allowed, method)
    if _kind(algorithm.get("start")) == "svd":
        yield from _svd_mistakes(problem)


def own_code_mistakes(problem: Values, algorithm: Values, given: Collection[str]) -> Iterator[Mistake]:
    """Options go with what they are for; and what follows from the samples of sparse PCA is for sparse PCA."""
    objective = problem.get("objective")
    if problem.get("objective_options") and "objective" in problem and objective is None:
        yield Mistake("problem.objective_options", "leave it out without objective", problem["objective_options"])
    if objective is not None:
        for key in _meant_for_pca(problem.get("data") or {}):
            yield Mistake(
                f"problem.data.{key}",
                "is for sparse PCA: leave it out with an objective of your own",
                problem["data"][key],
            )
        yield from _automatic_mistakes(algorithm, given)
        if "step" not in given and "step" in traits_of(algorithm.get("method", AUTO)).settings:
            allowed = 'is missing: with an objective of your own, rule = "bb" with first or "constant" with eta'
            yield Mistake("algorithm.step", allowed, has_value=False)
        kind = _kind(algorithm.get("start"))
        if kind in ("svd", "destiny", "leading"):
            yield Mistake("algorithm.start.kind", 'must be "random" or "file" with an objective of your own', kind)


def _meant_for_pca(data: Values) -> Iterator[str]:
    if data.get("kind") == "files":
        yield from (key for key in ("center", "scale") if data.get(key))
        if data.get("overall") == "auto":
            yield "overall"
        if data.get("missing") == "mean":
            yield "missing"


def _automatic_mistakes(algorithm: Values, given: Collection[str]) -> Iterator[Mistake]:
    """What is automatic may stand in the file, or come with another method that was asked for."""
    method = f'beside method = "{algorithm["method"]}" ' if "method" in algorithm else ""
    allowed = (
        f"is for sparse PCA: with an objective of your own write numbers for beta and step {method}in the file"
    )
    if algorithm.get("beta") == "auto":
        yield Mistake("algorithm.beta", allowed, "auto")
    if "step" in given and (algorithm.get("step") or {}).get("first") == "auto":
        yield Mistake("algorithm.step.first", allowed, "auto")


def _svd_mistakes(problem: Values) -> Iterator[Mistake]:
    kind, p = _kind(problem.get("data")), problem.get("p", 0)
    if kind == "files":
        allowed = (
            'must be "leading", "destiny", "random" or "file": no peer holds all the data files that an SVD needs'
        )
        yield Mistake("algorithm.start.kind", allowed, "svd")
    if kind == "synthetic" and problem["data"]["samples"] < p:
        allowed = f"must be at least p = {p}: fewer samples have fewer singular vectors to start from"
        yield Mistake("problem.data.samples", allowed, problem["data"]["samples"])


def data_mistakes(
    problem: Values, peers: Sequence[Values], needed: Collection[AgentId | None]
) -> Iterator[Mistake]:
    """Data files go with kind = "files", and are needed at some peers; enough samples with kind = "synthetic"."""
    kind = _kind(problem.get("data"))
    if kind == "synthetic":
        samples = problem["data"]["samples"]
        if samples < len(peers):
            yield Mistake("problem.data.samples", f"must be at least {len(peers)}, one for each peer", samples)
        if samples * problem.get("n", 1) > LARGEST_MATRIX:
            allowed = f"with n = {problem['n']}, A would have more than {LARGEST_MATRIX:,} entries"
            yield Mistake("problem.data.samples", allowed, samples)
    for index, peer in enumerate(peers):
        named = peer.get("data", "unsound")
        if kind == "synthetic" and named not in (None, "unsound"):
            allowed = 'leave it out, or set problem.data.kind = "files"'
            yield Mistake(f"peers[{index}].data", allowed, named)
        if kind == "synthetic" and isinstance(count := peer.get("samples"), int):
            allowed = "leave it out: synthetic samples are dealt out evenly; it is for data files"
            yield Mistake(f"peers[{index}].samples", allowed, count)
        if kind == "files" and named is None and peer.get("id") in needed:
            allowed = "is missing: name this peer's data file, or start the peer with --data FILE"
            yield Mistake(f"peers[{index}].data", allowed, has_value=False)


def _kind(entry: Mapping[str, Any] | None) -> str | None:
    return None if entry is None else entry["kind"]
