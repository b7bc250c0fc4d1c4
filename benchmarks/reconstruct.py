"""What neighbors can work out of a peer's samples from the blocks that it sends: an attack, run and measured.

python benchmarks/reconstruct.py [--seeds 20] [--graph ring] [--method thanos] [--by-graph] [--json FILE]

Some peers keep to the protocol, note all they hear, and put it together: a coalition. They know the topology, and
their own samples. They are after A_i A_i', the second moments of one other peer. All blocks are those of agents of
the package, and all predictions are made by its methods.

Sums: numbers of children are decoded, and masks taken away that are shared with the coalition. So it has the sum
of each part of the graph without it, or where there are no masks of the tree. Each peer of a part is said to have
an equal share.

Mixing, where all around the peer is heard: A_i A_i' is a list of unknowns. What the peer says next is linear in
them, or nearly; what fits all its blocks is found.

Mixing, elsewhere: the same with the unknowns of all other peers at once, from two blocks of each neighbor, and
then from more. Where peers average before each step, a member of the coalition stands for the peer.

Prints a Markdown table of the error of A_i A_i' relative to its Frobenius norm, over graphs and seeds: the median,
the extremes, and how many are below 1e-6. Beside it stand the error but for a multiple of I, which some methods do
not depend on, and that of a guess: an equal share of what all peers but the coalition have together.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy is imported; several processes run
os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from thanos_peer.algorithm.masks import SECRET_BYTES, Masks
from thanos_peer.algorithm.method import Sent, Term
from thanos_peer.algorithm.methods import METHODS, MIXING, SUMMING
from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.block import AgentId, Block, Matrix
from thanos_peer.phases import Found, Mixing, Pooling
from thanos_peer.preparation import Share
from thanos_peer.problem import Instance, assemble
from thanos_peer.samples import Moments, moments_of_rows
from thanos_peer.simulate import AgentNetwork
from thanos_peer.topology import exposure, families, parse
from thanos_peer.topology.graph import Graph
from thanos_peer.topology.variants import settings_of

GRAPHS = ("path", "ring", "star", "tree", "erdos-renyi", "complete")
D, N, P, SAMPLES = 6, 4, 2, 6
ROUNDS = 20  # of a method that mixes, that are listened to
START = "destiny start"  # in which agents mix, whatever the method after it
TWO = "gram, two samples each"  # centered
METHODS_ATTACKED = (*MIXING, START, *SUMMING, TWO)
AVERAGING = "proximal-tracking"  # peers average before each step
FOUND = 1e-6  # relative error
EXPLAINED, NEAR = 1e-9, 1e-6  # how much of what was heard may be left
BLOCKS = (2, 3, 4, 6)  # of each neighbor that are to be explained
MOST_STARTS, MOST_STEPS = 2, 60


# ---------------------------------------------------------------------- what runs


def samples_of(seed: int, count: int) -> list[Matrix]:
    """Of all peers, (n, count) each: normal numbers, with other spreads at each peer."""
    rng = np.random.default_rng(seed)
    A = rng.uniform(0.3, 1.0, (D, N, 1)) * rng.standard_normal((D, N, count))
    return list(A / np.linalg.norm(np.hstack(list(A)), 2))


def network_of(family: str, method: str, samples: Sequence[Matrix], *, is_masked: bool) -> Instance:
    """The agents of a topology with these samples; those with keys mask what they sum."""
    main = {START: "proximal", TWO: "gram"}.get(method, method)
    data: dict[str, Any] = {"kind": "synthetic", "seed": 1, "samples": D * SAMPLES, "scale": "raw"}
    if method == TWO:
        data = {"kind": "files", "center": True, "scale": False, "overall": "auto"}
    weight = {"regularizer": "none"} if METHODS[main].is_for_smooth else {"regularizer": "l1", "mu": 0.05}
    start = {"kind": "destiny" if method == START else "random", "seed": 1}
    peers = [{"id": i, "address": f"ipc://@{i}"} for i in range(D)]
    raw = {
        "name": "reconstruct",
        "edges": [list(edge) for edge in families.make(family, D, seed=3)],
        "problem": weight | {"n": N, "p": P, "data": data},
        "algorithm": {"method": main, "start": start} | settings_of(main),
        "peers": [peer | ({"public_key": f"{peer['id']:040d}"} if is_masked else {}) for peer in peers],
    }
    topology = parse(raw, file=Path("reconstruct"), may_lack_data=True, reads_data=False)
    if method == TWO:
        return assemble(topology, [moments_of_rows(A.T, None, n=N, keeps_rows=True) for A in samples])
    return assemble(topology, [SparsePCA(A) for A in samples])


class Round(NamedTuple):
    """A round of one phase: what went from whom to whom, and what all agents are and have found in it."""

    phase: int
    r: int
    told: Mapping[tuple[AgentId, AgentId], Block]
    said: Sequence[Block]
    states: Sequence[Any]
    found: Sequence[Found]


def recorded(instance: Instance) -> list[Round]:
    """Run the agents, and note all blocks; of a phase that mixes only those of the first rounds."""
    network, graph, rounds = AgentNetwork(instance), instance.topology.graph, list[Round]()
    while not network.is_done:
        runners, said = [agent.runner for agent in network.agents], [agent.block for agent in network.agents]
        if isinstance(runners[0].phase, Mixing) and runners[0].round > ROUNDS:
            break
        told = {(i, j): said[i].as_told_to(j) for i in range(graph.d) for j in graph.neighbors[i]}
        states, found = [runner.state for runner in runners], [runner.found for runner in runners]
        rounds.append(Round(runners[0].index, runners[0].round, told, said, states, found))
        network.advance()
    return rounds


class View:
    """What a coalition has of a run: what its members hear, say, find and are. The attacks look at nothing else.

    Attributes:
        members: Who is in it.
        own: Their samples.
        grams: Their A_j A_j'.
        heard: The agents whose blocks it has, itself among them.
    """

    def __init__(self, instance: Instance, rounds: Sequence[Round], members: Iterable[AgentId]) -> None:
        self.topology, self.members = instance.topology, tuple(sorted(members))
        self.graph = self.topology.graph
        self.own = {j: instance.shares[j].own.data for j in self.members}
        self.grams = {j: gram_of(instance, j) for j in self.members}
        self.heard = sorted({*self.members, *(i for j in self.members for i in self.graph.neighbors[j])})
        self._rounds = rounds

    def rounds(self, index: int) -> list[Round]:
        """Those of one phase."""
        return [each for each in self._rounds if each.phase == index]

    def found(self, index: int) -> Found:
        """What a member knows when a phase begins."""
        return self.rounds(index)[0].found[self.members[0]]

    def said(self, each: Round, agent: AgentId) -> Block:
        """What an agent told a member, or a member told others."""
        if agent in self.members:
            return each.said[agent]
        return next(each.told[agent, j] for j in self.members if (agent, j) in each.told)

    def around(self, each: Round, agent: AgentId) -> list[Block]:
        """What an agent whose neighbors are all heard takes its step from."""
        return [self.said(each, i) for i in sorted((agent, *self.graph.neighbors[agent]))]

    def phases(self, agent: AgentId | None = None, f: Any = None) -> Sequence[Any]:
        """The phases of an agent, were this its objective; by default those of the first member."""
        agent, f = (self.members[0], self.own[self.members[0]]) if agent is None else (agent, f)
        return Share(self.topology, agent, f).plan().phases

    def mixing(self) -> int:
        """Which phase mixes, counted from 0."""
        return next(index for index, phase in enumerate(self.phases()) if isinstance(phase, Mixing))


def gram_of(instance: Instance, agent: AgentId) -> Matrix:
    """A_i A_i', as it is minimised with."""
    f = instance.local_problems[agent].f
    assert isinstance(f, SparsePCA)  # noqa: S101 - nothing else runs here
    return np.asarray(f.whole_gram())


