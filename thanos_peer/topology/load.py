"""From a TOML file to a checked Topology: all mistakes together, nothing opened before."""

import difflib
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from thanos_peer.block import AgentId
from thanos_peer.errors import Mistake, TopologyError
from thanos_peer.topology import checks
from thanos_peer.topology.data import file_mistakes
from thanos_peer.topology.model import Topology
from thanos_peer.topology.sections import SECTIONS, UNION_TAGS, TopologyFile

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
    except tomllib.TOMLDecodeError as error:
        raise _single(file, f"is not TOML: {error}") from error
    except RecursionError as error:
        raise _single(file, "is nested too deeply") from error
    return parse(raw, file=file, data_of=data_of)


def parse(raw: Mapping[str, Any], *, file: Path, data_of: Collection[AgentId] | None = None) -> Topology:
    """Check what stands in a topology file; `file` names it in errors and anchors relative paths."""
    mistakes = [*_section_mistakes(raw), *_cross_mistakes(raw)]
    if mistakes:
        raise TopologyError(str(file), mistakes)
    topology = Topology(TopologyFile.model_validate(raw), file)
    mistakes = [*checks.mixing_mistakes(topology.graph), *file_mistakes(topology, data_of)]
    if mistakes:
        raise TopologyError(str(file), mistakes)
    return topology


def _single(file: Path, what: str) -> TopologyError:
    return TopologyError(str(file), [Mistake("the file", what, has_value=False)])


def _section_mistakes(raw: Mapping[str, Any]) -> Iterator[Mistake]:
    try:
        TopologyFile.model_validate(raw)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            yield _translate(detail["type"], detail["loc"], detail["msg"], detail["input"])


def _translate(kind: str, loc: tuple[int | str, ...], message: str, value: Any) -> Mistake:
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
            key, "must be 1 to 64 letters, digits, dots, dashes or underscores, not starting with one", value
        )
    message = message.removeprefix("Value error, ").replace("Input should be", "must be").replace("'", '"')
    return Mistake(key, message[0].lower() + message[1:], value)


def _spell(loc: tuple[int | str, ...]) -> str:
    """('peers', 3, 'address') as peers[3].address, without the names of union branches."""
    parts = [part for part in loc if part not in UNION_TAGS]
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


def _cross_mistakes(raw: Mapping[str, Any]) -> Iterator[Mistake]:
    """Checks between keys, run on whichever sections are sound by themselves."""
    peers, edges = _part(raw, "peers"), _part(raw, "edges")
    weights, problem, algorithm = _part(raw, "weights"), _part(raw, "problem"), _part(raw, "algorithm")
    if peers is not None:
        yield from checks.peer_mistakes(peers)
    if peers is not None and edges is not None:
        found = list(checks.edge_mistakes(len(peers), edges))
        yield from found
        if not found and isinstance(weights, list):
            yield from checks.weight_mistakes(len(peers), edges, weights)
    if problem is not None:
        yield from checks.problem_mistakes(problem)
    if problem is not None and peers is not None:
        yield from checks.data_mistakes(problem, peers)
    if problem is not None and algorithm is not None:
        yield from checks.method_mistakes(problem, algorithm)


def _part(raw: Mapping[str, Any], name: str) -> Any:
    """One section by itself, or None if it is missing or has mistakes of its own."""
    annotation: Any = TopologyFile.model_fields[name].rebuild_annotation()
    try:
        return TypeAdapter(annotation).validate_python(raw[name], strict=True)
    except (KeyError, ValidationError):
        return None
