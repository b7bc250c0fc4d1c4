"""Small networks for tests, made as `topology new` makes them and changed before they are checked."""

import tomllib
from dataclasses import fields
from pathlib import Path

import numpy as np

from thanos_peer.phases import Found
from thanos_peer.problem import Instance, build
from thanos_peer.topology import Topology, families, parse
from thanos_peer.topology.render import Draft, render

# Options, for at least 6 features, of regularizers that need some.
OPTIONS: dict[str, dict] = {"group-l21": {"groups": [[0, 3], [1, 4, 5]]}}


def raw_topology(family: str = "ring", d: int = 5, **overrides) -> dict:
    """The parsed TOML of a new topology file, to be edited at will; overrides are fields of Draft."""
    fields = {"name": f"{family}-{d}", "title": "A test.", "n": 6, "p": 2, "samples": 10 * d} | overrides
    fields.setdefault("regularizer_options", OPTIONS.get(fields.get("regularizer", "l1"), {}))
    fields.setdefault("edges", families.make(family, d, seed=fields.get("seed", 1)))
    return tomllib.loads(render(Draft(d=d, **fields)))


def make_topology(
    raw: dict | None = None, *, family: str = "ring", d: int = 5, file: Path = Path("test.toml"), **overrides
) -> Topology:
    """The checked topology of `raw`, or of a new one where none is given."""
    return parse(raw_topology(family, d, **overrides) if raw is None else raw, file=file)


def make_instance(
    raw: dict | None = None, *, family: str = "ring", d: int = 5, file: Path = Path("test.toml"), **overrides
) -> Instance:
    """The same, with data, rules and start."""
    return build(make_topology(raw, family=family, d=d, file=file, **overrides))


def with_keys(raw: dict) -> dict:
    """The same with a key for every peer, which is enough for runs without sockets."""
    peers = [peer | {"public_key": f"{number:040d}"} for number, peer in enumerate(raw["peers"])]
    return {key: each for key, each in raw.items() if key != "unencrypted"} | {"peers": peers}


def found_bits(found: Found) -> dict:
    """What an agent has found, by name, to compare to the last bit; but not what masks are made of."""
    known = {
        field.name: getattr(found, field.name)
        for field in fields(Found)
        if field.name not in ("over", "secrets", "words", "final")
    }
    last = {f"final.{name}": array for name, array in (found.final or {}).items()}
    return {"over": found.over} | {name: np.asarray(each).tobytes() for name, each in (known | last).items()}
