import numpy as np
import pytest

from thanos_peer.compare.runs import attempt
from thanos_peer.errors import DataFileError, DivergenceError, PeerFailedError


def fail(error):
    raise error


@pytest.mark.parametrize(
    ("run", "ended", "words"),
    [
        (
            lambda: fail(DivergenceError(agent=3, k=7, eta=0.1, what="too far", advice="try less")),
            "diverged",
            "agent 3 diverged",
        ),
        (lambda: fail(PeerFailedError(agent=3, exit_code=4, log_tail=["too far"])), "diverged", "too far"),
        (lambda: fail(PeerFailedError(agent=3, exit_code=137, log_tail=["x"])), "error", "ended by SIGKILL"),
        (lambda: fail(DataFileError("all samples are too large")), "error", "all samples are too large"),
        (lambda: np.linalg.svd(np.full((3, 2), np.nan)), "diverged", "did not converge"),
    ],
)
def test_a_failure_is_counted_with_the_words_of_its_error(run, ended, words):
    record = attempt(run, "digest")
    assert (record.digest, record.ended) == ("digest", ended)
    assert words in record.words
    assert record.objective is None
