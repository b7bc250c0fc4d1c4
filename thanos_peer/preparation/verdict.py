"""What the agents have come to, and what it is worth."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from thanos_peer.algorithm.faults import ROUNDING, parts_fault, range_fault
from thanos_peer.algorithm.measures import adjusted, certificate, judged, weakest_component
from thanos_peer.algorithm.methods import METHODS
from thanos_peer.algorithm.mixing import BLOW_UP
from thanos_peer.algorithm.objectives import SparsePCA
from thanos_peer.algorithm.pooling import Pooled, Sum
from thanos_peer.algorithm.solving import nearest_point
from thanos_peer.algorithm.stiefel import infeasibility, norm, orthonormal_basis, polar, sym
from thanos_peer.algorithm.units import scale, unit_of
from thanos_peer.algorithm.zeros import sparse_point
from thanos_peer.block import Matrix
from thanos_peer.errors import DataFileError
from thanos_peer.phases import Found, Phase
from thanos_peer.preparation.choice import choice_of
from thanos_peer.preparation.own import NOTHING_LEFT, Own, known, weight_of
from thanos_peer.rules import regularizer_of
from thanos_peer.topology.sections import FileData

# What the word of phase consensus has the norms of.
POINTS = ("the norm of X", "the norm of the sparse X")


class Verdict:
    """Phase `consensus`, where the method leaves each agent its own X, and phase `verdict`."""

    def __init__(self, own: Own) -> None:
        self._own = own

    @property
    def _is_mixed(self) -> bool:
        """Whether each agent has its own X, off the manifold by a little."""
        return METHODS[self._own.topology.method].mixes

    def phases(self) -> list[Phase]:
        """Those that the topology needs."""
        problem = self._own.topology.problem
        if not (isinstance(problem.data, FileData) or problem.is_path):
            return []
        (n, p), phases = self._own.shape, list[Phase]()
        if self._is_mixed:
            phases.append(self._own.sum("consensus", n * p, 2 * n * p, self._consensus_sum, self._find_consensus))
        each = n * p + p + 2 + (0 if self._own.is_pca else n * p)
        count = problem.weight_count * each
        phases.append(
            self._own.sum("verdict", count, count + problem.is_path, self._verdict_sum, self._find_verdict)
        )
        return phases

    def _consensus_sum(self, found: Found) -> Pooled:
        """X; the root says which of its entries are zero, and moves the rest to the manifold."""
        n, p = self._own.shape

        def decide(sums: Matrix) -> Matrix:
            mean = sums / self._own.d
            Z = np.where(known(found.sparse) == 0, 0.0, mean.reshape(n, p))
            sparse = sparse_point(Z)
            return np.concatenate([mean, (Z if sparse is None else sparse).ravel()])

        def fault(word: Matrix) -> str | None:
            norms, most = norm(word.reshape(-1, n, p)).tolist(), BLOW_UP * np.sqrt(p)
            faults = (range_fault(name, each, 0.0, most) for name, each in zip(POINTS, norms, strict=False))
            return next((each for each in faults if each), None)

        return Sum(
            lambda: known(found.X).ravel(),
            decide,
            sum_fault=lambda sums: fault(sums / self._own.d),
            word_fault=fault,
        )

    def _find_consensus(self, found: Found, word: Matrix) -> Found:
        common, sparse = word.reshape(2, *self._own.shape)
        return replace(found, common=common, sparse=sparse)

    def _verdict_sum(self, found: Found) -> Pooled:
        """The numbers of the answer; or of each answer of a path, of which the root says which is the result."""
        if not self._own.topology.problem.is_path:
            return Sum(
                lambda: self._numbers(found),
                sum_fault=lambda sums: self._verdict_fault(found, sums),
                word_fault=lambda word: self._verdict_fault(found, word),
            )
        answers = self._answers(found)

        def fault(sums: Matrix) -> str | None:
            parts = zip(answers, np.split(sums, len(answers)), strict=True)
            return next((wrong for one, part in parts if (wrong := self._verdict_fault(one, part))), None)

        def choice_fault(word: Matrix) -> str | None:
            choice = choice_of(self._own.topology, found)
            return choice.fault(float(word[-1]), self._explained(answers, word[:-1]))

        def decide(sums: Matrix) -> Matrix:
            chosen = choice_of(self._own.topology, found).of(self._explained(answers, sums))
            return np.append(sums, float(chosen))

        return Sum(
            lambda: np.concatenate([self._numbers(one) for one in answers]),
            decide,
            sum_fault=fault,
            word_fault=lambda word: fault(word[:-1]) or choice_fault(word),
        )

    def _answers(self, found: Found) -> list[Found]:
        """What is known of each answer of a path, as if it were the result."""
        return [
            replace(found, X=(X := nearest_point(Z)), common=X, sparse=Z, chosen=np.array(float(j)))
            for j, Z in enumerate(known(found.path))
        ]

    @staticmethod
    def _explained(answers: Sequence[Found], sums: Matrix) -> Matrix:
        """The share that the sparse components of each answer explain."""
        worth = np.split(sums, len(answers))
        return np.array([part[-1] / part[-2] for part in worth])

    def _numbers(self, found: Found) -> Matrix:
        """The gradient of f_i at the answer; f_i at the common X or, of PCA, what each of its columns captures.

        Of PCA also ||A_i||_F^2, and what the sparse X captures; of another f its gradient at the start.
        """
        f, nearest = self._own.objective(found), self._nearest(found)
        worth = np.zeros(self._own.shape[1] + 2)
        if isinstance(f, SparsePCA):
            worth[:-2] = np.diag(f.captured(nearest))
            worth[-2:] = f.variance(), np.trace(f.captured(orthonormal_basis(known(found.sparse))))
        else:
            worth[0] = f.value(nearest)
            worth = np.concatenate([worth, f.gradient(self._own.start(found)).ravel()])
        return np.concatenate([f.gradient(self._answer(found)).ravel(), worth])

    def _verdict_fault(self, found: Found, sums: Matrix) -> str | None:
        """Of PCA: ||A||_F^2 is known or at least this agent's own, and nothing captures more."""
        if not self._own.is_pca:
            return None
        G, captured, (total, by_sparse) = np.split(sums, [-self._own.shape[1] - 2, -2])
        least, most = self._own.pca(found).variance(), np.inf
        if found.total is not None:
            least = most = self._own.in_units(found, found.total) or 0.0
        return (
            range_fault("||A||_F^2", total, least, most)
            or parts_fault("what the columns capture", captured, total)
            or range_fault("what the sparse columns capture", by_sparse, -ROUNDING * total, total)
            or range_fault("the largest entry of the gradient", float(np.abs(G).max()), 0.0, total)
        )

    def _nearest(self, found: Found) -> Matrix:
        """The common X on the manifold: as it is where the method keeps it there."""
        return polar(known(found.common)) if self._is_mixed else known(found.common)

    def _answer(self, found: Found) -> Matrix:
        """What is certified."""
        return judged(known(found.sparse), self._nearest(found))

    def _find_verdict(self, found: Found, word: Matrix) -> Found:
        if not self._own.topology.problem.is_path:
            return self._judged(found, word)
        answers, chosen = self._answers(found), int(word[-1])
        parts = np.split(word[:-1], len(answers))
        judged_ones = [self._judged(one, part) for one, part in zip(answers, parts, strict=True)]
        table = [self._row(one, part) for one, part in zip(judged_ones, parts, strict=True)]
        starts = np.abs(known(found.marks)[chosen])
        return replace(judged_ones[chosen], table=np.array(table), starts=starts)

    def _row(self, found: Found, sums: Matrix) -> Matrix:
        """Of one answer, the columns of `Found.table`."""
        n, p = self._own.shape
        X, G = self._answer(found), sums[: n * p].reshape(n, p)
        known_of_it = (found.residual, found.weakest, found.objective, found.sparse_explained)
        return np.concatenate([list(map(known, known_of_it)), adjusted(-X.T @ G) / sums[-2]])

    def _judged(self, found: Found, sums: Matrix) -> Found:
        n, p = self._own.shape
        G, worth = sums[: n * p].reshape(n, p), sums[n * p :]
        mu = weight_of(self._own.topology, found)
        nearest, answer = self._nearest(found), self._answer(found)
        whole = regularizer_of(self._own.topology, mu=mu)
        size = self._size(found, answer, G, worth)
        residual = certificate(answer, G, whole, size, is_strict=answer is found.sparse).relative
        # The sparse answer is reported as well, and must not be called converged if it is off the manifold.
        if answer is not found.sparse:
            residual = max(residual, float(infeasibility(known(found.sparse))))
        found = replace(found, residual=np.asarray(residual))
        f = worth[0]
        if self._own.is_pca:
            captured, total, by_sparse = worth[:-2], worth[-2], worth[-1]
            if not total > 0:
                raise DataFileError(NOTHING_LEFT)
            weakest = weakest_component(answer, G, mu, scale(size, whole, n, p))
            f, found = -captured.sum() / 2, replace(found, weakest=np.asarray(weakest))
            found = replace(found, explained=captured / total, sparse_explained=by_sparse / total)
        return replace(found, objective=np.asarray(f + whole.value(nearest)))

    def _size(self, found: Found, answer: Matrix, G: Matrix, worth: Matrix) -> float:
        """What the residual is relative to, but for a steep regularizer."""
        size = self._own.in_units(found, found.size)
        if not self._own.is_pca:
            first = worth[self._own.shape[1] + 2 :].reshape(self._own.shape)
            return unit_of(float(norm(first)), G)
        # No phase has found ||A||_2^2: as much of it as X captures stands for it.
        if size is None:
            return float(np.linalg.eigvalsh(sym(-answer.T @ G))[-1])
        return size
