"""A peer's result, read back from its run directory."""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thanos_peer.algorithm.measures import judged
from thanos_peer.algorithm.solving import nearest_point
from thanos_peer.algorithm.stiefel import polar
from thanos_peer.block import AgentId, Matrix
from thanos_peer.errors import ConfigError, DataFileError
from thanos_peer.json_files import DamagedJSONError, read_json
from thanos_peer.samples import Columns, check_same_features, columns_of, named, unmasked
from thanos_peer.samples.npy import load_arrays
from thanos_peer.samples.table import checked_samples

# A value of mu may be named as tables print it.
NEAR_ENOUGH = 1e-3

Kind: TypeAlias = Literal["dense", "polar", "sparse"]


@dataclass(frozen=True, eq=False)
class Result:
    """Loadings that can be applied to samples. The names are those of scikit-learn.

    Attributes:
        components_: The loadings, (p, n): the paper's X, transposed.
        sparse_components_: The sparse loadings, with exact zeros, (p, n).
        mean_: What to subtract from samples, (n,); None for nothing.
        scale_: What to divide them by then, (n,); None for nothing.
        fill_: What a missing value becomes before that, (n,); None where none may be missing.
        feature_names_in_: What the features are called, (n,); None where no name is known.
        explained_variance_ratio_: The share of all variance that each component explains, (p,), if known.
        common_components_: The mean of all peers' loadings, (p, n), if known: what objective and variances belong
            to. What `residual`, `has_converged` and `verdict` of the facts are of is `judged_components_`.
        all_components_: The loadings of every agent, (d, p, n), where all ran in this process.
        all_sparse_components_: The sparse loadings of every agent, (d, p, n), likewise.
        path_mu_: Of a path over mu its values, from the largest on, (k,); None where there is one alone.
        path_components_: The sparse loadings for each, (k, p, n); nothing without a path.
        facts: What else is known of the run, as in the .json beside the result.
    """

    components_: Matrix
    sparse_components_: Matrix
    mean_: Matrix | None = None
    scale_: Matrix | None = None
    fill_: Matrix | None = None
    feature_names_in_: NDArray[np.str_] | None = None
    explained_variance_ratio_: Matrix | None = None
    common_components_: Matrix | None = None
    all_components_: Matrix | None = None
    all_sparse_components_: Matrix | None = None
    path_mu_: Matrix | None = None
    path_components_: Matrix = field(default_factory=lambda: np.empty((0, 0, 0)))
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def n_features_in_(self) -> int:
        """How many features there are."""
        return int(self.components_.shape[1])

    @property
    def polar_components_(self) -> Matrix:
        """The loadings moved to the nearest ones that are orthonormal to the last digits, (p, n)."""
        return polar(self.components_.T).T

    @property
    def judged_components_(self) -> Matrix:
        """What residual and verdict are of, (p, n): the sparse loadings if they are orthonormal.

        Else it is the common loadings, moved to the nearest orthonormal ones. Methods that sum leave the same in
        `components_`; those that mix, such as "thanos", do not.
        """
        common = self.components_ if self.common_components_ is None else self.common_components_
        return judged(self.sparse_components_.T, polar(common.T)).T

    @property
    def path_(self) -> list[dict[str, Any]]:
        """The table of a path, a row per mu: see docs/topology.md; empty where there is none."""
        rows: list[dict[str, Any]] = self.facts.get("path") or []
        return rows

    def at(self, mu: float) -> "Result":
        """The same with the answer of another mu of the path.

        Raises:
            ConfigError: There is no such answer.
        """
        known = [] if self.path_mu_ is None else self.path_mu_.tolist()
        near = [j for j, each in enumerate(known) if math.isclose(each, mu, rel_tol=NEAR_ENOUGH)]
        if len(near) != 1:
            there = f"there are {', '.join(f'{each:g}' for each in known)}" if known else "it has one answer alone"
            raise ConfigError(f"the result has no answer for mu = {mu:g}: {there}")
        components = self.path_components_[near[0]]
        dense = nearest_point(components.T).T
        return replace(
            self,
            components_=dense,
            sparse_components_=components,
            common_components_=dense,
            explained_variance_ratio_=None,
            all_components_=None,
            all_sparse_components_=None,
            facts={name: self.facts[name] for name in ("picks_columns",) if name in self.facts},
        )

    @property
    def columns(self) -> Columns:
        """Which columns of a file of samples are its features: picked by name, if the run did so."""
        names = self.feature_names_in_
        is_picked = bool(self.facts.get("picks_columns")) and names is not None
        return Columns(tuple(names.tolist()) if is_picked and names is not None else None)

    def components(self, kind: Kind = "dense") -> Matrix:
        """The loadings as they are, moved to the nearest orthonormal ones, or sparse; (p, n)."""
        if kind == "polar":
            return self.polar_components_
        return self.sparse_components_ if kind == "sparse" else self.components_

    def transform(self, samples: ArrayLike, kind: Kind = "dense") -> Matrix:
        """The components of samples, an array or a data frame: (m, n) to (m, p).

        A missing value, NaN or masked, becomes the mean of its feature in the run, if it did so there.

        Raises:
            DataFileError: They have another number of features, other names or another order of them, or entries
                that are no finite numbers.
        """
        with named("samples"):
            samples = self._checked_samples(samples)
        if self.fill_ is not None:
            samples = np.where(np.isnan(samples), self.fill_, samples)
        if self.mean_ is not None:
            samples = samples - self.mean_
        if self.scale_ is not None:
            samples = samples / self.scale_
        scores: Matrix = samples @ self.components(kind).T
        return scores

    def _checked_samples(self, samples: ArrayLike) -> Matrix:
        names, known = columns_of(samples), self.feature_names_in_
        try:
            rows = np.asarray(unmasked(samples, allows_missing=self.fill_ is not None), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataFileError(f"cannot be made an array of numbers: {error}") from error
        if rows.ndim != 2 or rows.shape[1] != self.n_features_in_:
            raise DataFileError(f"of shape {rows.shape}; must be (samples, {self.n_features_in_})")
        check_same_features(names, None if known is None else known.tolist(), as_in="the result")
        return checked_samples(rows, first=0, features=names, allows_missing=self.fill_ is not None)


def load_result(path: str | Path, *, peer: AgentId | None = None) -> Result:
    """Read a result, never with pickle.

    Args:
        path: A run directory, or the .npz file of a peer.
        peer: Whose result of a run directory; None for the first there is. All agree up to the tolerance.

    Raises:
        ConfigError: There is none.
        DataFileError: It is damaged, or none of ours.
    """
    file = find_result(Path(path), peer)
    with named(str(file)):
        return _result_of(load_arrays(file), _facts_beside(file))


def find_result(path: Path, peer: AgentId | None) -> Path:
    """The .npz file of a peer in a run directory, or the file itself."""
    if not path.is_dir():
        if peer is not None:
            raise ConfigError(f"{path} is the file of one peer; leave out the peer, or name the run directory")
        return path
    found = sorted(file for file in (path / "peers").glob("*.npz") if file.stem.isdecimal())
    chosen = [file for file in found if peer is None or int(file.stem) == peer]
    if not chosen:
        whose = (
            "" if peer is None or not found else f" of peer {peer}; there are {found[0].stem} to {found[-1].stem}"
        )
        raise ConfigError(f"{path}/peers holds no result{whose}")
    return chosen[0]


def _result_of(arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> Result:
    X = _checked(arrays, "X", ndim=2)
    n, p = X.shape
    sparse = _checked(arrays, "sparse", shape=(n, p))
    features = arrays.get("features")
    if features is not None and (features.shape != (n,) or features.dtype.kind != "U"):
        raise DataFileError(f"is no result of a peer: features must be {n} strings")
    path = _checked(arrays, "path", ndim=3) if "path" in arrays else np.empty((0, n, p))
    if path.shape[1:] != (n, p):
        raise DataFileError(f"is no result of a peer: path is of shape {path.shape}")
    known = {"mean": (n,), "scale": (n,), "fill": (n,), "common": (n, p), "explained_variance_ratio": (p,)}
    numbers = {name: _checked(arrays, name, shape=shape) for name, shape in known.items() if name in arrays}
    if "scale" in numbers and not (numbers["scale"] > 0).all():
        raise DataFileError("is no result of a peer: scale must be positive")
    return Result(
        components_=X.T,
        sparse_components_=sparse.T,
        mean_=numbers.get("mean"),
        scale_=numbers.get("scale"),
        fill_=numbers.get("fill"),
        feature_names_in_=features,
        explained_variance_ratio_=numbers.get("explained_variance_ratio"),
        common_components_=numbers["common"].T if "common" in numbers else None,
        path_mu_=_checked(arrays, "path_mu", shape=(len(path),)) if len(path) else None,
        path_components_=path.swapaxes(1, 2),
        facts=facts,
    )


def _checked(
    arrays: dict[str, NDArray[Any]], name: str, *, ndim: int | None = None, shape: tuple[int, ...] | None = None
) -> Matrix:
    if name not in arrays:
        raise DataFileError(f"is no result of a peer: it holds no {name}")
    array = arrays[name]
    if array.dtype != np.float64 or ndim not in (None, array.ndim) or shape not in (None, array.shape):
        raise DataFileError(f"is no result of a peer: {name} is of type {array.dtype} and shape {array.shape}")
    if not np.isfinite(array).all():
        raise DataFileError(f"is no result of a peer: {name} is not finite")
    return array


def _facts_beside(file: Path) -> dict[str, Any]:
    """What the .json beside a result says; nothing where there is none, or it is damaged."""
    try:
        return read_json(file.with_suffix(".json"), dict[str, Any])
    except (OSError, DamagedJSONError):
        return {}
