"""What methods for smooth problems minimise where there is a regularizer: its Moreau envelope takes its place.

The methods are stated for g = 0. With a regularizer they minimise f + the envelope of g with a constant sigma,
which is our addition: they stop at the smoothing error.
"""

from thanos_peer.algorithm.method import Setup, Smooth
from thanos_peer.algorithm.regularizers import Regularizer, Zero, envelope_gradient
from thanos_peer.algorithm.stiefel import norm, proj
from thanos_peer.block import Matrix

# Step of the smoothed methods, in units of 1 / (the largest Lipschitz constant of an agent's gradient).
STEP = 0.25
# What a small gradient is multiplied by before it is compared with the tolerance. The verdict may judge by
# ||A||_2^2 where `size` is a bound, up to 2.24 times that on the shipped files, and by the mean of all X.
SAFETY = 2.5


class Smoothed:
    """An agent's f_i and the envelope of its g_i, or those of all agents, and a step that suits them.

    Args:
        f: The smooth part of the problem.
        g: An agent's share of the regularizer, smoothed with sigma.
        d: How many agents there are.
        size: What gradients are measured by: sum_i ||A_i||_2^2, or ||A||_2^2 of all samples.
        largest: max_i ||A_i||_2^2, where the agents know it. It is at most `size`, which stands in for it: agents
            whose samples are alike then step up to d times less far than they could.
        sigma: The smoothing of g; by default 1/size, and of no effect where g = 0.
        step: Too long a step runs in a circle or diverges; by default 0.25 / (largest + 1/sigma), and
            0.25 / largest where g = 0.
    """

    def __init__(
        self,
        f: Smooth,
        g: Regularizer,
        *,
        d: int,
        size: float,
        largest: float | None = None,
        sigma: float | None = None,
        step: float | None = None,
    ) -> None:
        self.f, self._g, self.d, self.size = f, g, d, size or 1.0
        self._sigma = 1 / self.size if sigma is None else sigma
        curvature = (largest or self.size) + (0.0 if isinstance(g, Zero) else 1 / self._sigma)
        self.step = STEP / curvature if step is None else step

    @classmethod
    def of(cls, setup: Setup) -> "Smoothed":
        """For agents that have found this; `largest.Largest` comes before where its word is to be used."""
        largest = None if setup.agreed is None else float(setup.agreed[0])
        return cls(setup.f, setup.g, d=setup.d, size=setup.size or setup.measure, largest=largest)

    def envelope_gradient(self, X: Matrix) -> Matrix:
        """Of the smoothed g_i alone, (..., n, p)."""
        return envelope_gradient(self._g, X, self._sigma)

    def riemannian_gradient(self, X: Matrix) -> Matrix:
        """At X on the manifold, (..., n, p)."""
        return proj(X, self.f.gradient(X) + self.envelope_gradient(X))

    def relative(self, S: Matrix) -> Matrix:
        """SAFETY d ||S||_F / size, (...): how large a tracker of the mean gradient is."""
        return SAFETY * self.d / self.size * norm(S)

    def answer(self, X: Matrix) -> tuple[Matrix, Matrix]:
        """X, and prox_{sigma,g}(X)."""
        return X, self._g.prox(X, self._sigma)
