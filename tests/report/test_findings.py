import json
import shutil

import numpy as np
import pytest
from cli.commands import call
from processes import write_topology
from report.runs import network_run, simulated_run, with_data_files

from thanos_peer.problem import Instance
from thanos_peer.report import findings
from thanos_peer.report.findings import (
    instance_of,
    loadings_of,
    longest_waits,
    main_rows,
    mean_of,
    trade_off_of,
    waits_of,
)
from thanos_peer.report.reading import read_run


@pytest.mark.parametrize("regularizer", ["l1", "l21"])
def test_the_loadings_are_those_that_the_summary_counts(tmp_path, regularizer):
    run = read_run(simulated_run(tmp_path, regularizer=regularizer, mu=0.6, max_rounds=200))
    loadings = loadings_of(run)
    assert np.count_nonzero(loadings) == run.summary.nonzeros < run.summary.entries
    assert np.count_nonzero(loadings.any(axis=1)) == run.summary.nonzero_rows


def test_the_curve_ends_where_the_summary_does_and_never_explains_more_than_all(tmp_path):
    run = read_run(simulated_run(tmp_path))
    trade_off = trade_off_of(run)
    assert trade_off.kept[0] == 1
    assert trade_off.kept[-1] == run.summary.entries == 12
    assert trade_off.shares[-1] == pytest.approx(run.summary.variance_explained, rel=1e-12)
    assert (trade_off.shares > 0).all()
    assert (trade_off.shares < 1).all()


def test_one_loading_explains_the_variance_of_its_feature(tmp_path):
    run = read_run(simulated_run(tmp_path))
    samples = instance_of(run).pooled.A
    feature = np.unravel_index(np.abs(mean_of(run)).argmax(), (6, 2))[0]
    wanted = (samples[feature] ** 2).sum() / (samples**2).sum()
    assert trade_off_of(run).shares[0] == pytest.approx(wanted, rel=1e-9)


def test_data_files_are_found_where_the_topology_was_and_without_them_there_is_no_curve(tmp_path, monkeypatch):
    path = simulated_run(tmp_path, change=with_data_files(tmp_path))
    run = read_run(path)
    assert trade_off_of(run).shares[-1] == pytest.approx(run.summary.variance_explained, rel=1e-12)
    size = sum(file.stat().st_size for file in tmp_path.glob("*.npy"))
    for most, is_read in ((size, True), (size - 1, False)):
        monkeypatch.setattr(findings, "LARGEST_FILES", most)
        assert isinstance(instance_of(run), Instance) is is_read
    assert trade_off_of(run).why == "the data files are too large to be read for a curve"
    monkeypatch.undo()
    (tmp_path / "0.npy").write_bytes(b"0")
    assert "is not a plain numeric .npy file" in trade_off_of(run).why
    (tmp_path / "0.npy").unlink()
    assert len(trade_off_of(run).kept) == 0
    assert trade_off_of(run).why == f"{tmp_path / '0.npy'} cannot be read: No such file or directory"


def test_no_other_data_is_taken_for_that_of_the_run_wherever_the_report_is_made(tmp_path, monkeypatch):
    """Where the topology was named from and where the report is made, the same paths may lead to other data."""
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        write_topology(tmp_path / place / "net.toml", max_rounds=20, change=with_data_files(tmp_path / place))
    for file in (tmp_path / "there").glob("*.npy"):
        np.save(file, np.random.default_rng(8).standard_normal(np.load(file).shape))
    monkeypatch.chdir(tmp_path / "here")
    call("simulate", "net.toml", "--quiet", "--out", "run")
    monkeypatch.chdir(tmp_path / "there")
    run = read_run(tmp_path / "here" / "run")
    assert trade_off_of(run).shares[-1] == pytest.approx(run.summary.variance_explained, rel=1e-12)
    assert json.loads((run.path / "run.json").read_text())["topology"] == str(tmp_path / "here" / "net.toml")
    (tmp_path / "here" / "0.npy").unlink()
    assert len(trade_off_of(run).kept) == 0


def test_waits_are_those_of_the_facts_and_nothing_where_there_is_no_edge(tmp_path):
    path = network_run(tmp_path, family="path", d=3)
    waits = waits_of(read_run(path))
    facts = json.loads((path / "peers" / "1.json").read_text())
    assert waits[1, 2] == facts["edges"]["2"]["seconds_waited"]
    assert list(map(tuple, np.argwhere(np.isnan(waits)))) == [(0, 0), (0, 2), (1, 1), (2, 0), (2, 2)]
    (path / "peers" / "1.json").unlink()
    assert np.isnan(waits_of(read_run(path))[1]).all()


def test_the_longest_waits_come_first_and_pairs_without_an_edge_never():
    waits = np.array([[np.nan, 3.0], [0.0, np.nan]])
    assert longest_waits(waits, 5) == [(0, 1, 3.0), (1, 0, 0.0)]
    assert longest_waits(waits, 1) == [(0, 1, 3.0)]


def test_of_many_rows_the_largest_are_chosen_in_their_own_order():
    loadings = np.array([[0.1, 0.0], [0.0, 0.0], [0.0, -0.9], [0.5, 0.0]])
    assert main_rows(loadings, 4) == [0, 1, 2, 3]
    assert main_rows(loadings, 2) == [2, 3]
    assert main_rows(np.vstack([loadings, np.zeros((3, 2))]), 5) == [0, 2, 3]
    assert main_rows(np.zeros((3, 2)), 2) == [0]


def test_without_results_there_is_nothing_to_find(tmp_path):
    path = simulated_run(tmp_path)
    shutil.rmtree(path / "peers")
    run = read_run(path)
    assert mean_of(run) is None
    assert loadings_of(run) is None
    assert len(trade_off_of(run).kept) == 0
