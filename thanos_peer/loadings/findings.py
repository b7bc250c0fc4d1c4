"""What is known of loadings beside their numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from thanos_peer.agent import Agent
from thanos_peer.algorithm.stiefel import infeasibility, norm
from thanos_peer.block import Matrix
from thanos_peer.preparation import applied
from thanos_peer.topology import Topology


@dataclass(frozen=True, eq=False)
class Findings:
    """What a peer knows beside its loadings; None where it does not know.

    Attributes:
        features: What the rows of X are called.
        mean: What was subtracted from the samples, (n,).
        scale: What they were divided by then, (n,).
        overall: What they were all divided by in the end.
        samples: How many there are at all peers together.
        common: The mean of all X, (n, p), which the numbers below belong to.
        objective: The value of the whole problem.
        explained_variance_ratio: The share of the variance of all samples that each component explains, (p,).
        sparse_explained_variance: The share that the sparse loadings explain, all components together.
        epsilon: The stationarity that is certified for the mean of all X.
        epsilon_estimate: The same, as far as an agent can tell from its own X and tracker.
    """

    features: tuple[str, ...] | None = None
    mean: Matrix | None = None
    scale: Matrix | None = None
    overall: float | None = None
    samples: int | None = None
    common: Matrix | None = None
    objective: float | None = None
    explained_variance_ratio: Matrix | None = None
    sparse_explained_variance: float | None = None
    epsilon: float | None = None
    epsilon_estimate: float | None = None


def findings_of(topology: Topology, agent: Agent, features: tuple[str, ...] | None) -> Findings:
    """What an agent knows of its result, in the phase that minimises or after it."""
    found, state = agent.findings, agent.main_state
    assert state is not None, "there is a result"  # noqa: S101
    mean, scale = applied(topology, found)
    return Findings(
        features=features,
        mean=mean,
        scale=scale,
        overall=agent.overall,
        samples=count_in(found),
        common=found.get("common"),
        objective=_number(found.get("objective")),
        explained_variance_ratio=found.get("explained"),
        sparse_explained_variance=_number(found.get("sparse_explained")),
        epsilon=_number(found.get("epsilon")),
        epsilon_estimate=estimated_epsilon(topology.d, state.X, state.D, agent.sparse()),
    )


def count_in(found: Mapping[str, Matrix]) -> int | None:
    """How many samples there are at all peers together, where the network has counted them."""
    return int(found["count"]) if "count" in found else None


def estimated_epsilon(d: int, X: Matrix, D: Matrix, sparse: Matrix) -> float:
    """The stationarity of one agent's X if its tracker were the mean of all, which it comes to be."""
    return max(d * float(norm(D)), float(norm(X - sparse)), float(infeasibility(X)))


def facts_of_loadings(X: Matrix, sparse: Matrix, findings: Findings) -> dict[str, Any]:
    """What there is to say of loadings in numbers."""
    shares = findings.explained_variance_ratio
    return {
        "samples": findings.samples,
        "overall": findings.overall,
        "objective": findings.objective,
        "explained_variance": None if shares is None else float(shares.sum()),
        "explained_variance_ratio": None if shares is None else shares.tolist(),
        "sparse_explained_variance": findings.sparse_explained_variance,
        "epsilon": findings.epsilon,
        "epsilon_estimate": findings.epsilon_estimate,
        "feasibility": float(infeasibility(X)),
        "nonzeros": np.count_nonzero(sparse, axis=0).tolist(),
        "nonzero_rows": int(np.count_nonzero(sparse.any(axis=1))),
    }


def _number(found: Matrix | None) -> float | None:
    return None if found is None else float(found)
