"""Dual PCA with a Huber loss: the directions in which the data has no extent, however wild some samples are.

Most samples lie near a subspace, the others anywhere. PCA minimises squares and follows the others. Dual PCA looks
for orthonormal B, (n, p), with

    f_i(B) = the mean over agent i's samples of h(||B'x||),    h(t) = t^2 / (2 delta) up to t = delta,
                                                               h(t) = t - delta / 2   beyond,

which grows like the distance from the subspace, not its square. The columns of B are the normals of the subspace.

`python examples/dual_pca.py` writes the samples of `dual_pca_data/` anew.
"""

from pathlib import Path

import numpy as np

FEATURES, NORMALS, PEERS = 6, 2, 4
INLIERS, OUTLIERS = 36, 12  # per peer


class HuberDualPCA:
    """What `dual_pca.toml` names.

    Args:
        samples: Of this peer, a row each, (m, n).
        delta: Up to which distance the loss is quadratic; an option in the topology file.
    """

    def __init__(self, samples: np.ndarray, delta: float = 0.1) -> None:
        if delta <= 0:
            raise ValueError(f"delta must be positive, not {delta}")
        self._samples, self._delta = samples, delta

    def value(self, X: np.ndarray) -> float:
        """f_i, where X stands for B."""
        distances = np.linalg.norm(self._samples @ X, axis=1)
        quadratic = distances**2 / (2 * self._delta)
        return np.where(distances <= self._delta, quadratic, distances - self._delta / 2).mean()

    def gradient(self, X: np.ndarray) -> np.ndarray:
        """The mean of x x'B / max(delta, ||B'x||)."""
        projected = self._samples @ X
        weights = 1 / np.maximum(np.linalg.norm(projected, axis=1, keepdims=True), self._delta)
        return self._samples.T @ (weights * projected) / len(self._samples)

    def lipschitz(self) -> float:
        """A bound for method "proximal": no second derivative of h exceeds 1 / delta."""
        return np.linalg.norm(self._samples, 2) ** 2 / (len(self._samples) * self._delta)


def planted_normals() -> np.ndarray:
    """The normals of the subspace that the samples are made from, (FEATURES, NORMALS)."""
    return np.linalg.qr(np.random.default_rng(5).standard_normal((FEATURES, NORMALS)))[0]


def make_samples(peer: int) -> np.ndarray:
    """Samples near the subspace, and a quarter of them far off to one side."""
    rng, normals = np.random.default_rng([5, peer]), planted_normals()
    free = rng.standard_normal((INLIERS, FEATURES))
    inliers = free - free @ normals @ normals.T + 0.01 * rng.standard_normal((INLIERS, FEATURES))
    outliers = 3 * rng.standard_normal((OUTLIERS, FEATURES)) + 4 * normals[:, 0]
    return rng.permutation(np.vstack([inliers, outliers])).round(4)


def main() -> None:
    """Write the samples of all peers."""
    header = ",".join(f"feature_{column}" for column in range(FEATURES))
    for peer in range(PEERS):
        path = Path(__file__).with_name("dual_pca_data") / f"{peer}.csv"
        np.savetxt(path, make_samples(peer), fmt="%.4f", delimiter=",", header=header, comments="")


if __name__ == "__main__":
    main()
