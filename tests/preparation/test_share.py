"""What one agent brings: its phases, and the samples that its method is given."""

import numpy as np
import pytest
from networks import make_topology
from uneven import LEADING, PLAIN, instance_of, leading, network_of, raw_with_parts, run, some_parts, standardised

from thanos_peer.algorithm.methods import METHODS, MIXING
from thanos_peer.algorithm.stiefel import polar
from thanos_peer.algorithm.subgradient import Subgradient
from thanos_peer.deploy.containers import memory_of
from thanos_peer.errors import ConfigError
from thanos_peer.simulate import AgentNetwork, StackedNetwork


def test_an_agent_alone_prepares_its_samples_in_a_round_for_each_sum(tmp_path):
    parts = some_parts((40,))
    network = network_of(tmp_path, parts, "path", start=LEADING, max_rounds=7)
    assert run(network) == {
        "mean": 1,
        "spread": 1,
        "size": 1,
        "leading": 3,
        "thanos": 7,
        "consensus": 1,
        "verdict": 1,
    }
    found, rows = network.found, parts[0]
    assert found.mean == pytest.approx(rows.mean(axis=0), rel=1e-12)
    assert np.sqrt(found.variance) == pytest.approx(rows.std(axis=0), rel=1e-12)
    Z = standardised(parts)
    vectors, _ = leading(Z, 2)
    assert np.linalg.norm(found.start - vectors @ (vectors.T @ found.start), 2) < 1e-12
    X = polar(found.X)
    assert found.explained == pytest.approx(np.sum((Z @ X) ** 2, axis=0) / np.sum(Z**2))
    assert network.k == 7


class Drawing(Subgradient):
    """A method that needs samples, and tells what it is made of."""

    needs_samples = True
    is_for_pca = True
    setups = []  # noqa: RUF012 - filled by the engines

    @classmethod
    def make(cls, setup):
        cls.setups.append(setup)
        return super().make(setup)


@pytest.fixture
def drawing(monkeypatch):
    """The name under which files ask for it."""
    for table in (METHODS, MIXING):
        monkeypatch.setitem(table, "drgta", Drawing)
    monkeypatch.setattr(Drawing, "setups", [])
    return "drgta"


@pytest.mark.parametrize("start", [LEADING, PLAIN], ids=["leading", "random"])
def test_a_method_that_draws_is_given_prepared_samples_the_agents_ids_and_a_seed(tmp_path, drawing, start):
    """One agent its own, and the stack all of them in its own order, however many samples each has."""
    parts = some_parts((9, 3, 60))
    instance = instance_of(tmp_path, parts, "star", method=drawing, start=start | {"seed": 8}, max_rounds=2)
    alone = AgentNetwork(instance)
    run(alone)
    each, Drawing.setups[:] = list(Drawing.setups), []
    stacked = StackedNetwork(instance)
    while not stacked.is_done:
        stacked.advance()
    (together,) = Drawing.setups
    prepared = np.split(standardised(parts) / alone.overall, np.cumsum([9, 3, 60])[:-1])
    assert {setup.agents for setup in each} == {(0,), (1,), (2,)}
    assert sorted(together.agents) == [0, 1, 2]
    assert {setup.seed for setup in (*each, together)} == {8}
    for setup in (*each, together):
        assert len(setup.samples) == len(setup.agents)
        for agent, A in zip(setup.agents, setup.samples, strict=True):
            assert pytest.approx(prepared[agent].T, rel=0, abs=1e-10) == A
    for setup in each:
        (agent,), (A,) = setup.agents, setup.samples
        assert A.tobytes() == together.samples[together.agents.index(agent)].tobytes()
    without = instance_of(tmp_path, parts, "star", method="subgradient", start=start, max_rounds=2)
    assert without.shares[0].prepare_main(without.found).samples == ()


def test_the_memory_of_a_container_has_room_for_samples_that_a_method_draws_from(tmp_path, drawing):
    parts = [np.random.default_rng(i).standard_normal((3000, 40)) for i in range(2)]
    draft = {"start": LEADING, "max_rounds": 2}
    kept, summed = (
        memory_of(instance_of(tmp_path, parts, "path", method=method, **draft).topology)
        for method in (drawing, "subgradient")
    )
    assert kept - summed >= 8 * 8 * 2960 * 40 // 2**20
    topology = make_topology(raw_with_parts(tmp_path, parts, "path", method=drawing, **draft), file=tmp_path / "n")
    (tmp_path / "1.csv").unlink()
    with pytest.raises(ConfigError, match="the data of peer 1 is not here, and drgta holds all of it"):
        memory_of(topology)
