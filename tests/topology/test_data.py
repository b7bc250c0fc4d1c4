import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from networks import make_topology, raw_topology
from topology.graphs import GONE, put

from thanos_peer.errors import ConfigError, DataFileError, TopologyError
from thanos_peer.samples import read_rows
from thanos_peer.topology import parse
from thanos_peer.topology.data import samples_of, synthetic_samples
from thanos_peer.topology.sections import SyntheticData

TABLE = np.arange(12.0).reshape(3, 4)


def saved(table, **options):
    buffer = io.BytesIO()
    np.save(buffer, table, **options)
    return buffer.getvalue()


def zipped(**tables):
    buffer = io.BytesIO()
    np.savez(buffer, **tables)
    return buffer.getvalue()


def with_header(text):
    header = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(96)


def raw_with_files(directory, d=3):
    """A sound file with data = "0.npy" and so on, and the files."""
    raw = put(raw_topology("path", d, n=4), "problem.data", {"kind": "files"})
    put(raw, "algorithm.start", {"kind": "random", "seed": 1})
    for i in range(d):
        put(raw, f"peers[{i}].data", f"{i}.npy")
        np.save(directory / f"{i}.npy", TABLE + i)
    return raw


def mistakes_of(raw, directory, **options):
    with pytest.raises(TopologyError) as caught:
        parse(raw, file=directory / "net.toml", **options)
    first, *lines = str(caught.value).split("\n")
    assert first.startswith(f"{directory / 'net.toml'}: {f'{len(lines)} mistakes' if lines else ''}")
    return [line.removeprefix("  ") for line in lines] or [first.removeprefix(f"{directory / 'net.toml'}: ")]


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "i2", "u1", ">f8"])
def test_any_real_table_is_read_as_float64(tmp_path, dtype):
    (tmp_path / "x.npy").write_bytes(saved(TABLE.astype(dtype)))
    table = read_rows(tmp_path / "x.npy", n=4)
    assert table.dtype == np.float64
    assert np.array_equal(table, TABLE)


def test_the_files_of_all_peers_are_read_in_order_of_id(tmp_path):
    raw = raw_with_files(tmp_path)
    raw["peers"].reverse()
    samples = samples_of(parse(raw, file=tmp_path / "net.toml"), range(3))
    assert [table.tolist() for table in samples] == [(TABLE + i).tolist() for i in range(3)]


def test_the_samples_of_one_peer_need_only_its_own_file(tmp_path):
    raw = raw_with_files(tmp_path)
    (tmp_path / "0.npy").unlink()
    (samples,) = samples_of(parse(raw, file=tmp_path / "net.toml", data_of={2}), [2])
    assert np.array_equal(samples, TABLE + 2)


def test_one_peer_makes_the_same_synthetic_samples_as_all_together():
    topology = make_topology(d=4, samples=18)
    together = samples_of(topology, range(4))
    assert [samples_of(topology, [i])[0].tobytes() for i in range(4)] == [part.tobytes() for part in together]


@pytest.mark.parametrize(
    ("content", "allowed"),
    [
        (saved(TABLE[:, :3]), "has shape (3, 3); must be (samples, 4): a row per sample, n = 4 features"),
        (saved(TABLE.T), "has shape (4, 3); must be (samples, 4)"),
        (saved(TABLE[0]), "has shape (4,); must be (samples, 4)"),
        (saved(TABLE[None]), "has shape (1, 3, 4); must be (samples, 4)"),
        (saved(np.float64(3)), "has shape (); must be (samples, 4)"),
        (saved(TABLE[:0]), "has shape (0, 4); must be (samples, 4)"),
        (saved(np.where(TABLE == 6, np.nan, TABLE)), "has nan in row 1, column 2; all entries must be finite"),
        (saved(np.where(TABLE == 11, -np.inf, TABLE)), "has -inf in row 2, column 3; all entries must be finite"),
        (saved(TABLE.astype(complex)), "must hold one table of real numbers"),
        (saved(TABLE.astype(str)), "must hold one table of real numbers"),
        (saved(TABLE > 3), "must hold one table of real numbers"),
        (saved(TABLE.astype("m8[s]")), "must hold one table of real numbers"),
        (saved(TABLE.astype(object), allow_pickle=True), "is not a plain numeric .npy file: "),
        (zipped(a=TABLE), "is not a plain numeric .npy file: "),
        (b"", "is not a plain numeric .npy file: "),
        (b"1.0, 2.0, 3.0, 4.0\n", "is not a plain numeric .npy file: "),
        (saved(TABLE)[:4], "is not a plain numeric .npy file: "),
        (saved(TABLE)[:40], "is not a plain numeric .npy file: "),
        (saved(TABLE)[:-1], "is not a plain numeric .npy file: "),
        (b"PK\x03\x04 and no more", "is not a plain numeric .npy file: "),
        (with_header("{'descr': '<f8', 'fortran_order': (False, 'shape': (3, 4)}"), "is not a plain numeric .npy"),
        (with_header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({10**12}, 4)}}"), ""),
        (with_header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({10**30}, 4)}}"), ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_unusable_data_file_is_named_with_what_is_wrong_in_it(tmp_path, content, allowed):
    raw = raw_with_files(tmp_path)
    (tmp_path / "1.npy").write_bytes(content)
    (line,) = mistakes_of(raw, tmp_path)
    assert line.startswith(f"peers[1].data = '1.npy': {tmp_path / '1.npy'} of peer 1 {allowed}")


