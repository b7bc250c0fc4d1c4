"""Masked sums in whole networks: the same bits in one round more."""

from dataclasses import replace

import numpy as np
import pytest
from networks import found_bits, make_instance, with_keys
from simulate.test_exact_methods import run_both
from uneven import LEADING, PREPARED, raw_with_parts, some_parts, with_own_steps

from thanos_peer.block import WORD
from thanos_peer.errors import LocalProtocolError, RemoteProtocolError
from thanos_peer.preparation import outline
from thanos_peer.simulate import AgentNetwork, StackedNetwork
from thanos_peer.topology import families

SIZES = {"complete": 4, "tree": 15, "erdos-renyi": 12, "torus": 9}


def raw_problem(tmp_path, family, d, method):
    raw = raw_with_parts(tmp_path, some_parts([3 + i % 5 for i in range(d)]), family, data=PREPARED, start=LEADING)
    raw["algorithm"] = {"method": method, "start": LEADING}
    return raw


@pytest.mark.parametrize(
    ("family", "d", "method"),
    [
        *((family, SIZES.get(family, 6), "gram") for family in families.FAMILIES),
        *((family, 2, "gram") for family in ("path", "star", "complete")),
        ("tree", 200, "gram"),
        ("star", 200, "gram"),
        ("star", 5, "proximal"),
        ("tree", 7, "proximal"),
        ("ring", 4, "proximal-tracking"),
    ],
)
def test_sums_of_agents_that_mask_have_the_bits_of_plain_ones(tmp_path, family, d, method):
    raw, file = raw_problem(tmp_path, family, d, method), tmp_path / "net.toml"
    masked = AgentNetwork(make_instance(with_keys(raw), file=file))
    plain = StackedNetwork(make_instance(raw, file=file))
    for network in (masked, plain):
        while not network.is_done:
            network.advance()
    assert masked.rounds_by_phase == {"masks": 1, **plain.rounds_by_phase}
    assert masked.payload_sent == plain.payload_sent + 64 * len(raw["edges"])
    assert [masked.X.tobytes(), masked.sparse.tobytes()] == [plain.X.tobytes(), plain.sparse.tobytes()]
    found, expected = found_bits(masked.found), found_bits(plain.found)
    assert found.pop("over")[1:] == expected.pop("over")
    assert found == expected


def test_both_engines_go_through_the_round_of_masks_together(tmp_path):
    run_both(make_instance(with_keys(raw_problem(tmp_path, "ring", 4, "gram")), file=tmp_path / "net.toml"))


def test_a_method_that_mixes_from_the_first_round_on_masks_the_sums_after_it(tmp_path):
    data = {"kind": "files", "center": False, "scale": False, "overall": "raw"}
    raw = raw_with_parts(tmp_path, some_parts([3, 4, 5]), "path", data=data, start={"kind": "random", "seed": 1})
    with_own_steps(raw)
    plain, keyed = (make_instance(each, file=tmp_path / "net.toml") for each in (raw, with_keys(raw)))
    assert [phase.name for phase in outline(plain.topology).phases] == ["thanos", "consensus", "verdict"]
    names = ["thanos", "masks", "consensus", "verdict"]
    assert [phase.name for phase in outline(keyed.topology).phases] == names
    agents = run_both(keyed)
    assert list(agents.rounds_by_phase) == names
    assert agents.agents[0].runner.minimises_first
    other = StackedNetwork(plain)
    while not other.is_done:
        other.advance()
    assert [agents.X.tobytes(), agents.sparse.tobytes()] == [other.X.tobytes(), other.sparse.tobytes()]


def advance_with_a_lie(network, victim, phase):
    """One round in which the victim is told a word of a phase whose last number is off by one bit."""
    agents = network.agents
    for agent in agents:
        for j in agent.neighbors:
            block = agent.block.as_told_to(j)
            if j == victim and block.kind == WORD and agent.runner.phase.name == phase:
                word = np.frombuffer(block.numbers, dtype="<f8").copy()
                word[-1] = np.nextafter(word[-1], 0)
                block = block._replace(numbers=word.tobytes())
            agents[j].receive(agent.id, block)
    for agent in agents:
        agent.advance()


@pytest.mark.parametrize("is_masked", [True, False])
@pytest.mark.parametrize(
    ("method", "family", "d", "phase"),
    [
        ("gram", "ring", 4, "mean"),
        ("gram", "complete", 4, "spread"),
        ("gram", "tree", 7, "size"),
        ("gram", "ring", 4, "gram"),
        ("proximal", "ring", 4, "leading"),
        ("proximal", "ring", 5, "proximal"),
    ],
)
def test_where_a_parent_tells_one_child_another_word_masks_do_not_cancel_and_that_is_an_error(
    tmp_path, method, family, d, phase, is_masked
):
    raw = raw_problem(tmp_path, family, d, method)
    network = AgentNetwork(make_instance(with_keys(raw) if is_masked else raw, file=tmp_path / "net.toml"))
    victim = next(i for i, agent in enumerate(network.agents) if agent.runner.phases[-1].place.depth == 1)

    def run():
        while not network.is_done:
            advance_with_a_lie(network, victim, phase)

    if not is_masked:
        run()  # a bit more or less is nothing that could be seen: so it is the masks that tell
        return
    with pytest.raises(
        RemoteProtocolError, match=r"the sum of all peers in phase [a-z]+ cannot be: .*masks do not cancel"
    ) as caught:
        run()
    assert caught.value.neighbor is None


def test_an_agent_without_its_secrets_says_nothing_rather_than_its_own_numbers(tmp_path):
    raw = raw_problem(tmp_path, "ring", 4, "gram")
    network = AgentNetwork(make_instance(with_keys(raw), file=tmp_path / "net.toml"))
    while network.phase[0] != "gram":
        network.advance()
    runner = network.agents[1].runner
    runner.phase.enter(replace(runner.found, secrets=None), runner.began)
    with pytest.raises(LocalProtocolError, match="agent 1 has no secrets to mask phase gram with"):
        runner.phase.start()
