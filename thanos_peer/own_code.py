"""Objectives and regularizers of the user's own: named in the topology file, run only where a person allows it.

A topology file may come from anywhere. What it names, MODULE:CLASS, is imported when the person at this host has
said so for this module, and nothing of it before. What the code does wrong then is reported in one line, with its
name.
"""

import importlib
import importlib.util
import math
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from thanos_peer.algorithm.contradictions import gradient_contradiction, prox_contradiction
from thanos_peer.algorithm.mixing import BLOW_UP
from thanos_peer.algorithm.stiefel import norm
from thanos_peer.block import Matrix
from thanos_peer.errors import OwnCodeError
from thanos_peer.samples import samples_digest
from thanos_peer.topology import Topology

# Characters that are shown of an error of the user's code.
LONGEST_CAUSE = 300

# Largest entry: squares of entries, and sums of those, must be finite.
LARGEST = 1e140
# ||X||_F where slopes are measured, in units of that on the manifold: slopes of a convex function rise outwards.
FAR = 2.0
# Step of the prox that measures a slope.
NEAR = 2.0**-10
DIRECTIONS = 16  # for measuring slopes


class OwnObjective:
    """f_i of the user's own class, which is made with this agent's samples, (m, n), and the options.

    Attributes:
        digest: Of the samples.
        count: How many these are.
    """

    def __init__(self, topology: Topology, samples: Matrix) -> None:
        self.digest, self.count = samples_digest(samples), len(samples)
        problem = topology.problem
        assert problem.objective is not None, "asked for where there is one"  # noqa: S101
        self._code = _Code(topology, "problem.objective", problem.objective)
        self._code.make(_read_only(samples), problem.objective_options, needs=("value", "gradient"))
        self._code.refuse("gradient", gradient_contradiction(self, problem.n, problem.p))

    def value(self, X: Matrix) -> float:
        """f(X) for X of (n, p)."""
        return self._code.number("value", X)

    def gradient(self, X: Matrix) -> Matrix:
        """The Euclidean gradient of f at X, (n, p)."""
        return self._code.matrix("gradient", X)

    def lipschitz(self) -> float:
        """A bound of the Lipschitz constant of the gradient, as the class says; 0 if it says nothing."""
        return self._code.size("lipschitz") if self._code.has("lipschitz") else 0.0