@given(flips=st.dictionaries(st.integers(0, 127), st.integers(0, 255), min_size=1, max_size=4))
def test_a_damaged_header_is_a_data_file_error_or_a_table(tmp_path_factory, flips):
    path = tmp_path_factory.getbasetemp() / "damaged.npy"
    content = bytearray(saved(TABLE))
    for place, byte in flips.items():
        content[place] = byte
    path.write_bytes(content)
    try:
        assert read_rows(path, n=4).shape[1] == 4
    except DataFileError as error:
        assert str(error)  # noqa: PT017


def test_a_number_too_large_for_float64_is_refused(tmp_path):
    if np.finfo(np.longdouble).max == np.finfo(np.float64).max:
        pytest.skip("long double is double here")
    (tmp_path / "x.npy").write_bytes(saved(np.full((3, 4), np.finfo(np.longdouble).max)))
    with pytest.raises(DataFileError, match="row 0, column 0"):
        read_rows(tmp_path / "x.npy", n=4)


def test_a_data_file_that_is_not_there_is_named(tmp_path):
    raw = put(raw_with_files(tmp_path), "peers[2].data", "sub/gone.npy")
    (line,) = mistakes_of(raw, tmp_path)
    assert line.startswith(f"peers[2].data = 'sub/gone.npy': {tmp_path}/sub/gone.npy of peer 2 ")
    assert line.endswith("cannot be read: No such file or directory")


def test_a_directory_is_no_data_file(tmp_path):
    (tmp_path / "folder.npy").mkdir()
    (line,) = mistakes_of(put(raw_with_files(tmp_path), "peers[2].data", "folder.npy"), tmp_path)
    assert line.endswith("cannot be read: Is a directory")


def test_a_data_file_ends_in_one_of_some_ways(tmp_path):
    (tmp_path / "2.xlsx").write_text("1,2,3,4\n")
    (line,) = mistakes_of(put(raw_with_files(tmp_path), "peers[2].data", "2.xlsx"), tmp_path)
    assert line.endswith("2.xlsx of peer 2 must be a file that ends in .npy, .npz, .csv, .tsv, .txt, .parquet")


def test_peers_may_have_files_of_different_formats_and_lengths(tmp_path):
    raw = put(put(raw_with_files(tmp_path), "peers[1].data", "1.csv"), "peers[2].data", "2.npz")
    (tmp_path / "1.csv").write_text("a,b,c,d\n1,2,3,4\n")
    np.savez(tmp_path / "2.npz", TABLE[:2])
    samples = samples_of(parse(raw, file=tmp_path / "net.toml"), range(3))
    assert [table.tolist() for table in samples] == [TABLE.tolist(), [[1, 2, 3, 4]], TABLE[:2].tolist()]


def test_a_peers_own_file_is_used_instead_of_the_named_one_and_is_no_part_of_the_digest(tmp_path):
    raw, own = raw_with_files(tmp_path), tmp_path / "elsewhere.csv"
    digest = parse(raw, file=tmp_path / "net.toml").digest
    own.write_text("1,2,3,5\n")
    (tmp_path / "1.npy").unlink()
    topology = parse(raw, file=tmp_path / "net.toml", data_of={1}, own_data={1: own})
    assert samples_of(topology, [1])[0].tolist() == [[1, 2, 3, 5]]
    assert topology.digest == digest
    own.write_text("1,2,4\n")
    (line,) = mistakes_of(raw, tmp_path, data_of={1}, own_data={1: own})
    assert line.startswith("--data = '")
    assert line.endswith(f": {own} of peer 1 has 3 columns; must have n = 4, one per feature")


def test_features_must_be_the_same_in_all_files_that_are_read(tmp_path):
    raw = raw_with_files(tmp_path)
    for i, header in enumerate(["a,b,c,d", "a,c,b,d", "a,b,c,e"]):
        put(raw, f"peers[{i}].data", f"{i}.csv")
        (tmp_path / f"{i}.csv").write_text(f"{header}\n1,2,3,4\n")
    first, second = mistakes_of(raw, tmp_path)
    expected = f"as in {tmp_path}/0.csv of peer 0"
    assert first.endswith(
        f"1.csv of peer 1 has the same features in another order: column 2 is 'c'; must be 'b', {expected}"
    )
    assert second.endswith(f"2.csv of peer 2 has other features: column 4 is 'e'; must be 'd', {expected}")
    assert parse(raw, file=tmp_path / "net.toml", data_of={1}).d == 3  # alone, nothing to compare with


