"""What is to be compared: methods, each with its settings, on the same problems."""

import hashlib
import itertools
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from thanos_peer.algorithm.central import CENTRAL, SMOOTHING
from thanos_peer.algorithm.methods import GENERAL, METHODS, SETTINGS, traits_of
from thanos_peer.errors import ConfigError, TopologyError
from thanos_peer.topology import Topology, load
from thanos_peer.topology.sections import SyntheticData

Settings: TypeAlias = Mapping[str, Any]
# A file loaded with this method says what the problem and the start are.
JUDGE = GENERAL


@dataclass(frozen=True)
class Contender:
    """A method with some settings of its own.

    Attributes:
        method: By name.
        settings: What is set for it alone, by dotted key.
        is_central: Whether it holds all the data, and has iterations in place of rounds.
    """

    method: str
    settings: Settings
    is_central: bool = False

    @property
    def label(self) -> str:
        """For a row of a table."""
        shown = (f"{key.removeprefix('algorithm.')}={spell(value)}" for key, value in self.settings.items())
        return " ".join([f"{self.method} (central)" if self.is_central else self.method, *shown])

    @property
    def problem(self) -> Settings:
        """Those settings that make it another problem: only within one are objectives compared."""
        return {key: value for key, value in self.settings.items() if not key.startswith("algorithm.")}

    @property
    def problem_and_start(self) -> Settings:
        """The same, and those that make it another start."""
        starts = {
            key: value for key, value in self.settings.items() if key.split(".")[:2] == ["algorithm", "start"]
        }
        return {**self.problem, **starts}


