"""Whole networks of containers, left alone and not left alone: the bits of one process in the same image."""

import contextlib

import numpy as np
import pytest
from cli.commands import call
from deploy.test_compose import name_code_and_start
from docker.engine import LONG, Engine
from own_code.classes import MODULE
from processes import wait_until, write_topology

from thanos_peer.deploy.containers import IMAGE
from thanos_peer.topology import load

pytestmark = pytest.mark.docker
RING = [f"peer-{i}" for i in range(5)]
# The code without its trace: a container cannot write beside it.
NO_TRACE = MODULE.replace(".touch()", ".exists()")


def verdict(engine: Engine, directory):
    """What the image itself says of the results, to the user that they belong to."""
    mount, owner = f"{directory}:/project:ro", directory.stat()
    verify = ("verify", "/project/topology.toml", "--results", "/project/results")
    options = ("--network", "none", "--user", f"{owner.st_uid}:{owner.st_gid}", "--volume", mount)
    return engine.docker("run", "--rm", *options, IMAGE, *verify).splitlines()[-1]


def codes(engine, directory, *services):
    """The exit codes of services that have ended."""
    containers = [engine.container(directory, service) for service in services]
    assert {engine.inspect(one, ".State.Status") for one in containers} == {"exited"}
    return [int(engine.inspect(one, ".State.ExitCode")) for one in containers]


@contextlib.contextmanager
def edited(file, old, new):
    """A file with something else in it, for a while."""
    before = file.read_text(encoding="utf-8")
    assert old in before
    file.write_text(before.replace(old, new), encoding="utf-8")
    try:
        yield
    finally:
        file.write_text(before, encoding="utf-8")


def test_the_shipped_ring_converges_with_one_command(engine, image, clean_copy):
    directory = clean_copy / "docker"
    engine.docker("rmi", "--no-prune", image)  # `up` builds it, from wheels
    with engine.project(directory):
        said = engine.compose(directory, "up").stdout
        assert codes(engine, directory, "prepare", *RING, "outcome") == [0] * 7
        with edited(directory / "topology.toml", "max_rounds = 3000", "max_rounds = 2999"):
            assert engine.compose(directory, "up", check=False).returncode != 0
            assert codes(engine, directory, "prepare") == [3]
            prepare = engine.container(directory, "prepare")
            assert "topology.toml changed after the first start" in engine.logs(prepare)
        assert "same bits: the results of 5 peers" in engine.compose(directory, "up").stdout
        assert codes(engine, directory, "prepare", *RING, "outcome") == [0] * 7
    assert "same bits: the results of 5 peers" in said
    assert "every agent met the stopping rule of the method" in said
    assert "same bits" in verdict(engine, directory)
    results = sorted((directory / "results/peers").glob("*.npz"))
    assert [file.name for file in results] == [f"{i}.npz" for i in range(5)]
    assert {file.stat().st_uid for file in results} == {directory.stat().st_uid}


def test_the_shipped_files_are_those_that_the_command_writes(tmp_path, clean_copy):
    shipped = clean_copy / "docker"
    call("compose", shipped / "topology.toml", "--portable", "--build", "..", "-o", tmp_path / "again")
    for name in (".env", "compose.yaml", "topology.toml"):
        assert (tmp_path / "again" / name).read_bytes() == (shipped / name).read_bytes()


@pytest.mark.parametrize("options", [(), ("--portable",)])
def test_code_and_a_start_reach_the_containers(engine, image, tmp_path, options):  # noqa: ARG001
    def change(raw):
        name_code_and_start(raw)
        if not options:
            raw["problem"]["data"] = {"kind": "files"}
            for peer in raw["peers"]:
                np.save(tmp_path / f"{peer['id']}.npy", np.random.default_rng(peer["id"]).standard_normal((9, 6)))
                peer["data"] = f"{peer['id']}.npy"

    np.save(tmp_path / "begin here.npy", np.eye(6, 2))
    (tmp_path / "mine.py").write_text(NO_TRACE, encoding="utf-8")
    topology = write_topology(tmp_path / "net.toml", "path", 2, change=change)
    allowed = ("--allow-code", tmp_path / "mine.py")
    project = tmp_path / "project"
    call("compose", topology.file, "-o", project, *allowed, *options)
    with engine.project(project):
        engine.compose(project, "up")
        if options:
            # Nothing has changed, so there is nothing to do.
            engine.compose(project, "up")
        assert codes(engine, project, "peer-0", "peer-1", *(["outcome"] if options else [])) == [
            0,
            0,
            *[0] * len(options),
        ]
    assert "same bits" in call("verify", topology.file, "--results", project / "results", *allowed).stdout


def twelve(directory, max_rounds):
    """A directory for twelve containers of an Erdos-Renyi network."""
    write_topology(directory / "er.toml", "erdos-renyi", 12, max_rounds=max_rounds)
    call("compose", directory / "er.toml", "-o", directory / "project")
    return directory / "project"


def test_twelve_containers_have_the_bits_of_one_process(engine, image, tmp_path):  # noqa: ARG001
    project = twelve(tmp_path, max_rounds=1000)
    with engine.project(project):
        engine.compose(project, "up")
        assert codes(engine, project, *(f"peer-{i}" for i in range(12))) == [0] * 12
    assert verdict(engine, project).startswith("same bits: the results of 12 peers, all after round 1000")


def test_killed_cut_off_and_paused_containers_change_no_bit(engine, image, tmp_path):  # noqa: ARG001
    project = twelve(tmp_path, max_rounds=LONG)
    with engine.project(project):
        engine.compose(project, "up", "--no-start")
        containers = [engine.container(project, f"peer-{i}") for i in range(12)]
        engine.docker("start", *containers)
        disturb(engine, containers, load(project / "topology.toml").graph.neighbors)
        assert engine.wait_for_end(containers) == [0] * 12
    assert verdict(engine, project).startswith(f"same bits: the results of 12 peers, all after round {LONG}")


def disturb(engine, containers, neighbors):
    """Kill one, cut one off and pause one; the last is first, and while it pauses the run does not end."""

    def is_waited_for(agent):
        line = f"for peer {agent} at"
        return lambda: any(line in engine.logs(containers[j]).split("all are here")[-1] for j in neighbors[agent])

    names = "range $name, $_ := .NetworkSettings.Networks}}{{$name}}{{end"
    (network,) = engine.inspect(containers[5], names).split()
    engine.hold(containers[8], containers[3])
    assert engine.inspect(containers[3], ".State.Running") == "true", "the run was over before anything happened"
    engine.kill(containers[3])
    engine.docker("network", "disconnect", network, containers[5])
    wait_until(lambda: engine.inspect(containers[3], ".RestartCount") == "1", "the restart policy")
    wait_until(lambda: "going on from round" in engine.logs(containers[3]), "a peer that is back")
    wait_until(is_waited_for(8), "neighbors that miss peer 8")
    engine.docker("unpause", containers[8])
    wait_until(is_waited_for(5), "neighbors that miss peer 5")
    engine.docker("network", "connect", "--alias", "peer-5", network, containers[5])