class OwnRegularizer:
    """weight * r of the user's own class, which is made with the weight and the options."""

    def __init__(self, code: "_Code") -> None:
        self._code = code
        self._slopes: dict[tuple[int, int], float] = {}

    def value(self, X: Matrix) -> float:
        """g(X) for X of (n, p)."""
        return self._code.number("value", X)

    def prox(self, X: Matrix, sigma: float) -> Matrix:
        """argmin_Y g(Y) + ||Y - X||_F^2 / (2 sigma), (n, p); or the same of each X of a stack."""
        if X.ndim > 2:
            return np.array([self.prox(each, sigma) for each in X])
        return self._code.matrix("prox", X, sigma)

    def lipschitz(self, n: int, p: int) -> float:
        """What the class says; if it says nothing, an estimate: its steepest slope in some directions."""
        if self._code.has("lipschitz"):
            return self._code.number("lipschitz", n, p)
        if (n, p) not in self._slopes:
            self._slopes[n, p] = self._steepest(n, p)
        return self._slopes[n, p]

    def _steepest(self, n: int, p: int) -> float:
        """The largest subgradient that prox tells, at points beyond the manifold and their opposites."""
        half = np.random.default_rng(0).standard_normal((DIRECTIONS // 2, n, p))
        points = FAR * np.sqrt(p) * np.concatenate([half, -half]) / np.tile(norm(half), 2)[:, None, None]
        return float(norm(points - self.prox(points, NEAR)).max()) / NEAR

    @staticmethod
    def of(topology: Topology, weight: float) -> "OwnRegularizer":
        """With a derivative of its prox, if the class has one."""
        problem = topology.problem
        code = _Code(topology, "problem.regularizer", problem.regularizer)
        code.make(weight, problem.regularizer_options, needs=("value", "prox"))
        g = (OwnDifferentiableRegularizer if code.has("prox_derivative") else OwnRegularizer)(code)
        code.refuse("prox", prox_contradiction(g, problem.n, problem.p))
        return g


class OwnDifferentiableRegularizer(OwnRegularizer):
    """One whose class also knows a derivative of its prox."""

    def prox_derivative(self, X: Matrix, sigma: float, V: Matrix) -> Matrix:
        """The derivative of prox at X along V, (n, p)."""
        return self._code.matrix("prox_derivative", X, sigma, V)


def check_allowed(topology: Topology) -> None:
    """Refuse a topology that names code which was not allowed here.

    Raises:
        OwnCodeError: With the module, and the option that would allow it.
    """
    allowed_code(topology)


def allowed_code(topology: Topology) -> tuple[str, ...]:
    """The modules, or their files, that a topology needs, as the person at this host has allowed them.

    Raises:
        OwnCodeError: One of them is not allowed.
    """
    needed = topology.problem.own_code().items()
    return tuple(dict.fromkeys(_find_allowed(topology, key, name) for key, name in needed))


class _Code:
    """One object of a user's class, and calls of it that fail in one line."""

    def __init__(self, topology: Topology, key: str, name: str) -> None:
        self._name, self._shape = name, (topology.problem.n, topology.problem.p)
        module = _import(name, _find_allowed(topology, key, name))
        found: Any = getattr(module, name.partition(":")[2], None)
        if not isinstance(found, type):
            raise OwnCodeError(f"{name}: there is no such class in {module.__file__ or module.__name__}")
        # A class that the module has imported from elsewhere was not allowed.
        if not f"{found.__module__}.".startswith(f"{module.__name__}."):
            raise OwnCodeError(
                f"{name}: this class is defined in {found.__module__}; name it there, and allow that"
            )
        self._class: type[Any] = found

    def make(self, first: Any, options: Mapping[str, Any], *, needs: tuple[str, ...]) -> None:
        self._object = self._guarded(f"{self._name}(...)", lambda: self._class(first, **deepcopy(dict(options))))
        for method in needs:
            self._method(method)

    def refuse(self, method: str, contradiction: str | None) -> None:
        """Refuse a class whose method contradicts another one."""
        if contradiction is not None:
            raise OwnCodeError(f"{self._name}.{method} contradicts {self._name}.value: {contradiction}")

    def has(self, method: str) -> bool:
        """Whether the class has such a method."""
        return callable(getattr(self._object, method, None))

    def _method(self, method: str) -> Callable[..., Any]:
        found = getattr(self._object, method, None)
        if not callable(found):
            raise OwnCodeError(f"{self._name} has no method {method}")
        return found  # type: ignore[no-any-return]

    def number(self, method: str, *arguments: Any) -> float:
        """A finite number."""
        what = f"{self._name}.{method}"
        value: float = self._guarded(what, lambda: float(self._call(method, *arguments)))
        if not math.isfinite(value) and self._is_sound(arguments[0] if arguments else None):
            raise OwnCodeError(f"{what} returned {value}; must be finite")
        return value

    def size(self, method: str) -> float:
        """A number that is not negative, and not too large for squares."""
        value = self.number(method)
        if not 0 <= value < LARGEST:
            raise OwnCodeError(f"{self._name}.{method} returned {value:g}; must be >= 0 and below {LARGEST:.0e}")
        return value

    def matrix(self, method: str, X: Matrix, *arguments: float | Matrix) -> Matrix:
        """A finite matrix of the shape of X."""
        what = f"{self._name}.{method}"
        returned: Matrix = self._guarded(
            what, lambda: np.array(self._call(method, X, *arguments), dtype=np.float64)
        )
        if returned.shape != self._shape:
            raise OwnCodeError(f"{what} returned an array of shape {returned.shape}; must be {self._shape}")
        if not (np.abs(returned) < LARGEST).all() and self._is_sound(X):
            if np.isfinite(returned).all():
                raise OwnCodeError(
                    f"{what} returned numbers of {LARGEST:.0e} or more: divide value, too, by a constant"
                )
            raise OwnCodeError(f"{what} returned numbers that are not finite")
        return returned

    def _call(self, method: str, *arguments: Any) -> Any:
        return self._method(method)(
            *(_read_only(each) if isinstance(each, np.ndarray) else each for each in arguments)
        )

    @staticmethod
    def _is_sound(X: Any) -> bool:
        """Whether it is the code's own doing: where X has blown up, the step is to blame."""
        return not isinstance(X, np.ndarray) or bool(norm(X) <= BLOW_UP * np.sqrt(X.shape[-1]))

    @staticmethod
    def _guarded(what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except OwnCodeError:
            raise
        except (Exception, SystemExit) as error:
            raise OwnCodeError(f"{what} failed: {_in_one_line(error)}") from error


def _find_allowed(topology: Topology, key: str, name: str) -> str:
    """What the person at this host has said of a module: its name, or its file."""
    module = name.partition(":")[0]
    for allowed in topology.allowed_code:
        if allowed == module or (allowed.endswith(".py") and Path(allowed).stem == module):
            return allowed
    raise OwnCodeError(
        f'{topology.file}: {key} = "{name}" is Python code that peers would run; look at it, and allow it '
        f"with --allow-code {module}{_or_file(module)}"
    )


def _or_file(module: str) -> str:
    """The other way to allow a module; not for one inside a package, which is more than its file."""
    return "" if "." in module else f", or --allow-code DIRECTORY/{module}.py for a file that is not installed"


def _import(name: str, allowed: str) -> ModuleType:
    module = name.partition(":")[0]
    try:
        return _load_file(module, Path(allowed)) if allowed.endswith(".py") else importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise OwnCodeError(
                f"{name}: there is no module {error.name} on Python's path; install it{_or_file(module)}"
            ) from error
        raise OwnCodeError(f"{name} cannot be imported: {_in_one_line(error)}") from error
    except (Exception, SystemExit) as error:
        raise OwnCodeError(f"{name} cannot be imported: {_in_one_line(error)}") from error


def _load_file(module: str, path: Path) -> ModuleType:
    """A module from this file, and from no other of the same name."""
    path = path.resolve()
    known = sys.modules.get(module)
    if known is not None and known.__file__ == str(path):
        return known
    spec = importlib.util.spec_from_file_location(module, path)
    assert spec is not None, "a path that ends in .py"  # noqa: S101
    assert spec.loader is not None, "the same"  # noqa: S101
    loaded = importlib.util.module_from_spec(spec)
    # dataclasses and the like look the module up there.
    sys.modules[module] = loaded
    try:
        spec.loader.exec_module(loaded)
    except BaseException:
        del sys.modules[module]
        raise
    return loaded


def _read_only(array: Matrix) -> Matrix:
    """The same numbers, read-only."""
    view = array.view()
    view.flags.writeable = False
    return view


def _in_one_line(error: BaseException) -> str:
    said = " ".join(ascii(str(error))[1:-1].replace("\\n", " ").split())
    return f"{type(error).__name__}: {said[:LONGEST_CAUSE]}"