# ---------------------------------------------------------------------- symmetric matrices as lists of unknowns


HALF = np.tril_indices(N)
UNKNOWNS = len(HALF[0])
# The matrices v v' of these v are a basis.
VECTORS = np.array([np.eye(N)[a] + (a != b) * np.eye(N)[b] for a, b in zip(*HALF, strict=True)])
IDENTITY = np.eye(N)[HALF]


def symmetric(halves: Matrix) -> Matrix:
    """From lower halves, row by row."""
    C = np.zeros((*halves.shape[:-1], N, N))
    C[..., HALF[0], HALF[1]] = C[..., HALF[1], HALF[0]] = halves
    return C


def of_vectors(weights: Matrix) -> Matrix:
    """sum_v weight_v v v'."""
    return np.asarray(np.einsum("...v,va,vb->...ab", weights, VECTORS, VECTORS))


def with_trace(C: Matrix, trace: float) -> Matrix:
    """The same but for a multiple of I."""
    return np.asarray(C + (trace - np.trace(C)) / N * np.eye(N))


# ---------------------------------------------------------------------- sums


def after_sums(view: View, target: AgentId, pooled: Matrix) -> Matrix:
    """An equal share of what the target's part has; all that a root's own part has follows from the result."""
    parts = exposure.learnt_from_sums(view.graph, view.members, are_masked=view.topology.masks_sums).parts
    index = next(at for at, phase in enumerate(view.phases()) if phase.name in SUMMING)
    found = {part: _gram_of_part(view, part, index) for part in parts if view.graph.tree.root not in part}
    rest = pooled - sum(view.grams.values()) - sum(found.values())
    part = next(part for part in parts if target in part)
    return np.asarray(found.get(part, rest)) / len(part)


