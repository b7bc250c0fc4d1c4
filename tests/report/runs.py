"""Small runs to report on, and a page taken apart."""

import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
from processes import PATIENCE, command, write_topology
from programs import run

from thanos_peer.topology.data import synthetic_samples
from thanos_peer.topology.sections import SyntheticData


def simulated_run(base: Path, *options, **draft) -> Path:
    """A run of `simulate`."""
    topology = write_topology(base / "net.toml", **({"max_rounds": 20} | draft))
    return _make("simulate", topology.file, base / "run", *options)


def network_run(base: Path, **draft) -> Path:
    """A run of real processes."""
    topology = write_topology(base / "net.toml", **({"max_rounds": 20} | draft))
    return _make("run", topology.file, base / "run")


def _make(name: str, file: Path, out: Path, *options) -> Path:
    run(*command(name, file, "--out", out, "--quiet", *options), seconds=PATIENCE)
    return out


def with_data_files(base: Path):
    """A change to a topology: every peer reads its samples from a file beside it."""

    def change(raw):
        data = SyntheticData(kind="synthetic", seed=3, samples=40)
        parts = synthetic_samples(data, n=raw["problem"]["n"], d=len(raw["peers"]))
        for peer, rows in zip(raw["peers"], parts, strict=True):
            np.save(base / f"{peer['id']}.npy", rows)
            peer["data"] = f"{peer['id']}.npy"
        raw["problem"]["data"] = {"kind": "files"}
        raw["algorithm"]["start"] = {"kind": "random", "seed": 1}

    return change


def edit_json(path: Path, **changes):
    """Change some keys of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


class Page(HTMLParser):
    """A page taken apart: its tags with attributes, its text, and the exact numbers in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.text, self.styles = "", ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "source"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            self.styles += data
        else:
            self.text += data + "\n"

    def all(self, name: str, attribute: str) -> list[str]:
        """The values of an attribute on every tag of this name that has it."""
        return [attributes[attribute] for tag, attributes in self.tags if tag == name and attribute in attributes]
