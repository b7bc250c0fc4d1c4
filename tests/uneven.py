"""Samples split unevenly over the peers of a network: CSV files with names, and a topology that prepares them."""

import csv
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
from networks import found_bits, make_instance, raw_topology
from sklearn import datasets

from thanos_peer.launch.ports import free_ports
from thanos_peer.simulate import AgentNetwork

PREPARED = {"kind": "files", "center": True, "scale": True, "overall": "auto"}
FOUND = {"kind": "destiny", "seed": 1}
LEADING = {"kind": "leading", "seed": 1}
PLAIN = {"kind": "random", "seed": 1}
N = 5  # features, where nothing else is said


def real_samples(name):
    """A data set of scikit-learn, its columns that are not constant, and what these are called."""
    loaded = getattr(datasets, f"load_{name}")()
    names = [str(each).replace(",", "") for each in loaded.feature_names]
    varies = loaded.data.std(axis=0) > 0
    return loaded.data[:, varies], [each for each, kept in zip(names, varies, strict=True) if kept]


def random_samples(m, n, seed=0):
    """Samples with columns of very different means and scales, and with directions that stand out."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((m, n)) * (0.7 ** np.arange(n)) @ rng.standard_normal((n, n))
    return rows * 10.0 ** rng.uniform(-3, 3, n) + rng.uniform(-1000, 1000, n)


def split(rows, d, seed=0):
    """All samples, shuffled, in d parts of very different sizes."""
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(rows)
    shares = rng.dirichlet(np.full(d, 0.7)) * (len(rows) - 3 * d)
    sizes = 3 + np.floor(shares).astype(int)
    sizes[np.argmax(sizes)] += len(rows) - sizes.sum()
    return np.split(shuffled, np.cumsum(sizes)[:-1])


def write_csv(path: Path, rows, names=None):
    """A table as text, every number with all its digits."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        if names is not None:
            writer.writerow(names)
        writer.writerows(rows.tolist())


def raw_with_parts(directory: Path, parts, family="ring", *, names=None, data=PREPARED, start=FOUND, **draft):
    """A topology whose peers have these parts as CSV files; beta and the first step follow from them."""
    d, n = len(parts), parts[0].shape[1]
    raw = raw_topology(family, d, **({"n": n, "p": 2, "max_rounds": 60, "tolerance": 0.0} | draft))
    for peer, part, port in zip(raw["peers"], parts, free_ports(d), strict=True):
        peer["address"] = f"tcp://127.0.0.1:{port}"
        peer["data"] = f"{peer['id']}.csv"
        write_csv(directory / peer["data"], part, names)
    raw["problem"]["data"] = dict(data)
    raw["algorithm"]["start"] = dict(start)
    if "beta" in raw["algorithm"]:
        raw["algorithm"] |= {"beta": "auto", "step": {"rule": "bb", "first": "auto"}}
    return raw


def standardised(parts):
    """All samples in one place, centered and scaled by numpy."""
    rows = np.concatenate(parts)
    return (rows - rows.mean(axis=0)) / rows.std(axis=0)


def leading(rows, p):
    """The leading right singular vectors of rows, (n, p), and all squared singular values."""
    _, lengths, Vt = np.linalg.svd(rows, full_matrices=False)
    return Vt[:p].T, lengths**2


def instance_of(directory, parts, family="ring", *, change=None, **options):
    """A checked topology with these parts, its data and rules."""
    raw = raw_with_parts(directory, parts, family, **options)
    if change is not None:
        change(raw)
    return make_instance(raw, file=directory / "net.toml")


def network_of(*arguments, **options):
    """The agents of that."""
    return AgentNetwork(instance_of(*arguments, **options))


def run(network):
    """To the end; for every phase the rounds that it took."""
    rounds = []
    while not network.is_done:
        phases = [(agent.runner.phase.name, agent.k) for agent in network.agents]
        assert len(set(phases)) == 1  # all are in the same one
        rounds.append(phases[0][0])
        network.advance()
        assert network.agents[0].k == len(rounds)
    return {name: len(list(group)) for name, group in itertools.groupby(rounds)}


def some_parts(sizes, n=N):
    """Random samples, cut into parts of these sizes."""
    return np.split(random_samples(sum(sizes), n), np.cumsum(sizes)[:-1])


def assert_all_found_the_same(network):
    """To the last bit, but for what each has of its own."""
    first, *others = (
        found_bits(replace(agent.found, final=None, X=None, sparse=None)) for agent in network.agents
    )
    assert all(other == first for other in others)


def with_own_steps(raw):
    """THANOS with parameters that need no phase `size`."""
    raw["algorithm"] |= {"beta": 1.0, "step": {"rule": "bb", "first": 1e-9}}