def _gram_of_part(view: View, part: Sequence[AgentId], index: int) -> Matrix:
    numbers = sums_of_part(view, part, index)
    if numbers[0].size == UNKNOWNS:
        return symmetric(numbers[0])
    # The value, and the gradient -C Y, at each Y that the root asked for.
    member, phase, rounds = view.members[0], view.phases()[index], view.rounds(index)
    tolds = [each.states[member].told for each in rounds if each.r % phase.place.rounds == 0]
    Y = np.hstack([phase.answer_of(view.found(index), told)[0] for told in tolds])
    G = np.hstack([each[1:].reshape(N, P) for each in numbers])
    columns = np.array([-(C @ Y).ravel() for C in of_vectors(np.eye(UNKNOWNS))]).T
    return of_vectors(np.linalg.lstsq(columns, G.ravel())[0])


def sums_of_part(view: View, part: Sequence[AgentId], index: int) -> list[Matrix]:
    """The sum over a part without the root, of each sum of a phase: what leads out of it, less what leads in."""
    phase, found, sums = view.phases()[index], list[Matrix](), dict[int, tuple[list[bytes], list[bytes]]]()
    phase.enter(view.found(index), 0)
    form = phase.method.format
    for each in view.rounds(index):
        number = each.r // phase.place.rounds
        out, into = sums.setdefault(number, ([], []))
        for (i, j), block in each.told.items():
            if block.kind == form.kind and i in part and j in view.members:
                out.append(block.numbers)
            if block.kind == form.kind and i in view.members and j in part:
                into.append(block.numbers)
    for number, (out, into) in sums.items():
        first = next(each for each in view.rounds(index) if each.r == number * phase.place.rounds)
        added, taken = _shared_masks(view, part, phase, first, len(out[0]))
        found.append(form.decode(form.total(out[0], [*out[1:], *added], [*into, *taken])))
    return found


