import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from networks import make_topology

from thanos_peer.cli.app import app
from thanos_peer.paper import paper_draft
from thanos_peer.problem import build
from thanos_peer.topology import load
from thanos_peer.topology.render import render

FILES = sorted((Path(__file__).parents[1] / "topologies").glob("*.toml"))


def test_there_are_shipped_topologies():
    assert {"small.toml", "ring.toml", "paper-l1.toml", "paper-l21.toml"} <= {file.name for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_shipped_topology_passes_the_check(file):
    result = CliRunner().invoke(app, ["topology", "check", str(file)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert load(file).digest in result.stdout


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_reference_of_every_shipped_problem_is_precise(file):
    assert build(load(file)).solve_reference().residual < 1e-10


@pytest.mark.parametrize("regularizer", ["l1", "l21"])
def test_the_shipped_paper_topologies_are_those_of_the_paper(regularizer):
    topology = load(next(file for file in FILES if file.stem == f"paper-{regularizer}"))
    problem = topology.problem
    assert topology.d == 32
    assert (problem.n, problem.p, problem.data.samples) == (10, 3, 320)
    assert (problem.regularizer, problem.mu) == (regularizer, 0.1)
    draft = paper_draft(regularizer, 1, sigma=None, max_rounds=3000)
    assert topology.algorithm.preset == "paper"
    assert topology.digest == make_topology(tomllib.loads(render(draft))).digest
