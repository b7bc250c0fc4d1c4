"""The settings of methods: presets, the same file with another method and its defaults, or with other settings."""

from collections.abc import Mapping, MutableMapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from thanos_peer.algorithm.methods import METHODS, SETTINGS, SUMMING
from thanos_peer.errors import ConfigError
from thanos_peer.topology.model import Topology
from thanos_peer.topology.sections import Problem

OF_ONE_METHOD = ("preset", *SETTINGS, "max_rounds", "tolerance")
OF_THANOS: dict[str, Any] = {
    "beta": "auto",
    "step": {"rule": "bb", "first": "auto"},
    "smoothing": {"rule": "decreasing"},
    "max_rounds": 3000,
    "tolerance": 1e-4,
}

OF_PRESETS: dict[str, dict[str, Any]] = {  # all of them of THANOS
    "paper": {
        "beta": 1.0,
        "step": {"rule": "bb", "first": 0.1},
        "smoothing": {"rule": "decreasing", "sigma0": 1.0, "exponent": 1 / 3},
    },
}


OF_OWN_OBJECTIVES: dict[str, Any] = {"start": {"kind": "random", "seed": 1}}  # there are no leading vectors


def spell_out(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A file with what its preset and its objective stand for; its own keys go before. With mistakes it stays."""
    algorithm, problem = raw.get("algorithm"), raw.get("problem")
    if not isinstance(algorithm, Mapping):
        return dict(raw)
    is_own = isinstance(problem, Mapping) and problem.get("objective") is not None
    own = deepcopy(OF_OWN_OBJECTIVES) if is_own else {}
    known = _by_preset(algorithm) if algorithm.get("method", "thanos") == "thanos" else {}
    return {**raw, "algorithm": {**known, **own, **algorithm}}


def _by_preset(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    """What the preset of a section stands for, if it names one."""
    preset = algorithm.get("preset")
    return deepcopy(OF_PRESETS.get(preset, {})) if isinstance(preset, str) else {}


def settings_of(method: str) -> dict[str, Any]:
    """What a method is told where nothing else is said: what it would leave open."""
    known = METHODS.get(method)
    settings = () if known is None else known.settings
    return {
        key: value
        for key, value in OF_THANOS.items()
        if key in settings or ("beta" in settings and key in ("max_rounds", "tolerance"))
    }


def set_method(raw: MutableMapping[str, Any], method: str) -> None:
    """Have a file name another method; the rest of its algorithm stays. Methods by sums share their settings."""
    algorithm = raw.get("algorithm")
    if not isinstance(algorithm, MutableMapping) or (named := algorithm.get("method", "thanos")) == method:
        return
    if not {named, method} <= {"auto", *SUMMING}:
        for key in OF_ONE_METHOD:
            algorithm.pop(key, None)
        algorithm.update(settings_of(method))
    algorithm["method"] = method


def change_settings(raw: MutableMapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Have a file say something else at some dotted keys; what it then says is checked as any file is.

    Raises:
        ConfigError: A key leads through something that is no section.
    """
    for key, value in settings.items():
        *sections, last = key.split(".")
        place: Any = raw
        for name in sections:
            if isinstance(place, MutableMapping) and name not in place:
                place[name] = _by_preset(place).get(name, {})
            place = place[name] if isinstance(place, MutableMapping) else None
        if not isinstance(place, MutableMapping):
            raise ConfigError(f"{key}: there is no such section in a topology file; a key is like algorithm.beta")
        place[last] = value


def with_method(topology: Topology, method: str) -> Topology:
    """The same topology with another method, as far as its phases go; methods by sums share their settings."""
    if topology.method == method:
        return topology
    change: dict[str, Any] = {"method": method}
    if not (method in ("auto", *SUMMING) and topology.method in SUMMING):
        change |= {"max_rounds": None, "tolerance": None, "restarts": 1} | settings_of(method)
    algorithm = topology.algorithm.model_copy(update=change)
    return replace(topology, content=topology.content.model_copy(update={"algorithm": algorithm}))


def suits(problem: Problem, method: str) -> bool:
    """Whether a method is for such problems, of some size."""
    known = METHODS[method]
    is_other = known.is_for_pca and problem.objective is not None
    return not (is_other or (known.is_for_smooth and not problem.is_smooth))
