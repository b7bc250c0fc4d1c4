"""From a TOML file to a checked Topology: all mistakes together, nothing opened before."""

import difflib
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from thanos_peer.block import AgentId
from thanos_peer.errors import Mistake, TopologyError
from thanos_peer.topology import checks
from thanos_peer.topology.data import file_mistakes
from thanos_peer.topology.graph import Graph
from thanos_peer.topology.model import Topology
from thanos_peer.topology.sections import SECTIONS, UNION_KEYS, UNION_TAGS, TopologyFile

LARGEST_FILE = 64 * 2**20


def load(path: str | Path, *, data_of: Collection[AgentId] | None = None) -> Topology:
    """Read and check a topology file.

    Args:
        path: The file.
        data_of: Whose data files to read and check; None for all. A host that holds one peer's file only
            names that peer.

    Raises:
        TopologyError: With every mistake that was found.
    """
    file = Path(path)
    try:
        if file.stat().st_size > LARGEST_FILE:
            raise _single(file, f"larger than {LARGEST_FILE // 2**20} MiB")
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise _single(file, f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise _single(file, f"is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except ValueError as error:  # tomllib's own error, and Python's for an integer of thousands of digits
        raise _single(file, f"is not TOML: {error}") from error
    except RecursionError as error:
        raise _single(file, "is nested too deeply") from error
    return parse(raw, file=file, data_of=data_of)


def parse(raw: Mapping[str, Any], *, file: Path, data_of: Collection[AgentId] | None = None) -> Topology:
    """Check what stands in a topology file; `file` names it in errors and anchors relative paths."""
    try:
        topology = Topology(TopologyFile.model_validate(raw), file)
        details: list[ErrorDetails] = []
    except ValidationError as error:
        details = error.errors(include_url=False)
    parts = _SoundParts(raw, details)
    mistakes = [*map(_translate, details), *_cross_mistakes(parts), *_data_mistakes(parts, file.parent, data_of)]
    if mistakes:
        raise TopologyError(str(file), mistakes)
    return topology


def _single(file: Path, what: str) -> TopologyError:
    return TopologyError(str(file), [Mistake("the file", what, has_value=False)])


def _translate(detail: ErrorDetails) -> Mistake:
    """What pydantic found, in our words."""
    kind, loc, message, value = detail["type"], detail["loc"], detail["msg"], detail["input"]
    key = _spell(loc)
    if kind == "missing":
        return Mistake(key, "is missing", has_value=False)
    if kind == "extra_forbidden":
        return Mistake(key, f"unknown key{_suggest(loc)}", value)
    if kind == "union_tag_not_found":
        return Mistake(f"{key}.{_tag_key(loc)}", "is missing", has_value=False)
    if kind == "union_tag_invalid":
        key, value = f"{key}.{_tag_key(loc)}", value[_tag_key(loc)]
        message = message.rsplit("expected tags: ", maxsplit=1)[-1].replace("'", '"')
        return Mistake(key, f"must be one of {message}", value)
    if kind == "string_pattern_mismatch":
        return Mistake(
            key,
            "must be 1 to 64 letters, digits, dots, dashes and underscores, and begin with a letter or digit",
            value,
        )
    message = message.removeprefix("Value error, ").replace("Input should be", "must be").replace("'", '"')
    return Mistake(key, message[0].lower() + message[1:], value)


def _spell(loc: tuple[int | str, ...]) -> str:
    """('peers', 3, 'address') as peers[3].address, without the names of union branches."""
    pairs = zip((None, *loc), loc, strict=False)
    parts = [part for before, part in pairs if not (before in UNION_KEYS and part in UNION_TAGS)]
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")


def _tag_key(loc: tuple[int | str, ...]) -> str:
    return "kind" if loc[-1] in ("data", "start") else "rule"


def _suggest(loc: tuple[int | str, ...]) -> str:
    """The known keys at this place, and the one that was probably meant."""
    place = tuple(part for part in loc[:-1] if isinstance(part, str))
    known = sorted(SECTIONS[place].model_fields)
    near = difflib.get_close_matches(str(loc[-1]), known, n=1)
    hint = f'; did you mean "{near[0]}"?' if near else ""
    return f"{hint} (known here: {', '.join(known)})"


class _SoundParts:
    """What is sound by itself in a file that may have mistakes elsewhere."""

    def __init__(self, raw: Mapping[str, Any], details: Sequence[ErrorDetails]) -> None:
        self._raw = raw
        self._unsound = [detail["loc"] for detail in details]

    def is_sound(self, *place: int | str) -> bool:
        """Whether nothing was found at this place or below."""
        return not any(loc[: len(place)] == place for loc in self._unsound)

    def section(self, *place: int | str) -> dict[str, Any]:
        """The sound values of a section, and the defaults of those left out."""
        entry: Any = self._raw
        for part in place:
            entry = entry.get(part) if isinstance(entry, Mapping) else entry[part]
        if not isinstance(entry, Mapping):
            return {}
        fields = SECTIONS[tuple(part for part in place if isinstance(part, str))].model_fields
        defaults = {key: field.default for key, field in fields.items() if not field.is_required()}
        known = defaults | {key: value for key, value in entry.items() if key in fields}
        return {key: value for key, value in known.items() if self.is_sound(*place, key)}

    def peers(self) -> list[dict[str, Any]]:
        """The sound values of every peer."""
        return [self.section("peers", index) for index in range(len(self.entries("peers") or []))]

    def entries(self, key: str) -> list[Any] | None:
        """A list at the top of the file, if it is there and is one."""
        found = self._raw.get(key)
        return found if isinstance(found, list) else None


def _cross_mistakes(parts: _SoundParts) -> Iterator[Mistake]:
    """Checks between keys, run on whichever values are sound by themselves."""
    problem, algorithm, peers = parts.section("problem"), parts.section("algorithm"), parts.peers()
    yield from checks.problem_mistakes(problem)
    yield from checks.method_mistakes(problem, algorithm)
    yield from checks.peer_mistakes(peers)
    edges = parts.entries("edges")
    if peers and edges is not None:
        yield from _graph_mistakes(parts, len(peers), edges)


def _data_mistakes(parts: _SoundParts, directory: Path, data_of: Collection[AgentId] | None) -> Iterator[Mistake]:
    problem, peers = parts.section("problem"), parts.peers()
    yield from checks.data_mistakes(problem, peers)
    data = problem.get("data")
    if data is not None and data["kind"] == "files" and "n" in problem:
        yield from file_mistakes(directory, problem["n"], peers, data_of)


def _graph_mistakes(parts: _SoundParts, d: int, edges: list[Any]) -> Iterator[Mistake]:
    sound = [edge if parts.is_sound("edges", index) else None for index, edge in enumerate(edges)]
    found = list(checks.edge_mistakes(d, sound))
    yield from found
    weights = parts.section().get("weights")
    if isinstance(weights, list) and not found and None not in sound:
        wrong = list(checks.weight_mistakes(d, edges, weights))
        yield from wrong or checks.mixing_mistakes(Graph.of(d, edges, weights))
