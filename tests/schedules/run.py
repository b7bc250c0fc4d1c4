"""Run networks of sessions through schedules of faults.

python tests/schedules/run.py [--schedules 100000] [--seed 1] [--processes 2]
python tests/schedules/run.py --liar [--schedules 20000]
python tests/schedules/run.py [--liar] --replay SEED

Each schedule follows from one seed: the network, delays, loss, and what happens when. Prints how many schedules
ran, how many faults of each kind there were, and the seed of every schedule in which a promise was broken; the
exit code is 1 then. `--replay` runs one schedule again and prints all that was said.
"""

import random
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path

import click
import numpy as np

sys.path[0] = str(Path(__file__).parents[1])

from networks import make_instance, raw_topology, with_keys
from schedules.draw import faults_of
from schedules.faults import FaultyWorld
from schedules.lies import LyingWorld, lying_of
from schedules.world import WrongError

from thanos_peer.algorithm.methods import METHODS
from thanos_peer.launch.claims import Data
from thanos_peer.phases import phase
from thanos_peer.problem import Instance, assemble
from thanos_peer.protocol import saving
from thanos_peer.samples import moments_of_rows
from thanos_peer.simulate import AgentNetwork
from thanos_peer.topology import parse
from thanos_peer.topology.data import samples_of

# Of each network: family, size, method, rounds and tolerance, how numbers are sent, and whether samples are
# prepared.
NETWORKS = [
    ("path", 3, "thanos", (30, 0.0), "float64", False),
    ("ring", 4, "thanos", (25, 0.0), "float32", False),
    ("star", 4, "thanos", (30, 0.3), "float64", False),
    ("complete", 3, "thanos", (40, 1.0), "float64", False),
    ("path", 4, "thanos", (12, 0.3), "float64", True),
    ("ring", 5, "proximal", (None, None), "float64", False),
    ("star", 5, "gram", (None, None), "float64", False),
    *(("path", 3, name, (20, 0.3) if METHODS[name].mixes else (None, None), "float64", True) for name in METHODS),
    # Masked, with more edges than those of the tree.
    ("ring", 4, "proximal", (None, None), "float64", True),
    ("complete", 4, "gram", (None, None), "float64", True),
]
# So many of them, the first ones, are not prepared: each start of an epoch has an X of its own.
UNPREPARED = 4
BATCH = 200


@cache
def instance_of(number: int) -> tuple[Instance, Data, list[bytes]]:
    """A network, the samples of all its agents, and the bits of its results without any fault."""
    family, d, method, (rounds, tolerance), exchange, is_prepared = NETWORKS[number]
    limits = {} if rounds is None else {"max_rounds": rounds, "tolerance": tolerance}
    regularizer = "none" if METHODS[method].is_for_smooth else "l1"
    raw = raw_topology(family, d, n=4, p=2, mu=0.2, regularizer=regularizer, method=method, **limits)
    raw["algorithm"]["exchange"] = exchange
    if is_prepared:
        raw["problem"]["data"] = {"kind": "files", "center": True, "scale": True, "overall": "auto"}
        raw["algorithm"]["start"] = {"kind": "leading"}
        raw = with_keys(raw)  # so that sums are masked
        topology = parse(raw, file=Path("test.toml"), may_lack_data=True, reads_data=False)
        rows = np.random.default_rng(d).standard_normal((d, 7, 4)) * [3, 2, 1, 1]
        moments = [moments_of_rows(part, None, keeps_rows=METHODS[method].needs_samples) for part in rows]
        instance = assemble(topology, moments)
    else:
        instance = make_instance(raw)
        rows = samples_of(instance.topology, range(d))
    network = AgentNetwork(instance)
    while not network.is_done:
        network.advance()
    return instance, Data(instance.topology, list(rows)), [X.tobytes() for X in network.X]


def world_of(seed: int, *, has_liar: bool = False, keeps_log: bool = False) -> FaultyWorld:
    """The schedule of a seed."""
    rng = random.Random(seed)
    # Drawn so that what is lost with a disk cannot always be made up, and a peer must wait for a slow disk.
    saving.INTERVAL = rng.choice([0.02, 0.02, 0.1, 1.0])
    phase.KEPT_BYTES = rng.choice([1, 2**25])
    instance, data, bits = instance_of(rng.randrange(rng.choice([UNPREPARED, len(NETWORKS)])))
    faults = faults_of(rng, instance.topology.graph) if not has_liar or rng.random() < 0.3 else []
    kind = partial(LyingWorld, lying=lying_of(rng, instance.topology.d)) if has_liar else FaultyWorld
    return kind(
        instance,
        data,
        bits,
        faults,
        seed=seed,
        loss=rng.choice([0.0, 0.0, 0.05, 0.2]),
        delay=rng.choice([0.02, 0.2, 0.4]),
        disk=rng.choice([0.01, 0.01, 0.3, 3.0]),
        lumps=rng.choice([0.0, 0.3]),
        keeps_log=keeps_log,
    )


def run_some(first: int, count: int, *, has_liar: bool = False) -> tuple[Counter, list[tuple[int, str]]]:
    """Schedules of consecutive seeds: what happened in them, and what went wrong."""
    counts, wrong = Counter(), []
    for seed in range(first, first + count):
        world = world_of(seed, has_liar=has_liar)
        try:
            world.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, its seed is to be told
            wrong.append((seed, f"{type(error).__name__}: {error}"))
        counts += world.counts
        counts["schedules"] += 1
    return counts, wrong


def replay(seed: int, *, has_liar: bool = False) -> None:
    """One schedule, with all that is said."""
    world = world_of(seed, has_liar=has_liar, keeps_log=True)
    try:
        world.run()
        world.log.append("all is well")
    except WrongError as error:
        world.log.append(f"WRONG: {error}")
    except Exception:  # noqa: BLE001 - whatever it is, what led to it is to be seen
        world.log.append(traceback.format_exc())
    print("\n".join(world.log))


@click.command()
@click.option("--schedules", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the first; the others follow.")
@click.option("--processes", type=click.IntRange(1), default=2, show_default=True)
@click.option("--liar", "has_liar", is_flag=True, help="One peer lies for a while.")
@click.option("--replay", "replayed", type=int, help="Run the schedule of this seed only, and print its log.")
def main(schedules: int, seed: int, processes: int, *, has_liar: bool, replayed: int | None) -> None:
    """Run networks of sessions through schedules of faults."""
    if replayed is not None:
        replay(replayed, has_liar=has_liar)
        return
    began, counts, wrong = time.monotonic(), Counter(), []
    starts = range(seed, seed + schedules, BATCH)
    sizes = [min(BATCH, seed + schedules - start) for start in starts]
    with ProcessPoolExecutor(processes) as pool:
        for some, failed in pool.map(partial(run_some, has_liar=has_liar), starts, sizes):
            counts += some
            wrong += failed
            for number, what in failed:
                print(f"WRONG: seed {number}: {what[:400]}", flush=True)
    print(f"{schedules} schedules in {time.monotonic() - began:.0f} s (seeds {seed} on)")
    for is_stage in (False, True):
        listed = [each for each in sorted(counts.items()) if (">" in each[0]) is is_stage]
        what = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in listed)
        print(f"{'stages' if is_stage else 'faults'}: {what}")
    print(f"{len(wrong)} broke a promise")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
