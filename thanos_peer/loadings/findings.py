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
        fill: What a missing value became, by feature, (n,); None where none may be missing.
        missing: How many values of each feature are missing at all peers together, (n,), likewise.
        is_picked: Whether the columns of each file were picked by name.
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
    fill: Matrix | None = None
    missing: Matrix | None = None
    is_picked: bool = False
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
    missing = None if found.count is None or found.present is None else found.count - found.present
    return Findings(
        features=features,
        mean=mean,
        scale=scale,
        overall=_number(found.overall),
        samples=None if found.count is None else int(found.count),
        fill=None if missing is None else found.mean,
        missing=missing,
        is_picked=not topology.columns.are_all,
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
        "missing": None if findings.missing is None else findings.missing.astype(int).tolist(),
        "picks_columns": findings.is_picked,
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


def words_on_loadings(sparse: Matrix, findings: Findings) -> str:
    """What stands out of loadings with exact zeros: how many are left, and what they explain."""
    by_component, share = np.count_nonzero(sparse, axis=0), findings.sparse_explained_variance
    nonzeros, singles = int(by_component.sum()), int((by_component == 1).sum())
    explained = "" if share is None else f", which explain {share:.2%} of the variance"
    on_mu = words_on_mu(nonzeros, singles, *sparse.shape)
    return f"non-zero loadings: {nonzeros} of {sparse.size}{explained}{on_mu}"


def words_on_mu(nonzeros: int, singles: int, n: int, p: int) -> str:
    """What the zeros of (n, p) loadings say of the weight of the regularizer; nothing where it looks right.

    Args:
        nonzeros: How many loadings are left.
        singles: How many components have a single one.
        n: Features.
        p: Components.
    """
    if not nonzeros:
        return ": mu is too large for this sigma"
    if not singles or n == 1:
        return ""
    return f"; {singles} of {p} components with a single feature: mu may be too large"


def _number(found: Matrix | None) -> float | None:
    return None if found is None else float(found)
