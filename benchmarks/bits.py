"""Whether a change of the code changes a result: digests of all agents' numbers, to compare before and after.

python benchmarks/bits.py record FILE    before
python benchmarks/bits.py compare FILE   after: prints what differs, and ends with code 1 if anything does

Every file in topologies/ with every method that suits it, and a network with data files, which has all phases;
each with both engines and both precisions, for 200 rounds. The digests are of one machine: record and compare on
the same one.
"""

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from thanos_peer.algorithm.methods import MIXING, SUMMING
from thanos_peer.errors import DivergenceError, TopologyError
from thanos_peer.problem import Instance, build
from thanos_peer.simulate import AgentNetwork, Network, StackedNetwork
from thanos_peer.topology import Topology, families, parse
from thanos_peer.topology.render import Draft, render
from thanos_peer.topology.text import read_toml
from thanos_peer.topology.variants import set_method

SHIPPED = Path(__file__).parents[1] / "topologies"
ENGINES: dict[str, Callable[[Instance], Network]] = {"agents": AgentNetwork, "stacked": StackedNetwork}
ROUNDS = 200
STATE = ("D", "H", "eta", "V", "Y")  # of methods that have them


def files_in(directory: Path) -> Iterator[Path]:
    """The shipped files, and with l1 and l2,1 one whose peers have data files."""
    yield from sorted(SHIPPED.glob("*.toml"))
    rng, d = np.random.default_rng(1), 6
    for i in range(d):
        np.save(directory / f"{i}.npy", rng.normal(size=(5 + 20 * i, 8)) * np.arange(1, 9) + 3)
    for regularizer in ("l1", "l21"):
        draft = Draft(
            name=f"files-{regularizer}", title="Data files.", d=d, n=8, p=2, samples=60, regularizer=regularizer,
            edges=families.make("ring", d, seed=1),
        )  # fmt: skip
        text = render(draft).replace('kind = "synthetic"', 'kind = "files"')
        (directory / f"files-{regularizer}.toml").write_text(text)
        yield directory / f"files-{regularizer}.toml"


def variant(file: Path, method: str, exchange: str) -> Topology | None:
    """A file with another method and precision, cut to some rounds; None if that does not suit it."""
    raw: dict[str, Any] = read_toml(file)
    set_method(raw, method)
    if file.stem.startswith("files"):
        raw["problem"]["data"] = {"kind": "files", "center": True, "scale": True, "overall": "auto"}
        raw["algorithm"]["start"] = {"kind": "leading"}
        for peer in raw["peers"]:
            peer["data"] = f"{peer['id']}.npy"
    raw["algorithm"] |= {"exchange": exchange, "max_rounds": ROUNDS}
    try:
        return parse(raw, file=file)
    except TopologyError:
        return None


def digest_of(network: Network) -> str:
    """Of all that its agents have after the last round."""
    try:
        while not network.is_done:
            network.advance()
    except DivergenceError as error:
        return str(error)
    known = [network.X, network.sparse, *(network.array(name) for name in STATE)]
    digest = hashlib.sha256()
    for array in known:
        digest.update(b"-" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def all_digests() -> dict[str, str]:
    """By file, method, precision and engine."""
    digests = {}
    with tempfile.TemporaryDirectory() as directory:
        for file in files_in(Path(directory)):
            for method in (*MIXING, *SUMMING):
                for exchange in ("float64", "float32"):
                    if (topology := variant(file, method, exchange)) is None:
                        continue
                    for engine, network in ENGINES.items():
                        name = f"{file.stem} {method} {exchange} {engine}"
                        digests[name] = digest_of(network(build(topology)))
                        print(f"{name}: {digests[name]}", file=sys.stderr)
    return digests


@click.command()
@click.argument("action", type=click.Choice(["record", "compare"]))
@click.argument("file", type=click.Path(path_type=Path))
def main(action: str, file: Path) -> None:
    """Record digests to FILE, or compare with those in it."""
    digests = all_digests()
    if action == "record":
        file.write_text(json.dumps(digests, indent=1) + "\n")
        print(f"{len(digests)} digests in {file}")
        return
    before = json.loads(file.read_text())
    differing = sorted(name for name in before if digests.get(name) != before[name])
    for name in differing:
        print(f"{name}: {before[name]} before, {digests.get(name, 'nothing')} now")
    print(f"{len(before) - len(differing)} of {len(before)} digests are the same")
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
