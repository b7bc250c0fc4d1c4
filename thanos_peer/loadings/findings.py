"""What is known of loadings beside their numbers."""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from thanos_peer.agent import Agent
from thanos_peer.algorithm.stiefel import infeasibility
from thanos_peer.block import Matrix
from thanos_peer.phases import Found
from thanos_peer.preparation import Account, account_of, applied
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
        common: The mean of all X, (n, p), which the numbers below belong to, but for those of the sparse loadings.
        objective: The value of the whole problem.
        explained_variance_ratio: The share of the variance of all samples that each component explains, (p,).
        sparse_explained_variance: The share that the sparse loadings explain, all components together.
        residual: What is certified of the sparse loadings: how far from stationary, relative to ||A||_2^2.
        path: Of a path the sparse loadings for each mu, from the largest on, (k, n, p).
        account: What helps to choose mu and p.
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
    residual: float | None = None
    path: Matrix | None = None
    account: Account = field(default_factory=Account)


def findings_of(topology: Topology, agent: Agent, features: tuple[str, ...] | None) -> Findings:
    """What an agent knows of its result, in the phase that minimises or after it."""
    return found_as_findings(topology, agent.found, features)


def found_as_findings(topology: Topology, found: Found, features: tuple[str, ...] | None) -> Findings:
    """The same, from what it has found."""
    mean, scale = applied(topology, found)
    return Findings(
        features=features,
        mean=mean,
        scale=scale,
        overall=_number(found.overall),
        samples=None if found.count is None else int(found.count),
        common=found.common,
        objective=_number(found.objective),
        explained_variance_ratio=found.explained,
        sparse_explained_variance=_number(found.sparse_explained),
        residual=_number(found.residual),
        path=None if found.table is None else found.path,
        account=account_of(topology, found),
    )


def facts_of_loadings(X: Matrix, sparse: Matrix, findings: Findings) -> dict[str, Any]:
    """What there is to say of loadings in numbers."""
    shares, account = findings.explained_variance_ratio, findings.account
    path = {"mu": account.mu, "choice": account.choice, "path": [asdict(row) for row in account.path]}
    return (path if account.path else {}) | {
        "samples": findings.samples,
        "overall": findings.overall,
        "objective": findings.objective,
        "explained_variance": None if shares is None else float(shares.sum()),
        "explained_variance_ratio": None if shares is None else shares.tolist(),
        "sparse_explained_variance": findings.sparse_explained_variance,
        "residual": findings.residual,
        "plain_pca_explained_variance_ratio": list(account.plain_pca) or None,
        "feasibility": float(infeasibility(X)),
        "nonzeros": np.count_nonzero(sparse, axis=0).tolist(),
        "nonzero_rows": int(np.count_nonzero(sparse.any(axis=1))),
    }


def _number(found: Matrix | None) -> float | None:
    return None if found is None else float(found)
