import csv

import numpy as np
import pytest

from thanos_peer.errors import DataFileError
from thanos_peer.loadings import Findings, write_loadings
from thanos_peer.loadings.files import read_facts, read_matrices, whole_file

X = np.linalg.qr(np.random.default_rng(1).standard_normal((5, 2)))[0] * (1 + 1e-6)
SPARSE = np.where(np.abs(X) > 0.3, X, 0.0)


def write(path, **findings):
    write_loadings(path, X, -X, SPARSE, Findings(**findings))
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def test_x_d_and_the_sparse_loadings_are_kept_to_the_last_bit(tmp_path):
    arrays = write(tmp_path / "03.npz")
    assert {name: arrays[name].tobytes() for name in ("X", "D", "sparse")} == {
        "X": X.tobytes(),
        "D": (-X).tobytes(),
        "sparse": SPARSE.tobytes(),
    }
    assert sorted(arrays) == ["D", "X", "polar", "sparse", "support"]


def test_a_method_that_tracks_nothing_leaves_no_d(tmp_path):
    write_loadings(tmp_path / "03.npz", X, None, SPARSE, Findings())
    with np.load(tmp_path / "03.npz", allow_pickle=False) as arrays:
        assert sorted(arrays) == ["X", "polar", "sparse", "support"]
    assert [None if each is None else each.tobytes() for each in read_matrices(tmp_path / "03.npz", (5, 2))] == [
        X.tobytes(),
        SPARSE.tobytes(),
        None,
    ]


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
@pytest.mark.parametrize("which", ["X", "sparse", "D"])
def test_numbers_that_no_run_ends_with_are_refused(tmp_path, which, value):
    matrices = {"X": X.copy(), "sparse": SPARSE.copy(), "D": -X}
    matrices[which][3, 1] = value
    np.savez(tmp_path / "03.npz", **matrices)
    with pytest.raises(DataFileError, match=r"03\.npz.* X, sparse and D must be finite"):
        read_matrices(tmp_path / "03.npz", (5, 2))


FACTS = b'{"round": 3, "eta": 0.1, "seconds": 1.0, "is_done": true, "has_converged": null}'


@pytest.mark.parametrize(
    "facts",
    [
        b"[]",
        b"null",
        FACTS.replace(b"0.1", b"NaN"),
        FACTS.replace(b"1.0", b"Infinity"),
        FACTS.replace(b"3", b"-3"),
        FACTS.replace(b"3", b"1" + b"0" * 30),
        FACTS.replace(b"null", b"[" * 100_000),
    ],
)
def test_facts_that_no_peer_states_are_refused(tmp_path, facts):
    (tmp_path / "03.json").write_bytes(FACTS)
    assert read_facts(tmp_path / "03.json").round == 3
    (tmp_path / "03.json").write_bytes(facts)
    with pytest.raises(DataFileError, match=r"03\.json is not what a peer says of its run: .+"):
        read_facts(tmp_path / "03.json")


def test_the_polar_step_makes_the_columns_orthonormal_and_moves_x_as_little_as_can_be(tmp_path):
    nearest = write(tmp_path / "03.npz")["polar"]
    assert np.linalg.norm(nearest.T @ nearest - np.eye(2)) < 1e-14
    assert np.linalg.norm(X.T @ X - np.eye(2)) > 1e-6
    assert np.allclose(nearest, X / (1 + 1e-6), rtol=0, atol=1e-14)


def test_the_support_is_where_the_sparse_loadings_are_not_zero(tmp_path):
    support = write(tmp_path / "03.npz")["support"]
    assert support.dtype == bool
    assert 0 < support.sum() < support.size
    assert np.array_equal(support, np.abs(X) > 0.3)


@pytest.mark.parametrize("features", [None, ("a", "b, quoted", 'c "too"', "d\u00e9", "e")])
def test_the_csv_has_a_row_per_feature_and_reads_back_to_the_same_bits(tmp_path, features):
    write(tmp_path / "03.npz", features=features)
    with (tmp_path / "03.csv").open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["feature", "x_1", "x_2", "s_1", "s_2"]
    assert [row[0] for row in rows] == list(features or "01234")
    assert np.array([row[1:] for row in rows], dtype=float).tobytes() == np.hstack([X, SPARSE]).tobytes()
    assert "0.0" in {cell for row in rows for cell in row}


def test_what_is_known_of_the_samples_is_kept(tmp_path):
    known = {"mean": np.arange(5.0), "scale": np.ones(5), "explained_variance_ratio": np.array([0.4, 0.2])}
    arrays = write(tmp_path / "03.npz", features=tuple("abcde"), **known)
    assert arrays["features"].tolist() == list("abcde")
    assert all(np.array_equal(arrays[name], value) for name, value in known.items())


def test_a_file_that_could_not_be_finished_is_not_there_and_the_old_one_still_is(tmp_path):
    (tmp_path / "x").write_text("old")

    def fail():
        with whole_file(tmp_path / "x") as file:
            file.write(b"half")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_text() == "old"
