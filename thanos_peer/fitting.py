"""All of it in one call: sparse components of samples that lie in several arrays of this process."""

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thanos_peer.algorithm.methods import traits_of
from thanos_peer.algorithm.regularizers import is_smooth
from thanos_peer.errors import ConfigError
from thanos_peer.loadings.findings import facts_of_loadings, found_as_findings
from thanos_peer.loadings.result import Result
from thanos_peer.problem import Instance, assemble
from thanos_peer.samples import (
    Incomplete,
    Moments,
    check_same_features,
    columns_of,
    moments_of_rows,
    named,
    unmasked,
)
from thanos_peer.samples.names import check_names
from thanos_peer.simulate import StackedNetwork
from thanos_peer.topology import families, parse
from thanos_peer.topology.graph import Edge
from thanos_peer.topology.variants import settings_of


def fit(  # noqa: PLR0913 - named, each with its default
    samples: Iterable[ArrayLike],
    n_components: int,
    *,
    regularizer: str = "l1",
    mu: float | Sequence[float] | Mapping[str, int] = 0.1,
    choose: Mapping[str, float] | None = None,
    regularizer_options: Mapping[str, Any] | None = None,
    graph: str | Iterable[Edge] = "ring",
    center: bool = True,
    scale: bool = False,
    missing: Literal["refuse", "mean"] = "refuse",
    max_missing: float | None = None,
    method: str = "auto",
    start: Literal["leading", "destiny", "random"] = "leading",
    seed: int = 1,
    max_rounds: int | None = None,
    tolerance: float | None = None,
    restarts: int = 1,
    feature_names: Sequence[str] | None = None,
) -> Result:
    """Find the sparse components of all samples together, as agents that each hold one of the arrays.

    The agents are those of a network: they talk to their neighbors only. They have the same bits as well if NumPy
    computes with one thread, as it does for peers: set OPENBLAS_NUM_THREADS=1 before it is imported.

    Samples are divided by a norm of all of them together, so that mu means the same for data of any size, however
    it is split: by the 2-norm with the starts "leading" and "destiny", which find it, and by the Frobenius norm
    otherwise, which is larger, so that the same mu weighs more.

    Args:
        samples: An array for each agent, (m_i, n): a row per sample.
        n_components: How many components, p.
        regularizer: "l1" for sparse loadings, "l21" for sparse features, "group-l21" for sparse groups of
            features, "none" for PCA.
        mu: Its weight. Several solve a path in one run: a list of numbers, or {"path": 8} for so many from the
            largest useful one down. With "auto", "gram" and "proximal" only.
        choose: Of a path, which answer is the result: {"nonzeros": 40}, {"per_component": 10}, {"variance": 0.7}
            or {"of_pca": 0.9}, which is the default: the sparsest that explains as much of what plain PCA does.
            `path_` has the table, and `at(mu)` takes another answer.
        regularizer_options: What it needs besides: {"groups": [[0, 1], [4, 5, 6]]} for "group-l21".
        graph: Who is whose neighbor: the name of a family ("ring", "complete", ...), or pairs of agents.
        center: Whether to subtract the mean of all samples.
        scale: Whether to divide each feature by its standard deviation over all samples.
        missing: "refuse" ends with an error where a value is NaN or masked; "mean" takes the mean of its feature
            over all samples instead.
        max_missing: With "mean", the largest share of the values of a feature that may be missing; None for half.
        method: "auto" finds the exact answer, by the Gram matrix ("gram") or by steps ("proximal"), whichever
            sends less; "thanos" is the method of the paper.
        start: "leading" and "destiny" find the leading singular vectors first; "random" starts anywhere.
        seed: Of the start, and of a random graph.
        max_rounds: Stop after this round of the method at the latest; None for 3000 of THANOS, and for as many as
            it takes of the exact methods.
        tolerance: Stop when the residual is not above; None for 1e-4 of THANOS, and 1e-10 of the exact methods.
        restarts: From how many starts to search, the first as `start` says, the others random; the best answer is
            kept. For "auto", "gram" and "proximal" only.
        feature_names: What the features are called; None takes the columns of a data frame.

    Returns:
        The loadings of the first agent; all agree up to the tolerance. `facts` says how the run went, and
        `all_components_` and `all_sparse_components_` have those of all agents.

        `residual`, `has_converged` and `verdict` of `facts` are of `judged_components_`: of `sparse_components_`,
        where its rows are orthonormal, and else of the orthonormal rows nearest to `common_components_`. The exact
        methods leave the same in all of these, and in `components_`. "thanos" and others that mix do not: their
        `components_` are dense, and not what is judged. `objective` is then of the rows nearest to the common
        ones, and `judged_objective` of what is judged.

    Raises:
        ConfigError: Samples or settings cannot be used.
        DivergenceError: A step left the numbers.
    """
    moments = _moments_of(
        samples, feature_names, keeps_rows=traits_of(method).needs_samples, allows_missing=missing == "mean"
    )
    problem: dict[str, Any] = {"regularizer": regularizer, "regularizer_options": dict(regularizer_options or {})}
    problem |= {} if is_smooth(regularizer) else {"mu": mu}
    problem |= {} if choose is None else {"choose": dict(choose)}
    wanted = {"max_rounds": max_rounds, "tolerance": tolerance}
    algorithm: dict[str, Any] = {"method": method, "start": {"kind": start, "seed": seed}}
    algorithm |= settings_of(method)
    algorithm |= {key: value for key, value in wanted.items() if value is not None}
    algorithm |= {} if restarts == 1 else {"restarts": restarts}
    data = {"kind": "files", "center": center, "scale": scale, "overall": "auto", "missing": missing}
    data |= {} if max_missing is None else {"max_missing": max_missing}
    raw = {
        "name": "fit",
        "edges": _edges_of(graph, len(moments), seed),
        "problem": problem | {"n": moments[0].columns, "p": n_components, "data": data},
        "algorithm": algorithm,
        "peers": [{"id": i, "address": f"ipc://@{i}"} for i in range(len(moments))],
    }
    topology = parse(_plain(raw), file=Path("fit"), may_lack_data=True, reads_data=False)
    instance = assemble(topology, moments)
    network = StackedNetwork(instance)
    while not network.is_done:
        network.advance()
    return _result_of(instance, network, moments[0].features)


