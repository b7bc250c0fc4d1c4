"""No regularizer at all."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from thanos_peer.algorithm.regularizers.regularizer import NamedRegularizer
from thanos_peer.block import Matrix


@dataclass(frozen=True)
class Zero(NamedRegularizer):
    """No regularizer: g = 0, whatever the weight. THANOS with it is DESTINY."""

    weight: float = 0.0
    words: ClassVar[str] = "zero, for PCA"
    is_zero: ClassVar[bool] = True
    has_typical_sums: ClassVar[bool] = True

    def value(self, X: Matrix) -> float:  # noqa: ARG002
        """Zero everywhere."""
        return 0.0

    def prox(self, X: Matrix, sigma: float) -> Matrix:  # noqa: ARG002
        """X itself."""
        return X

    def prox_derivative(self, X: Matrix, sigma: float, V: Matrix) -> Matrix:  # noqa: ARG002
        """V itself."""
        return V

    def nearest_subgradient(self, X: Matrix, S: Matrix) -> Matrix:  # noqa: ARG002
        """Zero, the only one."""
        return np.zeros_like(X)

    def lipschitz(self, n: int, p: int) -> float:  # noqa: ARG002
        """Zero."""
        return 0.0