def _shared_masks(
    view: View, part: Sequence[AgentId], phase: Pooling, first: Round, size: int
) -> tuple[list[bytes], list[bytes]]:
    """Masks that members share with the part in the sum that begins with this round: to be added, and taken."""
    added, taken = list[bytes](), list[bytes]()
    if view.topology.masks_sums:
        for j in view.members:
            neighbors, shared = view.graph.neighbors[j], first.found[j].secrets or b""
            secrets = {i: shared[at * SECRET_BYTES :][:SECRET_BYTES] for at, i in enumerate(neighbors)}
            masks = Masks(j, secrets, phase.name)
            for i in set(neighbors) & set(part):
                (taken if i < j else added).append(
                    masks.stream(i, first.r // phase.place.rounds, first.states[j].words, size)
                )
    return added, taken


def two_samples(view: View, target: AgentId, C: Matrix) -> Matrix:
    """Both samples of a peer that has two, in one order or the other, from A_i A_i' and their sum; (n, 2)."""
    parts = exposure.learnt_from_sums(view.graph, view.members, are_masked=view.topology.masks_sums).parts
    index = next(at for at, phase in enumerate(view.phases()) if phase.name == "mean")
    last = view.found(len(view.phases()) - 1)

    def centered(numbers: Matrix) -> Matrix:
        return np.asarray((numbers[1:] - numbers[0] * np.asarray(last.mean)) / float(np.asarray(last.overall)))

    totals = {
        part: centered(sums_of_part(view, part, index)[0]) for part in parts if view.graph.tree.root not in part
    }
    moments = [data for data in view.own.values() if isinstance(data, Moments)]
    own = [centered(np.array([each.count, *(each.count * each.mean)])) for each in moments]
    part = next(part for part in parts if target in part)
    # All together have none, as they are centered.
    total = totals.get(part, -np.sum([*own, *totals.values()], axis=0)) / len(part)
    values, Q = np.linalg.eigh(2 * C - np.outer(total, total))
    difference = np.sqrt(max(values[-1], 0.0)) * Q[:, -1]
    return np.array([total + difference, total - difference]).T / 2


# ---------------------------------------------------------------------- mixing, all around the peer is heard


def is_surrounded(view: View, target: AgentId) -> bool:
    """Whether all is heard that its steps depend on."""
    return {target, *view.graph.neighbors[target]} <= set(view.heard)


def fields_sent(phase: Mixing, state: Any, blocks: Sequence[Block]) -> dict[str, str]:
    """Which fields of a state are sent, as what; a round later, as fields may have a start in common."""
    state, _ = phase.advance(0, state, blocks)
    sent = phase.method.send(state)._asdict()
    return {
        field.name: what
        for field in fields(state)
        for what, value in sent.items()
        if getattr(state, field.name) is value
    }


def predicted(view: View, agent: AgentId, f: Any) -> Matrix:
    """The X and D of an agent with this objective, had it said all before as it did: (rounds, 2, n, p)."""
    index = view.mixing()
    phase, rounds, said = view.phases(agent, f)[index], view.rounds(index), list[Matrix]()
    phase.enter(view.found(index), 0)
    state = phase.start()
    names = fields_sent(phase, state, view.around(rounds[0], agent))
    for each in rounds:
        X, D, _ = phase.method.send(state)
        said.append(np.array([X, D]))
        own = view.said(each, agent)
        heard = {"X": own.X, "D": own.D, "eta": np.asarray(own.eta)}
        state = replace(state, **{name: heard[what] for name, what in names.items()})
        state, _ = phase.advance(each.r, state, view.around(each, agent))
    return np.array(said)


def from_trackers(view: View, target: AgentId, stand_in: AgentId) -> Matrix:
    """The parts v v' of all samples, or of each where a method draws samples: (samples, n, n).

    D is linear in them. Who stands in for the target is the target itself, or one that comes to the same averages
    before each step: then the first block after each step counts.
    """
    index = view.mixing()
    count = SAMPLES if METHODS[view.topology.method].needs_samples else 1
    rounds = view.rounds(index)
    counts = [each.r for each in rounds if stand_in == target or (each.r and each.states[stand_in].at == 0)]

    def trackers(A: Matrix) -> Matrix:
        return predicted(view, stand_in, SparsePCA(A))[counts, 1].ravel()

    nothing = trackers(np.zeros((N, count)))
    heard = np.array([view.said(rounds[r], target).D for r in counts]).ravel() - nothing
    columns = np.array([trackers(np.outer(v, e)) - nothing for e in np.eye(count) for v in VECTORS]).T
    found = of_vectors(np.linalg.lstsq(columns, heard)[0].reshape(count, UNKNOWNS))
    is_blind = np.linalg.norm(columns @ _identity(count)) < 1e-10 * np.linalg.norm(columns)
    return np.array([with_trace(found[0], share_of_trace(view, index))]) if is_blind else found


def _identity(count: int) -> Matrix:
    """The weights with which the v v' are I."""
    weights = np.linalg.solve(of_vectors(np.eye(UNKNOWNS))[:, HALF[0], HALF[1]].T, IDENTITY)
    return np.tile(weights, count)


def share_of_trace(view: View, index: int) -> float:
    """An equal share of ||A||_F^2, which all are told, less what the coalition has."""
    total = float(np.asarray(view.found(index).total)) - sum(float(np.trace(C)) for C in view.grams.values())
    return total / (D - len(view.members))


# ---------------------------------------------------------------------- mixing, with peers that are not heard


class Everyone(NamedTuple):
    """What all agents send, in several trials at once: numbers are (trials, agents, ...)."""

    W: Matrix
    sent: Sent

    def mix(self, term: Term) -> Matrix:
        """As `Received` says."""
        X, D, eta = self.sent
        return np.asarray(np.einsum("ij,tj...->ti...", self.W, term(X, D, eta[..., None, None])))

    def mismatch(self, X: Matrix) -> Matrix:
        """Methods measure it, and no step depends on it."""
        return np.zeros(X.shape[:-2])


class Trial(NamedTuple):
    """The f_i of all agents in several trials, by their A_i A_i'."""

    C: Matrix

    def gradient(self, X: Matrix) -> Matrix:
        """Of f_i at X_i."""
        return -(self.C @ X)


class Model:
    """What the agents around a coalition say in their first blocks, as it follows from the A_i A_i' of all."""

    def __init__(self, view: View, blocks: int) -> None:
        index, member = view.mixing(), view.members[0]
        self._phase, self._rounds = view.phases()[index], view.rounds(index)[:blocks]
        self._phase.enter(view.found(index), 0)
        self._setup = self._phase.prepare(view.found(index))
        around = view.around(self._rounds[0], member)
        self._names = fields_sent(self._phase, self._phase.start(), around)
        self._W, self._heard, self._members = view.graph.matrix(), view.heard, list(view.members)
        self._outside = [i for i in view.heard if i not in view.members]
        self.unknown = [i for i in range(D) if i not in view.members]
        self._own = np.array([view.grams[j][HALF] for j in view.members])
        said = [[view.said(each, i) for i in view.heard] for each in self._rounds]
        self._said = [
            {name: np.array([getattr(block, name) for block in row]) for name in Sent._fields} for row in said
        ]
        at = [view.heard.index(i) for i in self._outside]
        self.heard = np.array([[row["X"][at], row["D"][at]] for row in self._said]).ravel()

    def __call__(self, halves: Matrix) -> Matrix:
        """For several trials, (trials, unknowns): all numbers of the blocks, a row for each."""
        trials, said = len(halves), list[Matrix]()
        C = np.zeros((trials, D, UNKNOWNS))
        C[:, self.unknown], C[:, self._members] = halves.reshape(trials, -1, UNKNOWNS), self._own
        start = np.broadcast_to(self._setup.start, (trials, D, N, P))
        method = self._phase.make(replace(self._setup, f=Trial(symmetric(C)), start=start))
        state = method.start(start)
        for each, row in zip(self._rounds, self._said, strict=True):
            X, D_, _ = method.send(state)
            said.append(np.array([X[:, self._outside], D_[:, self._outside]]))
            changed = {name: np.array(getattr(state, name)) for name in self._names}
            for name, what in self._names.items():
                changed[name][:, self._heard] = row[what]
            state = replace(state, **changed)
            if each is not self._rounds[-1]:
                state = method.step(each.r, state, Everyone(self._W, method.send(state)))
        return np.array(said).transpose(2, 0, 1, 3, 4, 5).reshape(trials, -1)


class Fit(NamedTuple):
    """Unknowns, how far what follows from them is from what was heard, and what else would be as far.

    Attributes:
        halves: The unknowns.
        miss: How far.
        free: The projector on the directions in which they could be changed.
    """

    halves: Matrix
    miss: float
    free: Matrix


def slopes_of(model: Model, halves: Matrix) -> Matrix:
    """By central differences."""
    near = 1e-6 * np.eye(len(halves))
    ahead, behind = np.split(model(np.concatenate([halves + near, halves - near])), 2)
    return np.asarray((ahead - behind).T / 2e-6)


def fitted(model: Model, halves: Matrix) -> Fit:
    """Levenberg's and Marquardt's method, with as much damping as is best."""
    damping, squares = 1e-2, list[float]()
    rest = model(halves[None])[0] - model.heard
    while len(squares) < MOST_STEPS and damping < 1e6:
        squares.append(float(rest @ rest))
        if squares[-1] < 1e-30 or (len(squares) > 12 and squares[-1] > 0.9 * squares[-13]):
            break
        slopes = slopes_of(model, halves)
        scale = np.linalg.norm(slopes, axis=0)
        scale = np.maximum(scale, 1e-3 * scale.max())
        U, lengths, Vt = np.linalg.svd(slopes / scale, full_matrices=False)
        dampings = damping * 10.0 ** np.arange(-2, 4)
        factors = lengths / (lengths**2 + dampings[:, None] * lengths[0] ** 2)
        trials = halves - ((factors * (U.T @ rest)) @ Vt) / scale
        with np.errstate(all="ignore"):
            rests = model(trials) - model.heard
            missed = np.nan_to_num((rests**2).sum(axis=1), nan=np.inf)
        best = int(np.argmin(missed))
        if missed[best] < squares[-1]:
            halves, rest, damping = trials[best], rests[best], min(max(dampings[best], 1e-28), 10.0)
        else:
            damping *= 1e4
    _, lengths, Vt = np.linalg.svd(slopes_of(model, halves), full_matrices=False)
    fixed = Vt[lengths > 1e-8 * lengths[0]]
    return Fit(halves, float(np.linalg.norm(rest)), np.eye(len(halves)) - fixed.T @ fixed)


def from_all(view: View, target: AgentId) -> Matrix:
    """A_i A_i' of the target, from few blocks and then more, as far as one set of unknowns explains them all."""
    rng, own = np.random.default_rng(0), np.linalg.cholesky(view.grams[view.members[0]])
    best: tuple[float, Matrix] = np.inf, np.zeros((N, N))
    for _ in range(MOST_STARTS):
        model = Model(view, 2)
        drawn = own @ rng.standard_normal((len(model.unknown), N, 2 * N)) / np.sqrt(2 * N)
        halves = (drawn @ drawn.swapaxes(1, 2))[:, HALF[0], HALF[1]].ravel()
        for blocks in BLOCKS:
            model = Model(view, blocks)
            fit = fitted(model, halves)
            halves, at = fit.halves, model.unknown.index(target) * UNKNOWNS
            C = symmetric(halves[at : at + UNKNOWNS])
            free, unit = fit.free[at : at + UNKNOWNS, at : at + UNKNOWNS], IDENTITY / np.linalg.norm(IDENTITY)
            others = np.eye(UNKNOWNS) - np.outer(unit, unit)
            if unit @ free @ unit > 0.5:
                C = with_trace(C, share_of_trace(view, view.mixing()))
            is_explained, is_fixed = fit.miss < EXPLAINED, np.linalg.norm(others @ free @ others) < 1e-3
            # More blocks that are explained say more; else the start that comes nearest.
            worth = -float(blocks) if is_explained and is_fixed else fit.miss + (10.0 if is_explained else 0.0)
            best = min(best, (worth, C), key=lambda each: each[0])
            if fit.miss > NEAR:
                break
        if best[0] < 0:
            break
    return best[1]


# ---------------------------------------------------------------------- who listens to whom


class Case(NamedTuple):
    """Who listens, and to whom."""

    listener: str
    members: tuple[AgentId, ...]
    target: AgentId


def cases_of(graph: Graph) -> list[Case]:
    """One of each kind that there is; of several neighbors, it is the parent in the tree that listens."""
    found, tree = list[Case](), graph.tree
    for end, neighbor in list(exposure.sole_neighbors(graph).items())[:1]:
        found.append(Case("sole neighbor", (neighbor,), end))
    inner = [i for i in range(graph.d) if graph.degrees[i] > 1]
    target = max(inner, key=lambda i: (i != tree.root, not tree.children(i), i))
    one = tree.parents[target] if target != tree.root else graph.neighbors[target][0]
    found.append(Case("one of several", (one,), target))
    found.append(Case("all neighbors", graph.neighbors[target], target))
    others = [i for i in range(graph.d) if i not in (one, target)]
    pairs = [tuple(sorted((one, i))) for i in others]
    hidden = [pair for pair in pairs if not set(graph.neighbors[target]) <= set(pair)]
    found += [Case("two peers", pair, target) for pair in hidden[:1]]
    return [case._replace(listener="all others") if len(case.members) == graph.d - 1 else case for case in found]


# ---------------------------------------------------------------------- all of it


@dataclass(frozen=True)
class Outcome:
    """What one coalition has found of one peer.

    Attributes:
        method: What ran.
        is_masked: Whether sums were masked.
        graph: On which graph.
        listener: Who listened.
        part: How many peers are in the part of the target, whose sum they learn from sums.
        seed: Of the samples.
        guess: The error of an equal share of what all but the coalition have.
        error: Of A_i A_i', relative to its Frobenius norm; None where no attack is known to this program.
        shape: The same but for a multiple of I.
        samples: The error of the worst of the peer's samples, up to signs or order, relative to the largest; None
            where they were not looked for.
    """

    method: str
    is_masked: bool
    graph: str
    listener: str
    part: int
    seed: int
    guess: float
    error: float | None = None
    shape: float | None = None
    samples: float | None = None


def attack(view: View, case: Case, pooled: Matrix) -> Matrix | None:
    """A_i A_i', or its parts by samples, (samples, n, n), as the coalition finds it; None where it cannot tell."""
    method = METHODS[view.topology.method]
    if not any(isinstance(phase, Mixing) for phase in view.phases()):
        return after_sums(view, case.target, pooled)
    if is_surrounded(view, case.target) and has_trackers(view, case.target):
        return from_trackers(view, case.target, case.target)
    if view.topology.method == AVERAGING:
        return from_trackers(
            view, case.target, next(iter(set(view.members) & set(view.graph.neighbors[case.target])))
        )
    return None if method.needs_samples else from_all(view, case.target)


def has_trackers(view: View, target: AgentId) -> bool:
    """Whether D is not zero."""
    return bool(view.said(view.rounds(view.mixing())[1], target).D.any())


def outcomes_of(task: tuple[str, bool, str, int]) -> list[Outcome]:
    """All coalitions of one run."""
    method, is_masked, family, seed = task
    samples = samples_of(seed, 2 if method == TWO else SAMPLES)
    instance = network_of(family, method, samples, is_masked=is_masked)
    graph, rounds = instance.topology.graph, recorded(instance)
    grams = np.array([gram_of(instance, i) for i in range(D)])
    found = []
    for case in cases_of(graph):
        view, true = View(instance, rounds, case.members), grams[case.target]
        others = [i for i in range(D) if i not in case.members]
        learnt = exposure.learnt_from_sums(graph, case.members, are_masked=is_masked)
        part = next(len(each) for each in learnt.parts if case.target in each)
        guess = relative(grams[others].mean(axis=0), true)
        outcome = Outcome(method, is_masked, family, case.listener, part, seed, guess)
        found.append(replace(outcome, **errors_of(view, case, method, grams, samples)))
    return found


def errors_of(view: View, case: Case, method: str, grams: Matrix, samples: Sequence[Matrix]) -> dict[str, Any]:
    """By the names of `Outcome`; empty where no attack is known to this program."""
    C, true, A = attack(view, case, grams.sum(axis=0)), grams[case.target], samples[case.target]
    if C is None:
        return {}
    rows = None
    if method == TWO:
        A = np.asarray(A - np.hstack(list(samples)).mean(axis=1, keepdims=True))
        A *= np.sqrt(np.trace(true) / np.trace(A @ A.T))
        rows = two_samples(view, case.target, C)
    elif C.ndim > 2 and len(C) > 1:
        rows = np.array([leading(each) for each in C]).T
    C = C if C.ndim == 2 else C.sum(axis=0)
    errors = {"error": relative(C, true), "shape": relative(with_trace(C, 0.0), with_trace(true, 0.0))}
    return errors if rows is None else errors | {"samples": of_rows(rows, A, has_order=method != TWO)}


def relative(found: Matrix, true: Matrix) -> float:
    """The distance, relative to the norm."""
    return float(np.linalg.norm(found - true) / np.linalg.norm(true))


def leading(C: Matrix) -> Matrix:
    """The v of the v v' that is nearest."""
    values, Q = np.linalg.eigh(C)
    return np.asarray(np.sqrt(max(values[-1], 0.0)) * Q[:, -1])


def of_rows(found: Matrix, true: Matrix, *, has_order: bool = False) -> float:
    """The error of the worst sample, a column each, up to the order, or up to signs; relative to the largest."""
    if has_order:
        worst = max(
            min(np.linalg.norm(a - b), np.linalg.norm(a + b)) for a, b in zip(found.T, true.T, strict=True)
        )
    else:
        worst = min(np.linalg.norm(order - true, axis=0).max() for order in (found, found[:, ::-1]))
    return float(worst / np.linalg.norm(true, axis=0).max())


def label_of(outcome: Outcome, *, is_by_graph: bool) -> tuple[str, ...]:
    """Which row of the table it belongs to."""
    is_sum = outcome.method not in (*MIXING, START)
    sums = ("masked" if outcome.is_masked else "not masked") if is_sum else "either"
    part = ("1" if outcome.part == 1 else "2 to 5") if is_sum else "any"
    graph = (outcome.graph,) if is_by_graph else ()
    return (outcome.method, sums, outcome.listener, part, *graph)


def table_of(outcomes: Sequence[Outcome], *, is_by_graph: bool) -> list[str]:
    """In Markdown."""
    rows = defaultdict[tuple[str, ...], list[Outcome]](list)
    for outcome in outcomes:
        rows[label_of(outcome, is_by_graph=is_by_graph)].append(outcome)
    heads = ["method", "sums", "who listens", "part", *(["graph"] if is_by_graph else [])]
    heads += ["tried", f"< {FOUND:.0e}", "but for I", "error", "but for I", "samples", "guess"]
    lines = [heads, ["---"] * len(heads)]
    for label, row in rows.items():
        errors, shapes, samples = (
            [value for each in row if (value := getattr(each, name)) is not None]
            for name in ("error", "shape", "samples")
        )
        below = [str(sum(error < FOUND for error in each)) for each in (errors, shapes)]
        figures = [spread(each) for each in (errors, shapes, samples, [each.guess for each in row])]
        lines.append([*label, f"{len(errors)} of {len(row)}", *below, *figures])
    return [f"| {' | '.join(line)} |" for line in lines]


def spread(errors: Sequence[float]) -> str:
    """The median, and the least and the largest."""
    return f"{statistics.median(errors):.1e} ({min(errors):.0e} to {max(errors):.0e})" if errors else ""


@click.command()
@click.option("--seeds", default=20, show_default=True, type=click.IntRange(1), help="How many draws of samples.")
@click.option(
    "--graph", "graphs", multiple=True, type=click.Choice(GRAPHS), help="Only this one; may be repeated."
)
@click.option("--method", "methods", multiple=True, type=click.Choice(METHODS_ATTACKED), help="The same.")
@click.option("--by-graph", "is_by_graph", is_flag=True, help="A row for each graph.")
@click.option(
    "--workers", default=os.cpu_count(), type=click.IntRange(1), help="Processes; by default one per core."
)
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write each outcome there.")
def main(
    *,
    seeds: int,
    graphs: Sequence[str],
    methods: Sequence[str],
    is_by_graph: bool,
    workers: int,
    file: Path | None,
) -> None:
    """Attack, and print a table."""
    by_sums = [(method, is_masked) for method in (*SUMMING, TWO) for is_masked in (False, True)]
    runs = [*((method, True) for method in (*MIXING, START)), *by_sums]
    wanted = [run for run in runs if not methods or run[0] in methods]
    tasks = [(*run, graph, seed) for run, graph, seed in product(wanted, graphs or GRAPHS, range(1, seeds + 1))]
    with ProcessPoolExecutor(workers) as pool:
        results = pool.map(outcomes_of, tasks)
        with click.progressbar(results, length=len(tasks), file=sys.stderr) as bar:
            outcomes = [outcome for result in bar for outcome in result]
    if file is not None:
        file.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n", encoding="utf-8")
    click.echo("\n".join(table_of(outcomes, is_by_graph=is_by_graph)))


if __name__ == "__main__":
    main()
