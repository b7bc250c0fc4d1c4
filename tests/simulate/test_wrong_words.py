"""Sums and words that no honest peer sends: refused where they are heard, and the phase or the sender is named."""

from collections import Counter

import numpy as np
import pytest
from networks import make_topology
from uneven import raw_with_parts

from thanos_peer.agent import Agent
from thanos_peer.block import WORD
from thanos_peer.errors import RemoteProtocolError
from thanos_peer.problem import build

D, N, P = 4, 6, 2
PREPARED = {"kind": "files", "center": True, "scale": True, "overall": "auto"}
FOUND = {"kind": "leading"}
# The sums in the word of gram.
HALF = slice(3 + N * P, None)
HUGE = 1 << 126


@pytest.fixture(scope="module")
def instances(tmp_path_factory):
    """The same samples for every method, in a star whose root is its middle."""
    directory, made = tmp_path_factory.mktemp("parts"), {}
    parts = [np.random.default_rng(i).standard_normal((20, N)) for i in range(D)]

    def instance(method, start=FOUND, data=PREPARED, **settings):
        key = method, start["kind"], data["overall"], *settings.items()
        if key not in made:
            raw = raw_with_parts(directory, parts, "star", data=data, start=start, p=P)
            if method != "thanos":
                raw["algorithm"] = {"method": method, "start": dict(start)} | settings
            made[key] = build(make_topology(raw, file=directory / "net.toml"))
        return made[key]

    return instance


def lie(instance, phase, kind, tell, at=1):
    """All agents up to the end, with every block of this kind in that sum of the phase changed on its way."""
    topology, heard = instance.topology, Counter()
    agents = [Agent(topology, i, instance.plan(i)) for i in range(topology.d)]
    while not all(agent.is_done for agent in agents):
        said = [(agent.id, agent.runner.phase.name, agent.block, agent.neighbors) for agent in agents]
        for sender, name, block, neighbors in said:
            for receiver in neighbors:
                told = block.as_told_to(receiver)
                if name == phase and told.kind.startswith(kind):
                    heard[sender, receiver] += 1
                    if heard[sender, receiver] == at:
                        told = told._replace(numbers=tell(told.numbers))
                agents[receiver].receive(sender, told)
        for agent in agents:
            agent.advance()
        assert len({agent.runner.phase.name for agent in agents}) == 1
    return agents


def word_with(where, value):
    def tell(numbers):
        word = np.frombuffer(numbers, dtype="<f8").copy()
        word[where] = value
        return word.tobytes()

    return tell


def sum_with(where, value):
    def tell(numbers):
        size = 16 if len(numbers) % 264 else 264
        return (
            numbers[: where * size] + value.to_bytes(size, "little", signed=True) + numbers[(where + 1) * size :]
        )

    return tell


