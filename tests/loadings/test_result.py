import json
import os
import subprocess
import sys
from zipfile import ZIP_DEFLATED

import numpy as np
import pytest
from claims import little_memory, npy_header, zipped
from frames import Frame

import thanos_peer
from thanos_peer import load_result
from thanos_peer.errors import ConfigError, DataFileError
from thanos_peer.loadings import Findings, Result, write_loadings

X = np.linalg.qr(np.random.default_rng(1).standard_normal((5, 2)))[0] * (1 + 1e-6)
SPARSE = np.where(np.abs(X) > 0.3, X, 0.0)
SAMPLES = np.random.default_rng(2).standard_normal((7, 5))
ALL = Findings(
    features=tuple("abcde"),
    mean=np.arange(5.0),
    scale=np.arange(1.0, 6.0),
    explained_variance_ratio=np.array([0.4, 0.2]),
    common=2 * X,
)


@pytest.fixture
def run(tmp_path):
    """A run directory with the results of peers 0 and 10, and facts of the latter."""
    (tmp_path / "peers").mkdir()
    write_loadings(tmp_path / "peers" / "00.npz", X, X, SPARSE, Findings())
    write_loadings(tmp_path / "peers" / "10.npz", -X, X, -SPARSE, ALL)
    (tmp_path / "peers" / "10.json").write_text(json.dumps({"round": 12}))
    return tmp_path


def test_a_result_has_the_names_of_scikit_learn(run):
    result = load_result(run, peer=10)
    assert np.array_equal(result.components_, -X.T)
    assert np.array_equal(result.sparse_components_, -SPARSE.T)
    assert np.linalg.norm(result.polar_components_ @ result.polar_components_.T - np.eye(2)) < 1e-14
    assert result.mean_.tolist() == [0, 1, 2, 3, 4]
    assert result.scale_.tolist() == [1, 2, 3, 4, 5]
    assert result.feature_names_in_.tolist() == list("abcde")
    assert result.explained_variance_ratio_.tolist() == [0.4, 0.2]
    assert np.array_equal(result.common_components_, 2 * X.T)
    assert result.n_features_in_ == 5
    assert result.facts == {"round": 12}


def test_what_is_not_known_is_none(run):
    result = load_result(run)
    unknown = (result.mean_, result.scale_, result.feature_names_in_, result.explained_variance_ratio_)
    assert (*unknown, result.common_components_) == (None,) * 5
    assert result.facts == {}


def test_a_result_is_found_by_directory_by_peer_and_by_file(run):
    assert np.array_equal(load_result(str(run)).components_, X.T)
    assert np.array_equal(load_result(run, peer=0).components_, X.T)
    assert np.array_equal(load_result(run / "peers" / "10.npz").components_, -X.T)


def test_transform_subtracts_divides_and_multiplies(run):
    prepared = (SAMPLES - np.arange(5)) / np.arange(1, 6)
    result = load_result(run, peer=10)
    assert np.allclose(result.transform(SAMPLES), prepared @ -X, rtol=0, atol=1e-14)
    assert np.allclose(result.transform(SAMPLES, "sparse"), prepared @ -SPARSE, rtol=0, atol=1e-14)
    assert np.allclose(result.transform(SAMPLES, "polar"), prepared @ -X / (1 + 1e-6), rtol=0, atol=1e-13)
    assert np.allclose(load_result(run).transform(SAMPLES), SAMPLES @ X, rtol=0, atol=1e-14)


@pytest.mark.parametrize("shape", [(7, 4), (5,), (1, 7, 5)])
def test_transform_refuses_other_features(run, shape):
    with pytest.raises(DataFileError, match=r"must be \(samples, 5\)"):
        load_result(run).transform(np.zeros(shape))


def test_transform_compares_the_columns_of_a_data_frame(run):
    result = load_result(run, peer=10)
    assert np.array_equal(result.transform(Frame(SAMPLES, list("abcde"))), result.transform(SAMPLES))
    assert np.array_equal(result.transform(Frame(SAMPLES, range(5))), result.transform(SAMPLES))  # no names
    assert np.array_equal(load_result(run).transform(Frame(SAMPLES, list("vwxyz"))), SAMPLES @ X)  # nor here
    with pytest.raises(DataFileError, match="samples has the same features in another order: column 2 is 'c'"):
        result.transform(Frame(SAMPLES, list("acbde")))
    with pytest.raises(DataFileError, match="must be 'e', as in the result"):
        result.transform(Frame(SAMPLES, list("abcdx")))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_transform_refuses_what_is_not_finite(run, value):
    samples = SAMPLES.copy()
    samples[3, 1] = value
    with pytest.raises(
        DataFileError, match=rf"samples has {value} in row 3, column 1; all entries must be finite"
    ):
        load_result(run, peer=10).transform(samples)
    with pytest.raises(DataFileError, match=r"in row 3, column 1 'b'; all entries"):
        load_result(run, peer=10).transform(Frame(samples, list("abcde")))


