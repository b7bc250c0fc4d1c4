"""What is kept of every run, and the directory where it is kept: a run that is finished there is not run again."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from thanos_peer.compare.trials import Trial
from thanos_peer.durable import make_directory, whole_file
from thanos_peer.errors import ConfigError, DataFileError
from thanos_peer.json_files import DamagedJSONError, read_json

DONE, DIVERGED, ERROR = "done", "diverged", "error"
FAILURES = (DIVERGED, ERROR)
MANIFEST = "compare.json"


@dataclass(frozen=True)
class Curve:
    """How a run went: an entry for each round after which the objective is another one.

    Attributes:
        rounds: Counted from the first of all phases; iterations of a centralised method.
        payload: Bytes that all agents have sent until then.
        seconds: Until then.
        objective: At the nearest point of the manifold to the mean of all X_i.
    """

    rounds: Sequence[int] = ()
    payload: Sequence[int] = ()
    seconds: Sequence[float] = ()
    objective: Sequence[float] = ()


@dataclass(frozen=True)
class Record:
    """What one run has come to; None for what a failed one or a centralised one does not have.

    Attributes:
        digest: Of what ran.
        ended: How: one of the words above.
        words: Of the error, if there was one; else why it stopped.
        seconds: Of the whole run.
        messages_per_round: Of all agents.
        rounds: Of all phases.
        payload: Bytes of all agents, without the frames around them.
        residual: How far from stationary, certified, relative to ||A||_2^2.
        feasibility: The mean of ||X_i'X_i - I||.
        consensus: The largest ||X_i - mean||.
        nonzeros: Of the mean of all sparse X_i.
        entries: How many there could be.
        has_same_zeros: Whether all agents have the same.
        curve: How it went.
    """

    digest: str
    ended: str
    words: str = ""
    seconds: float = 0.0
    messages_per_round: int | None = None
    rounds: int | None = None
    payload: int | None = None
    residual: float | None = None
    feasibility: float | None = None
    consensus: float | None = None
    nonzeros: int | None = None
    entries: int | None = None
    has_same_zeros: bool | None = None
    curve: Curve = field(default_factory=Curve)

    @property
    def has_failed(self) -> bool:
        """Whether there is no result."""
        return self.ended in FAILURES

    @property
    def objective(self) -> float | None:
        """At the end."""
        return self.curve.objective[-1] if self.curve.objective else None


@dataclass(frozen=True)
class Yardstick:
    """What the objectives of one problem are measured by.

    Attributes:
        digest: Of the problem and the start.
        objective: Of the centralised reference from the same start; None where there is none.
        residual: Of that reference.
        scale: What gaps are divided by: ||A||_2^2; None for objectives of another kind.
    """

    digest: str
    objective: float | None
    residual: float | None
    scale: float | None


Kept = TypeVar("Kept", Record, Yardstick)


class Store:
    """A directory of records.

    Args:
        path: Where; it is made if it is not there.
        meaning: What all records in it have in common, by name.

    Raises:
        ConfigError: It holds something else, or records of another comparison.
    """

    def __init__(self, path: Path, meaning: dict[str, Any]) -> None:
        self.path, manifest = path, path / MANIFEST
        if path.exists() and (not path.is_dir() or (any(path.iterdir()) and not manifest.exists())):
            raise ConfigError(f"{path} holds something else than a comparison; choose another with --out")
        meaning = json.loads(json.dumps(meaning, default=str))
        if manifest.exists():
            _check(path, _read(manifest), meaning)
        else:
            make_directory(path)
            _write(manifest, meaning)
        make_directory(path / "runs")

    def file_of(self, trial: Trial) -> Path:
        """Where the record of a trial lies, or will lie."""
        kind = "central-" if trial.contender.is_central else ""
        return self.path / "runs" / f"{kind}{trial.contender.method}-{trial.seed}-{trial.digest[:16]}.json"

    def yardstick_of(self, trial: Trial, digest: str) -> Path:
        """Where that of its problem lies."""
        return self.path / "runs" / f"reference-{trial.seed}-{digest[:16]}.json"

    @staticmethod
    def write(path: Path, kept: Record | Yardstick) -> None:
        """Keep it; it is there as a whole, also after a power cut, or not at all."""
        _write(path, asdict(kept))

    @staticmethod
    def read(path: Path, kind: type[Kept], digest: str) -> Kept:
        """What has been kept.

        Raises:
            DataFileError: The file is damaged, or of another run.
        """
        content = _read(path)
        if content.get("digest") != digest or content.keys() != {each.name for each in fields(kind)}:
            raise DataFileError(f"{path} is not what this comparison has written; remove it and call again")
        if kind is Record:
            content["curve"] = Curve(**content["curve"])
        return kind(**content)


def _check(path: Path, there: dict[str, Any], meaning: dict[str, Any]) -> None:
    for name, value in meaning.items():
        if there.get(name) != value:
            raise ConfigError(
                f"{path} holds a comparison with another {name}: {_shown(there.get(name))} there, {_shown(value)} "
                "here; choose another directory with --out, or remove it"
            )


def _shown(value: Any) -> str:
    text = "none" if value in (None, {}, []) else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json(path, dict[str, Any])
    except DamagedJSONError as error:
        raise DataFileError(f"{path} is damaged: {error}; remove it and call again") from error


def _write(path: Path, content: dict[str, Any]) -> None:
    with whole_file(path) as file:
        file.write((json.dumps(content) + "\n").encode())