WORDS = [
    ("gram", "mean", 1, 0, 0.0, "the number of samples is 0, not from 20 "),
    ("gram", "mean", 1, 0, 80.5, "the number of samples is 80.5, not a whole one"),
    ("gram", "spread", 1, 2, -1.0, r"squares of feature 2 \(counted from 0\) is -1, not from "),
    ("gram", "size", 1, 0, -1.0, r"the sum of all \|\|A_i\|\|_2\^2 is -1, not from 80 to 480"),
    ("gram", "size", 1, 1, 1e308, r"the sum of all \|\|A_i\|\|_2\^2 is .*, not from 1.66667e\+307 "),
    ("gram", "gram", 1, 0, 0.5, "the number of starts is 0.5, not a whole one up to 1"),
    ("gram", "gram", 1, 0, -7.0, "the number of starts is 7, not a whole one up to 1"),
    ("gram", "gram", 1, 1, 1e-3, "it has not converged: the residual is 0.001"),
    ("gram", "gram", 1, 2, 0.0, r"\|\|A\|\|_2\^2 is 0, not from 80 to 480"),
    ("gram", "gram", 1, 2, 2128.0, r"\|\|A\|\|_2\^2 is 2128, not from 80 to 480"),
    ("gram", "gram", 1, slice(3, 15), 0.0, "it has not converged: .*X'X - I 1.41"),
    ("gram", "gram", 1, slice(3, 15), np.eye(N, P).ravel(), "the residual is 0.*, not from 0 to 2e-10"),
    ("gram", "gram", 1, HALF, 0.0, "the trace of AA' is 0, not from 480 to 480"),
    ("gram", "gram", 1, slice(15, 18), [-80.0, 0.0, 240.0], "the least square of AA' is -80, "),
    ("gram", "verdict", 1, slice(None), 0.0, r"\|\|A\|\|_F\^2 is 0, not from "),
    ("gram", "verdict", 1, -2, -1.0, r"\|\|A\|\|_F\^2 is -1, not from "),
    ("gram", "verdict", 1, -1, 99.0, "what the sparse columns capture is 99, "),
    ("gram", "verdict", 1, 0, 99.0, "the largest entry of the gradient is 99, "),
    ("proximal", "leading", 1, 0, 0.5, "whether it is the last is 0.5, not 0 or 1"),
    ("proximal", "leading", 1, 1, -1.0, "the least of the eigenvalues is -1, "),
    ("proximal", "leading", 1, 1, 1e3, "the least of the eigenvalues is|the sum of the eigenvalues is"),
    ("proximal", "leading", 3, slice(1, 3), 0.0, r"\|\|A\|\|_2\^2 is 0, not from 80 to 480"),
    ("proximal", "leading", 3, slice(3, None), 0.0, "the block of vectors is 1.41 away from orthonormal columns"),
    ("proximal", "leading", 2, slice(3, None), 1e200, "the block of vectors is inf away from orthonormal columns"),
    ("proximal", "proximal", 1, 0, 1.0, "it has not converged: the residual is 0"),
    ("proximal", "proximal", 2, 1, -1.0, "the residual is -1, "),
    ("proximal", "proximal", 2, 2, -1.0, "the curvature is -1, "),
    ("proximal", "proximal", 2, slice(3, None), 0.0, "the next point is 1.41 away from orthonormal columns"),
    ("proximal-tracking", "agreement", 1, 0, 0.0, r"the largest \|\|A_i\|\|_2\^2 is 0, not from "),
    ("proximal-tracking", "agreement", 1, 0, -1.0, r"the largest \|\|A_i\|\|_2\^2 is -0.25, not from "),
    ("proximal-tracking", "agreement", 1, 1, 0.0, "low is 0, not from "),
    ("proximal-tracking", "agreement", 1, 1, 1e300, r"low is 1e\+300, not from "),
    ("proximal-tracking", "agreement", 1, 3, 1e9, r"the number of roots is 1e\+09, not a whole one below 4"),
    ("proximal-tracking", "agreement", 1, 3, -3.0, "the number of roots is -3, not a whole one below 4"),
    ("proximal-tracking", "agreement", 1, 3, 0.5, "the number of roots is 0.5, not a whole one below 4"),
    ("proximal-tracking", "agreement", 1, 2, 9.0, "a polynomial is applied 9 times, not 1 to 8"),
    ("proximal-tracking", "agreement", 1, 4, 1.0, "a root is not from -1 to 1"),
    ("proximal-tracking", "agreement", 1, slice(22, None), 1e200, r"entry of the gradient is 4e\+200, "),
    ("drgta", "agreement", 1, 0, 1e-300, r"the largest \|\|A_i\|\|_2\^2 is 1e-300, not from "),
    ("thanos", "consensus", 1, slice(None), 1e200, "the norm of X is "),
    ("thanos", "consensus", 1, -1, 1e308, "the norm of the sparse X is "),
]


@pytest.mark.parametrize(("method", "phase", "at", "where", "value", "fault"), WORDS)
def test_a_word_that_no_honest_root_says_names_who_has_said_it(instances, method, phase, at, where, value, fault):
    instance = instances(method)
    root = instance.topology.graph.tree.root
    with pytest.raises(
        RemoteProtocolError, match=rf"^neighbor 0, round \d+: its word in phase {phase} "
    ) as caught:
        lie(instance, phase, WORD, word_with(where, value), at)
    assert caught.value.neighbor == root == 0
    assert caught.match(fault)


@pytest.mark.parametrize(
    ("where", "value", "fault"),
    [
        (0, 0.5, "whether it is the last is 0.5, not 0 or 1"),
        (slice(1, 3), 0.0, "no eigenvalue is positive"),
        (1, 99.0, "of the eigenvalues is 99"),
        (slice(3, None), 0.0, "the start is 1.41 away from orthonormal columns"),
    ],
)
def test_so_does_one_about_the_start_of_destiny(instances, where, value, fault):
    start = {"kind": "destiny", "seed": 1, "max_rounds": 20}
    with pytest.raises(RemoteProtocolError, match=f"neighbor 0, .* in phase rotation cannot be: .*{fault}"):
        lie(instances("proximal", start), "rotation", WORD, word_with(where, value), at=2)


@pytest.mark.parametrize(
    ("where", "value", "fault"),
    [
        (0, -1.0, r"the sum of all .* is -1, not from"),
        (slice(2, None), 0.0, "the start is 1.41 away from orthonormal"),
    ],
)
def test_so_does_one_that_tells_the_start(instances, where, value, fault):
    start = {"kind": "random", "seed": 1}
    with pytest.raises(RemoteProtocolError, match=f"neighbor 0, .* in phase size cannot be: {fault}"):
        lie(instances("proximal", start), "size", WORD, word_with(where, value))


