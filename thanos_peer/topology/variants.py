"""The same file with another method: what concerns the method alone is left to its defaults."""

from collections.abc import MutableMapping
from typing import Any

from thanos_peer.algorithm.methods import MIXING, SUMMING

OF_ONE_METHOD = ("beta", "step", "smoothing", "restarts", "mixings", "max_rounds", "tolerance")
OF_THANOS: dict[str, Any] = {
    "beta": "auto",
    "step": {"rule": "bb", "first": "auto"},
    "smoothing": {"rule": "decreasing"},
    "max_rounds": 3000,
    "tolerance": 1e-4,
}


def settings_of(method: str) -> dict[str, Any]:
    """What a method is told where nothing else is said: what it would leave open."""
    known = (MIXING | SUMMING).get(method)
    settings = () if known is None else known.settings
    return {
        key: value
        for key, value in OF_THANOS.items()
        if key in settings or ("beta" in settings and key in ("max_rounds", "tolerance"))
    }


def set_method(raw: MutableMapping[str, Any], method: str) -> None:
    """Have a file name another method; the rest of its algorithm stays."""
    algorithm = raw.get("algorithm")
    if not isinstance(algorithm, MutableMapping) or algorithm.get("method", "thanos") == method:
        return
    for key in OF_ONE_METHOD:
        algorithm.pop(key, None)
    algorithm["method"] = method
    algorithm.update(settings_of(method))
