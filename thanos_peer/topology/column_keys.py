"""What must hold between the keys of a topology file that say how data files are read."""

from collections.abc import Iterator, Mapping
from typing import Any

from thanos_peer.errors import Mistake


def column_mistakes(problem: Mapping[str, Any]) -> Iterator[Mistake]:
    """Columns are named or left out, of files; as many are named as there are features."""
    data, n = problem.get("data"), problem.get("n")
    features, exclude = problem.get("features"), problem.get("exclude")
    for key, names in (("features", features), ("exclude", exclude)):
        if names and data is not None and data["kind"] != "files":
            allowed = 'leave it out, or set problem.data.kind = "files": only files have columns with names'
            yield Mistake(f"problem.{key}", allowed, has_value=False)
    if features and exclude:
        allowed = "leave it out beside problem.features: a column that is not named there is not read"
        yield Mistake("problem.exclude", allowed, has_value=False)
    if features and n is not None and len(features) != n:
        allowed = f"names {len(features)} features, and problem.n = {n}: mend one of them, or leave out problem.n"
        yield Mistake("problem.features", allowed, has_value=False)
    if features and "" in features:
        yield Mistake("problem.features", "has an empty name: a feature has one", has_value=False)


def missing_mistakes(problem: Mapping[str, Any]) -> Iterator[Mistake]:
    """A largest share of missing values is for data in which some may be missing."""
    data = problem.get("data") or {}
    if data.get("max_missing") is not None and data.get("missing", "refuse") == "refuse":
        allowed = 'leave it out, or set problem.data.missing = "mean": else no value may be missing'
        yield Mistake("problem.data.max_missing", allowed, data["max_missing"])
