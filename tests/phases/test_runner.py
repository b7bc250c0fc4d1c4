"""From phase to phase: an agent is in one of them, also where the next cannot begin."""

import numpy as np
import pytest
from networks import found_bits
from uneven import FOUND, LEADING, PLAIN, instance_of, network_of, run, some_parts, with_own_steps

from thanos_peer.agent import Agent
from thanos_peer.errors import OwnCodeError
from thanos_peer.simulate import AgentNetwork


def all_of(memory):
    """A memory as something to compare."""
    arrays = {name: np.asarray(value).tobytes() for name, value in memory.arrays.items()}
    return found_bits(memory.found), memory.k, arrays, memory.stop, memory.phase, memory.began


# The phases of each pair of start and method.
EVERY_PHASE = {
    ("destiny", "thanos"): ["mean", "spread", "size", "subspace", "rotation", "thanos", "consensus", "verdict"],
    ("leading", "proximal"): ["mean", "spread", "size", "leading", "proximal", "verdict"],
    ("leading", "gram"): ["mean", "spread", "size", "gram", "verdict"],
}


@pytest.mark.parametrize(
    ("kind", "phase", "function"),
    [
        (kind, phase, function)
        for kind, names in EVERY_PHASE.items()
        for phase in range(len(names))
        for function in ("enter", "start", "conclude")[2 * (phase == 0) :]
    ],
)
def test_where_a_phase_cannot_begin_or_end_the_agent_stays_where_it_was(
    tmp_path, monkeypatch, function, kind, phase
):
    start = FOUND | {"max_rounds": 20} if kind[0] == "destiny" else LEADING
    instance = instance_of(tmp_path, some_parts((20, 30)), "path", max_rounds=500, start=start, method=kind[1])
    plan = instance.plan(1)
    assert [each.name for each in plan.phases] == EVERY_PHASE[kind]
    network = AgentNetwork(instance)
    network.agents[1] = agent = Agent(instance.topology, 1, plan)

    def fail(*_, **__):
        raise OwnCodeError("no luck")

    monkeypatch.setattr(plan.phases[phase], function, fail)
    saved = []

    def run_on():
        while not network.is_done:
            saved.append(all_of(agent.memory()))
            network.advance()

    with pytest.raises(OwnCodeError):
        run_on()
    assert all_of(agent.memory()) == saved[-1]
    assert agent.runner.phase.name == plan.phases[phase - (function != "conclude")].name
    assert not agent.is_done


def test_after_a_loss_a_run_that_only_minimises_and_judges_goes_on_from_where_it_was(tmp_path):
    parts, plain = some_parts((20, 30)), {"kind": "files"}
    network = network_of(tmp_path, parts, "path", data=plain, max_rounds=9, start=PLAIN, change=with_own_steps)
    agent, lost = (
        network.agents[0],
        network_of(tmp_path, parts, "path", data=plain, max_rounds=9, start=PLAIN, change=with_own_steps).agents[
            1
        ],
    )
    run(network)
    kept, start = agent.runner.answer().X.copy(), lost.runner.state.X.copy()
    agent.restart_tracking(1)
    # What a neighbor says in a later phase would be no X, so it is not used.
    lost.restart_tracking(1, kept)
    assert (agent.runner.phase.name, agent.k, agent.runner.state.X.tobytes()) == ("thanos", 0, kept.tobytes())
    assert lost.runner.state.X.tobytes() == start.tobytes() != kept.tobytes()