def test_an_own_file_does_not_go_with_synthetic_data(tmp_path):
    (line,) = mistakes_of(raw_topology(), tmp_path, data_of={1}, own_data={1: tmp_path / "x.npy"})
    assert line == f"--data = '{tmp_path / 'x.npy'}': leave it out, or set problem.data.kind = \"files\""


def test_all_unusable_data_files_are_reported_together(tmp_path):
    raw = raw_with_files(tmp_path)
    for i in (0, 2):
        (tmp_path / f"{i}.npy").unlink()
    assert [line.split(" = ")[0] for line in mistakes_of(raw, tmp_path)] == ["peers[0].data", "peers[2].data"]


def test_only_the_named_peers_files_are_read(tmp_path):
    raw = raw_with_files(tmp_path)
    (tmp_path / "0.npy").unlink()
    file = tmp_path / "net.toml"
    assert parse(raw, file=file, data_of={1, 2}).d == 3
    assert parse(raw, file=file, data_of=()).d == 3
    for data_of in ({0}, {0, 1}, None):
        assert len(mistakes_of(raw, tmp_path, data_of=data_of)) == 1


def test_a_data_file_is_asked_for_by_id_not_by_place_in_the_file(tmp_path):
    raw = raw_with_files(tmp_path)
    raw["peers"].reverse()
    (tmp_path / "0.npy").unlink()
    assert parse(raw, file=tmp_path / "net.toml", data_of={2}).d == 3
    (line,) = mistakes_of(raw, tmp_path, data_of={0})
    assert line.startswith("peers[2].data = '0.npy'")


def test_a_data_file_is_needed_at_every_peer_that_is_asked_for(tmp_path):
    raw, file = put(raw_with_files(tmp_path), "peers[1].data", GONE), tmp_path / "net.toml"
    for data_of in (None, {1}, {0, 1}):
        (line,) = mistakes_of(raw, tmp_path, data_of=data_of)
        assert line == "peers[1].data: is missing: name this peer's data file, or start the peer with --data FILE"
    assert parse(raw, file=file, data_of={0, 2}).d == 3
    assert parse(raw, file=file, data_of={1}, own_data={1: tmp_path / "2.npy"}).d == 3
    topology = parse(raw, file=file, may_lack_data=True)
    with pytest.raises(ConfigError, match="peer 1 has no data file; set `data` there, or `start --data FILE`"):
        samples_of(topology, [1])


def test_a_file_that_changes_between_check_and_use_is_named(tmp_path):
    topology = parse(raw_with_files(tmp_path), file=tmp_path / "net.toml")
    (tmp_path / "1.npy").unlink()
    with pytest.raises(DataFileError) as caught:
        samples_of(topology, [1])
    assert str(caught.value) == f"{tmp_path / '1.npy'} of peer 1 cannot be read: No such file or directory"


def test_synthetic_data_takes_no_data_file(tmp_path):
    (line,) = mistakes_of(put(raw_topology(), "peers[1].data", "1.npy"), tmp_path)
    assert line == "peers[1].data = '1.npy': leave it out, or set problem.data.kind = \"files\""


def test_an_empty_path_is_refused(tmp_path):
    (line,) = mistakes_of(put(raw_with_files(tmp_path), "peers[1].data", ""), tmp_path)
    assert line.startswith("peers[1].data = '': ")


@given(
    seed=st.integers(0, 2**63 - 1),
    d=st.integers(1, 9),
    more=st.integers(0, 30),
    n=st.integers(1, 6),
    scale=st.sampled_from(["unit", "raw"]),
)
def test_synthetic_samples_are_dealt_out_evenly_and_again_the_same(seed, d, more, n, scale):
    data = SyntheticData(kind="synthetic", seed=seed, samples=d + more, scale=scale)
    parts = synthetic_samples(data, n=n, d=d)
    sizes = [len(part) for part in parts]
    assert len(parts) == d
    assert sum(sizes) == d + more
    assert max(sizes) - min(sizes) <= 1
    assert {part.shape[1] for part in parts} == {n}
    again = synthetic_samples(data, n=n, d=d)
    assert all(part.tobytes() == same.tobytes() for part, same in zip(parts, again, strict=True))


def test_unit_samples_are_the_raw_ones_divided_by_their_norm():
    raw, unit = (
        np.vstack(synthetic_samples(SyntheticData(kind="synthetic", seed=3, samples=50, scale=scale), n=6, d=4))
        for scale in ("raw", "unit")
    )
    assert np.linalg.norm(unit, 2) == pytest.approx(1, rel=1e-14)
    assert np.allclose(unit * np.linalg.norm(raw, 2), raw, rtol=1e-14)


def test_the_number_of_peers_deals_out_the_same_samples_differently():
    data = SyntheticData(kind="synthetic", seed=3, samples=50)
    assert np.array_equal(*(np.vstack(synthetic_samples(data, n=6, d=d)) for d in (4, 7)))


def test_another_seed_gives_other_samples():
    one, other = (np.vstack(samples_of(make_topology(seed=seed), range(5))) for seed in (1, 2))
    assert np.abs(one - other).max() > 0.01
