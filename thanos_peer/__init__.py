"""Decentralized optimization over the Stiefel manifold with non-smooth regularizers (THANOS)."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thanos_peer.fitting import fit
    from thanos_peer.loadings.result import Result, load_result

__version__ = "0.1.0"
__all__ = ["Result", "__version__", "fit", "load_result"]

_HOMES = {
    "Result": "thanos_peer.loadings.result",
    "fit": "thanos_peer.fitting",
    "load_result": "thanos_peer.loadings.result",
}


def __getattr__(name: str) -> Any:
    """What is offered here is loaded when it is asked for: importing the package stays light."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
