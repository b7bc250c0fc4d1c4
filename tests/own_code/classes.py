"""A module of the user's own, as a test writes it, and a topology that names it."""

import tomlkit
from networks import raw_topology

from thanos_peer.launch.ports import free_ports

MODULE = '''
import pathlib
import time
from pathlib import Path

import numpy as np

pathlib.Path(__file__).with_name("imported").touch()


class Quartic:
    def __init__(self, samples, power=4):
        self.samples, self.power = samples, power

    def value(self, X):
        return -((self.samples @ X) ** self.power).sum() / self.power

    def gradient(self, X):
        return -self.samples.T @ (self.samples @ X) ** (self.power - 1)


class Bounded(Quartic):
    """A bound for X near the manifold, times a factor that may make it wrong."""

    def __init__(self, samples, factor=1.0):
        super().__init__(samples)
        self.factor = factor

    def lipschitz(self):
        squares = (self.samples**2).sum(axis=1).max()
        return self.factor * 3 * squares * np.linalg.norm(self.samples, 2) ** 2


class Ridge:
    """weight * factor * ||X||^2 / 2."""

    def __init__(self, weight, factor=1.0):
        self.weight = weight * factor

    def value(self, X):
        return self.weight * (X**2).sum() / 2

    def prox(self, X, sigma):
        return X / (1 + sigma * self.weight)


class Consuming(Ridge):
    def __init__(self, weight, factors):
        super().__init__(weight, factors.pop())


class Steep(Ridge):
    def lipschitz(self, n, p):
        return 0.25 * n * p

    def prox_derivative(self, X, sigma, V):
        return V / (1 + sigma * self.weight)


class OneSided:
    """weight * what the first entry is below zero."""

    made = 0

    def __init__(self, weight):
        self.weight = weight
        OneSided.made += 1

    def value(self, X):
        return self.weight * max(0.0, -X[0, 0])

    def prox(self, X, sigma):
        Y = X.copy()
        Y[0, 0] = X[0, 0] if X[0, 0] > 0 else min(0.0, X[0, 0] + sigma * self.weight)
        return Y

    def prox_derivative(self, X, sigma, V):
        return V


class Doubled(Quartic):
    def gradient(self, X):
        return 2 * super().gradient(X)


class Shifted(Quartic):
    def gradient(self, X):
        return super().gradient(X) + 0.5


class Opposite(Quartic):
    def gradient(self, X):
        return -super().gradient(X)


class Lasso:
    """weight * factor * the sum of all |x|, or with prox of another weight."""

    def __init__(self, weight, factor=1.0):
        self.weight, self.other = weight, weight * factor

    def value(self, X):
        return self.weight * abs(X).sum()

    def prox(self, X, sigma):
        return np.sign(X) * np.maximum(abs(X) - sigma * self.other, 0)


class Count(Lasso):
    """Not convex."""

    def value(self, X):
        return self.weight * np.count_nonzero(X)

    def prox(self, X, sigma):
        return np.where(X**2 > 2 * sigma * self.weight, X, 0.0)


class Still(Lasso):
    def prox(self, X, sigma):
        return X


class NotNegative(Lasso):
    def value(self, X):
        return 0.0

    def prox(self, X, sigma):
        return np.maximum(X, 0.0)


class Huge(Quartic):
    def gradient(self, X):
        return X * 1e200


class Raises(Quartic):
    def gradient(self, X):
        raise RuntimeError("no\\nluck")


class Late(Quartic):
    calls = 0

    def gradient(self, X):
        self.calls += 1
        if self.calls > 5:
            raise RuntimeError("enough")
        return super().gradient(X)


class Waits(Quartic):
    """Once the summary of a run is written, which one process begins after."""

    def gradient(self, X):
        marker = Path(__file__).with_name("waits")
        if Path(__file__).with_name("out").joinpath("summary.json").exists() and not marker.exists():
            marker.touch()
            time.sleep(10)
        return super().gradient(X)


class Exits:
    def __init__(self, samples):
        raise SystemExit(9)


class Flat(Quartic):
    def gradient(self, X):
        return X.ravel()


class NotFinite(Quartic):
    def gradient(self, X):
        return X * np.inf


class Text(Quartic):
    def gradient(self, X):
        return "text"


class Writes(Quartic):
    def gradient(self, X):
        X[0, 0] = 1.0
        return X


class NoValue(Quartic):
    def value(self, X):
        raise RuntimeError("no value")


class NoGradient:
    def __init__(self, samples):
        pass

    def value(self, X):
        return 0.0


def not_a_class(samples):
    return Quartic(samples)


number = 5


def touch(samples):
    Path(__file__).with_name("called").touch()
'''


def raw_with(name="mine:Quartic", **problem):
    """A ring of four peers whose file names an objective."""
    raw = raw_topology("ring", 4, max_rounds=30, tolerance=0.0)
    raw["algorithm"]["start"] = {"kind": "random", "seed": 1}
    raw["problem"] |= {"objective": name} | problem
    for peer, port in zip(raw["peers"], free_ports(4), strict=True):
        peer["address"] = f"tcp://127.0.0.1:{port}"
    return raw


def write(directory, raw):
    """The module and the topology file in a directory; both paths."""
    module, file = directory / "mine.py", directory / "net.toml"
    module.write_text(MODULE, encoding="utf-8")
    file.write_text(tomlkit.dumps(raw), encoding="utf-8")
    return module, file