@dataclass(frozen=True)
class Trial:
    """One run: a contender on the problem of one seed.

    Attributes:
        contender: Which method, with which settings.
        seed: Of the data, or of the start where the data are files.
        topology: With all of that; of a centralised method the problem and the start.
    """

    contender: Contender
    seed: int
    topology: Topology

    @property
    def digest(self) -> str:
        """Of all that decides the numbers of this run."""
        own = self.topology.digest
        if not self.contender.is_central:
            return own
        return hashlib.sha256(f"{own} {self.contender.method}, centralised".encode()).hexdigest()

    @property
    def problem(self) -> str:
        """Trials with the same problem have the same text here, whatever their starts."""
        return spell({**self._units(), **self.contender.problem})

    def _units(self) -> Settings:
        """What an objective depends on besides settings: the samples, and the norm that they are divided by."""
        data, kind = self.topology.problem.data, self.topology.algorithm.start.kind
        if isinstance(data, SyntheticData):
            return {"seed": self.seed}
        if data.overall == "raw":
            return {}
        # A norm that DESTINY has found is as precise as its start.
        by_start: Mapping[str, Settings] = {"leading": {"norm": "2"}, "destiny": {"norm": "2", "seed": self.seed}}
        return by_start.get(kind, {"norm": "Frobenius"})

    @property
    def smooths(self) -> bool:
        """Whether it minimises something smoother than the problem."""
        method = self.contender.method
        known = traits_of(method)  # "auto" takes an exact method
        smooths = method in SMOOTHING if self.contender.is_central else known.smooths
        return smooths and not self.topology.problem.is_smooth


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Attributes:
        file: The topology file.
        methods: By name; empty for all that suit the problem.
        seeds: How many.
        sweep: The values of each key in turn.
        has_central: Whether centralised methods are asked for as well.
        max_rounds: Of every method; None for what the file or the method says.
        allowed_code: The modules that the file may name.
    """

    file: Path
    methods: Sequence[str]
    seeds: int
    sweep: Mapping[str, Sequence[Any]]
    has_central: bool = False
    max_rounds: int | None = None
    allowed_code: Sequence[str] = ()

    def load(self, method: str, settings: Settings) -> Topology:
        """The file with this method and these settings."""
        limit = {} if self.max_rounds is None else {"algorithm.max_rounds": self.max_rounds}
        return load(
            self.file,
            reads_data=False,
            allowed_code=self.allowed_code,
            method=method,
            settings={**limit, **settings},
        )


def contenders(request: Request) -> tuple[list[Contender], list[str]]:
    """All methods with all their settings, and what there is to say of those left out.

    Raises:
        ConfigError: A key is swept that no method has.
    """
    _check_sweep(request)
    words: list[str] = []
    found = [each for method in _methods(request, words) for each in _grid(request, method, words)]
    if request.has_central and request.load(JUDGE, {}).problem.objective is not None:
        words.append("centralised methods are left out: they are for sparse PCA")
    elif request.has_central:
        found += [each for name in CENTRAL for each in _grid(request, name, words, is_central=True)]
    for key in request.sweep:
        if not any(key in each.settings for each in found):
            raise ConfigError(f"--sweep {key}: none of the methods that are compared has this setting")
    return found, words


def _check_sweep(request: Request) -> None:
    if "algorithm.method" in request.sweep:
        raise ConfigError("--sweep algorithm.method: name the methods with --methods")
    if request.max_rounds is not None and "algorithm.max_rounds" in request.sweep:
        raise ConfigError("--sweep algorithm.max_rounds: leave out --max-rounds, which is the same for all")


def _methods(request: Request, words: list[str]) -> list[str]:
    """Those asked for; or all that suit the problem of the file."""
    if request.methods:
        return list(dict.fromkeys(request.methods))
    suiting = []
    for method in METHODS:
        try:
            request.load(method, {})
        except TopologyError as error:
            words.append(f"{method} is left out: {error.mistakes[0]}")
        else:
            suiting.append(method)
    return suiting


def _grid(request: Request, method: str, words: list[str], *, is_central: bool = False) -> Iterator[Contender]:
    keys = [key for key in request.sweep if _has_setting(method, key, is_central=is_central)]
    words += [
        f"{key} is no setting of {method}, which runs without it" for key in request.sweep if key not in keys
    ]
    for values in itertools.product(*(request.sweep[key] for key in keys)):
        yield Contender(method, dict(zip(keys, values, strict=True)), is_central)


def _has_setting(method: str, key: str, *, is_central: bool) -> bool:
    """Whether a method asks for what stands at a key; those that no file may have are found out by loading one."""
    section, _, name = key.partition(".")
    name = name.partition(".")[0]
    if section != "algorithm" or name == "start":
        return True
    if is_central:
        return False
    # "auto" has the settings of both methods that it may choose.
    known = traits_of(method)
    return name not in SETTINGS or name in known.settings


def trials(request: Request, found: Sequence[Contender]) -> list[Trial]:
    """Every contender with every seed, problem by problem; all of them are checked before anything runs.

    Raises:
        TopologyError: Settings that no file may have.
        ConfigError: There are several values of mu in a file.
    """
    made = [_trial(request, each, number) for number in range(request.seeds) for each in found]
    order = list(dict.fromkeys(trial.problem for trial in made))
    return sorted(made, key=lambda trial: order.index(trial.problem))


def _trial(request: Request, contender: Contender, number: int) -> Trial:
    method = JUDGE if contender.is_central else contender.method
    topology = request.load(method, contender.settings)
    if topology.problem.is_path:
        raise ConfigError(
            f"{topology.file}: problem.mu has several values, and methods are compared on one: write one there, "
            "or compare each with --sweep problem.mu=0.1,0.05"
        )
    seed, changed = seed_settings(topology, number)
    return Trial(contender, seed, request.load(method, {**contender.settings, **changed}))


def judge_topology(request: Request, trial: Trial) -> Topology:
    """The problem and the start of a trial, with a method that suits any of them."""
    same = trial.contender.problem_and_start
    _, changed = seed_settings(trial.topology, 0)
    return request.load(JUDGE, {**same, **changed})


def seed_settings(topology: Topology, number: int) -> tuple[int, Settings]:
    """The seed that is so many above that of the file, and the setting that says so.

    Raises:
        ConfigError: The file has no seed that could vary.
    """
    data, start = topology.problem.data, topology.algorithm.start
    if data.kind == "synthetic":
        return data.seed + number, {"problem.data.seed": data.seed + number}
    own = getattr(start, "seed", None)
    if own is None:
        if number:
            raise ConfigError(
                f"--seeds: {topology.file} has data files and a start in a file, and so no seed that could vary; "
                "compare with --seeds 1"
            )
        return 0, {}
    return own + number, {"algorithm.start": {**start.model_dump(), "seed": own + number}}


def parse_values(text: str) -> list[Any]:
    """Values between commas, as TOML has them; a bare word is a text."""
    try:
        values: list[Any] = tomllib.loads(f"values = [{text}]")["values"]
    except tomllib.TOMLDecodeError:
        values = [_parse_value(part.strip()) for part in text.split(",")]
    return list({spell(value): value for value in values}.values())


def _parse_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def spell(value: Any) -> str:
    """A value in a short text that tells it from all others."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), default=str)