@pytest.mark.parametrize(
    ("where", "value", "fault"),
    [
        (1, -1.0, r"\|\|A\|\|_F\^2 is -1, not from"),
        (2, 0.0, r"the largest \|\|A_i\|\|_2\^2 is 0, not from "),
        (3, 1e300, r"low is 1e\+300, not from "),
        (5, 1e9, r"the number of roots is 1e\+09, not a whole one below 4"),
        (slice(24, None), 1e200, r"the largest entry of the gradient is 4e\+200, "),
    ],
)
def test_so_does_one_that_tells_the_size_and_what_tracking_has_to_know(instances, where, value, fault):
    instance = instances("proximal-tracking", {"kind": "random", "seed": 1}, PREPARED | {"overall": "raw"})
    with pytest.raises(RemoteProtocolError, match=f"neighbor 0, .* in phase size cannot be: {fault}"):
        lie(instance, "size", WORD, word_with(where, value))


SUMS = [
    ("gram", "mean", 0, -(1 << 1080), "the number of samples is "),
    ("gram", "size", 0, -(1 << 2000), r"the sum of all \|\|A_i\|\|_2\^2 is "),
    ("gram", "gram", 0, HUGE, "the largest sum is .*, not from 0 to 960"),
    ("gram", "gram", 1, HUGE, "the largest sum is .*, not from 0 to 960"),
    ("gram", "gram", 1, -HUGE, "the largest sum is .*, not from 0 to 960"),
    ("gram", "gram", 0, 1 << 118, "the trace of AA' is .*, not from 480 to 480"),
    ("proximal", "leading", 0, HUGE, "the largest sum is .*, not from 0 to 960"),
    ("proximal", "proximal", 0, HUGE, "the largest sum is "),
    ("proximal", "proximal", 1, -HUGE, "the largest sum is "),
    ("proximal-tracking", "agreement", 0, -(1 << 1100), r"the largest \|\|A_i\|\|_2\^2 is 0, "),
    ("proximal-tracking", "agreement", 0, 1 << 2100, r"the largest \|\|A_i\|\|_2\^2 is inf, "),
    ("proximal-tracking", "agreement", 1, 1 << 2100, "the largest entry of the gradient is inf, "),
    ("drgta", "agreement", 0, -(1 << 1100), r"the largest \|\|A_i\|\|_2\^2 is 0, "),
    ("thanos", "consensus", 0, 1 << 2100, "the norm of X is inf, "),
    ("gram", "verdict", -2 + N * P + P + 2, -(1 << 1100), r"\|\|A\|\|_F\^2 is -"),
]


@pytest.mark.parametrize(
    ("method", "phase", "where", "value", "fault"), SUMS, ids=[f"{each[1]}-{i}" for i, each in enumerate(SUMS)]
)
def test_a_sum_that_cannot_be_ends_the_root_with_the_name_of_the_phase(
    instances, method, phase, where, value, fault
):
    with pytest.raises(
        RemoteProtocolError, match=rf"^a peer, round \d+: the sum of all peers in phase {phase} "
    ) as caught:
        lie(instances(method), phase, "int", sum_with(where, value))
    assert caught.match(fault)


@pytest.mark.parametrize(
    ("where", "value", "fault"),
    [
        (0, -(1 << 2000), r"the sum of all \|\|A_i\|\|_2\^2 is "),
        (2, -(1 << 1200), r"the largest \|\|A_i\|\|_2\^2 is 0, "),
        (3, 1 << 2100, "the largest entry of the gradient is inf, "),
    ],
)
def test_so_does_one_of_the_size_and_of_what_tracking_has_to_know(instances, where, value, fault):
    instance = instances("proximal-tracking", {"kind": "random", "seed": 1}, PREPARED | {"overall": "raw"})
    with pytest.raises(RemoteProtocolError, match=f"the sum of all peers in phase size cannot be: {fault}"):
        lie(instance, "size", "int", sum_with(where, value))


@pytest.mark.parametrize("method", ["gram", "proximal"])
def test_a_word_of_another_sum_is_refused_where_there_is_none(instances, method):
    instance = instances(method, max_rounds=2)
    plan = instance.plan(0)
    assert plan.phases[plan.main].most == plan.most == instance.topology.graph.tree.rounds == 2
    with pytest.raises(RemoteProtocolError, match="there is to be another sum, but this is the last"):
        lie(instance, method, WORD, word_with(slice(0, 15), [0.0, 0.0, 80.0, *np.eye(N, P).ravel()]))


@pytest.mark.parametrize("method", ["gram", "proximal", "proximal-tracking", "thanos"])
def test_what_honest_agents_say_is_never_refused(instances, method):
    agents = lie(instances(method), "none", WORD, None)
    assert len({agent.convergence.has_converged for agent in agents}) == 1
