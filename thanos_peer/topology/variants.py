"""The settings of methods: presets, the same file with another method and its defaults, or with other settings."""

from collections.abc import Mapping, MutableMapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from thanos_peer.algorithm.methods import CHOICES, SETTINGS, UNNAMED, traits_of
from thanos_peer.errors import ConfigError
from thanos_peer.topology.model import Topology

OF_ONE_METHOD = ("preset", *SETTINGS, "max_rounds", "tolerance")
OF_OWN_OBJECTIVES: dict[str, Any] = {"start": {"kind": "random", "seed": 1}}  # there are no leading vectors


def spell_out(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A file with what its preset, its objective and its list of features stand for; its own keys go before.

    With mistakes it stays.
    """
    algorithm, problem = raw.get("algorithm"), raw.get("problem")
    if isinstance(problem, Mapping) and "n" not in problem and isinstance(problem.get("features"), list):
        raw = {**raw, "problem": {**problem, "n": len(problem["features"])}}
    if not isinstance(algorithm, Mapping):
        return dict(raw)
    is_own = isinstance(problem, Mapping) and problem.get("objective") is not None
    own = deepcopy(OF_OWN_OBJECTIVES) if is_own else {}
    return {**raw, "algorithm": {**_by_preset(algorithm), **own, **algorithm}}


def _by_preset(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    """What the preset of a section stands for, if it names one of its method."""
    method, preset = algorithm.get("method", UNNAMED), algorithm.get("preset")
    if not (isinstance(method, str) and isinstance(preset, str)):
        return {}
    return deepcopy(dict(traits_of(method).presets.get(preset, {})))


def settings_of(method: str) -> dict[str, Any]:
    """The settings of a method that the file leaves open."""
    return deepcopy(dict(traits_of(method).first_settings))


def set_method(raw: MutableMapping[str, Any], method: str) -> None:
    """Have a file name another method; the rest of its algorithm stays. Methods by sums share their settings."""
    algorithm = raw.get("algorithm")
    if not isinstance(algorithm, MutableMapping):
        return
    named = algorithm.get("method", UNNAMED)
    if named != method and not _share_settings(named, method):
        for key in OF_ONE_METHOD:
            algorithm.pop(key, None)
        algorithm.update(settings_of(method))
    algorithm["method"] = method


def _share_settings(*choices: str) -> bool:
    """Whether all of them are methods that sum, or such a one is to be chosen."""
    return all(choice in CHOICES and not traits_of(choice).mixes for choice in choices)


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
    if not _share_settings(topology.method, method):
        change |= {"max_rounds": None, "tolerance": None, "restarts": 1} | settings_of(method)
    kept = topology.algorithm.model_dump(exclude_defaults=True)
    algorithm = type(topology.algorithm).model_validate(kept | change)
    return replace(topology, content=topology.content.model_copy(update={"algorithm": algorithm}))
