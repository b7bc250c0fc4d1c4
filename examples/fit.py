"""Sparse components of data that lies at five places, beside scikit-learn's PCA of all of it at one place.

Run it with `python examples/fit.py`; it needs scikit-learn.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

import thanos_peer

COMPONENTS = 3


def main() -> None:
    """Print both."""
    data = load_breast_cancer()
    # Five agents in a ring: each speaks to two others only.
    hospitals = np.array_split(data.data, 5)

    standardized = StandardScaler().fit_transform(data.data)
    pca = PCA(COMPONENTS).fit(standardized)
    result = thanos_peer.fit(hospitals, COMPONENTS, mu=0.02, scale=True, feature_names=data.feature_names)

    print("PCA, all data in one place:")
    print("  explained_variance_ratio_", pca.explained_variance_ratio_.round(4))
    print("  non-zero loadings        ", np.count_nonzero(pca.components_, axis=1))
    print(f"thanos_peer.fit, five agents, {result.facts['round']} rounds:")
    print("  explained_variance_ratio_", result.explained_variance_ratio_.round(4))
    print("  non-zero loadings        ", np.count_nonzero(result.sparse_components_, axis=1))
    last = result.sparse_components_[-1]
    largest = [i for i in np.abs(last).argsort()[::-1][:3] if last[i] != 0]
    print("  the last component       ", ", ".join(result.feature_names_in_[largest]))
    scores = result.transform(data.data)
    print("  transform(samples)       ", scores.shape, "in place of", pca.transform(standardized).shape)


if __name__ == "__main__":
    main()