def _plain(value: Any) -> Any:
    """The same with numbers of Python where numpy, or another package, has numbers of its own."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if hasattr(value, "__index__") and not isinstance(value, bool):
        return index(value)
    return value


def _moments_of(
    samples: Iterable[ArrayLike], names: Sequence[str] | None, *, keeps_rows: bool, allows_missing: bool
) -> list[Moments | Incomplete]:
    is_list = (
        isinstance(samples, Iterable) and not isinstance(samples, Mapping) and not hasattr(samples, "__array__")
    )
    samples = list(samples) if is_list else []
    if not samples:
        raise ConfigError("samples must be a list of arrays, one for each agent")
    features = _features_of(samples[0], names)
    n: int | None = None if features is None else len(features)
    moments: list[Moments | Incomplete] = []
    for i, each in enumerate(samples):
        with named(f"samples[{i}]"):
            check_same_features(columns_of(each), columns_of(samples[0]), as_in="samples[0]")
            rows = _as_array(unmasked(each, allows_missing=allows_missing))
            moments.append(
                moments_of_rows(rows, features, n=n, keeps_rows=keeps_rows, allows_missing=allows_missing)
            )
        n = moments[0].columns
    return moments


def _features_of(first: ArrayLike, names: Sequence[str] | None) -> tuple[str, ...] | None:
    """The names of the features: those given, or else those of the first samples."""
    with named("samples[0]" if names is None else "feature_names"):
        found = columns_of(first) if names is None else [str(name) for name in names]
        return None if found is None else check_names(found)


def _as_array(samples: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(samples)
    except ValueError as error:
        raise ConfigError(f"samples cannot be made an array: {error}") from error


def _edges_of(graph: str | Iterable[Edge], d: int, seed: int) -> list[list[int]]:
    if isinstance(graph, str):
        if graph not in families.FAMILIES:
            raise ConfigError(
                f'graph = "{graph}": must be one of {", ".join(families.FAMILIES)}, or pairs of agents'
            )
        graph = families.make(graph, d, seed=seed)
    try:
        return [[index(i), index(j)] for i, j in graph]
    except (TypeError, ValueError) as error:
        raise ConfigError("graph must be the name of a family, or pairs of agents: [(0, 1), (1, 2)]") from error


def _result_of(instance: Instance, network: StackedNetwork, features: tuple[str, ...] | None) -> Result:
    topology = instance.topology
    X, sparse, findings = network.X[0], network.sparse[0], found_as_findings(topology, network.found, features)
    rounds = network.rounds_by_phase
    facts = {
        "method": topology.method,
        "round": network.k,
        "has_converged": network.has_converged,
        "tolerance": topology.tolerance,
        "verdict": network.convergence.words,
        "rounds_by_phase": dict(rounds),
        "phases_cut_short": list(network.phases_cut_short),
        "messages": sum(rounds.values()) * topology.messages_per_round,
        "payload_bytes": network.payload_sent,
    }
    result = Result(
        components_=X.T,
        sparse_components_=sparse.T,
        mean_=findings.mean,
        scale_=findings.scale,
        fill_=findings.fill,
        feature_names_in_=None if features is None else np.array(features),
        explained_variance_ratio_=findings.explained_variance_ratio,
        common_components_=None if findings.common is None else findings.common.T,
        all_components_=network.X.swapaxes(1, 2),
        path_mu_=None if findings.path is None else np.array([row.mu for row in findings.account.path]),
        path_components_=np.empty((0, *X.T.shape)) if findings.path is None else findings.path.swapaxes(1, 2),
        all_sparse_components_=network.sparse.swapaxes(1, 2),
        facts=facts | facts_of_loadings(X, sparse, findings),
    )
    value = (
        instance.divided_by(network.overall)
        .chosen(network.account.chosen)
        .whole.value(result.judged_components_.T)
    )
    result.facts["judged_objective"] = float(value)
    return result
