"""From a TOML file to a checked Topology: all mistakes together, nothing opened before."""

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from thanos_peer.block import AgentId
from thanos_peer.errors import MOST_SHOWN, DataFileError, Mistake, TopologyError
from thanos_peer.samples.columns import Columns, Wanted
from thanos_peer.topology import checks
from thanos_peer.topology.code_names import option_mistakes
from thanos_peer.topology.column_keys import column_mistakes, missing_mistakes
from thanos_peer.topology.data import file_mistakes, read_start
from thanos_peer.topology.graph import Graph
from thanos_peer.topology.model import Topology
from thanos_peer.topology.sections import LARGEST_MATRIX, SECTIONS, UNION_KEYS, UNION_TAGS, Sections, TopologyFile
from thanos_peer.topology.text import read_toml
from thanos_peer.topology.variants import change_settings, set_method, spell_out


def load(  # noqa: PLR0913 - named, each of them needed
    path: str | Path,
    *,
    data_of: Collection[AgentId] | None = None,
    own_data: Mapping[AgentId, Path] | None = None,
    may_lack_data: bool = False,
    reads_data: bool = True,
    allowed_code: Sequence[str] = (),
    method: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Topology:
    """Read and check a topology file.

    Args:
        path: The file.
        data_of: Whose data files to read and check; None for all. A host that holds one peer's file only
            names that peer.
        own_data: Data files to use instead of those in the topology file.
        may_lack_data: Whether a peer may have no data file so far; it can be started with one.
        reads_data: Whether to look into data files; else their reader finds the mistakes.
        allowed_code: The modules, or their files, that the file may name. Nothing is imported here.
        method: Another method than the file names, with its default settings.
        settings: Other values than the file has, by dotted key such as "algorithm.beta".

    Raises:
        TopologyError: With every mistake that was found.
    """
    file = Path(path)
    raw = read_toml(file)
    if method is not None:
        set_method(raw, method)
    change_settings(raw, settings or {})
    topology = parse(
        raw,
        file=file,
        data_of=data_of,
        own_data=own_data,
        may_lack_data=may_lack_data,
        reads_data=reads_data,
    )
    return replace(
        topology, allowed_code=tuple(allowed_code), other_method=method, other_settings=dict(settings or {})
    )


def parse(
    raw: Mapping[str, Any],
    *,
    file: Path,
    data_of: Collection[AgentId] | None = None,
    own_data: Mapping[AgentId, Path] | None = None,
    may_lack_data: bool = False,
    reads_data: bool = True,
) -> Topology:
    """Check what stands in a topology file; `file` names it in errors and anchors relative paths."""
    own_data, raw = own_data or {}, spell_out(raw)
    if too_many := list(checks.count_mistakes(raw)):
        raise TopologyError(str(file), too_many)
    try:
        topology = Topology(TopologyFile.model_validate(raw), file, own_data)
        details: list[ErrorDetails] = []
    except ValidationError as error:
        details = error.errors(include_url=False)
    parts = _SoundParts(raw, details)
    shown = details[:MOST_SHOWN]
    mistakes = [*map(_translate, shown), *_cross_mistakes(parts)]
    agents = [peer.get("id") for peer in parts.peers()] if data_of is None else data_of
    mistakes += _data_mistakes(
        parts, file.parent, agents, own_data, may_lack_data=may_lack_data, reads_data=reads_data
    )
    mistakes += _start_mistakes(parts, file.parent)
    if mistakes:
        raise TopologyError(str(file), mistakes, more=len(details) - len(shown))
    return topology


def as_mistakes(file: Path, error: ValidationError, sections: Sections) -> TopologyError:
    """What is wrong with a file that some models have refused."""
    details = error.errors(include_url=False)
    shown = [_translate(detail, sections) for detail in details[:MOST_SHOWN]]
    return TopologyError(str(file), shown, more=len(details) - len(shown))


def _translate(detail: ErrorDetails, sections: Sections = SECTIONS) -> Mistake:
    """What pydantic found, in our words."""
    kind, loc, message, value = detail["type"], detail["loc"], detail["msg"], detail["input"]
    key = _spell(loc)
    if kind == "missing":
        return Mistake(key, "is missing", has_value=False)
    if kind == "extra_forbidden":
        return Mistake(key, f"unknown key{_suggest(loc, sections)}", value)
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
    or_auto = ' or "auto"' if loc[-1] == "number" else ""
    return Mistake(key, message[0].lower() + message[1:] + or_auto, value)


def _spell(loc: tuple[int | str, ...]) -> str:
    """('peers', 3, 'address') as peers[3].address, without the names of union branches."""
    pairs = zip((None, *loc), loc, strict=False)
    parts = [part for before, part in pairs if not (before in UNION_KEYS and part in UNION_TAGS)]
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")


def _tag_key(loc: tuple[int | str, ...]) -> str:
    return "kind" if loc[-1] in ("data", "start") else "rule"


def _suggest(loc: tuple[int | str, ...], sections: Sections) -> str:
    """The known keys at this place, and the one that was probably meant."""
    place = tuple(part for part in loc[:-1] if isinstance(part, str))
    known = sorted(sections[place].model_fields)
    near = difflib.get_close_matches(str(loc[-1]), known, n=1)
    hint = f'; did you mean "{near[0]}"?' if near else ""
    return f"{hint} (known here: {', '.join(known)})"


def _default_of(field: FieldInfo) -> Any:
    default = field.get_default(call_default_factory=True)
    return default.model_dump() if isinstance(default, BaseModel) else default


class _SoundParts:
    """What is sound by itself in a file that may have mistakes elsewhere."""

    def __init__(self, raw: Mapping[str, Any], details: Sequence[ErrorDetails]) -> None:
        self._raw = raw
        places = (detail["loc"] for detail in details)
        self._unsound = {loc[:length] for loc in places for length in range(len(loc) + 1)}

    def is_sound(self, *place: int | str) -> bool:
        """Whether nothing was found at this place or below."""
        return place not in self._unsound

    def section(self, *place: int | str) -> dict[str, Any]:
        """The sound values of a section, and the defaults of those left out."""
        entry: Any = self._raw
        for part in place:
            entry = entry.get(part) if isinstance(entry, Mapping) else entry[part]
        if not isinstance(entry, Mapping):
            return {}
        fields = SECTIONS[tuple(part for part in place if isinstance(part, str))].model_fields
        defaults = {key: _default_of(field) for key, field in fields.items() if not field.is_required()}
        known = defaults | {key: value for key, value in entry.items() if key in fields}
        return {key: value for key, value in known.items() if self.is_sound(*place, key)}

    def given(self, key: str) -> frozenset[str]:
        """The keys that the file itself names in a section."""
        entry = self._raw.get(key)
        return frozenset(entry) if isinstance(entry, Mapping) else frozenset()

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
    yield from checks.path_mistakes(problem, algorithm)
    yield from option_mistakes(problem)
    yield from column_mistakes(problem)
    yield from missing_mistakes(problem)
    yield from checks.method_mistakes(problem, algorithm, parts.given("algorithm"))
    yield from checks.own_code_mistakes(problem, algorithm, parts.given("algorithm"))
    yield from checks.peer_mistakes(peers)
    yield from checks.key_mistakes(peers, parts.section().get("unencrypted"))
    yield from checks.mask_mistakes(algorithm, peers)
    edges = parts.entries("edges")
    if peers and edges is not None:
        yield from _graph_mistakes(parts, len(peers), edges)


def _data_mistakes(
    parts: _SoundParts,
    directory: Path,
    agents: Collection[AgentId | None],
    own_data: Mapping[AgentId, Path],
    *,
    may_lack_data: bool,
    reads_data: bool,
) -> Iterator[Mistake]:
    """Checks of the data of some agents, and of what the file says of data at all."""
    problem, peers = parts.section("problem"), parts.peers()
    needed = () if may_lack_data else [agent for agent in agents if agent not in own_data]
    yield from checks.data_mistakes(problem, peers, needed)
    data = problem.get("data")
    if data is not None and data["kind"] == "synthetic" and own_data:
        for path in own_data.values():
            yield Mistake("--data", 'leave it out, or set problem.data.kind = "files"', str(path))
    if (
        reads_data
        and data is not None
        and data["kind"] == "files"
        and {"n", "features", "exclude"} <= problem.keys()
    ):
        features = problem["features"]
        wanted = Wanted(
            problem["n"],
            Columns(None if features is None else tuple(features), tuple(problem["exclude"])),
            allows_missing=data.get("missing") == "mean",
        )
        yield from file_mistakes(directory, wanted, peers, agents, own_data)


def _start_mistakes(parts: _SoundParts, directory: Path) -> Iterator[Mistake]:
    """A start in a file has to be there at every host."""
    start, problem = parts.section("algorithm").get("start"), parts.section("problem")
    if start is None or start["kind"] != "file" or not {"n", "p"} <= problem.keys():
        return
    if problem["n"] * problem["p"] <= LARGEST_MATRIX:
        try:
            read_start(directory / start["path"], n=problem["n"], p=problem["p"])
        except DataFileError as error:
            yield Mistake("algorithm.start.path", str(error), start["path"])


def _graph_mistakes(parts: _SoundParts, d: int, edges: list[Any]) -> Iterator[Mistake]:
    sound = [edge if parts.is_sound("edges", index) else None for index, edge in enumerate(edges)]
    found = list(checks.edge_mistakes(d, sound))
    yield from found
    weights = parts.section().get("weights")
    if found or None in sound:
        return
    yield from checks.rounds_mistakes(parts.section("algorithm"), d, edges)
    if isinstance(weights, list):
        wrong = list(checks.weight_mistakes(d, edges, weights))
        yield from wrong or checks.mixing_mistakes(Graph.of(d, edges, weights))