@pytest.mark.parametrize("samples", [[["a"] * 5], [[1.0] * 5, [2.0]], [[None] * 5]])
def test_transform_refuses_what_is_no_table_of_numbers(run, samples):
    with pytest.raises(DataFileError, match="samples "):
        load_result(run).transform(samples)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"sparse": SPARSE}, "it holds no X"),
        ({"X": X}, "it holds no sparse"),
        ({"X": X[0], "sparse": SPARSE}, r"X is of type float64 and shape \(2,\)"),
        ({"X": X, "sparse": SPARSE.T}, r"sparse is of type float64 and shape \(2, 5\)"),
        ({"X": X.astype("f4"), "sparse": SPARSE}, "X is of type float32"),
        ({"X": X * np.nan, "sparse": SPARSE}, "X is not finite"),
        ({"X": X, "sparse": SPARSE, "features": np.arange(5)}, "features must be 5 strings"),
        ({"X": X, "sparse": SPARSE, "features": np.array(["a"])}, "features must be 5 strings"),
        ({"X": X, "sparse": SPARSE, "mean": np.zeros(4)}, r"mean is of type float64 and shape \(4,\)"),
        ({"X": X, "sparse": SPARSE, "common": X.T}, r"common is of type float64 and shape \(2, 5\)"),
        ({"X": X, "sparse": SPARSE, "scale": np.zeros(5)}, "scale must be positive"),
    ],
)
def test_a_file_that_is_no_result_is_refused_with_the_reason(tmp_path, arrays, message):
    np.savez(tmp_path / "0.npz", **arrays)
    with pytest.raises(DataFileError, match=f"0.npz is no result of a peer: {message}"):
        load_result(tmp_path / "0.npz")


@pytest.mark.parametrize("content", [b"", b"nothing", b"PK\x03\x04"])
def test_a_damaged_file_is_refused(tmp_path, content):
    (tmp_path / "0.npz").write_bytes(content)
    with pytest.raises(DataFileError, match=r"0\.npz is not a plain numeric \.npz file"):
        load_result(tmp_path / "0.npz")


def test_a_result_that_is_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "0.npz")
    with pytest.raises(DataFileError, match=r"0\.npz cannot be read: it is a pipe, not a regular file"):
        load_result(tmp_path / "0.npz")


def test_pickles_are_never_loaded(tmp_path):
    np.savez(tmp_path / "0.npz", X=np.array([print], dtype=object), sparse=SPARSE)
    with pytest.raises(DataFileError, match="it holds Python objects"):
        load_result(tmp_path / "0.npz")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (zipped(X=npy_header(10**6, 10**6)), "it claims an array of 8,000,000,000,000 bytes, and cannot hold it"),
        (zipped(X=npy_header(5, 2, descr=())), "its header makes no sense"),
        (zipped(X=npy_header(5, 2)), "it ends early"),
        (zipped(X=npy_header(-2, -2) + bytes(32)), "can only specify one unknown dimension"),
        (zipped(ZIP_DEFLATED, X=npy_header(10**6, 4) + bytes(32 * 10**6)), "and is not compressed"),
        (zipped(**{f"X{i}": npy_header(1) + bytes(8) for i in range(33)}), "has at most 32 arrays"),
    ],
    ids=["header", "type", "short", "negative", "bomb", "many"],
)
def test_no_header_is_believed_and_nothing_is_unpacked(tmp_path, content, message):
    (tmp_path / "0.npz").write_bytes(content)
    with little_memory(), pytest.raises(DataFileError, match=message):
        load_result(tmp_path / "0.npz")


def test_a_result_that_is_not_there_is_named(run, tmp_path):
    with pytest.raises(DataFileError, match=r"gone\.npz cannot be read: No such file"):
        load_result(run / "peers" / "gone.npz")
    with pytest.raises(ConfigError, match="holds no result of peer 3; there are 00 to 10"):
        load_result(run, peer=3)
    with pytest.raises(ConfigError, match="leave out the peer"):
        load_result(run / "peers" / "00.npz", peer=3)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"empty/peers holds no result$"):
        load_result(tmp_path / "empty")


def test_importing_the_package_stays_light():
    code = "import sys, thanos_peer; print('numpy' in sys.modules); print(thanos_peer.load_result.__name__)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "False\nload_result\n"
    assert thanos_peer.Result is Result
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = thanos_peer.nothing
