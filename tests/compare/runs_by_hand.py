"""Runs that were never run: their numbers are written down here, so that tables can be checked by hand."""

from networks import make_topology

from thanos_peer.compare.gaps import JudgedRun
from thanos_peer.compare.records import DONE, Curve, Record
from thanos_peer.compare.trials import Contender, Trial

TOPOLOGY = make_topology(d=4)


def trial(method="proximal", seed=1, *, is_central=False, **settings):
    return Trial(Contender(method, settings, is_central), seed, TOPOLOGY)


def record(objective, *, ended=DONE, words="", residual=1e-12, **others):
    """A curve with a point per 10 rounds, of 100 bytes and a hundredth of a second each."""
    rounds = [10 * (at + 1) for at in range(len(objective))]
    payload, seconds = [100 * each for each in rounds], [each / 100 for each in rounds]
    usual = {"messages_per_round": 8, "rounds": rounds[-1], "payload": payload[-1], "seconds": seconds[-1]}
    support = {"feasibility": 0.0, "consensus": 0.0, "nonzeros": 5, "entries": 12, "has_same_zeros": True}
    curve = Curve(rounds, payload, seconds, objective)
    return Record("digest", ended, words, residual=residual, **(usual | support | others), curve=curve)


def result(objective, *, method="proximal", seed=1, **others):
    """Beside a best objective of -1, in units of 2."""
    return JudgedRun(trial(method, seed), record(objective, **others), -1.0, 2.0)


def wandering(seed=1):
    """Never nearer than 0.02, and nowhere stationary."""
    return result(
        [-0.5, -0.96, -0.9],
        method="thanos",
        seed=seed,
        words="too few rounds",
        residual=1e-3,
        has_same_zeros=False,
    )
