"""What is said of loadings in words."""

import numpy as np
import pytest

from thanos_peer.loadings.findings import Findings, words_on_loadings

LARGE = "; {} of 2 components with a single feature: mu may be too large"


@pytest.mark.parametrize(
    ("columns", "share", "said"),
    [
        ([[1, 1, 0], [0, 1, 1]], 0.8391, "non-zero loadings: 4 of 6, which explain 83.91% of the variance"),
        ([[1, 1, 0], [0, 1, 1]], None, "non-zero loadings: 4 of 6"),
        ([[1, 0, 0], [0, 1, 1]], None, "non-zero loadings: 3 of 6" + LARGE.format(1)),
        (
            [[1, 0, 0], [0, 0, 1]],
            0.2,
            "non-zero loadings: 2 of 6, which explain 20.00% of the variance" + LARGE.format(2),
        ),
        ([[0, 0, 0], [0, 0, 0]], None, "non-zero loadings: 0 of 6: mu is too large for this sigma"),
        ([[1]], None, "non-zero loadings: 1 of 1"),
    ],
)
def test_how_sparse_loadings_are_is_said_with_what_they_explain_and_a_word_on_mu(columns, share, said):
    assert words_on_loadings(np.array(columns, float).T, Findings(sparse_explained_variance=share)) == said
