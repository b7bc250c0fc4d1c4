"""An objective of one's own in real processes: the example, and one that fails."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from own_code.classes import raw_with, write
from processes import PATIENCE, command, ended_afterwards, said, start_peer, wait_until

from thanos_peer import load_result
from thanos_peer.topology import load

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*arguments, cwd):
    return subprocess.run(
        command(*arguments), cwd=cwd, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def sine(found, planted):
    return np.linalg.norm(found - planted @ planted.T @ found, 2)


def test_the_example_finds_the_planted_subspace_where_pca_does_not(tmp_path):
    done = run(
        *("run", "examples/dual_pca.toml", "--free-ports", "--allow-code", "examples/dual_pca.py"),
        *("--quiet", "--out", tmp_path / "out"),
        cwd=EXAMPLES.parent,
    )
    assert done.returncode == 0, done.stderr
    assert "every agent met the stopping rule of the method" in done.stdout
    code = "import dual_pca, numpy, sys; numpy.save(sys.argv[1], dual_pca.planted_normals())"
    subprocess.run([sys.executable, "-c", code, tmp_path / "planted.npy"], cwd=EXAMPLES, check=True)
    planted = np.load(tmp_path / "planted.npy")
    summary = json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))
    for peer in range(4):
        result = load_result(tmp_path / "out", peer=peer)
        assert sine(result.polar_components_.T, planted) < 0.05
        assert result.explained_variance_ratio_ is None
        assert result.facts["objective"] == pytest.approx(summary["objective"], rel=1e-12)
        assert result.facts["residual"] == pytest.approx(summary["residual"], rel=1e-2)  # both are next to nothing
        assert result.facts["residual"] < 1e-5
    files = [EXAMPLES / f"dual_pca_data/{peer}.csv" for peer in range(4)]
    samples = np.vstack([np.loadtxt(file, delimiter=",", skiprows=1) for file in files])
    assert sine(np.linalg.svd(samples)[2][-2:].T, planted) > 0.5


def test_the_samples_of_the_example_are_those_that_it_makes(tmp_path):
    script = tmp_path / "dual_pca.py"
    script.write_bytes((EXAMPLES / "dual_pca.py").read_bytes())
    (tmp_path / "dual_pca_data").mkdir()
    subprocess.run([sys.executable, script], check=True)
    for peer in range(4):
        made, shipped = (path / f"dual_pca_data/{peer}.csv" for path in (tmp_path, EXAMPLES))
        assert made.read_text(encoding="utf-8") == shipped.read_text(encoding="utf-8")


def test_a_network_with_own_code_has_the_bits_of_one_process(tmp_path):
    module, file = write(tmp_path, raw_with(regularizer="mine:Ridge"))
    done = run("verify", file, "--quiet", "--allow-code", module, "--out", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "same bits: the results of 4 peers, all after round 30" in done.stdout


def test_ctrl_c_while_verify_runs_the_network_in_one_process_is_exit_code_130(tmp_path):
    module, file = write(tmp_path, raw_with("mine:Waits"))
    words = command("verify", file, "--quiet", "--allow-code", module, "--out", tmp_path / "out")
    verifying = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    with ended_afterwards(verifying):
        wait_until((tmp_path / "waits").exists, "one process has begun")
        verifying.send_signal(signal.SIGINT)
        stdout, stderr = verifying.communicate(timeout=60)
    assert verifying.returncode == 130, stderr
    assert "same bits" not in stdout
    assert "Traceback" not in stderr


def test_a_peer_whose_code_fails_says_so_and_its_neighbors_hear_of_it(tmp_path):
    module, file = write(tmp_path, raw_with("mine:Late"))
    topology, out = load(file), tmp_path / "out"
    mend = tmp_path / "mended" / "mine.py"
    mend.parent.mkdir()
    mend.write_text(module.read_text(encoding="utf-8").replace("self.calls > 5", "False"), encoding="utf-8")
    peers = [start_peer(topology, i, out, "--allow-code", mend if i else module) for i in range(4)]
    with ended_afterwards(*peers):
        assert peers[0].wait(PATIENCE) == 3
        assert "mine:Late.gradient failed: RuntimeError: enough" in said(out, 0)
        assert "Traceback" not in said(out, 0)
        again = start_peer(topology, 0, out, "--allow-code", mend)
        with ended_afterwards(again):
            assert [peer.wait(PATIENCE) for peer in (again, *peers[1:])] == [0] * 4
    assert "its own objective or regularizer failed" in said(out, 1)


def test_a_value_that_fails_does_so_before_the_first_round_though_only_the_verdict_needs_it(tmp_path):
    raw = raw_with("mine:NoValue")
    raw["problem"]["data"] = {"kind": "files"}
    for peer in raw["peers"]:
        peer["data"] = f"{peer['id']}.npy"
        np.save(tmp_path / peer["data"], np.random.default_rng(peer["id"]).standard_normal((20, 6)))
    module, file = write(tmp_path, raw)
    alone = start_peer(load(file), 0, tmp_path / "out", "--allow-code", module)
    with ended_afterwards(alone):
        assert alone.wait(PATIENCE) == 3
    assert "mine:NoValue.value failed: RuntimeError: no value" in said(tmp_path / "out", 0)
    assert "listening" not in said(tmp_path / "out", 0)


def test_a_peer_that_takes_long_for_a_step_stays_connected(tmp_path):
    module, file = write(tmp_path, raw_with("mine:Late"))
    topology, out = load(file), tmp_path / "out"
    busy = tmp_path / "busy" / "mine.py"
    busy.parent.mkdir()
    text = module.read_text(encoding="utf-8").replace("self.calls > 5", "self.calls == 5")
    slow = text.replace('raise RuntimeError("enough")', "import time; time.sleep(15)")
    busy.write_text(slow, encoding="utf-8")
    module.write_text(text.replace("self.calls == 5", "False"), encoding="utf-8")
    peers = [start_peer(topology, i, out, "--allow-code", module if i else busy) for i in range(4)]
    with ended_afterwards(*peers):
        assert [peer.wait(PATIENCE) for peer in peers] == [0] * 4
    # Heartbeats would have noticed a cut cable after five seconds.
    for neighbor in (1, 3):
        waited = re.findall(r"waiting (\d+) s in round \d+ for peer 0 at \S+: connected for ", said(out, neighbor))
        assert max(map(int, waited), default=0) > 5
        assert "connection lost" not in said(out, neighbor)
