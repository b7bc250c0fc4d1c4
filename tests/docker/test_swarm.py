"""The same network as a stack of a swarm: the engine replaces a killed task, and the bits stay."""

import pytest
from docker.engine import LONG
from docker.test_compose import twelve, verdict
from namespaces import TAG, skip
from processes import wait_until

pytestmark = pytest.mark.docker
STACK = f"{TAG}stack"
OURS = ("--filter", f"label=com.docker.stack.namespace={STACK}")


@pytest.fixture
def swarm(engine):
    """A swarm of this engine alone, gone afterwards with our stack and its volumes."""
    if engine.docker("info", "--format", "{{.Swarm.LocalNodeState}}") != "inactive":
        skip("needs an engine of its own: the one that runs here is part of a swarm, which is left alone")
    engine.docker("swarm", "init", "--advertise-addr", "127.0.0.1")
    try:
        yield
        engine.docker("stack", "rm", STACK)
        wait_until(lambda: not engine.docker("service", "ls", "--quiet"), "no services left")
        wait_until(lambda: not engine.docker("ps", "--all", "--quiet", *OURS), "no containers left")
    finally:
        engine.docker("swarm", "leave", "--force")
    if volumes := engine.docker("volume", "ls", "--quiet", *OURS).split():
        engine.docker("volume", "rm", *volumes)


def tasks_of(engine, agent, *filters):
    """The containers of a peer's tasks, the running ones unless a filter says otherwise."""
    label = f"label=com.docker.swarm.service.name={STACK}_peer-{agent}"
    return engine.docker("ps", "--quiet", "--no-trunc", "--filter", label, *filters).split()


def test_a_killed_task_is_replaced_and_changes_no_bit(engine, image, swarm, tmp_path):  # noqa: ARG001
    project = twelve(tmp_path, max_rounds=LONG)
    engine.docker("stack", "deploy", "--compose-file", project / "stack.yaml", STACK)
    first = wait_until(lambda: tasks_of(engine, 3), "a task of peer 3")[0]
    wait_until(lambda: engine.round_of(first) > 0, "a run that has begun")
    engine.kill(first)
    second = wait_until(lambda: [one for one in tasks_of(engine, 3) if one != first], "a task in its place")[0]
    wait_until(lambda: "going on from round" in engine.logs(second), "a peer that is back")
    results = project / "results/peers"
    wait_until(lambda: len([*results.glob("*.json")]) == 12, "results of all", 300)
    wait_until(lambda: not any(tasks_of(engine, i) for i in range(12)), "the end of all tasks")
    assert verdict(engine, project).startswith(f"same bits: the results of 12 peers, all after round {LONG}")
