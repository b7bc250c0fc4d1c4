"""What `benchmarks/images.py` prints of a network, measured for real."""

import importlib.util
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.docker
SCRIPT = Path(__file__).parents[2] / "benchmarks/images.py"


def test_starting_a_network_and_its_memory_are_measured(engine, image, tmp_path, capsys):  # noqa: ARG001
    spec = importlib.util.spec_from_file_location("images", SCRIPT)
    images = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(images)
    images.measure_network(3, tmp_path)
    started, under_way, memory = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"time to start      [\d.]+ s for 3 containers", started)
    assert re.fullmatch(r"until round 1      [\d.]+ s", under_way)
    used = [float(each) for each in re.findall(r"([\d.]+)MiB", memory)]
    assert len(used) == 3
    assert all(10 < each < 192 for each in used)
    assert engine.docker("ps", "--all", "--quiet", "--filter", "name=thanos-peer-images") == ""
